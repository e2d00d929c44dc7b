package sqlstore

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/hex"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/api"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/store"
)

// Prune removes runs, or only their content. Each run is removed with the runs below it in a
// transaction of its own, which is recorded in the system journal. If a named run does not exist, the
// error is toolcrib.ErrNotFound; if a run below it has not ended, toolcrib.ErrConflict; if it has not
// ended itself, or is part of a run that has not, a store.OpenRunError. In these cases nothing is
// pruned. Removing content that is already removed has no effect. If Prune is interrupted, the result
// reports the runs that were pruned.
//
// Removed data is overwritten, if the database can do that. SQLite rewrites the whole file, which takes
// seconds for each GiB, during which other writers wait, and as much disk space again as the file has.
func (s *Store) Prune(ctx context.Context, o store.PruneOptions) (api.PruneResult, error) {
	if err := o.Check(); err != nil {
		return api.PruneResult{}, err
	}
	runs, err := s.toPrune(ctx, o)
	if err != nil {
		return api.PruneResult{}, err
	}
	result, _, err := s.pruneEach(ctx, runs, s.now(), o, math.MaxInt)
	if err == nil && len(result.Runs) > 0 {
		result.Wiped, err = s.Compact(ctx)
	}
	return result, err
}

// toPrune returns the runs that options select, without the runs below them.
func (s *Store) toPrune(ctx context.Context, o store.PruneOptions) (runs []toolcrib.RunID, err error) {
	for _, run := range o.Runs {
		if _, err := s.Run(ctx, run); err != nil {
			return nil, err
		}
		if _, err := prunable(ctx, reading{s}, run); err != nil {
			return nil, undone(err)
		}
	}
	if len(o.Runs) > 0 {
		return o.Runs, nil
	}
	runs, _, err = s.expired(ctx, s.now().Add(-o.OlderThan), o.ContentOnly, false, math.MaxInt32)
	return runs, err
}

// selectAbove selects the runs above a run, the topmost first: a run starts after its parent.
const selectAbove = `WITH RECURSIVE above(id) AS (SELECT parent_id FROM runs WHERE id = ?1 AND parent_id <> ''
	UNION SELECT p.parent_id FROM runs p JOIN above a ON p.id = a.id WHERE p.parent_id <> '')
	SELECT r.id, r.status, r.driver FROM runs r WHERE r.id IN (SELECT id FROM above) ORDER BY r.num`

// prunable returns a run and all runs below it, or nil if it does not exist. It returns an error if one
// of them has not ended, or a run above it, whose driver still reads the runs below.
func prunable(ctx context.Context, r Reader, run toolcrib.RunID) (tree []toolcrib.RunID, err error) {
	found := store.OpenRunError{Run: run}
	err = r.Each(ctx, selectTree, []any{string(run)}, func(scan Scan) error {
		err := scan(&found.Open, &found.Status, &found.Driver)
		tree = append(tree, found.Open)
		switch {
		case err != nil || found.Status.Ended():
			return err
		case found.Open == run:
			return reject(&found)
		}
		return reject(toolcrib.Errorf(toolcrib.CodeConflict, "run %s, a part of run %s, has not ended (%s), so neither can be pruned",
			found.Open, run, found.Status))
	})
	if err != nil {
		return nil, err
	}
	return tree, r.Each(ctx, selectAbove, []any{string(run)}, func(scan Scan) error {
		err := scan(&found.Open, &found.Status, &found.Driver)
		if err == nil && !found.Status.Ended() {
			err = reject(&found)
		}
		return err
	})
}

// pruneEach prunes up to most runs, each with the runs below it in a transaction of its own. more
// reports whether others are left.
func (s *Store) pruneEach(
	ctx context.Context, runs []toolcrib.RunID, now time.Time, o store.PruneOptions, most int,
) (result api.PruneResult, more bool, err error) {
	for _, run := range runs {
		if len(result.Runs) >= most {
			return result, true, nil
		}
		var all []*store.Pruned
		err := s.write(ctx, &job{barrier: true, do: func(t *tx) error {
			all = nil
			tree, err := prunable(t.ctx, t.w.db, run)
			for i := 0; err == nil && i < len(tree); i++ {
				var pruned *store.Pruned
				if pruned, err = t.prune(tree[i], now, o); pruned != nil {
					all = append(all, pruned)
				}
			}
			return err
		}})
		if err != nil {
			return result, false, err
		}
		for _, pruned := range all {
			result.Runs = append(result.Runs, pruned.Run)
			result.Events += pruned.Events
			result.Contents += pruned.Contents
			result.Bytes += pruned.Bytes
		}
	}
	return result, false, nil
}

// prune prunes one run of a prunable tree. It returns nil if there was nothing to do.
func (t *tx) prune(run toolcrib.RunID, now time.Time, o store.PruneOptions) (*store.Pruned, error) {
	h, err := t.readHead(run)
	if err != nil {
		return nil, err
	}
	p := &store.Pruned{
		Run: run, By: o.By, Status: h.Record.Status, EndedAt: h.Record.EndedAt, Seq: h.Record.LastSeq,
		Hash: hex.EncodeToString(h.Hash),
	}
	if h.place, err = t.placed(&h); err != nil {
		return nil, err
	}
	from, to := eventKey(h.Num, 0), eventKey(h.Num, maxSeq)
	used := make(store.Used)
	if err := metered(t.ctx, t.w.db, run, h.Num, used); err != nil {
		return nil, err
	}
	if use := h.Record.Use(); !o.ContentOnly && use.Requests > 0 {
		used.Add(use)
		t.used.Add(use)
	}
	p.Used = used.Entries()
	err = t.row("SELECT count(payload), coalesce(sum(octet_length(payload)), 0) FROM events WHERE key BETWEEN ? AND ?",
		[]any{from, to}, &p.Events, &p.Bytes)
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

// dropContents removes the contents of a run.
func (t *tx) dropContents(run toolcrib.RunID, p *store.Pruned) error {
	for {
		var num, size int64
		err := t.row("DELETE FROM contents WHERE num = (SELECT min(num) FROM contents WHERE run_id = ?) RETURNING num, size",
			[]any{string(run)}, &num, &size)
		if errors.Is(err, sql.ErrNoRows) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := t.later("DELETE FROM content_pieces WHERE key BETWEEN ? AND ?", eventKey(num, 0),
			eventKey(num, math.MaxUint32)); err != nil {
			return err
		}
		p.Contents, p.Bytes = p.Contents+1, p.Bytes+size
	}
}

// emptyRun removes the content of a run: from its events, and from its row the answer and the text of
// its error.
func (t *tx) emptyRun(h *head, now time.Time, p *store.Pruned) error {
	if err := t.later("UPDATE events SET payload = NULL WHERE key BETWEEN ? AND ?", eventKey(h.Num, 0),
		eventKey(h.Num, maxSeq)); err != nil {
		return err
	}
	h.Record.Content, h.Record.PrunedAt = "", wholeMicro(now)
	if failure := h.Record.Error; failure != nil {
		h.Record.Error = &journal.RunError{Code: failure.Code, Class: failure.Class, Ref: failure.Ref}
	}
	var err error
	if h.Docs, err = h.Record.Docs(); err != nil {
		return err
	}
	p.Record = h.Digest()
	seal := h.Seal(t.w.keys.SealRun(), h.Values(nil))
	err = t.later("UPDATE runs SET content = '', error = ?, pruned_at = ?, seal = ? WHERE num = ?", h.Docs.Error,
		h.Record.PrunedAt, seal[:], h.Num)
	return err
}

// removeRun removes a run; its anchors stay in the system journal.
func (t *tx) removeRun(h *head) error {
	if err := t.later("DELETE FROM events WHERE key BETWEEN ? AND ?", eventKey(h.Num, 0),
		eventKey(h.Num, maxSeq)); err != nil {
		return err
	}
	if err := t.later("DELETE FROM said WHERE num = ?", h.Num); err != nil {
		return err
	}
	if err := t.endLease(h.Record.ID); err != nil {
		return err
	}
	if err := t.later("DELETE FROM runs WHERE num = ?", h.Num); err != nil {
		return err
	}
	if err := t.putLast(&h.Record, "coalesce(("+lastRun+"), 0)"); err != nil {
		return err
	}
	return t.move(h.place, store.Seal{})
}

// Compact overwrites removed data. done is false if it was prevented by another process or by lack of
// disk space for a second copy; no data is lost then.
func (s *Store) Compact(ctx context.Context) (done bool, err error) {
	if s.writer == nil {
		return false, s.notWritable()
	}
	done, err = s.db.Compact(ctx, true)
	return done, s.failed(ctx, err)
}

// Run trees: a run and all runs below it.
const (
	// below selects the IDs of the runs below a run r.
	below = `(WITH RECURSIVE below(id) AS (SELECT c.id FROM runs c WHERE c.parent_id = r.id AND c.parent_id <> ''
		UNION SELECT c.id FROM runs c JOIN below b ON c.parent_id = b.id AND c.parent_id <> '') SELECT id FROM below)`
	// treeOlder selects the runs whose parent does not exist, and that ended before the time ?1, as
	// all runs below them did.
	treeOlder = `r.ended_at < ?1 AND NOT EXISTS (SELECT 1 FROM runs p WHERE p.id = r.parent_id)
		AND NOT EXISTS (SELECT 1 FROM runs b WHERE b.id IN ` + below + ` AND (b.ended_at IS NULL OR b.ended_at >= ?1))`
	treeHasContent = `(r.pruned_at IS NULL OR EXISTS (SELECT 1 FROM runs b WHERE b.id IN ` + below +
		` AND b.pruned_at IS NULL))`
	selectTree = `WITH RECURSIVE tree(id) AS (SELECT id FROM runs WHERE id = ?1
		UNION SELECT c.id FROM runs c JOIN tree f ON c.parent_id = f.id AND c.parent_id <> '')
		SELECT r.id, r.status, r.driver FROM runs r WHERE r.id IN (SELECT id FROM tree) ORDER BY r.num`
)

// ApplyRetention prunes runs that are older at now than r allows, the oldest first. Each run is pruned
// with the runs below it in a transaction of its own, which is recorded in the system journal. The work
// of one call is bounded, and other writers get their turn in between; More reports that it must be
// called again. If it is interrupted, the result reports the runs that were pruned.
func (s *Store) ApplyRetention(
	ctx context.Context, r store.Retention, now time.Time,
) (result store.RetentionResult, err error) {
	if err := r.Check(); err != nil {
		return result, err
	}
	if s.writer == nil {
		return result, s.notWritable()
	}
	most := cmp.Or(r.Max, store.DefaultRetentionRuns)
	left := most
	for _, step := range []struct {
		age         time.Duration
		contentOnly bool
		done        *[]toolcrib.RunID
	}{{r.Runs, false, &result.Removed}, {r.Content, true, &result.Emptied}} {
		if step.age == 0 {
			continue
		}
		runs, more, err := s.expired(ctx, now.Add(-step.age), step.contentOnly, true, left)
		if err != nil {
			return result, err
		}
		pruned, cut, err := s.pruneEach(ctx, runs, now,
			store.PruneOptions{ContentOnly: step.contentOnly, By: store.RetentionBy}, left)
		*step.done = pruned.Runs
		left = max(left-len(pruned.Runs), 0)
		result.More = result.More || more || cut
		result.Contents += pruned.Contents
		result.Bytes += pruned.Bytes
		if err != nil {
			return result, err
		}
	}
	if r.Runs > 0 {
		result.Sessions, err = s.dropSessions(ctx, now, store.RetentionBy, most, "created_at < ?",
			now.Add(-r.Runs).UnixMicro())
	}
	if err == nil && len(result.Removed)+len(result.Emptied) > 0 {
		_, err = s.db.Compact(ctx, false)
		err = s.failed(ctx, err)
	}
	return result, err
}

// expired returns the oldest run trees that ended before a time. If sessions is set, it returns only
// those that no younger session needs. more reports whether there are others.
func (s *Store) expired(
	ctx context.Context, before time.Time, contentOnly, sessions bool, limit int,
) (runs []toolcrib.RunID, more bool, err error) {
	query := `SELECT r.id FROM runs r LEFT JOIN sessions s ON r.session_id <> '' AND r.parent_id = '' AND s.id = r.session_id
		AND s.user = r.user WHERE ` + treeOlder
	if sessions {
		query += ` AND NOT (coalesce(s.created_at >= ?1, FALSE) AND r.num = (SELECT max(n.num) FROM runs n
			WHERE n.session_id = r.session_id AND n.session_id <> '' AND n.user = r.user AND n.parent_id = ''))`
	}
	if contentOnly {
		query += " AND " + treeHasContent
	}
	args := []any{before.UnixMicro(), limit + 1}
	err = reading{s}.Each(ctx, query+" ORDER BY r.ended_at, r.num LIMIT ?2", args, func(scan Scan) error {
		runs = append(runs, "")
		return scan(&runs[len(runs)-1])
	})
	if err != nil {
		return nil, false, err
	}
	return runs[:min(len(runs), limit)], len(runs) > limit, nil
}

// RemoveSession implements [store.Store].
func (s *Store) RemoveSession(ctx context.Context, user string, id toolcrib.SessionID, by string) error {
	gone, err := s.dropSessions(ctx, time.Now(), by, 1, "s.id = ? AND s.user = ?", id, user)
	if err == nil && len(gone) == 0 {
		if _, err = s.Session(ctx, user, string(id)); err == nil {
			err = toolcrib.Errorf(toolcrib.CodeConflict, "session %s has runs", id)
		}
	}
	return err
}

// dropSessions removes sessions that match a condition and have no runs, along with their remembered
// approvals.
func (s *Store) dropSessions(
	ctx context.Context, now time.Time, by string, limit int, which string, args ...any,
) (dropped []toolcrib.SessionID, err error) {
	err = s.change(ctx, store.SealedRemembered, func(t *tx) error {
		dropped = nil
		var gone []store.SessionRemoved
		err := t.each(`SELECT id, user FROM sessions s WHERE `+which+`
			AND NOT EXISTS (SELECT 1 FROM runs r WHERE r.session_id = s.id AND r.session_id <> '' AND r.user = s.user) LIMIT ?`,
			append(slices.Clone(args), limit), func(scan Scan) error {
				gone = append(gone, store.SessionRemoved{By: by})
				return scan(&gone[len(gone)-1].ID, &gone[len(gone)-1].User)
			})
		if err != nil {
			return err
		}
		for _, g := range gone {
			if err := t.appendSystem(now, store.SystemSessionRemoved, g); err != nil {
				return err
			}
			list, err := docs[store.Remembered](t.ctx, t.w.db, "kind = 'remembered' AND gone = 0 AND user = ? AND"+
				" doc ->> 'session_id' = ?", g.User, g.ID)
			for i := 0; err == nil && i < len(list); i++ {
				err = t.forget(list[i], wholeMicro(now), by)
			}
			if err != nil {
				return err
			}
			dropped = append(dropped, g.ID)
		}
		return nil
	})
	return dropped, err
}
