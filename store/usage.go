package store

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
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
	// MaxUsageRuns is of how many runs, the newest of the time asked for, use is summed up by run and by
	// session.
	MaxUsageRuns = 5000
)

// UsageQuery chooses what is summed up.
type UsageQuery struct {
	By UsageBy
	// Since and Until are moments whose whole days (UTC) are the first and the last
	// that count; zero = no bound.
	Since, Until time.Time
	User, Token  string // "" = all; with a token, only runs that it started and that are still stored
	Limit        int    // of rows; 0 = DefaultUsageRows, at most MaxUsageRows
}

// Check returns an error if the query is invalid.
func (q UsageQuery) Check() error {
	switch q.By {
	case UsageTotal, UsageByDay, UsageByUser, UsageByAgent, UsageByModel, UsageByProvider, UsageByTool, UsageBySession,
		UsageByRun:
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
// those of UTC: a request counts on the day on which it was sent, a call on that of its result.
// By run and by session, a run counts as a whole on the day on which it began.
// Sub-runs count under their own agent, and once. Runs that were pruned count on.
type UsageRow struct {
	// Key is the day (2026-02-28), user, agent, PROVIDER/MODEL, provider, tool,
	// session or run; "" also where that is none, such as the session of a run
	// without one, or the model of a call that no model asked for.
	Key      string `json:"key"`
	Provider string `json:"provider,omitempty"` // by model
	Model    string `json:"model,omitempty"`    // by model, as the provider names it

	// Runs are those whose first request this was: a run counts once, on the day and for the
	// model of that request, so that rows add up. It is 0 by tool.
	Runs     int64 `json:"runs"`
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

func (t *UsageTokens) add(o UsageTokens) {
	t.InputTokens += o.InputTokens
	t.CachedInputTokens += o.CachedInputTokens
	t.CacheWriteTokens += o.CacheWriteTokens
	t.OutputTokens += o.OutputTokens
	t.ReasoningTokens += o.ReasoningTokens
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

// UseKind says what a row of use is about.
type UseKind int64

// The kinds of rows of use.
const (
	UseDaily     UseKind = iota + 1 // requests and calls of a day, by user, agent and model
	UseCalls                        // calls of a tool, by day and user
	UseDecisions                    // calls that a rule has decided about, by day
	UseRuns                         // requests of a run that was removed, on the day on which it began
)

// UseKey is what a store keeps use by. What a kind is not kept by is empty.
type UseKey struct {
	Kind     UseKind            `json:"kind"`
	User     string             `json:"user,omitempty"`
	Day      Day                `json:"day"`
	Run      toolcrib.RunID     `json:"run_id,omitempty"`
	Session  toolcrib.SessionID `json:"session_id,omitempty"`
	Agent    string             `json:"agent,omitempty"`
	Provider string             `json:"provider,omitempty"`
	Model    string             `json:"model,omitempty"`
	Tool     string             `json:"tool,omitempty"`
	Rule     string             `json:"rule,omitempty"`
	Decision toolcrib.Decision  `json:"decision,omitempty"` // of a rule; "" = refused
}

// UseSum is what was used. All of it are whole numbers, so that sums are the same
// whatever the order in which they are made.
type UseSum struct {
	Runs     int64 `json:"runs,omitempty"` // that sent their first request
	Requests int64 `json:"requests,omitempty"`
	UsageTokens
	NanoUSD    int64 `json:"nano_usd,omitempty"`
	Estimated  bool  `json:"estimated,omitempty"`
	Unpriced   bool  `json:"unpriced,omitempty"` // no price is known of some of it
	Calls      int64 `json:"calls,omitempty"`
	Errors     int64 `json:"errors,omitempty"`  // of these, such as failed or were refused
	Refused    int64 `json:"refused,omitempty"` // of these, by the gate
	DurationMS int64 `json:"duration_ms,omitempty"`
	Last       int64 `json:"last,omitempty"` // when a rule has decided last, in Unix microseconds
}

// UseColumns name the values of a row of use: those of its key, from UseSums on those that add up, and
// from UseMarks on those of which a sum has the largest.
var UseColumns = strings.Fields(`kind user day run_id session_id agent provider model tool rule decision
	runs requests input_tokens cached_tokens write_tokens output_tokens reason_tokens nano_usd calls errors refused
	duration_ms estimated unpriced last`)

// Where parts of [UseColumns] begin.
const (
	UseSums  = 11
	UseMarks = 23
)

// Places adds where the values of [UseColumns] are.
func (e *UseEntry) Places(to []any) []any {
	k, s := &e.UseKey, &e.UseSum
	return append(to,
		&k.Kind, &k.User, &k.Day, &k.Run, &k.Session, &k.Agent, &k.Provider, &k.Model, &k.Tool, &k.Rule, &k.Decision,
		&s.Runs, &s.Requests, &s.InputTokens, &s.CachedInputTokens, &s.CacheWriteTokens, &s.OutputTokens,
		&s.ReasoningTokens, &s.NanoUSD, &s.Calls, &s.Errors, &s.Refused, &s.DurationMS, &s.Estimated, &s.Unpriced, &s.Last,
	)
}

// Values adds the values of [UseColumns] as a database has them.
func (e *UseEntry) Values(to []any) []any { return valuesFrom(len(to), e.Places(to)) }

// Row is the sum as a row of what a query sums up by; a model has its provider and its name.
func (s UseSum) Row(by UsageBy, key, model string) UsageRow {
	r := UsageRow{
		Key: key, Runs: s.Runs, Requests: s.Requests, UsageTokens: s.UsageTokens, TotalTokens: s.Tokens(),
		CostUSD: float64(s.NanoUSD) / 1e9, Estimated: s.Estimated || s.Unpriced, Unpriced: s.Unpriced,
		Calls: s.Calls, Errors: s.Errors, Refused: s.Refused, DurationMS: s.DurationMS,
	}
	if by == UsageByModel || by == UsageByProvider {
		r.Provider, r.Model = key, model
	}
	if model != "" {
		r.Key += "/" + model
	}
	return r
}

// Add adds another sum.
func (s *UseSum) Add(o UseSum) {
	s.Runs += o.Runs
	s.Requests += o.Requests
	s.UsageTokens.add(o.UsageTokens)
	s.NanoUSD += o.NanoUSD
	s.Estimated = s.Estimated || o.Estimated
	s.Unpriced = s.Unpriced || o.Unpriced
	s.Calls += o.Calls
	s.Errors += o.Errors
	s.Refused += o.Refused
	s.DurationMS += o.DurationMS
	s.Last = max(s.Last, o.Last)
}

// Tokens is input and output.
func (s UseSum) Tokens() int64 { return s.InputTokens + s.OutputTokens }

// String is the sum in words.
func (s UseSum) String() string {
	raw, _ := json.Marshal(s) // numbers and bools only
	return strings.NewReplacer("{", "", "}", "", `"`, "", ":", " ", ",", ", ").Replace(string(raw))
}

// UseEntry is a row of use.
type UseEntry struct {
	UseKey
	UseSum
}

// String names what the row is about.
func (k UseKey) String() string {
	switch k.Kind {
	case UseRuns:
		return fmt.Sprintf("the use of run %s", k.Run)
	case UseCalls:
		return fmt.Sprintf("the use of tool %s on %s", k.Tool, k.Day)
	case UseDecisions:
		return fmt.Sprintf("the use of rule %s on %s", k.Rule, k.Day)
	}
	return fmt.Sprintf("what %s has used on %s", k.User, k.Day)
}

// Used is what runs have used: what a store adds to its table.
type Used map[UseKey]UseSum

// Add adds a row.
func (u Used) Add(e UseEntry) {
	sum := u[e.UseKey]
	sum.Add(e.UseSum)
	u[e.UseKey] = sum
}

// Entries returns the rows, always in the same order.
func (u Used) Entries() []UseEntry {
	list := make([]UseEntry, 0, len(u))
	for k, sum := range u {
		list = append(list, UseEntry{k, sum})
	}
	slices.SortFunc(list, func(a, b UseEntry) int {
		return cmp.Or(
			cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.User, b.User), cmp.Compare(a.Day, b.Day), cmp.Compare(a.Run, b.Run),
			cmp.Compare(a.Session, b.Session), cmp.Compare(a.Agent, b.Agent), cmp.Compare(a.Provider, b.Provider),
			cmp.Compare(a.Model, b.Model), cmp.Compare(a.Tool, b.Tool), cmp.Compare(a.Rule, b.Rule),
			cmp.Compare(a.Decision, b.Decision))
	})
	return list
}

// RuleCount is how often a rule has decided about calls of a tool, in all runs, also
// in those that were pruned since. A call counts once, for the rule that decided when
// it was first judged.
type RuleCount struct {
	Rule     string            `json:"rule"`
	Decision toolcrib.Decision `json:"decision"` // "" = refused
	Tool     string            `json:"tool"`
	Calls    int64             `json:"calls"`
	LastUsed time.Time         `json:"last_used"`
}

// The bounds of names in rows of use, in bytes.
const (
	maxToolName = 64
	maxRuleName = 256
)

// toolName reports whether a tool can have this name: [A-Za-z0-9_-]{1,64}.
func toolName(name string) bool {
	return name != "" && len(name) <= maxToolName && !strings.ContainsFunc(name, func(c rune) bool {
		return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '_' && c != '-'
	})
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
