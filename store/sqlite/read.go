package sqlite

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"iter"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/store"
)

// Reading goes by pages, so that a slow reader holds neither a connection nor a
// snapshot that would keep the -wal file from being cut.
const (
	pageEvents = 256
	pageBytes  = 4 << 20
)

// Read implements [toolcrib.Journal]. It yields the events that the run has when
// reading begins. An event whose content was pruned is store.ErrPruned; one that is not
// as it was written, or is missing, is a [*store.ChainError].
func (s *Store) Read(ctx context.Context, run toolcrib.RunID, after toolcrib.Seq) iter.Seq2[toolcrib.Event, error] {
	return func(yield func(toolcrib.Event, error) bool) {
		for raw, err := range s.raw(ctx, run, after) {
			var e toolcrib.Event
			if err == nil {
				e, err = raw.Decode(run)
			}
			if !yield(e, err) || err != nil {
				return
			}
		}
	}
}

// raw yields the rows of a run, in order. Each must follow from the one before it, and
// the last must be the one that the run's sealed row ends with: what does not hold is a
// [*store.ChainError], so that nothing is done with a journal that somebody has changed.
func (s *Store) raw(ctx context.Context, run toolcrib.RunID, after toolcrib.Seq) iter.Seq2[*store.RawEvent, error] {
	return func(yield func(*store.RawEvent, error) bool) {
		h, err := s.fence(ctx, run)
		var prev []byte
		if err == nil && after > 0 && after < h.Record.LastSeq {
			prev, err = s.hashAt(ctx, &h, after)
		}
		for err == nil && after < h.Record.LastSeq {
			var page []*store.RawEvent
			page, err = s.page(ctx, h.Num, after, h.Record.LastSeq)
			if err == nil && len(page) == 0 {
				err = missing(run, after+1)
			}
			for i := range page {
				if ctx.Err() != nil {
					break // the next page tells
				}
				e := page[i]
				if err = follows(e, &h, prev, after+1); err != nil {
					break
				}
				if !yield(e, nil) {
					return
				}
				after, prev = e.Seq, e.Hash
			}
			if err == nil {
				err = ctx.Err()
			}
		}
		if err != nil {
			yield(nil, s.noteDamage(err))
		}
	}
}

// follows returns an error if the event is not the one numbered want of a run, after one
// with the hash prev.
func follows(e *store.RawEvent, h *head, prev []byte, want toolcrib.Seq) error {
	if e.Seq != want {
		return missing(h.Record.ID, want)
	}
	what := e.Check(h.Record.ID, prev, want)
	if what == "" && e.Seq == h.Record.LastSeq && !bytes.Equal(e.Hash, h.Hash) {
		what = "the run's row has another hash"
	}
	if what != "" {
		return &store.ChainError{Run: h.Record.ID, Seq: e.Seq, What: what}
	}
	return nil
}

func missing(run toolcrib.RunID, seq toolcrib.Seq) error {
	return &store.ChainError{Run: run, Seq: seq, What: "the event is missing"}
}

// hashAt returns the hash of the chain up to an event.
func (s *Store) hashAt(ctx context.Context, h *head, seq toolcrib.Seq) (hash []byte, err error) {
	err = s.readers.row(ctx, "SELECT hash FROM events WHERE key = ?", []any{eventKey(h.Num, seq)}, &hash)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, missing(h.Record.ID, seq)
	}
	return hash, s.failed(ctx, err)
}

// fence returns where a run stands.
func (s *Store) fence(ctx context.Context, run toolcrib.RunID) (h head, err error) {
	if err := ctx.Err(); err != nil {
		return h, err
	}
	err = eachRow(ctx, s.readers, " WHERE id = ?", []any{string(run)}, func(row *store.Row) error {
		h.Row = *row
		return row.Check(s.keys)
	})
	if err == nil && h.Num == 0 {
		return h, fmt.Errorf("run %s: %w", run, toolcrib.ErrNotFound)
	}
	return h, s.failed(ctx, err)
}

func (s *Store) page(ctx context.Context, num int64, after, last toolcrib.Seq) (page []*store.RawEvent, err error) {
	size := 0
	err = s.readers.each(ctx, selectEvents+"WHERE key > ? AND key <= ? ORDER BY key LIMIT ?",
		[]any{eventKey(num, after), eventKey(num, last), pageEvents}, func(scan scanFunc) error {
			e, err := scanEvent(scan)
			page = append(page, e)
			if size += len(e.Payload); err == nil && size >= pageBytes {
				err = errFirst
			}
			return err
		})
	if err != nil && !errors.Is(err, errFirst) {
		return nil, s.failed(ctx, err)
	}
	return page, nil
}
