package sqlite_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/store"
	"github.com/toolcrib/toolcrib/store/sqlite"
)

// spender appends to a run at times of its own.
type spender struct {
	t     testing.TB
	run   toolcrib.RunID
	after toolcrib.Seq
	sum   toolcrib.Usage
	n     int
}

func (p *spender) add(s *sqlite.Store, at time.Time, bodies ...toolcrib.Body) {
	p.t.Helper()
	events := make([]toolcrib.Event, len(bodies))
	for i, b := range bodies {
		events[i] = toolcrib.Event{Time: at, Body: b}
	}
	if err := s.Append(p.t.Context(), p.run, p.after, events...); err != nil {
		p.t.Fatal(err)
	}
	p.after += toolcrib.Seq(len(bodies))
}

func (p *spender) start(s *sqlite.Store, at time.Time, user, agent string, session toolcrib.SessionID, parent toolcrib.RunID) {
	p.t.Helper()
	b := started(user, agent, session, parent)
	b.Models = []journal.ModelInfo{
		{Ref: "small", Provider: "openai", ID: "mini", Price: toolcrib.Price{Known: true}},
		{Ref: "big", Provider: "anthropic", ID: "large", Price: toolcrib.Price{Known: true}},
	}
	p.add(s, at, b)
}

// ask is one request to a model that costs so many cents.
func (p *spender) ask(s *sqlite.Store, at time.Time, model int, cents float64, estimated bool) {
	p.t.Helper()
	p.add(s, at, p.request(model))
	p.add(s, at, &journal.Message{Request: p.n}, p.settle(cents/100, estimated))
}

func (p *spender) request(model int) toolcrib.Body {
	p.n++
	return &journal.ModelRequest{Request: p.n, Model: model}
}

func (p *spender) settle(usd float64, estimated bool) toolcrib.Body {
	tokens := toolcrib.TokenUsage{InputTokens: 100, CachedInputTokens: 40, CacheWriteTokens: 5, OutputTokens: 10, ReasoningTokens: 3}
	p.count(tokens, usd, estimated)
	return &journal.Usage{Request: p.n, Tokens: tokens, CostUSD: usd, Estimated: estimated, Sum: p.sum}
}

func (p *spender) count(t toolcrib.TokenUsage, usd float64, estimated bool) {
	p.sum.Requests++
	p.sum.InputTokens += t.InputTokens
	p.sum.CachedInputTokens += t.CachedInputTokens
	p.sum.CacheWriteTokens += t.CacheWriteTokens
	p.sum.OutputTokens += t.OutputTokens
	p.sum.ReasoningTokens += t.ReasoningTokens
	p.sum.TotalTokens = p.sum.InputTokens + p.sum.OutputTokens
	p.sum.CostUSD += usd
	p.sum.Estimated = p.sum.Estimated || estimated
}

func (p *spender) end(s *sqlite.Store, at time.Time) {
	p.t.Helper()
	p.add(s, at, &journal.Done{Status: toolcrib.StatusCompleted, StopReason: toolcrib.StopCompleted, Usage: p.sum})
}

var (
	saturday = time.Date(2026, 2, 28, 23, 59, 0, 0, time.UTC)
	sunday   = saturday.Add(2 * time.Minute)
)

// spent is a store in which ann's run goes over midnight and calls a sub-agent, and
// bob has one that calls tools without a model.
func spent(t *testing.T) *sqlite.Store {
	s := open(t)
	a, child, b := &spender{t: t, run: "run_a"}, &spender{t: t, run: "run_child"}, &spender{t: t, run: "run_b"}
	a.start(s, saturday, "ann", "default", "ses_1", "")
	a.ask(s, saturday, 0, 10, false)
	a.add(s, saturday, &journal.ToolResult{Name: "spawn", Status: toolcrib.ResultOK, DurationMS: 50})
	child.start(s, saturday, "ann", "worker", "ses_1", "run_a")
	child.ask(s, sunday, 1, 40, true)
	child.end(s, sunday)
	a.ask(s, sunday, 1, 20, false)
	a.add(s, sunday, &journal.ToolResult{Name: "read_file", Status: toolcrib.ResultRefused}, &journal.ToolResult{Name: "read_file", Status: toolcrib.ResultError, DurationMS: 7})
	a.end(s, sunday)
	b.start(s, sunday, "bob", "default", "", "")
	b.add(s, sunday, &journal.ToolResult{Name: "read_file", Status: toolcrib.ResultOK, DurationMS: 2})
	b.end(s, sunday)
	return s
}

// line is a row in short.
func line(r store.UsageRow) string {
	text := fmt.Sprintf("%s: %d runs, %d requests, %d+%d tokens, %.2f USD, %d calls, %d errors", r.Key, r.Runs, r.Requests, r.InputTokens, r.OutputTokens, r.CostUSD, r.Calls, r.Errors)
	if r.Estimated {
		text += ", estimated"
	}
	if r.Refused+r.DurationMS > 0 {
		text += fmt.Sprintf(", %d refused, %d ms", r.Refused, r.DurationMS)
	}
	return text
}

func lines(t testing.TB, s *sqlite.Store, q store.UsageQuery) []string {
	t.Helper()
	rows, err := s.Usage(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	list := []string{}
	for _, r := range rows {
		list = append(list, line(r))
	}
	return list
}

func usageWants() map[string]struct {
	q    store.UsageQuery
	want []string
} {
	return map[string]struct {
		q    store.UsageQuery
		want []string
	}{
		"total": {store.UsageQuery{}, []string{": 2 runs, 3 requests, 300+30 tokens, 0.70 USD, 4 calls, 2 errors, estimated, 1 refused, 59 ms"}},
		"day": {store.UsageQuery{By: store.UsageByDay}, []string{
			"2026-02-28: 1 runs, 1 requests, 100+10 tokens, 0.10 USD, 1 calls, 0 errors, 0 refused, 50 ms",
			"2026-03-01: 1 runs, 2 requests, 200+20 tokens, 0.60 USD, 3 calls, 2 errors, estimated, 1 refused, 9 ms",
		}},
		"user": {store.UsageQuery{By: store.UsageByUser}, []string{
			"ann: 2 runs, 3 requests, 300+30 tokens, 0.70 USD, 3 calls, 2 errors, estimated, 1 refused, 57 ms",
			"bob: 0 runs, 0 requests, 0+0 tokens, 0.00 USD, 1 calls, 0 errors, 0 refused, 2 ms",
		}},
		"agent": {store.UsageQuery{By: store.UsageByAgent}, []string{
			"worker: 1 runs, 1 requests, 100+10 tokens, 0.40 USD, 0 calls, 0 errors, estimated",
			"default: 1 runs, 2 requests, 200+20 tokens, 0.30 USD, 4 calls, 2 errors, 1 refused, 59 ms",
		}},
		"model": {store.UsageQuery{By: store.UsageByModel}, []string{
			"anthropic/large: 1 runs, 2 requests, 200+20 tokens, 0.60 USD, 2 calls, 2 errors, estimated, 1 refused, 7 ms",
			"openai/mini: 1 runs, 1 requests, 100+10 tokens, 0.10 USD, 1 calls, 0 errors, 0 refused, 50 ms",
			": 0 runs, 0 requests, 0+0 tokens, 0.00 USD, 1 calls, 0 errors, 0 refused, 2 ms",
		}},
		"provider": {store.UsageQuery{By: store.UsageByProvider, User: "ann"}, []string{
			"anthropic: 1 runs, 2 requests, 200+20 tokens, 0.60 USD, 2 calls, 2 errors, estimated, 1 refused, 7 ms",
			"openai: 1 runs, 1 requests, 100+10 tokens, 0.10 USD, 1 calls, 0 errors, 0 refused, 50 ms",
		}},
		"tool": {store.UsageQuery{By: store.UsageByTool}, []string{
			"read_file: 0 runs, 0 requests, 0+0 tokens, 0.00 USD, 3 calls, 2 errors, 1 refused, 9 ms",
			"spawn: 0 runs, 0 requests, 0+0 tokens, 0.00 USD, 1 calls, 0 errors, 0 refused, 50 ms",
		}},
		"tool of bob": {store.UsageQuery{By: store.UsageByTool, User: "bob"}, []string{
			"read_file: 0 runs, 0 requests, 0+0 tokens, 0.00 USD, 1 calls, 0 errors, 0 refused, 2 ms",
		}},
		"session": {store.UsageQuery{By: store.UsageBySession}, []string{
			"ses_1: 2 runs, 3 requests, 300+30 tokens, 0.70 USD, 0 calls, 0 errors, estimated",
		}},
		"run": {store.UsageQuery{By: store.UsageByRun}, []string{
			"run_child: 1 runs, 1 requests, 100+10 tokens, 0.40 USD, 0 calls, 0 errors, estimated",
			"run_a: 1 runs, 2 requests, 200+20 tokens, 0.30 USD, 0 calls, 0 errors",
		}},
		"first of the runs": {store.UsageQuery{By: store.UsageByRun, Limit: 1}, []string{
			"run_child: 1 runs, 1 requests, 100+10 tokens, 0.40 USD, 0 calls, 0 errors, estimated",
		}},
		"since": {store.UsageQuery{By: store.UsageByDay, Since: sunday.Add(20 * time.Hour)}, []string{
			"2026-03-01: 1 runs, 2 requests, 200+20 tokens, 0.60 USD, 3 calls, 2 errors, estimated, 1 refused, 9 ms",
		}},
		"until": {store.UsageQuery{By: store.UsageByDay, Until: saturday.Add(-20 * time.Hour)}, []string{
			"2026-02-28: 1 runs, 1 requests, 100+10 tokens, 0.10 USD, 1 calls, 0 errors, 0 refused, 50 ms",
		}},
		"runs of the second day": {store.UsageQuery{By: store.UsageByRun, Since: sunday}, []string{}}, // both began on the first
		"nobody":                 {store.UsageQuery{By: store.UsageByUser, User: "eve"}, []string{}},
	}
}

func TestUsage(t *testing.T) {
	s := spent(t)
	for name, c := range usageWants() {
		if diff := cmp.Diff(c.want, lines(t, s, c.q)); diff != "" {
			t.Errorf("%s (-want +got)\n%s", name, diff)
		}
	}
	rows, err := s.Usage(t.Context(), store.UsageQuery{By: store.UsageByModel, Limit: 1})
	if err != nil || len(rows) != 1 {
		t.Fatalf("%+v, error %v", rows, err)
	}
	want := store.UsageRow{
		Key: "anthropic/large", Provider: "anthropic", Model: "large", Runs: 1, Requests: 2, TotalTokens: 220, CostUSD: 0.6, Estimated: true, Calls: 2, Errors: 2, Refused: 1, DurationMS: 7,
		UsageTokens: store.UsageTokens{InputTokens: 200, CachedInputTokens: 80, CacheWriteTokens: 10, OutputTokens: 20, ReasoningTokens: 6},
	}
	if diff := cmp.Diff(want, rows[0]); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if _, err := s.Usage(t.Context(), store.UsageQuery{By: "colour"}); err == nil {
		t.Error("summed up by colour")
	}
}

// What was used stays when runs lose their content, and when they are removed.
func TestUsageOfPruned(t *testing.T) {
	s := spent(t)
	for _, o := range []store.PruneOptions{
		{Runs: []toolcrib.RunID{"run_a", "run_child"}, ContentOnly: true},
		{Runs: []toolcrib.RunID{"run_a", "run_b"}},
	} {
		prune(t, s, o)
		verifyAll(t, s)
		for name, c := range usageWants() {
			if diff := cmp.Diff(c.want, lines(t, s, c.q)); diff != "" {
				t.Errorf("%s (-want +got)\n%s", name, diff)
			}
		}
	}
}

// A fork takes no use of the run it comes from with it.
func TestUsageOfFork(t *testing.T) {
	s := spent(t)
	f := &spender{t: t, run: "run_fork"}
	start := started("ann", "default", "", "")
	start.Models, start.ForkedFrom, start.ForkedRound = []journal.ModelInfo{{Provider: "openai", ID: "mini", Price: toolcrib.Price{Known: true}}}, "run_a", 2
	start.Input = []toolcrib.Message{toolcrib.TextMessage(toolcrib.RoleUser, "hello"), toolcrib.TextMessage(toolcrib.RoleAssistant, "yes?")}
	f.add(s, sunday, start)
	f.ask(s, sunday, 0, 1, false)
	f.end(s, sunday)
	want := []string{": 3 runs, 4 requests, 400+40 tokens, 0.71 USD, 4 calls, 2 errors, estimated, 1 refused, 59 ms"}
	if diff := cmp.Diff(want, lines(t, s, store.UsageQuery{})); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// The use of any runs, driven by several stores in turn as they are taken up by
// other processes, adds up to what the runs say of themselves, and is what the
// events give.
func TestUsageAddsUp(t *testing.T) {
	path := open(t).Path()
	stores := []*sqlite.Store{openAt(t, path, sqlite.Options{}), openAt(t, path, sqlite.Options{})}
	users := 0
	rapid.Check(t, func(rt *rapid.T) {
		users++
		user := fmt.Sprint("user ", users)
		runs := []*spender{{t: t, run: toolcrib.RunID("run_a_" + user)}, {t: t, run: toolcrib.RunID("run_b_" + user)}}
		for i, r := range runs {
			r.start(stores[i], saturday, user, "default", "", "")
		}
		var total toolcrib.Usage
		calls := int64(0)
		for range rapid.IntRange(1, 12).Draw(rt, "steps") {
			s := stores[rapid.IntRange(0, 1).Draw(rt, "store")]
			r := runs[rapid.IntRange(0, 1).Draw(rt, "run")]
			at := saturday.Add(time.Duration(rapid.IntRange(-2, 2).Draw(rt, "days")) * 24 * time.Hour) // clocks may go back
			usd := float64(rapid.IntRange(0, 1000).Draw(rt, "cost")) / 1e6
			switch rapid.IntRange(0, 4).Draw(rt, "what") {
			case 0:
				r.ask(s, at, rapid.IntRange(0, 1).Draw(rt, "model"), usd*100, rapid.Bool().Draw(rt, "estimated"))
			case 1: // several in one append
				r.add(s, at, r.request(0), r.settle(usd, false), r.request(1), r.settle(usd, false), &journal.ToolResult{Name: "x"})
				calls++
			case 2:
				charged := toolcrib.TokenUsage{InputTokens: 7, OutputTokens: 1}
				failed := &journal.ModelFailed{Charged: charged, ChargedUSD: usd}
				r.count(charged, usd, true)
				failed.Sum = r.sum
				r.add(s, at, failed)
			case 3:
				r.add(s, at, &journal.ModelFailed{Unsent: true, Sum: r.sum})
			case 4:
				r.add(s, at, &journal.ToolResult{Name: "y", Status: toolcrib.ResultOK})
				calls++
			}
		}
		for _, r := range runs {
			rec, err := stores[0].Run(t.Context(), r.run)
			if err != nil || rec.Usage != r.sum {
				rt.Fatalf("%+v, error %v; want %+v", rec.Usage, err, r.sum)
			}
			total.Requests += r.sum.Requests
			total.InputTokens += r.sum.InputTokens
			total.OutputTokens += r.sum.OutputTokens
			total.CostUSD += r.sum.CostUSD
			total.Estimated = total.Estimated || r.sum.Estimated
		}
		for _, by := range []store.UsageBy{store.UsageTotal, store.UsageByDay, store.UsageByModel, store.UsageByRun} {
			rows, err := stores[1].Usage(t.Context(), store.UsageQuery{By: by, User: user})
			if err != nil {
				rt.Fatal(err)
			}
			var got toolcrib.Usage
			var found int64
			for _, row := range rows {
				got.Requests += int(row.Requests)
				got.InputTokens += row.InputTokens
				got.OutputTokens += row.OutputTokens
				got.CostUSD += row.CostUSD
				got.Estimated = got.Estimated || row.Estimated
				found += row.Calls
			}
			if math.Abs(got.CostUSD-total.CostUSD) > 1e-9 {
				rt.Errorf("by %q: cost %v, want %v", by, got.CostUSD, total.CostUSD)
			}
			total.CachedInputTokens, got.CostUSD = 0, total.CostUSD
			if got.Requests != total.Requests || got.InputTokens != total.InputTokens || got.OutputTokens != total.OutputTokens || got.Estimated != total.Estimated || found != calls && by != store.UsageByRun {
				rt.Errorf("by %q: %+v and %d calls, want %+v and %d", by, got, found, total, calls)
			}
		}
	})
	verifyAll(t, stores[0])
}
