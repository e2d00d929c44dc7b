//go:build unix

package worker_test

import (
	"context"
	"errors"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/internal/config"
	"github.com/toolcrib/toolcrib/internal/postgrestest"
	"github.com/toolcrib/toolcrib/internal/waittest"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/service"
	"github.com/toolcrib/toolcrib/service/env"
	"github.com/toolcrib/toolcrib/store/postgres"
)

// onPostgreSQL has a data folder use a PostgreSQL of its own.
func (h *poolHouse) onPostgreSQL() *postgrestest.Server {
	h.t.Helper()
	database, err := postgrestest.Start(h.t.Context())
	if errors.Is(err, postgrestest.ErrMissing) {
		h.t.Skip("SKIPPED: ", err, "; servers with one PostgreSQL were not tried")
	}
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() {
		if err := database.Stop(); err != nil {
			h.t.Error(err)
		}
	})
	address := database.URL("postgres").String()
	keys := filepath.Join(h.dir, "data", env.KeysName)
	if _, err := postgres.Migrate(h.t.Context(), address, postgres.MigrateOptions{Keys: keys}); err != nil {
		h.t.Fatal(err)
	}
	h.more += "database: '" + address + "'\n"
	return database
}

// command opens the folder like a process of the command line.
func (h *poolHouse) command() *service.Service {
	h.t.Helper()
	c, err := config.Load(config.Source{Path: filepath.Join(h.dir, "toolcrib.yaml"), Origin: config.OriginFlag}, nil)
	if err != nil {
		h.t.Fatal(err)
	}
	s := service.New(env.Options{
		Config: c, DataDir: filepath.Join(h.dir, "data"), Driver: "cli", NoSandbox: func() string { return "" },
	})
	if err := s.Env.Open(h.t.Context()); err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { _ = s.Close() })
	return s
}

// activity counts the runs that are driven, as their journals say.
type activity struct {
	mu        sync.Mutex
	now, most int
}

func (a *activity) observe(j toolcrib.Journal) toolcrib.Journal {
	count := func(events []toolcrib.Event, kind toolcrib.Kind, by int) {
		for _, e := range events {
			if e.Body.EventKind() == kind {
				a.mu.Lock()
				a.now += by
				a.most = max(a.most, a.now)
				a.mu.Unlock()
			}
		}
	}
	return &heard{Journal: j, hear: func(_ toolcrib.RunID, events []toolcrib.Event) error {
		count(events, journal.KindDone, -1)
		return nil
	}, then: func(_ toolcrib.RunID, events []toolcrib.Event) { count(events, journal.KindTakenUp, 1) }}
}

// The bound of a user applies to all servers of a database together. A run over it is refused, and nothing of it is
// stored; runs that could continue wait, and all end.
func TestPool_BoundsOfAllServers(t *testing.T) {
	t.Run("SQLite", func(t *testing.T) { boundsOfAll(t, newHouse(t, "server: {max_runs_per_user: 5}\n"), 2) })
	t.Run("PostgreSQL", func(t *testing.T) {
		h := newHouse(t, "server: {max_runs_per_user: 5}\n")
		h.onPostgreSQL()
		boundsOfAll(t, h, 3)
	})
}

func boundsOfAll(t *testing.T, h *poolHouse, servers int) {
	const bound, starts, left = 5, 50, 20
	h.write("slow.script", "- {text: never, delay: 10m}\n")
	var pools []*service.Pool
	var active activity
	for range servers {
		h.s, h.pool = h.open(time.Minute, nil)
		h.s.Env.Observe = active.observe
		pools = append(pools, h.pool)
	}
	cli := h.command()
	var mu sync.Mutex
	var begun []toolcrib.RunID
	var all sync.WaitGroup
	for i := range starts {
		all.Go(func() {
			d, err := pools[i%servers].Start(t.Context(), ann, h.request("slow"))
			mu.Lock()
			defer mu.Unlock()
			var refused *toolcrib.Error
			switch {
			case err == nil:
				begun = append(begun, d.ID())
			case !errors.As(err, &refused) || refused.Code != toolcrib.CodeCapacityExceeded || refused.RetryAfter == 0 ||
				err.Error() != "you have reached server.max_runs_per_user active runs; try again later":
				t.Errorf("refused with %v", err)
			}
		})
	}
	all.Wait()
	if runs, _, err := h.s.Runs(t.Context(), ann, service.RunsQuery{}); err != nil || len(runs) != bound || len(begun) != bound {
		t.Fatalf("%d runs are stored and %d have begun, want %d, error %v", len(runs), len(begun), bound, err)
	}
	for range left {
		run, err := cli.Detach(t.Context(), ann, h.request("default"))
		if err != nil {
			t.Fatal(err)
		}
		pools[0].Put(run.ID) // its worker finds that it has to wait
		begun = append(begun, run.ID)
	}
	for _, run := range begun[:bound] {
		if _, err := h.pool.Cancel(context.WithoutCancel(t.Context()), ann, string(run)); err != nil {
			t.Error(err)
		}
	}
	waittest.Until(t, "all runs end", func() bool {
		for _, run := range begun {
			if !h.record(run).Status.Ended() {
				return false
			}
		}
		return true
	})
	for _, run := range begun[bound:] {
		if rec := h.record(run); rec.Status != toolcrib.StatusCompleted {
			t.Errorf("run %s is %s", run, rec.Status)
		}
	}
	active.mu.Lock()
	defer active.mu.Unlock()
	if active.most != bound {
		t.Errorf("%d runs at a time, want %d", active.most, bound)
	}
}
