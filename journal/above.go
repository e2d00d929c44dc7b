package journal

import (
	"time"

	"github.com/toolcrib/toolcrib"
)

// What a run takes over from the runs above it and from those before it in its session.

// Above restricts a run by the runs above it. It never widens.
type Above struct {
	// the list of each run above that has one; each also applies to the arguments of calls
	SkillTools  [][]string `json:"skill_tools,omitempty"`
	ReadOnly    bool       `json:"read_only,omitempty"`    // a run above is read-only
	TaintWrites string     `json:"taint_writes,omitempty"` // the strictest of the runs above: ask | deny | allow
	MaxDepth    int        `json:"max_depth,omitempty"`    // the smallest of the runs above; 0 if none has one
	// Session has the smallest limits of the runs above.
	Session toolcrib.SessionLimits `json:"session,omitzero"`
}

// SessionUse is the usage of runs of a session.
type SessionUse struct {
	CostUSD float64       `json:"cost_usd,omitempty"`
	Tokens  int64         `json:"tokens,omitempty"`
	Worked  time.Duration `json:"worked_ns,omitempty"` // see [toolcrib.SessionLimits]
}

// Share is the part of a parent's budget, and of the caps of its run tree, that a child run
// may use together with the runs that it starts itself. If a field is 0, there is no such cap.
type Share struct {
	CostUSD  float64 `json:"max_cost_usd,omitempty"`
	Tokens   int64   `json:"max_tokens,omitempty"`
	Requests int     `json:"max_requests,omitempty"`
	Runs     int     `json:"max_runs,omitempty"`  // includes the child itself
	Bytes    int64   `json:"max_bytes,omitempty"` // size of the journals
}
