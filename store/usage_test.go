package store_test

import (
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/store"
)

func TestDayOf(t *testing.T) {
	for text, want := range map[string]string{
		"2026-02-28T23:59:59.999999Z":      "2026-02-28",
		"2026-03-01T00:00:00Z":             "2026-03-01",
		"2026-03-01T00:30:00+01:00":        "2026-02-28", // days are those of UTC
		"2026-02-28T23:30:00-05:00":        "2026-03-01",
		"1970-01-01T00:00:00Z":             "1970-01-01",
		"1969-12-31T23:59:59.5Z":           "1969-12-31",
		"1969-12-31T00:00:00Z":             "1969-12-31",
		"1969-12-30T23:59:59Z":             "1969-12-30",
		"2024-02-29T12:00:00.000000-12:00": "2024-03-01",
	} {
		at, err := time.Parse(time.RFC3339Nano, text)
		if err != nil {
			t.Fatal(err)
		}
		if got := store.DayOf(at).String(); got != want {
			t.Errorf("%s is of %s, want %s", text, got, want)
		}
	}
}

// meterOf goes through events as a store does, and tells what was used.
func meterOf(bodies ...toolcrib.Body) store.Used {
	used := make(store.Used)
	rec := store.RunRecord{ID: "run_a"}
	var m store.Meter
	for i, b := range bodies {
		e := toolcrib.Event{Seq: toolcrib.Seq(i + 1), Time: time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC), Body: b}
		m.Learn(b, e.Time)
		for _, c := range m.Charge(nil, &rec, e) {
			used.Add(c)
		}
		store.Project(&rec, e)
	}
	return used
}

func TestMeter(t *testing.T) {
	start := &journal.RunStarted{
		Agent: toolcrib.Agent{Name: "default"}, Principal: toolcrib.Principal{User: "ann"}, Session: "ses_1",
		Models: []journal.ModelInfo{{Provider: "openai", ID: "a"}, {Provider: "anthropic", ID: "b"}},
	}
	tokens := toolcrib.TokenUsage{InputTokens: 10, CachedInputTokens: 4, CacheWriteTokens: 3, OutputTokens: 5, ReasoningTokens: 2}
	got := meterOf(
		start,
		&journal.ToolResult{Name: "early", Status: toolcrib.ResultOK}, // of no model yet
		&journal.ModelRequest{Model: 0},
		&journal.ModelFailed{Charged: tokens, ChargedUSD: 0.5, Sum: toolcrib.Usage{Requests: 1}},
		&journal.ModelFailed{Unsent: true, Charged: tokens, ChargedUSD: 9, Sum: toolcrib.Usage{Requests: 1}}, // never left
		&journal.ModelFailed{Sum: toolcrib.Usage{Requests: 2}},                                               // refused outright: a request that cost nothing
		&journal.ModelRequest{Model: 1},
		&journal.Usage{Tokens: tokens, CostUSD: 0.25, Sum: toolcrib.Usage{Requests: 3}},
		&journal.Usage{Tokens: tokens, CostUSD: 0.25, Estimated: true, Sum: toolcrib.Usage{Requests: 4}},
		&journal.ToolResult{Name: "read_file", Status: toolcrib.ResultOK, DurationMS: 5},
		&journal.ToolResult{Name: "read_file", Status: toolcrib.ResultRefused},
		&journal.ToolResult{Name: "no such name", Status: toolcrib.ResultError},
		&journal.ModelRequest{Model: 7}, // none of the run's
		&journal.Usage{Tokens: toolcrib.TokenUsage{InputTokens: -1, OutputTokens: math.MaxInt64}, CostUSD: math.Inf(1), Sum: toolcrib.Usage{Requests: 5}},
		&journal.Usage{CostUSD: math.NaN(), Sum: toolcrib.Usage{Requests: 6}},
		&journal.Done{Status: toolcrib.StatusCompleted},
		&journal.Usage{Tokens: tokens, CostUSD: 1}, // after the end
		&journal.ToolResult{Name: "read_file", Status: toolcrib.ResultOK},
	)
	day := store.DayOf(time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC))
	key := store.UseKey{Kind: store.UseDaily, Day: day, User: "ann", Agent: "default"}
	a, b := key, key
	a.Provider, a.Model = "openai", "a"
	b.Provider, b.Model = "anthropic", "b"
	sums := store.UsageTokens{InputTokens: 10, CachedInputTokens: 4, CacheWriteTokens: 3, OutputTokens: 5, ReasoningTokens: 2}
	twice := store.UsageTokens{InputTokens: 20, CachedInputTokens: 8, CacheWriteTokens: 6, OutputTokens: 10, ReasoningTokens: 4}
	want := store.Used{
		a:   {Runs: 1, Requests: 2, UsageTokens: sums, NanoUSD: 5e8, Estimated: true},
		b:   {Requests: 2, UsageTokens: twice, NanoUSD: 5e8, Estimated: true, Calls: 2, Errors: 1, Refused: 1, DurationMS: 5},
		key: {Requests: 2, UsageTokens: store.UsageTokens{OutputTokens: 1 << 40}, NanoUSD: 1e15, Calls: 1},

		{Kind: store.UseCalls, Tool: "early", Day: day, User: "ann"}:     {Calls: 1},
		{Kind: store.UseCalls, Tool: "read_file", Day: day, User: "ann"}: {Calls: 2, Errors: 1, Refused: 1, DurationMS: 5},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// What a run has used by itself is in its record, and kept within bounds when it is removed.
func TestRunRecord_Use(t *testing.T) {
	rec := store.RunRecord{
		ID: "run_a", User: "ann", Session: "ses_1", CreatedAt: time.Date(2026, 3, 1, 23, 0, 0, 0, time.UTC), Unpriced: true,
		Usage: toolcrib.Usage{
			Requests: 2, InputTokens: math.MaxInt64, CachedInputTokens: -1, OutputTokens: 7, CostUSD: math.Inf(1), Estimated: true,
		},
	}
	want := store.UseEntry{
		store.UseKey{Kind: store.UseRuns, User: "ann", Day: store.DayOf(rec.CreatedAt), Run: "run_a", Session: "ses_1"},
		store.UseSum{
			Runs: 1, Requests: 2, UsageTokens: store.UsageTokens{InputTokens: 1 << 40, OutputTokens: 7}, NanoUSD: 1e15,
			Estimated: true, Unpriced: true,
		},
	}
	if got := rec.Use(); got != want {
		t.Errorf("%+v", got)
	}
}

// A model that was chosen to continue the run is one more of its models; a copy of the meter that was made
// before has its own.
func TestMeter_ModelChosen(t *testing.T) {
	chosen := func(id string) *journal.ModelChosen {
		return &journal.ModelChosen{Model: journal.ModelInfo{Provider: "p", ID: id, Price: toolcrib.Price{Known: true}}}
	}
	used := meterOf(
		&journal.RunStarted{Models: []journal.ModelInfo{{Provider: "p", ID: "first"}}},
		chosen("second"), chosen("third"),
		&journal.ModelRequest{Model: 2},
		&journal.Usage{Tokens: toolcrib.TokenUsage{InputTokens: 10}, Sum: toolcrib.Usage{Requests: 1}},
	)
	for key, sum := range used {
		if key.Kind == store.UseDaily && (key.Model != "third" || key.Provider != "p" || sum.Unpriced) {
			t.Errorf("%+v: %+v", key, sum)
		}
	}
	var m store.Meter
	m.Learn(&journal.RunStarted{Models: []journal.ModelInfo{{ID: "first"}}}, time.Time{})
	m.Learn(chosen("second"), time.Time{})
	kept := m
	m.Learn(chosen("third"), time.Time{})
	kept.Learn(chosen("other"), time.Time{})
	m.Learn(&journal.ModelRequest{Model: 2}, time.Time{})
	usage := toolcrib.Event{Body: &journal.Usage{Sum: toolcrib.Usage{Requests: 1}}}
	if got := m.Charge(nil, &store.RunRecord{}, usage); len(got) == 0 || got[0].Model != "third" {
		t.Errorf("%+v", got)
	}
}

// What costs nothing is told from what has no price.
func TestMeterUnpriced(t *testing.T) {
	start := &journal.RunStarted{Models: []journal.ModelInfo{{ID: "unknown"}, {ID: "free", Price: toolcrib.Price{Known: true}}}}
	tokens := toolcrib.TokenUsage{InputTokens: 10}
	for name, c := range map[string]struct {
		model int
		body  toolcrib.Body
		want  bool
	}{
		"unknown":                {0, &journal.Usage{Tokens: tokens}, true},
		"free":                   {1, &journal.Usage{Tokens: tokens, Estimated: true}, false},
		"told by the provider":   {0, &journal.Usage{Tokens: toolcrib.TokenUsage{InputTokens: 10, CostUSD: new(float64)}}, false},
		"failed, unknown":        {0, &journal.ModelFailed{Charged: tokens}, true},
		"failed, free":           {1, &journal.ModelFailed{Charged: tokens}, false},
		"refused outright: none": {0, &journal.ModelFailed{}, false},
	} {
		for key, sum := range meterOf(start, &journal.ModelRequest{Model: c.model}, c.body) {
			if key.Kind == store.UseDaily && sum.Unpriced != c.want {
				t.Errorf("%s: unpriced is %t", name, sum.Unpriced)
			}
		}
	}
}

func TestUsageQueryCheck(t *testing.T) {
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		q    store.UsageQuery
		good bool
	}{
		{store.UsageQuery{}, true},
		{store.UsageQuery{By: store.UsageByRun, Since: at, Until: at}, true},
		{store.UsageQuery{Since: at, Until: at.Add(-time.Hour)}, true}, // the same day
		{store.UsageQuery{Since: at, Until: at.AddDate(0, 0, -1)}, false},
		{store.UsageQuery{By: "colour"}, false},
	} {
		if err := c.q.Check(); (err == nil) != c.good {
			t.Errorf("%+v: error %v", c.q, err)
		}
	}
	for limit, want := range map[int]int{-1: store.DefaultUsageRows, 0: store.DefaultUsageRows, 7: 7, 1 << 30: store.MaxUsageRows} {
		if got := (store.UsageQuery{Limit: limit}).Bound(); got != want {
			t.Errorf("limit %d: %d", limit, got)
		}
	}
}
