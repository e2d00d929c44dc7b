package store_test

import (
	"testing"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/store"
	"github.com/toolcrib/toolcrib/toolcribtest/journaltest"
)

func claims(bodies ...toolcrib.Body) (list []store.ChildClaim) {
	for i, e := range journaltest.Events(bodies...) {
		e.Seq = toolcrib.Seq(i + 1)
		list = store.ClaimChildren(list, e)
	}
	return list
}

// What a journal says of a run that it started, and what of it cannot be.
func TestChildClaim(t *testing.T) {
	started := &journal.ChildStarted{ID: "c1", Run: "run_b", Agent: "helper"}
	ended := func(status toolcrib.Status, used int64) *journal.ChildEnded {
		return &journal.ChildEnded{ID: "c1", Run: "run_b", Status: status, Usage: toolcrib.Usage{TotalTokens: used}}
	}
	const gone = "run run_b, which it started, is gone, and no removal is recorded"
	for name, c := range map[string]struct {
		bodies []toolcrib.Body
		gone   string // of a run that is not there and has no anchor
	}{
		"started":                {[]toolcrib.Body{started}, ""},
		"never begun":            {[]toolcrib.Body{started, ended(toolcrib.StatusCancelled, 0)}, ""},
		"parked":                 {[]toolcrib.Body{started, &journal.ChildParked{Run: "run_b"}}, gone},
		"resumed":                {[]toolcrib.Body{started, &journal.ChildResumed{Run: "run_b"}}, gone},
		"ended":                  {[]toolcrib.Body{started, ended(toolcrib.StatusCompleted, 0)}, gone},
		"cancelled, used":        {[]toolcrib.Body{started, ended(toolcrib.StatusCancelled, 1)}, gone},
		"parked, then cancelled": {[]toolcrib.Body{started, &journal.ChildParked{Run: "run_b"}, ended(toolcrib.StatusCancelled, 0)}, gone},
		"of another":             {[]toolcrib.Body{started, &journal.ChildParked{Run: "run_c"}, &journal.ChildEnded{Run: "run_c"}}, ""},
	} {
		list := claims(c.bodies...)
		if len(list) != 1 || list[0].Run != "run_b" || list[0].Seq != 1 || list[0].Agent != "helper" {
			t.Fatalf("%s: %+v", name, list)
		}
		if got := list[0].Gone(false); got != c.gone {
			t.Errorf("%s: %q, want %q", name, got, c.gone)
		}
		if got := list[0].Gone(true); got != gone {
			t.Errorf("%s, with an anchor: %q", name, got)
		}
	}
	for name, c := range map[string]struct {
		parent toolcrib.RunID
		agent  string
		status toolcrib.Status
		want   string
	}{
		"is the one":     {"run_a", "helper", toolcrib.StatusFailed, ""},
		"of none":        {"", "helper", toolcrib.StatusFailed, "run run_b, which it started, is a part of no run"},
		"of another":     {"run_x", "helper", toolcrib.StatusFailed, "run run_b, which it started, is part of run run_x"},
		"another agent":  {"run_a", "editor", toolcrib.StatusFailed, "run run_b, which it started, is one of agent editor, not helper"},
		"another status": {"run_a", "helper", toolcrib.StatusRunning, "run run_b, which it started, is running, not failed as it was told"},
	} {
		list := claims(started, ended(toolcrib.StatusFailed, 3))
		if got := list[0].Broken("run_a", c.parent, c.agent, c.status); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
	list := claims(started, &journal.ChildStarted{ID: "c2", Run: "run_b", Agent: "helper"})
	if got := list[1].Broken("run_a", "run_a", "helper", ""); list[0].Broken("run_a", "run_a", "helper", "") != "" || got != "it started run run_b twice" {
		t.Errorf("%q", got)
	}
}

func TestClaimed(t *testing.T) {
	above, share := &journal.Above{}, &journal.Share{}
	for name, c := range map[string]struct {
		b    journal.RunStarted
		want bool
	}{
		"of a person":      {journal.RunStarted{}, false},
		"of an agent":      {journal.RunStarted{Parent: "run_a", Above: above}, true},
		"with a share":     {journal.RunStarted{Parent: "run_a", Share: share}, true},
		"of a tool":        {journal.RunStarted{Parent: "run_a", Above: above, Given: &toolcrib.ToolCall{}}, false},
		"of older version": {journal.RunStarted{Parent: "run_a", Depth: 1}, false},
	} {
		if got := store.Claimed(&c.b); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
