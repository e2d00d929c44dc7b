package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/store"
)

// usageGroups are the keys of a usage row by what it is summed up by, of the tables
// usage and tool_usage; "" = that table does not tell.
var usageGroups = map[store.UsageBy]struct{ usage, tools string }{
	store.UsageTotal:      {"'', ''", "'', ''"},
	store.UsageByDay:      {"day, ''", "day, ''"},
	store.UsageByUser:     {"user, ''", "user, ''"},
	store.UsageByAgent:    {"agent, ''", "agent, ''"},
	store.UsageByModel:    {"provider, model", "provider, model"},
	store.UsageByProvider: {"provider, ''", "provider, ''"},
	store.UsageByTool:     {"", "tool, ''"},
	store.UsageBySession:  {"session_id, ''", ""},
	store.UsageByRun:      {"run_id, ''", ""},
}

// Usage sums up what runs have used, also those that were pruned since; see
// [store.UsageRow]. Days come in their order, everything else by cost, then tokens,
// then calls, the most first.
func (s *Store) Usage(ctx context.Context, q store.UsageQuery) ([]store.UsageRow, error) {
	if err := q.Check(); err != nil {
		return nil, err
	}
	query, args := usageQuery(q)
	var rows []store.UsageRow
	err := s.readers.each(ctx, query, args, func(scan scanFunc) error {
		r, err := scanUsage(scan, q.By)
		rows = append(rows, r)
		return err
	})
	if err != nil {
		return nil, s.failed(ctx, err)
	}
	if q.By == store.UsageTotal && len(rows) == 0 {
		rows = []store.UsageRow{{}}
	}
	return rows, nil
}

// usageQuery is a query as SQL. Only values of its fields become arguments.
func usageQuery(q store.UsageQuery) (query string, args []any) {
	where, values := usageWhere(q)
	var parts []string
	group := usageGroups[q.By]
	if group.usage != "" {
		parts = append(parts, "SELECT "+group.usage+`, count(DISTINCT run_id), sum(requests), sum(input_tokens), sum(cached_tokens), sum(write_tokens),
			sum(output_tokens), sum(reason_tokens), sum(nano_usd), max(estimated), 0, 0, 0, 0 FROM usage WHERE `+where+" GROUP BY 1, 2")
		args = append(args, values...)
	}
	if group.tools != "" {
		parts = append(parts, "SELECT "+group.tools+", 0, 0, 0, 0, 0, 0, 0, 0, 0, sum(calls), sum(errors), sum(refused), sum(duration_ms) FROM tool_usage WHERE "+where+" GROUP BY 1, 2")
		args = append(args, values...)
	}
	order := "nano DESC, input + output DESC, calls DESC, a, b"
	if q.By == store.UsageByDay {
		order = "a"
	}
	return `WITH parts (a, b, runs, requests, input, cached, write, output, reason, nano, estimated, calls, errors, refused, ms) AS (` +
		strings.Join(parts, " UNION ALL ") + `)
		SELECT a, b, sum(runs), sum(requests), sum(input) input, sum(cached), sum(write), sum(output) output, sum(reason), sum(nano) nano,
			max(estimated), sum(calls) calls, sum(errors), sum(refused), sum(ms)
		FROM parts GROUP BY a, b ORDER BY ` + order + " LIMIT ?", append(args, q.Bound())
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

func scanUsage(scan scanFunc, by store.UsageBy) (r store.UsageRow, err error) {
	var key any
	var second string
	var nano int64
	var marks usageMarks
	if err := scan(&key, &second, &r.Runs, &r.Requests, &r.InputTokens, &r.CachedInputTokens, &r.CacheWriteTokens, &r.OutputTokens, &r.ReasoningTokens,
		&nano, &marks, &r.Calls, &r.Errors, &r.Refused, &r.DurationMS); err != nil {
		return r, err
	}
	r.Estimated, r.Unpriced = marks != 0, marks&markUnpriced != 0
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
	return r, nil
}

// ToolCounts returns how often each tool was called and failed, in all runs, also
// in those that were pruned since.
func (s *Store) ToolCounts(ctx context.Context) (map[string]store.ToolCount, error) {
	counts := make(map[string]store.ToolCount)
	err := s.readers.each(ctx, "SELECT tool, sum(calls), sum(errors) FROM tool_usage GROUP BY tool", nil, func(scan scanFunc) error {
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
	usageKeys    = "day, run_id, provider, model, user, agent, session_id"
	usageSums    = "requests, input_tokens, cached_tokens, write_tokens, output_tokens, reason_tokens, nano_usd, estimated"
	usageColumns = usageKeys + ", " + usageSums
	// insertUsage adds to a row by its key, and tells its number; addUsage adds to it by that.
	insertUsage = "INSERT INTO usage (" + usageColumns + `) VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)
		ON CONFLICT (` + usageKeys + `) DO UPDATE SET requests = requests + excluded.requests, input_tokens = input_tokens + excluded.input_tokens,
		cached_tokens = cached_tokens + excluded.cached_tokens, write_tokens = write_tokens + excluded.write_tokens,
		output_tokens = output_tokens + excluded.output_tokens, reason_tokens = reason_tokens + excluded.reason_tokens,
		nano_usd = nano_usd + excluded.nano_usd, estimated = estimated | excluded.estimated RETURNING num`
	addUsage = `UPDATE usage SET requests = requests + ?, input_tokens = input_tokens + ?, cached_tokens = cached_tokens + ?,
		write_tokens = write_tokens + ?, output_tokens = output_tokens + ?, reason_tokens = reason_tokens + ?,
		nano_usd = nano_usd + ?, estimated = estimated | ? WHERE num = ?`
	toolColumns = "tool, day, agent, user, provider, model, calls, errors, refused, duration_ms"
)

var toolInserts = newInserts("tool_usage", toolColumns, ` ON CONFLICT DO UPDATE SET calls = calls + excluded.calls,
	errors = errors + excluded.errors, refused = refused + excluded.refused, duration_ms = duration_ms + excluded.duration_ms`)

func usageKeyArgs(args []any, k store.UsageKey) []any {
	return append(args, int64(k.Day), string(k.Run), text(k.Provider), text(k.Model), text(k.User), text(k.Agent), text(string(k.Session)))
}

// usageMarks say what a sum leaves open, as bits of the column estimated. A price
// that is unknown is the highest, so that max finds it.
type usageMarks int64

const (
	markEstimated usageMarks = 1 << iota
	markUnpriced
)

func marksOf(v store.UsageSum) (m usageMarks) {
	if v.Estimated {
		m |= markEstimated
	}
	if v.Unpriced {
		m |= markUnpriced
	}
	return m
}

func usageSumArgs(args []any, v store.UsageSum) []any {
	return append(args, v.Requests, v.InputTokens, v.CachedInputTokens, v.CacheWriteTokens, v.OutputTokens, v.ReasoningTokens, v.NanoUSD, int64(marksOf(v)))
}

func toolArgs(args []any, k store.ToolUseKey, v store.ToolUseSum) []any {
	return append(args, k.Tool, int64(k.Day), text(k.Agent), text(k.User), text(k.Provider), text(k.Model), v.Calls, v.Errors, v.Refused, v.DurationMS)
}

// usageNums are the numbers of rows of usage that were added to of late: a row
// never goes, so they stay right.
type usageNums map[store.UsageKey]int64

// usageNumsKept bounds them.
const usageNumsKept = 1024

// putUsed adds what the transaction's appends say was used to the projections.
func (t *tx) putUsed() error {
	for k, v := range t.used.Models {
		if num, ok := t.w.usage[k]; ok {
			moved, err := movedOne(t.exec(addUsage, append(usageSumArgs(t.w.args[:0], v), num)...))
			if err != nil {
				return err
			}
			if moved {
				continue
			}
		}
		if err := t.insertUsage(k, v); err != nil {
			return err
		}
	}
	if err := putTools(t, t.used.Tools); err != nil {
		return err
	}
	if err := putSpent(t, t.used.Spent); err != nil {
		return err
	}
	return putRules(t, t.used.Rules)
}

func (t *tx) insertUsage(k store.UsageKey, v store.UsageSum) error {
	var num int64
	if err := t.row(insertUsage, usageSumArgs(usageKeyArgs(t.w.args[:0], k), v), &num); err != nil {
		return err
	}
	if t.usage == nil {
		t.usage = make(usageNums)
	}
	t.usage[k] = num
	return nil
}

func putTools(t *tx, tools map[store.ToolUseKey]store.ToolUseSum) error {
	var args []any
	for k, v := range tools {
		args = toolArgs(args, k, v)
	}
	return toolInserts.run(t, args)
}

// errUnreadable says that an event of a run cannot be read.
var errUnreadable = errors.New("an event cannot be read")

// metered adds what the events of a run say was used.
func metered(ctx context.Context, r reader, run toolcrib.RunID, num int64, used *store.Used) error {
	const events = `SELECT key & 0xffffffff, kind, time, payload, payload_hash, hash FROM events WHERE key BETWEEN ? AND ? AND payload IS NOT NULL
		AND kind IN ('run_started', 'model_request', 'usage', 'model_failed', 'verdicts', 'tool_result', 'done', 'error') ORDER BY key`
	var m store.Meter
	var charges []store.Charge
	rec := store.RunRecord{ID: run}
	return r.each(ctx, events, []any{eventKey(num, 0), eventKey(num, maxSeq)}, func(scan scanFunc) error {
		var r stored
		if err := scan(&r.seq, &r.kind, &r.time, &r.payload, &r.payloadHash, &r.hash); err != nil {
			return err
		}
		e, err := r.decode(run)
		if err != nil {
			return fmt.Errorf("%w: %w", errUnreadable, err)
		}
		m.Learn(e.Body, e.Time)
		charges = m.Charge(charges[:0], &rec, e)
		for _, c := range charges {
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
	for key, sum := range u.Spent {
		k.Spent = append(k.Spent, store.SpentEntry{SpentKey: key, SpentSum: sum})
	}
	for key, sum := range u.Rules {
		k.Rules = append(k.Rules, store.RuleUseEntry{RuleUseKey: key, RuleUseSum: sum})
	}
	slices.SortFunc(k.Spent, func(a, b store.SpentEntry) int {
		return cmp.Or(strings.Compare(a.User, b.User), cmp.Compare(a.Day, b.Day))
	})
	slices.SortFunc(k.Rules, func(a, b store.RuleUseEntry) int {
		return cmp.Or(strings.Compare(a.Rule, b.Rule), strings.Compare(string(a.Decision), string(b.Decision)), strings.Compare(a.Tool, b.Tool), cmp.Compare(a.Day, b.Day))
	})
	slices.SortFunc(k.Usage, func(a, b store.UsageEntry) int {
		return cmp.Or(cmp.Compare(a.Day, b.Day), strings.Compare(string(a.Run), string(b.Run)), strings.Compare(a.Provider, b.Provider),
			strings.Compare(a.Model, b.Model), strings.Compare(a.User, b.User), strings.Compare(a.Agent, b.Agent), strings.Compare(string(a.Session), string(b.Session)))
	})
	slices.SortFunc(k.ToolUsage, func(a, b store.ToolUseEntry) int {
		return cmp.Or(strings.Compare(a.Tool, b.Tool), cmp.Compare(a.Day, b.Day), strings.Compare(a.Agent, b.Agent), strings.Compare(a.User, b.User),
			strings.Compare(a.Provider, b.Provider), strings.Compare(a.Model, b.Model))
	})
	return k
}

// readMeter reads what the meter of a run must know from its events.
func (t *tx) readMeter(num int64) (m store.Meter, err error) {
	const columns = "SELECT payload, time FROM events WHERE key BETWEEN ? AND ? AND payload IS NOT NULL AND kind = "
	for _, q := range []struct {
		kind  toolcrib.Kind
		query string
	}{
		{journal.KindRunStarted, columns + "'run_started' ORDER BY key LIMIT 1"},
		{journal.KindModelRequest, columns + "'model_request' ORDER BY key DESC LIMIT 1"},
	} {
		var payload []byte
		var at int64
		err := t.row(q.query, []any{eventKey(num, 0), eventKey(num, maxSeq)}, &payload, &at)
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
		m.Learn(body, fromMicro(at))
	}
	return m, nil
}
