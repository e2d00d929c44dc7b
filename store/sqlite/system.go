package sqlite

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"iter"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/store"
)

// AppendSystem adds events to the system journal, all or none, as a barrier. It
// sets their Seq, Time (where it is zero) and hashes.
func (s *Store) AppendSystem(ctx context.Context, events ...store.SystemEvent) error {
	staged, size := make([]store.SystemEvent, len(events)), 0
	for i, e := range events {
		if e.Kind == "" || !json.Valid(e.Payload) {
			return fmt.Errorf("sqlite: system event %d: a kind and a JSON payload are needed", i)
		}
		if len(e.Payload) > MaxEventBytes {
			return fmt.Errorf("sqlite: system event %d: %d bytes, at most %d: %w", i, len(e.Payload), MaxEventBytes, store.ErrTooLarge)
		}
		if e.Time.IsZero() {
			e.Time = s.now()
		}
		e.Time = wholeMicro(e.Time)
		staged[i], size = e, size+len(e.Payload)
	}
	if len(staged) == 0 {
		return nil
	}
	err := s.write(ctx, &job{barrier: true, bytes: size, do: func(t *tx) error {
		for i := range staged {
			if err := t.putSystem(&staged[i]); err != nil {
				return err
			}
		}
		return nil
	}})
	if err == nil {
		copy(events, staged)
	}
	return err
}

// ReadSystem yields the events of the system journal after the one numbered
// after, as far as they are when each page of them is read.
func (s *Store) ReadSystem(ctx context.Context, after toolcrib.Seq) iter.Seq2[store.SystemEvent, error] {
	return func(yield func(store.SystemEvent, error) bool) {
		for {
			page, err := s.systemPage(ctx, after)
			if err != nil {
				yield(store.SystemEvent{}, err)
				return
			}
			if len(page) == 0 {
				return
			}
			for _, e := range page {
				if !yield(e, nil) {
					return
				}
				after = e.Seq
			}
		}
	}
}

func (s *Store) systemPage(ctx context.Context, after toolcrib.Seq) (page []store.SystemEvent, err error) {
	rows, err := s.readers.QueryContext(ctx, `SELECT seq, kind, time, payload, payload_hash, hash
		FROM system_events WHERE seq > ? ORDER BY seq LIMIT ?`, int64(after), pageEvents)
	if err != nil {
		return nil, s.failed(ctx, err)
	}
	defer func() {
		if e := rows.Close(); err == nil && e != nil {
			err = s.failed(ctx, e)
		}
	}()
	for size := 0; size < pageBytes && rows.Next(); {
		var e store.SystemEvent
		var at int64
		if err := rows.Scan(&e.Seq, &e.Kind, &at, (*[]byte)(&e.Payload), &e.PayloadHash, &e.Hash); err != nil {
			return nil, s.failed(ctx, err)
		}
		e.Time = fromMicro(at)
		size += len(e.Payload)
		page = append(page, e)
	}
	return page, s.readError(ctx, rows)
}

// Verify goes through the chain of a run, and compares it with the run's row and
// with its anchors in the system journal. What does not hold is a
// [*store.ChainError].
func (s *Store) Verify(ctx context.Context, run toolcrib.RunID) (store.Verified, error) {
	var v store.Verified
	_, last, lastHash, err := s.fence(ctx, run)
	if err != nil {
		return v, err
	}
	anchors, err := s.anchors(ctx, run)
	if err != nil {
		return v, err
	}
	var prev []byte
	for r, err := range s.raw(ctx, run, 0) {
		if err != nil {
			return v, err
		}
		v.Events++
		if what := r.check(run, prev, toolcrib.Seq(v.Events)); what != "" {
			return v, &store.ChainError{Run: run, Seq: r.seq, What: what}
		}
		if r.payload == nil {
			v.Pruned++
		}
		if a, ok := anchors[r.seq]; ok {
			if a != hex.EncodeToString(r.hash) {
				return v, &store.ChainError{Run: run, Seq: r.seq, What: "the anchor in the system journal has another hash"}
			}
			v.Anchors++
		}
		prev = r.hash
		if r.seq == last && !bytes.Equal(prev, lastHash) {
			return v, &store.ChainError{Run: run, Seq: r.seq, What: "the run's row has another hash"}
		}
	}
	if v.Anchors < len(anchors) {
		return v, &store.ChainError{Run: run, Seq: last, What: "the system journal has an anchor of a later event"}
	}
	return v, nil
}

// check tells what is wrong with an event that follows prev; "" = nothing.
func (r *stored) check(run toolcrib.RunID, prev []byte, want toolcrib.Seq) string {
	switch {
	case r.seq != want:
		return "its number is not the next"
	case r.payload != nil && !bytes.Equal(journal.PayloadHash(r.payload), r.payloadHash):
		return "its content has another hash"
	case !bytes.Equal(journal.ChainHash(prev, run, r.seq, r.kind, fromMicro(r.time), r.payloadHash), r.hash):
		return "it does not follow from the one before"
	}
	return ""
}

// anchors returns the hashes of a run that stand in the system journal.
func (s *Store) anchors(ctx context.Context, run toolcrib.RunID) (map[toolcrib.Seq]string, error) {
	rows, err := s.readers.QueryContext(ctx, `SELECT payload FROM system_events
		WHERE kind = ? AND payload ->> 'run_id' = ?`, string(store.SystemAnchor), string(run))
	if err != nil {
		return nil, s.failed(ctx, err)
	}
	found := make(map[toolcrib.Seq]string)
	for rows.Next() {
		var raw []byte
		var a store.Anchor
		if err := rows.Scan(&raw); err != nil {
			return nil, errors.Join(s.failed(ctx, err), rows.Close())
		}
		if err := json.Unmarshal(raw, &a); err != nil {
			return nil, errors.Join(fmt.Errorf("sqlite: anchor: %w", err), rows.Close())
		}
		found[a.Seq] = a.Hash
	}
	return found, errors.Join(s.readError(ctx, rows), rows.Close())
}

// VerifySystem goes through the chain of the system journal.
func (s *Store) VerifySystem(ctx context.Context) (store.Verified, error) {
	var v store.Verified
	var prev []byte
	for e, err := range s.ReadSystem(ctx, 0) {
		if err != nil {
			return v, err
		}
		v.Events++
		r := stored{seq: e.Seq, kind: e.Kind, time: e.Time.UnixMicro(), payload: e.Payload, payloadHash: e.PayloadHash, hash: e.Hash}
		if what := r.check(store.SystemChain, prev, toolcrib.Seq(v.Events)); what != "" {
			return v, &store.ChainError{Run: store.SystemChain, Seq: e.Seq, What: what}
		}
		if e.Kind == store.SystemAnchor {
			v.Anchors++
		}
		prev = e.Hash
	}
	return v, nil
}
