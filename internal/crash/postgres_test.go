//go:build unix

package crash

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/toolcrib/toolcrib/internal/postgrestest"
	"github.com/toolcrib/toolcrib/store/postgres"
)

// usePostgreSQL gives each story a database in one server of PostgreSQL, which are copies of a migrated one.
func (h *Harness) usePostgreSQL(t *testing.T) {
	t.Helper()
	server, err := postgrestest.Start(t.Context(), "max_connections=200", "shared_buffers=64MB")
	if errors.Is(err, postgrestest.ErrMissing) {
		t.Skip("SKIPPED: ", err, "; no process with PostgreSQL was killed")
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Stop(); err != nil {
			t.Error(err)
		}
	})
	keys := filepath.Join(h.Dir, "keys")
	if _, err := postgres.Migrate(t.Context(), server.URL("postgres").String(), postgres.MigrateOptions{Keys: keys}); err != nil {
		t.Fatal(err)
	}
	admin, err := pgxpool.New(t.Context(), server.URL("template1").String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(admin.Close)
	var databases atomic.Int64
	h.Database = func(ctx context.Context, dir string) (func() error, error) {
		name := fmt.Sprint("story", databases.Add(1))
		if _, err := admin.Exec(ctx, "CREATE DATABASE "+name+" TEMPLATE postgres"); err != nil {
			return nil, err
		}
		remove := func() error {
			_, err := admin.Exec(context.WithoutCancel(ctx), "DROP DATABASE "+name+" WITH (FORCE)")
			return err
		}
		text := server.URL(name).String() + "\n" + keys
		return remove, os.WriteFile(filepath.Join(dir, postgresFile), []byte(text), 0o600)
	}
}

// TestCrash_PostgreSQL plays scenarios with PostgreSQL, each without a kill, with one and with two; a few of
// them with -short.
func TestCrash_PostgreSQL(t *testing.T) {
	t.Parallel()
	h, s := harness(t), newSample(t)
	h.usePostgreSQL(t)
	var all, once, twice []Tale
	for _, sc := range Scenarios() {
		all = append(all, Tale{Scenario: sc})
	}
	s.r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	if testing.Short() {
		all = all[:5]
	}
	for _, base := range s.unkilled(h, all) {
		one := tales(base, base.Deaths(0, s.r), nil)
		once = append(once, one[s.r.IntN(len(one))])
	}
	for _, chosen := range []*[]Tale{&once, &twice} {
		err := h.PlayAll(t.Context(), *chosen, jobs, func(story *Story) bool { s.see(story, *chosen); return true })
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range s.r.Perm(len(s.late))[:min(len(s.late), len(all))] {
			twice = append(twice, s.late[i])
		}
	}
	t.Logf("%d scenarios, %d kills too late", len(all), s.missed)
}
