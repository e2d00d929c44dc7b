package store

import (
	"testing"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/journal"
)

// The parent that a run names must have named the run, at the depth above.
func TestTreeDisowned(t *testing.T) {
	at := func(depth int) *journal.RunStarted { return &journal.RunStarted{Depth: depth} }
	named := []ChildClaim{{Run: "run_b"}}
	removed := func(toolcrib.RunID) (bool, bool) { return true, true }
	gone := func(toolcrib.RunID) (bool, bool) { return false, false }
	for name, c := range map[string]struct {
		parent *treeNode
		gone   absent
		run    toolcrib.RunID
		want   string
	}{
		"named":          {&treeNode{start: at(1), claims: named}, gone, "run_b", ""},
		"not named":      {&treeNode{start: at(1), claims: named}, gone, "run_c", "it is part of run run_a, which did not start it"},
		"names none":     {&treeNode{start: at(1)}, gone, "run_b", "it is part of run run_a, which did not start it"},
		"pruned":         {&treeNode{silent: true}, gone, "run_c", ""},
		"a claim pruned": {&treeNode{start: at(1), silent: true}, gone, "run_c", ""},
		"too deep":       {&treeNode{start: at(0), claims: named}, gone, "run_b", "it is part of run run_a, at depth 2 under one at depth 0"},
		"removed":        {nil, removed, "run_b", ""},
		"gone":           {nil, gone, "run_b", "run run_a, of which it is a part, is gone, and no removal is recorded"},
	} {
		tree := runTree{}
		if c.parent != nil {
			tree["run_a"] = c.parent
		}
		if got := tree.disowned(c.run, &journal.RunStarted{Parent: "run_a", Depth: 2}, c.gone, true); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
