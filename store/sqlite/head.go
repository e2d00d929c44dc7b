package sqlite

import (
	"bytes"
	"context"
	"crypto/hmac"
	"database/sql"
	"encoding/hex"
	"errors"
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
	mac      []byte
	keyID    []byte
	last     systemHead // zero = there is no event
	lastTime int64
}

const selectSealed = `SELECT h.one IS NOT NULL, ifnull(h.seq, 0), h.hash, h.mac, h.key_id, ifnull(e.seq, 0), e.hash, ifnull(e.time, 0)
	FROM (SELECT 1) LEFT JOIN system_head h ON h.one = 1
	LEFT JOIN (SELECT seq, hash, time FROM system_events ORDER BY seq DESC LIMIT 1) e`

func scanSealed(row *sql.Row) (s sealed, err error) {
	err = row.Scan(&s.found, &s.head.seq, &s.head.hash, &s.mac, &s.keyID, &s.last.seq, &s.last.hash, &s.lastTime)
	return s, err
}

// broken tells how the journal is not as its seal says; "" = it is.
func (s *sealed) broken(keys *store.Keys) string {
	switch {
	case !s.found:
		return "its head is gone"
	case !bytes.Equal(s.keyID, keys.ID()):
		return "its head was not sealed with this key but with another one; is the key file the right one?"
	case !hmac.Equal(s.mac, keys.HeadMAC(s.head.seq, s.head.hash)):
		return "its head was not sealed with this key"
	case s.head.seq > s.last.seq:
		return fmt.Sprintf("it ends at event %d, and its head says %d", s.last.seq, s.head.seq)
	case s.head.seq < s.last.seq:
		return fmt.Sprintf("its head says that it ends at event %d", s.head.seq)
	case !bytes.Equal(s.head.hash, s.last.hash):
		return "its head has another hash"
	}
	return ""
}

// openSystem reads where the system journal stands. If that is not what its seal
// says, an event of it is added, before what is to be added anyway: the new seal
// must not hide the break.
func (t *tx) openSystem() error {
	st, err := t.stmt(selectSealed)
	if err != nil {
		return err
	}
	s, err := scanSealed(st.QueryRowContext(t.ctx))
	if err != nil {
		return err
	}
	t.system = &s.last
	what := s.broken(t.w.keys)
	if what == "" {
		return nil
	}
	return t.chain(t.w.now(), store.SystemHeadBroken, s.brokenEvent(what))
}

// appendSystem adds an event to the system journal.
func (t *tx) appendSystem(at time.Time, kind toolcrib.Kind, payload any) error {
	if t.system == nil {
		if err := t.openSystem(); err != nil {
			return err
		}
	}
	return t.chain(at, kind, payload)
}

func (t *tx) chain(at time.Time, kind toolcrib.Kind, payload any) error {
	raw, err := encodeJSON(payload)
	if err != nil {
		return fmt.Errorf("sqlite: system event %s: %w", kind, err)
	}
	return t.putSystem(&store.SystemEvent{Time: wholeMicro(at), Kind: kind, Payload: raw})
}

const (
	insertSystem = "INSERT INTO system_events (seq, kind, time, payload, payload_hash, hash) VALUES (?,?,?,?,?,?)"
	putSeal      = "INSERT OR REPLACE INTO system_head (one, seq, hash, mac, key_id) VALUES (1,?,?,?,?)"
	// putFirstSeal is that of migration 3, when there was no ID of keys yet.
	putFirstSeal = "INSERT OR REPLACE INTO system_head (one, seq, hash, mac) VALUES (1,?,?,?)"
)

// args returns the arguments of putSeal.
func (h *systemHead) args(keys *store.Keys) []any {
	return []any{int64(h.seq), h.hash, keys.HeadMAC(h.seq, h.hash), keys.ID()}
}

func (t *tx) putSystem(e *store.SystemEvent) error {
	if t.system == nil {
		if err := t.openSystem(); err != nil {
			return err
		}
	}
	next, args := t.system.next(e)
	if _, err := t.exec(insertSystem, args...); err != nil {
		return err
	}
	t.system, t.unsealed = &next, true
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

// seal renews the head, once for all that a transaction has added.
func (t *tx) seal() error {
	if !t.unsealed {
		return nil
	}
	_, err := t.exec(putSeal, t.system.args(t.w.keys)...)
	return err
}

// Head returns where the system journal stands, to be kept outside of the data
// folder; see [Store.VerifySystemAgainst]. A head that is not as it was sealed is
// a [*store.ChainError].
func (s *Store) Head(ctx context.Context) (store.Head, error) {
	keys, err := loadKeys(s.keysPath)
	if err != nil {
		return store.Head{}, err
	}
	found, err := scanSealed(s.readers.QueryRowContext(ctx, selectSealed))
	if err != nil {
		return store.Head{}, s.failed(ctx, err)
	}
	return found.exported(keys)
}

// exported is the head as it is kept elsewhere.
func (s *sealed) exported(keys *store.Keys) (store.Head, error) {
	if what := s.broken(keys); what != "" {
		return store.Head{}, &store.ChainError{Run: store.SystemChain, Seq: s.last.seq, What: what}
	}
	h := store.Head{Seq: s.head.seq, Hash: hex.EncodeToString(s.head.hash), MAC: hex.EncodeToString(s.mac)}
	if h.Seq > 0 {
		h.Time = fromMicro(s.lastTime)
	}
	return h, nil
}

// sealTx makes the head of a database that has none, or none that holds, and says
// so in the journal if there is anything that nobody vouches for.
func sealTx(ctx context.Context, tx *sql.Tx, keys *store.Keys, by string, now func() time.Time) error {
	var last systemHead
	err := tx.QueryRowContext(ctx, "SELECT seq, hash FROM system_events ORDER BY seq DESC LIMIT 1").Scan(&last.seq, &last.hash)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return err
	}
	if last.hash == nil {
		last.hash = []byte{}
	}
	if last.seq > 0 || by != store.AdoptedByMigration {
		raw, err := encodeJSON(store.HeadAdopted{Seq: last.seq, Hash: hex.EncodeToString(last.hash), By: by})
		if err != nil {
			return err
		}
		next, args := last.next(&store.SystemEvent{Time: wholeMicro(now()), Kind: store.SystemHeadAdopted, Payload: raw})
		if _, err := tx.ExecContext(ctx, insertSystem, args...); err != nil {
			return err
		}
		last = next
	}
	if by == store.AdoptedByMigration {
		_, err = tx.ExecContext(ctx, putFirstSeal, last.args(keys)[:3]...)
		return err
	}
	_, err = tx.ExecContext(ctx, putSeal, last.args(keys)...)
	return err
}
