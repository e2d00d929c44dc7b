package worker_test

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/queue"
	"github.com/toolcrib/toolcrib/store"
)

// unread is a store from which no run can be read while down is set.
type unread struct {
	store.Store
	down atomic.Bool
}

func (s *unread) Run(ctx context.Context, run toolcrib.RunID) (store.RunRecord, error) {
	if s.down.Load() {
		return store.RunRecord{}, &store.Error{Kind: store.ErrUnavailable}
	}
	return s.Store.Run(ctx, run)
}

// A request to continue a run that cannot be read gets the error. It holds neither a place nor the lease.
func TestPool_RunCannotBeRead(t *testing.T) {
	h := newHouse(t, "")
	var s *unread
	h.wrap = func(inner store.Store) store.Store { s = &unread{Store: inner}; return s }
	q := &forgetful{}
	q.forget.Store(true)
	h.s, h.pool = h.open(time.Minute, func(inner queue.Queue) queue.Queue { q.Queue = inner; return q })
	run := h.queue("default").ID()
	d, err := h.pool.Reserve(run, "")
	if err != nil {
		t.Fatal(err)
	}
	s.down.Store(true)
	if err := d.Continue(t.Context(), ann, "", nil); toolcrib.CodeOf(err) != toolcrib.CodeOf(&store.Error{Kind: store.ErrUnavailable}) || err == nil {
		t.Errorf("continued: %v", err)
	}
	s.down.Store(false)
	if drives, runs, _, _ := h.pool.Held(); drives+runs != 0 {
		t.Errorf("the pool holds %d drives, %d runs", drives, runs)
	}
	q.forget.Store(false)
	h.becomes(run, toolcrib.StatusCompleted)
}

// A cancel that another one overtakes returns the cancelled run.
func TestPool_CancelledTwice(t *testing.T) {
	h := poolOn(t, "", time.Minute, nil)
	d := h.start("asks")
	h.becomes(d.ID(), toolcrib.StatusWaitingForApproval)
	<-d.Over()
	overtaken := 0
	h.s.Env.Observe = func(j toolcrib.Journal) toolcrib.Journal {
		return &heard{Journal: j, hear: func(run toolcrib.RunID, events []toolcrib.Event) error {
			if overtaken++; overtaken > 1 {
				return nil
			}
			end := &journal.Error{Status: toolcrib.StatusCancelled, Code: "cancelled", StopReason: toolcrib.StopCancelled}
			events = append(slices.Clone(events), toolcrib.Event{Time: time.Now(), Body: end}) // as another process does
			return h.s.Env.Store.Append(t.Context(), run, h.record(run).LastSeq, events...)
		}}
	}
	run, err := h.pool.Cancel(t.Context(), ann, string(d.ID()))
	if err != nil || run.Status != toolcrib.StatusCancelled || overtaken == 0 {
		t.Errorf("%s, %v, overtaken %d times", run.Status, err, overtaken)
	}
}
