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

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/internal/waittest"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/store"
	"github.com/toolcrib/toolcrib/store/postgres"
	"github.com/toolcrib/toolcrib/store/sqlstore"
	"github.com/toolcrib/toolcrib/toolcribtest/journaltest"
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

// A payload that is damaged, before or after the step that indexes it, prevents neither the step nor that content is
// removed, and is reported.
func TestUpgrade_Damaged(t *testing.T) {
	name, keys := empty(t), filepath.Join(t.TempDir(), "keys")
	address := server.URL(name).String()
	migrate := func(steps sqlstore.Steps) {
		t.Helper()
		if _, err := postgres.Migrate(t.Context(), address, postgres.MigrateOptions{Keys: keys}.With(steps)); err != nil {
			t.Fatal(err)
		}
	}
	migrate(sqlstore.Known()[:1])
	earlier, err := postgres.Open(t.Context(), address, postgres.Options{Keys: keys}.With(sqlstore.Known()[:1]))
	if err != nil {
		t.Fatal(err)
	}
	for _, run := range []toolcrib.RunID{"run_a", "run_b"} {
		err = errors.Join(err, earlier.Append(t.Context(), run, 0, journaltest.Events(
			&journal.RunStarted{Agent: toolcrib.Agent{Name: "default", Model: "small"}, Principal: toolcrib.Principal{User: "ann"}},
			&journal.ConfirmationResolved{ApprovalID: "apr_1", Decision: journal.DecisionApprove, By: "bob"},
			&journal.Done{Status: toolcrib.StatusCompleted, StopReason: toolcrib.StopCompleted, Content: "ready"})...))
	}
	if err = errors.Join(err, earlier.Close()); err != nil {
		t.Fatal(err)
	}
	damage := func(run string) {
		t.Helper()
		admin(t, name, `UPDATE toolcrib.events SET payload = replace(payload, '{"approval_id":', '["approval_id":')
			WHERE kind = 'confirmation_resolved' AND key >> 32 = (SELECT num FROM toolcrib.runs WHERE id = '`+run+`')`)
	}
	damage("run_a")
	migrate(sqlstore.Known())
	damage("run_b")
	s := openAt(t, address, postgres.Options{Keys: keys})
	for run, contentOnly := range map[toolcrib.RunID]bool{"run_a": true, "run_b": false} {
		var broken *store.ChainError
		if _, err := s.Verify(t.Context(), run); !errors.As(err, &broken) || broken.Seq != 2 {
			t.Errorf("verified %s: %v", run, err)
		}
		if _, err := s.Audit(t.Context(), store.AuditFilter{User: "eve"}); err != nil {
			t.Error(err)
		}
		result, err := s.Prune(t.Context(), store.PruneOptions{Runs: []toolcrib.RunID{run}, ContentOnly: contentOnly, By: "ann"})
		if err != nil || len(result.Runs) != 1 {
			t.Errorf("%s: %+v, %v", run, result, err)
		}
	}
	if _, err := s.VerifyAll(t.Context()); err != nil {
		t.Error(err)
	}
}

// Each step is kept once it is made, also if a later one fails: servers do not wait for all of them.
func TestUpgrade_Steps(t *testing.T) {
	name, address, keys := migrated(t)
	s := openAt(t, address, postgres.Options{Keys: keys})
	known := sqlstore.Known()
	bad := storetest.NextStep(sqlstore.Baseline)
	bad.PostgreSQL = "DROP TABLE toolcrib.missing"
	steps := append(known, storetest.NextStep(sqlstore.Baseline), bad)
	_, err := postgres.Migrate(t.Context(), address, postgres.MigrateOptions{Keys: keys}.With(steps))
	if err == nil {
		t.Error("a step was made that fails")
	}
	admin(t, name, "SELECT note FROM toolcrib.runs")
	if err := s.Append(t.Context(), "run_a", 0, numbered(0, true)...); err != nil {
		t.Error(err)
	}
	if _, err := s.VerifyAll(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := postgres.Migrate(t.Context(), address, postgres.MigrateOptions{Keys: keys}.With(steps[:len(known)+1])); err != nil {
		t.Error(err)
	}
}
