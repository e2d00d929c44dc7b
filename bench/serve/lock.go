package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/bench/stat"
	"github.com/toolcrib/toolcrib/store/postgres"
)

// lock measures how long a transaction has the lock for writing, alone and with many appends, and simulates with
// that what many servers would need.
func (b *bench) lock(ctx context.Context, dir string) error {
	var appends, each [2]float64 // of a transaction; its time in seconds
	for i, at := range []int{1, 64} {
		w, n, err := b.writing(ctx, fmt.Sprint(dir, "-", at), at)
		if err != nil {
			return err
		}
		appends[i], each[i] = float64(n)/float64(w.transactions), w.each().Seconds()
		row(fmt.Sprintf("%d runs at once, nothing but appends", at), fmt.Sprintf("%.0f appends a second, %.1f a transaction",
			float64(n)/w.long.Seconds(), appends[i]), "")
		row("  the lock for writing", fmt.Sprintf("held %.0f %%, %s a transaction", 100*w.held, round(w.each())), "")
	}
	m := lockModel{more: (each[1] - each[0]) / (appends[1] - appends[0])}
	m.base = max(each[0]-appends[0]*m.more, 0)
	fmt.Printf("  so a transaction has it for %.2f ms + %.3f ms an append: %.0f appends a second alone, %.0f at most\n",
		1000*m.base, 1000*m.more, 1/(m.base+m.more), 128/(m.base+128*m.more))
	m.table()
	return nil
}

// writing appends whole runs for a while.
func (b *bench) writing(ctx context.Context, dir string, at int) (w watched, appends int, err error) {
	d, err := newShared(ctx, dir, nil)
	if err != nil {
		return w, 0, err
	}
	defer d.close()
	s, err := postgres.Open(ctx, d.address, postgres.Options{Keys: d.keys})
	if err != nil {
		return w, 0, err
	}
	defer s.Close()
	const enough = 3000
	if b.stored == 0 {
		b.stored = 1
	}
	done, seen := make(chan struct{}), make(chan watched, 1)
	go func() {
		w, _ := d.watch(ctx, done)
		seen <- w
	}()
	steps := len(b.story(0, time.Now()))
	err = inParallel(at, max(enough/steps, at), func(i int) error {
		for k, e := range b.story(i, time.Now()) {
			if err := s.Append(ctx, runName(i), toolcrib.Seq(k), e); err != nil {
				return err
			}
		}
		return nil
	})
	close(done)
	return <-seen, max(enough/steps, at) * steps, err
}

// lockModel is the lock for writing of one database: transactions of all servers follow one another, and each
// carries what its server has to append at that moment.
type lockModel struct{ base, more float64 } // seconds of a transaction, and of each append in it

// Of a run whose model takes ten seconds for a reply: appends in a round, and the time of a round.
const (
	roundAppends = 2.6
	roundSeconds = 10
	groupOf      = 128 // appends that a transaction carries at most
)

// table prints what becomes of appends with many servers.
func (m lockModel) table() {
	fmt.Printf("\n%8s %14s %12s %10s %10s %10s   (replies of %d s)\n", "servers", "runs on each", "appends/s", "lock held",
		"wait p50", "wait p99", roundSeconds)
	for _, servers := range []int{1, 4, 10, 100, 1000} {
		for _, runs := range []int{10, 100, 1000} {
			rate := float64(servers*runs) * roundAppends / roundSeconds
			held, waits := m.simulate(servers, rate, 20000)
			wait := fmt.Sprintf("%10s %10s", round(stat.Median(waits)), round(stat.Quantile(waits, 99)))
			if most := groupOf / (m.base + groupOf*m.more); rate >= most {
				wait = fmt.Sprintf("too much: %.1f databases", rate/most)
			}
			fmt.Printf("%8d %14d %12.0f %9.0f%% %s\n", servers, runs, rate, 100*held, wait)
		}
	}
}

// simulate returns the share of the time in which the lock is held, and how long appends take.
func (m lockModel) simulate(servers int, rate float64, n int) (held float64, waits []time.Duration) {
	r := rand.New(rand.NewPCG(1, 2))
	pending := make([][]float64, servers) // when each append was asked for
	var queue []int                       // servers that wait for the lock
	now, next, busy := 0.0, r.ExpFloat64()/rate, 0.0
	arrive := func() {
		at := r.IntN(servers)
		if pending[at] = append(pending[at], next); len(pending[at]) == 1 && !slices.Contains(queue, at) {
			queue = append(queue, at)
		}
		next += r.ExpFloat64() / rate
	}
	for len(waits) < n {
		if len(queue) == 0 {
			now = next
			arrive()
		}
		at := queue[0]
		queue = queue[1:]
		group := pending[at][:min(len(pending[at]), groupOf)]
		pending[at] = pending[at][len(group):]
		long := m.base + float64(len(group))*m.more
		now, busy = now+long, busy+long
		for _, asked := range group {
			waits = append(waits, time.Duration((now-asked)*float64(time.Second)))
		}
		for next <= now && len(waits) < n {
			arrive()
		}
		if len(pending[at]) > 0 && !slices.Contains(queue, at) {
			queue = append(queue, at)
		}
	}
	return busy / now, waits[n/2:]
}
