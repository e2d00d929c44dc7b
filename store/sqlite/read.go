package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"iter"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/store"
)

// Reading goes by pages, so that a slow reader holds neither a connection nor a
// snapshot that would keep the -wal file from being cut.
const (
	pageEvents = 256
	pageBytes  = 4 << 20
)

// stored is an event as it lies in the table.
type stored struct {
	seq         toolcrib.Seq
	kind        toolcrib.Kind
	time        int64
	payload     []byte // nil = pruned
	payloadHash []byte
	hash        []byte
	odd         bool // a value is of a type that is never written; only verifying looks
}

// Read implements [toolcrib.Journal]. It yields the events that the run has when
// reading begins. An event whose content was pruned is store.ErrPruned.
func (s *Store) Read(ctx context.Context, run toolcrib.RunID, after toolcrib.Seq) iter.Seq2[toolcrib.Event, error] {
	return func(yield func(toolcrib.Event, error) bool) {
		for raw, err := range s.raw(ctx, run, after) {
			var e toolcrib.Event
			if err == nil {
				e, err = raw.decode(run)
			}
			if !yield(e, err) || err != nil {
				return
			}
		}
	}
}

func (r *stored) decode(run toolcrib.RunID) (toolcrib.Event, error) {
	if r.payload == nil {
		return toolcrib.Event{}, fmt.Errorf("run %s, event %d: %w", run, r.seq, store.ErrPruned)
	}
	body, err := journal.Decode(r.kind, r.payload)
	if err != nil {
		return toolcrib.Event{}, fmt.Errorf("run %s, event %d: %w", run, r.seq, err)
	}
	return toolcrib.Event{Seq: r.seq, Time: fromMicro(r.time), Body: body, PayloadHash: r.payloadHash, Hash: r.hash}, nil
}

// raw yields the rows of a run, in order.
func (s *Store) raw(ctx context.Context, run toolcrib.RunID, after toolcrib.Seq) iter.Seq2[stored, error] {
	return func(yield func(stored, error) bool) {
		num, last, _, err := s.fence(ctx, run)
		for err == nil && after < last {
			var page []stored
			page, err = s.page(ctx, num, after, last)
			if err == nil && len(page) == 0 {
				err = &store.ChainError{Run: run, Seq: after + 1, What: "the event is missing"}
			}
			for i := range page {
				if ctx.Err() != nil {
					break // the next page tells
				}
				if !yield(page[i], nil) {
					return
				}
				after = page[i].seq
			}
			if err == nil {
				err = ctx.Err()
			}
		}
		if err != nil {
			yield(stored{}, err)
		}
	}
}

// fence returns the number, last event and last hash of a run.
func (s *Store) fence(ctx context.Context, run toolcrib.RunID) (num int64, last toolcrib.Seq, hash []byte, err error) {
	if err := ctx.Err(); err != nil {
		return 0, 0, nil, err
	}
	err = s.readers.QueryRowContext(ctx, "SELECT num, last_seq, last_hash FROM runs WHERE id = ?", string(run)).Scan(&num, &last, &hash)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, 0, nil, fmt.Errorf("run %s: %w", run, toolcrib.ErrNotFound)
	}
	if err != nil {
		return 0, 0, nil, s.failed(ctx, err)
	}
	return num, last, hash, nil
}

func (s *Store) page(ctx context.Context, num int64, after, last toolcrib.Seq) (page []stored, err error) {
	rows, err := s.readers.QueryContext(ctx, `SELECT key & 0xffffffff, kind, time, payload, payload_hash, hash
		FROM events WHERE key > ? AND key <= ? ORDER BY key LIMIT ?`,
		eventKey(num, after), eventKey(num, last), pageEvents)
	if err != nil {
		return nil, s.failed(ctx, err)
	}
	defer func() {
		if e := rows.Close(); err == nil && e != nil {
			err = s.failed(ctx, e)
		}
	}()
	for bytes := 0; bytes < pageBytes && rows.Next(); {
		var r stored
		if err := rows.Scan(&r.seq, &r.kind, &r.time, &r.payload, &r.payloadHash, &r.hash); err != nil {
			return nil, s.failed(ctx, err)
		}
		bytes += len(r.payload)
		page = append(page, r)
	}
	if err := rows.Err(); err != nil {
		return nil, s.failed(ctx, err)
	}
	return page, nil
}
