package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/store"
)

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
// one whose request is not in the journal for store.ReservationGrace counts no more,
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
		if k.Kind == store.UseSpent && text(k.User) == text(user) {
			to.Add(k.Day, sum)
		}
	}
	return eachUse(t.ctx, t.w.conn, "WHERE kind = ? AND user = ? AND day >= ?",
		[]any{store.UseSpent, text(user), int64(to.Since())}, func(e store.UseEntry) error {
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

// checkClaim rejects a request whose reservation counts no more, or does not count on
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
