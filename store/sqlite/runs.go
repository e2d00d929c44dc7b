package sqlite

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/store"
)

// ambiguousShown is how many runs an ambiguous ID names.
const ambiguousShown = 10

// Run implements [store.Store].
func (s *Store) Run(ctx context.Context, id toolcrib.RunID) (store.RunRecord, error) {
	runs, _, err := s.list(ctx, "id = ?", []any{string(id)}, "num", 1)
	if err == nil && len(runs) == 0 {
		err = fmt.Errorf("run %s: %w", id, toolcrib.ErrNotFound)
	}
	if err != nil {
		return store.RunRecord{}, err
	}
	return runs[0], nil
}

// FindRun implements [store.Store].
func (s *Store) FindRun(ctx context.Context, prefix string) (store.RunRecord, error) {
	rec, err := s.Run(ctx, toolcrib.RunID(prefix))
	if !errors.Is(err, toolcrib.ErrNotFound) || prefix == "" {
		return rec, err
	}
	full := prefix
	if !strings.HasPrefix(full, "run_") {
		full = "run_" + full
	}
	// IDs are compared byte by byte; 0xff comes after every byte of an ID.
	runs, _, err := s.list(ctx, "id >= ? AND id < ?", []any{full, full + "\xff"}, "id", ambiguousShown+1)
	switch {
	case err != nil:
		return store.RunRecord{}, err
	case len(runs) == 0:
		return store.RunRecord{}, fmt.Errorf("run %s: %w", prefix, toolcrib.ErrNotFound)
	case len(runs) == 1:
		return runs[0], nil
	}
	ambiguous := &store.AmbiguousError{Prefix: prefix, More: len(runs) > ambiguousShown}
	for _, r := range runs[:min(len(runs), ambiguousShown)] {
		ambiguous.IDs = append(ambiguous.IDs, r.ID)
	}
	return store.RunRecord{}, ambiguous
}

// Runs returns a page of the runs that fit, newest first.
func (s *Store) Runs(ctx context.Context, f store.Filter) (store.Page, error) {
	where, args, err := condition(f)
	if err != nil {
		return store.Page{}, err
	}
	limit := f.Bound()
	runs, nums, err := s.list(ctx, where, args, "num DESC", limit+1)
	if err != nil {
		return store.Page{}, err
	}
	page := store.Page{Runs: runs}
	if len(runs) > limit {
		page.Runs = runs[:limit]
		page.Next = strconv.FormatInt(nums[limit-1], 36)
	}
	return page, nil
}

// SessionRuns implements [store.Store].
func (s *Store) SessionRuns(ctx context.Context, user string, session toolcrib.SessionID) ([]store.RunRecord, error) {
	if session == "" {
		return nil, nil
	}
	page, err := s.Runs(ctx, store.Filter{User: user, Session: session, TopLevel: true, Limit: store.MaxLimit})
	slices.Reverse(page.Runs)
	return page.Runs, err
}

// condition is a filter as SQL. Only values of its fields become arguments.
func condition(f store.Filter) (where string, args []any, err error) {
	terms := []string{"1"}
	add := func(term string, values ...any) {
		terms, args = append(terms, term), append(args, values...)
	}
	if f.Cursor != "" {
		num, err := strconv.ParseInt(f.Cursor, 36, 64)
		if err != nil || num <= 0 {
			return "", nil, store.ErrBadCursor
		}
		add("num < ?", num)
	}
	if len(f.Status) > 0 {
		values, open := make([]any, len(f.Status)), true
		for i, st := range f.Status {
			values[i] = string(st)
			open = open && !st.Ended()
		}
		add("status IN (?"+strings.Repeat(",?", len(values)-1)+")", values...)
		if open {
			add("ended_at IS NULL")
		}
	}
	if f.User != "" {
		add("user = ?", f.User)
	}
	if f.Token != "" {
		add("token = ? AND token <> ''", f.Token)
	}
	if f.Agent != "" {
		add("agent = ?", f.Agent)
	}
	if f.Session != "" {
		add("session_id = ? AND session_id <> ''", string(f.Session))
	}
	if f.Parent != "" {
		add("parent_id = ? AND parent_id <> ''", string(f.Parent))
	}
	if f.TopLevel {
		add("parent_id = ''")
	}
	if f.Deciding {
		add("pending IS NOT NULL AND pending ->> 'run_id' IS NULL")
	}
	if !f.Since.IsZero() {
		add("created_at >= ?", f.Since.UnixMicro())
	}
	return strings.Join(terms, " AND "), args, nil
}

// list returns runs and their numbers. where and order are made by this package.
func (s *Store) list(ctx context.Context, where string, args []any, order string, limit int) (runs []store.RunRecord, nums []int64, err error) {
	query := selectRow + " WHERE " + where + " ORDER BY " + order + " LIMIT ?"
	err = s.readers.each(ctx, query, append(args, limit), func(scan scanFunc) error {
		var h head
		err := scanRun(scan, &h.Row)
		if err == nil {
			err = h.Check(s.keys)
		}
		runs, nums = append(runs, h.Record), append(nums, h.Num)
		return err
	})
	if err != nil {
		return nil, nil, s.failed(ctx, err)
	}
	return runs, nums, nil
}
