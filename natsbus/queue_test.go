package natsbus_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/internal/natstest"
	"github.com/toolcrib/toolcrib/internal/waittest"
	"github.com/toolcrib/toolcrib/natsbus"
	"github.com/toolcrib/toolcrib/queue"
)

// queues runs a test with the queue of one process, and with that of a cluster.
func queues(t *testing.T, test func(t *testing.T, q queue.Queue)) {
	t.Run("process", func(t *testing.T) { test(t, open(t, "", "")) })
	t.Run("cluster", func(t *testing.T) { test(t, open(t, natstest.Start(t, 3, nil).URL(), "a")) })
}

func put(t *testing.T, q queue.Queue, run toolcrib.RunID, want bool) {
	t.Helper()
	if got, err := q.Put(t.Context(), run); got != want || err != nil {
		t.Fatalf("%s was put in: %v, error %v, want %v", run, got, err, want)
	}
}

// take waits for a run for a time. It returns "" if none came.
func take(t *testing.T, q queue.Queue, most time.Duration) toolcrib.RunID {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), most)
	defer cancel()
	run, err := q.Take(ctx)
	if err != nil && !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
	return run
}

func taken(t *testing.T, q queue.Queue, want toolcrib.RunID) {
	t.Helper()
	if run := take(t, q, 2*time.Minute); run != want {
		t.Fatalf("took %q, want %s", run, want)
	}
}

// depth waits until so many runs wait in the queue: the stream counts one a moment after it was put.
func depth(t *testing.T, q queue.Queue, want int) {
	t.Helper()
	waittest.Until(t, fmt.Sprintf("%d runs wait in the queue", want), func() bool {
		got, err := q.Depth(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return got == want
	})
}

// A run is in the queue once, until a worker takes it. Then it can be queued again.
func TestQueue_Once(t *testing.T) {
	queues(t, func(t *testing.T, q queue.Queue) {
		put(t, q, "run_A", true)
		put(t, q, "run_A", false)
		put(t, q, "run_B", true)
		depth(t, q, 2)
		taken(t, q, "run_A")
		depth(t, q, 1)
		waittest.Until(t, "the cluster has removed the run", func() bool {
			put, err := q.Put(t.Context(), "run_A")
			if err != nil {
				t.Fatal(err)
			}
			return put
		})
		taken(t, q, "run_B")
		taken(t, q, "run_A")
		if run := take(t, q, time.Second); run != "" {
			t.Errorf("took %s, which was taken before", run)
		}
	})
}

// Each run is given to one of several workers that wait.
func TestQueue_ManyWorkers(t *testing.T) {
	queues(t, func(t *testing.T, q queue.Queue) {
		const runs = 100
		got := make(chan toolcrib.RunID)
		ctx, cancel := context.WithCancel(t.Context())
		var workers sync.WaitGroup
		for range 8 {
			workers.Go(func() {
				for {
					run, err := q.Take(ctx)
					if err != nil {
						return
					}
					got <- run
				}
			})
		}
		for i := range runs {
			put(t, q, toolcrib.RunID(fmt.Sprint("run_", i)), true)
		}
		seen := map[toolcrib.RunID]bool{}
		for range runs {
			run := <-got
			if seen[run] {
				t.Errorf("%s was given to two", run)
			}
			seen[run] = true
		}
		cancel()
		workers.Wait()
	})
}

// listened is a context that reports when something waits for its end.
type listened struct {
	context.Context
	once  sync.Once
	heard chan struct{}
}

func (c *listened) Done() <-chan struct{} {
	c.once.Do(func() { close(c.heard) })
	return c.Context.Done()
}

// A queue that is closed says so, to those who wait too, and leaves nothing behind.
func TestQueue_Closed(t *testing.T) {
	here := goleak.IgnoreCurrent()
	q, err := natsbus.Open(t.Context(), natsbus.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	waiting := make(chan error)
	ctx := &listened{Context: context.Background(), heard: make(chan struct{})}
	go func() {
		_, err := q.Take(ctx)
		waiting <- err
	}()
	<-ctx.heard
	q.Close()
	_, put := q.Put(t.Context(), "run_B")
	_, depth := q.Depth(t.Context())
	for what, err := range map[string]error{
		"Take": <-waiting, "Put": put, "Depth": depth,
	} {
		if !errors.Is(err, queue.ErrClosed) {
			t.Errorf("%s: %v", what, err)
		}
	}
	goleak.VerifyNone(t, here)
}

func TestQueue_InvalidIDs(t *testing.T) {
	queues(t, func(t *testing.T, q queue.Queue) {
		for _, id := range []toolcrib.RunID{"", "*", ">", "a.b", "run A", "run_\n", "run_ä"} {
			if ok, err := q.Put(t.Context(), id); ok || toolcrib.CodeOf(err) != toolcrib.CodeBadRequest {
				t.Errorf("%q: %v, %v", id, ok, err)
			}
		}
		if _, err := natsbus.Open(t.Context(), natsbus.Options{Dir: "/dev/null/x"}); err == nil {
			t.Error("a queue was opened in a folder that cannot be made")
		}
	})
}

// What it costs: the start, and a run that is put in and taken.
func BenchmarkQueue(b *testing.B) {
	start := time.Now()
	q, err := natsbus.Open(b.Context(), natsbus.Options{Dir: b.TempDir()})
	if err != nil {
		b.Fatal(err)
	}
	defer q.Close()
	b.ReportMetric(float64(time.Since(start).Milliseconds()), "start-ms")
	var waits []time.Duration
	for i := 0; b.Loop(); i++ {
		at := time.Now()
		if _, err := q.Put(b.Context(), toolcrib.RunID(fmt.Sprint("run_", i))); err != nil {
			b.Fatal(err)
		}
		if _, err := q.Take(b.Context()); err != nil {
			b.Fatal(err)
		}
		waits = append(waits, time.Since(at))
	}
	slices.Sort(waits)
	b.ReportMetric(float64(waits[len(waits)/2].Microseconds()), "pick-up-µs")
}
