package sqlite_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/store"
	"github.com/toolcrib/toolcrib/store/sqlite"
)

// schema5 is a database as the fifth schema left it, with its keys: runs of two users
// that asked before midnight and were answered after it, one of them open, with
// verdicts of rules, an approval, and runs that were pruned.
func schema5(t testing.TB) string {
	t.Helper()
	path := unpacked(t, "schema5.db.gz")
	keys, err := os.ReadFile(filepath.Join("testdata", "schema5.keys"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(filepath.Dir(path), "keys"), keys, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// A database of schema 5 is brought up to date: what users have spent and what rules
// have decided is made from what there is, and it is verified, for ever.
func TestSchema5(t *testing.T) {
	path := schema5(t)
	wantOpenError(t, path, sqlite.Options{ReadOnly: true}, store.ErrReadOnly)
	for range 2 {
		s := openAt(t, path, sqlite.Options{})
		all := verifyAll(t, s)
		if all.Runs != 5 || all.Removed != 1 || all.Pruned == 0 || all.System.Adopted != 0 {
			t.Errorf("%+v", all)
		}
		for user, want := range map[string]map[store.Day]store.SpentSum{
			// All of ann's requests were sent on Saturday.
			"ann": {store.DayOf(saturday): {Requests: 6, Tokens: 660, NanoUSD: 9e8}},
			// Of bob's pruned runs it is known only when they were answered.
			"bob": {store.DayOf(saturday): {Requests: 4, Tokens: 440, NanoUSD: 5e8}, store.DayOf(sunday): {Requests: 2, Tokens: 220, NanoUSD: 4e8}},
		} {
			got, err := s.Spent(t.Context(), user, 0)
			if diff := cmp.Diff(want, got); diff != "" || err != nil {
				t.Errorf("%s: error %v (-want +got)\n%s", user, err, diff)
			}
		}
		if got, err := s.Spent(t.Context(), "ann", store.DayOf(sunday)); err != nil || len(got) != 0 {
			t.Errorf("%+v, error %v", got, err)
		}
		counts, err := s.RuleCounts(t.Context())
		want := []store.RuleCount{
			{Rule: "asks", Decision: toolcrib.Ask, Tool: "write_file", Calls: 1, LastUsed: sunday},
			{Rule: "pushes", Tool: "write_file", Calls: 4, LastUsed: saturday}, // those of pruned runs were not counted
		}
		if diff := cmp.Diff(want, counts); diff != "" || err != nil {
			t.Errorf("error %v (-want +got)\n%s", err, diff)
		}
	}
	s := openAt(t, path, sqlite.Options{})
	o := &spender{t: t, run: "run_open", after: 11, n: 3} // its request is known from its events
	o.add(s, sunday.AddDate(0, 0, 7), o.settle(0.5, false))
	if got, err := s.Spent(t.Context(), "ann", store.DayOf(sunday)); err != nil || got[store.DayOf(sunday)].NanoUSD != 5e8 {
		t.Errorf("%+v, error %v", got, err)
	}
	o.end(s, sunday)
	prune(t, s, store.PruneOptions{Runs: []toolcrib.RunID{"run_child"}, ContentOnly: true})
	verifyAll(t, s)
	prune(t, s, store.PruneOptions{Runs: []toolcrib.RunID{"run_open", "run_a"}})
	if _, err := s.Run(t.Context(), "run_child"); !errors.Is(err, toolcrib.ErrNotFound) {
		t.Errorf("the run that run_a had started: error %v", err)
	}
	verifyAll(t, s)
}

// Of each call the rule counts that decided about it first; what is pruned stays.
func TestRuleCounts(t *testing.T) {
	s := open(t)
	verdict := func(again bool, decision toolcrib.Decision, rule string) *journal.Verdicts {
		return &journal.Verdicts{Again: again, Verdicts: []journal.Verdict{
			{CallID: "c1", Tool: "exec_shell", Decision: decision, Rule: rule}, {CallID: "c2", Tool: "read_file", Decision: toolcrib.Allow}, {CallID: "c3", Tool: "no such tool", Rule: rule},
		}}
	}
	for i, run := range []toolcrib.RunID{"run_a", "run_b"} {
		p := &spender{t: t, run: run}
		p.start(s, saturday, "ann", "default", "", "")
		p.add(s, saturday, verdict(false, toolcrib.Ask, "asks"), verdict(true, toolcrib.Allow, "asks"))
		p.add(s, sunday, verdict(false, toolcrib.Refuse, "pushes"))
		p.end(s, sunday)
		want := []store.RuleCount{
			{Rule: "asks", Decision: toolcrib.Ask, Tool: "exec_shell", Calls: int64(i + 1), LastUsed: saturday},
			{Rule: "pushes", Tool: "exec_shell", Calls: int64(i + 1), LastUsed: sunday},
		}
		prune(t, s, store.PruneOptions{Runs: []toolcrib.RunID{run}, ContentOnly: true})
		got, err := s.RuleCounts(t.Context())
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("error %v (-want +got)\n%s", err, diff)
		}
		verifyAll(t, s)
	}
}
