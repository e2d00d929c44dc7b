package crash

import (
	"strings"
	"testing"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/journal"
)

// The check of the journal finds what a driver must never do with a write that was
// cut off, and nothing wrong with what it may do.
func TestHistory(t *testing.T) {
	started := &journal.ToolStarted{ID: "c1", Write: true}
	lost := []toolcrib.Body{started, &journal.TakenUp{}}
	ok := &journal.ToolResult{ToolCallID: "c1", Status: toolcrib.ResultOK}
	doubt := &journal.ToolResult{ToolCallID: "c1", Status: toolcrib.ResultInDoubt}
	gone := &journal.ToolResult{ToolCallID: "c1", Status: toolcrib.ResultCancelled}
	asked := &journal.ConfirmationRequired{Kind: journal.ApprovalInDoubt, Calls: []journal.ApprovalItem{{ID: "c1"}}}
	word := func(d string) toolcrib.Body { return &journal.ConfirmationResolved{Decision: d} }
	reconciled := func(s toolcrib.ReconciledState) toolcrib.Body { return &journal.Reconciled{ID: "c1", State: s} }
	done := &journal.Done{}
	for name, test := range map[string]struct {
		bodies []toolcrib.Body
		want   string
	}{
		"not lost":             {[]toolcrib.Body{started, ok, &journal.TakenUp{}, done}, ""},
		"started again":        {with(lost, started, ok, done), "started again"},
		"answered":             {with(lost, ok, done), "nobody was asked"},
		"answered as in doubt": {with(lost, doubt, done), "nobody was asked"},
		"stopped":              {with(lost, &journal.Stopping{}, doubt, done), ""},
		"asked, not answered":  {with(lost, asked, ok, done), "nobody was asked"},
		"happened":             {with(lost, asked, word(journal.DecisionHappened), ok, done), ""},
		"happened, run again":  {with(lost, asked, word(journal.DecisionHappened), started, ok, done), "started again"},
		"retry":                {with(lost, asked, word(journal.DecisionRetry), started, ok, done), ""},
		"retry, lost again":    {with(lost, asked, word(journal.DecisionRetry), started, &journal.TakenUp{}, doubt, done), "nobody was asked"},
		"told it happened":     {with(lost, reconciled(toolcrib.Happened), ok, done), ""},
		"told it did not":      {with(lost, reconciled(toolcrib.NotHappened), started, ok, done), ""},
		"told, stopped":        {with(lost, reconciled(toolcrib.NotHappened), &journal.Stopping{}, gone, done), ""},
		"stopped, not told":    {with(lost, reconciled(toolcrib.InDoubt), &journal.Stopping{}, gone, done), "nobody was asked"},
		"nothing told":         {with(lost, reconciled(toolcrib.InDoubt), started, ok, done), "started again"},
		"no end":               {lost, "0 ends"},
		"two ends":             {[]toolcrib.Body{done, done}, "2 ends"},
	} {
		var events []toolcrib.Event
		for _, b := range test.bodies {
			events = append(events, toolcrib.Event{Body: b})
		}
		var s Story
		s.history(events)
		if got := strings.Join(s.Problems, "; "); (test.want == "") != (got == "") || !strings.Contains(got, test.want) {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

func with(bodies []toolcrib.Body, more ...toolcrib.Body) []toolcrib.Body {
	return append(append([]toolcrib.Body(nil), bodies...), more...)
}
