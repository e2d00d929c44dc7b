package client

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/journal"
)

// RunRequest asks for a run; more fields are in the OpenAPI document of the server. Fields
// that are zero say nothing.
type RunRequest struct {
	Agent     string   `json:"agent,omitempty"`
	Input     string   `json:"input"`
	Tools     []string `json:"tools,omitzero"` // nil = all of the agent's, empty = none
	Skills    []string `json:"skills,omitempty"`
	ReadOnly  bool     `json:"read_only,omitempty"`
	SessionID string   `json:"session_id,omitempty"`
}

// Run is a run (contract §9).
type Run struct {
	ID         toolcrib.RunID      `json:"id"`
	Status     toolcrib.Status     `json:"status"`
	StopReason toolcrib.StopReason `json:"stop_reason"`
	Agent      string              `json:"agent"`
	Model      string              `json:"model"`
	User       string              `json:"user"`
	SessionID  toolcrib.SessionID  `json:"session_id"`
	ParentID   toolcrib.RunID      `json:"parent_id"`
	Content    string              `json:"content"`
	Truncated  bool                `json:"truncated"`
	Iterations int                 `json:"iterations"`
	Trace      []Call              `json:"trace"` // not in lists
	Usage      toolcrib.Usage      `json:"usage"`
	Pending    *journal.Pending    `json:"pending"` // nil = it waits for nothing
	Error      *struct {
		Code    string `json:"error"`
		Message string `json:"message"`
	} `json:"error"`
	LastSeq   toolcrib.Seq `json:"last_seq"` // the number of its last event; not in lists
	CreatedAt time.Time    `json:"created_at"`
	EndedAt   *time.Time   `json:"ended_at"`
}

// Call is a call of a run.
type Call struct {
	ID         string                `json:"id"`
	Name       string                `json:"name"`
	Arguments  json.RawMessage       `json:"arguments"`
	Status     toolcrib.ResultStatus `json:"status"` // "" = it has no result yet
	IsError    bool                  `json:"is_error"`
	Result     string                `json:"result"`
	Reason     toolcrib.Reason       `json:"reason"`
	DurationMS int64                 `json:"duration_ms"`
}

// Start starts a run, calls do for its events (nil = nobody watches), and returns it when it has
// ended or waits for somebody.
func (c *Client) Start(ctx context.Context, r RunRequest, do func(Event) error) (run Run, err error) {
	if do == nil {
		do = func(Event) error { return nil }
	}
	id, err := c.Begin(ctx, "/api/runs", r, "", 0, do)
	if err != nil {
		return Run{ID: id}, err
	}
	return c.Run(ctx, string(id))
}

// Run returns a run by its ID, or the newest as last.
func (c *Client) Run(ctx context.Context, id string) (run Run, err error) {
	err = c.Get(ctx, Path("runs", id), nil, &run)
	return run, err
}

// Cancel ends a run.
func (c *Client) Cancel(ctx context.Context, id string) (run Run, err error) {
	err = c.Send(ctx, http.MethodPost, Path("runs", id, "cancel"), nil, &run)
	return run, err
}

// Decision is a person's word on what a run waits for.
type Decision struct {
	// Decision is about all calls: approve, deny, retry, happened or not_happened; "" with
	// Answer.
	Decision string          `json:"decision,omitempty"`
	Digest   string          `json:"digest"` // of what the person was shown: that of Run.Pending
	Reason   string          `json:"reason,omitempty"`
	Answer   json.RawMessage `json:"answer,omitempty"` // to a question of the model
}

// Decide decides, once, what a run waits for; approval is the ApprovalID of Run.Pending. The run
// continues by itself, and [Client.Follow] watches it.
func (c *Client) Decide(ctx context.Context, approval string, d Decision) error {
	return c.Send(ctx, http.MethodPost, Path("approvals", approval), d, nil)
}
