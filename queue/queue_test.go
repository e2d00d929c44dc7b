package queue_test

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
	"github.com/toolcrib/toolcrib/internal/waittest"
	"github.com/toolcrib/toolcrib/queue"
)

func open(t *testing.T, lease time.Duration) queue.Queue {
	t.Helper()
	q, err := queue.Open(t.Context(), t.TempDir(), lease)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(q.Close)
	return q
}

func put(t *testing.T, q queue.Queue, run toolcrib.RunID, want bool) {
	t.Helper()
	if got, err := q.Put(t.Context(), run); got != want || err != nil {
		t.Fatalf("%s was put in: %v, error %v, want %v", run, got, err, want)
	}
}

// take waits for a run for so long; nil = none came.
func take(t *testing.T, q queue.Queue, most time.Duration) queue.Lease {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), most)
	defer cancel()
	l, err := q.Take(ctx)
	if err != nil && !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
	return l
}

func taken(t *testing.T, q queue.Queue, want toolcrib.RunID) queue.Lease {
	t.Helper()
	l := take(t, q, 2*time.Minute)
	if l == nil || l.Run() != want {
		t.Fatalf("took %v, want %s", l, want)
	}
	return l
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

// A run is in the queue once, until its worker is done with it.
func TestQueue_Once(t *testing.T) {
	q := open(t, time.Minute)
	put(t, q, "run_A", true)
	put(t, q, "run_A", false)
	put(t, q, "run_B", true)
	depth(t, q, 2)
	l := taken(t, q, "run_A")
	depth(t, q, 1)
	put(t, q, "run_A", false)
	if err := l.Done(t.Context()); err != nil {
		t.Fatal(err)
	}
	put(t, q, "run_A", true)
	taken(t, q, "run_B")
	taken(t, q, "run_A")
	if l := take(t, q, time.Second); l != nil {
		t.Errorf("took %s, which others have", l.Run())
	}
}

// What a worker no longer keeps is another's; what it keeps, or gives back for later, is not.
func TestQueue_Lease(t *testing.T) {
	const lease = 5 * time.Second
	q := open(t, lease)
	put(t, q, "run_kept", true)
	put(t, q, "run_lost", true)
	kept := taken(t, q, "run_kept")
	taken(t, q, "run_lost")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		for ctx.Err() == nil {
			_ = kept.Keep(ctx)
			time.Sleep(lease / 10)
		}
	}()
	lost := taken(t, q, "run_lost")
	start := time.Now()
	if err := lost.Back(t.Context(), 200*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	put(t, q, "run_lost", false)
	back := taken(t, q, "run_lost")
	if after := time.Since(start); after < 100*time.Millisecond {
		t.Errorf("what was given back for later came after %v", after)
	}
	if err := back.Done(t.Context()); err != nil {
		t.Fatal(err)
	}
	if l := take(t, q, time.Second); l != nil {
		t.Errorf("%s is kept by its worker, and was given to another", l.Run())
	}
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
	q, err := queue.Open(t.Context(), t.TempDir(), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	put(t, q, "run_A", true)
	l := taken(t, q, "run_A")
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
		"Take": <-waiting, "Put": put, "Depth": depth, "Keep": l.Keep(t.Context()), "Done": l.Done(t.Context()), "Back": l.Back(t.Context(), 0),
	} {
		if !errors.Is(err, queue.ErrClosed) {
			t.Errorf("%s: %v", what, err)
		}
	}
	goleak.VerifyNone(t, here)
}

func TestQueue_InvalidIDs(t *testing.T) {
	q := open(t, time.Minute)
	for _, id := range []toolcrib.RunID{"", "*", ">", "a.b", "run A", "run_\n", "run_ä"} {
		if ok, err := q.Put(t.Context(), id); ok || toolcrib.CodeOf(err) != toolcrib.CodeBadRequest {
			t.Errorf("%q: %v, %v", id, ok, err)
		}
	}
	if _, err := queue.Open(t.Context(), "/dev/null/x", time.Minute); err == nil {
		t.Error("a queue was opened in a folder that cannot be made")
	}
}

// What it costs: the start, and a run that is put in, taken, and done.
func BenchmarkQueue(b *testing.B) {
	start := time.Now()
	q, err := queue.Open(b.Context(), b.TempDir(), time.Minute)
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
		l, err := q.Take(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		waits = append(waits, time.Since(at))
		if err := l.Done(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
	slices.Sort(waits)
	b.ReportMetric(float64(waits[len(waits)/2].Microseconds()), "pick-up-µs")
}
