// Package inmemory keeps journals and contents in memory.
package inmemory

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/journal"
)

// Journal is a journal and content store in memory, for tests and for programs that need no record
// after they end. It stores no hashes. It is safe for concurrent use. The zero value is ready to use.
//
// Events keep their bodies: a body must not be changed after Append.
type Journal struct {
	mu       sync.RWMutex
	runs     map[toolcrib.RunID]chain
	contents map[contentKey][]byte
}

// chain has the events of one run, one slice for each append: a single slice would be copied
// repeatedly while it grows.
type chain struct {
	appended [][]toolcrib.Event
	last     toolcrib.Seq
}

type contentKey struct {
	run toolcrib.RunID
	ref string
}

// Append implements [toolcrib.Journal]. Without events it only checks the fence.
func (m *Journal) Append(ctx context.Context, run toolcrib.RunID, after toolcrib.Seq, events ...toolcrib.Event) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	have := m.runs[run]
	if have.last != after {
		return fmt.Errorf("run %s is at event %d, not %d: %w", run, have.last, after, toolcrib.ErrConflict)
	}
	if len(events) == 0 {
		return nil
	}
	if err := storable(events); err != nil {
		return err
	}
	for i := range events {
		events[i].Seq = after + toolcrib.Seq(i) + 1
		events[i].Time = time.UnixMicro(events[i].Time.UnixMicro()).UTC()
	}
	if m.runs == nil {
		m.runs = make(map[toolcrib.RunID]chain)
	}
	m.runs[run] = chain{appended: append(have.appended, slices.Clone(events)), last: after + toolcrib.Seq(len(events))}
	return nil
}

// Runs returns the IDs of its runs, sorted.
func (m *Journal) Runs() []toolcrib.RunID {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return slices.Sorted(maps.Keys(m.runs))
}

// storable returns an error if a durable journal would not accept the events. It does not encode them.
func storable(events []toolcrib.Event) error {
	for i, e := range events {
		if e.Body == nil {
			return fmt.Errorf("journal: append: event %d has no body", i)
		}
		if !journal.Known(e.Body.EventKind()) {
			return &journal.UnknownKindError{Kind: e.Body.EventKind()}
		}
	}
	return nil
}

// Read implements [toolcrib.Journal].
func (m *Journal) Read(ctx context.Context, run toolcrib.RunID, after toolcrib.Seq) iter.Seq2[toolcrib.Event, error] {
	return func(yield func(toolcrib.Event, error) bool) {
		m.mu.RLock()
		have, ok := m.runs[run]
		m.mu.RUnlock()
		if !ok {
			yield(toolcrib.Event{}, fmt.Errorf("run %s: %w", run, toolcrib.ErrNotFound))
			return
		}
		for _, events := range have.appended {
			for _, e := range events {
				if e.Seq <= after {
					continue
				}
				if err := ctx.Err(); err != nil {
					yield(toolcrib.Event{}, err)
					return
				}
				if !yield(e, nil) {
					return
				}
			}
		}
	}
}

// Put implements [toolcrib.Contents].
func (m *Journal) Put(ctx context.Context, run toolcrib.RunID, ref string, data []byte) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	key := contentKey{run, ref}
	if old, ok := m.contents[key]; ok {
		if string(old) == string(data) {
			return nil
		}
		return fmt.Errorf("content %s of run %s exists with other bytes", ref, run)
	}
	if m.contents == nil {
		m.contents = make(map[contentKey][]byte)
	}
	m.contents[key] = append([]byte(nil), data...)
	return nil
}

// Range implements [toolcrib.Contents].
func (m *Journal) Range(ctx context.Context, run toolcrib.RunID, ref string, offset, limit int64) ([]byte, int64,
	error,
) {
	if err := ctx.Err(); err != nil {
		return nil, 0, err
	}
	m.mu.RLock()
	defer m.mu.RUnlock()
	data, ok := m.contents[contentKey{run, ref}]
	if !ok {
		return nil, 0, fmt.Errorf("content %s of run %s: %w", ref, run, toolcrib.ErrNotFound)
	}
	size := int64(len(data))
	from := max(0, min(offset, size))
	to := from + max(0, min(limit, size-from))
	return append([]byte(nil), data[from:to]...), size, nil
}
