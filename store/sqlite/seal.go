package sqlite

import (
	"bytes"
	"context"
	"database/sql/driver"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
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
	hash, err := hashAt(t.ctx, t.w.conn, &h.Row, h.Kept)
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
// state. It is repeated after another process has written.
func (t *tx) checkRecord() error {
	if t.w.checked {
		return nil
	}
	if err := t.openSeal(); err != nil {
		return err
	}
	if err := store.CheckPlaces(t.ctx, snapshot{t.w.conn}, t.w.keys, &t.seal.record); err != nil {
		return err
	}
	t.w.checked = true
	return nil
}

// Places implements [store.Snapshot].
func (sn snapshot) Places(ctx context.Context, keys *store.Keys) (sum store.Seal, err error) {
	places := keys.SealPlace()
	err = sn.each(ctx, `SELECT id, kept_seq, CASE kept_seq WHEN last_seq THEN last_hash
		ELSE (SELECT hash FROM events WHERE key = num << 32 | kept_seq) END FROM runs`, nil, func(scan scanFunc) error {
		var run toolcrib.RunID
		var seq toolcrib.Seq
		var hash []byte
		err := scan(&run, &seq, &hash)
		sum.Add(places.Place(run, seq, hash))
		return err
	})
	return sum, err
}

// Table implements [store.Snapshot].
func (sn snapshot) Table(ctx context.Context, keys *store.Keys, table int) (store.Seal, error) {
	s, of := keys.SealTable(table), store.SealedDocs[table]
	for _, q := range []string{
		"SELECT value FROM counters WHERE name = '" + of.Name + "'",
		"SELECT * FROM docs WHERE kind IN ('" + strings.Join(of.Kinds, "', '") + "') ORDER BY kind, id, user",
	} {
		err := sn.each(ctx, q, nil, func(scan scanFunc) error {
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
func (s *headSeal) put(ctx context.Context, c *conn, keys *store.Keys, stale [store.SealedTables]bool) (err error) {
	for table, is := range stale {
		if !is {
			continue
		}
		if s.record.Tables[table], err = (snapshot{c}).Table(ctx, keys, table); err != nil {
			return err
		}
	}
	hash := append([]byte{}, s.system.Hash...) // not nil, which would be NULL
	_, err = c.exec(ctx, "INSERT OR REPLACE INTO system_head (one, seq, hash, key_id, record) VALUES (1,?,?,?,?)",
		int64(s.system.Seq), hash, keys.ID(), keys.SealRecord(&s.record, s.system.Seq, s.system.Hash))
	return err
}

// adopt seals everything again in its current state, if a seal is not valid or the database is
// incomplete, and records that in the system journal. Broken chains stay broken.
func adopt(ctx context.Context, c *conn, keys *store.Keys, o Options, incomplete error) error {
	if err := c.run(ctx, "BEGIN IMMEDIATE"); err != nil {
		return err
	}
	defer func() { _ = c.run(ctx, "ROLLBACK") }() // fails after the commit
	var broken *store.ChainError
	if err := checkSealed(ctx, c, keys); !errors.As(err, &broken) {
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
		Seq: found.Last.Seq, Hash: hex.EncodeToString(found.Last.Hash), By: o.AdoptBy, What: broken.What,
	})
	if err != nil {
		return err
	}
	e := store.SystemEvent{Time: wholeMicro(o.Now()), Kind: store.SystemHeadAdopted, Payload: raw}
	s := headSeal{system: found.Last.Next(&e)}
	if err := putSystem(ctx, c, &e); err != nil {
		return err
	}
	if r, ok := keys.OpenRecord(found.Record, found.Head.Seq, found.Head.Hash); ok {
		s.record.Moves = r.Moves
	}
	if err := sealRuns(ctx, c, keys); err != nil {
		return err
	}
	if s.record.Runs, err = (snapshot{c}).Places(ctx, keys); err != nil {
		return err
	}
	if err := s.put(ctx, c, keys, sealedAll); err != nil {
		return err
	}
	return c.run(ctx, "COMMIT")
}

// checkSealed compares everything that is sealed, except the events, with the seals.
func checkSealed(ctx context.Context, c *conn, keys *store.Keys) error {
	sn := snapshot{c}
	r, err := openRecord(ctx, sn, keys)
	if err == nil {
		err = store.CheckPlaces(ctx, sn, keys, &r)
	}
	if err == nil {
		err = store.CheckTables(ctx, sn, keys, &r)
	}
	if err != nil {
		return err
	}
	return eachRow(ctx, c, "", nil, func(row *store.Row) error { return row.Check(keys) })
}

// sealRuns seals the current row of each run.
func sealRuns(ctx context.Context, c *conn, keys *store.Keys) error {
	seals := make(map[int64]store.Seal)
	err := eachRow(ctx, c, "", nil, func(row *store.Row) error {
		seals[row.Num] = row.Seal(keys.SealRun(), row.Values(nil))
		return nil
	})
	for num, seal := range seals {
		if err == nil {
			_, err = c.exec(ctx, "UPDATE runs SET seal = ? WHERE num = ?", seal[:], num)
		}
	}
	return err
}

const selectSealed = `SELECT h.one IS NOT NULL, ifnull(h.seq, 0), h.hash, h.key_id, h.record, ifnull(e.seq, 0), e.hash, ifnull(e.time, 0)
	FROM (SELECT 1) LEFT JOIN system_head h ON h.one = 1
	LEFT JOIN (SELECT seq, hash, time FROM system_events ORDER BY seq DESC LIMIT 1) e`

func readSealed(ctx context.Context, r reader) (s store.SealedHead, err error) {
	err = one(ctx, r, selectSealed, nil, &s.Found, &s.Head.Seq, &s.Head.Hash, &s.KeyID, &s.Record, &s.Last.Seq,
		&s.Last.Hash, &s.Last.Time)
	return s, err
}

// openRecord returns the record after checking its seal, which includes the end of the system journal.
func openRecord(ctx context.Context, r reader, keys *store.Keys) (store.Record, error) {
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
	return store.CheckTable(t.ctx, snapshot{t.w.conn}, t.w.keys, &t.seal.record, table)
}

// appendSystem adds an event to the system journal.
func (t *tx) appendSystem(at time.Time, kind toolcrib.Kind, payload any) error {
	raw, err := journal.EncodeJSON(payload)
	if err != nil {
		return fmt.Errorf("sqlite: system event %s: %w", kind, err)
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
	if err := putSystem(t.ctx, t.w.conn, e); err != nil {
		return err
	}
	doc, ok, err := store.DocOf(e)
	if err != nil || !ok {
		return err
	}
	return t.putDoc(&doc)
}

func putSystem(ctx context.Context, c *conn, e *store.SystemEvent) error {
	_, err := c.exec(ctx, "INSERT INTO system_events (seq, kind, time, payload, payload_hash, hash) VALUES (?,?,?,?,?,?)",
		int64(e.Seq), string(e.Kind), e.Time.UnixMicro(), string(e.Payload), e.PayloadHash, e.Hash)
	return err
}

// putSeal renews the seals, once for all changes of a transaction.
func (t *tx) putSeal() error {
	if t.seal == nil || !t.seal.moved {
		return nil
	}
	return t.seal.put(t.ctx, t.w.conn, t.w.keys, t.seal.stale)
}

// Head implements [store.Store].
func (s *Store) Head(ctx context.Context) (store.Head, error) {
	keys, err := store.LoadKeys(s.keysPath)
	if err != nil {
		return store.Head{}, err
	}
	found, err := readSealed(ctx, s)
	if err != nil {
		return store.Head{}, err
	}
	return found.Export(keys)
}

// keysName is the name of the key file next to the database, unless another file is named.
const keysName = "keys"

// pendingKeys returns the path of the keys of a database until it is created.
func pendingKeys(path string) string { return path + "-keys" }

// keysToCreate returns the keys of a database that is being created, in its transaction. Keys that
// belong to it alone get their final name afterwards; see [settleKeys].
func keysToCreate(path string, o Options) (*store.Keys, error) {
	if o.Keys != ownKeys(path) {
		return store.MakeKeys(o.Keys)
	}
	if _, err := os.Stat(o.Keys); err == nil {
		return nil, lost(path, o.Keys, "it has no tables")
	}
	k, pending := store.NewKeys(), pendingKeys(path)
	if err := removeKeys(pending); err != nil {
		return nil, err // left by a process that was killed before the database was created
	}
	return k, k.Create(pending)
}

// removeKeys removes a key file, which may be missing.
func removeKeys(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return &store.Error{Kind: store.ErrKeys, Path: path, Err: err}
	}
	return nil
}

// settleKeys gives the keys of a new database their final name.
func settleKeys(ctx context.Context, c *conn, path string) error {
	pending := pendingKeys(path)
	k, err := store.LoadKeys(pending)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // the usual case, or another process was first
	}
	if err != nil {
		return err
	}
	found, err := readSealed(ctx, c)
	if err != nil {
		return err
	}
	if bytes.Equal(found.KeyID, k.ID()) {
		if err := k.Create(ownKeys(path)); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	return removeKeys(pending)
}

// openKeys returns the keys of a database. A missing key file is created again only for a user who
// accepts that the stored data can no longer be verified; the system journal records that.
func openKeys(ctx context.Context, c *conn, o Options, incomplete error) (*store.Keys, error) {
	keys, err := store.LoadKeys(o.Keys)
	if o.AdoptBy != "" && errors.Is(err, fs.ErrNotExist) {
		keys, err = store.MakeKeys(o.Keys)
	}
	switch {
	case err != nil:
		return nil, err
	case o.AdoptBy == "":
		return keys, checkKeys(ctx, c, o.Keys, keys)
	}
	return keys, adopt(ctx, c, keys, o, incomplete)
}

// checkKeys returns an error for the key file of another database, which must not seal this one. Other
// invalid seals do not prevent opening it: the database can be read, but nothing can be added.
func checkKeys(ctx context.Context, c *conn, path string, keys *store.Keys) error {
	found, err := readSealed(ctx, c)
	if err != nil {
		return err
	}
	if len(found.KeyID) > 0 && !bytes.Equal(found.KeyID, keys.ID()) {
		return &store.Error{Kind: store.ErrKeys, Path: path, Err: errors.New("it has other keys than those that have sealed the database")}
	}
	return nil
}
