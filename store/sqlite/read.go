package sqlite

import (
	"bytes"
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
// reading begins. An event whose content was pruned is store.ErrPruned; one that is not
// as it was written, or is missing, is a [*store.ChainError].
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

// raw yields the rows of a run, in order. Each must follow from the one before it, and
// the last must be the one that the run's sealed row ends with: what does not hold is a
// [*store.ChainError], so that nothing is done with a journal that somebody has changed.
func (s *Store) raw(ctx context.Context, run toolcrib.RunID, after toolcrib.Seq) iter.Seq2[stored, error] {
	return func(yield func(stored, error) bool) {
		h, err := s.fence(ctx, run)
		var prev []byte
		if err == nil && after > 0 && after < h.rec.LastSeq {
			prev, err = s.hashAt(ctx, &h, after)
		}
		for err == nil && after < h.rec.LastSeq {
			var page []stored
			page, err = s.page(ctx, h.num, after, h.rec.LastSeq)
			if err == nil && len(page) == 0 {
				err = missing(run, after+1)
			}
			for i := range page {
				if ctx.Err() != nil {
					break // the next page tells
				}
				r := &page[i]
				if err = r.follows(&h, prev, after+1); err != nil {
					break
				}
				if !yield(*r, nil) {
					return
				}
				after, prev = r.seq, r.hash
			}
			if err == nil {
				err = ctx.Err()
			}
		}
		if err != nil {
			yield(stored{}, s.noteDamage(err))
		}
	}
}

// follows returns an error if the event is not the one numbered want of a run, after one
// with the hash prev.
func (r *stored) follows(h *head, prev []byte, want toolcrib.Seq) error {
	if r.seq != want {
		return missing(h.rec.ID, want)
	}
	what := r.check(h.rec.ID, prev, want)
	if what == "" && r.seq == h.rec.LastSeq && !bytes.Equal(r.hash, h.hash) {
		what = "the run's row has another hash"
	}
	if what != "" {
		return &store.ChainError{Run: h.rec.ID, Seq: r.seq, What: what}
	}
	return nil
}

func missing(run toolcrib.RunID, seq toolcrib.Seq) error {
	return &store.ChainError{Run: run, Seq: seq, What: "the event is missing"}
}

// hashAt returns the hash of the chain up to an event.
func (s *Store) hashAt(ctx context.Context, h *head, seq toolcrib.Seq) (hash []byte, err error) {
	err = s.readers.row(ctx, "SELECT hash FROM events WHERE key = ?", []any{eventKey(h.num, seq)}, &hash)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, missing(h.rec.ID, seq)
	}
	return hash, s.failed(ctx, err)
}

// fence returns where a run stands.
func (s *Store) fence(ctx context.Context, run toolcrib.RunID) (h head, err error) {
	if err := ctx.Err(); err != nil {
		return h, err
	}
	err = one(ctx, s.readers, selectRow+" WHERE id = ?", []any{string(run)}, func(scan scanFunc) error { return scanRun(scan, s.keys, &h) })
	if errors.Is(err, sql.ErrNoRows) {
		return h, fmt.Errorf("run %s: %w", run, toolcrib.ErrNotFound)
	}
	return h, s.failed(ctx, err)
}

func (s *Store) page(ctx context.Context, num int64, after, last toolcrib.Seq) (page []stored, err error) {
	size := 0
	err = s.readers.each(ctx, `SELECT key & 0xffffffff, kind, time, payload, payload_hash, hash
		FROM events WHERE key > ? AND key <= ? ORDER BY key LIMIT ?`,
		[]any{eventKey(num, after), eventKey(num, last), pageEvents}, func(scan scanFunc) error {
			var r stored
			if err := scan(&r.seq, &r.kind, &r.time, &r.payload, &r.payloadHash, &r.hash); err != nil {
				return err
			}
			page = append(page, r)
			if size += len(r.payload); size >= pageBytes {
				return errFirst
			}
			return nil
		})
	if err != nil && !errors.Is(err, errFirst) {
		return nil, s.failed(ctx, err)
	}
	return page, nil
}
