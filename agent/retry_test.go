package agent_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/journal"
)

// cutOff is a run of one write that nothing asks about, cut off after the write started
// and taken up again: it waits for a person's word on the call in doubt.
func cutOff(t *testing.T) (w *world, s *agent.State, ws string) {
	t.Helper()
	ws = filepath.Join(t.TempDir(), "ws")
	made(t, os.Mkdir(ws, 0o700))
	replies := [][]toolcrib.Delta{calls("write", `{"n":1}`), say("done")}
	w = newWorld(t, gate.ConfirmNever)
	w.byTurn(replies...)
	whole := run(t, w, func(k *agent.Task) { k.Workspace = ws })
	events := w.events(t, whole.Run)
	n := 1
	for events[n-1].Body.EventKind() != "tool_started" {
		n++
	}
	w = cutAfter(t, events, n, whole.Run, gate.ConfirmNever)
	w.byTurn(replies...)
	return w, w.resumed(t, whole), ws
}

func made(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// answered gives a person's word on what the run waits for, and resumes it.
func (w *world) answered(t *testing.T, s *agent.State, word string, before func()) *agent.State {
	t.Helper()
	if s.Pending == nil {
		t.Fatalf("the run waits for nothing: %s", s.Status)
	}
	_, err := w.runner.Decide(t.Context(), s.Run, agent.Decision{
		ApprovalID: s.Pending.ApprovalID, Digest: s.Pending.Digest, Who: me, Decision: word,
	})
	made(t, err)
	if before != nil {
		before()
	}
	return w.resumed(t, s)
}

// Contract §6: a word on a call in doubt holds for the workspace that it was given for,
// also where nothing else asks about the call.
func TestResume_RetryIsBound(t *testing.T) {
	another := func(ws string) func() {
		return func() {
			made(t, os.Rename(ws, ws+"-before"))
			made(t, os.Mkdir(ws, 0o700))
		}
	}
	ran := func(w *world) (n int) {
		for _, times := range w.ran {
			n += times
		}
		return n
	}
	t.Run("as it was", func(t *testing.T) {
		w, s, _ := cutOff(t)
		if s.Pending.Calls[0].Binding == nil {
			t.Fatal("the question is bound to nothing")
		}
		s = w.answered(t, s, journal.DecisionRetry, nil)
		equal(t, "status", s.Status, toolcrib.StatusCompleted)
		equal(t, "ran", ran(w), 1)
	})
	t.Run("another folder", func(t *testing.T) {
		w, s, ws := cutOff(t)
		s = w.answered(t, s, journal.DecisionRetry, another(ws))
		equal(t, "status", s.Status, toolcrib.StatusWaitingForApproval)
		equal(t, "ran", ran(w), 0)
		item := s.Pending.Calls[0]
		if !strings.Contains(item.Changed, "another folder of the same name") || item.Questions[0].Reason != toolcrib.ReasonAlreadyRan {
			t.Errorf("asked again with %q, %+v", item.Changed, item.Questions)
		}
		if v := s.Turn.Calls[0].Verdict; !v.ForAPerson() {
			t.Error("--approve all would answer it")
		}
		made(t, os.Rename(ws+"-before", ws+"-first"))
		s = w.answered(t, s, journal.DecisionApprove, another(ws))
		equal(t, "status after one more change", s.Status, toolcrib.StatusWaitingForApproval)
		s = w.answered(t, s, journal.DecisionApprove, nil)
		equal(t, "status", s.Status, toolcrib.StatusCompleted)
		equal(t, "ran", ran(w), 1)
		if err := w.replayed(s); err != nil {
			t.Error(err)
		}
	})
	t.Run("another folder and a new question", func(t *testing.T) {
		w, s, ws := cutOff(t)
		_, err := w.runner.Decide(t.Context(), s.Run, agent.Decision{
			ApprovalID: s.Pending.ApprovalID, Digest: s.Pending.Digest, Who: me, Decision: journal.DecisionRetry,
		})
		made(t, err)
		another(ws)()
		w.runner.Gate, err = gate.New(gate.Options{Tools: w.all, Availability: noOverrides{}, Confirm: gate.ConfirmWrites})
		made(t, err)
		s, err = w.runner.Resume(t.Context(), s.Run)
		made(t, err)
		equal(t, "status", s.Status, toolcrib.StatusWaitingForApproval)
		equal(t, "ran", ran(w), 0)
		if !s.Turn.Calls[0].Verdict.ForAPerson() {
			t.Error("--approve all would answer it")
		}
	})
	t.Run("denied then", func(t *testing.T) {
		w, s, ws := cutOff(t)
		s = w.answered(t, s, journal.DecisionRetry, another(ws))
		s = w.answered(t, s, journal.DecisionDeny, nil)
		equal(t, "ran", ran(w), 0)
		equal(t, "status of the call", s.Trace[0].Result.Status, toolcrib.ResultInDoubt)
	})
}

// Contract §7: a long result that a person gives is cut like any other, and the whole of
// it is kept.
func TestResume_GivenResultIsKept(t *testing.T) {
	w, s, _ := cutOff(t)
	long := strings.Repeat("a long line of what happened\n", 10_000)
	result, err := json.Marshal(long)
	made(t, err)
	_, err = w.runner.Decide(t.Context(), s.Run, agent.Decision{
		ApprovalID: s.Pending.ApprovalID, Digest: s.Pending.Digest, Who: me, Decision: journal.DecisionHappened, Result: result,
	})
	made(t, err)
	s = w.resumed(t, s)
	r := s.Trace[0].Result
	if !r.Truncated || r.Ref == "" || r.Bytes != int64(len(long)) || len(r.Content) > s.Limits().MaxResultBytes+2 {
		t.Fatalf("%d bytes shown, truncated %v, ref %q, %d bytes in all; want %d", len(r.Content), r.Truncated, r.Ref, r.Bytes, len(long))
	}
	whole, size, err := w.journal.Range(t.Context(), s.Run, r.Ref, 0, int64(len(long)))
	made(t, err)
	if size != int64(len(long)) || string(whole) != long {
		t.Errorf("%d bytes are kept, and not what was given", size)
	}
}
