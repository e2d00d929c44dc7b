package service_test

import (
	"errors"
	"testing"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/service"
	"github.com/toolcrib/toolcrib/store"
)

// A front end of a few lines: each user with a token of their own sees, decides, cancels
// and reads what that token began, and of the others nothing, not even of the same user.
func TestFrontEnd(t *testing.T) {
	ann := toolcrib.Principal{User: "ann", Token: "tok_a"}
	other := toolcrib.Principal{User: "ann", Token: "tok_c"}
	bob := toolcrib.Principal{User: "bob", Token: "tok_b", Admin: true} // by a token nobody is
	s, r, written := open(t)
	run, second := start(t, r, ann, "trip"), start(t, r, bob, "")

	v, err := s.Approval(t.Context(), ann, "last")
	if err != nil || v.Run != run || v.Status != service.ApprovalPending || len(v.Open()) != 1 {
		t.Fatalf("the approval: %+v, %v", v, err)
	}
	for _, who := range []toolcrib.Principal{bob, other, {}} {
		strange(t, s, who, run, v)
	}

	yes := service.Decision{Word: journal.CallDecision{Decision: journal.DecisionApprove}}
	if err := s.Check(t.Context(), ann, v, yes); err != nil {
		t.Fatal(err)
	}
	_, err = s.Decide(t.Context(), ann, v, yes)
	has(t, "without a digest", err, toolcrib.CodeBadRequest)
	yes.Digest = "stale"
	_, err = s.Decide(t.Context(), ann, v, yes)
	has(t, "a stale digest", err, toolcrib.CodeConflict)
	yes.Digest, yes.Calls = v.Digest, []string{"call_9"}
	has(t, "no such call", s.Check(t.Context(), ann, v, yes), toolcrib.CodeBadRequest)
	yes.Calls = nil
	decided, err := s.Decide(t.Context(), ann, v, yes)
	if err != nil || len(decided.Open) != 0 || len(decided.Calls) != 1 {
		t.Fatalf("decided: %+v, %v", decided, err)
	}
	_, err = s.Decide(t.Context(), ann, v, yes)
	has(t, "a second decision", err, toolcrib.CodeConflict)
	if *written != 0 {
		t.Error("a decision drives no run")
	}
	if _, err := r.Resume(t.Context(), run); err != nil || *written != 1 {
		t.Fatalf("resumed: %d calls, %v", *written, err)
	}

	whole, err := s.Run(t.Context(), ann, "last")
	if err != nil || whole.ID != run || whole.Status != toolcrib.StatusCompleted || len(whole.Trace) != 1 || whole.Content != "done" {
		t.Errorf("the run: %+v, %v", whole, err)
	}
	frames := 0
	err = s.Events(t.Context(), ann, string(run), 0, true, func(journal.Frame) error { frames++; return nil })
	if err != nil || frames == 0 {
		t.Errorf("%d events, %v", frames, err)
	}
	_, err = s.Cancel(t.Context(), ann, string(run))
	has(t, "cancelled after its end", err, toolcrib.CodeConflict)
	if rec, err := s.Cancel(t.Context(), bob, string(second)); err != nil || rec.Status != toolcrib.StatusCancelled {
		t.Errorf("cancelled: %s, %v", rec.Status, err)
	}
	if runs := listed(t, s, toolcrib.Principal{User: "root", Admin: true}); len(runs) != 2 {
		t.Errorf("an administrator sees %d runs", len(runs))
	}
}

// strange asks for everything of a run that is not theirs.
func strange(t *testing.T, s *service.Service, who toolcrib.Principal, run toolcrib.RunID, v *service.Approval) {
	t.Helper()
	ctx, id := t.Context(), string(run)
	_, err := s.Run(ctx, who, id)
	has(t, "a run", err, toolcrib.CodeNotFound)
	_, err = s.FindRun(ctx, who, id[len(id)-8:])
	has(t, "the end of an ID", err, toolcrib.CodeNotFound)
	_, err = s.Cancel(ctx, who, id)
	has(t, "cancel", err, toolcrib.CodeNotFound)
	has(t, "events", s.Events(ctx, who, id, 0, false, func(journal.Frame) error { return errors.New("an event") }), toolcrib.CodeNotFound)
	_, err = s.Approval(ctx, who, v.ID)
	has(t, "an approval", err, toolcrib.CodeNotFound)
	no := service.Decision{Word: journal.CallDecision{Decision: journal.DecisionDeny}, Digest: v.Digest}
	_, err = s.Decide(ctx, who, v, no)
	has(t, "a decision", err, toolcrib.CodeNotFound)
	_, err = s.Session(ctx, who, "ses_trip")
	has(t, "a session", err, toolcrib.CodeNotFound)
	if page, err := s.Sessions(ctx, who, store.SessionFilter{}); err != nil || len(page.Sessions) != 0 {
		t.Errorf("sessions: %+v, %v", page.Sessions, err)
	}
	for _, rec := range listed(t, s, who) {
		if rec.ID == run {
			t.Errorf("%+v lists a run of somebody else", who)
		}
	}
}

func listed(t *testing.T, s *service.Service, who toolcrib.Principal) []service.Run {
	t.Helper()
	runs, _, err := s.Runs(t.Context(), who, service.RunsQuery{Words: []string{service.StatusParked, "completed", "cancelled"}})
	if err != nil {
		t.Fatal(err)
	}
	return runs
}

func has(t *testing.T, what string, err error, want toolcrib.Code) {
	t.Helper()
	if got := toolcrib.CodeOf(err); got != want {
		t.Errorf("%s: %v (%s), want %s", what, err, got, want)
	}
}
