//go:build unix

package postgres_test

import (
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/toolcrib/toolcrib/internal/postgrestest"
	"github.com/toolcrib/toolcrib/store"
	"github.com/toolcrib/toolcrib/store/postgres"
	"github.com/toolcrib/toolcrib/toolcribtest/storetest"
)

var (
	server    *postgrestest.Server
	databases atomic.Int64
)

func TestMain(m *testing.M) { os.Exit(postgrestest.Main(m, &server)) }

// admin executes statements as the administrator.
func admin(t testing.TB, name string, statements ...string) {
	t.Helper()
	c, err := pgx.Connect(t.Context(), server.URL(name).String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(t.Context()) //nolint:errcheck // every statement was answered
	for _, s := range statements {
		if _, err := c.Exec(t.Context(), s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
}

// empty returns the name of a new database without tables.
func empty(t testing.TB) string {
	t.Helper()
	if server == nil {
		t.Skip("SKIPPED: there is no PostgreSQL on this machine (initdb); the store was not tried against a real server")
	}
	name := fmt.Sprintf("db%d", databases.Add(1))
	admin(t, "postgres", "CREATE DATABASE "+name)
	return name
}

// migrated returns a new database with tables: its address and its key file.
func migrated(t testing.TB) (name, address, keys string) {
	t.Helper()
	name = empty(t)
	address, keys = server.URL(name).String(), filepath.Join(t.TempDir(), "keys")
	if _, err := postgres.Migrate(t.Context(), address, postgres.MigrateOptions{Keys: keys}); err != nil {
		t.Fatal(err)
	}
	return name, address, keys
}

func openAt(t testing.TB, address string, o postgres.Options) *postgres.Store {
	t.Helper()
	s, err := postgres.Open(t.Context(), address, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// TestStore is the suite of all stores.
func TestStore(t *testing.T) {
	storetest.Run(t, func(t *testing.T, now func() time.Time) func() store.Store {
		_, address, keys := migrated(t)
		return func() store.Store {
			return openAt(t, address, postgres.Options{Keys: keys, Now: now, Owner: store.Owner{
				ID: rand.Text(), Host: "here", Machine: "this", PID: 7, Started: 9, Lease: time.Minute,
			}})
		}
	})
}
