package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"slices"
	"strings"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/store"
)

// usageGroups are the keys of a usage row, by what it is summed up by.
var usageGroups = map[store.UsageBy]string{
	store.UsageTotal:      "''",
	store.UsageByDay:      "day",
	store.UsageByUser:     "user",
	store.UsageByAgent:    "agent",
	store.UsageByModel:    "provider, model",
	store.UsageByProvider: "provider",
	store.UsageBySession:  "session_id",
	store.UsageByRun:      "run_id",
}

// Usage sums up what runs have used, also those that were pruned since; see
// [store.UsageRow]. Days come in their order, everything else by cost, then tokens,
// then calls, the most first.
func (s *Store) Usage(ctx context.Context, q store.UsageQuery) (rows []store.UsageRow, err error) {
	if err := q.Check(); err != nil {
		return nil, err
	}
	where, args := usageWhere(q)
	if q.By == store.UsageByTool {
		rows, err = s.toolUsage(ctx, where, append(args, q.Bound()))
	} else {
		rows, err = s.modelUsage(ctx, q.By, where, append(args, q.Bound()))
	}
	if err != nil {
		return nil, s.failed(ctx, err)
	}
	return rows, nil
}

func usageWhere(q store.UsageQuery) (where string, args []any) {
	terms := []string{"1"}
	if !q.Since.IsZero() {
		terms, args = append(terms, "day >= ?"), append(args, int64(store.DayOf(q.Since)))
	}
	if !q.Until.IsZero() {
		terms, args = append(terms, "day <= ?"), append(args, int64(store.DayOf(q.Until)))
	}
	if q.User != "" {
		terms, args = append(terms, "user = ?"), append(args, q.User)
	}
	return strings.Join(terms, " AND "), args
}

func (s *Store) modelUsage(ctx context.Context, by store.UsageBy, where string, args []any) ([]store.UsageRow, error) {
	group, order := usageGroups[by], "ORDER BY nano DESC, input + output DESC, calls DESC, 1"
	columns := group + ", ''"
	switch by {
	case store.UsageByDay:
		order = "ORDER BY 1"
	case store.UsageByModel:
		columns = group
	}
	query := "SELECT " + columns + `, count(DISTINCT run_id), sum(requests), sum(input_tokens) input, sum(cached_tokens), sum(write_tokens),
		sum(output_tokens) output, sum(reason_tokens), sum(nano_usd) nano, max(estimated), sum(calls) calls, sum(errors)
		FROM usage WHERE ` + where + " GROUP BY " + group + " " + order + " LIMIT ?"
	var rows []store.UsageRow
	err := each(ctx, s.readers.QueryContext, query, args, func(scan func(...any) error) error {
		var r store.UsageRow
		var key any
		var second string
		var nano int64
		if err := scan(&key, &second, &r.Runs, &r.Requests, &r.InputTokens, &r.CachedInputTokens, &r.CacheWriteTokens,
			&r.OutputTokens, &r.ReasoningTokens, &nano, &r.Estimated, &r.Calls, &r.Errors); err != nil {
			return err
		}
		switch k := key.(type) {
		case int64:
			r.Key = store.Day(k).String()
		case string:
			r.Key = k
		}
		switch by {
		case store.UsageByModel:
			r.Provider, r.Model = r.Key, second
			if second != "" {
				r.Key += "/" + second
			}
		case store.UsageByProvider:
			r.Provider = r.Key
		}
		r.TotalTokens, r.CostUSD = r.InputTokens+r.OutputTokens, float64(nano)/1e9
		rows = append(rows, r)
		return nil
	})
	return rows, err
}

func (s *Store) toolUsage(ctx context.Context, where string, args []any) ([]store.UsageRow, error) {
	query := `SELECT tool, sum(calls), sum(errors), sum(refused), sum(duration_ms) FROM tool_usage
		WHERE ` + where + " GROUP BY tool ORDER BY 2 DESC, 1 LIMIT ?"
	var rows []store.UsageRow
	err := each(ctx, s.readers.QueryContext, query, args, func(scan func(...any) error) error {
		var r store.UsageRow
		if err := scan(&r.Key, &r.Calls, &r.Errors, &r.Refused, &r.DurationMS); err != nil {
			return err
		}
		rows = append(rows, r)
		return nil
	})
	return rows, err
}

// ToolCounts returns how often each tool was called and failed, in all runs, also
// in those that were pruned since.
func (s *Store) ToolCounts(ctx context.Context) (map[string]store.ToolCount, error) {
	counts := make(map[string]store.ToolCount)
	err := each(ctx, s.readers.QueryContext, "SELECT tool, sum(calls), sum(errors) FROM tool_usage GROUP BY tool", nil, func(scan func(...any) error) error {
		var name string
		var c store.ToolCount
		if err := scan(&name, &c.Calls, &c.Errors); err != nil {
			return err
		}
		counts[name] = c
		return nil
	})
	if err != nil {
		return nil, s.failed(ctx, err)
	}
	return counts, nil
}

const (
	usageColumns = "day, run_id, provider, model, user, agent, session_id, requests, input_tokens, cached_tokens, write_tokens, output_tokens, reason_tokens, nano_usd, estimated, calls, errors"
	addUsage     = ` ON CONFLICT DO UPDATE SET requests = requests + excluded.requests, input_tokens = input_tokens + excluded.input_tokens,
		cached_tokens = cached_tokens + excluded.cached_tokens, write_tokens = write_tokens + excluded.write_tokens,
		output_tokens = output_tokens + excluded.output_tokens, reason_tokens = reason_tokens + excluded.reason_tokens,
		nano_usd = nano_usd + excluded.nano_usd, estimated = max(estimated, excluded.estimated),
		calls = calls + excluded.calls, errors = errors + excluded.errors`
	toolColumns = "tool, day, agent, user, calls, errors, refused, duration_ms"
	addToolUse  = ` ON CONFLICT DO UPDATE SET calls = calls + excluded.calls, errors = errors + excluded.errors,
		refused = refused + excluded.refused, duration_ms = duration_ms + excluded.duration_ms`
)

func usageArgs(args []any, k store.UsageKey, v store.UsageSum) []any {
	return append(args, int64(k.Day), string(k.Run), text(k.Provider), text(k.Model), text(k.User), text(k.Agent), text(string(k.Session)),
		v.Requests, v.InputTokens, v.CachedInputTokens, v.CacheWriteTokens, v.OutputTokens, v.ReasoningTokens, v.NanoUSD, v.Estimated, v.Calls, v.Errors)
}

func toolArgs(args []any, k store.ToolUseKey, v store.ToolUseSum) []any {
	return append(args, k.Tool, int64(k.Day), text(k.Agent), text(k.User), v.Calls, v.Errors, v.Refused, v.DurationMS)
}

var (
	usageInserts = newInserts("usage", usageColumns, addUsage)
	toolInserts  = newInserts("tool_usage", toolColumns, addToolUse)
)

// putUsed adds to the projections.
func putUsed(exec execFunc, u store.Used) error {
	var args []any
	for k, v := range u.Models {
		args = usageArgs(args, k, v)
	}
	if err := usageInserts.run(exec, args); err != nil {
		return err
	}
	args = args[:0]
	for k, v := range u.Tools {
		args = toolArgs(args, k, v)
	}
	return toolInserts.run(exec, args)
}

// metered adds what the events of a run say was used.
func metered(ctx context.Context, query queryFunc, run toolcrib.RunID, num int64, used store.Used) error {
	const events = `SELECT key & 0xffffffff, kind, time, payload, payload_hash, hash FROM events WHERE key BETWEEN ? AND ? AND payload IS NOT NULL
		AND kind IN ('run_started', 'model_request', 'usage', 'model_failed', 'tool_result', 'done', 'error') ORDER BY key`
	var m store.Meter
	rec := store.RunRecord{ID: run}
	return each(ctx, query, events, []any{eventKey(num, 0), eventKey(num, maxSeq)}, func(scan func(...any) error) error {
		var r stored
		if err := scan(&r.seq, &r.kind, &r.time, &r.payload, &r.payloadHash, &r.hash); err != nil {
			return err
		}
		e, err := r.decode(run)
		if err != nil {
			return err
		}
		m.Learn(e.Body)
		if c, ok := m.Charge(&rec, e); ok {
			used.Add(c)
		}
		store.Project(&rec, e)
		return nil
	})
}

// kept is used as a record of pruning keeps it, in an order of its own.
func kept(u store.Used) store.KeptUsage {
	k := store.KeptUsage{Usage: []store.UsageEntry{}, ToolUsage: []store.ToolUseEntry{}}
	for key, sum := range u.Models {
		k.Usage = append(k.Usage, store.UsageEntry{UsageKey: key, UsageSum: sum})
	}
	for key, sum := range u.Tools {
		k.ToolUsage = append(k.ToolUsage, store.ToolUseEntry{ToolUseKey: key, ToolUseSum: sum})
	}
	slices.SortFunc(k.Usage, func(a, b store.UsageEntry) int {
		return cmp.Or(cmp.Compare(a.Day, b.Day), strings.Compare(string(a.Run), string(b.Run)), strings.Compare(a.Provider, b.Provider),
			strings.Compare(a.Model, b.Model), strings.Compare(a.User, b.User), strings.Compare(a.Agent, b.Agent), strings.Compare(string(a.Session), string(b.Session)))
	})
	slices.SortFunc(k.ToolUsage, func(a, b store.ToolUseEntry) int {
		return cmp.Or(strings.Compare(a.Tool, b.Tool), cmp.Compare(a.Day, b.Day), strings.Compare(a.Agent, b.Agent), strings.Compare(a.User, b.User))
	})
	return k
}

// readMeter reads what the meter of a run must know from its events.
func (t *tx) readMeter(num int64) (m store.Meter, err error) {
	const columns = "SELECT payload FROM events WHERE key BETWEEN ? AND ? AND payload IS NOT NULL AND kind = "
	for _, q := range []struct {
		kind  toolcrib.Kind
		query string
	}{
		{journal.KindRunStarted, columns + "'run_started' ORDER BY key LIMIT 1"},
		{journal.KindModelRequest, columns + "'model_request' ORDER BY key DESC LIMIT 1"},
	} {
		var payload []byte
		err := t.row(q.query, []any{eventKey(num, 0), eventKey(num, maxSeq)}, &payload)
		if errors.Is(err, sql.ErrNoRows) {
			continue
		}
		if err != nil {
			return m, err
		}
		body, err := journal.Decode(q.kind, payload)
		if err != nil {
			return m, err
		}
		m.Learn(body)
	}
	return m, nil
}
