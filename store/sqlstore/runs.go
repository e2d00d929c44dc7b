package sqlstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/store"
)

// ambiguousShown bounds the runs that an error about an ambiguous ID lists.
const ambiguousShown = 10

// Run implements [store.Store].
func (s *Store) Run(ctx context.Context, id toolcrib.RunID) (store.RunRecord, error) {
	row, err := s.row(ctx, id)
	if err != nil {
		return store.RunRecord{}, err
	}
	return row.Record, nil
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

// Runs returns a page of the runs that match, newest first.
func (s *Store) Runs(ctx context.Context, f store.Filter) (store.Page, error) {
	where, err := condition(f)
	if err != nil {
		return store.Page{}, err
	}
	limit := store.Bound(f.Limit)
	runs, nums, err := s.list(ctx, "TRUE"+where.text, where.args, "num DESC", limit+1)
	if err != nil {
		return store.Page{}, err
	}
	page := store.Page{Runs: runs}
	if len(runs) > limit {
		page.Runs = runs[:limit]
		page.Next = strconv.FormatInt(nums[limit-1], 10)
	}
	return page, nil
}

// OpenRuns implements [store.Store].
func (s *Store) OpenRuns(ctx context.Context) (map[toolcrib.Status]int64, error) {
	open := map[toolcrib.Status]int64{}
	err := reading{s}.Each(ctx, "SELECT status, count(*) FROM runs WHERE ended_at IS NULL GROUP BY status", nil,
		func(scan Scan) error {
			var status toolcrib.Status
			var n int64
			err := scan(&status, &n)
			open[status] = n
			return err
		})
	return open, err
}

// OpenSites implements [store.Store].
func (s *Store) OpenSites(ctx context.Context, driver string) (map[string]int64, error) {
	open := map[string]int64{}
	err := reading{s}.Each(ctx, "SELECT site, count(*) FROM runs WHERE ended_at IS NULL AND driver = ? GROUP BY site",
		[]any{driver}, func(scan Scan) error {
			var site string
			var n int64
			err := scan(&site, &n)
			open[site] = n
			return err
		})
	return open, err
}

// saidAtOnce is the number of texts that one query looks up.
const saidAtOnce = 100

// Said implements [store.Store].
func (s *Store) Said(
	ctx context.Context, user string, texts []store.TextHash,
) (known map[store.TextHash]bool, runs []store.RunRecord, err error) {
	known = map[store.TextHash]bool{}
	for part := range slices.Chunk(texts, saidAtOnce) {
		args, of := make([]any, len(part)), make(map[store.SaidKey]store.TextHash, len(part))
		for i, text := range part {
			key := text.Of(user)
			args[i], of[key] = key[:], text
		}
		in := "hash IN (?" + strings.Repeat(",?", len(part)-1) + ")"
		err := reading{s}.Each(ctx, "SELECT DISTINCT hash FROM said JOIN runs USING (num) WHERE "+in, args, func(scan Scan) error {
			var key []byte
			err := scan(&key)
			if err == nil && len(key) == len(store.SaidKey{}) {
				known[of[store.SaidKey(key)]] = true
			}
			return err
		})
		if err != nil {
			return nil, nil, err
		}
		more, _, err := s.list(ctx, "num IN (SELECT num FROM said WHERE "+in+")", args, "taint = '', num DESC",
			store.MaxOrigins)
		if err != nil {
			return nil, nil, err
		}
		runs = append(runs, more...)
	}
	return known, runs, nil
}

// condition returns a filter in SQL.
func condition(f store.Filter) (c clauses, err error) {
	if f.Cursor != "" {
		num, err := strconv.ParseInt(f.Cursor, 10, 64) // digits only, so that hardly any other text is accepted
		if err != nil || num <= 0 {
			return c, store.ErrBadCursor
		}
		c.add(true, "num < ?", num)
	}
	if len(f.Status) > 0 {
		values, open := make([]any, len(f.Status)), true
		for i, st := range f.Status {
			values[i] = string(st)
			open = open && !st.Ended()
		}
		c.add(true, "status IN (?"+strings.Repeat(",?", len(values)-1)+")", values...)
		c.add(open, "ended_at IS NULL")
	}
	c.add(f.User != "", "user = ?", f.User)
	c.add(f.Token != "", "token = ? AND token <> ''", f.Token)
	c.add(f.Agent != "", "agent = ?", f.Agent)
	c.add(f.Session != "", "session_id = ? AND session_id <> ''", string(f.Session))
	c.add(f.Beside != "", "beside = ? AND beside <> ''", string(f.Beside))
	c.add(f.Parent != "", "parent_id = ? AND parent_id <> ''", string(f.Parent))
	c.add(f.TopLevel, "parent_id = ''")
	c.add(f.Tainted, "taint <> ''")
	c.add(f.Deciding, "pending IS NOT NULL AND pending ->> 'run_id' IS NULL")
	c.add(f.Approval != "", "pending IS NOT NULL AND pending ->> 'approval_id' = ?", f.Approval)
	c.add(f.Site != "", "site IN ('', ?)", f.Site)
	c.add(!f.Since.IsZero(), "created_at >= ?", f.Since.UnixMicro())
	c.add(f.Once != "", "once >= ? AND once < ? AND once <> ''", f.Once+":", f.Once+";")
	c.add(!f.Waiting.IsZero(), "waits_since <= ? AND waits_since IS NOT NULL", f.Waiting.UnixMicro())
	c.add(f.Holds, "ended_at IS NULL AND EXISTS (SELECT 1 FROM events WHERE key BETWEEN num << 32 AND (num << 32) + ?"+
		" AND kind = 'confirmation_resolved' AND payload ->> '$.remember.scope' = 'run')", int64(maxSeq))
	c.add(f.Freed, "pending IS NOT NULL AND waits_since IS NULL AND EXISTS (SELECT 1 FROM runs below WHERE"+
		" below.id = runs.pending ->> 'run_id' AND below.ended_at IS NOT NULL)")
	const pause = "CAST(pending ->> '$.error.retry_ms' AS BIGINT)"
	c.add(!f.Retry.IsZero(), "status = ? AND waits_since IS NOT NULL AND "+pause+" > 0 AND waits_since + 1000 * "+pause+" <= ?",
		string(toolcrib.StatusWaitingForProvider), f.Retry.UnixMicro())
	return c, nil
}

// list returns runs and their numbers. where and order must not contain user input.
func (s *Store) list(ctx context.Context, where string, args []any, order string, limit int) (runs []store.RunRecord,
	nums []int64, err error,
) {
	err = eachRow(ctx, reading{s}, " WHERE "+where+" ORDER BY "+order+" LIMIT ?", append(args, limit),
		func(row *store.Row) error {
			runs, nums = append(runs, row.Record), append(nums, row.Num)
			return row.Check(s.keys)
		})
	return runs, nums, err
}

func text(s string) string { return store.Text(s) }

// runColumns are the columns of a run's row, in the order of places.
var runColumns = "num, id, last_hash, kept_seq, seal, pruned_at, site, " + strings.Join(store.RowColumns, ", ")

func places(r *store.Row) []any {
	return r.Places([]any{&r.Num, &r.Record.ID, &r.Hash, &r.Kept, &r.Sealed, &r.Record.PrunedAt, &r.Record.Site})
}

// eachRow calls do with rows of runs as stored. rest must not contain user input.
func eachRow(ctx context.Context, r Reader, rest string, args []any, do func(*store.Row) error) error {
	return r.Each(ctx, "SELECT "+runColumns+" FROM runs"+rest, args, func(scan Scan) error {
		row := new(store.Row)
		if err := scan(places(row)...); err != nil {
			return err
		}
		if err := row.Docs.Read(&row.Record); err != nil {
			return err
		}
		return do(row)
	})
}

// wholeMicro returns a time as it will be read from the database.
func wholeMicro(t time.Time) time.Time { return store.Micro(t.UnixMicro()) }

// eventKey is the key of an event, or of a piece of content, in its table.
func eventKey(num int64, seq toolcrib.Seq) int64 { return num<<32 | int64(seq) }
