// Package queue says which worker takes up which run, and when. It is never the truth: the
// journal is. A queue may lose everything, since a sweep over the runs that can continue puts
// them in again; it may give a run to two workers, since the journal lets one of them append.
package queue

import (
	"context"
	"errors"
	"time"

	"github.com/toolcrib/toolcrib"
)

// Queue hands runs to workers. It is safe for use by many goroutines, and by the workers of
// several processes.
type Queue interface {
	// Put queues a run. It does nothing if the run is queued or a worker has it; put reports
	// whether it did something.
	Put(ctx context.Context, run toolcrib.RunID) (put bool, err error)
	// Take waits for a run and leases it to the caller.
	Take(ctx context.Context) (Lease, error)
	// Depth is how many runs are queued that no worker has taken.
	Depth(ctx context.Context) (int, error)
	// Close ends the queue. Leases of it can no longer be kept.
	Close()
}

// Lease is a run that a worker has. If it is not kept for the time that the queue was opened
// with, the queue gives the run to another worker.
type Lease interface {
	Run() toolcrib.RunID
	// Keep begins the time of the lease again. Without an error, the queue knows.
	Keep(ctx context.Context) error
	// Done removes the run from the queue, so that it can be put in again.
	Done(ctx context.Context) error
	// Back gives the run back, to be taken after some time.
	Back(ctx context.Context, after time.Duration) error
}

// ErrClosed says that the queue was closed.
var ErrClosed = errors.New("the queue is closed")
