package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/store"
)

// usageGroups are the columns by which usage is grouped.
var usageGroups = map[store.UsageBy]string{
	store.UsageTotal: "'', ''", store.UsageByDay: "day, ''", store.UsageByUser: "user, ''",
	store.UsageByAgent: "agent, ''", store.UsageByModel: "provider, model", store.UsageByProvider: "provider, ''",
	store.UsageByTool: "tool, ''", store.UsageBySession: "session_id, ''", store.UsageByRun: "run_id, ''",
}

// Usage returns the usage of runs, including runs that were pruned since; see [store.UsageRow]. Days
// are in chronological order, all other groups by cost, then tokens, then calls, in descending order.
func (s *Store) Usage(ctx context.Context, q store.UsageQuery) ([]store.UsageRow, error) {
	if err := q.Check(); err != nil {
		return nil, err
	}
	query, args := usageQuery(q)
	var rows []store.UsageRow
	err := reading{s}.Each(ctx, query, args, func(scan Scan) error {
		var key any
		var model string
		var e store.UseEntry
		err := scan(append([]any{&key, &model}, e.Places(nil)[store.UseSums:]...)...)
		if day, ok := key.(int64); ok {
			key = store.Day(day).String()
		}
		rows = append(rows, e.Row(q.By, fmt.Sprint(key), model))
		return err
	})
	return rows, err
}

// usageQuery returns a query in SQL. Values of its fields are passed only as arguments.
func usageQuery(q store.UsageQuery) (query string, args []any) {
	from, args := usageRows(q)
	group, sums := " GROUP BY 1, 2", useSums("coalesce(sum(%s), 0)", "coalesce(max(%s), 0)")
	order := "sum(nano_usd) DESC, sum(input_tokens + output_tokens) DESC, sum(calls) DESC, 1, 2"
	switch q.By {
	case store.UsageTotal:
		group = ""
	case store.UsageByDay:
		order = "1"
	case store.UsageByRun: // each has one row
		group, sums = "", useSums("%s", "%s")
		order = "nano_usd DESC, input_tokens + output_tokens DESC, calls DESC, 1, 2"
	}
	return "SELECT " + usageGroups[q.By] + ", " + sums + " FROM " + from + group + " ORDER BY " + order + " LIMIT ?",
		append(args, q.Bound())
}

// useSums lists the columns of sums, formatted with sum for those that add up, and with largest for
// those of which the maximum is kept.
func useSums(sum, largest string) string {
	columns := slices.Clone(store.UseColumns[store.UseSums:])
	for i, name := range columns {
		form := sum
		if i >= store.UseMarks-store.UseSums {
			form = largest
		}
		columns[i] = strings.ReplaceAll(form, "%s", name)
	}
	return strings.Join(columns, ", ")
}

// runUse selects the usage of stored runs, and removedUse that of removed runs, with the same columns.
// Numbers are bounded, so that no sum can overflow.
var (
	runUse = fmt.Sprintf(`SELECT id AS run_id, session_id, user, created_at / %d AS day, '' AS agent, '' AS provider,
		'' AS model, '' AS tool, 1 AS runs, requests, %s, %s, %s, %s, %s,
		CAST(round(%s * 1e9) AS BIGINT) AS nano_usd, 0 AS calls, 0 AS errors, 0 AS refused,
		0 AS duration_ms, estimated, unpriced, 0 AS last FROM runs`, microsOfDay, boundedColumn("input_tokens"),
		boundedColumn("cached_tokens"), boundedColumn("write_tokens"), boundedColumn("output_tokens"),
		boundedColumn("reason_tokens"), bounded("cost_usd", "1e6"))
	removedUse = "SELECT run_id, session_id, user, day, '', '', '', '', " +
		strings.Join(store.UseColumns[store.UseSums:], ", ") + " FROM usage"
)

const microsOfDay int64 = 24 * 60 * 60 * 1e6

func bounded(name, most string) string {
	return fmt.Sprintf("CASE WHEN %[1]s < 0 THEN 0 WHEN %[1]s > %[2]s THEN %[2]s ELSE %[1]s END", name, most)
}

func boundedColumn(name string) string { return bounded(name, "1099511627776") + " AS " + name }

// usageRows returns the rows to sum up for a query.
func usageRows(q store.UsageQuery) (from string, args []any) {
	if q.Token != "" || q.By == store.UsageBySession || q.By == store.UsageByRun {
		return usageOfRuns(q)
	}
	kind := store.UseDaily
	if q.By == store.UsageByTool {
		kind = store.UseCalls
	}
	where := usageWhere(q, kind)
	return "usage" + where.text, where.args
}

// usageOfRuns returns the rows by run. There may be very many, so only the newest are read. The token
// that started a run is known only for stored runs.
func usageOfRuns(q store.UsageQuery) (from string, args []any) {
	most, newest, by := store.MaxUsageRuns, "created_at", " INDEXED BY usage_runs"
	if q.Token != "" && q.By == store.UsageTotal {
		most = math.MaxInt32 // all
	}
	if q.Token != "" || q.User != "" {
		newest, by = "num", "" // other indexes have the runs of one token or user by time
	}
	stored := clauses{text: " WHERE requests > 0"}
	stored.add(q.Token != "", "token = ? AND token <> ''", q.Token)
	stored.add(q.User != "", "user = ?", q.User)
	stored.add(!q.Since.IsZero(), "created_at >= ?", int64(store.DayOf(q.Since))*microsOfDay)
	stored.add(!q.Until.IsZero(), "created_at < ?", int64(store.DayOf(q.Until)+1)*microsOfDay)
	from = fmt.Sprintf("SELECT * FROM (%s%s ORDER BY %s DESC LIMIT %d) AS stored", runUse, stored.text, newest, most)
	if q.Token != "" {
		return "(" + from + ") AS used", stored.args
	}
	removed := usageWhere(q, store.UseRuns)
	from += fmt.Sprintf(" UNION ALL SELECT * FROM (%s%s%s ORDER BY day DESC, run_id DESC LIMIT %d) AS removed"+
		" ORDER BY day DESC, run_id DESC LIMIT %d", removedUse, by, removed.text, most, most)
	return "(" + from + ") AS used", append(stored.args, removed.args...)
}

// usageWhere selects rows of the table usage.
func usageWhere(q store.UsageQuery, kind store.UseKind) clauses {
	where := clauses{text: fmt.Sprintf(" WHERE kind = %d", kind)} // in the text, so that the index applies
	where.add(!q.Since.IsZero(), "day >= ?", int64(store.DayOf(q.Since)))
	where.add(!q.Until.IsZero(), "day <= ?", int64(store.DayOf(q.Until)))
	where.add(q.User != "", "user = ?", q.User)
	return where
}

// treeUse sums up the usage of a run tree. Values that another program changed are never subtracted.
const treeUse = `WITH RECURSIVE
	up (id, parent) AS (SELECT id, parent_id FROM runs WHERE id = ?
		UNION SELECT runs.id, runs.parent_id FROM up JOIN runs ON runs.id = up.parent),
	tree (id) AS (SELECT id FROM up WHERE parent = ''
		UNION SELECT runs.id FROM tree JOIN runs ON runs.parent_id = tree.id AND runs.parent_id <> '')
	SELECT count(*), coalesce(sum(CASE WHEN cost_usd > 0 THEN cost_usd END), 0),
	coalesce(sum(CASE WHEN total_tokens > 0 THEN total_tokens END), 0) FROM tree JOIN runs USING (id)`

// TreeUse implements [store.Spendings].
func (s *Store) TreeUse(ctx context.Context, run toolcrib.RunID) (use journal.SessionUse, err error) {
	var runs int
	err = One(ctx, reading{s}, treeUse, []any{text(string(run))}, &runs, &use.CostUSD, &use.Tokens)
	if err == nil && runs == 0 {
		err = fmt.Errorf("run %s: %w", run, toolcrib.ErrNotFound)
	}
	return use, err
}

// RuleCounts returns how often each rule has decided since a day, by rule, decision and tool.
func (s *Store) RuleCounts(ctx context.Context, since store.Day) ([]store.RuleCount, error) {
	var counts []store.RuleCount
	err := reading{s}.Each(ctx, `SELECT rule, decision, tool, sum(calls), max(last) FROM usage
		WHERE kind = ? AND day >= ? GROUP BY 1, 2, 3 ORDER BY 1, 2, 3`, []any{store.UseDecisions, int64(since)},
		func(scan Scan) error {
			var c store.RuleCount
			err := scan(&c.Rule, &c.Decision, &c.Tool, &c.Calls, &c.LastUsed)
			counts = append(counts, c)
			return err
		})
	return counts, err
}

var usageInserts = newInserts("usage", strings.Join(store.UseColumns, ", "), " ON CONFLICT ("+
	strings.Join(store.UseColumns[:store.UseSums], ", ")+") DO UPDATE SET "+useSums("%s = usage.%s + excluded.%s",
	"%s = CASE WHEN excluded.%s > usage.%s THEN excluded.%s ELSE usage.%s END"))

// putUsed adds the usage that the transaction's appends report.
func (t *tx) putUsed() error {
	args := t.w.args[:0]
	var e store.UseEntry
	for e.UseKey, e.UseSum = range t.used {
		args = e.Values(args)
	}
	err := usageInserts.run(t, args)
	clear(args)
	t.w.args = args
	return err
}

// eachUse calls do with each row of usage.
func eachUse(ctx context.Context, r Reader, where string, args []any, do func(store.UseEntry) error) error {
	query := "SELECT " + strings.Join(store.UseColumns, ", ") + " FROM usage " + where
	return r.Each(ctx, query, args, func(scan Scan) error {
		var e store.UseEntry
		if err := scan(e.Places(nil)...); err != nil {
			return err
		}
		return do(e)
	})
}

// metered adds the usage that the events of a run report.
func metered(ctx context.Context, r Reader, run toolcrib.RunID, num int64, used store.Used) error {
	const events = runEvents + `WHERE key BETWEEN ? AND ? AND payload IS NOT NULL
		AND kind IN ('run_started', 'model_chosen', 'model_request', 'usage', 'model_failed', 'verdicts', 'tool_result', 'done', 'error') ORDER BY key`
	var m store.Meter
	var charges []store.UseEntry
	rec := store.RunRecord{ID: run}
	args := []any{eventKey(num, 0), eventKey(num, maxSeq)}
	return eachEvent(ctx, r, events, args, func(_ int64, raw *store.RawEvent) error {
		e, err := raw.Decode(run)
		if err != nil {
			return err
		}
		charges = m.Take(charges[:0], &rec, e)
		for _, c := range charges {
			used.Add(c)
		}
		return nil
	})
}

// readMeter restores the meter of a run from its events.
func (t *tx) readMeter(num int64) (m store.Meter, err error) {
	const events = runEvents + `WHERE key BETWEEN ? AND ? AND payload IS NOT NULL
		AND kind IN ('run_started', 'model_chosen', 'model_request') ORDER BY key`
	err = eachEvent(t.ctx, t.w.db, events, []any{eventKey(num, 0), eventKey(num, maxSeq)},
		func(_ int64, raw *store.RawEvent) error {
			body, err := journal.Decode(raw.Kind, raw.Payload)
			if err == nil {
				m.Learn(body, raw.Time)
			}
			return err
		})
	return m, err
}

// The states of a reservation.
const (
	reservationMade      = 0 // its request is not in the journal yet
	reservationConfirmed = 1 // its request is in the journal
	reservationGivenUp   = 2 // its request was not in the journal in time
)

// ledger enforces the budgets of users.
type ledger struct {
	s       *Store
	budgets []store.UserBudget
}

// Ledger returns the ledger for these budgets, shared by all processes that use the database, or nil if
// no budget has a limit. The budgets themselves are local to each process; spending and reservations
// are shared.
//
// A request belongs to the day of its model_request event. Spending on a later day than today, which
// occurs if a clock was set back, also applies today: nothing is spent twice. A reservation applies
// until it is settled in the journal, or its day or month is over. It expires if its request is not in
// the journal within store.ReservationGrace; if that request comes later, Append rejects it with
// store.ErrReservation.
func (s *Store) Ledger(budgets []store.UserBudget) (toolcrib.Ledger, error) {
	for _, b := range budgets {
		if err := b.Check(); err != nil {
			return nil, fmt.Errorf("%s: %w", b.Key, err)
		}
	}
	if !slices.ContainsFunc(budgets, store.UserBudget.Limits) {
		return nil, nil
	}
	return &ledger{s: s, budgets: slices.Clone(budgets)}, nil
}

// CapsCost implements [toolcrib.Ledger].
func (l *ledger) CapsCost(user string) string { return store.CapsCost(l.budgets, user) }

// Reserve implements [toolcrib.Ledger].
func (l *ledger) Reserve(ctx context.Context, r toolcrib.Reservation) (output int64, err error) {
	if r.Run == "" || r.At.IsZero() {
		return 0, errors.New("store: reserve: a run and a time are needed")
	}
	if !slices.ContainsFunc(store.BudgetsOf(l.budgets, r.User), store.UserBudget.Limits) {
		return -1, nil
	}
	err = l.s.write(ctx, &job{do: func(t *tx) (err error) {
		output, err = t.reserve(l.budgets, r)
		return err
	}})
	return output, err
}

func (t *tx) reserve(budgets []store.UserBudget, r toolcrib.Reservation) (output int64, err error) {
	spending := store.NewSpending(r.At)
	if err := t.addSpent(spending, r.User); err != nil {
		return 0, err
	}
	stale, err := t.addReserved(spending, r)
	if err != nil {
		return 0, err
	}
	output, over := spending.Room(budgets, r)
	if over != nil {
		return 0, reject(over)
	}
	asks := store.Reserved(r, output)
	for _, run := range stale {
		if err := t.later("UPDATE reservations SET state = ? WHERE run_id = ?", reservationGivenUp, run); err != nil {
			return 0, err
		}
	}
	t.w.reserves = true
	err = t.later(`INSERT INTO reservations (run_id, request, user, day, at, tokens, nano_usd, state) VALUES (?,?,?,?,?,?,?,?)
		ON CONFLICT (run_id) DO UPDATE SET request = excluded.request, user = excluded.user, day = excluded.day,
		at = excluded.at, tokens = excluded.tokens, nano_usd = excluded.nano_usd, state = excluded.state`,
		text(string(r.Run)), r.Request, text(r.User), int64(store.DayOf(r.At)), r.At.UnixMicro(), asks.Tokens(), asks.NanoUSD,
		reservationMade)
	return output, err
}

// addSpent adds the spending of a user, including this transaction.
func (t *tx) addSpent(to *store.Spending, user string) error {
	for k, sum := range t.used {
		if k.Kind == store.UseDaily && text(k.User) == text(user) && sum.Requests > 0 {
			to.Add(k.Day, sum)
		}
	}
	return eachUse(t.ctx, t.w.db, "WHERE kind = ? AND user = ? AND day >= ? AND requests > 0",
		[]any{store.UseDaily, text(user), int64(to.Since())}, func(e store.UseEntry) error {
			to.Add(e.Day, e.UseSum)
			return nil
		})
}

// addReserved adds the reservations of the user's other runs. A request that is not in the journal yet
// may be recorded on any day from now on, so it applies to the day of r. It returns the runs whose
// reservations are too old for that.
func (t *tx) addReserved(to *store.Spending, r toolcrib.Reservation) (stale []string, err error) {
	before := r.At.Add(-store.ReservationGrace).UnixMicro()
	err = t.each("SELECT run_id, day, at, tokens, nano_usd, state FROM reservations WHERE user = ? AND run_id <> ? AND (day >= ? AND state = ? OR state = ?)",
		[]any{text(r.User), text(string(r.Run)), int64(to.Since()), reservationConfirmed, reservationMade},
		func(scan Scan) error {
			var run string
			var day store.Day
			var at int64
			var state int
			sum := store.UseSum{Requests: 1}
			if err := scan(&run, &day, &at, &sum.InputTokens, &sum.NanoUSD, &state); err != nil {
				return err
			}
			switch {
			case state == reservationConfirmed:
				to.Add(day, sum)
			case at < before:
				stale = append(stale, run)
			default:
				to.Add(max(day, store.DayOf(r.At)), sum)
			}
			return nil
		})
	return stale, err
}

// claim is the effect of an append on the reservation of its run.
type claim int

const (
	claimNothing claim = iota
	claimConfirm       // the request is about to be sent
	claimSettle        // the request is finished
)

// claimOf returns the effect of the last event that concerns the reservation, and the day of a request.
func claimOf(rows []row) (claim, store.Day) {
	for i := len(rows) - 1; i >= 0; i-- {
		switch e := &rows[i].event; e.Body.(type) {
		case *journal.ModelRequest:
			return claimConfirm, store.DayOf(e.Time)
		case *journal.Usage, *journal.ModelFailed, *journal.Paused, *journal.Done, *journal.Error:
			return claimSettle, 0
		}
	}
	return claimNothing, 0
}

// checkClaim rejects a request whose reservation has expired or is for a later day. Without a
// reservation there is nothing to check.
func (t *tx) checkClaim(run toolcrib.RunID, day store.Day) error {
	var state int
	var reserved store.Day
	err := t.row("SELECT state, day FROM reservations WHERE run_id = ?", []any{text(string(run))}, &state, &reserved)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return nil
	case err != nil:
		return err
	case state == reservationGivenUp || day < reserved:
		return reject(fmt.Errorf("run %s: %w", run, store.ErrReservation))
	}
	return nil
}

// putClaim updates the reservation of a run.
func (t *tx) putClaim(run toolcrib.RunID, c claim, day store.Day) (err error) {
	switch c {
	case claimConfirm:
		err = t.later("UPDATE reservations SET state = ?, day = ? WHERE run_id = ?", reservationConfirmed, int64(day),
			text(string(run)))
	case claimSettle:
		err = t.later("DELETE FROM reservations WHERE run_id = ?", text(string(run)))
	}
	return err
}
