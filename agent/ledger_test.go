package agent_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/journal"
)

// most is a ledger that lets so many requests pass.
type most struct {
	left    int
	err     error
	output  []int64 // that there is room for, by request; none = any number
	costCap string
	got     []toolcrib.Reservation
}

func (m *most) Reserve(_ context.Context, r toolcrib.Reservation) (output int64, err error) {
	if m.got = append(m.got, r); len(m.got) > m.left {
		return 0, m.err
	}
	if n := len(m.got); n <= len(m.output) {
		return m.output[n-1], nil
	}
	return -1, nil
}

func (m *most) CapsCost(string) string { return m.costCap }

// What a user's budget leaves bounds the reply, is journaled, and replays.
func TestUserBudget_BoundsTheReply(t *testing.T) {
	w := newWorld(t, gate.ConfirmNever)
	w.runner.Ledger = &most{left: 9, output: []int64{2987, 1 << 40}}
	w.script(calls("echo", `{}`), calls("echo", `{"n":1}`), say("done"))
	s := run(t, w)
	equal(t, "status", s.Status, toolcrib.StatusCompleted)
	var sent []*journal.ModelRequest
	for _, e := range w.events(t, s.Run) {
		if b, ok := e.Body.(*journal.ModelRequest); ok {
			sent = append(sent, b)
		}
	}
	equal(t, "bounded", [3]int64{int64(sent[0].MaxOutput), sent[0].ReservedOutput, sent[0].UserLeft}, [3]int64{2987, 2987, 2987})
	equal(t, "not bounded", [2]int64{int64(sent[1].MaxOutput), sent[1].UserLeft}, [2]int64{})
	equal(t, "asked for", w.requests[0].MaxOutputTokens, 2987)
}

// Under a ceiling of cost of the user no model without a known price is asked.
func TestUserBudget_UnknownPrice(t *testing.T) {
	w := newWorld(t, gate.ConfirmNever)
	w.runner.Ledger = &most{left: 9, costCap: "budgets[0].cost_usd_per_day"}
	w.script(say("never"))
	unpriced := task()
	unpriced.Models[0].Price = toolcrib.Price{}
	if _, err := w.runner.Run(t.Context(), unpriced); toolcrib.CodeOf(err) != toolcrib.CodeBadRequest || !strings.Contains(err.Error(), "budgets[0].cost_usd_per_day of local:test cannot be kept") {
		t.Errorf("%v", err)
	}
	equal(t, "requests", len(w.requests), 0)
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
