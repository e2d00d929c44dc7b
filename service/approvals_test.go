package service_test

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"testing"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/api"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/service"
	"github.com/toolcrib/toolcrib/store"
)

// waits stores a run of n rounds that waits for the approval of two calls. more events come before the question, after
// what was judged.
func waits(t testing.TB, s store.Store, i, n, more int) (approval string) {
	t.Helper()
	return waitsFor(t, s, i, n, more, 2)
}

// waitsFor is waits for the approval of a number of calls.
func waitsFor(t testing.TB, s store.Store, i, n, more, calls int) (approval string) {
	t.Helper()
	approval = fmt.Sprintf("apr_%026d", i)
	bodies := []toolcrib.Body{&journal.RunStarted{
		Format: journal.Format, Agent: toolcrib.Agent{Name: "default", Model: "demo/x"}, Driver: "server", Workspace: "/tmp",
		Principal: toolcrib.Principal{User: fmt.Sprint("user", i%3)},
	}}
	call := func(k int, name string) toolcrib.ToolCall {
		return toolcrib.ToolCall{ID: fmt.Sprint("c", k), Name: name, Arguments: []byte("{}")}
	}
	for k := range n {
		c := call(k, "read_file")
		bodies = append(bodies, &journal.ModelRequest{Request: k + 1, Iteration: k + 1, Attempt: 1},
			&journal.Message{Request: k + 1, Iteration: k + 1, Finish: toolcrib.FinishToolCalls},
			&journal.ToolCall{Iteration: k + 1, ToolCall: c},
			&journal.Verdicts{Iteration: k + 1, Verdicts: []journal.Verdict{{CallID: c.ID, Tool: c.Name, Decision: toolcrib.Allow}}},
			&journal.ToolResult{ToolCallID: c.ID, Name: c.Name, Status: toolcrib.ResultOK, Content: "text"})
	}
	var judged []journal.Verdict
	ask := journal.ConfirmationRequired{ApprovalID: approval, Digest: "d", Kind: journal.ApprovalCall, Iteration: n + 1}
	for k := range calls {
		c := call(n+k, "write_file")
		bodies = append(bodies, &journal.ToolCall{Iteration: n + 1, ToolCall: c})
		judged = append(judged, journal.Verdict{CallID: c.ID, Tool: c.Name, Decision: toolcrib.Ask, Rule: fmt.Sprint("rule", k)})
		ask.Calls = append(ask.Calls, journal.ApprovalItem{ID: c.ID, Name: c.Name, Arguments: c.Arguments})
	}
	bodies = append(bodies, &journal.Verdicts{Iteration: n + 1, Verdicts: judged})
	for range more {
		bodies = append(bodies, journal.Noticef("test", "text"))
	}
	bodies = append(bodies, &ask, &journal.Paused{
		Status:  toolcrib.StatusWaitingForApproval,
		Pending: journal.Pending{Kind: string(ask.Kind), ApprovalID: approval, Digest: ask.Digest, Calls: ask.Calls},
	})
	events := make([]toolcrib.Event, len(bodies))
	for k, body := range bodies {
		events[k] = toolcrib.Event{Time: time.Unix(1_800_000_000+int64(i), int64(k)*1000), Body: body}
	}
	if err := s.Append(context.Background(), toolcrib.RunID(fmt.Sprintf("run_%026d", i)), 0, events...); err != nil {
		t.Fatal(err)
	}
	return approval
}

// What a run waits for is read from the end of its journal, however far back it is: with the rules that asked, and the
// decisions so far.
func TestApprovals_EndOfJournal(t *testing.T) {
	s := open(t)
	for i, more := range []int{0, 1, 4, 5, 60, 70, 600} {
		id := waits(t, s.Env.Store, i, 3, more)
		v, err := s.Approval(t.Context(), root, id)
		if err != nil {
			t.Fatal(err)
		}
		if v.ID != id || v.Status != api.ApprovalPending || len(v.Calls) != 2 || v.Calls[0].Rule != "rule0" ||
			v.Calls[1].Rule != "rule1" || v.User != fmt.Sprint("user", i%3) || v.CreatedAt.IsZero() {
			t.Errorf("%d events between: %+v", more, v.Approval)
		}
		resolved := &journal.ConfirmationResolved{ApprovalID: id, By: "bob", Open: true, Calls: map[string]journal.CallDecision{
			v.Calls[0].ID: {Decision: journal.DecisionApprove},
		}}
		run := toolcrib.RunID(fmt.Sprintf("run_%026d", i))
		rec, err := s.Env.Store.Run(t.Context(), run)
		if err != nil {
			t.Fatal(err)
		}
		err = s.Env.Store.Append(t.Context(), run, rec.LastSeq, toolcrib.Event{Time: time.Unix(1_800_000_100, 0), Body: resolved})
		if err != nil {
			t.Fatal(err)
		}
		v, err = s.Approval(t.Context(), root, id)
		if err != nil || v.Status != api.ApprovalPending || len(v.Open()) != 1 || len(v.Decisions) != 1 || v.Calls[0].Rule != "rule0" {
			t.Errorf("%d events between, one decided: %+v, %v", more, v, err)
		}
	}
}

// unreadable has journals that cannot be read now.
type unreadable struct {
	store.Store
	err error
}

func (s unreadable) Read(context.Context, toolcrib.RunID, toolcrib.Seq) iter.Seq2[toolcrib.Event, error] {
	return func(yield func(toolcrib.Event, error) bool) { yield(toolcrib.Event{}, s.err) }
}

// An approval is not missing because the database does not answer. A damaged journal hides no approval of other runs.
func TestApproval_Unreachable(t *testing.T) {
	s := open(t)
	waits(t, s.Env.Store, 1, 1, 0)
	decided := fmt.Sprintf("apr_%026d", 2) // no run waits for it
	stored := s.Env.Store
	for kind, want := range map[error]toolcrib.Code{
		store.ErrUnreachable: toolcrib.CodeOverloaded, store.ErrLocked: toolcrib.CodeOverloaded, store.ErrCorrupt: toolcrib.CodeNotFound,
	} {
		s.Env.Store = unreadable{stored, &store.Error{Kind: kind}}
		if _, err := s.Approval(t.Context(), root, decided); toolcrib.CodeOf(err) != want {
			t.Errorf("%v: %v, want %q", kind, err, want)
		}
	}
	s.Env.Store = stored
}

// What was decided is found however far back its question is, with the rules that asked. An approval that still waits is
// left out, and uses up no place.
func TestDecided_FarBack(t *testing.T) {
	s := open(t)
	var want []string
	for i, c := range []struct{ calls, more, decided int }{
		{70, 0, 70}, {2, 600, 2}, {2, 61, 2}, {2, 62, 2}, {2, 63, 2}, {2, 64, 2}, {2, 0, 1}, {70, 0, 69},
	} {
		id := waitsFor(t, s.Env.Store, i, 1, c.more, c.calls)
		if c.decided == c.calls {
			want = append(want, id)
		}
		run := toolcrib.RunID(fmt.Sprintf("run_%026d", i))
		rec, err := s.Env.Store.Run(t.Context(), run)
		if err != nil {
			t.Fatal(err)
		}
		events := make([]toolcrib.Event, c.decided)
		for k := range events {
			events[k] = toolcrib.Event{Time: time.Unix(1_800_001_000+int64(i), 0), Body: &journal.ConfirmationResolved{
				ApprovalID: id, By: "bob", Open: k < c.calls-1, Calls: map[string]journal.CallDecision{
					rec.Pending.Calls[k].ID: {Decision: journal.DecisionApprove},
				},
			}}
		}
		if err := s.Env.Store.Append(t.Context(), run, rec.LastSeq, events...); err != nil {
			t.Fatal(err)
		}
	}
	slices.Reverse(want)
	all, err := s.Decided(t.Context(), root, len(want))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, v := range all {
		got = append(got, v.ID)
		for k, c := range v.Calls {
			if c.Rule != fmt.Sprint("rule", k) || c.Decision != journal.DecisionApprove {
				t.Errorf("%s: call %d: rule %q, %q", v.ID, k, c.Rule, c.Decision)
			}
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("decided:\n%q, want\n%q", got, want)
	}
}

// Pages have all approvals once, newest first, and those of one's own runs only for who may not decide about others.
func TestApprovalPage(t *testing.T) {
	s := open(t)
	for i := range 7 {
		waits(t, s.Env.Store, i, 1, 0)
	}
	for who, want := range map[string]int{"": 7, "user1": 2, "nobody": 0} {
		p := root
		if who != "" {
			p = toolcrib.Principal{User: who}
		}
		all, err := s.Approvals(t.Context(), p)
		if err != nil || len(all) != want {
			t.Errorf("%q: %d approvals, %v", who, len(all), err)
		}
		var paged []*service.Approval
		for cursor, more := "", true; more; more = cursor != "" {
			var page []*service.Approval
			page, cursor, err = s.ApprovalPage(t.Context(), p, 2, cursor)
			if err != nil || len(page) > 2 {
				t.Fatalf("%q: %d approvals, %v", who, len(page), err)
			}
			paged = append(paged, page...)
		}
		if len(paged) != len(all) {
			t.Fatalf("%q: %d approvals on pages, %d in all", who, len(paged), len(all))
		}
		for i, v := range all {
			if paged[i].ID != v.ID {
				t.Errorf("%q: %s at %d, want %s", who, paged[i].ID, i, v.ID)
			}
		}
	}
	_, _, err := s.ApprovalPage(t.Context(), root, 2, "nonsense")
	has(t, "a cursor", err, toolcrib.CodeBadRequest)
}

// BenchmarkApprovals lists the approvals of runs of 2,000 events: 50 of them, all, and one.
func BenchmarkApprovals(b *testing.B) {
	s := open(b)
	var id string
	for i := range 200 {
		id = waits(b, s.Env.Store, i, 400, 0)
	}
	for name, do := range map[string]func() error{
		"page": func() error { _, _, err := s.ApprovalPage(b.Context(), root, 50, ""); return err },
		"all":  func() error { _, err := s.Approvals(b.Context(), root); return err },
		"one":  func() error { _, err := s.Approval(b.Context(), root, id); return err },
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if err := do(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
