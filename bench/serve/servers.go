package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/toolcrib/toolcrib/bench/stat"
	"github.com/toolcrib/toolcrib/internal/postgrestest"
	"github.com/toolcrib/toolcrib/store/postgres"
	"github.com/toolcrib/toolcrib/store/sqlstore"
)

// shared is a PostgreSQL on this machine, which syncs as it does by default, with tables.
type shared struct {
	*postgrestest.Server
	address, keys, more string
	conn                *pgx.Conn
}

// newShared starts one. If from is not nil, it is copied into it.
func newShared(ctx context.Context, dir string, from *sqlstore.Store) (*shared, error) {
	server, err := postgrestest.Start(ctx, "fsync=on", "max_connections=400")
	if err != nil {
		return nil, err
	}
	d := &shared{Server: server, address: server.URL("postgres").String(), keys: filepath.Join(dir, "keys")}
	d.more = fmt.Sprintf("database: '%s'\nkeys: '%s'\n", d.address, d.keys)
	if _, err = postgres.Migrate(ctx, d.address, postgres.MigrateOptions{Keys: d.keys, From: from}); err == nil {
		d.conn, err = pgx.Connect(ctx, d.address)
	}
	if err != nil {
		return nil, errors.Join(err, server.Stop())
	}
	return d, nil
}

func (d *shared) close() { _, _ = d.conn.Close(context.Background()), d.Stop() }

// cpu returns the CPU time of all processes of the database.
func (d *shared) cpu() time.Duration {
	text, _ := os.ReadFile(filepath.Join(d.Dir(), "data", "postmaster.pid"))
	first, _, _ := strings.Cut(string(text), "\n")
	main, _ := strconv.Atoi(first)
	_, own, ended := cpuOf(main)
	sum := own + ended
	all, _ := filepath.Glob("/proc/[0-9]*")
	for _, one := range all {
		pid, _ := strconv.Atoi(filepath.Base(one))
		if parent, own, _ := cpuOf(pid); parent == main {
			sum += own
		}
	}
	return sum
}

// watched is an observation of the write lock.
type watched struct {
	transactions int
	held         float64 // share of the time in which a transaction had it
	connections  int
	long         time.Duration
}

// each is how long a transaction has the lock.
func (w *watched) each() time.Duration {
	return time.Duration(w.held * float64(w.long) / float64(max(w.transactions, 1)))
}

// watch looks at the lock for writing until done is closed.
func (d *shared) watch(ctx context.Context, done <-chan struct{}) (w watched, err error) {
	first, looks, held, began := 0, 0, 0, time.Now()
	for {
		var content, n int
		err := d.conn.QueryRow(ctx, `SELECT (SELECT content FROM toolcrib.state),
			(SELECT count(DISTINCT pid) FROM pg_locks WHERE relation = 'toolcrib.state'::regclass AND mode = 'RowExclusiveLock'),
			(SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend')`).Scan(&content, &n, &w.connections)
		if err != nil {
			return w, err
		}
		if looks++; looks == 1 {
			first = content
		}
		if n > 0 {
			held++
		}
		w.transactions, w.held, w.long = content-first, float64(held)/float64(looks), time.Since(began)
		select {
		case <-done:
			return w, nil
		case <-time.After(3 * time.Millisecond):
		}
	}
}

// several starts n servers on one database; the token of the first is that of all.
func (b *bench) several(
	ctx context.Context, dir string, d *shared, n int, collected bool,
) (all []*server, stop func(), err error) {
	stop = func() {
		for _, s := range all {
			s.kill()
		}
	}
	for i := range n {
		s, err := b.startOn(ctx, dir, fmt.Sprint("server-", i), d.more, collected)
		if err != nil {
			return all, stop, err
		}
		all = append(all, s)
		s.token = all[0].token
	}
	return all, stop, nil
}

// manyServers asks 1, 2 and 4 servers for runs at a fixed rate for each.
func (b *bench) manyServers(ctx context.Context, dir string) error {
	for _, n := range []int{1, 2, 4} {
		if err := b.asked(ctx, filepath.Join(dir, fmt.Sprint(n)), n); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) asked(ctx context.Context, dir string, n int) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	d, err := newShared(ctx, dir, nil)
	if err != nil {
		return err
	}
	defer d.close()
	all, stop, err := b.several(ctx, dir, d, n, false)
	defer stop()
	if err != nil {
		return err
	}
	for _, s := range all {
		if err := b.answered(ctx, s, "slow", nil); err != nil {
			return err
		}
	}
	if err := b.resting(ctx, d, all); err != nil {
		return err
	}
	done, seen := make(chan struct{}), make(chan watched, 1)
	go func() {
		w, _ := d.watch(ctx, done)
		seen <- w
	}()
	servers, database, began := sum(all), d.cpu(), time.Now()
	var running sync.WaitGroup
	var mu sync.Mutex
	var took []time.Duration
	var failed error
	tick := time.NewTicker(time.Second / time.Duration(n*b.rate))
	defer tick.Stop()
	for i := 0; time.Since(began) < b.long; i++ {
		<-tick.C
		running.Go(func() {
			from := time.Now()
			err := b.answered(ctx, all[i%n], "slow", nil)
			mu.Lock()
			defer mu.Unlock()
			took, failed = append(took, time.Since(from)), errors.Join(failed, err)
		})
	}
	running.Wait()
	close(done)
	w, long := <-seen, time.Since(began)
	if failed != nil {
		return failed
	}
	runs := time.Duration(len(took))
	row(fmt.Sprintf("%d servers, %d runs a second asked of each", n, b.rate), fmt.Sprintf("%.1f a second; %s",
		float64(runs)/(long-time.Second).Seconds(), spread(took)), "1 s a run")
	used := sum(all) - servers + d.cpu() - database
	row("  CPU of a run", fmt.Sprintf("servers %s, database %s; %.0f %% of 2 cores", round((sum(all)-servers)/runs),
		round((d.cpu()-database)/runs), 50*float64(used)/float64(long)), "60 %")
	row("  the lock for writing", fmt.Sprintf("held %.0f %%, %s a transaction, %.1f transactions a run", 100*w.held,
		round(w.each()), float64(w.transactions)/float64(runs)), "")
	row("  connections to the database", fmt.Sprint(w.connections-1), "")
	return nil
}

func sum(all []*server) (cpu time.Duration) {
	for _, s := range all {
		cpu += s.cpu()
	}
	return cpu
}

// resting measures servers that have nothing to do.
func (b *bench) resting(ctx context.Context, d *shared, all []*server) error {
	done := make(chan struct{})
	time.Sleep(3 * time.Second)
	database, servers, began := d.cpu(), sum(all), time.Now()
	time.AfterFunc(8*time.Second, func() { close(done) })
	<-done
	long := time.Since(began)
	var content int
	if err := d.conn.QueryRow(ctx, "SELECT content FROM toolcrib.state").Scan(&content); err != nil {
		return err
	}
	row(fmt.Sprintf("%d servers without work", len(all)), fmt.Sprintf("CPU %.2f %%, of the database %.2f %%",
		100*float64(sum(all)-servers)/float64(long), 100*float64(d.cpu()-database)/float64(long)), "")
	return nil
}

// lostServers measures how long it takes until another server continues the run of one that was killed, or that
// is stopped, as it looks from another machine; and what parked runs cost.
func (b *bench) lostServers(ctx context.Context, dir string) error {
	d, err := newShared(ctx, dir, nil)
	if err != nil {
		return err
	}
	defer d.close()
	for _, how := range []syscall.Signal{syscall.SIGKILL, syscall.SIGSTOP} {
		var waits []time.Duration
		for range b.turns {
			wait, err := b.lost(ctx, dir, d, how)
			if err != nil {
				return err
			}
			waits = append(waits, wait)
		}
		name := map[syscall.Signal]string{syscall.SIGKILL: "killed", syscall.SIGSTOP: "stopped"}[how]
		row("run of a server that is "+name+", continued after", fmt.Sprintf("p50 %s, most %s", round(stat.Median(waits)),
			round(stat.Quantile(waits, 100))), "5 s: lease + 1 s")
	}
	all, stop, err := b.several(ctx, dir, d, 2, true)
	defer stop()
	if err != nil {
		return err
	}
	err = inParallel(atOnce, 10*atOnce, func(i int) error { return b.answered(ctx, all[i%2], "rounds", nil) })
	if err != nil {
		return err
	}
	var without, with [2]int64
	for i, s := range all {
		if without[i], err = s.live(ctx); err != nil {
			return err
		}
	}
	err = inParallel(atOnce, b.parked, func(i int) error { return b.answered(ctx, all[i%2], "parks", nil) })
	if err != nil {
		return err
	}
	for i, s := range all {
		if with[i], err = s.live(ctx); err != nil {
			return err
		}
		more := 100 * float64(with[i]-without[i]) / float64(without[i])
		row(fmt.Sprintf("%d parked runs, heap of server %d of 2", b.parked, i+1),
			fmt.Sprintf("%+.1f %% of %.1f MiB", more, float64(without[i])/(1<<20)), "5 %")
	}
	return nil
}

// lost ends the server of a run that waits for its model, and returns how long it takes until another one asks.
func (b *bench) lost(ctx context.Context, dir string, d *shared, how syscall.Signal) (time.Duration, error) {
	all, stop, err := b.several(ctx, dir, d, 2, false)
	defer stop()
	if err != nil {
		return 0, err
	}
	var r run
	body := map[string]any{"agent": "waits", "input": "Begin.", "detach": true}
	if err := all[0].ask(ctx, "POST", "/api/runs", body, &r); err != nil {
		return 0, err
	}
	<-b.model.begun
	began := time.Now()
	if err := all[0].cmd.Process.Signal(how); err != nil {
		return 0, err
	}
	select {
	case <-b.model.begun:
	case <-time.After(time.Minute):
		return 0, errors.New("no server continues the run")
	}
	took := time.Since(began)
	return took, all[1].ask(ctx, "POST", "/api/runs/"+r.ID+"/cancel", nil, nil)
}
