package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/store"
)

// What of a store is sealed, and when, stands at [store.Record]: each run's row under a
// seal of its own, renewed by each append, and where all runs stand under the one seal of
// the head, renewed by each append that must survive a loss of power.

// seal is the seal of a run's row as it lies there.
func (r *rowOfRun) seal(keys *store.Keys) store.Seal {
	s := sealRun(keys.SealRun(), r.run, r.hash, r.kept, r.pruned)
	return s.Add(r.values...).Sum()
}

// seal is the seal of the run's row as it is written, or was read, with s.
func (h *head) seal(s *store.Sealing, docs recordDocs) store.Seal {
	var pruned sql.NullInt64
	if !h.rec.PrunedAt.IsZero() {
		pruned = sql.NullInt64{Int64: h.rec.PrunedAt.UnixMicro(), Valid: true}
	}
	return sealRecord(sealRun(s, h.rec.ID, h.hash, h.kept, pruned), &h.rec, docs).Sum()
}

// sealRun seals what a row has besides recordColumns.
func sealRun(s *store.Sealing, run toolcrib.RunID, hash []byte, kept toolcrib.Seq, pruned sql.NullInt64) *store.Sealing {
	s.Text(string(run)).Blob(hash).Int(int64(kept))
	if pruned.Valid {
		return s.Int(pruned.Int64)
	}
	return s.Null()
}

// sealError says that a run's row is not as it was sealed.
func sealError(run toolcrib.RunID) error {
	return &store.ChainError{Run: run, What: "its row is not as it was sealed"}
}

// placed returns the place of a run in the record of all runs.
func (t *tx) placed(h *head) (store.Seal, error) {
	switch {
	case h.num == 0:
		return store.Seal{}, nil
	case h.kept == h.rec.LastSeq:
		return t.w.keys.Place(h.rec.ID, h.kept, h.hash), nil
	}
	var hash []byte
	err := t.row("SELECT hash FROM events WHERE key = ?", []any{eventKey(h.num, h.kept)}, &hash)
	if errors.Is(err, sql.ErrNoRows) {
		err = missing(h.rec.ID, h.kept)
	}
	return t.w.keys.Place(h.rec.ID, h.kept, hash), err
}

// move takes a run from one place in the record of all runs to another.
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

// checkRecord compares where all runs stand with the record, before a run is taken up
// that this process did not write last: a run that was removed, or put back to an earlier
// state, shows only there. It looks again when another process has written.
func (t *tx) checkRecord() error {
	version, err := t.w.conn.number(t.ctx, "PRAGMA data_version")
	if err != nil || version == t.w.checked {
		return err
	}
	if err := t.openSeal(); err != nil {
		return err
	}
	if err := checkPlaces(t.ctx, t.w.conn, t.w.keys, &t.seal.record); err != nil {
		return err
	}
	t.w.checked = version
	return nil
}

// checkPlaces compares where all runs stand with the record.
func checkPlaces(ctx context.Context, from reader, keys *store.Keys, r *store.Record) error {
	sum, err := sumPlaces(ctx, from, keys)
	if err == nil && sum != r.Runs {
		err = &store.ChainError{What: "a run was removed or put back to an earlier state"}
	}
	return err
}

func sumPlaces(ctx context.Context, r reader, keys *store.Keys) (sum store.Seal, err error) {
	places := keys.SealPlace()
	err = r.each(ctx, `SELECT id, kept_seq, CASE kept_seq WHEN last_seq THEN last_hash
		ELSE (SELECT hash FROM events WHERE key = num << 32 | kept_seq) END FROM runs`, nil, func(scan scanFunc) error {
		var run toolcrib.RunID
		var seq toolcrib.Seq
		var hash []byte
		err := scan(&run, &seq, &hash)
		sum.Add(places.Of(run, seq, hash))
		return err
	})
	return sum, err
}

// sealedTables are the small tables that have one seal each, by their place in
// [store.Record.Tables]: the counter of their changes, and what is read of them.
var sealedTables = [store.SealedTables]struct {
	counter string
	queries []string
}{
	store.SealedOverrides:  {"overrides", []string{selectOverrides}},
	store.SealedRemembered: {"remembered", []string{selectRemembered + " ORDER BY id"}},
	store.SealedAccess: {"access", []string{
		"SELECT * FROM users ORDER BY name", "SELECT * FROM user_groups ORDER BY name",
		"SELECT * FROM passwords ORDER BY user", "SELECT * FROM tokens ORDER BY id",
	}},
}

// sealTable computes the seal of a table, by its place in sealedTables.
func sealTable(ctx context.Context, r reader, keys *store.Keys, table int) (store.Seal, error) {
	s, of := keys.SealTable(table), &sealedTables[table]
	for _, q := range append([]string{"SELECT value FROM counters WHERE name = '" + of.counter + "'"}, of.queries...) {
		if err := r.each(ctx, q, nil, func(scan scanFunc) error { return sealRow(s, scan) }); err != nil {
			return store.Seal{}, err
		}
	}
	return s.Sum(), nil
}

func sealRow(s *store.Sealing, scan scanFunc) error {
	var row []driver.Value
	if err := scan(&row); err != nil {
		return err
	}
	s.Int(int64(len(row)))
	for _, v := range row {
		s.Add(v)
	}
	return nil
}

// changed counts a change of a sealed table and puts it into the system journal. The
// table gets its new seal at the end of the transaction.
func (t *tx) changed(table int, at time.Time, kind toolcrib.Kind, payload any) error {
	if _, err := t.exec("UPDATE counters SET value = value + 1 WHERE name = ?", sealedTables[table].counter); err != nil {
		return err
	}
	if err := t.appendSystem(at, kind, payload); err != nil {
		return err
	}
	t.seal.stale[table] = true
	return nil
}

// checkTable returns an error if a sealed table is not as it was sealed.
func checkTable(ctx context.Context, from reader, keys *store.Keys, r *store.Record, table int) error {
	sum, err := sealTable(ctx, from, keys, table)
	if err == nil && sum != r.Tables[table] {
		err = &store.ChainError{What: fmt.Sprintf("the table %s was changed after it was sealed", sealedTables[table].counter)}
	}
	return err
}

// sealNew seals a database that was just made.
func sealNew(ctx context.Context, c *conn, keys *store.Keys) error {
	var s headSeal
	if err := s.renew(ctx, c, keys, [store.SealedTables]bool{true, true, true}); err != nil {
		return err
	}
	_, err := c.exec(ctx, replaceSeal, s.args(keys)...)
	return err
}

// renew computes the seals of tables anew.
func (s *headSeal) renew(ctx context.Context, r reader, keys *store.Keys, stale [store.SealedTables]bool) (err error) {
	for table, is := range stale {
		if !is {
			continue
		}
		if s.record.Tables[table], err = sealTable(ctx, r, keys, table); err != nil {
			return err
		}
	}
	return nil
}

// adopt seals everything anew as it is, if the seal does not hold, and says so in the
// system journal. Chains that break still do.
func adopt(ctx context.Context, c *conn, keys *store.Keys, o Options) error {
	if err := c.run(ctx, "BEGIN IMMEDIATE"); err != nil {
		return err
	}
	defer func() { _ = c.run(ctx, "ROLLBACK") }() // fails after the commit
	found, err := readSealed(ctx, c)
	if err != nil {
		return err
	}
	var broken *store.ChainError
	if err := checkSealed(ctx, c, &found, keys); !errors.As(err, &broken) {
		return err
	}
	s := headSeal{system: found.last}
	raw, err := encodeJSON(store.HeadAdopted{Seq: s.system.seq, Hash: hex.EncodeToString(s.system.hash), By: o.AdoptBy, What: broken.What})
	if err != nil {
		return err
	}
	next, args := s.system.next(&store.SystemEvent{Time: wholeMicro(o.Now()), Kind: store.SystemHeadAdopted, Payload: raw})
	if _, err := c.exec(ctx, insertSystem, args...); err != nil {
		return err
	}
	if s.system = next; s.record.Moves == 0 {
		if r, ok := keys.OpenRecord(found.record, found.head.seq, found.head.hash); ok {
			s.record.Moves = r.Moves
		}
	}
	if err := sealRuns(ctx, c, keys); err != nil {
		return err
	}
	if s.record.Runs, err = sumPlaces(ctx, c, keys); err != nil {
		return err
	}
	if err := s.renew(ctx, c, keys, [store.SealedTables]bool{true, true, true}); err != nil {
		return err
	}
	if _, err := c.exec(ctx, replaceSeal, s.args(keys)...); err != nil {
		return err
	}
	return c.run(ctx, "COMMIT")
}

// checkSealed compares all that is sealed, but for the events, with the seals.
func checkSealed(ctx context.Context, from reader, found *sealed, keys *store.Keys) error {
	r, err := found.open(keys)
	if err == nil {
		err = checkPlaces(ctx, from, keys, &r)
	}
	for table := 0; err == nil && table < store.SealedTables; table++ {
		err = checkTable(ctx, from, keys, &r, table)
	}
	if err != nil {
		return err
	}
	return eachRow(ctx, from, func(row *rowOfRun) error {
		if !row.seal(keys).Holds(row.sealed) {
			return sealError(row.run)
		}
		return nil
	})
}

// sealRuns seals the row of each run as it is.
func sealRuns(ctx context.Context, c *conn, keys *store.Keys) error {
	seals := make(map[int64]store.Seal)
	err := eachRow(ctx, c, func(row *rowOfRun) error {
		seals[row.num] = row.seal(keys)
		return nil
	})
	for num, seal := range seals {
		if err == nil {
			_, err = c.exec(ctx, "UPDATE runs SET seal = ? WHERE num = ?", seal[:], num)
		}
	}
	return err
}

func eachRow(ctx context.Context, r reader, do func(*rowOfRun) error) error {
	return r.each(ctx, selectRow, nil, func(scan scanFunc) error {
		var r rowOfRun
		if err := scan(r.dest()...); err != nil {
			return err
		}
		return do(&r)
	})
}
