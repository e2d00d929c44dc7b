package storetest

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/internal/waittest"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/store"
	"github.com/toolcrib/toolcrib/store/sqlstore"
	"github.com/toolcrib/toolcrib/toolcribtest/journaltest"
)

// Upgrading is a new database of the schema of this version, for programs of two versions: this one, and
// one that knows further steps.
type Upgrading struct {
	// Open opens it as a program with these steps does, and Migrate makes them.
	Open    func(steps sqlstore.Steps) (store.Store, error)
	Migrate func(steps sqlstore.Steps) error
	// Change executes a statement in the database.
	Change func(statement string)
	// Asks reports whether only Migrate makes the steps; otherwise Open makes them, too.
	Asks bool
}

// NextStep is a change of the schema after which programs from a version on may work.
func NextStep(oldest int) sqlstore.Step {
	return sqlstore.Step{
		Oldest: oldest,
		SQLite: "ALTER TABLE runs ADD COLUMN note TEXT NOT NULL DEFAULT ''; CREATE TABLE notes (id TEXT NOT NULL PRIMARY KEY) STRICT;",
		PostgreSQL: `ALTER TABLE toolcrib.runs ADD COLUMN note text NOT NULL DEFAULT '';
			CREATE TABLE toolcrib.notes (id text NOT NULL PRIMARY KEY)`,
	}
}

// RunUpgrades tests changes of the schema of a kind of database.
func RunUpgrades(t *testing.T, database func(*testing.T) Upgrading) {
	known := sqlstore.Known()
	version := sqlstore.Baseline + len(known)
	next := append(slices.Clip(known), NextStep(version))
	excluding := append(slices.Clip(known), NextStep(version+1))
	for name, do := range map[string]func(*testing.T, Upgrading){
		"SideBySide": func(t *testing.T, u Upgrading) { sideBySide(t, u, known, next) },
		"Excluded":   func(t *testing.T, u Upgrading) { excluded(t, u, known, excluding) },
		"AtOnce":     func(t *testing.T, u Upgrading) { migrateAtOnce(t, u, known, next) },
		"Refused":    func(t *testing.T, u Upgrading) { upgradeRefused(t, u, known, next) },
	} {
		t.Run(name, func(t *testing.T) { do(t, database(t)) })
	}
}

func (u *Upgrading) open(t *testing.T, steps sqlstore.Steps) store.Store {
	t.Helper()
	s, err := u.Open(steps)
	must(t, err)
	t.Cleanup(func() { must(t, s.Close()) })
	return s
}

func numbered(n int) []toolcrib.Event {
	return journaltest.Events(&journal.ToolStarted{ID: fmt.Sprint("call_", n), Name: "write_file", Write: n%2 == 0})
}

// sideBySide has programs of both versions work on the same runs while the schema is changed, and afterwards.
func sideBySide(t *testing.T, u Upgrading, known, next sqlstore.Steps) {
	old := u.open(t, known)
	Fill(t, old)
	n := 0
	add := func(s store.Store) {
		t.Helper()
		must(t, s.Append(t.Context(), "run_both", toolcrib.Seq(n), numbered(n)...))
		n++
	}
	add(old)
	if u.Asks {
		if _, err := u.Open(next); !errors.Is(err, store.ErrUnmigrated) {
			t.Errorf("a later version opened: %v", err)
		}
	}
	must(t, u.Migrate(next))
	add(old)
	all := []store.Store{old, u.open(t, next), u.open(t, known), u.open(t, next)}
	for range 5 {
		for i, s := range all {
			add(s)
			own := toolcrib.RunID(fmt.Sprint("run_of_", i, "_", n))
			must(t, s.Put(t.Context(), own, "res_1", []byte("kept")))
			add1(t, s, own)
		}
	}
	for i, s := range all {
		verified, err := s.VerifyAll(t.Context())
		must(t, err)
		must(t, s.Check(t.Context()))
		run, err := s.Run(t.Context(), "run_both")
		must(t, err)
		if int(run.LastSeq) != n || verified.Runs < 20 {
			t.Errorf("store %d: %d events, %d runs verified", i, run.LastSeq, verified.Runs)
		}
	}
	u.Change("UPDATE state SET version = version + 1") // what is not sealed
	for i, s := range all {
		var broken *store.ChainError
		if _, err := s.VerifyAll(t.Context()); !errors.As(err, &broken) {
			t.Errorf("store %d verified a changed schema: %v", i, err)
		}
	}
}

// add1 begins a run that ends at once.
func add1(t *testing.T, s store.Store, run toolcrib.RunID) {
	t.Helper()
	add(t, s, run, 0, opened("ann", "", ""), done())
}

// excluded changes the schema so that the earlier version may not work on it. It stops writing, and its runs
// continue with the later version.
func excluded(t *testing.T, u Upgrading, known, next sqlstore.Steps) {
	old := u.open(t, known)
	must(t, old.Append(t.Context(), "run_a", 0, numbered(0)...))
	_, err := old.TakeLease(t.Context(), "run_a", time.Millisecond, false)
	must(t, err)
	must(t, u.Migrate(next))
	for what, do := range map[string]func() error{
		"append":    func() error { return old.Append(t.Context(), "run_a", 1, numbered(1)...) },
		"new run":   func() error { return old.Append(t.Context(), "run_b", 0, numbered(0)...) },
		"put":       func() error { return old.Put(t.Context(), "run_a", "res_1", []byte("x")) },
		"writable":  func() error { return old.Writable(t.Context()) },
		"renew":     func() error { _, err := old.RenewLeases(t.Context()); return err },
		"lease":     func() error { _, err := old.TakeLease(t.Context(), "run_a", long, false); return err },
		"open":      func() error { _, err := u.Open(known); return err },
		"migration": func() error { return u.Migrate(known) },
	} {
		if err := do(); !errors.Is(err, store.ErrNewer) {
			t.Errorf("%s of the earlier version: %v", what, err)
		}
	}
	later := u.open(t, next)
	waittest.Until(t, "the lease ends", func() bool {
		_, err := later.TakeLease(t.Context(), "run_a", long, false)
		return err == nil
	})
	must(t, later.Append(t.Context(), "run_a", 1, numbered(1)...))
	_, err = later.VerifyAll(t.Context())
	must(t, err)
}

// migrateAtOnce makes the same changes several times at once: they are made once.
func migrateAtOnce(t *testing.T, u Upgrading, known, next sqlstore.Steps) {
	old := u.open(t, known)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			if err := u.Migrate(next); err != nil {
				t.Error(err)
			}
		})
	}
	for n := range 20 {
		must(t, old.Append(t.Context(), "run_a", toolcrib.Seq(n), numbered(n)...))
	}
	all.Wait()
	_, err := u.open(t, next).VerifyAll(t.Context())
	must(t, err)
}

// upgradeRefused tries changes that cannot be made: nothing is changed, and the earlier version continues.
func upgradeRefused(t *testing.T, u Upgrading, known, next sqlstore.Steps) {
	old := u.open(t, known)
	Fill(t, old)
	bad := slices.Clone(next)
	last := &bad[len(bad)-1]
	last.SQLite, last.PostgreSQL = last.SQLite+" DROP TABLE missing", last.PostgreSQL+"; DROP TABLE toolcrib.missing"
	if err := u.Migrate(bad); err == nil {
		t.Error("a step was made that fails")
	}
	add1(t, old, "run_a")
	_, err := old.VerifyAll(t.Context())
	must(t, err)

	u.Change("DROP INDEX runs_user")
	var broken *store.ChainError
	if err := u.Migrate(next); !errors.As(err, &broken) {
		t.Errorf("a schema was sealed again that others have changed: %v", err)
	}
	if _, err := old.VerifyAll(t.Context()); !errors.As(err, &broken) {
		t.Errorf("verified: %v", err)
	}
}
