package agent

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent/core"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/journal"
)

// Forked returns the task of a new run that begins from a round of another one. It has the transcript
// from before the request of that round, and the same agent, workspace and lists. round counts from 1;
// one more than the last round begins after that round, if it is finished. prompt, if not empty, is
// added as the next message of the person. who is the principal of the fork. The old run does not
// change and its effects are not undone: before a call equal to one that took effect runs, a person is
// asked.
func (r *Runner) Forked(ctx context.Context, run toolcrib.RunID, round int, who toolcrib.Principal, prompt string,
	approve Approve,
) (task Task, err error) {
	old, err := r.Load(ctx, run)
	if err != nil {
		return task, err
	}
	if old.Start.Given != nil {
		return task, usagef("run %s is a single tool call and has no round to fork from", run)
	}
	last := max(old.Iterations, 1)
	switch {
	case round == old.Iterations+1 && old.Turn != nil:
		return task, usagef("round %d of run %s is not finished, so no fork can begin after it; use round 1 to %d",
			old.Iterations, run, last)
	case round < 1 || round > old.Iterations+1:
		return task, usagef("run %s has rounds 1 to %d; a fork begins at or after one of them", run, last)
	}
	history, taint, err := r.upToRound(ctx, run, round)
	if err != nil {
		return task, err
	}
	if n := len(history); prompt == "" && n > 0 && history[n-1].Role == toolcrib.RoleAssistant {
		return task, usagef("run %s has answered: give a prompt to continue after its last round", run)
	}
	ran, err := r.Ran(ctx, old)
	if err != nil {
		return task, err
	}
	forked := old.Start.Agent
	first := old.First()
	if first > 0 {
		forked.Model, forked.Fallback = old.Models[first].Ref, nil
	}
	return Task{
		Agent: forked, Models: old.Models[first:], Principal: who,
		History: history, Taint: taint, Prompt: prompt, Workspace: old.Start.Workspace,
		RunTools: old.Start.RunTools, Approve: approve, ClientTools: old.Start.ClientTools,
		Hosted: Hosted{
			Canary: old.Start.Canary, Driver: old.Start.Driver, Site: old.Start.Site, Asked: old.Start.Asked,
			ForkedFrom: run, ForkedRound: round, Ran: ran,
			SkillTools: old.Start.SkillTools, WorkerTools: old.Start.WorkerTools,
			Skills: old.Start.Skills, Listed: old.Start.Listed, Above: old.Start.Above, Worker: old.Start.Worker,
		},
	}, nil
}

// upToRound returns the transcript from before the request of round, as condensed by then, and the
// sources of untrusted data in it.
func (r *Runner) upToRound(ctx context.Context, run toolcrib.RunID, round int) (history []toolcrib.Message,
	taint []string, err error,
) {
	// The closing request follows the last round and has the same number.
	s, err := loadUntil(ctx, r.Journal, run, func(e toolcrib.Event) bool {
		b, ok := e.Body.(*journal.ModelRequest)
		return ok && b.Purpose == "" && (!b.Closing && b.Iteration == round || b.Closing && b.Iteration < round)
	})
	if err != nil {
		return nil, nil, err
	}
	return append([]toolcrib.Message(nil), s.Messages...), s.Taint, nil
}

// Cancel ends a run that has no driver: a parked, queued or interrupted one. Open calls are answered
// as cancelled, interrupted writes as in doubt. A run that has ended is a conflict.
func (r *Runner) Cancel(ctx context.Context, run toolcrib.RunID, by *CancelError) (*State, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	cancel(by)
	return r.end(ctx, run)
}

// Deny ends a run without a driver whose user may no longer run it; why is the reason.
func (r *Runner) Deny(ctx context.Context, run toolcrib.RunID, why string) (*State, error) {
	return r.end(ctx, run, &journal.Stopping{
		Reason: toolcrib.StopPolicyDenied, Message: r.Mask.Mask(why), By: byPolicy,
	})
}

// end resumes a run in order to end it.
func (r *Runner) end(ctx context.Context, run toolcrib.RunID, why ...toolcrib.Body) (*State, error) {
	s, err := r.Load(context.WithoutCancel(ctx), run)
	if err != nil {
		return nil, err
	}
	if s.Ended() {
		return s, stateErrorf(s, "has ended; there is nothing to cancel")
	}
	d := newDriver(r, s)
	// Appended together with why, so that a run that waits never looks as if it had a driver.
	if err := d.hold(append([]toolcrib.Body{d.takenUp()}, why...)...); err != nil {
		return s, err
	}
	return s, conflict(s, d.drive(ctx))
}

// NoticeAlreadyRan lists the calls that took effect in the runs that a fork begins from.
const NoticeAlreadyRan = "already_ran"

// Ran returns the calls that took effect, or may have, in a run, in those below it and in those that
// it was forked from. A run that begins again from it must not repeat them without asking. Calls that
// only read are not included.
func (r *Runner) Ran(ctx context.Context, s *State) ([]RanCall, error) {
	return r.ranAt(ctx, s, 0)
}

// RanCall is a call that took effect in another run.
type RanCall struct {
	journal.RanCall
	call    toolcrib.Call // zero if the journal records what the call does
	targets []toolcrib.Target
}

// ranBefore returns earlier calls as a journal keeps them.
func ranBefore(kept []journal.RanCall) []RanCall {
	all := make([]RanCall, len(kept))
	for i, c := range kept {
		all[i].RanCall = c
	}
	return all
}

// keptRan returns earlier calls in the form of the journal.
func (r *Runner) keptRan(ctx context.Context, ran []RanCall) []journal.RanCall {
	var all []journal.RanCall
	for _, c := range ran {
		if c.call.Name != "" {
			c.Does = r.Gate.Does(ctx, c.call, c.targets)
		}
		all = append(all, c.RanCall)
	}
	return all
}

func (r *Runner) ranAt(ctx context.Context, s *State, depth int) ([]RanCall, error) {
	if depth > maxBelow {
		return nil, fmt.Errorf("run %s: more than %d runs are nested: the journal is damaged; `runs verify` shows where",
			s.Run, maxBelow)
	}
	all := ranBefore(s.Start.Ran)
	for _, c := range s.Trace {
		if tookEffect(c) {
			arguments := c.JudgedArguments()
			all = append(all, RanCall{
				RanCall: journal.RanCall{Run: s.Run, ID: c.ID, Name: c.Name, Arguments: argumentsHash(arguments)},
				call: toolcrib.Call{
					ID: c.ID, Name: c.Name, Arguments: arguments, Run: s.Run, Session: s.Start.Session,
					Principal: s.Start.Principal, Workspace: s.Start.Workspace, Depth: s.Start.Depth,
				},
				targets: c.Verdict.Targets,
			})
		}
		if c.Child == nil {
			continue
		}
		below, err := r.below(ctx, s, c)
		if err != nil {
			return nil, err
		}
		if below.Seq == 0 {
			continue // it never began
		}
		more, err := r.ranAt(ctx, below, depth+1)
		if err != nil {
			return nil, err
		}
		all = append(all, more[min(len(below.Start.Ran), len(more)):]...)
	}
	return all, nil
}

// tookEffect reports whether a call changed something, as far as is known.
func tookEffect(c *core.Call) bool {
	switch {
	case c.Verdict == nil || !c.Verdict.Effect.Writes() || c.Child != nil:
		return false
	case c.Started == nil && !c.Retried && !(c.ByClient() && c.Result != nil):
		return false
	case c.Doubt != nil && c.Doubt.Decision == journal.DecisionNotHappened:
		return false
	case c.Result != nil && c.Result.Status == toolcrib.ResultError:
		return c.Verdict.Effect == toolcrib.EffectNonIdempotentWrite // it may have been done in part
	}
	return true
}

func argumentsHash(arguments []byte) string {
	sum := sha256.Sum256(arguments)
	return hex.EncodeToString(sum[:])
}

// repeats returns, for the gate, the earlier call that did the same as this one, a part of it, or more;
// "" if none did.
func repeats(s *State, name string, arguments []byte, does []string) string {
	hash := argumentsHash(arguments)
	for _, c := range s.Start.Ran {
		if c.Name == name && (c.Arguments == hash || allIn(c.Does, does) || allIn(does, c.Does)) {
			return "call " + c.ID + " of " + string(c.Run)
		}
	}
	return ""
}

// allIn reports whether part is not empty and all its elements are in whole.
func allIn(part, whole []string) bool {
	return len(part) > 0 && !slices.ContainsFunc(part, func(d string) bool { return !slices.Contains(whole, d) })
}

// ranNotice lists the earlier calls that took effect.
func ranNotice(ran []RanCall) *journal.Notice {
	const most = 10
	names := make([]string, 0, most+1)
	for _, c := range ran[:min(len(ran), most)] {
		names = append(names, fmt.Sprintf("%s (%s of %s)", guard.Visible(c.Name), guard.Visible(c.ID), c.Run))
	}
	if more := len(ran) - most; more > 0 {
		names = append(names, fmt.Sprintf("%d more", more))
	}
	return journal.Noticef(NoticeAlreadyRan,
		"these calls took effect before, and nothing of that is undone: %s; a call that does the same is asked about",
		strings.Join(names, ", "))
}
