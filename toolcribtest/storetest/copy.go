package storetest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/store"
	"github.com/toolcrib/toolcrib/store/sqlstore"
)

// target is a database into which nothing is copied.
type target struct {
	sqlstore.Execer
	during func()
}

func (c *target) Each(_ context.Context, _ string, _ []any, do func(sqlstore.Scan) error) error {
	err := do(func(dest ...any) error {
		*dest[0].(*int) = sqlstore.Baseline + len(sqlstore.Known())
		return nil
	})
	if errors.Is(err, sqlstore.ErrEnough) {
		err = nil
	}
	return err
}

func (c *target) Exec(context.Context, string, ...any) (int64, error) {
	if c.during != nil {
		c.during()
		c.during = nil
	}
	return 0, nil
}

// CopiedStill tests that another store of the same database writes nothing while from is copied, and that from is
// not copied while the other one has a lease. other gives up a write early.
func CopiedStill(t *testing.T, from *sqlstore.Store, other store.Store) {
	t.Helper()
	run := toolcrib.RunID("run_copied")
	must(t, other.Append(t.Context(), run, 0, numbered(0)...))
	must(t, other.EndLeases(t.Context(), take(t, other, run, time.Hour).Owner.ID))
	looked := false
	must(t, from.CopyTo(t.Context(), &target{during: func() {
		looked = true
		if err := other.Append(t.Context(), run, 1, numbered(1)...); !errors.Is(err, store.ErrLocked) {
			t.Errorf("appended meanwhile: %v", err)
		}
	}}))
	if !looked {
		t.Error("nothing was copied")
	}
	must(t, other.Append(t.Context(), run, 1, numbered(1)...))
	take(t, other, run, time.Hour)
	if err := from.CopyTo(t.Context(), &target{}); toolcrib.CodeOf(err) != toolcrib.CodeConflict {
		t.Errorf("copied while a process works: %v", err)
	}
}
