package sqlite

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/store"
)

// AppendSystem implements [store.Store].
func (s *Store) AppendSystem(ctx context.Context, events ...store.SystemEvent) error {
	staged, size := make([]store.SystemEvent, len(events)), 0
	for i, e := range events {
		if e.Kind == "" || !json.Valid(e.Payload) {
			return fmt.Errorf("sqlite: system event %d: a kind and a JSON payload are needed", i)
		}
		if len(e.Payload) > MaxEventBytes {
			return fmt.Errorf("sqlite: system event %d: %d bytes, at most %d: %w", i, len(e.Payload), MaxEventBytes,
				store.ErrTooLarge)
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

// ReadSystem implements [store.Store].
func (s *Store) ReadSystem(ctx context.Context, after toolcrib.Seq) iter.Seq2[store.SystemEvent, error] {
	return func(yield func(store.SystemEvent, error) bool) {
		for {
			page, err := systemPage(ctx, s.readers, after)
			if err != nil {
				yield(store.SystemEvent{}, s.failed(ctx, err))
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

// systemPage reads a page of the system journal.
func systemPage(ctx context.Context, r reader, after toolcrib.Seq) (page []store.SystemEvent, err error) {
	size := 0
	err = eachSystem(ctx, r, "WHERE seq > ? ORDER BY seq LIMIT ?", []any{int64(after), pageEvents},
		func(e *store.SystemEvent) error {
			page = append(page, *e)
			if size += len(e.Payload); size >= pageBytes {
				return errFirst
			}
			return nil
		})
	if errors.Is(err, errFirst) {
		err = nil
	}
	return page, err
}

func eachSystem(ctx context.Context, r reader, where string, args []any, do func(*store.SystemEvent) error) error {
	return r.each(ctx, "SELECT seq, kind, time, payload, payload_hash, hash FROM system_events "+where, args,
		func(scan scanFunc) error {
			e := new(store.SystemEvent)
			var at int64
			if err := scan(&e.Seq, &e.Kind, &at, &e.Payload, &e.PayloadHash, &e.Hash); err != nil {
				return err
			}
			e.Time = store.Micro(at)
			return do(e)
		})
}
