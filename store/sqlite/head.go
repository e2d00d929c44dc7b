package sqlite

import (
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/store"
)

// systemHead is where the system journal stands.
type systemHead struct {
	seq  toolcrib.Seq
	hash []byte
}

// sealed is the head as it is stored, and the last event beside it.
type sealed struct {
	found    bool // the row of the head is there
	head     systemHead
	keyID    []byte
	record   []byte
	last     systemHead // zero = there is no event
	lastTime int64
}

const selectSealed = `SELECT h.one IS NOT NULL, ifnull(h.seq, 0), h.hash, h.key_id, h.record, ifnull(e.seq, 0), e.hash, ifnull(e.time, 0)
	FROM (SELECT 1) LEFT JOIN system_head h ON h.one = 1
	LEFT JOIN (SELECT seq, hash, time FROM system_events ORDER BY seq DESC LIMIT 1) e`

func readSealed(ctx context.Context, r reader) (s sealed, err error) {
	err = r.row(ctx, selectSealed, nil, &s.found, &s.head.seq, &s.head.hash, &s.keyID, &s.record, &s.last.seq, &s.last.hash, &s.lastTime)
	return s, err
}

// open returns the sealed record. A journal or record that is not as it was sealed is a
// [*store.ChainError].
func (s *sealed) open(keys *store.Keys) (store.Record, error) {
	r, ok := keys.OpenRecord(s.record, s.head.seq, s.head.hash)
	what := ""
	switch {
	case !s.found:
		what = "its head is gone"
	case !bytes.Equal(s.keyID, keys.ID()):
		what = "its head was not sealed with this key but with another one; is the key file the right one?"
	case !ok:
		what = "its head was not sealed with this key"
	case s.head.seq > s.last.seq:
		what = fmt.Sprintf("it ends at event %d, and its head says %d", s.last.seq, s.head.seq)
	case s.head.seq < s.last.seq:
		what = fmt.Sprintf("its head says that it ends at event %d", s.head.seq)
	case !bytes.Equal(s.head.hash, s.last.hash):
		what = "its head has another hash"
	default:
		return r, nil
	}
	return store.Record{}, &store.ChainError{Run: store.SystemChain, Seq: s.last.seq, What: what}
}

// openSeal reads the sealed head, once in a transaction. If the seal does not hold,
// the transaction fails: nothing is added to what somebody has changed.
func (t *tx) openSeal() error {
	if t.seal != nil {
		return nil
	}
	s, err := readSealed(t.ctx, t.w.conn)
	if err != nil {
		return err
	}
	r, err := s.open(t.w.keys)
	if err != nil {
		return err
	}
	t.seal = &headSeal{system: s.head, record: r}
	return nil
}

// headSeal is the sealed head in a transaction that moves it.
type headSeal struct {
	system systemHead
	record store.Record
	stale  [store.SealedTables]bool // tables that were changed
	moved  bool                     // it must be sealed again
}

// appendSystem adds an event to the system journal.
func (t *tx) appendSystem(at time.Time, kind toolcrib.Kind, payload any) error {
	raw, err := encodeJSON(payload)
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
	hash := append([]byte{}, s.system.hash...) // not nil, which would be NULL
	return []any{int64(s.system.seq), hash, keys.ID(), keys.SealRecord(&s.record, s.system.seq, s.system.hash)}
}

func (t *tx) putSystem(e *store.SystemEvent) error {
	if err := t.openSeal(); err != nil {
		return err
	}
	next, args := t.seal.system.next(e)
	if _, err := t.exec(insertSystem, args...); err != nil {
		return err
	}
	t.seal.system, t.seal.moved = next, true
	return nil
}

// next puts an event behind h and returns the arguments of insertSystem.
func (h *systemHead) next(e *store.SystemEvent) (systemHead, []any) {
	e.Seq = h.seq + 1
	e.PayloadHash = journal.PayloadHash(e.Payload)
	e.Hash = journal.ChainHash(h.hash, store.SystemChain, e.Seq, e.Kind, e.Time, e.PayloadHash)
	return systemHead{seq: e.Seq, hash: bytes.Clone(e.Hash)},
		[]any{int64(e.Seq), string(e.Kind), e.Time.UnixMicro(), string(e.Payload), e.PayloadHash, e.Hash}
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

// Head returns where the system journal and the runs stand, to be kept outside of the
// data folder; see [Store.VerifySystemAgainst]. A head that is not as it was sealed is
// a [*store.ChainError].
func (s *Store) Head(ctx context.Context) (store.Head, error) {
	keys, err := loadKeys(s.keysPath)
	if err != nil {
		return store.Head{}, err
	}
	found, err := readSealed(ctx, s.readers)
	if err != nil {
		return store.Head{}, s.failed(ctx, err)
	}
	return found.exported(keys)
}

// exported is the head as it is kept elsewhere.
func (s *sealed) exported(keys *store.Keys) (store.Head, error) {
	r, err := s.open(keys)
	if err != nil {
		return store.Head{}, err
	}
	h := store.Head{
		Seq: s.head.seq, Hash: hex.EncodeToString(s.head.hash), Moves: r.Moves,
		MAC: hex.EncodeToString(keys.HeadMAC(s.head.seq, r.Moves, s.head.hash)),
	}
	if h.Seq > 0 {
		h.Time = fromMicro(s.lastTime)
	}
	return h, nil
}
