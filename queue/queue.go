// Package queue hands runs that can continue to workers, and wakes the workers. It is only a hint: what a
// run is to do is in its journal, and who drives it is said by its lease. A queue may lose everything, since
// a sweep over the runs that can continue puts them in again, and it may give a run to several workers, since
// one of them gets the lease.
package queue

import (
	"context"
	"errors"

	"github.com/toolcrib/toolcrib"
)

// Queue hands runs to workers. It is safe for concurrent use by multiple goroutines, and by the workers of
// several processes.
type Queue interface {
	// Put queues a run, unless it is queued already. put reports whether it did.
	Put(ctx context.Context, run toolcrib.RunID) (put bool, err error)
	// Take waits for a run and removes it from the queue.
	Take(ctx context.Context) (toolcrib.RunID, error)
	// Depth returns the number of queued runs.
	Depth(ctx context.Context) (int, error)
	// Close closes the queue.
	Close()
}

// ErrClosed reports that the queue was closed.
var ErrClosed = errors.New("the queue is closed")
