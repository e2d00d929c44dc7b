package agent_test

import (
	"context"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/journal"
)

// forkOf runs what [agent.Runner.Forked] makes.
func forkOf(ctx context.Context, r *agent.Runner, run toolcrib.RunID, round int, who toolcrib.Principal, prompt string,
	approve agent.Approve,
) (*agent.State, error) {
	task, err := r.Forked(ctx, run, round, who, prompt, approve)
	if err != nil {
		return nil, err
	}
	return r.Run(ctx, task)
}

func (w *world) fork(t *testing.T, s *agent.State, round int, prompt string, approve agent.Approve) *agent.State {
	t.Helper()
	fork, err := forkOf(t.Context(), w.runner, s.Run, round, me, prompt, approve)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.replayed(fork); err != nil {
		t.Error(err)
	}
	return fork
}

// A fork may begin after any finished round, also the last.
func TestFork_AfterTheLastRound(t *testing.T) {
	w := newWorld(t, gate.ConfirmNever)
	w.byTurn(calls("echo", `{"n":1}`), say("one"), say("two"))
	s := run(t, w)
	fork := w.fork(t, s, 3, "and now", agent.ApproveNone)
	equal(t, "content", fork.Done.Content, "two")
	equal(t, "messages", len(fork.Messages), 6)
	for _, bad := range []int{0, 4} {
		if _, err := forkOf(t.Context(), w.runner, s.Run, bad, me, "and now", agent.ApproveNone); toolcrib.CodeOf(err) != toolcrib.CodeBadRequest {
			t.Errorf("round %d: %v", bad, err)
		}
	}
	if _, err := forkOf(t.Context(), w.runner, s.Run, 3, me, "", agent.ApproveNone); toolcrib.CodeOf(err) != toolcrib.CodeBadRequest {
		t.Errorf("nothing to answer: %v", err)
	}

	// After the last round of a run that reached its limit, before the request to finish.
	w = newWorld(t, gate.ConfirmNever)
	w.byTurn(calls("echo", `{"n":1}`), say("all I know"))
	s = run(t, w, limits(func(l *toolcrib.Limits) { l.MaxIterations = 1 }))
	equal(t, "reason", s.Done.StopReason, toolcrib.StopMaxIterations)
	fork = w.fork(t, s, 2, "", agent.ApproveNone)
	equal(t, "reason", fork.Done.StopReason, toolcrib.StopCompleted)

	// A round with open calls is not finished.
	w, s = parked(t)
	if _, err := forkOf(t.Context(), w.runner, s.Run, 2, me, "go on", agent.ApproveNone); toolcrib.CodeOf(err) != toolcrib.CodeBadRequest {
		t.Errorf("an open round: %v", err)
	}
}

// Calls that took effect are named, and asked about before they run again, whatever is
// approved beforehand: also those that came after the round that the fork begins with, and
// in a fork of the fork. Others are not.
func TestFork_AlreadyRan(t *testing.T) {
	for name, confirm := range map[string]gate.ConfirmMode{"never": gate.ConfirmNever, "writes": gate.ConfirmWrites} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, confirm)
			w.byTurn(calls("write", `{"n":1}`, "echo", `{}`, "write", `{ "n" : 2 }`), say("done"))
			s := run(t, w, func(k *agent.Task) { k.Approve = agent.ApproveAll })
			equal(t, "writes", w.wrote(), 2)

			w.byTurn(calls("write", `{"n":2}`, "echo", `{}`, "write", `{"n":3}`), say("done"))
			fork := w.fork(t, s, 1, "", agent.ApproveAll)
			equal(t, "status", fork.Status, toolcrib.StatusWaitingForApproval)
			equal(t, "reason", fork.Trace[0].Verdict.Reason, toolcrib.ReasonAlreadyRan)
			equal(t, "writes", w.wrote(), 2)
			said := false
			for _, e := range w.events(t, fork.Run) {
				n, ok := e.Body.(*journal.Notice)
				said = said || ok && n.Code == agent.NoticeAlreadyRan && strings.Contains(n.Message, "write (call_1 of "+string(s.Run)+")")
			}
			if !said {
				t.Error("nothing was said of the calls that took effect")
			}
			again := w.fork(t, fork, 1, "", agent.ApproveAll)
			equal(t, "a fork of the fork", again.Status, toolcrib.StatusWaitingForApproval)

			d := agent.Decision{ApprovalID: fork.Pending.ApprovalID, Who: me, Decision: journal.DecisionApprove}
			if _, err := w.runner.Decide(t.Context(), fork.Run, d); err != nil {
				t.Fatal(err)
			}
			fork = w.resumed(t, fork)
			equal(t, "content", fork.Done.Content, "done")
			equal(t, "writes", w.wrote(), 4)

			none := w.fork(t, s, 1, "", agent.ApproveDeny)
			equal(t, "nobody is there", none.Trace[0].Result.Reason, toolcrib.ReasonAlreadyRan)
		})
	}
}

// What never happened is not asked about, and what a run below did is.
func TestFork_AlreadyRan_Which(t *testing.T) {
	w := newWorld(t, gate.ConfirmWrites)
	w.byTurn(calls("write", `{"n":1}`), say("done"))
	s := run(t, w, func(k *agent.Task) { k.Approve = agent.ApproveDeny })
	equal(t, "refused", s.Trace[0].Result.Status, toolcrib.ResultRefused)
	equal(t, "content", w.fork(t, s, 1, "", agent.ApproveAll).Done.Content, "done")

	f := newFamily(t, gate.ConfirmNever, replies{
		"boss":   {calls("spawn", spawn("helper")), say("all done")},
		"helper": {calls("write", `{"n":1}`), say("helped")},
	})
	s = f.start(t)
	equal(t, "content", s.Done.Content, "all done")
	fork, err := forkOf(t.Context(), f.runner, s.Run, 1, me, "", agent.ApproveAll)
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "below", fork.Status, toolcrib.StatusWaitingForApproval)
	equal(t, "writes", f.wrote(), 1)
}

// placed is a tool that writes the file that its argument at names.
type placed struct{ fn }

func (p *placed) Plan(_ context.Context, c toolcrib.Call) (*toolcrib.Plan, error) {
	var in struct{ At, Text string }
	if err := json.Unmarshal(c.Arguments, &in); err != nil {
		return nil, err
	}
	plan := planOf(&p.fn, c)
	plan.Targets = []toolcrib.Target{{Kind: toolcrib.TargetFile, Name: filepath.Join("/w", in.At), Write: true}}
	plan.Content = []string{in.Text}
	return plan, nil
}

// A call that does the same is one that already ran, however it is spelled, in a fork and in
// a fork of it. Other content is another call.
func TestFork_AlreadyRan_OtherSpelling(t *testing.T) {
	w := newWorld(t, gate.ConfirmNever)
	put := &placed{fn{w: w, spec: toolcrib.Spec{Name: "place", EnabledByDefault: true, Source: "go"}, call: func(context.Context, toolcrib.Call) (toolcrib.Output, error) {
		return toolcrib.Output{Text: "put"}, nil
	}}}
	g, err := gate.New(gate.Options{Tools: append(w.all, put), Availability: noOverrides{}, Confirm: gate.ConfirmNever})
	if err != nil {
		t.Fatal(err)
	}
	o := w.runner.Options
	o.Gate = g
	if w.runner, err = agent.New(o); err != nil {
		t.Fatal(err)
	}
	w.byTurn(calls("place", `{"at":"a.txt","text":"one"}`), say("done"))
	s := run(t, w)
	for arguments, status := range map[string]toolcrib.Status{
		`{"at":"./a.txt","text":"one"}`:           toolcrib.StatusWaitingForApproval,
		`{"text":"one","at":"x/../a.txt"}`:        toolcrib.StatusWaitingForApproval,
		`{"at":"a.txt","text":"one","sure":null}`: toolcrib.StatusWaitingForApproval,
		`{"at":"./a.txt","text":"two"}`:           toolcrib.StatusCompleted,
		`{"at":"b.txt","text":"one"}`:             toolcrib.StatusCompleted,
	} {
		w.byTurn(calls("place", arguments), say("done"))
		fork := w.fork(t, s, 1, "", agent.ApproveAll)
		equal(t, arguments, fork.Status, status)
		w.byTurn(calls("place", `{"at":".//a.txt","text":"one"}`), say("done"))
		equal(t, "a fork of it", w.fork(t, fork, 1, "", agent.ApproveAll).Status, toolcrib.StatusWaitingForApproval)
	}
}
