package agent

import (
	"context"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/journal"
)

// Fork starts a new run from a round of another one: it has the transcript as it
// was before the model was asked for that round, and the same agent, workspace
// and lists. round counts from 1; one more than there are begins after the last one, if
// that is finished. prompt, if any, is added as the person's next message. The principal
// is the one who forks. Nothing of the old run changes, and nothing of its effects is
// undone: calls equal to those that took effect are asked about.
func (r *Runner) Fork(ctx context.Context, run toolcrib.RunID, round int, who toolcrib.Principal, prompt string, approve Approve) (*State, error) {
	old, err := r.Load(ctx, run)
	if err != nil {
		return nil, err
	}
	if old.Start.Given != nil {
		return nil, usagef("run %s is one given call; there is no round to fork from", run)
	}
	last := max(old.Iterations, 1)
	switch {
	case round == old.Iterations+1 && old.Turn != nil:
		return nil, usagef("round %d of run %s is not finished, so nothing can begin after it; begin with round 1 to %d", old.Iterations, run, last)
	case round < 1 || round > old.Iterations+1:
		return nil, usagef("run %s has rounds 1 to %d; a fork begins with one of them, or after one of them", run, last)
	}
	history, taint, err := r.upToRound(ctx, run, round)
	if err != nil {
		return nil, err
	}
	if n := len(history); prompt == "" && n > 0 && history[n-1].Role == toolcrib.RoleAssistant {
		return nil, usagef("run %s has answered: give a prompt to go on after its last round", run)
	}
	ran, err := r.Ran(ctx, old)
	if err != nil {
		return nil, err
	}
	forked := old.Start.Agent
	if old.first > 0 {
		forked.Model, forked.Fallback = old.Models[old.first].Ref, nil
	}
	return r.Run(ctx, Task{
		Agent: forked, Models: old.Models[old.first:], Principal: who,
		History: history, Taint: taint, Canary: old.Start.Canary, Prompt: prompt, Workspace: old.Start.Workspace, Driver: old.Start.Driver,
		ForkedFrom: run, ForkedRound: round, Ran: ran,
		RunTools: old.Start.RunTools, SkillTools: old.Start.SkillTools, WorkerTools: old.Start.WorkerTools,
		Skills: old.Start.Skills, Approve: approve, Above: old.Start.Above, Worker: old.Start.Worker,
	})
}

// upToRound is the transcript as it was when round was asked for, with what was
// condensed by then, and the sources of untrusted data in it.
func (r *Runner) upToRound(ctx context.Context, run toolcrib.RunID, round int) (history []toolcrib.Message, taint []string, err error) {
	s := NewState(run)
	for e, err := range r.Journal.Read(ctx, run, 0) {
		if err != nil {
			return nil, nil, err
		}
		// The closing request repeats the number of the last round, and comes after it.
		if b, ok := e.Body.(*journal.ModelRequest); ok && b.Purpose == "" && (!b.Closing && b.Iteration == round || b.Closing && b.Iteration < round) {
			break
		}
		if err := Fold(s, e); err != nil {
			return nil, nil, err
		}
	}
	return append([]toolcrib.Message(nil), s.Messages...), s.Taint, nil
}

// Cancel ends a run that no driver has: one that is parked, queued or was cut
// off. Calls that are open are answered as cancelled, writes that were cut off as
// in doubt. A run that has ended is a conflict.
func (r *Runner) Cancel(ctx context.Context, run toolcrib.RunID, by string) (*State, error) {
	s, err := r.Load(ctx, run)
	if err != nil {
		return nil, err
	}
	if s.Ended() {
		return s, stateErrorf(s, "has ended; there is nothing to cancel")
	}
	ctx, cancel := context.WithCancelCause(ctx)
	cancel(&CancelError{By: by})
	d := newDriver(r, s)
	// Together with why: a run that waits must never look as if somebody drove it.
	if err := d.hold(d.takenUp()); err != nil {
		return s, err
	}
	return s, conflict(s, d.drive(ctx))
}
