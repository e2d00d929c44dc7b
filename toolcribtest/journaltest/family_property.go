package journaltest

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/store"
)

// relative is a run of a generated run tree.
type relative struct {
	parent toolcrib.RunID
	depth  int
	ended  time.Time // zero = it has not
	pruned bool      // its content is gone
}

// tribe is what a store must hold after generated steps.
type tribe struct {
	*clan
	rt    *rapid.T
	named string // how the IDs of its runs begin: what a run tree that failed has left is not of it
	there map[toolcrib.RunID]*relative
}

// clanTribe: whatever run trees do, and whatever of them is pruned how, a run is there as
// long as the one that started it, unless it was named itself when all above it had
// ended, and all chains hold.
func clanTribe(t *testing.T, c *clan) {
	n := 0
	rapid.Check(t, func(rt *rapid.T) {
		n++
		r := &tribe{clan: c, rt: rt, named: fmt.Sprintf("run_%d_", n), there: map[toolcrib.RunID]*relative{}}
		made := 0
		// Small numbers are drawn most often.
		for _, step := range rapid.SliceOfN(rapid.IntRange(0, 9), 4, 15).Draw(rt, "steps") {
			switch {
			case step == 0 || step > 6:
				made++
				r.begin(toolcrib.RunID(fmt.Sprintf("%s%d", r.named, made)))
			case step == 1 || step == 4:
				r.end()
			case step == 2 || step == 6:
				r.pruneNamed()
			case step == 3:
				c.at = c.at.Add(rapid.SampledFrom([]time.Duration{time.Hour, 20 * time.Hour, 50 * time.Hour}).Draw(rt, "later"))
			default:
				r.pruneOld()
			}
			r.check()
		}
		r.leave()
	})
}

// pick draws one of the runs that fit; "" = none does.
func (r *tribe) pick(what string, fits func(*relative) bool) toolcrib.RunID {
	var fit []toolcrib.RunID
	for _, run := range slices.Sorted(maps.Keys(r.there)) {
		if fits(r.there[run]) {
			fit = append(fit, run)
		}
	}
	if len(fit) == 0 {
		return ""
	}
	return rapid.SampledFrom(fit).Draw(r.rt, what)
}

func open(of *relative) bool { return of.ended.IsZero() }

// begin adds a run, of a person or of one that has not ended.
func (r *tribe) begin(run toolcrib.RunID) {
	of := &relative{}
	if rapid.IntRange(0, 2).Draw(r.rt, "child") > 0 {
		of.parent = r.pick("parent", open)
	}
	start := &journal.RunStarted{Format: journal.Format, Agent: toolcrib.Agent{Name: "a"}, Principal: toolcrib.Principal{User: "ann"}, Parent: of.parent}
	if of.parent != "" {
		of.depth = r.there[of.parent].depth + 1
		start.Depth, start.Above = of.depth, &journal.Above{}
		r.add(of.parent, &journal.ChildStarted{ID: "call_" + string(run), Run: run, Agent: "a"})
	}
	r.add(run, start, &journal.TakenUp{Epoch: 1})
	r.there[run] = of
}

// end ends a run, sometimes before those that it has started; its parent is told where
// it can be.
func (r *tribe) end() {
	run := r.pick("end", open)
	if run == "" {
		return
	}
	status := rapid.SampledFrom([]toolcrib.Status{toolcrib.StatusCompleted, toolcrib.StatusCancelled}).Draw(r.rt, "status")
	r.add(run, &journal.Done{Status: status, StopReason: toolcrib.StopCompleted})
	of := r.there[run]
	of.ended = r.at
	if above := r.there[of.parent]; above != nil && open(above) {
		r.add(of.parent, &journal.ChildEnded{ID: "call_" + string(run), Run: run, Status: status})
	}
}

// below are a run and all below it that are there.
func (r *tribe) below(run toolcrib.RunID) []toolcrib.RunID {
	all := []toolcrib.RunID{run}
	for _, other := range slices.Sorted(maps.Keys(r.there)) {
		if r.there[other].parent == run {
			all = append(all, r.below(other)...)
		}
	}
	return all
}

// gone takes from the model what is pruned.
func (r *tribe) gone(runs []toolcrib.RunID, contentOnly bool) {
	for _, run := range runs {
		if contentOnly {
			r.there[run].pruned = true
		} else {
			delete(r.there, run)
		}
	}
}

func (r *tribe) pruneNamed() {
	run := r.pick("prune", func(*relative) bool { return true })
	if run == "" {
		return
	}
	contentOnly := rapid.Bool().Draw(r.rt, "content only")
	_, err := r.s.Prune(r.t.Context(), store.PruneOptions{Runs: []toolcrib.RunID{run}, ContentOnly: contentOnly, By: "ann"})
	all := r.below(run) // and those above
	for above := r.there[run].parent; above != ""; above = r.there[above].parent {
		all = append(all, above)
	}
	if slices.ContainsFunc(all, func(run toolcrib.RunID) bool { return open(r.there[run]) }) {
		if !errors.Is(err, toolcrib.ErrConflict) {
			r.rt.Fatalf("run %s, of which a part is open, or one above: error %v, want ErrConflict", run, err)
		}
		return
	}
	if err != nil {
		r.rt.Fatal(err)
	}
	r.gone(r.below(run), contentOnly)
}

// pruneOld prunes by age, by hand or as configured.
func (r *tribe) pruneOld() {
	age := rapid.SampledFrom([]time.Duration{30 * time.Minute, 10 * time.Hour, 30 * time.Hour}).Draw(r.rt, "age")
	contentOnly := rapid.Bool().Draw(r.rt, "content only")
	var err error
	switch {
	case rapid.Bool().Draw(r.rt, "by hand"):
		_, err = r.s.Prune(r.t.Context(), store.PruneOptions{OlderThan: age, ContentOnly: contentOnly, By: "ann"})
	case contentOnly:
		_, err = r.s.ApplyRetention(r.t.Context(), store.Retention{Content: age, Max: store.MaxRetentionRuns}, r.at)
	default:
		_, err = r.s.ApplyRetention(r.t.Context(), store.Retention{Runs: age, Max: store.MaxRetentionRuns}, r.at)
	}
	if err != nil {
		r.rt.Fatal(err)
	}
	before := r.at.Add(-age)
	for _, run := range slices.Sorted(maps.Keys(r.there)) {
		of := r.there[run]
		if of == nil || r.there[of.parent] != nil {
			continue
		}
		all := r.below(run)
		if !slices.ContainsFunc(all, func(run toolcrib.RunID) bool { return open(r.there[run]) || !r.there[run].ended.Before(before) }) {
			r.gone(all, contentOnly)
		}
	}
}

// check compares the store with the model.
func (r *tribe) check() {
	if _, err := r.s.VerifyAll(r.t.Context()); err != nil {
		r.rt.Fatal(err)
	}
	page, err := r.s.Runs(r.t.Context(), store.Filter{Limit: store.MaxLimit})
	if err != nil {
		r.rt.Fatal(err)
	}
	got := map[toolcrib.RunID]relative{}
	for _, rec := range page.Runs {
		if strings.HasPrefix(string(rec.ID), r.named) {
			got[rec.ID] = relative{parent: rec.Parent, ended: rec.EndedAt, pruned: !rec.PrunedAt.IsZero()}
		}
	}
	want := map[toolcrib.RunID]relative{}
	for run, of := range r.there {
		want[run] = relative{parent: of.parent, ended: of.ended, pruned: of.pruned}
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(relative{})); diff != "" {
		r.rt.Fatalf("(-want +got)\n%s", diff)
	}
}

// leave removes what is left, so that the next run trees find nothing.
func (r *tribe) leave() {
	for _, run := range slices.Sorted(maps.Keys(r.there)) {
		if open(r.there[run]) {
			r.add(run, &journal.Done{Status: toolcrib.StatusCancelled, StopReason: toolcrib.StopCancelled})
		}
	}
	left := slices.Collect(maps.Keys(r.there))
	if len(left) == 0 {
		return
	}
	if _, err := r.s.Prune(r.t.Context(), store.PruneOptions{Runs: left, By: "ann"}); err != nil {
		r.rt.Fatal(err)
	}
}
