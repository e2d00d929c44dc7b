package storetest

import (
	"bytes"
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
	"github.com/toolcrib/toolcrib/api"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/store"
)

// Runs that start other runs.

// writer appends to the runs of a store, all at one time.
type writer struct {
	t     testing.TB
	s     store.Store
	at    time.Time
	after map[toolcrib.RunID]toolcrib.Seq
}

// newWriter returns a writer for a new database, which uses the writer's time.
func newWriter(t *testing.T, database Database) *writer {
	w := &writer{t: t, at: noon(), after: map[toolcrib.RunID]toolcrib.Seq{}}
	w.s = database(t, func() time.Time { return w.at })()
	return w
}

func noon() time.Time { return time.Date(2026, 2, 27, 12, 0, 0, 0, time.UTC) }

func (w *writer) try(run toolcrib.RunID, bodies ...toolcrib.Body) error {
	events := make([]toolcrib.Event, len(bodies))
	for i, b := range bodies {
		events[i] = toolcrib.Event{Time: w.at, Body: b}
	}
	err := w.s.Append(w.t.Context(), run, w.after[run], events...)
	if err == nil {
		w.after[run] += toolcrib.Seq(len(bodies))
	}
	return err
}

func (w *writer) add(run toolcrib.RunID, bodies ...toolcrib.Body) {
	w.t.Helper()
	if err := w.try(run, bodies...); err != nil {
		w.t.Fatal(err)
	}
}

func (w *writer) want(what string, f store.Filter, want ...toolcrib.RunID) {
	w.t.Helper()
	page, err := w.s.Runs(w.t.Context(), f)
	if err != nil {
		w.t.Fatal(err)
	}
	var got []toolcrib.RunID
	for _, rec := range page.Runs {
		got = append(got, rec.ID)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		w.t.Errorf("%s (-want +got)\n%s", what, diff)
	}
}

// begins returns the first event of a run of ann. parent is "" if a person started it.
func begins(agent string, parent toolcrib.RunID, depth int) *journal.RunStarted {
	b := &journal.RunStarted{
		Format: journal.Format, Agent: toolcrib.Agent{Name: agent}, Principal: toolcrib.Principal{User: "ann"},
		Session: "work",
		Parent:  parent, Depth: depth,
	}
	if parent != "" {
		b.Above = &journal.Above{TaintWrites: "ask"}
	}
	return b
}

// line adds a run that starts another one, which starts a third: run_p, run_c and run_g.
func (w *writer) line() {
	w.t.Helper()
	w.add("run_p", begins("lead", "", 0), &journal.ChildStarted{ID: "call_1", Run: "run_c", Agent: "editor"})
	w.add("run_c", begins("editor", "run_p", 1), &journal.ChildStarted{ID: "call_1", Run: "run_g", Agent: "digger"})
	w.add("run_g", begins("digger", "run_c", 2), &journal.TakenUp{Epoch: 1})
}

func (w *writer) ends(runs ...toolcrib.RunID) {
	w.t.Helper()
	for _, run := range runs {
		w.add(run, &journal.Done{Status: toolcrib.StatusCancelled, StopReason: toolcrib.StopCancelled})
	}
}

// treeLists tests lists of the runs of a tree, and of the runs that wait for a decision.
func treeLists(t *testing.T, database Database) {
	w := newWriter(t, database)
	w.line()
	w.add("run_x", begins("lead", "run_other", 1))
	beside := begins("lead", "", 0)
	beside.Session, beside.Beside = "", "work"
	w.add("run_b", beside)
	w.want("parts of run_p", store.Filter{Parent: "run_p"}, "run_c")
	w.want("parts of run_g", store.Filter{Parent: "run_g"})
	w.want("of no other", store.Filter{TopLevel: true}, "run_b", "run_p")
	w.want("of an agent", store.Filter{Agent: "editor"}, "run_c")
	w.want("beside a session", store.Filter{Beside: "work"}, "run_b")
	w.want("beside another", store.Filter{Beside: "play"})

	w.want("nothing waits", store.Filter{Deciding: true})
	for _, run := range []toolcrib.RunID{"run_g", "run_c", "run_p"} {
		p := &journal.Paused{
			Status:  toolcrib.StatusWaitingForApproval,
			Pending: journal.Pending{Kind: "approval", ApprovalID: "apr_1"},
		}
		if run != "run_g" {
			p.Pending.Run = "run_g"
		}
		w.add(run, p)
	}
	waiting := store.Filter{Status: []toolcrib.Status{toolcrib.StatusWaitingForApproval}}
	w.want("all that wait", waiting, "run_g", "run_c", "run_p")
	w.want("what is to be decided", store.Filter{Deciding: true}, "run_g")
	w.want("what waits for a run that has ended", store.Filter{Freed: true})
	w.add("run_g", &journal.ConfirmationResolved{ApprovalID: "apr_1", Decision: journal.DecisionApprove, By: "ann"})
	w.want("decided", store.Filter{Deciding: true})
	w.want("the others wait until they are told", waiting, "run_c", "run_p")
	w.ends("run_g")
	w.want("what waits for a run that has ended, at its end", store.Filter{Freed: true}, "run_c", "run_p")

	page, err := w.s.Audit(t.Context(), store.AuditFilter{OldestFirst: true, User: "ann"})
	must(t, err)
	var got []string
	for _, e := range page.Entries {
		got = append(got, fmt.Sprint(e.Kind, " ", e.Run, " ", e.Parent, " ", e.Agent, " ", e.By))
	}
	want := []string{
		"run_started run_p  lead ", "run_started run_c run_p editor ", "run_started run_g run_c digger ",
		"approval_decided run_g run_c digger ann", "run_started run_x run_other lead ", "run_started run_b  lead ",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the audit log (-want +got)\n%s", diff)
	}
}

// treeSession tests that a session has only the runs that people start, one at a time.
func treeSession(t *testing.T, database Database) {
	w := newWriter(t, database)
	w.line()
	info, err := w.s.Session(t.Context(), "ann", "work")
	if err != nil || info.Runs != 1 || info.LastRun != "run_p" || !info.Busy() {
		t.Errorf("%+v, error %v", info, err)
	}
	if last, err := store.LastRun(t.Context(), w.s, "ann", "work"); err != nil || last.ID != "run_p" {
		t.Errorf("the last is %s, error %v", last.ID, err)
	}
	if err := w.try("run_2", begins("lead", "", 0)); !errors.As(err, new(*store.SessionBusyError)) {
		t.Errorf("a second run: error %v, want SessionBusyError", err)
	}
	w.ends("run_p") // the others were left behind, and do not block the session
	w.add("run_2", begins("lead", "", 0))
}

// treeBounds tests that a tree is never split, whatever the bound, and is exported as a whole, however
// long ago a part of it ended.
func treeBounds(t *testing.T, database Database) {
	w := newWriter(t, database)
	const day = 24 * time.Hour
	w.line()
	for _, run := range []toolcrib.RunID{"run_g", "run_c", "run_p"} {
		w.ends(run)
		w.at = w.at.Add(10 * day)
	}
	w.add("run_q", begins("lead", "", 0))
	w.ends("run_q")
	for since, want := range map[time.Duration]int{-11 * day: 4, -day: 1, day: 0} {
		if v := w.exported(store.ExportOptions{Since: w.at.Add(since)}); v.Runs != want {
			t.Errorf("since %s: %d runs, want %d", since, v.Runs, want)
		}
	}
	w.at = w.at.Add(31 * day)
	r := store.Retention{Runs: 30 * day, Max: 2}
	for _, want := range []store.RetentionResult{
		{Removed: []toolcrib.RunID{"run_p", "run_c", "run_g"}, More: true}, {Removed: []toolcrib.RunID{"run_q"}},
	} {
		got, err := w.s.ApplyRetention(t.Context(), r, w.at)
		if err != nil || !slices.Equal(got.Removed, want.Removed) || got.More != want.More {
			t.Errorf("%+v, error %v; want %+v", got, err, want)
		}
	}
}

// treeAbove tests that a run is not pruned while a run above it, which needs its result, has not ended,
// or if runs below it have not ended for as long.
func treeAbove(t *testing.T, database Database) {
	w := newWriter(t, database)
	w.line()
	for _, c := range []struct{ ends, above toolcrib.RunID }{{"run_g", "run_p"}, {"run_p", "run_c"}} {
		w.ends(c.ends)
		w.at = w.at.AddDate(1, 0, 0)
		for _, contentOnly := range []bool{true, false} {
			_, err := w.s.Prune(t.Context(),
				store.PruneOptions{Runs: []toolcrib.RunID{"run_g"}, ContentOnly: contentOnly, By: "ann"})
			var refused *store.OpenRunError
			if !errors.As(err, &refused) ||
				*refused != (store.OpenRunError{Run: "run_g", Open: c.above, Status: toolcrib.StatusRunning}) {
				t.Errorf("content only %v: error %v, want that %s has not ended", contentOnly, err, c.above)
			}
		}
	}
	w.ends("run_c")
	for range 2 { // the second time it has ended long enough ago
		result, err := w.s.Prune(t.Context(), store.PruneOptions{OlderThan: time.Hour, By: "ann"})
		if want := w.at.After(noon().AddDate(2, 0, 0)); err != nil || len(result.Runs) == 3 != want {
			t.Errorf("%+v, error %v; all are pruned: %v", result, err, want)
		}
		w.at = w.at.Add(2 * time.Hour)
	}
}

// exported returns an export after verifying it.
func (w *writer) exported(o store.ExportOptions) store.VerifiedExport {
	w.t.Helper()
	keys, err := w.s.ExportKeys()
	var b bytes.Buffer
	if err == nil {
		err = w.s.ExportAudit(w.t.Context(), &b, o)
	}
	var v store.VerifiedExport
	if err == nil {
		v, err = store.VerifyExport(&b, keys, store.Head{})
	}
	if err != nil {
		w.t.Errorf("export %+v: %v", o, err)
	}
	return v
}

// treesPruned tests that after any actions of run trees and any pruning of them, a run is stored as
// long as its parent, unless it was named itself after all runs above it had ended; its stored results
// are removed with its content; and all chains, links between runs and exports are valid.
func treesPruned(t *testing.T, database Database) {
	w, n := newWriter(t, database), 0
	rapid.Check(t, func(rt *rapid.T) {
		n++
		f := &forest{writer: w, rt: rt, named: fmt.Sprintf("run_%d_", n), there: map[toolcrib.RunID]*tree{}}
		for range 3 {
			f.begin()
		}
		// Small numbers are drawn most often.
		for _, step := range rapid.SliceOfN(rapid.IntRange(0, 10), 4, 20).Draw(rt, "steps") {
			switch step {
			case 0, 7, 8, 9:
				f.begin()
			case 1, 4:
				f.end()
			case 2, 6:
				f.pruneNamed()
			case 3:
				w.at = w.at.Add(rapid.SampledFrom([]time.Duration{time.Hour, 20 * time.Hour, 50 * time.Hour}).Draw(rt, "later"))
			default:
				f.pruneOld()
			}
			f.check()
		}
		f.leave()
	})
}

// forest is the expected content of a store after generated steps.
type forest struct {
	*writer
	rt    *rapid.T
	named string // prefix of its run IDs, to ignore the runs that a failed forest has left
	made  int
	there map[toolcrib.RunID]*tree
}

// tree is a run and the runs below it.
type tree struct {
	parent toolcrib.RunID
	depth  int
	ended  time.Time // zero if it has not ended
	pruned bool      // its content was removed
}

func (f *forest) open(run toolcrib.RunID) bool { return f.there[run].ended.IsZero() }

// ids returns its runs, in the order in which they began.
func (f *forest) ids() []toolcrib.RunID { return slices.Sorted(maps.Keys(f.there)) }

// pick draws one of the runs for which fits returns true, or returns "".
func (f *forest) pick(what string, fits func(toolcrib.RunID) bool) toolcrib.RunID {
	fit := slices.DeleteFunc(f.ids(), func(run toolcrib.RunID) bool { return !fits(run) })
	if len(fit) == 0 {
		return ""
	}
	return rapid.SampledFrom(fit).Draw(f.rt, what)
}

func (f *forest) newID() toolcrib.RunID {
	f.made++
	return toolcrib.RunID(fmt.Sprintf("%s%02d", f.named, f.made))
}

// begin adds a run of a person, of an agent in an unfinished run, or of a tool in one. Some are named
// by the journal of the parent, but never begin.
func (f *forest) begin() {
	run, of := f.newID(), &tree{}
	if rapid.IntRange(0, 2).Draw(f.rt, "child") > 0 {
		of.parent = f.pick("parent", f.open)
	}
	var start *journal.RunStarted
	if of.parent == "" {
		start = begins("a", "", 0)
	} else {
		of.depth = f.there[of.parent].depth + 1
		start = begins("a", of.parent, of.depth)
		kind := rapid.IntRange(0, 5).Draw(f.rt, "kind")
		if kind == 5 {
			start.Given = &toolcrib.ToolCall{ID: "call_1", Name: "read_file"}
		} else {
			f.add(of.parent, &journal.ChildStarted{ID: "call_" + string(run), Run: run, Agent: "a"})
		}
		if kind == 4 {
			return
		}
	}
	start.Session = ""
	if err := f.s.Put(f.t.Context(), run, "res_1", []byte("kept")); err != nil {
		f.rt.Fatal(err)
	}
	f.add(run, start, &journal.TakenUp{Epoch: 1})
	f.there[run] = of
}

// end ends a run, sometimes before the runs that it has started; its parent may record that.
func (f *forest) end() {
	run := f.pick("end", f.open)
	if run == "" {
		return
	}
	status := rapid.SampledFrom([]toolcrib.Status{toolcrib.StatusCompleted, toolcrib.StatusCancelled}).Draw(f.rt, "status")
	f.add(run, &journal.Done{Status: status, StopReason: toolcrib.StopCompleted})
	of := f.there[run]
	of.ended = f.at
	if f.there[of.parent] != nil && f.open(of.parent) && rapid.Bool().Draw(f.rt, "told") {
		f.add(of.parent, &journal.ChildEnded{ID: "call_" + string(run), Run: run, Status: status})
	}
}

// below returns a run and all existing runs below it.
func (f *forest) below(run toolcrib.RunID) []toolcrib.RunID {
	all := []toolcrib.RunID{run}
	for _, other := range f.ids() {
		if f.there[other].parent == run {
			all = append(all, f.below(other)...)
		}
	}
	return all
}

// refused returns the error of pruning a run, or nil.
func (f *forest) refused(run toolcrib.RunID) error {
	if slices.ContainsFunc(f.below(run), f.open) {
		return toolcrib.ErrConflict
	}
	var top error
	for above := f.there[run].parent; f.there[above] != nil; above = f.there[above].parent {
		if f.open(above) {
			top = &store.OpenRunError{Run: run, Open: above, Status: toolcrib.StatusRunning}
		}
	}
	return top
}

// gone removes pruned runs from the model, and returns the runs that were affected.
func (f *forest) gone(runs []toolcrib.RunID, contentOnly bool) (pruned []toolcrib.RunID) {
	for _, run := range runs {
		of := f.there[run]
		switch {
		case of == nil || contentOnly && of.pruned:
			continue
		case contentOnly:
			of.pruned = true
		default:
			delete(f.there, run)
		}
		pruned = append(pruned, run)
	}
	return pruned
}

func (f *forest) pruneNamed() {
	ended := func(run toolcrib.RunID) bool { return !f.open(run) }
	named := []toolcrib.RunID{f.pick("prune", ended), f.pick("and", f.hasIt)}
	named = slices.DeleteFunc(named, func(run toolcrib.RunID) bool { return run == "" })
	if len(named) == 0 {
		return
	}
	named = named[:rapid.IntRange(1, len(named)).Draw(f.rt, "runs")]
	contentOnly := rapid.Bool().Draw(f.rt, "content only")
	result, err := f.s.Prune(f.t.Context(), store.PruneOptions{Runs: named, ContentOnly: contentOnly, By: "ann"})
	var all []toolcrib.RunID
	for _, run := range named { // all or none
		if want := f.refused(run); want != nil {
			var above, got *store.OpenRunError
			if !errors.Is(err, toolcrib.ErrConflict) || errors.As(want, &above) && (!errors.As(err, &got) || *got != *above) {
				f.rt.Fatalf("error %v, want %v", err, want)
			}
			return
		}
		all = append(all, f.below(run)...)
	}
	f.same(result.Runs, f.gone(all, contentOnly), err)
}

func (f *forest) hasIt(run toolcrib.RunID) bool { return f.there[run] != nil }

// same compares the pruned runs with the expected ones.
func (f *forest) same(got, want []toolcrib.RunID, err error) {
	mine := slices.DeleteFunc(got, func(run toolcrib.RunID) bool { return !strings.HasPrefix(string(run), f.named) })
	slices.Sort(mine)
	slices.Sort(want)
	if err != nil || !slices.Equal(mine, want) {
		f.rt.Fatalf("%v are pruned, error %v; want %v", mine, err, want)
	}
}

// pruneOld prunes by age, explicitly or as configured.
func (f *forest) pruneOld() {
	age := rapid.SampledFrom([]time.Duration{30 * time.Minute, 10 * time.Hour, 30 * time.Hour}).Draw(f.rt, "age")
	contentOnly := rapid.Bool().Draw(f.rt, "content only")
	var pruned []toolcrib.RunID
	var err error
	if rapid.Bool().Draw(f.rt, "by hand") {
		var result api.PruneResult
		result, err = f.s.Prune(f.t.Context(), store.PruneOptions{OlderThan: age, ContentOnly: contentOnly, By: "ann"})
		pruned = result.Runs
	} else {
		r := store.Retention{Max: 10_000, Runs: age}
		if contentOnly {
			r.Runs, r.Content = 0, age
		}
		var result store.RetentionResult
		result, err = f.s.ApplyRetention(f.t.Context(), r, f.at)
		pruned = append(result.Removed, result.Emptied...)
	}
	before := f.at.Add(-age)
	var want []toolcrib.RunID
	for _, run := range f.ids() {
		if of := f.there[run]; of == nil || f.there[of.parent] != nil {
			continue
		}
		all := f.below(run)
		if !slices.ContainsFunc(all,
			func(run toolcrib.RunID) bool { return f.open(run) || !f.there[run].ended.Before(before) }) {
			want = append(want, f.gone(all, contentOnly)...)
		}
	}
	f.same(pruned, want, err)
}

// check compares the store with the model.
func (f *forest) check() {
	if _, err := f.s.VerifyAll(f.t.Context()); err != nil {
		f.rt.Fatal(err)
	}
	page, err := f.s.Runs(f.t.Context(), store.Filter{Limit: store.MaxLimit})
	if err != nil {
		f.rt.Fatal(err)
	}
	got, want := map[toolcrib.RunID]tree{}, map[toolcrib.RunID]tree{}
	for _, rec := range page.Runs {
		if !strings.HasPrefix(string(rec.ID), f.named) {
			continue
		}
		got[rec.ID] = tree{parent: rec.Parent, ended: rec.EndedAt, pruned: !rec.PrunedAt.IsZero()}
		kept, _, err := f.s.Range(f.t.Context(), rec.ID, "res_1", 0, 9)
		if there := err == nil && string(kept) == "kept"; there == got[rec.ID].pruned {
			f.rt.Fatalf("what is kept for %s is there: %v, error %v", rec.ID, there, err)
		}
		if _, err := f.s.Verify(f.t.Context(), rec.ID); err != nil {
			f.rt.Fatal(err)
		}
	}
	for run, of := range f.there {
		want[run] = tree{parent: of.parent, ended: of.ended, pruned: of.pruned}
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(tree{})); diff != "" {
		f.rt.Fatalf("(-want +got)\n%s", diff)
	}
}

// leave exports and then removes the remaining runs, so that the next forest starts empty.
func (f *forest) leave() {
	for _, content := range []bool{false, true} {
		f.exported(store.ExportOptions{Content: content})
	}
	for _, run := range f.ids() {
		if f.open(run) {
			f.ends(run)
		}
	}
	if left := f.ids(); len(left) > 0 {
		if _, err := f.s.Prune(f.t.Context(), store.PruneOptions{Runs: left, By: "ann"}); err != nil {
			f.rt.Fatal(err)
		}
	}
}
