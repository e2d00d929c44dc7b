package sqlite_test

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/store"
	"github.com/toolcrib/toolcrib/store/sqlite"
	"github.com/toolcrib/toolcrib/toolcribtest/storetest"
)

// related is a database with a run that has started two others: one is over, and one,
// as itself, is not, so that neither of these has an anchor.
func related(t *testing.T) string {
	t.Helper()
	s := openAt(t, filepath.Join(t.TempDir(), "toolcrib.db"), sqlite.Options{})
	add(t, s, "run_top", 0, started("ann", "lead", "", ""), &journal.TakenUp{Epoch: 1},
		&journal.ChildStarted{ID: "c1", Run: "run_over", Agent: "helper"}, &journal.ChildStarted{ID: "c2", Run: "run_open", Agent: "helper"})
	add(t, s, "run_over", 0, part("helper", "run_top"), &journal.TakenUp{Epoch: 1}, completed)
	add(t, s, "run_open", 0, part("helper", "run_top"), &journal.TakenUp{Epoch: 1})
	add(t, s, "run_other", 0, started("ann", "lead", "", ""), &journal.TakenUp{Epoch: 1})
	verifyAll(t, s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return s.Path()
}

// last moves the row of a run to one of its events.
func last(run string, seq int) string {
	return fmt.Sprintf("UPDATE runs SET last_seq = %d, last_hash = (SELECT hash FROM events WHERE key = %s) WHERE id = '%s'; ", seq, storetest.KeyOf(run, fmt.Sprint(seq)), run)
}

// An attacker with right hashes changes runs that have no anchor yet, and the seals are recomputed:
// the references between the runs reveal it, and name the run.
func TestTamperedFamily(t *testing.T) {
	path := related(t)
	gone := func(run string) string {
		return "DELETE FROM events WHERE key BETWEEN " + storetest.KeyOf(run, "0") + " AND " + storetest.KeyOf(run, "99") + "; DELETE FROM runs WHERE id = '" + run + "'; "
	}
	rewrite := func(run, with string) string {
		return "SELECT key, kind, time, " + with + " FROM events WHERE key >> 32 = (SELECT num FROM runs WHERE id = '" + run + "') ORDER BY key"
	}
	for name, c := range map[string]struct {
		run, payloads string // are hashed anew
		change        string
		want          []string
	}{
		"the parent names neither": {
			change: "DELETE FROM events WHERE key IN (" + storetest.KeyOf("run_top", "3") + ", " + storetest.KeyOf("run_top", "4") + "); " + last("run_top", 2),
			want: []string{
				"run_over breaks at event 1: it is part of run run_top, which did not start it", "run_open breaks at event 1: it is part of run run_top, which did not start it",
			},
		},
		"the parent names another": {
			run: "run_top", payloads: rewrite("run_top", "replace(payload, 'run_over', 'run_other')"), change: last("run_top", 4),
			want: []string{
				"run_top breaks at event 3: run run_other, which it started, is a part of no run", "run_over breaks at event 1: it is part of run run_top, which did not start it",
			},
		},
		"the parent names it twice": {
			run: "run_top", payloads: rewrite("run_top", "replace(payload, 'run_open', 'run_over')"), change: last("run_top", 4),
			want: []string{"run_top breaks at event 4: it started run run_over twice", "run_open breaks at event 1: it is part of run run_top, which did not start it"},
		},
		"the parent says another agent": {
			run: "run_top", payloads: rewrite("run_top", `replace(payload, '"helper"', '"editor"')`), change: last("run_top", 4),
			want: []string{"run_top breaks at event 3: run run_over, which it started, is one of agent helper, not editor"},
		},
		"the parent is gone": {
			change: gone("run_top"),
			want:   []string{"run_over breaks at event 1: run run_top, of which it is a part, is gone, and no removal is recorded", "run_open breaks at event 1: run run_top, of which it is a part"},
		},
		"it is gone": {
			change: gone("run_over"),
			want:   []string{"run_top breaks at event 3: run run_over, which it started, is gone, and no removal is recorded", "run run_over: it has an anchor in the system journal but is gone"},
		},
		"it names another": {
			run: "run_open", payloads: rewrite("run_open", "replace(payload, 'run_top', 'run_other')"),
			change: last("run_open", 2) + "UPDATE runs SET parent_id = 'run_other' WHERE id = 'run_open'; ",
			want: []string{
				"run_top breaks at event 4: run run_open, which it started, is part of run run_other", "run_open breaks at event 1: it is part of run run_other, which did not start it",
			},
		},
		"it stands elsewhere": {
			run: "run_open", payloads: rewrite("run_open", `replace(payload, '"depth":1', '"depth":2')`), change: last("run_open", 2),
			want: []string{"run_open breaks at event 1: it is part of run run_top, at depth 2 under one at depth 0"},
		},
		"it is another agent's": {
			run: "run_open", payloads: rewrite("run_open", `replace(payload, '"helper"', '"editor"')`),
			change: last("run_open", 2) + "UPDATE runs SET agent = 'editor' WHERE id = 'run_open'; ",
			want:   []string{"run_top breaks at event 4: run run_open, which it started, is one of agent editor, not helper"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := copied(t, path)
			db := outside(t, path)
			if c.run != "" {
				rechain(t, db, "events", c.run, c.payloads)
			}
			if _, err := db.ExecContext(t.Context(), c.change); err != nil {
				t.Fatal(err)
			}
			openAt(t, path, sqlite.Options{AdoptBy: "ann"}) // so that no seal tells
			wantFamilyBroken(t, openAt(t, path, readOnly()), c.want)
		})
	}
}

// wantFamilyBroken verifies all runs at once, each one separately, and an export of them: all report
// the same.
func wantFamilyBroken(t *testing.T, s *sqlite.Store, want []string) {
	t.Helper()
	all, err := s.VerifyAll(t.Context())
	for _, w := range want {
		wantBroken(t, err, w)
	}
	_, err = store.VerifyExport(bytes.NewReader(export(t, s, store.ExportOptions{Content: true})), nil, store.Head{})
	var broken *store.ChainError
	if !errors.As(err, &broken) || !strings.Contains(broken.What, "has an anchor") && !slices.ContainsFunc(want, func(w string) bool { return strings.Contains(w, broken.What) }) {
		t.Errorf("exported: error %v", err)
	}
	if len(all.Problems) != len(want) {
		t.Errorf("%d problems, want %d: %v", len(all.Problems), len(want), err)
	}
	for _, p := range all.Problems {
		if _, err := s.Verify(t.Context(), p.Run); p.Seq > 0 && (err == nil || err.Error() != p.Error()) {
			t.Errorf("the run alone: error %v, want %v", err, p)
		}
	}
}

// A run of an older toolcrib is a part of one that does not name it.
func TestVerifyOldPart(t *testing.T) {
	s := open(t)
	add(t, s, "run_top", 0, started("ann", "lead", "", ""), completed)
	add(t, s, "run_sub", 0, started("ann", "helper", "", "run_top"), completed)
	add(t, s, "run_lost", 0, started("ann", "helper", "", "run_never"), completed)
	verifyAll(t, s)
}

// The content of a run that is pruned says no more what it started, and that of a part
// no more of what; the chains and what is known of them hold.
func TestVerifyPrunedFamily(t *testing.T) {
	path := related(t)
	s := openAt(t, path, sqlite.Options{})
	add(t, s, "run_open", 2, completed)
	add(t, s, "run_top", 4, &journal.ChildEnded{ID: "c2", Run: "run_open", Status: toolcrib.StatusFailed}, completed)
	_, err := s.VerifyAll(t.Context())
	wantBroken(t, err, "run_top breaks at event 4: run run_open, which it started, is completed, not failed as it was told")
	prune(t, s, store.PruneOptions{Runs: []toolcrib.RunID{"run_open"}, ContentOnly: true})
	_, err = s.Verify(t.Context(), "run_top")
	wantBroken(t, err, "is completed, not failed")
	prune(t, s, store.PruneOptions{Runs: []toolcrib.RunID{"run_open"}})
	verifyAll(t, s)
	prune(t, s, store.PruneOptions{Runs: []toolcrib.RunID{"run_top"}, ContentOnly: true})
	verifyAll(t, s)
	execAt(t, path, strings.ReplaceAll("DELETE FROM events WHERE key BETWEEN a AND b; DELETE FROM runs WHERE id = 'run_over'", "a AND b", storetest.KeyOf("run_over", "0")+" AND "+storetest.KeyOf("run_over", "99")))
	_, err = s.VerifyAll(t.Context())
	wantBroken(t, err, "run run_over: it has an anchor in the system journal but is gone")
}
