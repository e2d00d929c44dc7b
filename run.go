package toolcrib

import (
	"cmp"
	"encoding/json"
	"math"
	"strings"
	"time"
)

// RunID names a run: run_ and 26 characters that sort by time of creation.
type RunID string

// ShortID returns the beginning of an ID for people, which a command line also accepts: three letters, _ and ten
// characters. A text that is not a long ID, such as the name of a session, is returned unchanged.
func ShortID[T ~string](id T) string {
	const prefix, short, least = 4, 14, 24
	if len(id) < least || id[prefix-1] != '_' || strings.ContainsFunc(string(id[prefix:]), func(r rune) bool {
		return r < '0' || r > '9' && r < 'A' || r > 'Z' && r < 'a' || r > 'z'
	}) {
		return string(id)
	}
	return string(id[:short])
}

// SessionID names a session: ses_… or a name that a person chose: at most 256 bytes, without separators,
// ".." or control characters.
type SessionID string

// Status is the state of a run.
type Status string

const (
	StatusQueued             Status = "queued"
	StatusRunning            Status = "running"
	StatusWaitingForApproval Status = "waiting_for_approval"
	StatusWaitingForTool     Status = "waiting_for_tool"
	StatusWaitingForInput    Status = "waiting_for_input"
	StatusWaitingForProvider Status = "waiting_for_provider"
	StatusCompleted          Status = "completed"
	StatusFailed             Status = "failed"
	StatusCancelled          Status = "cancelled"
)

// Ended reports whether the status is final. A final status never changes.
func (s Status) Ended() bool {
	return s == StatusCompleted || s == StatusFailed || s == StatusCancelled
}

// Parked reports whether the run waits, without a worker.
func (s Status) Parked() bool {
	return s == StatusWaitingForApproval || s == StatusWaitingForTool || s == StatusWaitingForInput ||
		s == StatusWaitingForProvider
}

// StopReason is the reason why a run ended.
type StopReason string

const (
	StopCompleted       StopReason = "completed"
	StopMaxIterations   StopReason = "max_iterations"
	StopBudgetExhausted StopReason = "budget_exhausted"
	StopWallTime        StopReason = "wall_time"
	StopProviderFailed  StopReason = "provider_failed"
	StopContextLength   StopReason = "context_length"
	StopPolicyDenied    StopReason = "policy_denied"
	StopApprovalDenied  StopReason = "approval_denied"
	StopWorkerLost      StopReason = "worker_lost"
	StopCancelled       StopReason = "cancelled"
)

// Agent is a named configuration of runs. A run keeps the agent as it was at its start.
type Agent struct {
	Name            string          `json:"name"`
	Model           string          `json:"model"` // name in the configuration, or PROVIDER/MODEL
	Fallback        []string        `json:"fallback,omitempty"`
	System          string          `json:"system,omitempty"`
	Temperature     *float64        `json:"temperature,omitempty"`
	MaxOutputTokens int             `json:"max_output_tokens,omitempty"` // if 0, the model's own
	Tools           []string        `json:"tools"`                       // null means no restriction, [] means no tools
	Skills          []string        `json:"skills,omitempty"`
	ToolChoice      ToolChoice      `json:"tool_choice,omitzero"`
	OutputSchema    json.RawMessage `json:"output_schema,omitempty"`
	OnDenial        string          `json:"on_denial,omitempty"` // continue (or "") | stop
	Arguments       string          `json:"arguments,omitempty"` // lossless (or "") | strict
	Limits          Limits          `json:"limits"`
	Budget          Budget          `json:"budget,omitzero"`
	Session         SessionLimits   `json:"session,omitzero"`
	TaintWrites     string          `json:"taint_writes,omitempty"` // ask (or "") | deny | allow
	ReadOnly        bool            `json:"read_only,omitempty"`
	ContextStrategy string          `json:"context_strategy,omitempty"` // condense | drop | fail
	KeepRecent      float64         `json:"keep_recent,omitempty"`      // share of the context that is never condensed
	// A larger list of tools gets a [Finder]; 0 means never
	FindAbove int `json:"find_above_bytes,omitempty"`

	// Restrictions that the run itself was started with, in addition to those of its agent
	// (--read-only, --skill). ReadOnly and Skills include them.
	RunReadOnly bool     `json:"told_read_only,omitempty"`
	RunSkills   []string `json:"told_skills,omitempty"`
}

// SessionLimits bound the total usage of all runs of a session, including sub-agents and workers. A field that is 0
// sets no limit. A run without a session, together with the runs below it, is treated as a session.
type SessionLimits struct {
	MaxCostUSD float64       `json:"max_cost_usd,omitempty"`
	MaxTokens  int64         `json:"max_tokens,omitempty"`
	WallTime   time.Duration `json:"wall_time_ns,omitempty"` // total of its top-level runs; see [Limits.WallTime]
}

// Limits bound a run. The zero value is [DefaultLimits], which are finite and safe. A zero field means
// its default, except MaxIdenticalCalls, where 0 means off if another limit is set.
type Limits struct {
	MaxIterations     int           `json:"max_iterations"`      // 1 to 200
	OnLimit           string        `json:"on_limit"`            // finalize | error | ask
	MaxParallel       int           `json:"max_parallel"`        // concurrent tool calls; 1 means one after another
	MaxCallsPerTurn   int           `json:"max_calls_per_turn"`  // further calls are refused
	MaxIdenticalCalls int           `json:"max_identical_calls"` // 0 means off
	ToolTimeout       time.Duration `json:"tool_timeout_ns"`
	ToolTimeoutSet    bool          `json:"tool_timeout_set,omitempty"` // set explicitly; see [Spec.TimeoutAsked]
	MaxResultBytes    int           `json:"max_result_bytes"`           // at least 256; bytes of the result as JSON
	MaxDepth          int           `json:"max_depth"`
	WallTime          time.Duration `json:"wall_time_ns"` // without the time while parked

	// Limits of a run tree.
	MaxTreeRuns     int   `json:"max_tree_runs"` // including the topmost run
	MaxTreeRequests int   `json:"max_tree_requests"`
	MaxTreeBytes    int64 `json:"max_tree_bytes"` // size of the journals, including stored results and files
}

// The values of [Limits.OnLimit].
const (
	OnLimitFinalize = "finalize"
	OnLimitError    = "error"
	OnLimitAsk      = "ask"
)

// MaxIterationsCeiling is the highest permitted max_iterations.
const MaxIterationsCeiling = 200

// DefaultLimits returns the default limits.
func DefaultLimits() Limits {
	return Limits{
		MaxIterations:     20,
		OnLimit:           OnLimitFinalize,
		MaxParallel:       4,
		MaxCallsPerTurn:   64,
		MaxIdenticalCalls: 3,
		ToolTimeout:       30 * time.Second,
		MaxResultBytes:    65536,
		MaxDepth:          3,
		WallTime:          15 * time.Minute,
		MaxTreeRuns:       100,
		MaxTreeRequests:   2000,
		MaxTreeBytes:      256 << 20,
	}
}

// WithDefaults returns l with its zero fields set to their defaults, as [Limits] says.
func (l Limits) WithDefaults() Limits {
	d := DefaultLimits()
	if l == (Limits{}) {
		return d
	}
	orDefault(&l.MaxIterations, d.MaxIterations)
	l.MaxIterations = min(l.MaxIterations, MaxIterationsCeiling)
	l.OnLimit = cmp.Or(l.OnLimit, d.OnLimit)
	orDefault(&l.MaxParallel, d.MaxParallel)
	orDefault(&l.MaxCallsPerTurn, d.MaxCallsPerTurn)
	orDefault(&l.ToolTimeout, d.ToolTimeout)
	if l.MaxResultBytes < 256 {
		l.MaxResultBytes = d.MaxResultBytes
	}
	orDefault(&l.MaxDepth, d.MaxDepth)
	orDefault(&l.WallTime, d.WallTime)
	orDefault(&l.MaxTreeRuns, d.MaxTreeRuns)
	orDefault(&l.MaxTreeRequests, d.MaxTreeRequests)
	orDefault(&l.MaxTreeBytes, d.MaxTreeBytes)
	return l
}

func orDefault[T int | int64 | time.Duration](limit *T, value T) {
	if *limit <= 0 {
		*limit = value
	}
}

// Budget bounds the spending of a run. A field that is 0 sets no limit.
type Budget struct {
	MaxCostUSD  float64 `json:"max_cost_usd,omitempty"`
	MaxTokens   int64   `json:"max_tokens,omitempty"`
	MaxRequests int     `json:"max_requests,omitempty"`
	Mode        string  `json:"mode,omitempty"` // enforce (or "") | warn | off
}

// The values of [Budget.Mode]; "" is enforce.
const (
	BudgetEnforce = "enforce"
	BudgetWarn    = "warn"
	BudgetOff     = "off"
)

// Price is the price of a model in US dollars per 1M tokens. If Known is false, the model has no price:
// its cost is 0 and is marked as estimated.
type Price struct {
	Input       float64 `json:"input"`
	CachedInput float64 `json:"cached_input"`
	CacheWrite  float64 `json:"cache_write,omitempty"` // if 0, the same as Input
	Output      float64 `json:"output"`
	Known       bool    `json:"known"`
}

// Cost returns the price of u in US dollars.
func (p Price) Cost(u TokenUsage) float64 {
	if u.CostUSD != nil {
		return *u.CostUSD
	}
	write := p.CacheWrite
	if write == 0 {
		write = p.Input
	}
	plain := max(u.InputTokens-u.CachedInputTokens-u.CacheWriteTokens, 0)
	return (float64(plain)*p.Input + float64(u.CachedInputTokens)*p.CachedInput +
		float64(u.CacheWriteTokens)*write + float64(u.OutputTokens)*p.Output) / 1e6
}

// Usage is the total usage of a run.
type Usage struct {
	InputTokens       int64   `json:"input_tokens"`
	CachedInputTokens int64   `json:"cached_input_tokens"`
	OutputTokens      int64   `json:"output_tokens"`
	TotalTokens       int64   `json:"total_tokens"`
	Requests          int     `json:"requests"`
	CostUSD           float64 `json:"cost_usd"`
	Estimated         bool    `json:"estimated"` // it includes estimates, or a price is unknown
	CacheWriteTokens  int64   `json:"cache_write_tokens,omitempty"`
	ReasoningTokens   int64   `json:"reasoning_tokens,omitempty"`
}

// Plus returns the sum of both.
func (u Usage) Plus(more Usage) Usage {
	if more == (Usage{}) {
		return u
	}
	u.Requests += more.Requests
	u.InputTokens += more.InputTokens
	u.CachedInputTokens += more.CachedInputTokens
	u.CacheWriteTokens += more.CacheWriteTokens
	u.OutputTokens += more.OutputTokens
	u.ReasoningTokens += more.ReasoningTokens
	u.TotalTokens += more.TotalTokens
	// Prices are per million tokens; less than a billionth of a cent is noise.
	u.CostUSD = math.Round((u.CostUSD+more.CostUSD)*1e11) / 1e11
	u.Estimated = u.Estimated || more.Estimated
	return u
}

// Notice informs a client of something that does not change the outcome but that a person may want to know.
type Notice struct {
	Code    string `json:"code"`
	Message string `json:"message"`
	// Public replaces Message for users of a server, unless it is "".
	Public string `json:"public,omitempty"`
	// RunID is the run below that the notice is about, or "" for the run itself.
	RunID RunID `json:"run_id,omitempty"`
	// SessionID, Tool and ArgsKeys describe a call of a worker: the session to which it is attributed,
	// the tool, and the names of its arguments.
	SessionID SessionID `json:"session_id,omitempty"`
	Tool      string    `json:"tool,omitempty"`
	ArgsKeys  []string  `json:"args_keys,omitempty"`
}
