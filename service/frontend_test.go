package service_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/api"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/service"
	"github.com/toolcrib/toolcrib/service/policy"
	"github.com/toolcrib/toolcrib/store"
)

// A front end in a few lines: each user, with a token of their own, starts runs, and sees, decides, explains, cancels
// and reads those that the token has started, but nothing of others, not even of the same user.
func TestFrontEnd(t *testing.T) {
	ctx, s := t.Context(), open(t)
	// a token gives no rights of an administrator
	ann, other, bob := carrier(t, s, "ann"), carrier(t, s, "ann"), carrier(t, s, "bob")
	var frames []string
	watch := service.Front{Watch: func(f journal.Frame) { frames = append(frames, f.Event) }}
	run, err := s.Start(ctx, ann, service.StartRequest{Prompt: "Write.", Session: "trip", Workspace: t.TempDir()}, watch)
	if err != nil || !run.Status.Parked() || frames[0] != "run_started" || frames[len(frames)-1] != "paused" {
		t.Fatalf("%+v, %q, %v", run, frames, err)
	}
	second, err := s.Start(ctx, bob, service.StartRequest{Prompt: "Write.", Workspace: t.TempDir()}, service.Front{})
	if err != nil {
		t.Fatal(err)
	}
	v, err := s.Approval(ctx, ann, "last")
	if err != nil || v.Run != run.ID || v.Status != api.ApprovalPending || len(v.Open()) != 1 {
		t.Fatalf("the approval: %+v, %v", v, err)
	}
	for _, who := range []toolcrib.Principal{bob, other, {}} {
		strange(t, s, who, run.ID, v)
	}

	yes := service.Decision{CallDecision: journal.CallDecision{Decision: journal.DecisionApprove}}
	_, err = s.Decide(ctx, ann, v, yes)
	has(t, "without a digest", err, toolcrib.CodeBadRequest)
	yes.Digest = "stale"
	_, err = s.Decide(ctx, ann, v, yes)
	has(t, "a stale digest", err, toolcrib.CodeConflict)
	yes.Digest, yes.Calls = v.Digest, []string{"call_9"}
	has(t, "no such call", s.Check(ctx, ann, v, yes), toolcrib.CodeBadRequest)
	yes.Calls = nil
	if decided, err := s.Decide(ctx, ann, v, yes); err != nil || len(decided.Open) != 0 || len(decided.Calls) != 1 {
		t.Fatalf("decided: %+v, %v", decided, err)
	}
	_, err = s.Decide(ctx, ann, v, yes)
	has(t, "a second decision", err, toolcrib.CodeConflict)
	file := filepath.Join(run.Workspace, "out.txt")
	if _, err := os.Stat(file); err == nil {
		t.Error("a decision drives no run")
	}
	if _, err := s.Resume(ctx, ann, service.ResumeRequest{Run: "last"}, watch); err != nil {
		t.Fatal(err)
	}
	if data, err := os.ReadFile(file); err != nil || string(data) != "hello" {
		t.Errorf("resumed, it wrote %q, %v", data, err)
	}
	if whole, err := s.Run(ctx, ann, "last"); err != nil || whole.ID != run.ID || whole.Content != "done" ||
		len(whole.Trace) != 1 {
		t.Errorf("the run: %+v, %v", whole, err)
	}
	_, err = s.Cancel(ctx, ann, string(run.ID))
	has(t, "cancelled after its end", err, toolcrib.CodeConflict)
	if rec, err := s.Cancel(ctx, bob, string(second.ID)); err != nil || rec.Status != toolcrib.StatusCancelled {
		t.Errorf("cancelled: %s, %v", rec.Status, err)
	}
	for tool, offered := range map[string]bool{"write_file": true, "read_file": false} { // as the token's scope says
		x, err := s.Policy.Explain(ctx, ann, policy.ExplainRequest{Tool: tool})
		if err != nil || len(x.Tools) != 1 || x.Tools[0].Offered != offered {
			t.Errorf("%s: %+v, %v", tool, x, err)
		}
	}
	for who, runs := range map[string]int{ann.Token: 1, other.Token: 0} { // the usage of a token is that of its own runs
		u, err := s.Usage(ctx, toolcrib.Principal{User: "ann", Token: who}, store.UsageQuery{})
		if err != nil || len(u.Rows) != runs || u.Total.Runs != int64(runs) || (u.Total.Requests > 0) != (runs > 0) {
			t.Errorf("usage by %s: %+v, %v", who, u, err)
		}
	}
	_, err = s.Policy.SwitchTool(ctx, bob, policy.SwitchRequest{Tool: "write_file"})
	has(t, "a switch by a token", err, toolcrib.CodeForbidden)
	if runs := listed(t, s, root); len(runs) != 2 {
		t.Errorf("an administrator sees %d runs", len(runs))
	}
}

// strange asks for everything about a run of another principal.
func strange(t *testing.T, s *service.Service, who toolcrib.Principal, run toolcrib.RunID, v *service.Approval) {
	t.Helper()
	ctx, id, front := t.Context(), string(run), service.Front{}
	_, err := s.Run(ctx, who, id)
	has(t, "a run", err, toolcrib.CodeNotFound)
	_, err = s.FindRun(ctx, who, id[len(id)-8:])
	has(t, "the end of an ID", err, toolcrib.CodeNotFound)
	_, err = s.Cancel(ctx, who, id)
	has(t, "cancel", err, toolcrib.CodeNotFound)
	_, err = s.Resume(ctx, who, service.ResumeRequest{Run: id}, front)
	has(t, "resume", err, toolcrib.CodeNotFound)
	_, err = s.Resume(ctx, who, service.ResumeRequest{Run: id, Decided: true}, front)
	has(t, "resume as decided", err, toolcrib.CodeNotFound)
	_, err = s.Fork(ctx, who, service.ForkRequest{Run: id}, front)
	has(t, "fork", err, toolcrib.CodeNotFound)
	_, err = s.Policy.Explain(ctx, who, policy.ExplainRequest{Run: id})
	has(t, "explain", err, toolcrib.CodeNotFound)
	_, err = s.WrittenBy(ctx, who, run)
	has(t, "its files", err, toolcrib.CodeNotFound)
	_, err = s.Undoable(ctx, who, run, "")
	has(t, "what can be undone of it", err, toolcrib.CodeNotFound)
	has(t, "removal of a file of it", s.RemoveMade(ctx, who, run, "x", run), toolcrib.CodeNotFound)
	has(t, "events", s.Events(ctx, who, id, 0, false, func(journal.Frame) error { return os.ErrInvalid }), toolcrib.CodeNotFound)
	_, err = s.Approval(ctx, who, v.ID)
	has(t, "an approval", err, toolcrib.CodeNotFound)
	no := service.Decision{CallDecision: journal.CallDecision{Decision: journal.DecisionDeny}, Digest: v.Digest}
	_, err = s.Decide(ctx, who, v, no)
	has(t, "a decision", err, toolcrib.CodeNotFound)
	_, err = s.Session(ctx, who, "trip")
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
	runs, _, err := s.Runs(t.Context(), who,
		service.RunsQuery{Statuses: []string{service.StatusParked, "completed", "cancelled"}})
	if err != nil {
		t.Fatal(err)
	}
	return runs
}
