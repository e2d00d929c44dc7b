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

// UsageBy is the field by which usage is grouped.
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
	// MaxUsageRuns bounds the runs, the newest of the period, of which usage is grouped by run or session.
	MaxUsageRuns = 5000
)

// UsageQuery selects the usage to sum up.
type UsageQuery struct {
	By UsageBy
	// Since and Until are times on the first and the last day (UTC) to be included; zero means no bound.
	Since, Until time.Time
	User         string // if "", all users
	Token        string // ID of an access token: only stored runs that it started; if "", all runs
	Limit        int    // number of rows, as [UsageQuery.Bound] applies it
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

// Bound returns the limit that applies: DefaultUsageRows if Limit is 0 or less, at most MaxUsageRows.
func (q UsageQuery) Bound() int {
	if q.Limit <= 0 {
		return DefaultUsageRows
	}
	return min(q.Limit, MaxUsageRows)
}

// UsageRow is the usage of one day, user, … in the period of a query. Days are in UTC: a request
// belongs to the day on which it was sent, a call to the day of its result. By run and by
// session, all usage of a run belongs to the day on which it began. The usage of a sub-run is
// counted once, under its own agent. Runs that were pruned are included.
type UsageRow struct {
	// Key is the day (2026-02-28), user, agent, PROVIDER/MODEL, provider, tool, session or run.
	// It is "" for the total and where a run has no session or a call comes from no model.
	Key      string `json:"key"`
	Provider string `json:"provider,omitempty"` // set by model and by provider
	Model    string `json:"model,omitempty"`    // name of the model at the provider, set by model

	// Runs is the number of runs whose first request is in this row, so that rows add up. It is
	// 0 by tool.
	Runs     int64 `json:"runs"`
	Requests int64 `json:"requests"`
	UsageTokens
	TotalTokens int64   `json:"total_tokens"` // input and output
	CostUSD     float64 `json:"cost_usd"`     // rounded to a billionth of a dollar per request
	Estimated   bool    `json:"estimated"`    // some values are estimates, or a price is unknown
	Unpriced    bool    `json:"unpriced"`     // some usage has no known price and is not in CostUSD

	// Calls is the number of calls of tools, under the model that asked for them, if any. It is 0
	// by session and by run.
	Calls      int64 `json:"calls"`
	Errors     int64 `json:"errors"`      // calls that failed or were refused
	Refused    int64 `json:"refused"`     // calls refused by the gate
	DurationMS int64 `json:"duration_ms"` // total duration of the calls
}

// UsageTokens are numbers of tokens by kind. Cached and cache-write tokens are part of input,
// reasoning tokens of output.
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

// Day is a day in UTC, as the number of days since 1970-01-01.
type Day int64

const secondsOfDay = 24 * 60 * 60

// DayOf returns the day of a time.
func DayOf(t time.Time) Day {
	s := t.Unix()
	if s < 0 {
		s -= secondsOfDay - 1
	}
	return Day(s / secondsOfDay)
}

// String returns the day as 2026-02-28.
func (d Day) String() string { return time.Unix(int64(d)*secondsOfDay, 0).UTC().Format(time.DateOnly) }

// UseKind is the kind of a row of usage.
type UseKind int64

// The kinds of rows of usage.
const (
	UseDaily     UseKind = iota + 1 // requests and calls of a day, by user, agent and model
	UseCalls                        // calls of a tool, by day and user
	UseDecisions                    // decisions of a rule, by day
	UseRuns                         // requests of a removed run, on the day on which it began
)

// UseKey is the key of a row of usage. Fields that its kind does not use are empty.
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
	Decision toolcrib.Decision  `json:"decision,omitempty"` // decision of a rule; "" means refused
}

// UseSum is a sum of usage. Its values are integers, so that the sum does not depend on the order
// of addition.
type UseSum struct {
	Runs     int64 `json:"runs,omitempty"` // runs whose first request is included
	Requests int64 `json:"requests,omitempty"`
	UsageTokens
	NanoUSD    int64 `json:"nano_usd,omitempty"`
	Estimated  bool  `json:"estimated,omitempty"`
	Unpriced   bool  `json:"unpriced,omitempty"` // some usage has no known price
	Calls      int64 `json:"calls,omitempty"`
	Errors     int64 `json:"errors,omitempty"`  // calls that failed or were refused
	Refused    int64 `json:"refused,omitempty"` // calls refused by the gate
	DurationMS int64 `json:"duration_ms,omitempty"`
	Last       int64 `json:"last,omitempty"` // time of the last decision of a rule, in Unix microseconds
}

// UseColumns name the values of a row of usage: first its key, then, from UseSums on, values that
// are added, then, from UseMarks on, values of which a sum has the maximum.
var UseColumns = strings.Fields(`kind user day run_id session_id agent provider model tool rule decision
	runs requests input_tokens cached_tokens write_tokens output_tokens reason_tokens nano_usd calls errors refused
	duration_ms estimated unpriced last`)

// The beginnings of parts of [UseColumns].
const (
	UseSums  = 11
	UseMarks = 23
)

// Places appends pointers to the values of [UseColumns].
func (e *UseEntry) Places(to []any) []any {
	k, s := &e.UseKey, &e.UseSum
	return append(to,
		&k.Kind, &k.User, &k.Day, &k.Run, &k.Session, &k.Agent, &k.Provider, &k.Model, &k.Tool, &k.Rule, &k.Decision,
		&s.Runs, &s.Requests, &s.InputTokens, &s.CachedInputTokens, &s.CacheWriteTokens, &s.OutputTokens,
		&s.ReasoningTokens, &s.NanoUSD, &s.Calls, &s.Errors, &s.Refused, &s.DurationMS, &s.Estimated, &s.Unpriced, &s.Last,
	)
}

// Values appends the values of [UseColumns] as a database has them.
func (e *UseEntry) Values(to []any) []any { return valuesFrom(len(to), e.Places(to)) }

// Row returns the sum as a row of a query. By model, key is the provider.
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

// Add adds o to s.
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

// Tokens returns the number of input and output tokens.
func (s UseSum) Tokens() int64 { return s.InputTokens + s.OutputTokens }

// String lists the values of the sum that are not zero.
func (s UseSum) String() string {
	raw, _ := json.Marshal(s) // numbers and bools only
	return strings.NewReplacer("{", "", "}", "", `"`, "", ":", " ", ",", ", ").Replace(string(raw))
}

// UseEntry is a row of usage.
type UseEntry struct {
	UseKey
	UseSum
}

// String describes the row, for messages.
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

// Used is the usage of several runs, by the keys of a store's rows.
type Used map[UseKey]UseSum

// Add adds a row.
func (u Used) Add(e UseEntry) {
	sum := u[e.UseKey]
	sum.Add(e.UseSum)
	u[e.UseKey] = sum
}

// Entries returns the rows in a fixed order.
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

// RuleCount is the number of calls of a tool that a rule has decided, in all runs, including
// pruned ones. A call is counted once, for the rule that decided when it was first judged.
type RuleCount struct {
	Rule     string            `json:"rule"`
	Decision toolcrib.Decision `json:"decision"` // "" means refused
	Tool     string            `json:"tool"`
	Calls    int64             `json:"calls"`
	LastUsed time.Time         `json:"last_used"`
}

// The bounds of names in rows of usage, in bytes.
const (
	maxToolName = 64
	maxRuleName = 256
)

// toolName reports whether name is valid for a tool: [A-Za-z0-9_-]{1,64}.
func toolName(name string) bool {
	return name != "" && len(name) <= maxToolName && !strings.ContainsFunc(name, func(c rune) bool {
		return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '_' && c != '-'
	})
}

// maxAdded bounds the numbers that one event adds, so that no sum can overflow.
const maxAdded = 1 << 40

func bounded(n int64) int64 { return min(max(n, 0), maxAdded) }

func nano(usd float64) int64 {
	const dollars = 1_000_000
	if !(usd > 0) { // also NaN
		return 0
	}
	return int64(math.Round(min(usd, dollars) * 1e9))
}
