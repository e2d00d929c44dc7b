package sqlstore

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"database/sql"
	"errors"
	"fmt"
	"iter"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/store"
)

// Reading is done in pages, so that a slow reader holds neither a connection nor a snapshot that would
// prevent truncation of the -wal file.
const (
	pageEvents = 256
	pageBytes  = 4 << 20
)

// Read implements [toolcrib.Journal]. It yields the events that the run has when reading begins. An
// event whose content was pruned is store.ErrPruned. Each event must follow from the one before it, and
// the last must be the one in the run's sealed row; otherwise the error is a [*store.ChainError],
// because a journal that was tampered with must not be used.
func (s *Store) Read(ctx context.Context, run toolcrib.RunID, after toolcrib.Seq) iter.Seq2[toolcrib.Event, error] {
	return func(yield func(toolcrib.Event, error) bool) {
		row, err := s.row(ctx, run)
		var prev []byte
		if err == nil && after > 0 && after < row.Record.LastSeq {
			prev, err = hashAt(ctx, reading{s}, row, after)
		}
		for err == nil && after < row.Record.LastSeq {
			var page []*store.RawEvent
			page, err = s.page(ctx, runEvents+"WHERE key > ? AND key <= ? ORDER BY key", eventKey(row.Num, after),
				eventKey(row.Num, row.Record.LastSeq))
			if err == nil && len(page) == 0 {
				err = missing(run, after+1)
			}
			for i := 0; err == nil && i < len(page); i++ {
				var e toolcrib.Event
				if err = cmp.Or(ctx.Err(), follows(page[i], row, prev, after+1)); err == nil {
					e, err = page[i].Decode(run)
				}
				if err == nil && !yield(e, nil) {
					return
				}
				after, prev = page[i].Seq, page[i].Hash
			}
		}
		if err != nil {
			yield(toolcrib.Event{}, s.noteDamage(ctx, err))
		}
	}
}

// follows returns an error unless the event has number want of the run and follows an event with the
// hash prev.
func follows(e *store.RawEvent, h *store.Row, prev []byte, want toolcrib.Seq) error {
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
func hashAt(ctx context.Context, r Reader, row *store.Row, seq toolcrib.Seq) (hash []byte, err error) {
	err = One(ctx, r, "SELECT hash FROM events WHERE key = ?", []any{eventKey(row.Num, seq)}, &hash)
	if errors.Is(err, sql.ErrNoRows) {
		err = missing(row.Record.ID, seq)
	}
	return hash, err
}

// row returns the row of a run after checking its seal.
func (s *Store) row(ctx context.Context, run toolcrib.RunID) (*store.Row, error) {
	row, err := rowOf(ctx, reading{s}, run)
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case err == nil && row == nil:
		err = fmt.Errorf("run %s: %w", run, toolcrib.ErrNotFound)
	case err == nil:
		err = s.noteDamage(ctx, row.Check(s.keys))
	}
	return row, err
}

// rowOf returns the row of a run, or nil if it does not exist.
func rowOf(ctx context.Context, r Reader, run toolcrib.RunID) (found *store.Row, err error) {
	err = eachRow(ctx, r, " WHERE id = ?", []any{string(run)}, func(row *store.Row) error {
		found = row
		return nil
	})
	return found, err
}

// page reads the next events of a query.
func (s *Store) page(ctx context.Context, query string, args ...any) (page []*store.RawEvent, err error) {
	size := 0
	// For a bare LIMIT ?, SQLite prepares the statement again for each value.
	err = eachEvent(ctx, reading{s}, query+" LIMIT +?", append(args, pageEvents), func(_ int64, e *store.RawEvent) error {
		page = append(page, e)
		if size += len(e.Payload); size >= pageBytes {
			return ErrEnough
		}
		return nil
	})
	return page, err
}

// Selections of stored events, with the numbers of their runs; see eachEvent.
const (
	runEvents    = "SELECT key >> 32, key & 4294967295, kind, time, payload, payload_hash, hash FROM events "
	systemEvents = "SELECT 0, seq, kind, time, payload, payload_hash, hash FROM system_events "
)

// eachEvent calls do with each event of a query.
func eachEvent(
	ctx context.Context, r Reader, query string, args []any, do func(num int64, e *store.RawEvent) error,
) error {
	var num int64
	return r.Each(ctx, query, args, func(scan Scan) error {
		e := new(store.RawEvent)
		if err := scan(&num, &e.Seq, &e.Kind, &e.Time, &e.Payload, &e.PayloadHash, &e.Hash); err != nil {
			return err
		}
		return do(num, e)
	})
}

// pieceBytes is the size of all pieces of a content but the last, so that reading a range reads little
// more than the range. It is part of the schema.
const pieceBytes = 64 << 10

// Put implements [toolcrib.Contents]. If the run has ended, the error is toolcrib.ErrConflict; for more
// than store.MaxContentBytes, store.ErrTooLarge. Put is not a barrier: the content becomes durable with the
// next barrier, at the latest with a barrier event that refers to it.
func (s *Store) Put(ctx context.Context, run toolcrib.RunID, ref string, data []byte) error {
	if run == "" || ref == "" {
		return errors.New("store: put: a run ID and a reference are needed")
	}
	if len(data) > store.MaxContentBytes {
		return fmt.Errorf("content %s of run %s: %d bytes, at most %d: %w", ref, run, len(data), store.MaxContentBytes,
			store.ErrTooLarge)
	}
	hash := sha256.Sum256(data)
	return s.write(ctx, &job{bytes: len(data), do: func(t *tx) error {
		return t.put(run, ref, data, hash[:])
	}})
}

func (t *tx) put(run toolcrib.RunID, ref string, data, hash []byte) error {
	var ended bool
	err := t.row("SELECT ended_at IS NOT NULL FROM runs WHERE id = ?", []any{string(run)}, &ended)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return err
	}
	var old []byte
	err = t.row("SELECT hash FROM contents WHERE run_id = ? AND ref = ?", []any{string(run), ref}, &old)
	switch {
	case err == nil && bytes.Equal(old, hash):
		return nil
	case err == nil:
		return reject(fmt.Errorf("content %s of run %s exists with other bytes", ref, run))
	case !errors.Is(err, sql.ErrNoRows):
		return err
	case ended: // its last anchor lists its contents
		return reject(toolcrib.Errorf(toolcrib.CodeConflict, "content %s: run %s has ended", ref, run))
	}
	var num int64
	err = t.row("INSERT INTO contents (run_id, ref, size, hash) VALUES (?,?,?,?) RETURNING num",
		[]any{string(run), ref, len(data), hash}, &num)
	if err != nil {
		return err
	}
	for i := 0; i*pieceBytes < len(data); i++ {
		piece := data[i*pieceBytes : min((i+1)*pieceBytes, len(data))]
		if err := t.later("INSERT INTO content_pieces (key, data) VALUES (?,?)", eventKey(num, toolcrib.Seq(i)),
			piece); err != nil {
			return err
		}
	}
	return nil
}

// Range implements [toolcrib.Contents]. A negative offset means 0; a negative limit returns no bytes.
func (s *Store) Range(ctx context.Context, run toolcrib.RunID, ref string, offset, limit int64) (data []byte,
	size int64, err error,
) {
	if err := ctx.Err(); err != nil {
		return nil, 0, err
	}
	var num int64
	err = One(ctx, reading{s}, "SELECT num, size FROM contents WHERE run_id = ? AND ref = ?", []any{string(run), ref},
		&num, &size)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, 0, fmt.Errorf("content %s of run %s: %w", ref, run, toolcrib.ErrNotFound)
	}
	if err != nil {
		return nil, 0, err
	}
	from := max(0, min(offset, size))
	to := from + max(0, min(limit, size-from))
	if from == to {
		return []byte{}, size, nil
	}
	data, err = s.pieces(ctx, num, from, to)
	return data, size, err
}

// pieces returns the bytes in the range from, to.
func (s *Store) pieces(ctx context.Context, num, from, to int64) (data []byte, err error) {
	first, last := from/pieceBytes, (to-1)/pieceBytes
	data = make([]byte, 0, to-first*pieceBytes)
	err = reading{s}.Each(ctx, "SELECT data FROM content_pieces WHERE key BETWEEN ? AND ? ORDER BY key",
		[]any{eventKey(num, toolcrib.Seq(first)), eventKey(num, toolcrib.Seq(last))}, func(scan Scan) error {
			var piece []byte
			err := scan(&piece)
			data = append(data, piece...)
			return err
		})
	if err != nil {
		return nil, err
	}
	skip := from - first*pieceBytes
	if int64(len(data)) < skip+to-from {
		return nil, &store.Error{Kind: store.ErrCorrupt, Path: s.path, Err: errors.New("a piece of a content is missing")}
	}
	return data[skip : skip+to-from : skip+to-from], nil
}

// contentsDigest returns the hash of the contents of a run.
func contentsDigest(ctx context.Context, r Reader, run toolcrib.RunID) (string, error) {
	var d store.KeptDigest
	err := r.Each(ctx, "SELECT ref, size, hash FROM contents WHERE run_id = ? ORDER BY ref", []any{string(run)},
		func(scan Scan) error {
			var k store.Kept
			err := scan(&k.Ref, &k.Size, &k.Hash)
			d.Add(k)
			return err
		})
	return d.String(), err
}
