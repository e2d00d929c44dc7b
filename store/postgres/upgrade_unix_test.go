//go:build unix

package postgres_test

import (
	"crypto/rand"
	"errors"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/toolcrib/toolcrib/internal/waittest"
	"github.com/toolcrib/toolcrib/store"
	"github.com/toolcrib/toolcrib/store/postgres"
	"github.com/toolcrib/toolcrib/store/sqlstore"
	"github.com/toolcrib/toolcrib/toolcribtest/storetest"
)

// upgrading is a new database, which stores open with a role that does not own the tables.
func upgrading(t *testing.T) storetest.Upgrading {
	name := empty(t)
	admin(t, "postgres", "CREATE ROLE crib_"+name+" LOGIN PASSWORD 'x'")
	at := server.URL(name)
	at.User = url.UserPassword("crib_"+name, "x")
	keys := filepath.Join(t.TempDir(), "keys")
	migrate := func(steps sqlstore.Steps) error {
		_, err := postgres.Migrate(t.Context(), server.URL(name).String(), postgres.MigrateOptions{Keys: keys, For: at.String()}.With(steps))
		return err
	}
	if err := migrate(sqlstore.Known()); err != nil {
		t.Fatal(err)
	}
	return storetest.Upgrading{
		Open: func(steps sqlstore.Steps) (store.Store, error) {
			o := postgres.Options{Keys: keys, Owner: store.Owner{ID: rand.Text(), Host: "here", Machine: "this", PID: 7, Started: 9, Lease: time.Minute}}
			s, err := postgres.Open(t.Context(), at.String(), o.With(steps))
			if err != nil {
				return nil, err
			}
			return s, nil
		},
		Migrate: migrate,
		Change: func(statement string) {
			admin(t, name, strings.NewReplacer("UPDATE state", "UPDATE toolcrib.state", "INDEX runs", "INDEX toolcrib.runs").Replace(statement))
		},
		Asks: true,
	}
}

func TestUpgrade(t *testing.T) { storetest.RunUpgrades(t, upgrading) }

// A migration that is ended while it changes the schema leaves it as it was. Until then it waits for a reader no longer
// than servers wait for it.
func TestUpgrade_Killed(t *testing.T) {
	name, address, keys := migrated(t)
	old := openAt(t, address, postgres.Options{Keys: keys})
	next := append(sqlstore.Known(), storetest.NextStep(sqlstore.Baseline))
	migrate := func() error {
		_, err := postgres.Migrate(t.Context(), address, postgres.MigrateOptions{Keys: keys}.With(next))
		return err
	}
	c, err := pgx.Connect(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(t.Context()) //nolint:errcheck // every statement was answered
	tx, err := c.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), "SELECT count(*) FROM toolcrib.runs"); err != nil {
		t.Fatal(err)
	}
	looks, err := pgx.Connect(t.Context(), address) // a transaction sees the same activity again
	if err != nil {
		t.Fatal(err)
	}
	defer looks.Close(t.Context()) //nolint:errcheck // every statement was answered
	ended := make(chan error)
	go func() { ended <- migrate() }()
	waittest.Until(t, "the migration waits in its step", func() bool {
		killed := 0
		err := looks.QueryRow(t.Context(), `SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
			WHERE datname = $1 AND wait_event_type = 'Lock' AND query LIKE '%ADD COLUMN%'`, name).Scan(&killed)
		return err == nil && killed == 1
	})
	if err := <-ended; !errors.Is(err, store.ErrUnreachable) {
		t.Errorf("ended: %v", err)
	}
	if err := migrate(); !errors.Is(err, store.ErrLocked) {
		t.Errorf("while the table is read: %v", err)
	}
	if err := errors.Join(old.Append(t.Context(), "run_a", 0, numbered(0, true)...), tx.Rollback(t.Context()), migrate()); err != nil {
		t.Fatal(err)
	}
	if err := old.Append(t.Context(), "run_a", 1, numbered(1, true)...); err != nil {
		t.Error(err)
	}
	if _, err := old.VerifyAll(t.Context()); err != nil {
		t.Error(err)
	}
}
