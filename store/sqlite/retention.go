package sqlite

import (
	"context"
	"errors"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/store"
)

// ApplyRetention prunes what is older at now than r allows, the oldest first, each
// run with those that it started in a transaction of its own, and says so in the system
// journal. It does a bounded piece of work, during which other writers get their turn;
// More says that it is to be called again. If it is cut off in between, the result tells
// what was pruned by then.
func (s *Store) ApplyRetention(ctx context.Context, r store.Retention, now time.Time) (result store.RetentionResult, err error) {
	if err := r.Check(); err != nil {
		return result, err
	}
	if s.writer == nil {
		return result, s.notWritable()
	}
	by, left := r.By, r.Bound()
	if by == "" {
		by = store.RetentionBy
	}
	for _, step := range []struct {
		age         time.Duration
		contentOnly bool
		done        *[]toolcrib.RunID
	}{{r.Runs, false, &result.Removed}, {r.Content, true, &result.Emptied}} {
		if step.age == 0 {
			continue
		}
		runs, more, err := s.expired(ctx, now.Add(-step.age), step.contentOnly, left)
		if err != nil {
			return result, err
		}
		result.More = result.More || more
		most := len(*step.done) + left
		err = s.pruneEach(ctx, runs, now, store.PruneOptions{ContentOnly: step.contentOnly, InPlace: true, By: by}, most, step.done, &result)
		if err != nil {
			return result, err
		}
		left = max(most-len(*step.done), 0)
	}
	if r.Runs > 0 {
		result.Sessions, err = s.dropSessions(ctx, now, now.Add(-r.Runs), by, r.Bound())
	}
	if err == nil && len(result.Removed)+len(result.Emptied) > 0 {
		err = s.giveBack(ctx)
	}
	return result, err
}

// pruneEach prunes runs until most were.
func (s *Store) pruneEach(ctx context.Context, runs []toolcrib.RunID, now time.Time, o store.PruneOptions, most int, done *[]toolcrib.RunID, result *store.RetentionResult) error {
	for _, run := range runs {
		if len(*done) >= most {
			result.More = true
			return nil
		}
		var one store.PruneResult
		err := s.pruneRun(ctx, run, now, o, &one)
		if errors.Is(err, toolcrib.ErrConflict) { // cannot be: an end is final
			continue
		}
		if err != nil {
			return err
		}
		*done = append(*done, one.Runs...)
		result.Contents += one.Contents
		result.Bytes += one.Bytes
	}
	return nil
}

// expired returns the oldest runs that ended before a moment, as all below them did,
// and that nothing younger needs; more says that there are others.
func (s *Store) expired(ctx context.Context, before time.Time, contentOnly bool, limit int) (runs []toolcrib.RunID, more bool, err error) {
	query := `SELECT r.id FROM runs r LEFT JOIN sessions s ON r.session_id <> '' AND r.parent_id = '' AND s.id = r.session_id AND s.user = r.user
		WHERE ` + familyOlder + `
		AND NOT (ifnull(s.created_at >= ?1, 0) AND r.num = (SELECT max(n.num) FROM runs n
			WHERE n.session_id = r.session_id AND n.session_id <> '' AND n.user = r.user AND n.parent_id = ''))`
	if contentOnly {
		query += " AND " + familyHasContent
	}
	err = s.readers.each(ctx, query+" ORDER BY r.ended_at, r.num LIMIT ?2", []any{before.UnixMicro(), limit + 1}, func(scan scanFunc) error {
		runs = append(runs, "")
		return scan(&runs[len(runs)-1])
	})
	if err != nil {
		return nil, false, s.failed(ctx, err)
	}
	return runs[:min(len(runs), limit)], len(runs) > limit, nil
}

// dropSessions removes sessions that were made before a moment and have no run.
func (s *Store) dropSessions(ctx context.Context, now, before time.Time, by string, limit int) (dropped []toolcrib.SessionID, err error) {
	err = s.write(ctx, &job{do: func(t *tx) error {
		dropped = nil
		var gone []store.SessionRemoved
		err := t.each(`SELECT id, user FROM sessions s WHERE created_at < ?
			AND NOT EXISTS (SELECT 1 FROM runs r WHERE r.session_id = s.id AND r.session_id <> '' AND r.user = s.user) LIMIT ?`,
			[]any{before.UnixMicro(), limit}, func(scan scanFunc) error {
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
			dropped = append(dropped, g.ID)
		}
		return nil
	}})
	return dropped, err
}
