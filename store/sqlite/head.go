package sqlite

import (
	"context"
	"fmt"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/store"
)

const selectSealed = `SELECT h.one IS NOT NULL, ifnull(h.seq, 0), h.hash, h.key_id, h.record, ifnull(e.seq, 0), e.hash, ifnull(e.time, 0)
	FROM (SELECT 1) LEFT JOIN system_head h ON h.one = 1
	LEFT JOIN (SELECT seq, hash, time FROM system_events ORDER BY seq DESC LIMIT 1) e`

func readSealed(ctx context.Context, r reader) (s store.SealedHead, err error) {
	err = r.row(ctx, selectSealed, nil, &s.Found, &s.Head.Seq, &s.Head.Hash, &s.KeyID, &s.Record, &s.Last.Seq, &s.Last.Hash, &s.Last.Time)
	return s, err
}

// openRecord returns the sealed record, if it and the end of the system journal are as
// they were sealed.
func openRecord(ctx context.Context, r reader, keys *store.Keys) (store.Record, error) {
	found, err := readSealed(ctx, r)
	if err != nil {
		return store.Record{}, err
	}
	return found.Open(keys)
}

// openSeal reads the sealed head, unless nobody else has written since this process did. If the seal does not hold,
// the transaction fails: nothing is added to what somebody has changed.
func (t *tx) openSeal() error {
	if t.seal != nil {
		return nil
	}
	if t.w.sealed != nil {
		known := *t.w.sealed
		t.seal = &known
		return nil
	}
	s, err := readSealed(t.ctx, t.w.conn)
	if err != nil {
		return err
	}
	r, err := s.Open(t.w.keys)
	if err != nil {
		return err
	}
	t.seal = &headSeal{system: s.Head, record: r}
	return nil
}

// headSeal is the sealed head in a transaction that moves it.
type headSeal struct {
	system store.SystemHead
	record store.Record
	stale  [store.SealedTables]bool // tables that were changed
	moved  bool                     // it must be sealed again
}

// appendSystem adds an event to the system journal.
func (t *tx) appendSystem(at time.Time, kind toolcrib.Kind, payload any) error {
	raw, err := store.EncodeJSON(payload)
	if err != nil {
		return fmt.Errorf("sqlite: system event %s: %w", kind, err)
	}
	return t.putSystem(&store.SystemEvent{Time: wholeMicro(at), Kind: kind, Payload: raw})
}

const (
	insertSystem = "INSERT INTO system_events (seq, kind, time, payload, payload_hash, hash) VALUES (?,?,?,?,?,?)"
	replaceSeal  = "INSERT OR REPLACE INTO system_head (one, seq, hash, key_id, record) VALUES (1,?,?,?,?)"
)

// args returns the arguments of replaceSeal.
func (s *headSeal) args(keys *store.Keys) []any {
	hash := append([]byte{}, s.system.Hash...) // not nil, which would be NULL
	return []any{int64(s.system.Seq), hash, keys.ID(), keys.SealRecord(&s.record, s.system.Seq, s.system.Hash)}
}

// putSystem adds an event to the system journal, and makes of the documents what it says.
func (t *tx) putSystem(e *store.SystemEvent) error {
	if err := t.openSeal(); err != nil {
		return err
	}
	t.seal.system, t.seal.moved = t.seal.system.Next(e), true
	if err := putSystem(t.ctx, t.w.conn, e); err != nil {
		return err
	}
	docs, err := store.DocsOf(e)
	for i := 0; err == nil && i < len(docs); i++ {
		err = t.putDoc(&docs[i], i == 0)
	}
	return err
}

func putSystem(ctx context.Context, c *conn, e *store.SystemEvent) error {
	_, err := c.exec(ctx, insertSystem, int64(e.Seq), string(e.Kind), e.Time.UnixMicro(), string(e.Payload), e.PayloadHash, e.Hash)
	return err
}

// putSeal seals again, once for all that a transaction has changed.
func (t *tx) putSeal() error {
	if t.seal == nil || !t.seal.moved {
		return nil
	}
	if err := t.seal.renew(t.ctx, t.w.conn, t.w.keys, t.seal.stale); err != nil {
		return err
	}
	_, err := t.exec(replaceSeal, t.seal.args(t.w.keys)...)
	return err
}

// Head implements [store.Store].
func (s *Store) Head(ctx context.Context) (store.Head, error) {
	keys, err := loadKeys(s.keysPath)
	if err != nil {
		return store.Head{}, err
	}
	found, err := readSealed(ctx, s.readers)
	if err != nil {
		return store.Head{}, s.failed(ctx, err)
	}
	return found.Export(keys)
}
