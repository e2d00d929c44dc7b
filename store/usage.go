package store

import (
	"fmt"
	"math"
	"time"

	"github.com/toolcrib/toolcrib"
)

// UsageBy says what usage is summed up by.
type UsageBy string

// The values of [UsageQuery.By].
const (
	UsageTotal      UsageBy = "" // one row
	UsageByDay      UsageBy = "day"
	UsageByUser     UsageBy = "user"
	UsageByAgent    UsageBy = "agent"
	UsageByModel    UsageBy = "model"
	UsageByProvider UsageBy = "provider"
	UsageByTool     UsageBy = "tool"
	UsageBySession  UsageBy = "session"
	UsageByRun      UsageBy = "run"
)

// The bounds of [UsageQuery.Limit].
const (
	DefaultUsageRows = 1000
	MaxUsageRows     = 10_000
)

// UsageQuery chooses what is summed up.
type UsageQuery struct {
	By UsageBy
	// Since and Until are moments whose whole days (UTC) are the first and the last
	// that count; zero = no bound.
	Since, Until time.Time
	User         string // "" = all
	Limit        int    // of rows; 0 = DefaultUsageRows, at most MaxUsageRows
}

// Check tells what is wrong with a query; nil = nothing.
func (q UsageQuery) Check() error {
	switch q.By {
	case UsageTotal, UsageByDay, UsageByUser, UsageByAgent, UsageByModel, UsageByProvider, UsageByTool, UsageBySession, UsageByRun:
	default:
		return fmt.Errorf("usage: cannot be summed up by %q: must be day, user, agent, model, provider, tool, session or run", q.By)
	}
	if !q.Since.IsZero() && !q.Until.IsZero() && DayOf(q.Until) < DayOf(q.Since) {
		return fmt.Errorf("usage: until (%s) is before since (%s)", DayOf(q.Until), DayOf(q.Since))
	}
	return nil
}

// Bound returns the limit that holds.
func (q UsageQuery) Bound() int {
	if q.Limit <= 0 {
		return DefaultUsageRows
	}
	return min(q.Limit, MaxUsageRows)
}

// UsageRow is what was used, of one day, user, … in the time asked for. Days are
// those of UTC, by the time of the events: a run over midnight is in two days.
// Sub-runs count under their own agent, and once. Runs that were pruned count on.
type UsageRow struct {
	// Key is the day (2026-02-28), user, agent, PROVIDER/MODEL, provider, tool,
	// session or run; "" also where that is none, such as the session of a run
	// without one, or the model of a call that no model asked for.
	Key      string `json:"key"`
	Provider string `json:"provider,omitempty"` // by model
	Model    string `json:"model,omitempty"`    // by model, as the provider names it

	Runs     int64 `json:"runs"` // that asked a model; 0 by tool
	Requests int64 `json:"requests"`
	UsageTokens
	TotalTokens int64   `json:"total_tokens"` // input and output
	CostUSD     float64 `json:"cost_usd"`     // to a billionth of a dollar for each request
	Estimated   bool    `json:"estimated"`    // some of it is an estimate, or a price is unknown
	Unpriced    bool    `json:"unpriced"`     // of some of it no price is known; that counts as 0

	// Calls are those of tools, by the model that asked for them where there was one.
	// They are counted by day, user, agent, model, provider and tool, and are 0 by
	// session and run.
	Calls      int64 `json:"calls"`
	Errors     int64 `json:"errors"`      // of these, such as failed or were refused
	Refused    int64 `json:"refused"`     // of these, by the gate
	DurationMS int64 `json:"duration_ms"` // of all calls
}

// UsageTokens are tokens by what they are. Cached and cache-write tokens are part
// of input, reasoning tokens of output.
type UsageTokens struct {
	InputTokens       int64 `json:"input_tokens"`
	CachedInputTokens int64 `json:"cached_input_tokens"`
	CacheWriteTokens  int64 `json:"cache_write_tokens"`
	OutputTokens      int64 `json:"output_tokens"`
	ReasoningTokens   int64 `json:"reasoning_tokens"`
}

// Day is a day in UTC, counted from 1970-01-01.
type Day int64

const secondsOfDay = 24 * 60 * 60

// DayOf returns the day of a moment.
func DayOf(t time.Time) Day {
	s := t.Unix()
	if s < 0 {
		s -= secondsOfDay - 1
	}
	return Day(s / secondsOfDay)
}

// String returns the day as 2026-02-28.
func (d Day) String() string { return time.Unix(int64(d)*secondsOfDay, 0).UTC().Format(time.DateOnly) }

// UsageKey is what a store keeps usage by.
type UsageKey struct {
	Day      Day                `json:"day"`
	Run      toolcrib.RunID     `json:"run_id"`
	Provider string             `json:"provider"`
	Model    string             `json:"model"`
	User     string             `json:"user"`
	Agent    string             `json:"agent"`
	Session  toolcrib.SessionID `json:"session_id"`
}

// UsageSum is what was used. All of it are whole numbers, so that sums are the
// same whatever the order in which they are made.
type UsageSum struct {
	Requests int64 `json:"requests"`
	UsageTokens
	NanoUSD   int64 `json:"nano_usd"`
	Estimated bool  `json:"estimated"`
	Unpriced  bool  `json:"unpriced,omitempty"` // no price is known of some of it
}

func (s *UsageSum) add(o UsageSum) {
	s.Requests += o.Requests
	s.InputTokens += o.InputTokens
	s.CachedInputTokens += o.CachedInputTokens
	s.CacheWriteTokens += o.CacheWriteTokens
	s.OutputTokens += o.OutputTokens
	s.ReasoningTokens += o.ReasoningTokens
	s.NanoUSD += o.NanoUSD
	s.Estimated = s.Estimated || o.Estimated
	s.Unpriced = s.Unpriced || o.Unpriced
}

// ToolUseKey is what a store keeps the calls of tools by.
type ToolUseKey struct {
	Tool     string `json:"tool"`
	Day      Day    `json:"day"`
	Agent    string `json:"agent"`
	User     string `json:"user"`
	Provider string `json:"provider"` // of the model that asked for the call; "" = none
	Model    string `json:"model"`
}

// ToolUseSum is how a tool was used.
type ToolUseSum struct {
	Calls      int64 `json:"calls"`
	Errors     int64 `json:"errors"`  // of these, such as failed or were refused
	Refused    int64 `json:"refused"` // of these, by the gate
	DurationMS int64 `json:"duration_ms"`
}

func (s *ToolUseSum) add(o ToolUseSum) {
	s.Calls += o.Calls
	s.Errors += o.Errors
	s.Refused += o.Refused
	s.DurationMS += o.DurationMS
}

// Used is what runs have used: what a store adds to its projections. The zero value
// is nothing.
type Used struct {
	Models map[UsageKey]UsageSum
	Tools  map[ToolUseKey]ToolUseSum
	Spent  map[SpentKey]SpentSum
	Rules  map[RuleUseKey]RuleUseSum
}

// Reset makes it nothing again, and keeps its memory.
func (u *Used) Reset() {
	clear(u.Models)
	clear(u.Tools)
	clear(u.Spent)
	clear(u.Rules)
}

func (u *Used) addSpent(k SpentKey, s SpentSum) {
	if u.Spent == nil {
		u.Spent = make(map[SpentKey]SpentSum)
	}
	sum := u.Spent[k]
	sum.add(s)
	u.Spent[k] = sum
}

func (u *Used) addRule(k RuleUseKey, s RuleUseSum) {
	if u.Rules == nil {
		u.Rules = make(map[RuleUseKey]RuleUseSum)
	}
	sum := u.Rules[k]
	sum.add(s)
	u.Rules[k] = sum
}

func (u *Used) addModel(k UsageKey, s UsageSum) {
	if u.Models == nil {
		u.Models = make(map[UsageKey]UsageSum)
	}
	sum := u.Models[k]
	sum.add(s)
	u.Models[k] = sum
}

func (u *Used) addTool(k ToolUseKey, s ToolUseSum) {
	if u.Tools == nil {
		u.Tools = make(map[ToolUseKey]ToolUseSum)
	}
	sum := u.Tools[k]
	sum.add(s)
	u.Tools[k] = sum
}

// Empty reports whether there is nothing in it.
func (u *Used) Empty() bool { return len(u.Models) == 0 && len(u.Tools) == 0 && len(u.Rules) == 0 }

// AddKept adds what a record of pruning kept. Records made before there were budgets
// do not tell on which day a request was sent; it is then that of its answer.
func (u *Used) AddKept(k KeptUsage) {
	for _, e := range k.Usage {
		u.addModel(e.UsageKey, e.UsageSum)
		if k.Spent == nil {
			u.addSpent(SpentKey{User: e.User, Day: e.Day}, e.SpentBy())
		}
	}
	for _, e := range k.Spent {
		u.addSpent(e.SpentKey, e.SpentSum)
	}
	for _, e := range k.Rules {
		u.addRule(e.RuleUseKey, e.RuleUseSum)
	}
	for _, e := range k.ToolUsage {
		u.addTool(e.ToolUseKey, e.ToolUseSum)
	}
}

// KeptUsage is usage that follows from no event of a run any more.
type KeptUsage struct {
	Usage     []UsageEntry   `json:"usage"`
	ToolUsage []ToolUseEntry `json:"tool_usage"`
	Spent     []SpentEntry   `json:"spent,omitempty"`
	Rules     []RuleUseEntry `json:"rules,omitempty"`
}

// UsageEntry, ToolUseEntry, SpentEntry and RuleUseEntry are rows of a [KeptUsage].
type (
	SpentEntry struct {
		SpentKey
		SpentSum
	}
	RuleUseEntry struct {
		RuleUseKey
		RuleUseSum
	}
	UsageEntry struct {
		UsageKey
		UsageSum
	}
	ToolUseEntry struct {
		ToolUseKey
		ToolUseSum
	}
)

// SumOf is what a run has used, as its record has it.
func SumOf(u toolcrib.Usage) UsageSum {
	sum := settled(toolcrib.TokenUsage{
		InputTokens: u.InputTokens, CachedInputTokens: u.CachedInputTokens, CacheWriteTokens: u.CacheWriteTokens,
		OutputTokens: u.OutputTokens, ReasoningTokens: u.ReasoningTokens,
	}, u.CostUSD, u.Estimated)
	sum.Requests = int64(u.Requests)
	return sum
}

// maxAdded bounds what one event adds, so that no sum can overflow.
const maxAdded = 1 << 40

func bounded(n int64) int64 { return min(max(n, 0), maxAdded) }

func nano(usd float64) int64 {
	const dollars = 1_000_000
	if !(usd > 0) { // also NaN
		return 0
	}
	return int64(math.Round(min(usd, dollars) * 1e9))
}
