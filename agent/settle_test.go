package agent_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/journal"
)

// Cost of a failed request: nothing if the API refused it, the received part if it broke off, the
// reserve if there was no answer (N6, N23).
func TestFailedRequestsAreSettled(t *testing.T) {
	for name, c := range map[string]struct {
		deltas  []toolcrib.Delta
		err     toolcrib.ModelError
		atLeast int64
		atMost  int64
	}{
		"refused outright": {err: toolcrib.ModelError{Class: toolcrib.ErrAuth}},
		"bad request":      {err: toolcrib.ModelError{Class: toolcrib.ErrBadRequest, Status: 400}},
		"unsent":           {err: toolcrib.ModelError{Class: toolcrib.ErrOther, Unsent: true}},
		"broke off":        {deltas: []toolcrib.Delta{{Text: "five "}}, err: toolcrib.ModelError{Class: toolcrib.ErrOther}, atLeast: 1, atMost: 20},
		"not answered":     {err: toolcrib.ModelError{Class: toolcrib.ErrTimeout}, atLeast: 4096, atMost: 8 * 4096},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, gate.ConfirmNever)
			w.reply = func(context.Context, int, *toolcrib.Request) ([]toolcrib.Delta, error) { return c.deltas, &c.err }
			u := run(t, w).Failed.Usage
			if u.OutputTokens < c.atLeast || u.OutputTokens > c.atMost {
				t.Errorf("%s: %d output tokens, want %d to %d", name, u.OutputTokens, c.atLeast, c.atMost)
			}
			if u.Estimated != (c.atLeast > 0) {
				t.Errorf("%s: estimated is %v", name, u.Estimated)
			}
		})
	}
}

// Under an enforced cap of cost a fallback without a price is passed over.
func TestFallback_WithoutPriceUnderACap(t *testing.T) {
	w := newWorld(t, gate.ConfirmNever)
	w.reply = func(_ context.Context, _ int, req *toolcrib.Request) ([]toolcrib.Delta, error) {
		if req.Model == "one" {
			return nil, &toolcrib.ModelError{Class: toolcrib.ErrAuth, Status: 401}
		}
		return say("from " + req.Model), nil
	}
	chain := func(k *agent.Task) {
		k.Models = append(k.Models,
			journal.ModelInfo{Ref: "fake/two", Provider: "fake", ID: "two"},
			journal.ModelInfo{Ref: "fake/three", Provider: "fake", ID: "three", Price: toolcrib.Price{Known: true}})
	}
	s := run(t, w, chain, func(k *agent.Task) { k.Agent.Budget.MaxCostUSD = 1 })
	equal(t, "content", s.Done.Content, "from three")
	equal(t, "notices", countNotices(w, "price_unknown"), 1)
	w.frames, w.runner.Ledger = nil, &most{left: 9, costCap: "budgets[0].cost_usd_per_month"}
	s = run(t, w, chain)
	equal(t, "under the cap of the user", s.Done.Content, "from three")
	equal(t, "notices", countNotices(w, "price_unknown"), 1)
	w.frames, w.runner.Ledger = nil, nil
	s = run(t, w, chain)
	equal(t, "without a cap", s.Done.Content, "from two")
	equal(t, "notices", countNotices(w, "price_unknown"), 1)
}

// Numbers that cannot be true are no report.
func TestAbsurdUsageIsEstimated(t *testing.T) {
	for _, u := range []toolcrib.TokenUsage{{InputTokens: -5, Reported: true}, {OutputTokens: 1 << 40, Reported: true}, {CachedInputTokens: 9, Reported: true}} {
		w := newWorld(t, gate.ConfirmNever)
		w.script([]toolcrib.Delta{{Text: "hello"}, {Finish: &toolcrib.Finish{Reason: toolcrib.FinishStop, Usage: u}}})
		s := run(t, w)
		if got := s.Done.Usage; !got.Estimated || got.OutputTokens < 1 || got.OutputTokens > 100 {
			t.Errorf("%+v became %+v", u, got)
		}
	}
}

// A provider whose breaker is open is not waited for where there is another one;
// where there is none, it is.
func TestFallback_HeldBackProvider(t *testing.T) {
	for _, alone := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, gate.ConfirmNever)
			w.reply = func(_ context.Context, n int, req *toolcrib.Request) ([]toolcrib.Delta, error) {
				if req.Model == "one" && n == 0 {
					return nil, &toolcrib.ModelError{Class: toolcrib.ErrOverloaded, Unsent: true, RetryAfter: 20 * time.Second}
				}
				return say("from " + req.Model), nil
			}
			began := time.Now()
			s := run(t, w, func(k *agent.Task) {
				if !alone {
					k.Models = append(k.Models, journal.ModelInfo{Ref: "fake/two", Provider: "fake", ID: "two", Price: toolcrib.Price{Known: true}})
				}
			})
			waited := time.Since(began) >= 20*time.Second
			if alone {
				equal(t, "content", s.Done.Content, "from one")
				equal(t, "waited", waited, true)
				return
			}
			equal(t, "content", s.Done.Content, "from two")
			equal(t, "waited", waited, false)
		})
	}
}

// What was cancelled before it was sent costs nothing.
func TestCancelledBeforeSent(t *testing.T) {
	for _, unsent := range []bool{true, false} {
		w := newWorld(t, gate.ConfirmNever)
		ctx, cancel := context.WithCancelCause(t.Context())
		w.reply = func(context.Context, int, *toolcrib.Request) ([]toolcrib.Delta, error) {
			cancel(&agent.CancelError{By: "local:test"})
			return nil, &toolcrib.ModelError{Class: toolcrib.ErrOther, Unsent: unsent, Err: context.Canceled}
		}
		s, err := w.runner.Run(ctx, task())
		if err != nil {
			t.Fatal(err)
		}
		equal(t, "status", s.Status, toolcrib.StatusCancelled)
		equal(t, "requests", s.Usage.Requests == 0, unsent)
	}
}

// Parameters that were not set are not sent: a model's own bound on its output limits what an agent or
// a budget requests, and the reserve.
func TestMaxOutput(t *testing.T) {
	for _, c := range []struct{ agent, model, tokens, sent int }{
		{0, 0, 0, 0},
		{0, 128000, 0, 0},
		{500, 0, 0, 500},
		{500, 100, 0, 100},
		{500, 1000, 0, 500},
		{0, 128000, 2000, -1},
		{0, 100, 2000, 0},
		{50, 0, 2000, 50},
	} {
		w := newWorld(t, gate.ConfirmNever)
		w.script(say("ok"))
		run(t, w, func(k *agent.Task) {
			k.Agent.MaxOutputTokens, k.Models[0].MaxOutput, k.Agent.Budget.MaxTokens = c.agent, c.model, int64(c.tokens)
		})
		got := w.requests[0].MaxOutputTokens
		if c.sent < 0 && (got <= 0 || got >= c.tokens) || c.sent >= 0 && got != c.sent {
			t.Errorf("%+v: sent %d", c, got)
		}
	}
}

// A budget is not evaded by reporting nothing: what a provider says cannot be true
// is estimated (N6, N23).
func TestN23_ReportedAsZero(t *testing.T) {
	zero := toolcrib.Delta{Finish: &toolcrib.Finish{Reason: toolcrib.FinishToolCalls, Usage: toolcrib.TokenUsage{Reported: true}}}
	w := newWorld(t, gate.ConfirmNever)
	w.reply = func(_ context.Context, n int, _ *toolcrib.Request) ([]toolcrib.Delta, error) {
		return []toolcrib.Delta{{ToolCall: &toolcrib.ToolCallDelta{Name: "echo", Arguments: fmt.Sprintf(`{"n":%d,"text":%q}`, n, strings.Repeat("word ", 100))}}, zero}, nil
	}
	s := run(t, w, func(k *agent.Task) { k.Agent.Budget.MaxTokens = 5000 }, limits(func(l *toolcrib.Limits) { l.MaxIterations = 100 }))
	equal(t, "reason", s.Done.StopReason, toolcrib.StopBudgetExhausted)
	equal(t, "estimated", s.Usage.Estimated, true)
	if s.Usage.TotalTokens > 5000 || s.Usage.TotalTokens < 1000 {
		t.Errorf("%d tokens", s.Usage.TotalTokens)
	}
}

// A request that was given up before it wrote anything counts with its prompt.
func TestCancelledBeforeOutput(t *testing.T) {
	w := newWorld(t, gate.ConfirmNever)
	ctx, cancel := context.WithCancelCause(t.Context())
	w.reply = func(context.Context, int, *toolcrib.Request) ([]toolcrib.Delta, error) {
		cancel(&agent.CancelError{By: "local:test"})
		return nil, context.Canceled
	}
	s, err := w.runner.Run(ctx, task())
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "output", s.Usage.OutputTokens, int64(0))
	equal(t, "requests", s.Usage.Requests, 1)
	if s.Usage.InputTokens == 0 || !s.Usage.Estimated {
		t.Errorf("%+v", s.Usage)
	}
}
