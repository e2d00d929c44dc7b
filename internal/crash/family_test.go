package crash

import (
	"strings"
	"testing"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/agent/core"
	"github.com/toolcrib/toolcrib/journal"
)

// pair is a run and one that it has started, both over, as the laws want them.
type pair struct {
	parent, child *agent.State
	call          *core.Call
	events        []toolcrib.Body // of the parent
	runs          map[toolcrib.RunID]*agent.State
}

func newPair() *pair {
	spent := toolcrib.Usage{Requests: 2, TotalTokens: 100, CostUSD: 0.5}
	end := &journal.ChildEnded{ID: "p1", Run: "run_c", Status: toolcrib.StatusCompleted, Usage: spent}
	result := &journal.ToolResult{ToolCallID: "p1", Status: toolcrib.ResultOK}
	call := &core.Call{
		ToolCall: toolcrib.ToolCall{ID: "p1"}, ChildEnd: end, Result: result,
		Child: &journal.ChildStarted{ID: "p1", Run: "run_c", Agent: "helper", Share: &journal.Share{Requests: 2}},
	}
	p := &pair{
		call: call, events: []toolcrib.Body{call.Child, end, result},
		parent: &agent.State{
			Run: "run_p", Start: &journal.RunStarted{Agent: toolcrib.Agent{Name: "default"}}, Done: &journal.Done{}, Status: toolcrib.StatusCompleted,
			Calls:    core.Calls{Trace: []*core.Call{call}},
			Spending: core.Spending{Usage: toolcrib.Usage{Requests: 1}, Children: core.Used{Usage: spent}},
		},
		child: &agent.State{
			Run: "run_c", Start: &journal.RunStarted{Agent: toolcrib.Agent{Name: "helper"}, Parent: "run_p", Depth: 1}, Done: &journal.Done{},
			Status: toolcrib.StatusCompleted, Spending: core.Spending{Usage: spent},
		},
	}
	p.runs = map[toolcrib.RunID]*agent.State{"run_p": p.parent, "run_c": p.child}
	return p
}

// The checks of runs that start one another find what must not be, and nothing wrong
// with what may.
func TestFamily(t *testing.T) {
	for name, test := range map[string]struct {
		change func(p *pair)
		want   string
	}{
		"all is well": {func(*pair) {}, ""},
		"never began": {func(p *pair) {
			delete(p.runs, "run_c")
			p.call.ChildEnd.Status, p.call.ChildEnd.Usage, p.parent.Children = toolcrib.StatusCancelled, toolcrib.Usage{}, core.Used{}
		}, ""},
		"continues, and so does its parent": {func(p *pair) {
			p.parent.Done, p.child.Done, p.call.Result, p.call.ChildEnd, p.events = nil, nil, nil, nil, p.events[:1]
			p.parent.Children.Usage = p.child.Usage // counted when it has ended; here only the laws of the moment matter
		}, ""},
		"orphan":       {func(p *pair) { p.child.Done = nil }, "the run that answers it is"},
		"two starts":   {func(p *pair) { p.events = append([]toolcrib.Body{p.events[0]}, p.events...) }, "call p1 started run run_c after run_c"},
		"two calls":    {func(p *pair) { p.parent.Trace = append(p.parent.Trace, p.call) }, "are answered by the same run"},
		"not named":    {func(p *pair) { p.parent.Trace, p.parent.Children = nil, core.Used{} }, "was started by no call"},
		"other parent": {func(p *pair) { p.child.Start.Parent = "run_x" }, `below "run_x"`},
		"other agent":  {func(p *pair) { p.child.Start.Agent.Name = "second" }, "is one of second"},
		"depth":        {func(p *pair) { p.child.Start.Depth = 2 }, "at depth 2"},
		"no end told":  {func(p *pair) { p.events = []toolcrib.Body{p.events[0], p.events[2]} }, "nothing was said of the end"},
		"other status": {func(p *pair) { p.call.ChildEnd.Status = toolcrib.StatusFailed }, "its parent was told failed"},
		"other usage":  {func(p *pair) { p.call.ChildEnd.Usage.Requests = 1 }, "its parent was told completed"},
		"not summed":   {func(p *pair) { p.parent.Children.Requests = 1 }, "has spent"},
		"began and did not": {func(p *pair) {
			delete(p.runs, "run_c")
			p.parent.Children = core.Used{}
		}, "never began"},
		"share": {func(p *pair) { p.call.Child.Share.Requests = 1 }, "the share of p1"},
	} {
		p := newPair()
		test.change(p)
		s, now := &Story{}, &scene{top: p.parent, runs: p.runs}
		var events []toolcrib.Event
		for _, b := range p.events {
			events = append(events, toolcrib.Event{Body: b})
		}
		s.tree(now)
		s.kin(p.parent, events, now)
		if got := strings.Join(s.Problems, "; "); (test.want == "") != (got == "") || !strings.Contains(got, test.want) {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

// What is counted of requests is held against the budget, and against what reached a
// model.
func TestFamily_Budget(t *testing.T) {
	for name, test := range map[string]struct {
		asked  int
		budget toolcrib.Budget
		want   string
	}{
		"within":    {3, toolcrib.Budget{MaxRequests: 3, MaxTokens: 100, MaxCostUSD: 0.5}, ""},
		"no cap":    {3, toolcrib.Budget{}, ""},
		"requests":  {3, toolcrib.Budget{MaxRequests: 2}, "the budget is"},
		"tokens":    {3, toolcrib.Budget{MaxTokens: 99}, "the budget is"},
		"cost":      {3, toolcrib.Budget{MaxCostUSD: 0.4}, "the budget is"},
		"forgotten": {4, toolcrib.Budget{}, "4 requests reached a model, and 3 were counted"},
	} {
		s := &Story{dir: t.TempDir(), Scenario: &Scenario{team: map[string]*member{}, budget: test.budget}}
		for range test.asked {
			if err := appendLine(s.dir+"/"+askedFile, "one"); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.budget(&scene{top: newPair().parent}); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(s.Problems, "; "); (test.want == "") != (got == "") || !strings.Contains(got, test.want) {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}
