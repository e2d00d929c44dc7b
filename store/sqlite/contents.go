package sqlite

import (
	"bytes"
	"context"
	"crypto/sha256"
	"database/sql"
	"errors"
	"fmt"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/store"
)

const (
	// MaxContentBytes bounds what one reference holds.
	MaxContentBytes = 64 << 20
	// pieceBytes is the size of every piece of a content but the last, so that
	// reading a range reads little more than the range. It is in the schema.
	pieceBytes = 64 << 10
)

// Put implements [toolcrib.Contents]. A run that has ended takes no more, which is
// toolcrib.ErrConflict. More than MaxContentBytes is
// store.ErrTooLarge. It is no barrier: what is put is durable with the next
// barrier, so at the latest with an event that is one and names it.
func (s *Store) Put(ctx context.Context, run toolcrib.RunID, ref string, data []byte) error {
	if run == "" || ref == "" {
		return errors.New("sqlite: put: a run ID and a reference are needed")
	}
	if len(data) > MaxContentBytes {
		return fmt.Errorf("content %s of run %s: %d bytes, at most %d: %w", ref, run, len(data), MaxContentBytes,
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
	case ended: // its last anchor says what it has
		return reject(fmt.Errorf("content %s: run %s has ended: %w", ref, run, toolcrib.ErrConflict))
	}
	res, err := t.exec("INSERT INTO contents (run_id, ref, size, hash) VALUES (?,?,?,?)", string(run), ref,
		len(data), hash)
	if err != nil {
		return err
	}
	num, err := res.LastInsertId()
	if err != nil {
		return err
	}
	for i := 0; i*pieceBytes < len(data); i++ {
		piece := data[i*pieceBytes : min((i+1)*pieceBytes, len(data))]
		if _, err := t.exec("INSERT INTO content_pieces (key, data) VALUES (?,?)", eventKey(num, toolcrib.Seq(i)),
			piece); err != nil {
			return err
		}
	}
	return nil
}

// Range implements [toolcrib.Contents]. A negative offset is 0, a negative limit
// gives no bytes.
func (s *Store) Range(ctx context.Context, run toolcrib.RunID, ref string, offset, limit int64) (data []byte,
	size int64, err error,
) {
	if err := ctx.Err(); err != nil {
		return nil, 0, err
	}
	var num int64
	err = s.readers.row(ctx, "SELECT num, size FROM contents WHERE run_id = ? AND ref = ?", []any{string(run), ref},
		&num, &size)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, 0, fmt.Errorf("content %s of run %s: %w", ref, run, toolcrib.ErrNotFound)
	}
	if err != nil {
		return nil, 0, s.failed(ctx, err)
	}
	from := max(0, min(offset, size))
	to := from + max(0, min(limit, size-from))
	if from == to {
		return []byte{}, size, nil
	}
	data, err = s.pieces(ctx, num, from, to)
	return data, size, err
}

// pieces returns the bytes from from up to to.
func (s *Store) pieces(ctx context.Context, num, from, to int64) (data []byte, err error) {
	first, last := from/pieceBytes, (to-1)/pieceBytes
	data = make([]byte, 0, to-first*pieceBytes)
	err = s.readers.each(ctx, "SELECT data FROM content_pieces WHERE key BETWEEN ? AND ? ORDER BY key",
		[]any{eventKey(num, toolcrib.Seq(first)), eventKey(num, toolcrib.Seq(last))}, func(scan scanFunc) error {
			var piece []byte
			err := scan(&piece)
			data = append(data, piece...)
			return err
		})
	if err != nil {
		return nil, s.failed(ctx, err)
	}
	skip := from - first*pieceBytes
	if int64(len(data)) < skip+to-from {
		return nil, &store.Error{Kind: store.ErrCorrupt, Path: s.path, Err: errors.New("a piece of a content is missing")}
	}
	return data[skip : skip+to-from : skip+to-from], nil
}

// contentsDigest is the hash of what is kept for a run.
func contentsDigest(ctx context.Context, r reader, run toolcrib.RunID) (string, error) {
	var d store.KeptDigest
	err := r.each(ctx, "SELECT ref, size, hash FROM contents WHERE run_id = ? ORDER BY ref", []any{string(run)},
		func(scan scanFunc) error {
			var k store.Kept
			err := scan(&k.Ref, &k.Size, &k.Hash)
			d.Add(k)
			return err
		})
	return d.String(), err
}
