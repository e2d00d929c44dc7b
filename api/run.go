package api

import (
	"encoding/json"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/journal"
)

// Run is a run. Lists have only a part of its fields.
type Run struct {
	ID         toolcrib.RunID      `json:"id"`
	Status     toolcrib.Status     `json:"status"`
	StopReason toolcrib.StopReason `json:"stop_reason"`
	Agent      string              `json:"agent"`
	Model      string              `json:"model"`
	User       string              `json:"user"`
	Actor      string              `json:"actor,omitempty"`
	Token      string              `json:"token_id,omitempty"` // ID of the access token that started it
	SessionID  toolcrib.SessionID  `json:"session_id"`
	ParentID   toolcrib.RunID      `json:"parent_id"`
	Content    string              `json:"content"`
	Truncated  bool                `json:"truncated"`
	Iterations int                 `json:"iterations"`
	Trace      []TraceCall         `json:"trace,omitzero"` // not in lists
	Usage      toolcrib.Usage      `json:"usage"`
	// Spent is the usage with that of all runs below it that have ended. It is not in lists.
	Spent    *toolcrib.Usage `json:"usage_with_children,omitempty"`
	Children []Child         `json:"children,omitempty"` // runs that it started; not in lists
	// Taint lists the sources of untrusted data that it has read. It is not in lists.
	Taint     []string          `json:"taint,omitempty"`
	Skills    []journal.Skill   `json:"skills,omitempty"` // not in lists
	Pending   *Pending          `json:"pending"`
	Error     *journal.RunError `json:"error"`
	CreatedAt time.Time         `json:"created_at"`
	EndedAt   *time.Time        `json:"ended_at"`
	PrunedAt  *time.Time        `json:"pruned_at,omitempty"` // when its content was removed
	// Interrupted is set if the run was cut off and no process drives it.
	Interrupted bool   `json:"interrupted,omitempty"`
	Workspace   string `json:"workspace,omitempty"`
	// Site identifies the folder of workspaces that has Workspace, where servers may have different ones.
	Site string `json:"site,omitempty"`
	// Unreachable is set if the run waits because no running server has its Site.
	Unreachable bool `json:"workspace_unreachable,omitempty"`
	// Prompt is the beginning of its prompt, in one line. Only lists have it, on request; it is ""
	// if the run was pruned.
	Prompt string `json:"prompt,omitempty"`
	// Team is the report of a team. It is not in lists.
	Team *Report `json:"team,omitempty"`
	Around
	Course
}

// RunList is a page of runs.
type RunList struct {
	Runs []Run  `json:"runs"`
	Next string `json:"next,omitempty" jsonschema:"the cursor of the next page; absent on the last page"`
}

// Around has the fields of a run about the runs around it. They are not in lists.
type Around struct {
	LastSeq toolcrib.Seq       `json:"last_seq,omitempty"` // number of its last event
	Driver  string             `json:"driver,omitempty"`   // which kind of process drives it: cli or server
	Driven  bool               `json:"driven,omitempty"`   // a process drives it, or may
	Beside  toolcrib.SessionID `json:"beside,omitempty"`   // session during which a person made its given call
	Caller  string             `json:"caller,omitempty"`   // agent of the run that started it; "" = unknown
	// Top is the run at the top of its tree, which is the one to be resumed. It is "" if the run has
	// no parent, or if that run has ended.
	Top     toolcrib.RunID `json:"top_id,omitempty"`
	Decided bool           `json:"decided,omitempty"` // the run below for which it waits does not wait any more
}

// Course has the fields of a run that are read from its journal. They are not in lists.
type Course struct {
	// Stopping says why it ends before the model was done, and StoppedBy what ends it.
	Stopping      string `json:"stopping,omitempty"`
	StoppedBy     string `json:"stopped_by,omitempty"`
	MaxIterations int    `json:"max_iterations,omitempty"` // limit, with the iterations added since
	DrivenMS      int64  `json:"driven_ms,omitempty"`      // time under a driver, without that for decisions
	LastModel     string `json:"last_model,omitempty"`     // model of the last or next reply; "" = no model
	// Unpriced is set if the price of a model that it used is unknown, and TokensEstimated if some of
	// its tokens were estimated.
	Unpriced        bool           `json:"unpriced,omitempty"`
	TokensEstimated bool           `json:"tokens_estimated,omitempty"`
	Context         int64          `json:"context_tokens,omitempty"` // estimated size of the next request
	ContextSize     int64          `json:"context_size,omitempty"`   // context size of the model; 0 = unknown
	Approve         string         `json:"approve,omitempty"`        // all or deny, if it keeps to that
	Compact         bool           `json:"compact,omitempty"`        // it only condenses the session
	Condensed       int            `json:"condensed,omitempty"`      // how often messages were condensed or dropped
	ForkedFrom      toolcrib.RunID `json:"forked_from,omitempty"`
	ForkedRound     int            `json:"forked_round,omitempty"`
}

// Duration returns the time under a driver.
func (c *Course) Duration() time.Duration { return time.Duration(c.DrivenMS) * time.Millisecond }

// Pending is what a parked run waits for, with the decisions so far.
type Pending struct {
	journal.Pending
	Calls  []PendingCall `json:"calls,omitempty"`
	Reason string        `json:"reason,omitempty"` // why a person is asked; not in lists
}

// Ask returns the approval that the run waits for, with all of its calls.
func (p *Pending) Ask() *journal.ConfirmationRequired {
	ask := &journal.ConfirmationRequired{
		ApprovalID: p.ApprovalID, Digest: p.Digest, Kind: journal.ApprovalKind(p.Kind),
		Reason: p.Reason, Question: p.Question, Schema: p.Schema,
	}
	for _, c := range p.Calls { // those of the embedded one are not read from JSON
		ask.Calls = append(ask.Calls, c.ApprovalItem)
	}
	return ask
}

// Open returns its calls without a decision.
func (p *Pending) Open() (open []journal.ApprovalItem) {
	for _, c := range p.Calls {
		if c.Decision == "" {
			open = append(open, c.ApprovalItem)
		}
	}
	return open
}

// PendingCall is a call that a run waits for.
type PendingCall struct {
	journal.ApprovalItem
	Decision string `json:"decision,omitempty"` // "" = open; not in lists
}

// Child is a run that answers a call of another.
type Child struct {
	CallID     string              `json:"call_id"`
	RunID      toolcrib.RunID      `json:"run_id"`
	Agent      string              `json:"agent"`
	Status     toolcrib.Status     `json:"status,omitempty"` // "" = it continues, or was cut off
	StopReason toolcrib.StopReason `json:"stop_reason,omitempty"`
	Share      *journal.Share      `json:"share,omitempty"` // its part of the parent's budget; absent = no cap
	Usage      *toolcrib.Usage     `json:"usage,omitempty"` // with the runs below it, when it has ended
}

// TraceCall is a call of a run, with its result.
type TraceCall struct {
	ID         string                `json:"id"`
	Name       string                `json:"name"`
	Arguments  json.RawMessage       `json:"arguments"` // an object; the original text if it is not one
	Status     toolcrib.ResultStatus `json:"status"`    // "" = no result yet
	IsError    bool                  `json:"is_error"`
	Result     string                `json:"result"`
	Reason     toolcrib.Reason       `json:"reason"`
	DurationMS int64                 `json:"duration_ms"`
	// Rule decided about the call, and Position is its place in the configuration.
	Rule     string `json:"rule,omitempty"`
	Position string `json:"position,omitempty"`
	// Converted describes the conversions of arguments that the model sent.
	Converted []string `json:"converted,omitempty"`
	// Edited are the arguments by which a person replaced the model's.
	Edited    json.RawMessage `json:"edited_arguments,omitempty"`
	Untrusted bool            `json:"untrusted,omitempty"` // the result is untrusted data
}

// RunNamed is an answer that only names a run.
type RunNamed struct {
	RunID  toolcrib.RunID  `json:"run_id"`
	Status toolcrib.Status `json:"status,omitempty"`
}

// Transcript is the conversation of a run, with the history that it began with.
type Transcript struct {
	Messages []toolcrib.Message `json:"messages"`
}

// Checked is the result of checking one run, or everything that is stored.
type Checked struct {
	Run    toolcrib.RunID `json:"run_id"` // "" = everything, or a file
	File   string         `json:"file,omitempty"`
	OK     bool           `json:"ok"`
	Found  any            `json:"found,omitempty"` // such as store.Verified or replay.Report
	Detail string         `json:"detail"`          // Found in words, or the fault
}

// CheckedList is the answer to a check of a run.
type CheckedList struct {
	Checked []Checked `json:"checked"`
}

// Undo is a file that a run wrote and that differs from its state before.
type Undo struct {
	Path    string `json:"path"`
	Made    bool   `json:"made,omitempty" jsonschema:"there was no file before"`
	Content string `json:"content,omitempty" jsonschema:"what it was before"`
	Problem string `json:"problem,omitempty" jsonschema:"why it cannot be put back; without it, it can"`
}

// WrittenList lists the files that a run wrote and that differ from their state before.
type WrittenList struct {
	Files []Undo `json:"files"`
}
