package sqlite_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/internal/waittest"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/store"
	"github.com/toolcrib/toolcrib/store/sqlite"
	"github.com/toolcrib/toolcrib/store/sqlstore"
	"github.com/toolcrib/toolcrib/toolcribtest/storetest"
)

func TestUpgrade(t *testing.T) {
	storetest.RunUpgrades(t, func(t *testing.T) storetest.Upgrading {
		path := filepath.Join(t.TempDir(), "data", "toolcrib.db")
		openWith := func(steps sqlstore.Steps) (store.Store, error) {
			o := sqlite.Options{Owner: store.Owner{ID: rand.Text(), Host: "here", Machine: "this", PID: 7, Started: 9, Lease: time.Minute}}
			s, err := sqlite.Open(t.Context(), path, o.With(steps))
			if err != nil {
				return nil, err
			}
			return s, nil
		}
		return storetest.Upgrading{
			Open: openWith,
			Migrate: func(steps sqlstore.Steps) error {
				s, err := openWith(steps)
				if err == nil {
					err = s.Close()
				}
				return err
			},
			Change: func(statement string) { execAt(t, path, statement) },
		}
	})
}

// later is a version that knows one more step.
func later() sqlstore.Steps {
	known := sqlstore.Known()
	return append(known, storetest.NextStep(sqlstore.Baseline+len(known)))
}

// Before the schema is changed, one copy of the file is kept, which the earlier version opens, until content is removed.
func TestUpgrade_Copy(t *testing.T) {
	path := finished(t)
	if _, err := sqlite.Open(t.Context(), path, readOnly().With(later())); !errors.Is(err, store.ErrUnmigrated) {
		t.Errorf("opened for reading: %v", err)
	}
	for range 2 {
		s, err := sqlite.Open(t.Context(), path, sqlite.Options{}.With(later()))
		if err = errors.Join(err, s.Close()); err != nil {
			t.Fatal(err)
		}
	}
	before := path + "-before"
	info, err := os.Stat(before)
	if err != nil || info.Mode().Perm()&0o077 != 0 {
		t.Fatalf("%v, %v", info, err)
	}
	s := openAt(t, before, sqlite.Options{Keys: filepath.Join(filepath.Dir(path), "keys")})
	if _, err := s.VerifyAll(t.Context()); err != nil {
		t.Error(err)
	}
	upgraded, err := sqlite.Open(t.Context(), path, sqlite.Options{}.With(later()))
	if err != nil {
		t.Fatal(err)
	}
	_, err = upgraded.Prune(t.Context(), store.PruneOptions{OlderThan: time.Nanosecond, By: "ann"})
	if err = errors.Join(err, upgraded.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(before); err == nil {
		t.Error("the copy has the content that was removed")
	}
}

// upgradeForLong makes a step that does not end.
func upgradeForLong(ctx context.Context, path string) error {
	steps := later()
	steps[len(steps)-1].SQLite += `CREATE TABLE endless AS
		WITH RECURSIVE c (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c LIMIT 1000000000000) SELECT max(n) FROM c;`
	s, err := sqlite.Open(ctx, path, sqlite.Options{}.With(steps))
	if err != nil {
		return err
	}
	return s.Close()
}

// A process that is killed while it changes the schema leaves it as it was.
func TestUpgrade_Killed(t *testing.T) {
	path := finished(t)
	old := openAt(t, path, sqlite.Options{})
	c := newChild(t, "upgrade", "a", path)
	c.begin()
	waittest.Until(t, "the step has begun", func() bool {
		_, err := os.Stat(path + "-before")
		return err == nil
	})
	if err := c.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = c.cmd.Wait() // it was killed
	if err := old.Append(t.Context(), "run_new", 0, note("x")...); err != nil {
		t.Error(err)
	}
	for _, steps := range []sqlstore.Steps{sqlstore.Known(), later()} {
		s, err := sqlite.Open(t.Context(), path, sqlite.Options{}.With(steps))
		if err != nil {
			t.Fatal(err)
		}
		_, err = s.VerifyAll(t.Context())
		if err = errors.Join(err, s.Close()); err != nil {
			t.Error(err)
		}
	}
}

// A database of a later version is not copied into one of this version.
func TestUpgrade_Copied(t *testing.T) {
	path := finished(t)
	s, err := sqlite.Open(t.Context(), path, sqlite.Options{}.With(later()))
	if err = errors.Join(err, s.Close()); err != nil {
		t.Fatal(err)
	}
	from, err := sqlite.Open(t.Context(), path, readOnly().With(later()))
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close() //nolint:errcheck // only read
	for i, steps := range []sqlstore.Steps{sqlstore.Known(), later()} {
		o := sqlite.Options{From: from.Store}.With(steps)
		to, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "to", "toolcrib.db"), o)
		if (err == nil) != (i == 1) {
			t.Errorf("%d steps: %v", len(steps), err)
		}
		if err == nil {
			_, err := to.VerifyAll(t.Context())
			if err = errors.Join(err, to.Close()); err != nil {
				t.Error(err)
			}
		}
	}
}

// decided stores a run whose approval bob has decided, by a program with these steps. Its database is closed.
func decided(t *testing.T, steps sqlstore.Steps) (path string) {
	path = filepath.Join(t.TempDir(), "toolcrib.db")
	s, err := sqlite.Open(t.Context(), path, sqlite.Options{}.With(steps))
	if err != nil {
		t.Fatal(err)
	}
	add(t, s, "run_a", 0, started("ann", "default", "", ""),
		&journal.ConfirmationResolved{ApprovalID: "apr_1", Decision: journal.DecisionApprove, By: "bob"}, completed)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

// A payload that is damaged, before or after the step that indexes it, prevents neither that the database is opened nor
// that content is removed, and is reported.
func TestUpgrade_Damaged(t *testing.T) {
	for version, steps := range map[string]sqlstore.Steps{"before": sqlstore.Known()[:1], "after": sqlstore.Known()} {
		for from, to := range map[string]string{
			`{"approval_id":`: `["approval_id":`, `"by":"bob"`: `"by":"eve"`, `"decision":`: `"decision",`,
		} {
			for _, contentOnly := range []bool{true, false} {
				t.Run(fmt.Sprint(version, to, contentOnly), func(t *testing.T) {
					path := decided(t, steps)
					file, err := os.ReadFile(path)
					if err != nil || bytes.Count(file, []byte(from)) != 1 {
						t.Fatalf("no such event, error %v", err)
					}
					if err := os.WriteFile(path, bytes.Replace(file, []byte(from), []byte(to), 1), 0o600); err != nil {
						t.Fatal(err)
					}
					s := openAt(t, path, sqlite.Options{})
					var broken *store.ChainError
					if _, err := s.Verify(t.Context(), "run_a"); !errors.As(err, &broken) || broken.Seq != 2 {
						t.Errorf("verified: %v", err)
					}
					if _, err := s.Audit(t.Context(), store.AuditFilter{User: "eve"}); err != nil {
						t.Error(err)
					}
					result := prune(t, s, store.PruneOptions{Runs: []toolcrib.RunID{"run_a"}, ContentOnly: contentOnly})
					if len(result.Runs) != 1 {
						t.Errorf("%+v", result)
					}
					verifyAll(t, s)
				})
			}
		}
	}
}
