package journaltest

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/store"
)

// keepsBelow sees to it that a run is pruned in no way because above, which has that
// status, has not ended, and that a run that is named with it is not pruned either.
func (c *clan) keepsBelow(run, above toolcrib.RunID, status toolcrib.Status) {
	c.t.Helper()
	before := c.ids(store.Filter{})
	other := toolcrib.RunID(fmt.Sprintf("run_other_%d", len(c.after)))
	alone := begins("lead", "")
	alone.Session = ""
	c.add(other, alone, &journal.Done{Status: clanCompleted, StopReason: toolcrib.StopCompleted})
	for _, contentOnly := range []bool{true, false} {
		for _, runs := range [][]toolcrib.RunID{{run}, {other, run}} {
			_, err := c.s.Prune(c.t.Context(), store.PruneOptions{Runs: runs, ContentOnly: contentOnly, By: "ann"})
			var refused *store.RunAboveError
			if !errors.As(err, &refused) || *refused != (store.RunAboveError{Run: run, Above: above, Status: status}) || !errors.Is(err, toolcrib.ErrConflict) {
				c.t.Errorf("runs %v, content only %v: error %v, want that run %s has not ended (%s)", runs, contentOnly, err, above, status)
			}
		}
		c.prune(store.PruneOptions{OlderThan: time.Hour, ContentOnly: contentOnly})
	}
	c.retain(store.Retention{Runs: time.Hour, Content: time.Hour}, nil, nil)
	for _, id := range append(before, other) {
		if rec := c.rec(id); !rec.PrunedAt.IsZero() {
			c.t.Errorf("run %s: its content is gone", id)
		}
	}
	if data, _, err := c.s.Range(c.t.Context(), run, "res_1", 0, 4); string(data) != "kept" || err != nil {
		c.t.Errorf("what was kept for %s: %q, error %v", run, data, err)
	}
	c.prune(store.PruneOptions{Runs: []toolcrib.RunID{other}}, other)
	c.want("all others are there", store.Filter{}, before...)
}

// keepsSome keeps a result for each of these runs.
func (c *clan) keepsSome(runs ...toolcrib.RunID) {
	c.t.Helper()
	for _, run := range runs {
		c.must(c.s.Put(c.t.Context(), run, "res_1", []byte("kept")))
	}
}

// clanPruneBelowParked: a run that was cancelled by itself is not pruned, however long
// ago, while those above it wait: they learn of its end when they continue, and would
// start one that is not there again.
func clanPruneBelowParked(t *testing.T, c *clan) {
	c.start("run_c", "run_g")
	c.keepsSome("run_c", "run_g")
	c.parks()
	c.add("run_g", &journal.Done{Status: toolcrib.StatusCancelled, StopReason: toolcrib.StopCancelled})
	c.keepsBelow("run_g", "run_p", clanApproval)
	c.at = c.at.Add(400 * clanDay)
	c.keepsBelow("run_g", "run_p", clanApproval)
	// What has ended in between does not matter.
	c.add("run_c", &journal.Done{Status: toolcrib.StatusCancelled, StopReason: toolcrib.StopCancelled})
	c.at = c.at.Add(400 * clanDay)
	c.keepsBelow("run_g", "run_p", clanApproval)
	c.keepsBelow("run_c", "run_p", clanApproval)
	c.add("run_p", &journal.Done{Status: toolcrib.StatusCancelled, StopReason: toolcrib.StopCancelled})
	c.prune(store.PruneOptions{Runs: []toolcrib.RunID{"run_g"}, ContentOnly: true}, "run_g")
	c.prune(store.PruneOptions{Runs: []toolcrib.RunID{"run_c"}}, "run_c", "run_g")
	c.want("what is left", store.Filter{}, "run_p")
}

// clanPruneBelowRunning: nor while those above it go on, or were cut off, also when they
// know that it has ended.
func clanPruneBelowRunning(_ *testing.T, c *clan) {
	c.start("run_c", "run_g")
	c.keepsSome("run_c", "run_g")
	c.ends("run_g", "run_c")
	c.at = c.at.Add(400 * clanDay)
	c.keepsBelow("run_g", "run_p", clanRunning)
	c.ends("run_c", "run_p")
	c.at = c.at.Add(400 * clanDay)
	c.keepsBelow("run_c", "run_p", clanRunning)
	c.ends("run_p", "")
	c.at = c.at.Add(clanDay)
	c.retain(store.Retention{Runs: time.Hour}, []toolcrib.RunID{"run_p", "run_c", "run_g"}, nil)
}

// clanPruneBelowMiddle: the one above that has not ended need not be at the top.
func clanPruneBelowMiddle(_ *testing.T, c *clan) {
	c.start("run_c", "run_g")
	c.keepsSome("run_g")
	c.ends("run_g", "run_c")
	c.ends("run_p", "")
	c.at = c.at.Add(400 * clanDay)
	c.keepsBelow("run_g", "run_c", clanRunning)
	c.ends("run_c", "")
	c.prune(store.PruneOptions{Runs: []toolcrib.RunID{"run_g"}}, "run_g")
}
