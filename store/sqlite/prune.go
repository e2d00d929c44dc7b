package sqlite

import (
	"context"
	"database/sql"
	"encoding/hex"
	"errors"
	"math"
	"os"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/store"
)

// Prune removes runs, or their content only, each together with those that it started
// in a transaction of its own, and says so in the system journal. A run that is named
// and does not exist is toolcrib.ErrNotFound, one that has not ended, or has started one
// that has not, toolcrib.ErrConflict, one that is a part of one that has not a
// store.RunAboveError; then nothing is pruned. Removing content that is
// gone already does nothing. If it is cut off in between, the result tells what was
// pruned by then.
//
// What is removed is overwritten, then the whole file is written anew, which takes
// seconds for each GiB, in which other writers wait, and once more its size on the
// disk; see store.PruneOptions.InPlace.
func (s *Store) Prune(ctx context.Context, o store.PruneOptions) (store.PruneResult, error) {
	var result store.PruneResult
	if err := o.Check(); err != nil {
		return result, err
	}
	runs, err := s.toPrune(ctx, o)
	if err != nil {
		return result, err
	}
	for _, run := range runs {
		if err := s.pruneRun(ctx, run, s.now(), o, &result); err != nil {
			return result, err
		}
	}
	if len(result.Runs) > 0 {
		if o.InPlace {
			_, err = s.checkpoint(ctx, "")
			return result, err
		}
		result.Wiped, err = s.Compact(ctx)
	}
	return result, err
}

// toPrune returns the runs that options choose, without those below them.
func (s *Store) toPrune(ctx context.Context, o store.PruneOptions) (runs []toolcrib.RunID, err error) {
	for _, run := range o.Runs {
		if _, err := s.Run(ctx, run); err != nil {
			return nil, err
		}
		if _, refused, err := prunable(ctx, s.readers, run); err != nil {
			return nil, s.failed(ctx, err)
		} else if refused != nil {
			return nil, refused
		}
	}
	if len(o.Runs) > 0 {
		return o.Runs, nil
	}
	query, before := "SELECT r.id FROM runs r WHERE "+familyOlder, s.now().Add(-o.OlderThan)
	if o.ContentOnly {
		query += " AND " + familyHasContent
	}
	err = s.readers.each(ctx, query+" ORDER BY r.num", []any{before.UnixMicro()}, func(scan scanFunc) error {
		runs = append(runs, "")
		return scan(&runs[len(runs)-1])
	})
	if err != nil {
		return nil, s.failed(ctx, err)
	}
	return runs, nil
}

// selectAbove are the runs above a run, the topmost first: a run begins after the one
// that starts it.
const selectAbove = `WITH RECURSIVE above(id) AS (SELECT parent_id FROM runs WHERE id = ?1 AND parent_id <> ''
	UNION SELECT p.parent_id FROM runs p JOIN above a ON p.id = a.id WHERE p.parent_id <> '')
	SELECT r.id, r.status FROM runs r WHERE r.id IN (SELECT id FROM above) ORDER BY r.num`

// prunable returns the family of a run with query, in a transaction or without one.
// refused says why it cannot be pruned: one of it has not ended, or one above it, whose
// driver still reads what is below.
func prunable(ctx context.Context, r reader, run toolcrib.RunID) (members []member, refused, err error) {
	members, err = membersOf(ctx, r, run)
	if err != nil {
		return nil, nil, err
	}
	if refused := allEnded(members); refused != nil {
		return nil, refused, nil
	}
	err = r.each(ctx, selectAbove, []any{string(run)}, func(scan scanFunc) error {
		var above member
		if err := scan(&above.run, &above.status); err != nil {
			return err
		}
		if refused == nil && !above.status.Ended() {
			refused = &store.RunAboveError{Run: run, Above: above.run, Status: above.status}
		}
		return nil
	})
	return members, refused, err
}

// pruneRun prunes a run and those below it.
func (s *Store) pruneRun(ctx context.Context, run toolcrib.RunID, now time.Time, o store.PruneOptions, result *store.PruneResult) error {
	var all []*store.Pruned
	err := s.write(ctx, &job{barrier: true, do: func(t *tx) error {
		all = nil
		members, refused, err := prunable(t.ctx, t.w.conn, run)
		if err != nil {
			return err
		}
		if refused != nil {
			return reject(refused)
		}
		for _, m := range members {
			pruned, err := t.prune(m.run, now, o)
			if err != nil {
				return err
			}
			if pruned != nil {
				all = append(all, pruned)
			}
		}
		return nil
	}})
	if err != nil {
		return err
	}
	for _, pruned := range all {
		result.Runs = append(result.Runs, pruned.Run)
		result.Events += pruned.Events
		result.Contents += pruned.Contents
		result.Bytes += pruned.Bytes
	}
	return nil
}

// prune prunes one run; nil = there was nothing to do.
func (t *tx) prune(run toolcrib.RunID, now time.Time, o store.PruneOptions) (*store.Pruned, error) {
	h, err := t.readHead(run)
	switch {
	case err != nil:
		return nil, err
	case h.Num == 0: // another process has removed it meanwhile
		return nil, nil
	case !h.Record.Status.Ended():
		return nil, reject(notEnded(run, h.Record.Status))
	}
	p := &store.Pruned{
		Run: run, By: o.By, Status: h.Record.Status, EndedAt: h.Record.EndedAt, Seq: h.Record.LastSeq, Hash: hex.EncodeToString(h.Hash),
	}
	if h.place, err = t.placed(&h); err != nil {
		return nil, err
	}
	from, to := eventKey(h.Num, 0), eventKey(h.Num, maxSeq)
	used := make(store.Used)
	if err := metered(t.ctx, t.w.conn, run, h.Num, used); err != nil {
		return nil, err
	}
	p.Used = used.Entries()
	err = t.row("SELECT count(payload), ifnull(sum(octet_length(payload)), 0) FROM events WHERE key BETWEEN ? AND ?", []any{from, to}, &p.Events, &p.Bytes)
	if err != nil {
		return nil, err
	}
	if o.ContentOnly && p.Events == 0 {
		return nil, nil
	}
	if err := t.dropContents(run, p); err != nil {
		return nil, err
	}
	kind := store.SystemRunRemoved
	if o.ContentOnly {
		kind, err = store.SystemContentPruned, t.emptyRun(&h, now, p)
	} else {
		err = t.removeRun(&h)
	}
	if err != nil {
		return nil, err
	}
	return p, t.appendSystem(now, kind, p)
}

// dropContents removes what is kept for a run.
func (t *tx) dropContents(run toolcrib.RunID, p *store.Pruned) error {
	for {
		var num, size int64
		err := t.row("DELETE FROM contents WHERE num = (SELECT min(num) FROM contents WHERE run_id = ?) RETURNING num, size", []any{string(run)}, &num, &size)
		if errors.Is(err, sql.ErrNoRows) {
			return nil
		}
		if err != nil {
			return err
		}
		if _, err := t.exec("DELETE FROM content_pieces WHERE key BETWEEN ? AND ?", eventKey(num, 0), eventKey(num, math.MaxUint32)); err != nil {
			return err
		}
		p.Contents, p.Bytes = p.Contents+1, p.Bytes+size
	}
}

// emptyRun takes the content out of a run: out of its events, and out of its row
// the answer and the text of its error.
func (t *tx) emptyRun(h *head, now time.Time, p *store.Pruned) error {
	if _, err := t.exec("UPDATE events SET payload = NULL WHERE key BETWEEN ? AND ?", eventKey(h.Num, 0), eventKey(h.Num, maxSeq)); err != nil {
		return err
	}
	var failure any
	if h.Record.Error != nil {
		raw, err := store.EncodeJSON(store.RunError{Code: h.Record.Error.Code, Ref: h.Record.Error.Ref})
		if err != nil {
			return err
		}
		failure = string(raw)
	}
	_, err := t.exec("UPDATE runs SET content = '', error = ?, pruned_at = ? WHERE num = ?", failure, now.UnixMicro(), h.Num)
	if err != nil {
		return err
	}
	var r store.Row
	err = one(t.ctx, t.w.conn, selectRow+" WHERE num = ?", []any{h.Num}, func(scan scanFunc) error { return scanRun(scan, &r) })
	if err != nil {
		return err
	}
	p.Record = r.Digest()
	seal := r.Seal(t.w.keys.SealRun())
	_, err = t.exec("UPDATE runs SET seal = ? WHERE num = ?", seal[:], h.Num)
	return err
}

// removeRun removes a run; its anchors stay in the system journal.
func (t *tx) removeRun(h *head) error {
	if _, err := t.exec("DELETE FROM events WHERE key BETWEEN ? AND ?", eventKey(h.Num, 0), eventKey(h.Num, maxSeq)); err != nil {
		return err
	}
	if _, err := t.exec("DELETE FROM runs WHERE num = ?", h.Num); err != nil {
		return err
	}
	return t.move(h.place, store.Seal{})
}

// Compact writes the database file anew, without what is unused in it, and empties
// the -wal file, which holds pages as they were. Overwriting what is removed is not
// enough to be rid of it: when SQLite moves rows from page to page, it leaves copies
// in the gaps of pages. done is false if another process, or a disk without room for
// a second copy, did not let it; nothing is lost then.
func (s *Store) Compact(ctx context.Context) (done bool, err error) {
	if s.writer == nil {
		return false, s.notWritable()
	}
	return s.checkpoint(ctx, "VACUUM")
}

// While a file is written anew, one lies beside it, so that other writers wait for longer
// than they would for anybody else; compactWait bounds that.
const (
	compactEnd  = "-compact"
	compactWait = 10 * time.Minute
)

// compacting reports whether the database is being written anew.
func compacting(path string) bool {
	info, err := os.Stat(path + compactEnd)
	return err == nil && time.Since(info.ModTime()) < compactWait
}

// compactFrom is the size from which a file is written anew when more than half of it is
// unused.
const compactFrom = 4 << 20

// giveBack empties the -wal file, and writes the database anew if that gives much room back.
func (s *Store) giveBack(ctx context.Context) error {
	var pages, free, size int64
	err := s.readers.row(ctx, "SELECT page_count, freelist_count, page_size FROM pragma_page_count, pragma_freelist_count, pragma_page_size", nil, &pages, &free, &size)
	if err != nil {
		return s.failed(ctx, err)
	}
	first := ""
	if pages*size >= compactFrom && free*2 > pages {
		first = "VACUUM"
	}
	_, err = s.checkpoint(ctx, first)
	return err
}

// checkpoint runs a statement, if any, and empties the -wal file.
func (s *Store) checkpoint(ctx context.Context, first string) (done bool, err error) {
	c, err := connect(ctx, s.path, s.busy)
	if err != nil {
		return false, s.failed(ctx, err)
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	if first != "" {
		if err := os.WriteFile(s.path+compactEnd, nil, 0o600); err != nil {
			return false, s.failed(ctx, err)
		}
		err = c.run(ctx, first)
		_ = os.Remove(s.path + compactEnd) // what is left of it counts for compactWait only
	}
	var busy, pages, moved int
	if err == nil {
		err = c.row(ctx, "PRAGMA wal_checkpoint(TRUNCATE)", nil, &busy, &pages, &moved)
	}
	switch kind := mapped(s.path, err); {
	case errors.Is(kind, store.ErrLocked), errors.Is(kind, store.ErrFull):
		return false, nil
	case err != nil:
		return false, s.failed(ctx, err)
	}
	return busy == 0, nil
}
