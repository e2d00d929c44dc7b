package store_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/store"
	"github.com/toolcrib/toolcrib/toolcribtest/journaltest"
)

// project applies bodies to an empty record.
func project(bodies ...toolcrib.Body) store.RunRecord {
	rec := store.RunRecord{ID: "run_a"}
	for i, e := range journaltest.Events(bodies...) {
		e.Seq = toolcrib.Seq(i + 1)
		store.Project(&rec, e)
	}
	return rec
}

func TestProject_WholeRun(t *testing.T) {
	usage := toolcrib.Usage{InputTokens: 9, OutputTokens: 1, TotalTokens: 10, Requests: 1, CostUSD: 0.5}
	got := project(
		&journal.RunStarted{
			Agent: toolcrib.Agent{Name: "default", Model: "small"}, Principal: toolcrib.Principal{User: "ann", Actor: "local:root"},
			Session: "ses_1", Parent: "run_0", Driver: "cli", Workspace: "/w",
		},
		&journal.TakenUp{},
		&journal.ModelRequest{Iteration: 1},
		&journal.Message{Iteration: 1},
		&journal.Usage{Sum: usage},
		&journal.Done{
			Status: toolcrib.StatusCompleted, StopReason: toolcrib.StopMaxIterations, Content: "ready", Truncated: true, Iterations: 2, Usage: usage,
		},
	)
	want := store.RunRecord{
		ID: "run_a", Status: toolcrib.StatusCompleted, StopReason: toolcrib.StopMaxIterations, Agent: "default", Model: "small",
		User: "ann", Actor: "local:root", Session: "ses_1", Parent: "run_0", Content: "ready", Truncated: true, Iterations: 2,
		Usage: usage, Driver: "cli", Workspace: "/w", CreatedAt: journaltest.At(), EndedAt: journaltest.At().Add(5 * 1001 * time.Microsecond), LastSeq: 6,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestProject_Status(t *testing.T) {
	started, up := &journal.RunStarted{}, &journal.TakenUp{}
	call := func(id string) journal.ApprovalItem { return journal.ApprovalItem{ID: id} }
	approval := &journal.Paused{Status: toolcrib.StatusWaitingForApproval, Pending: journal.Pending{Kind: "approval", ApprovalID: "apr_1"}}
	client := &journal.Paused{Status: toolcrib.StatusWaitingForTool, Pending: journal.Pending{Kind: "client_tool", Calls: []journal.ApprovalItem{call("a"), call("b")}}}
	below := &journal.Paused{Status: toolcrib.StatusWaitingForApproval, Pending: journal.Pending{Kind: "approval", Run: "run_b", ApprovalID: "apr_1", Calls: []journal.ApprovalItem{call("a")}}}
	clientBelow := &journal.Paused{Status: toolcrib.StatusWaitingForTool, Pending: journal.Pending{Kind: "client_tool", Run: "run_b", Calls: []journal.ApprovalItem{call("a")}}}
	limit := &journal.Paused{Status: toolcrib.StatusWaitingForInput, Pending: journal.Pending{Kind: "input", ApprovalID: "apr_1"}}
	question := &journal.Paused{Status: toolcrib.StatusWaitingForInput, Pending: journal.Pending{Kind: "input", ApprovalID: "apr_1", Calls: []journal.ApprovalItem{call("a")}}}
	limitBelow := &journal.Paused{Status: toolcrib.StatusWaitingForInput, Pending: journal.Pending{Kind: "input", Run: "run_b", ApprovalID: "apr_1"}}
	more := &journal.Granted{Iterations: 1}
	for name, c := range map[string]struct {
		bodies  []toolcrib.Body
		want    toolcrib.Status
		pending bool
	}{
		"started":                     {[]toolcrib.Body{started}, toolcrib.StatusQueued, false},
		"taken up":                    {[]toolcrib.Body{started, up}, toolcrib.StatusRunning, false},
		"asks":                        {[]toolcrib.Body{started, up, &journal.ConfirmationRequired{ApprovalID: "apr_1"}}, toolcrib.StatusRunning, false},
		"parked":                      {[]toolcrib.Body{started, up, approval}, toolcrib.StatusWaitingForApproval, true},
		"parked, taken up":            {[]toolcrib.Body{started, up, approval, up}, toolcrib.StatusWaitingForApproval, true},
		"decided":                     {[]toolcrib.Body{started, up, approval, &journal.ConfirmationResolved{ApprovalID: "apr_1"}}, toolcrib.StatusQueued, false},
		"partly decided":              {[]toolcrib.Body{started, up, approval, &journal.ConfirmationResolved{ApprovalID: "apr_1", Open: true}}, toolcrib.StatusWaitingForApproval, true},
		"another one decided":         {[]toolcrib.Body{started, up, approval, &journal.ConfirmationResolved{ApprovalID: "apr_0"}}, toolcrib.StatusWaitingForApproval, true},
		"decided, taken up":           {[]toolcrib.Body{started, up, approval, &journal.ConfirmationResolved{ApprovalID: "apr_1"}, up}, toolcrib.StatusRunning, false},
		"parked, to be stopped":       {[]toolcrib.Body{started, up, approval, &journal.Stopping{}}, toolcrib.StatusQueued, false},
		"running, to stop":            {[]toolcrib.Body{started, up, &journal.Stopping{}}, toolcrib.StatusRunning, false},
		"one of two results":          {[]toolcrib.Body{started, up, client, &journal.ToolResult{ToolCallID: "a"}}, toolcrib.StatusWaitingForTool, true},
		"both results":                {[]toolcrib.Body{started, up, client, &journal.ToolResult{ToolCallID: "b"}, &journal.ToolResult{ToolCallID: "a"}}, toolcrib.StatusQueued, false},
		"a result of another":         {[]toolcrib.Body{started, up, approval, &journal.ToolResult{ToolCallID: "a"}}, toolcrib.StatusWaitingForApproval, true},
		"a child was started":         {[]toolcrib.Body{started, up, &journal.ChildStarted{}}, toolcrib.StatusRunning, false},
		"a child has parked":          {[]toolcrib.Body{started, up, &journal.ChildStarted{}, &journal.ChildParked{Status: toolcrib.StatusWaitingForApproval}}, toolcrib.StatusRunning, false},
		"waits below":                 {[]toolcrib.Body{started, up, below}, toolcrib.StatusWaitingForApproval, true},
		"waits below, taken up":       {[]toolcrib.Body{started, up, below, up}, toolcrib.StatusWaitingForApproval, true},
		"waits below, goes on":        {[]toolcrib.Body{started, up, below, up, &journal.ChildResumed{}}, toolcrib.StatusRunning, false},
		"waits below, which ended":    {[]toolcrib.Body{started, up, below, up, &journal.ChildEnded{}}, toolcrib.StatusRunning, false},
		"waits below, to be stopped":  {[]toolcrib.Body{started, up, below, &journal.Stopping{}}, toolcrib.StatusQueued, false},
		"decided below, not itself":   {[]toolcrib.Body{started, up, below, &journal.ConfirmationResolved{ApprovalID: "apr_1"}}, toolcrib.StatusWaitingForApproval, true},
		"a result of a call below":    {[]toolcrib.Body{started, up, clientBelow, &journal.ToolResult{ToolCallID: "a"}}, toolcrib.StatusWaitingForTool, true},
		"waits below, then for other": {[]toolcrib.Body{started, up, below, up, &journal.ChildResumed{}, &journal.ChildEnded{}, clientBelow}, toolcrib.StatusWaitingForTool, true},
		"a pause that is an end":      {[]toolcrib.Body{started, up, &journal.Paused{Status: toolcrib.StatusCompleted}}, toolcrib.StatusRunning, false},
		"a limit is raised":           {[]toolcrib.Body{started, up, limit, more}, toolcrib.StatusQueued, false},
		"a limit, taken up":           {[]toolcrib.Body{started, up, limit, up}, toolcrib.StatusWaitingForInput, true},
		"a limit below is raised":     {[]toolcrib.Body{started, up, limitBelow, more}, toolcrib.StatusWaitingForInput, true},
		"more, to a question":         {[]toolcrib.Body{started, up, question, more}, toolcrib.StatusWaitingForInput, true},
		"more, to an approval":        {[]toolcrib.Body{started, up, approval, more}, toolcrib.StatusWaitingForApproval, true},
		"cancelled while parked": {
			[]toolcrib.Body{started, up, approval, &journal.Done{Status: toolcrib.StatusCancelled, StopReason: toolcrib.StopCancelled}},
			toolcrib.StatusCancelled, false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			rec := project(c.bodies...)
			if rec.Status != c.want || (rec.Pending != nil) != c.pending {
				t.Errorf("status %s, pending %v; want %s, pending %v", rec.Status, rec.Pending, c.want, c.pending)
			}
		})
	}
	if n := len(client.Pending.Calls); n != 2 {
		t.Errorf("projecting has changed the event: %d calls left of 2", n)
	}
}

// Whose decision a run waits for: its own, or that of one below it.
func TestRunRecord_Decides(t *testing.T) {
	for want, pending := range map[bool]*journal.Pending{true: {ApprovalID: "apr_1"}, false: {ApprovalID: "apr_1", Run: "run_b"}} {
		if got := (&store.RunRecord{Pending: pending}).Decides(); got != want {
			t.Errorf("%+v: %v, want %v", pending, got, want)
		}
	}
	if (&store.RunRecord{}).Decides() {
		t.Error("a run that waits for nothing waits for a decision")
	}
}

// What runs below have used is theirs: it is in their own records.
func TestProject_UsageOfChildren(t *testing.T) {
	own, below := toolcrib.Usage{TotalTokens: 5, Requests: 1}, toolcrib.Usage{TotalTokens: 700, Requests: 9}
	rec := project(&journal.RunStarted{}, &journal.Usage{Sum: own}, &journal.ChildStarted{}, &journal.ChildEnded{Usage: below}, &journal.Done{Usage: own})
	if rec.Usage != own {
		t.Errorf("%+v, want %+v", rec.Usage, own)
	}
}

func TestProject_Error(t *testing.T) {
	rec := project(&journal.RunStarted{}, &journal.ModelFailed{Sum: toolcrib.Usage{Requests: 1}}, &journal.Error{
		Code: "provider_failed", Message: "m", Ref: "r", Status: toolcrib.StatusFailed, StopReason: toolcrib.StopProviderFailed, Usage: toolcrib.Usage{Requests: 2},
	})
	want := &journal.RunError{Code: "provider_failed", Message: "m", Ref: "r"}
	if diff := cmp.Diff(want, rec.Error); diff != "" || rec.Usage.Requests != 2 || rec.EndedAt.IsZero() {
		t.Errorf("record %+v; error (-want +got)\n%s", rec, diff)
	}
}

// Whatever happens in whatever order, an end is final, the last number is kept,
// and the record that was there before is not written into.
func TestProject_EndIsFinal(t *testing.T) {
	bodies := journaltest.Bodies()
	rapid.Check(t, func(rt *rapid.T) {
		rec := store.RunRecord{ID: "run_a"}
		for i, n := range rapid.SliceOfN(rapid.IntRange(0, len(bodies)-1), 1, 30).Draw(rt, "events") {
			e := journaltest.Events(bodies[n])[0]
			e.Seq = toolcrib.Seq(i + 1)
			before, text := rec, dump(rt, rec)
			store.Project(&rec, e)
			if dump(rt, before) != text {
				rt.Fatalf("%s has changed the old record", e.Body.EventKind())
			}
			if rec.LastSeq != e.Seq {
				rt.Fatalf("last_seq %d, want %d", rec.LastSeq, e.Seq)
			}
			if before.Status.Ended() {
				before.LastSeq = rec.LastSeq
				if diff := cmp.Diff(before, rec); diff != "" {
					rt.Fatalf("%s has changed an ended run:\n%s", e.Body.EventKind(), diff)
				}
			}
			if rec.Status.Ended() == rec.EndedAt.IsZero() || rec.Status.Parked() != (rec.Pending != nil) {
				rt.Fatalf("after %s the record contradicts itself: %+v", e.Body.EventKind(), rec)
			}
		}
	})
}

func dump(t *rapid.T, rec store.RunRecord) string {
	b, err := json.Marshal(rec)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestFilterBound(t *testing.T) {
	for limit, want := range map[int]int{0: 50, -1: 50, 1: 1, 1000: 1000, 1001: 1000} {
		if got := store.Bound(limit); got != want {
			t.Errorf("limit %d is bounded to %d, want %d", limit, got, want)
		}
	}
}

func TestOverrideCheck(t *testing.T) {
	for o, good := range map[store.Override]bool{
		{Kind: store.OverrideTool, Name: "read_file"}: true,
		{Kind: store.OverrideGroup, Name: "web"}:      true,
		{Kind: "", Name: "read_file"}:                 false,
		{Kind: "agent", Name: "x"}:                    false,
		{Kind: store.OverrideTool}:                    false,
	} {
		if err := o.Check(); (err == nil) != good {
			t.Errorf("%+v: error %v, want good %v", o, err, good)
		}
	}
}
