package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/store"
)

// What of a store is sealed, and when, stands at [store.Record]: each run's row under a
// seal of its own, renewed by each append, and where all runs stand under the one seal of
// the head, renewed by each append that must survive a loss of power.

// placed returns the place of a run in the record of all runs.
func (t *tx) placed(h *head) (store.Seal, error) {
	switch {
	case h.Num == 0:
		return store.Seal{}, nil
	case h.Kept == h.Record.LastSeq:
		return t.w.keys.Place(h.Record.ID, h.Kept, h.Hash), nil
	}
	var hash []byte
	err := t.row("SELECT hash FROM events WHERE key = ?", []any{eventKey(h.Num, h.Kept)}, &hash)
	if errors.Is(err, sql.ErrNoRows) {
		err = missing(h.Record.ID, h.Kept)
	}
	return t.w.keys.Place(h.Record.ID, h.Kept, hash), err
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
	if t.w.checked {
		return nil
	}
	if err := t.openSeal(); err != nil {
		return err
	}
	if err := checkPlaces(t.ctx, t.w.conn, t.w.keys, &t.seal.record); err != nil {
		return err
	}
	t.w.checked = true
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

// sealTable computes the seal of a table, by its place in store.SealedDocs.
func sealTable(ctx context.Context, r reader, keys *store.Keys, table int) (store.Seal, error) {
	s, of := keys.SealTable(table), store.SealedDocs[table]
	for _, q := range []string{
		"SELECT value FROM counters WHERE name = '" + of.Name + "'",
		"SELECT * FROM docs WHERE kind IN ('" + strings.Join(of.Kinds, "', '") + "') ORDER BY kind, id, user",
	} {
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

// checkTable returns an error if a sealed table is not as it was sealed.
func checkTable(ctx context.Context, from reader, keys *store.Keys, r *store.Record, table int) error {
	sum, err := sealTable(ctx, from, keys, table)
	if err == nil && sum != r.Tables[table] {
		err = &store.ChainError{What: fmt.Sprintf("the table %s was changed after it was sealed", store.SealedDocs[table].Name)}
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
	var broken *store.ChainError
	if err := checkSealed(ctx, c, keys); !errors.As(err, &broken) {
		return err
	}
	found, err := readSealed(ctx, c)
	if err != nil {
		return err
	}
	raw, err := store.EncodeJSON(store.HeadAdopted{Seq: found.Last.Seq, Hash: hex.EncodeToString(found.Last.Hash), By: o.AdoptBy, What: broken.What})
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
func checkSealed(ctx context.Context, c *conn, keys *store.Keys) error {
	sn := snapshot{c}
	r, err := openRecord(ctx, sn, keys)
	if err == nil {
		err = checkPlaces(ctx, sn, keys, &r)
	}
	if err == nil {
		err = store.CheckTables(ctx, sn, keys, &r)
	}
	if err != nil {
		return err
	}
	return sn.eachRun(ctx, func(row *store.Row) error { return row.Check(keys) })
}

// eachRun calls do with each row of a run.
func (sn snapshot) eachRun(ctx context.Context, do func(*store.Row) error) error {
	return sn.each(ctx, selectRow, nil, func(scan scanFunc) error {
		var row store.Row
		if err := scanRun(scan, &row); err != nil {
			return err
		}
		return do(&row)
	})
}

// sealRuns seals the row of each run as it is.
func sealRuns(ctx context.Context, c *conn, keys *store.Keys) error {
	seals := make(map[int64]store.Seal)
	err := snapshot{c}.eachRun(ctx, func(row *store.Row) error {
		seals[row.Num] = row.Seal(keys.SealRun())
		return nil
	})
	for num, seal := range seals {
		if err == nil {
			_, err = c.exec(ctx, "UPDATE runs SET seal = ? WHERE num = ?", seal[:], num)
		}
	}
	return err
}
