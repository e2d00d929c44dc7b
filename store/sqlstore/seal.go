package sqlstore

import (
	"context"
	"database/sql/driver"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/store"
)

// [store.Record] describes what is sealed, and when: each run's row has a seal of its own, renewed by
// each append. The state of all runs is under the seal of the head, renewed by each append that must
// survive a loss of power.

// placed returns the place of a run in the record of all runs.
func (t *tx) placed(h *head) (store.Seal, error) {
	switch {
	case h.Num == 0:
		return store.Seal{}, nil
	case h.Kept == h.Record.LastSeq:
		return t.w.keys.Place(h.Record.ID, h.Kept, h.Hash), nil
	}
	hash, err := hashAt(t.ctx, t.w.db, &h.Row, h.Kept)
	return t.w.keys.Place(h.Record.ID, h.Kept, hash), err
}

// move replaces the place of a run in the record of all runs.
func (t *tx) move(from, to store.Seal) error {
	if err := t.openSeal(); err != nil {
		return err
	}
	r := &t.seal.record
	r.Runs.Add(from)
	r.Runs.Add(to)
	r.Moves++
	t.seal.moved = true
	return nil
}

// checkRecord compares the places of all runs with the record. It is done before resuming a run that
// another process wrote last: only the record shows that a run was removed or reset to an earlier
// state. It is repeated after another process has written; see [Options.CheckShare].
func (t *tx) checkRecord() error {
	if t.w.checked.Load() {
		t.w.compareAgain()
		return nil
	}
	if err := t.openSeal(); err != nil {
		return err
	}
	since := time.Now()
	if err := store.CheckPlaces(t.ctx, snapshot{t.w.db}, t.w.keys, &t.seal.record); err != nil {
		return err
	}
	t.w.checked.Store(true)
	t.w.compared(since)
	return nil
}

// compared sets the time of the next comparison after one that began at since.
func (w *writer) compared(since time.Time) {
	if now := time.Now(); w.share > 0 {
		w.next.Store(now.Add(now.Sub(since) * 100 / time.Duration(w.share)).UnixNano())
	}
}

// compareAgain compares the record with the runs again if it is time. Nothing waits for that: if they do not
// match, damage is recorded, and the next run that is resumed is not continued.
func (w *writer) compareAgain() {
	next := w.next.Load()
	if next == 0 || time.Now().UnixNano() < next || !w.next.CompareAndSwap(next, math.MaxInt64) {
		return
	}
	w.comparing.Go(func() {
		since := time.Now()
		w.checked.Store(w.compare(w.living) == nil)
		w.compared(since)
	})
}

// compareRecord compares the record of all runs with a snapshot of them.
func (s *Store) compareRecord(ctx context.Context) error {
	return s.noteDamage(ctx, s.frozen(ctx, func(sn snapshot) error {
		r, err := openRecord(ctx, sn, s.keys)
		if err == nil {
			err = store.CheckPlaces(ctx, sn, s.keys, &r)
		}
		return err
	}))
}

// Places implements [store.Snapshot].
func (sn snapshot) Places(ctx context.Context, keys *store.Keys) (sum store.Seal, err error) {
	places := keys.SealPlace()
	err = sn.Each(ctx, `SELECT id, kept_seq, CASE kept_seq WHEN last_seq THEN last_hash
		ELSE (SELECT hash FROM events WHERE key = num << 32 | kept_seq) END FROM runs`, nil, func(scan Scan) error {
		var run toolcrib.RunID
		var seq toolcrib.Seq
		var hash []byte
		err := scan(&run, &seq, &hash)
		sum.Add(places.Place(run, seq, hash))
		return err
	})
	if err == nil {
		err = eachFilePlace(ctx, sn, keys, sum.Add)
	}
	return sum, err
}

// Table implements [store.Snapshot].
func (sn snapshot) Table(ctx context.Context, keys *store.Keys, table int) (store.Seal, error) {
	s, of := keys.SealTable(table), store.SealedDocs[table]
	for _, q := range []string{
		"SELECT value FROM counters WHERE name = '" + of.Name + "'",
		"SELECT * FROM docs WHERE kind IN ('" + strings.Join(of.Kinds, "', '") + "') ORDER BY kind, id, user",
	} {
		err := sn.Each(ctx, q, nil, func(scan Scan) error {
			var row []driver.Value
			err := scan(&row)
			s.Add(int64(len(row)))
			for _, v := range row {
				s.Add(v)
			}
			return err
		})
		if err != nil {
			return store.Seal{}, err
		}
	}
	return s.Sum(), nil
}

// sealedAll selects all sealed tables.
var sealedAll = [store.SealedTables]bool{true, true, true}

// put renews the seals of stale tables, and stores the head.
func (s *headSeal) put(ctx context.Context, c Execer, keys *store.Keys, stale [store.SealedTables]bool) (err error) {
	for table, is := range stale {
		if !is {
			continue
		}
		if s.record.Tables[table], err = (snapshot{c}).Table(ctx, keys, table); err != nil {
			return err
		}
	}
	hash := append([]byte{}, s.system.Hash...) // not nil, which would be NULL
	return c.Later(ctx, putHeadSeal, int64(s.system.Seq), hash, keys.ID(),
		keys.SealRecord(&s.record, s.system.Seq, s.system.Hash))
}

const putHeadSeal = `INSERT INTO system_head (one, seq, hash, key_id, record) VALUES (1,?,?,?,?)
	ON CONFLICT (one) DO UPDATE SET seq = excluded.seq, hash = excluded.hash, key_id = excluded.key_id,
	record = excluded.record`

// Create seals a new database.
func Create(ctx context.Context, c Execer, keys *store.Keys) error {
	return new(headSeal).put(ctx, c, keys, sealedAll)
}

// Adopt seals everything again in its current state, if a seal is not valid or the database is
// incomplete, and records that in the system journal. Broken chains stay broken. c is in a transaction,
// which Adopt does not commit.
func Adopt(ctx context.Context, c Execer, keys *store.Keys, by string, at time.Time, incomplete error) error {
	sn := snapshot{c}
	var broken *store.ChainError
	if err := checkSealed(ctx, sn, keys); !errors.As(err, &broken) {
		if err != nil || incomplete == nil {
			return err
		}
		broken = &store.ChainError{What: "its newest events are missing: it was in use when it was copied without its log"}
	}
	found, err := readSealed(ctx, c)
	if err != nil {
		return err
	}
	raw, err := journal.EncodeJSON(store.HeadAdopted{
		Seq: found.Last.Seq, Hash: hex.EncodeToString(found.Last.Hash), By: by, What: broken.What,
	})
	if err != nil {
		return err
	}
	e := store.SystemEvent{Time: wholeMicro(at), Kind: store.SystemHeadAdopted, Payload: raw}
	s := headSeal{system: found.Last.Next(&e)}
	if err := putSystem(ctx, c, &e); err != nil {
		return err
	}
	if r, ok := keys.OpenRecord(found.Record, found.Head.Seq, found.Head.Hash); ok {
		s.record.Moves = r.Moves
	}
	if err := errors.Join(sealRuns(ctx, c, keys), sealFiles(ctx, c, keys)); err != nil {
		return err
	}
	if s.record.Runs, err = sn.Places(ctx, keys); err != nil {
		return err
	}
	schema, err := readSchema(ctx, c)
	if err == nil {
		err = SealSchema(ctx, c, keys, schema.version, schema.oldest)
	}
	if err != nil {
		return err
	}
	return s.put(ctx, c, keys, sealedAll)
}

// checkSealed compares everything that is sealed, except the events, with the seals.
func checkSealed(ctx context.Context, sn snapshot, keys *store.Keys) error {
	r, err := openRecord(ctx, sn, keys)
	if err == nil {
		err = store.CheckPlaces(ctx, sn, keys, &r)
	}
	if err == nil {
		err = store.CheckTables(ctx, sn, keys, &r)
	}
	if err == nil {
		err = checkSchema(ctx, sn, keys)
	}
	if err != nil {
		return err
	}
	err = eachRow(ctx, sn, "", nil, func(row *store.Row) error { return row.Check(keys) })
	if err == nil {
		err = sn.Files(ctx, func(f *store.StoredFile) error { return f.Check(keys) })
	}
	return err
}

// sealRuns seals the current row of each run.
func sealRuns(ctx context.Context, c Execer, keys *store.Keys) error {
	seals := make(map[int64]store.Seal)
	err := eachRow(ctx, c, "", nil, func(row *store.Row) error {
		seals[row.Num] = row.Seal(keys.SealRun(), row.Values(nil))
		return nil
	})
	for num, seal := range seals {
		if err == nil {
			_, err = c.Exec(ctx, "UPDATE runs SET seal = ? WHERE num = ?", seal[:], num)
		}
	}
	return err
}

const selectSealed = `SELECT h.one IS NOT NULL, coalesce(h.seq, 0), h.hash, h.key_id, h.record, coalesce(e.seq, 0), e.hash, coalesce(e.time, 0)
	FROM (SELECT 1) AS one_row LEFT JOIN system_head h ON h.one = 1
	LEFT JOIN (SELECT seq, hash, time FROM system_events ORDER BY seq DESC LIMIT 1) AS e ON TRUE`

func readSealed(ctx context.Context, r Reader) (s store.SealedHead, err error) {
	err = One(ctx, r, selectSealed, nil, &s.Found, &s.Head.Seq, &s.Head.Hash, &s.KeyID, &s.Record, &s.Last.Seq,
		&s.Last.Hash, &s.Last.Time)
	return s, err
}

// openRecord returns the record after checking its seal, which includes the end of the system journal.
func openRecord(ctx context.Context, r Reader, keys *store.Keys) (store.Record, error) {
	found, err := readSealed(ctx, r)
	if err != nil {
		return store.Record{}, err
	}
	return found.Open(keys)
}

// openSeal reads the sealed head, unless this process was the last to write. If the seal is not valid,
// the transaction fails: nothing is added to a store that was tampered with.
func (t *tx) openSeal() error {
	if t.seal != nil {
		return nil
	}
	if t.w.sealed != nil {
		known := *t.w.sealed
		t.seal = &known
		return nil
	}
	s, err := readSealed(t.ctx, t.w.db)
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

// headSeal is the sealed head in a transaction that changes it.
type headSeal struct {
	system store.SystemHead
	record store.Record
	stale  [store.SealedTables]bool // changed tables
	known  [store.SealedTables]bool // tables that matched their seals
	moved  bool                     // it must be sealed again
}

// checkTable compares a table with its seal before the table is changed. Afterwards the whole table is
// sealed again, which must not include changes made by other programs.
func (t *tx) checkTable(table int) error {
	if t.seal.known[table] {
		return nil
	}
	t.seal.known[table] = true
	return store.CheckTable(t.ctx, snapshot{t.w.db}, t.w.keys, &t.seal.record, table)
}

// appendSystem adds an event to the system journal.
func (t *tx) appendSystem(at time.Time, kind toolcrib.Kind, payload any) error {
	raw, err := journal.EncodeJSON(payload)
	if err != nil {
		return fmt.Errorf("store: system event %s: %w", kind, err)
	}
	return t.putSystem(&store.SystemEvent{Time: wholeMicro(at), Kind: kind, Payload: raw})
}

// putSystem adds an event to the system journal, and updates the documents that it changes.
func (t *tx) putSystem(e *store.SystemEvent) error {
	if err := t.openSeal(); err != nil {
		return err
	}
	e.Payload = store.CausedBy(e.Payload, t.token)
	t.seal.system, t.seal.moved = t.seal.system.Next(e), true
	if err := putSystem(t.ctx, t.w.db, e); err != nil {
		return err
	}
	doc, ok, err := store.DocOf(e)
	if err != nil || !ok {
		return err
	}
	return t.putDoc(&doc)
}

func putSystem(ctx context.Context, c Execer, e *store.SystemEvent) error {
	return c.Later(ctx, "INSERT INTO system_events (seq, kind, time, payload, payload_hash, hash) VALUES (?,?,?,?,?,?)",
		int64(e.Seq), string(e.Kind), e.Time.UnixMicro(), string(e.Payload), e.PayloadHash, e.Hash)
}

// putSeal renews the seals, once for all changes of a transaction.
func (t *tx) putSeal() error {
	if t.seal == nil || !t.seal.moved {
		return nil
	}
	return t.seal.put(t.ctx, t.w.db, t.w.keys, t.seal.stale)
}

// Head implements [store.Store].
func (s *Store) Head(ctx context.Context) (store.Head, error) {
	keys, err := store.LoadKeys(s.keysPath)
	if err != nil {
		return store.Head{}, err
	}
	found, err := readSealed(ctx, reading{s})
	if err != nil {
		return store.Head{}, err
	}
	return found.Export(keys)
}
