package agent_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/journal"
)

// announcer records announcements, and optionally acts on them.
type announcer struct {
	told []string
	also func(s *agent.State)
}

func (a *announcer) Announce(_ context.Context, s *agent.State) {
	a.told = append(a.told, s.Approval.ApprovalID+" "+string(s.Approval.Kind))
	if a.also != nil {
		a.also(s)
	}
}

func TestAnnounce_OnceAfterThePause(t *testing.T) {
	w := newWorld(t, gate.ConfirmWrites)
	w.byTurn(calls("write", `{"n":1}`), calls("write", `{"n":2}`), say("done"))
	a := &announcer{also: func(s *agent.State) {
		events := w.events(t, s.Run)
		if kind := events[len(events)-1].Body.EventKind(); kind != journal.KindPaused || s.Pending == nil {
			t.Errorf("told after %s, pending %+v", kind, s.Pending)
		}
	}}
	w.runner.Announcer = a
	s := run(t, w)
	first := s.Pending.ApprovalID
	var err error
	for range 2 { // nothing was decided: nobody is told again
		if s, err = w.runner.Resume(t.Context(), s.Run); err != nil {
			t.Fatal(err)
		}
	}
	equal(t, "told", strings.Join(a.told, ","), first+" approval")
	if _, err := w.runner.Decide(t.Context(), s.Run, agent.Decision{ApprovalID: first, Who: me, Decision: journal.DecisionApprove}); err != nil {
		t.Fatal(err)
	}
	if s, err = w.runner.Resume(t.Context(), s.Run); err != nil {
		t.Fatal(err)
	}
	equal(t, "told", len(a.told), 2)
	equal(t, "status", s.Status, toolcrib.StatusWaitingForApproval)
	if err := w.replayed(s); err != nil {
		t.Error(err)
	}
}

// A person may decide before the announcement has ended. The time that it takes is not wall time of
// the run, and does not postpone the expiry.
func TestAnnounce_DecidedMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, gate.ConfirmWrites)
		w.byTurn(calls("write", `{"n":1}`), say("done"))
		w.runner.Announcer = &announcer{also: func(s *agent.State) {
			parked := s.Updated
			time.Sleep(24 * time.Hour) // of the bubble
			if again, err := w.runner.Load(t.Context(), s.Run); err != nil || !again.Updated.Equal(parked) {
				t.Errorf("%v: waits since %v, parked %v", err, again.Updated, parked)
			}
			if _, err := w.runner.Decide(t.Context(), s.Run, agent.Decision{
				ApprovalID: s.Approval.ApprovalID, Digest: s.Approval.Digest, Who: me, Decision: journal.DecisionApprove,
			}); err != nil {
				t.Error(err)
			}
		}}
		s := run(t, w)
		events := w.events(t, s.Run)
		equal(t, "last", events[len(events)-1].Body.EventKind(), journal.KindConfirmationResolved)
		s, err := w.runner.Resume(t.Context(), s.Run)
		if err != nil {
			t.Fatal(err)
		}
		equal(t, "status", s.Status, toolcrib.StatusCompleted)
		if s.Driven >= 24*time.Hour {
			t.Errorf("driven for %v", s.Driven)
		}
	})
}
