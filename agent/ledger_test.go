package agent_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/gate"
)

// most is a ledger that lets so many requests pass.
type most struct {
	left int
	err  error
	got  []toolcrib.Reservation
}

func (m *most) Reserve(_ context.Context, r toolcrib.Reservation) error {
	if m.got = append(m.got, r); len(m.got) > m.left {
		return m.err
	}
	return nil
}

// N11: what a user's budget does not cover is never sent; the run ends with what
// there is, and the bucket is named.
func TestN11_UserBudget(t *testing.T) {
	over := &toolcrib.BudgetError{Bucket: "budgets[0].requests_per_day", User: "local:test", Limit: 2, Spent: 2}
	for left, status := range []toolcrib.Status{toolcrib.StatusCompleted, toolcrib.StatusCompleted, toolcrib.StatusCompleted} {
		w := newWorld(t, gate.ConfirmNever)
		ledger := &most{left: left, err: over}
		w.runner.Ledger = ledger
		w.script(append([]toolcrib.Delta{{Text: "so far"}}, calls("echo", `{}`)...), calls("echo", `{"n":1}`), say("done"))
		s := run(t, w)
		equal(t, "requests", len(w.requests), left)
		equal(t, "status", s.Status, status)
		equal(t, "reason", s.Done.StopReason, toolcrib.StopBudgetExhausted)
		equal(t, "truncated", s.Done.Truncated, true)
		if left > 0 {
			equal(t, "content", s.Done.Content, "so far")
		}
		if !strings.Contains(s.Stopping.Message, "budgets[0].requests_per_day of local:test: 2 of 2") {
			t.Errorf("the bucket is not named: %s", s.Stopping.Message)
		}
		r := ledger.got[0]
		if r.User != "local:test" || r.Run != s.Run || r.Request != 1 || r.Tokens <= 0 || r.CostUSD <= 0 {
			t.Errorf("reserved %+v", r)
		}
	}
}

// A ledger that cannot be asked lets nothing pass.
func TestN11_UserBudgetUnknown(t *testing.T) {
	w := newWorld(t, gate.ConfirmNever)
	w.runner.Ledger = &most{err: errors.New("disk")}
	w.script(say("never"))
	if _, err := w.runner.Run(t.Context(), task()); err == nil || !strings.Contains(err.Error(), "budgets of local:test") {
		t.Errorf("%v", err)
	}
	equal(t, "requests", len(w.requests), 0)
}
