package sqlite

import (
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

// usageGroups are the columns by which use is summed up.
var usageGroups = map[store.UsageBy]string{
	store.UsageTotal: "'', ''", store.UsageByDay: "day, ''", store.UsageByUser: "user, ''",
	store.UsageByAgent: "agent, ''", store.UsageByModel: "provider, model", store.UsageByProvider: "provider, ''",
	store.UsageByTool: "tool, ''", store.UsageBySession: "session_id, ''", store.UsageByRun: "run_id, ''",
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
	err := s.each(ctx, query, args, func(scan scanFunc) error {
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

// usageQuery is a query as SQL. Only values of its fields become arguments.
func usageQuery(q store.UsageQuery) (query string, args []any) {
	from, args := usageRows(q)
	group, order := " GROUP BY 1, 2", "sum(nano_usd) DESC, sum(input_tokens + output_tokens) DESC, sum(calls) DESC, 1, 2"
	switch q.By {
	case store.UsageTotal:
		group = ""
	case store.UsageByDay:
		order = "1"
	}
	return "SELECT " + usageGroups[q.By] + ", " + useSums("ifnull(sum(%s), 0)", "ifnull(max(%s), 0)") + " FROM " + from +
		group + " ORDER BY " + order + " LIMIT ?", append(args, q.Bound())
}

// useSums are the columns of sums, in one form those that add up, and in another those of which
// the largest counts.
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

// runUse is what the runs that are stored have used, and removedUse what those have that were
// removed, with the same columns. Numbers are bounded, so that no sum can overflow.
var (
	runUse = fmt.Sprintf(`SELECT id AS run_id, session_id, user, created_at / %d AS day, '' AS agent, '' AS provider,
		'' AS model, '' AS tool, 1 AS runs, requests, %s, %s, %s, %s, %s,
		CAST(round(min(max(cost_usd, 0), 1e6) * 1e9) AS INTEGER) AS nano_usd, 0 AS calls, 0 AS errors, 0 AS refused,
		0 AS duration_ms, estimated, unpriced, 0 AS last FROM runs`, microsOfDay, boundedColumn("input_tokens"),
		boundedColumn("cached_tokens"), boundedColumn("write_tokens"), boundedColumn("output_tokens"),
		boundedColumn("reason_tokens"))
	removedUse = "SELECT run_id, session_id, user, day, '', '', '', '', " +
		strings.Join(store.UseColumns[store.UseSums:], ", ") + " FROM usage"
)

const microsOfDay int64 = 24 * 60 * 60 * 1e6

func boundedColumn(name string) string { return "min(max(" + name + ", 0), 1 << 40) AS " + name }

// usageRows are the rows that a query sums up.
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

// usageOfRuns are those by run, of which there are so many that only the newest are read. Only of
// those that are stored it is known which token started them.
func usageOfRuns(q store.UsageQuery) (from string, args []any) {
	most, newest, by := store.MaxUsageRuns, "created_at", " INDEXED BY usage_runs"
	if q.Token != "" && q.By == store.UsageTotal {
		most = -1 // all
	}
	if q.Token != "" || q.User != "" {
		newest, by = "num", "" // of one token or user, other indexes have them by time
	}
	stored := clauses{text: " WHERE requests > 0"}
	stored.add(q.Token != "", "token = ? AND token <> ''", q.Token)
	stored.add(q.User != "", "user = ?", q.User)
	stored.add(!q.Since.IsZero(), "created_at >= ?", int64(store.DayOf(q.Since))*microsOfDay)
	stored.add(!q.Until.IsZero(), "created_at < ?", int64(store.DayOf(q.Until)+1)*microsOfDay)
	from = fmt.Sprintf("SELECT * FROM (%s%s ORDER BY %s DESC LIMIT %d)", runUse, stored.text, newest, most)
	if q.Token != "" {
		return "(" + from + ")", stored.args
	}
	removed := usageWhere(q, store.UseRuns)
	from += fmt.Sprintf(" UNION ALL SELECT * FROM (%s%s%s ORDER BY day DESC, run_id DESC LIMIT %d)"+
		" ORDER BY day DESC, run_id DESC LIMIT %d", removedUse, by, removed.text, most, most)
	return "(" + from + ")", append(stored.args, removed.args...)
}

// usageWhere chooses rows of the table usage.
func usageWhere(q store.UsageQuery, kind store.UseKind) clauses {
	where := clauses{text: fmt.Sprintf(" WHERE kind = %d", kind)} // in the text, so that the index fits
	where.add(!q.Since.IsZero(), "day >= ?", int64(store.DayOf(q.Since)))
	where.add(!q.Until.IsZero(), "day <= ?", int64(store.DayOf(q.Until)))
	where.add(q.User != "", "user = ?", q.User)
	return where
}

// treeUse sums up the tree of a run. Nothing is taken off for a value that was changed from outside.
const treeUse = `WITH RECURSIVE
	up (id, parent) AS (SELECT id, parent_id FROM runs WHERE id = ?
		UNION SELECT runs.id, runs.parent_id FROM up JOIN runs ON runs.id = up.parent),
	tree (id) AS (SELECT id FROM up WHERE parent = ''
		UNION SELECT runs.id FROM tree JOIN runs ON runs.parent_id = tree.id AND runs.parent_id <> '')
	SELECT count(*), ifnull(sum(max(cost_usd, 0)), 0), ifnull(sum(max(total_tokens, 0)), 0) FROM tree JOIN runs USING (id)`

// TreeUse implements [store.Spendings].
func (s *Store) TreeUse(ctx context.Context, run toolcrib.RunID) (use journal.SessionUse, err error) {
	var runs int
	err = one(ctx, s, treeUse, []any{text(string(run))}, &runs, &use.CostUSD, &use.Tokens)
	if err == nil && runs == 0 {
		err = fmt.Errorf("run %s: %w", run, toolcrib.ErrNotFound)
	}
	return use, err
}

// RuleCounts returns how often each rule has decided from a day on, by rule, decision and tool.
func (s *Store) RuleCounts(ctx context.Context, since store.Day) ([]store.RuleCount, error) {
	var counts []store.RuleCount
	err := s.each(ctx, `SELECT rule, decision, tool, sum(calls), max(last) FROM usage
		WHERE kind = ? AND day >= ? GROUP BY 1, 2, 3 ORDER BY 1, 2, 3`, []any{store.UseDecisions, int64(since)},
		func(scan scanFunc) error {
			var c store.RuleCount
			err := scan(&c.Rule, &c.Decision, &c.Tool, &c.Calls, &c.LastUsed)
			counts = append(counts, c)
			return err
		})
	return counts, err
}

var usageInserts = newInserts("usage", strings.Join(store.UseColumns, ", "), " ON CONFLICT DO UPDATE SET "+
	useSums("%s = %s + excluded.%s", "%s = max(%s, excluded.%s)"))

// putUsed adds what the transaction's appends say was used.
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

// eachUse calls do with each row of use.
func eachUse(ctx context.Context, r reader, where string, args []any, do func(store.UseEntry) error) error {
	query := "SELECT " + strings.Join(store.UseColumns, ", ") + " FROM usage " + where
	return r.each(ctx, query, args, func(scan scanFunc) error {
		var e store.UseEntry
		if err := scan(e.Places(nil)...); err != nil {
			return err
		}
		return do(e)
	})
}

// metered adds what the events of a run say was used.
func metered(ctx context.Context, r reader, run toolcrib.RunID, num int64, used store.Used) error {
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

// readMeter reads what the meter of a run must know from its events.
func (t *tx) readMeter(num int64) (m store.Meter, err error) {
	const events = runEvents + `WHERE key BETWEEN ? AND ? AND payload IS NOT NULL
		AND kind IN ('run_started', 'model_chosen', 'model_request') ORDER BY key`
	err = eachEvent(t.ctx, t.w.conn, events, []any{eventKey(num, 0), eventKey(num, maxSeq)},
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
	reservationMade      = 0 // its request is not written down yet
	reservationConfirmed = 1 // its request is in the journal
	reservationGivenUp   = 2 // it was not written down for too long
)

// ledger keeps the budgets of users.
type ledger struct {
	s       *Store
	budgets []store.UserBudget
}

// Ledger returns what keeps these budgets, over all processes that use the database;
// nil if none of them sets a ceiling. What the processes believe the budgets to be is
// each one's own matter; what is spent and reserved they share.
//
// A request counts on the day of its model_request event. What counts on a later day
// than today, because a clock was set back, counts today too: nothing is spent twice.
// A reservation counts until it is settled in the journal, or its day or month is over;
// one whose request is not in the journal for store.ReservationGrace no longer counts,
// and if that request comes after all, Append refuses it with store.ErrReservation.
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
		return 0, errors.New("sqlite: reserve: a run and a time are needed")
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
		if _, err := t.exec("UPDATE reservations SET state = ? WHERE run_id = ?", reservationGivenUp, run); err != nil {
			return 0, err
		}
	}
	t.w.reserves = true
	_, err = t.exec("INSERT OR REPLACE INTO reservations (run_id, request, user, day, at, tokens, nano_usd, state) VALUES (?,?,?,?,?,?,?,?)",
		text(string(r.Run)), r.Request, text(r.User), int64(store.DayOf(r.At)), r.At.UnixMicro(), asks.Tokens(), asks.NanoUSD,
		reservationMade)
	return output, err
}

// addSpent adds what a user has spent, also in this transaction.
func (t *tx) addSpent(to *store.Spending, user string) error {
	for k, sum := range t.used {
		if k.Kind == store.UseDaily && text(k.User) == text(user) && sum.Requests > 0 {
			to.Add(k.Day, sum)
		}
	}
	return eachUse(t.ctx, t.w.conn, "WHERE kind = ? AND user = ? AND day >= ? AND requests > 0",
		[]any{store.UseDaily, text(user), int64(to.Since())}, func(e store.UseEntry) error {
			to.Add(e.Day, e.UseSum)
			return nil
		})
}

// addReserved adds what other runs of the user have reserved. What is not in the
// journal may come to stand there on any day, so it counts on that of the request.
// It returns the runs whose reservations are too old for that.
func (t *tx) addReserved(to *store.Spending, r toolcrib.Reservation) (stale []string, err error) {
	before := r.At.Add(-store.ReservationGrace).UnixMicro()
	err = t.each("SELECT run_id, day, at, tokens, nano_usd, state FROM reservations WHERE user = ? AND run_id <> ? AND (day >= ? AND state = ? OR state = ?)",
		[]any{text(r.User), text(string(r.Run)), int64(to.Since()), reservationConfirmed, reservationMade},
		func(scan scanFunc) error {
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

// claim is what an append says of the reservation of its run.
type claim int

const (
	claimNothing claim = iota
	claimConfirm       // its request is about to be sent
	claimSettle        // it is over with it
)

// claimOf looks for the last event that says something of it, and returns the day of a
// request.
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

// checkClaim rejects a request whose reservation no longer counts, or does not count on
// its day. Without a reservation there is nothing to claim.
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

// putClaim moves the reservation of a run on.
func (t *tx) putClaim(run toolcrib.RunID, c claim, day store.Day) (err error) {
	switch c {
	case claimConfirm:
		_, err = t.exec("UPDATE reservations SET state = ?, day = ? WHERE run_id = ?", reservationConfirmed, int64(day),
			text(string(run)))
	case claimSettle:
		_, err = t.exec("DELETE FROM reservations WHERE run_id = ?", text(string(run)))
	}
	return err
}
