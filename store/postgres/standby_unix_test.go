//go:build unix

package postgres_test

import (
	"errors"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/toolcrib/toolcrib/internal/postgrestest"
	"github.com/toolcrib/toolcrib/internal/waittest"
	"github.com/toolcrib/toolcrib/store"
	"github.com/toolcrib/toolcrib/store/postgres"
	"github.com/toolcrib/toolcrib/store/sqlite"
	"github.com/toolcrib/toolcrib/toolcribtest/storetest"
)

// A standby, which nothing can lock, is copied like any other database.
func TestMigrate_FromStandby(t *testing.T) {
	empty(t) // skips the test without PostgreSQL
	primary, err := postgrestest.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	standby, err := primary.Standby(t.Context())
	if err != nil {
		t.Fatal(errors.Join(err, primary.Stop()))
	}
	t.Cleanup(func() {
		if err := errors.Join(standby.Stop(), primary.Stop()); err != nil {
			t.Error(err)
		}
	})
	keys := filepath.Join(t.TempDir(), "keys")
	at := primary.URL("postgres").String()
	if _, err := postgres.Migrate(t.Context(), at, postgres.MigrateOptions{Keys: keys}); err != nil {
		t.Fatal(err)
	}
	filled := openAt(t, at, postgres.Options{Keys: keys})
	storetest.Fill(t, filled)
	want := shown(t, filled)
	var behind *postgres.Store
	waittest.Until(t, "the standby has all of it", func() bool {
		if behind == nil {
			if behind, err = postgres.Open(t.Context(), standby.URL("postgres").String(), postgres.Options{Keys: keys, ReadOnly: true}); err != nil {
				return false
			}
			t.Cleanup(func() { _ = behind.Close() }) // only read
		}
		head, err := behind.Head(t.Context())
		return err == nil && cmp.Equal(any(head), want["head"])
	})
	copied, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "copy", "toolcrib.db"), sqlite.Options{From: behind.Store})
	if err != nil {
		t.Fatal(err)
	}
	defer copied.Close() //nolint:errcheck // only read
	if diff := cmp.Diff(want, shown(t, store.Store(copied))); diff != "" {
		t.Errorf("copied from the standby (-want +got)\n%s", diff)
	}
}
