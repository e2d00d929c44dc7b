package api

import (
	"encoding/json"

	"github.com/toolcrib/toolcrib"
)

// RunRequest starts a run. Fields that are zero are not sent.
type RunRequest struct {
	Agent       string       `json:"agent,omitempty" jsonschema:"an agent of the configuration; default: default"`
	Input       string       `json:"input,omitempty" jsonschema:"what the run is to do"`
	Messages    []Message    `json:"messages,omitempty" jsonschema:"a transcript instead of input; it must end with a user message or with tool results"`
	ClientTools []ClientTool `json:"client_tools,omitempty" jsonschema:"tools that the client runs"`
	Tools       []string     `json:"tools,omitzero" jsonschema:"only these of the agent's tools, names or globs; null = all, [] = none"`
	Skills      []string     `json:"skills,omitempty" jsonschema:"in addition to the agent's"`
	ToolChoice  *ToolChoice  `json:"tool_choice,omitempty" jsonschema:"auto, none, required or {name: TOOL}"`
	Limits      *Limits      `json:"limits,omitempty" jsonschema:"the smaller of these and the agent's limits apply"`
	ReadOnly    bool         `json:"read_only,omitempty" jsonschema:"refuse calls that write"`
	SessionID   string       `json:"session_id,omitempty" jsonschema:"the session to join: an ID, or a name that you choose"`
	Detach      bool         `json:"detach,omitempty" jsonschema:"answer as soon as the run has started"`
	Model       string       `json:"model,omitempty" jsonschema:"instead of the agent's: a name of the configuration, or PROVIDER/MODEL"`
	Continue    bool         `json:"continue,omitempty" jsonschema:"join the session of the newest run, instead of session_id"`
	Files       []File       `json:"files,omitempty" jsonschema:"go with input: images, PDF documents and texts"`
	Taint       []string     `json:"taint,omitempty" jsonschema:"sources of untrusted data that is in input or files"`
	Again       bool         `json:"again,omitempty" jsonschema:"send the last message of the session once more, as if there had been no answer; without input"`
	Compact     bool         `json:"compact,omitempty" jsonschema:"only condense what was said in the session; without input"`
	Approve     string       `json:"approve,omitempty" jsonschema:"what becomes of calls that need an approval: none (the run waits; default), all or deny"`
}

// ToolChoice is a [toolcrib.ToolChoice] as requests have it: a mode, or {"name": TOOL}.
type ToolChoice toolcrib.ToolChoice

// MarshalJSON implements [json.Marshaler].
func (t ToolChoice) MarshalJSON() ([]byte, error) {
	if t.Mode == toolcrib.ChoiceName {
		return json.Marshal(map[string]string{"name": t.Name})
	}
	return json.Marshal(t.Mode)
}

// UnmarshalJSON implements [json.Unmarshaler].
func (t *ToolChoice) UnmarshalJSON(data []byte) error {
	if data[0] == '"' {
		return json.Unmarshal(data, &t.Mode)
	}
	var named struct{ Name string }
	err := json.Unmarshal(data, &named)
	t.Mode, t.Name = toolcrib.ChoiceName, named.Name
	return err
}

// Limits lowers limits of a run.
type Limits struct {
	MaxIterations     *int   `json:"max_iterations,omitempty"`
	OnLimit           string `json:"on_limit,omitempty" jsonschema:"finalize, error or ask"`
	MaxParallel       *int   `json:"max_parallel,omitempty"`
	MaxCallsPerTurn   *int   `json:"max_calls_per_turn,omitempty"`
	MaxIdenticalCalls *int   `json:"max_identical_calls,omitempty"`
	ToolTimeout       string `json:"tool_timeout,omitempty" jsonschema:"such as 30s"`
	MaxResultBytes    *int   `json:"max_result_bytes,omitempty"`
	MaxDepth          *int   `json:"max_depth,omitempty"`
	WallTime          string `json:"wall_time,omitempty" jsonschema:"such as 15m"`
}

// File is a file that goes with a prompt.
type File struct {
	Name string `json:"name"`
	Data []byte `json:"data" jsonschema:"in base64"`
}

// ClientTool is a tool that the client carries out.
type ClientTool struct {
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	Parameters  json.RawMessage `json:"parameters,omitempty" jsonschema:"JSON Schema of the arguments; default: any object"`
	Effect      toolcrib.Effect `json:"effect,omitempty" jsonschema:"read_only (default), idempotent_write or non_idempotent_write: tools.confirm decides which writes need approval"`
}

// Message is a message of a transcript.
type Message struct {
	Role       toolcrib.Role `json:"role" jsonschema:"user, assistant or tool"`
	Content    string        `json:"content,omitempty"`
	ToolCalls  []MessageCall `json:"tool_calls,omitempty" jsonschema:"with role assistant"`
	ToolCallID string        `json:"tool_call_id,omitempty" jsonschema:"with role tool: the ID of the call"`
	IsError    bool          `json:"is_error,omitempty" jsonschema:"with role tool: true if the call failed"`
}

// MessageCall is a call in a transcript.
type MessageCall struct {
	ID        string          `json:"id"`
	Name      string          `json:"name"`
	Arguments json.RawMessage `json:"arguments,omitempty" jsonschema:"an object"`
}

// ResumeRequest continues a run.
type ResumeRequest struct {
	Message       string  `json:"message,omitempty" jsonschema:"a message that the model reads before it continues"`
	Model         string  `json:"model,omitempty" jsonschema:"the model to continue with; default: the run's own"`
	AddIterations int     `json:"add_iterations,omitempty"`
	AddCost       float64 `json:"add_cost_usd,omitempty"`
	AddTokens     int64   `json:"add_tokens,omitempty"`
	AddRequests   int     `json:"add_requests,omitempty"`
	Detach        bool    `json:"detach,omitempty" jsonschema:"answer as soon as the run continues"`
	Approve       string  `json:"approve,omitempty" jsonschema:"what becomes of calls that need an approval until the run waits or ends: all or deny; default: as the run was started"`
}

// ForkRequest starts a new run from a round of another one.
type ForkRequest struct {
	Round  *int   `json:"round,omitempty" jsonschema:"the round to start before, counted from 1; default: the last"`
	Input  string `json:"input,omitempty" jsonschema:"the next message"`
	Detach bool   `json:"detach,omitempty" jsonschema:"answer as soon as the run has started"`

	Approve string `json:"approve,omitempty" jsonschema:"none, all or deny, as when a run starts"`
}

// Said is a message to a run.
type Said struct {
	Text string `json:"text" jsonschema:"what the model reads before its next reply"`
}

// ToolResult is the result of a call that the client has carried out, or several.
type ToolResult struct {
	ToolCallID string          `json:"tool_call_id,omitempty"`
	Body       json.RawMessage `json:"body,omitempty" jsonschema:"any JSON value; a string is used as plain text"`
	IsError    bool            `json:"is_error,omitempty"`
	Results    []OneResult     `json:"results,omitempty" jsonschema:"several results instead of one; all are accepted or none"`
}

// OneResult is one of several results.
type OneResult struct {
	ToolCallID string          `json:"tool_call_id"`
	Body       json.RawMessage `json:"body"`
	IsError    bool            `json:"is_error,omitempty"`
}

// ToolCallRequest makes one call of a tool. Its field names are those of the capability
// llm.tools.call@1.0.
type ToolCallRequest struct {
	CallID string          `json:"tool_call_id,omitempty" jsonschema:"the client's ID of the call"`
	Target string          `json:"target_capability,omitempty" jsonschema:"the name of a tool, or a capability that a tool calls, such as rag.query@1.0"`
	Body   json.RawMessage `json:"target_body,omitempty" jsonschema:"the arguments, an object; for a capability {params, input}"`
	Params json.RawMessage `json:"params,omitempty" jsonschema:"ignored; part of the envelope of llm.tools.call@1.0"`
	Input  *CapabilityCall `json:"input,omitempty" jsonschema:"the call in the envelope of llm.tools.call@1.0, instead of the three above"`
	Agent  string          `json:"agent,omitempty" jsonschema:"the agent whose policy applies; default: default"`

	Tools     []string `json:"tools,omitzero" jsonschema:"only these of the agent's tools; null = all"`
	Skills    []string `json:"skills,omitempty" jsonschema:"in addition to the agent's"`
	ReadOnly  bool     `json:"read_only,omitempty" jsonschema:"refuse calls that write"`
	SessionID string   `json:"session_id,omitempty" jsonschema:"the session beside which the call is made: an ID, or a name"`
	Approve   string   `json:"approve,omitempty" jsonschema:"none, all or deny, as when a run starts"`
	Detach    bool     `json:"detach,omitempty" jsonschema:"answer as soon as its run has begun"`
}

// CapabilityCall is the input of llm.tools.call@1.0.
type CapabilityCall struct {
	CallID string          `json:"tool_call_id,omitempty"`
	Target string          `json:"target_capability"`
	Body   json.RawMessage `json:"target_body,omitempty"`
}

// ToolCalled is the outcome of such a call.
type ToolCalled struct {
	CallID  string                `json:"tool_call_id,omitempty"`
	Run     toolcrib.RunID        `json:"run_id"`
	Status  toolcrib.ResultStatus `json:"status" jsonschema:"empty until the call has a result"`
	IsError bool                  `json:"is_error"`
	Content string                `json:"content"`
	Reason  toolcrib.Reason       `json:"reason,omitempty"`
	Pending *Pending              `json:"pending,omitempty" jsonschema:"what it waits for"`
}

// ExplainRequest asks why tools are or are not offered to a run that could begin now.
type ExplainRequest struct {
	Tool   string   `json:"tool,omitempty" jsonschema:"default: all"`
	Agent  string   `json:"agent,omitempty"`
	User   string   `json:"user,omitempty" jsonschema:"another user, for administrators"`
	Tools  []string `json:"tools,omitzero"`
	Skills []string `json:"skills,omitempty"`

	ReadOnly  bool            `json:"read_only,omitempty"`
	Approve   string          `json:"approve,omitempty" jsonschema:"none, all or deny, as when a run starts"`
	Run       string          `json:"run,omitempty" jsonschema:"the ID of a stored run instead of one that could begin now"`
	Arguments json.RawMessage `json:"arguments,omitempty" jsonschema:"of a call of the tool, which is judged, too"`
	Tainted   []string        `json:"tainted,omitempty" jsonschema:"untrusted data that the run would have read before that call"`
}

// PruneRequest removes runs for good, or their content.
type PruneRequest struct {
	Runs      []string `json:"runs,omitempty" jsonschema:"the IDs of runs that have ended"`
	OlderThan string   `json:"older_than,omitempty" jsonschema:"instead of runs: all that ended so long ago, such as 720h"`
	Content   bool     `json:"content,omitempty" jsonschema:"only their content"`
	WithLater bool     `json:"with_later,omitempty" jsonschema:"also later runs of the session and forks, which repeat what was said"`
	Check     bool     `json:"check,omitempty" jsonschema:"only say how many runs are named"`
	Named     *int     `json:"named,omitempty" jsonschema:"a conflict if another number of runs is named"`
}

// PruneResult is what pruning removed.
type PruneResult struct {
	Runs     []toolcrib.RunID `json:"runs"`
	Events   int              `json:"events"`   // number of events whose content was removed
	Contents int              `json:"contents"` // number of kept results removed
	Bytes    int64            `json:"bytes"`    // size of both
	// Wiped reports whether the bytes were also erased from the files. If false, the file could
	// not be rewritten, because another process was using it or the disk had no room.
	Wiped bool `json:"wiped"`
}

// Pruned is the answer to a request that removes runs, or a check of one.
type Pruned struct {
	PruneResult
	Session toolcrib.SessionID `json:"session_id,omitempty"`
	Name    string             `json:"name,omitempty" jsonschema:"of the session"`
	Named   int                `json:"named" jsonschema:"how many runs were named; 0 = all of that age"`
	Notices []string           `json:"notices,omitempty" jsonschema:"what a person should know before"`
}

// RemoveSessionRequest removes a session with its runs.
type RemoveSessionRequest struct {
	WithLater bool `json:"with_later,omitempty" jsonschema:"also forks of its runs"`
	Check     bool `json:"check,omitempty" jsonschema:"only say how many runs it has"`
	Named     *int `json:"named,omitempty" jsonschema:"a conflict if it has another number of runs"`
}

// ImportRequest imports an exported run.
type ImportRequest struct {
	Export string `json:"export" jsonschema:"what GET /api/runs/{id}/export has answered"`
}

// Imported is a run that was imported.
type Imported struct {
	Run    toolcrib.RunID `json:"run_id"`
	Events int            `json:"events"`
}

// RemoveMadeRequest removes a file that a run made.
type RemoveMadeRequest struct {
	Path string         `json:"path"`
	By   toolcrib.RunID `json:"by" jsonschema:"the run of one call that has just emptied it"`
}
