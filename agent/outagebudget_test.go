package agent_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/agent/core"
	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/journal"
)

var reset = toolcrib.ModelError{Class: toolcrib.ErrNetwork, Message: "connection reset"} //nolint:gochecknoglobals // a constant, if Go had them

// Tries without an answer are settled in full, so an outage can use up a small budget.
// That does not end the run: it parks, says what to add, and continues from there.
func TestOutage_UsesUpTheBudget(t *testing.T) {
	for name, tt := range map[string]struct {
		budget toolcrib.Budget
		from   int
		says   []string
	}{
		"tokens":          {toolcrib.Budget{MaxTokens: 6000}, 1, []string{"budget.max_tokens: what is left", "--add-tokens "}},
		"cost":            {toolcrib.Budget{MaxCostUSD: 0.01}, 1, []string{"budget.max_cost_usd: what is left", "--add-cost 0.0"}},
		"requests":        {toolcrib.Budget{MaxRequests: 4}, 1, []string{"budget.max_requests: 4 of 4 spent", "--add-requests 3"}},
		"before a reply":  {toolcrib.Budget{MaxTokens: 6000}, 0, []string{"budget.max_tokens", "--add-tokens "}},
		"all of them":     {toolcrib.Budget{MaxTokens: 6000, MaxRequests: 90, MaxCostUSD: 5}, 1, []string{"--add-tokens ", "--add-cost ", "--add-requests "}},
		"with two models": {toolcrib.Budget{MaxTokens: 6000}, 1, []string{"budget.max_tokens"}},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, gate.ConfirmNever)
			w.byTurn(calls("write", `{"n":1}`), say("done"))
			w.down(&outage{from: tt.from, until: time.Now().Add(time.Hour), err: reset})
			s := run(t, w, func(k *agent.Task) {
				k.Agent.Budget = tt.budget
				if name == "with two models" {
					k.Models = append(k.Models, k.Models[0])
				}
			})
			equal(t, name, s.Status, toolcrib.StatusWaitingForProvider)
			out := *s.Pending.Error
			equal(t, name+": class", out.Class, core.ClassBudget)
			equal(t, name+": pause", out.RetryMS, 0)
			for _, want := range append(tt.says, "connection reset", "runs resume "+string(s.Run)+" --add-") {
				if !strings.Contains(out.Message, want) {
					t.Errorf("%s: %q does not say %q", name, out.Message, want)
				}
			}
			// As long as nothing is added, nothing is sent.
			sent := len(w.requests)
			s = w.resumed(t, s)
			equal(t, name, s.Status, toolcrib.StatusWaitingForProvider)
			equal(t, name+": requests", len(w.requests), sent)
			time.Sleep(2 * time.Hour)
			for range 2 {
				granted := journal.Granted{Tokens: out.AddTokens, CostUSD: out.AddCostUSD, Requests: out.AddRequests}
				more, err := w.runner.Add(t.Context(), s.Run, agent.Addition{Granted: &granted})
				if err != nil {
					t.Fatal(name, err)
				}
				equal(t, name+": granted", more.Status, toolcrib.StatusQueued)
				if s = w.resumed(t, s); s.Ended() {
					break
				}
			}
			equal(t, name+": content", s.Done.Content, "done")
			equal(t, name+": writes", w.wrote(), 1)
			equal(t, name+": sent", len(w.requests), sent+2-tt.from)
		})
	}
}

// A budget that replies have used up ends the run, whatever failed besides.
func TestOutage_BudgetUsedUpByReplies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, gate.ConfirmNever)
		w.byTurn(calls("echo", `{}`), calls("echo", `{"n":2}`), calls("echo", `{"n":3}`), say("never"))
		w.down(&outage{from: 1, until: time.Now().Add(time.Second), err: toolcrib.ModelError{Class: toolcrib.ErrOverloaded, Status: 503}})
		s := run(t, w, func(k *agent.Task) { k.Agent.Budget.MaxTokens = 330 })
		equal(t, "reason", s.Done.StopReason, toolcrib.StopBudgetExhausted)
	})
	// What was granted for failures has made up for them.
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, gate.ConfirmNever)
		w.byTurn(calls("echo", `{}`), calls("echo", `{"n":2}`), calls("echo", `{"n":3}`), say("never"))
		out := &outage{from: 1, until: time.Now().Add(time.Hour), err: reset}
		w.down(out)
		s := run(t, w, func(k *agent.Task) { k.Agent.Budget.MaxRequests = 3 })
		equal(t, "add", s.Pending.Error.AddRequests, 2)
		if _, err := w.runner.Add(t.Context(), s.Run, agent.Addition{Granted: &journal.Granted{Requests: 2}}); err != nil {
			t.Fatal(err)
		}
		out.until = time.Time{}
		s = w.resumed(t, s)
		equal(t, "reason", s.Done.StopReason, toolcrib.StopBudgetExhausted)
		equal(t, "requests", s.Usage.Requests, 5)
	})
}

// A request that was never sent costs nothing. One that the provider refuses costs a request and no
// tokens. One without an answer is settled in full, as is one that a proxy gave up.
func TestOutage_WhatAFailureCosts(t *testing.T) {
	for name, tt := range map[string]struct {
		err              toolcrib.ModelError
		requests, tokens bool
	}{
		"unsent":          {toolcrib.ModelError{Class: toolcrib.ErrNetwork, Unsent: true}, false, false},
		"unsent, late":    {toolcrib.ModelError{Class: toolcrib.ErrTimeout, Unsent: true}, false, false},
		"429":             {toolcrib.ModelError{Class: toolcrib.ErrRateLimit, Status: 429}, true, false},
		"500":             {toolcrib.ModelError{Class: toolcrib.ErrOverloaded, Status: 500}, true, false},
		"503":             {toolcrib.ModelError{Class: toolcrib.ErrOverloaded, Status: 503}, true, false},
		"408":             {toolcrib.ModelError{Class: toolcrib.ErrTimeout, Status: 408}, true, false},
		"503, body hangs": {toolcrib.ModelError{Class: toolcrib.ErrTimeout, Status: 503}, true, false},
		"504":             {toolcrib.ModelError{Class: toolcrib.ErrTimeout, Status: 504}, true, true},
		"524":             {toolcrib.ModelError{Class: toolcrib.ErrTimeout, Status: 524}, true, true},
		"reset":           {reset, true, true},
		"200, cut":        {toolcrib.ModelError{Class: toolcrib.ErrNetwork, Status: 200}, true, true},
		"no answer":       {toolcrib.ModelError{Class: toolcrib.ErrTimeout}, true, true},
	} {
		w := newWorld(t, gate.ConfirmNever)
		o := w.runner.Options
		o.Retry = &journal.Retry{}
		w.runner, _ = agent.New(o)
		w.byTurn(calls("echo", `{}`), say("done"))
		w.down(&outage{from: 1, until: time.Now().Add(time.Hour), err: tt.err})
		s := run(t, w)
		equal(t, name, s.Status, toolcrib.StatusWaitingForProvider)
		equal(t, name+": requests", s.Usage.Requests == 2, tt.requests)
		equal(t, name+": tokens", s.Usage.TotalTokens > 110, tt.tokens)
		if !tt.tokens {
			equal(t, name+": cost", s.Usage.CostUSD, (100*1.0+10*2.0)/1e6)
		}
	}
}

// condensing makes requests for a summary fail in an outage, and those of the conversation
// succeed.
func condensing(w *world, o *outage) {
	reply := w.reply
	w.reply = func(ctx context.Context, n int, req *toolcrib.Request) ([]toolcrib.Delta, error) {
		if strings.HasPrefix(req.System, "You condense") && time.Now().Before(o.until) {
			err := o.err
			return nil, &err
		}
		return reply(ctx, n, req)
	}
}

// An outage during a request for a summary is waited for, and parks the run, like that of
// any other request. No message is left out because of it.
func TestOutage_Condensing(t *testing.T) {
	for name, tt := range map[string]struct {
		err     toolcrib.ModelError
		lasts   time.Duration
		parks   bool
		refused bool // the conversation was refused for its length
		cap     int
	}{
		"passes":              {err: overloaded, lasts: 4 * time.Minute},
		"passes, reset":       {err: reset, lasts: time.Minute},
		"parks":               {err: overloaded, lasts: time.Hour, parks: true},
		"parks at once":       {err: toolcrib.ModelError{Class: toolcrib.ErrAuth, Status: 401}, lasts: time.Hour, parks: true},
		"refused, passes":     {err: overloaded, lasts: 4 * time.Minute, refused: true},
		"refused, parks":      {err: reset, lasts: time.Hour, parks: true, refused: true},
		"uses up the budget":  {err: reset, lasts: time.Hour, parks: true, cap: 20},
		"refused, and budget": {err: reset, lasts: time.Hour, parks: true, refused: true, cap: 12},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, gate.ConfirmNever)
			tokens := 4000
			longTalk(w, 12, briefly)
			if tt.refused {
				tokens = 0
				longTalk(w, 6, briefly)
				inner := w.reply
				w.reply = func(ctx context.Context, n int, req *toolcrib.Request) ([]toolcrib.Delta, error) {
					if !strings.HasPrefix(req.System, "You condense") && len(req.Messages) > 8 {
						return nil, &toolcrib.ModelError{Class: toolcrib.ErrContextLength, Status: 400, Message: "too long"}
					}
					return inner(ctx, n, req)
				}
			}
			condensing(w, &outage{until: time.Now().Add(tt.lasts), err: tt.err})
			s := run(t, w, small(tokens, ""), func(k *agent.Task) { k.Agent.Budget.MaxRequests = tt.cap })
			if tt.parks {
				if s.Status != toolcrib.StatusWaitingForProvider {
					t.Fatalf("%s: %s %+v %+v", name, s.Status, s.Done, s.Failed)
				}
				equal(t, name+": budget", s.Pending.Error.Class == core.ClassBudget, tt.cap > 0)
				asked := slices.ContainsFunc(w.requests, func(r *toolcrib.Request) bool { return strings.HasPrefix(r.System, "You condense") })
				equal(t, name+": a summary was asked for", asked, true)
				add := s.Pending.Error.AddRequests
				equal(t, name, w.resumed(t, s).Status, toolcrib.StatusWaitingForProvider)
				time.Sleep(tt.lasts)
				if add > 0 {
					if _, err := w.runner.Add(t.Context(), s.Run, agent.Addition{Granted: &journal.Granted{Requests: add}}); err != nil {
						t.Fatal(err)
					}
				}
				s = w.resumed(t, s)
			}
			if s.Done == nil || s.Done.Content != "the end" {
				t.Fatalf("%s: %s %+v %+v", name, s.Status, s.Done, s.Failed)
			}
			equal(t, name+": left out", countCondensed(t, w, s.Run, core.ContextDrop), 0)
			if countCondensed(t, w, s.Run, core.ContextCondense) == 0 {
				t.Errorf("%s: nothing was condensed", name)
			}
		})
	}
}

// Where there is another model, it writes the summary, and continues.
func TestOutage_CondensingFallsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, gate.ConfirmNever)
		longTalk(w, 12, briefly)
		reply := w.reply
		w.reply = func(ctx context.Context, n int, req *toolcrib.Request) ([]toolcrib.Delta, error) {
			if strings.HasPrefix(req.System, "You condense") && req.Model != "two" {
				err := overloaded
				return nil, &err
			}
			return reply(ctx, n, req)
		}
		s := run(t, w, small(4000, ""), func(k *agent.Task) {
			two := k.Models[0]
			two.Ref, two.ID = "fake/two", "two"
			k.Models = append(k.Models, two)
		})
		equal(t, "content", s.Done.Content, "the end")
		equal(t, "left out", countCondensed(t, w, s.Run, core.ContextDrop), 0)
		if countCondensed(t, w, s.Run, core.ContextCondense) == 0 {
			t.Error("nothing was condensed")
		}
		equal(t, "notices", countNotices(w, core.NoticeFallback), 1)
	})
}

// A run that is cut off anywhere in an outage that uses up its budget, or in one during a
// request for a summary, comes to the same answer, and leaves nothing out.
func TestOutage_CutAtEveryEvent(t *testing.T) {
	for name, cap := range map[string]int{"budget": 20, "no budget": 0} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			replies := func(w *world, until time.Time) {
				w.reply = func(_ context.Context, _ int, req *toolcrib.Request) ([]toolcrib.Delta, error) {
					if strings.HasPrefix(req.System, "You condense") {
						return briefly()
					}
					turn := 0
					for _, m := range req.Messages {
						for _, p := range m.Parts {
							if p.ToolResult != nil {
								fmt.Sscanf(p.ToolResult.Content, `{"n":%d`, &turn)
							}
						}
					}
					if turn == 8 {
						return []toolcrib.Delta{{Text: "the end"}, unreported(toolcrib.FinishStop)}, nil
					}
					return []toolcrib.Delta{
						{ToolCall: &toolcrib.ToolCallDelta{Name: "echo", Arguments: fmt.Sprintf(`{"n":%d,"text":%q}`, turn+1, strings.Repeat("abcdef ", 100))}},
						unreported(toolcrib.FinishToolCalls),
					}, nil
				}
				condensing(w, &outage{until: until, err: reset})
			}
			// toTheEnd grants what is asked for, and resumes, until the outage is over.
			toTheEnd := func(w *world, s *agent.State) *agent.State {
				for range 8 {
					if s.Ended() {
						break
					}
					if s.Pending != nil && s.Pending.Error.AddRequests > 0 {
						if _, err := w.runner.Add(t.Context(), s.Run, agent.Addition{Granted: &journal.Granted{Requests: s.Pending.Error.AddRequests}}); err != nil {
							t.Fatal(err)
						}
					}
					time.Sleep(time.Hour)
					s = w.resumed(t, s)
				}
				if s.Done == nil || s.Done.Content != "the end" || s.Done.StopReason != toolcrib.StopCompleted {
					t.Errorf("%s: %s %+v %+v", name, s.Status, s.Done, s.Failed)
				}
				equal(t, name+": left out", countCondensed(t, w, s.Run, core.ContextDrop), 0)
				return s
			}
			w := newWorld(t, gate.ConfirmNever)
			replies(w, began.Add(time.Hour))
			s := run(t, w, small(3000, ""), func(k *agent.Task) { k.Agent.Budget.MaxRequests = cap })
			equal(t, name, s.Status, toolcrib.StatusWaitingForProvider)
			equal(t, name+": class", s.Pending.Error.Class == core.ClassBudget, cap > 0)
			s = toTheEnd(w, s)
			events, step := w.events(t, s.Run), 1
			if testing.Short() {
				step = 4
			}
			for n := 1; n < len(events); n += step {
				cut := cutAfter(t, events, n, s.Run, gate.ConfirmNever)
				replies(cut, time.Now().Add(time.Hour))
				before, err := cut.runner.Load(t.Context(), s.Run)
				if err != nil || before.Turn != nil && !before.Turn.Whole() {
					continue
				}
				toTheEnd(cut, cut.resumed(t, before))
				if t.Failed() {
					t.Fatalf("%s: cut after %d (%s)", name, n, events[n-1].Body.EventKind())
				}
			}
		})
	}
}
