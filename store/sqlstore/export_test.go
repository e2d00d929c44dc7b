package sqlstore

import (
	"context"
	"runtime"
	"sync"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/api"
	"github.com/toolcrib/toolcrib/store"
)

type (
	Job = job
	Tx  = tx
	Row = row
)

const HeadsKept = headsKept

func NewJob(barrier bool, do func(*tx) error) *job { return &job{barrier: barrier, do: do} }

func Reject(err error) error { return reject(err) }

func (t *tx) Exec(query string, args ...any) error { return t.later(query, args...) }

func (t *tx) Append(run toolcrib.RunID, after toolcrib.Seq, rows []row) error {
	return t.append(run, after, rows)
}

func (s *Store) Write(ctx context.Context, j *job) error { return s.write(ctx, j) }

func (s *Store) Encode(after toolcrib.Seq, events []toolcrib.Event) ([]row, error) {
	rows, _, err := s.encode(after, events)
	return rows, err
}

// Together submits jobs while the writer is busy, in their order, and returns their outcomes.
func (s *Store) Together(ctx context.Context, group []*job) []error {
	w := s.writer
	w.turn <- struct{}{}
	outcomes := make([]error, len(group))
	var all sync.WaitGroup
	for i, j := range group {
		all.Go(func() { outcomes[i] = w.do(ctx, j) })
		for waiting := 0; waiting <= i; runtime.Gosched() {
			w.mu.Lock()
			waiting = len(w.queues[false]) + len(w.queues[true])
			w.mu.Unlock()
		}
	}
	<-w.turn
	all.Wait()
	return outcomes
}

// Heads returns the number of cached heads, and HasHead whether that of a run is cached. The store must
// be closed.
func (s *Store) Heads() int { return len(s.writer.heads) }

func (s *Store) HasHead(run toolcrib.RunID) bool { return s.writer.heads[run] != nil }

func Condition(f store.Filter) (text string, args []any, err error) {
	c, err := condition(f)
	return c.text, c.args, err
}

func UsageQuery(q store.UsageQuery) (string, []any) { return usageQuery(q) }

func (s *Store) Each(ctx context.Context, query string, args []any, do func(Scan) error) error {
	return reading{s}.Each(ctx, query, args, do)
}

func (s *Store) One(ctx context.Context, query string, args []any, dest ...any) error {
	return One(ctx, reading{s}, query, args, dest...)
}

func (s *Store) PruneEach(ctx context.Context, run toolcrib.RunID, o store.PruneOptions) (api.PruneResult, error) {
	result, _, err := s.pruneEach(ctx, []toolcrib.RunID{run}, s.now(), o, 1)
	return result, err
}
