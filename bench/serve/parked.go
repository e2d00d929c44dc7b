package main

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"github.com/toolcrib/toolcrib/store/sqlite"
)

const (
	woken  = 200 // of the parked runs
	atOnce = 16  // runs that are begun at a time
)

// manyParked parks many runs, looks at the memory of the server before and after, and at the
// next start, and wakes some of them.
func (b *bench) manyParked(ctx context.Context, dir string) error {
	s, err := b.start(ctx, dir, true)
	if err != nil {
		return err
	}
	defer func() { s.kill() }()
	parked := make([]run, b.parked)
	if err := b.answered(ctx, s, "parks", &parked[0]); err != nil {
		return err
	}
	// As many runs at a time as will park: their connections to the provider stay open for a while.
	if err := inParallel(atOnce, 10*atOnce, func(int) error { return b.answered(ctx, s, "rounds", nil) }); err != nil {
		return err
	}
	without, err := s.live(ctx)
	if err != nil {
		return err
	}
	err = inParallel(atOnce, len(parked)-1, func(i int) error { return b.answered(ctx, s, "parks", &parked[i+1]) })
	if err != nil {
		return err
	}
	with, err := s.live(ctx)
	if err != nil {
		return err
	}
	more := 100 * float64(with-without) / float64(without)
	row(fmt.Sprintf("%d parked runs, heap", b.parked), fmt.Sprintf("%+.1f %% of %.1f MiB", more, float64(without)/(1<<20)),
		"5 %")
	s.kill()
	if s, err = b.start(ctx, dir, true); err != nil {
		return err
	}
	row("  start, until it is ready", round(s.ready).String(), "2 s")
	var waits []time.Duration
	for _, one := range parked[:woken] {
		wait, err := s.wake(ctx, one)
		if err != nil {
			return err
		}
		waits = append(waits, wait)
	}
	row("  waking one", spread(waits), "p99 100 ms")
	return nil
}

// wake approves what a run waits for, and returns how long it takes until the call has its result.
func (s *server) wake(ctx context.Context, one run) (time.Duration, error) {
	if one.Pending == nil {
		return 0, fmt.Errorf("run %s does not wait", one.ID)
	}
	c, r, err := s.events(ctx, one.ID, 0)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	began := time.Now()
	body := map[string]any{"decision": "approve", "digest": one.Pending.Digest}
	if err := s.ask(ctx, "POST", "/api/approvals/"+one.Pending.ApprovalID, body, nil); err != nil {
		return 0, err
	}
	for {
		name, _, err := event(r)
		switch {
		case err != nil:
			return 0, err
		case name == "tool_result":
			return time.Since(began), nil
		}
	}
}

// manyQueued starts a server on a folder with many runs that are to continue.
func (b *bench) manyQueued(ctx context.Context, dir string) error {
	s, err := b.start(ctx, dir, true) // it makes the folder
	if err != nil {
		return err
	}
	s.kill()
	st, err := sqlite.Open(ctx, filepath.Join(dir, "data", "toolcrib.db"), sqlite.Options{})
	if err != nil {
		return err
	}
	r, err := runnerOn(st, b.model.url)
	if err == nil {
		err = inParallel(64, b.parked, func(int) error {
			_, err := r.Start(ctx, task("server", dir))
			return err
		})
	}
	if err != nil {
		return err
	}
	if err := st.Close(); err != nil {
		return err
	}
	if s, err = b.start(ctx, dir, true); err != nil {
		return err
	}
	defer s.kill()
	row(fmt.Sprintf("start with %d runs to continue, until it is ready", b.parked), round(s.ready).String(), "2 s")
	began := time.Now()
	for {
		var list struct{ Runs []run }
		if err := s.ask(ctx, "GET", "/api/runs?limit=1&status=queued,running", nil, &list); err != nil {
			return err
		}
		if len(list.Runs) == 0 {
			break
		}
		time.Sleep(200 * time.Millisecond)
	}
	took := time.Since(began)
	row("  all of them, to their end", fmt.Sprintf("%s, %.0f a second", took.Round(time.Millisecond),
		float64(b.parked)/took.Seconds()), "")
	return nil
}

// inParallel calls do with the numbers below n, so many at a time.
func inParallel(at, n int, do func(int) error) error {
	next, failed := make(chan int), make(chan error, at)
	var all sync.WaitGroup
	for range at {
		all.Go(func() {
			for i := range next {
				if err := do(i); err != nil {
					failed <- err
					return
				}
			}
		})
	}
	for i := range n {
		select {
		case next <- i:
		case err := <-failed:
			close(next)
			all.Wait()
			return err
		}
	}
	close(next)
	all.Wait()
	select {
	case err := <-failed:
		return err
	default:
		return nil
	}
}
