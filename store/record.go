package store

import (
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/journal"
)

// RunRecord is what a store knows about a run without reading its journal. It is
// kept in the transaction of each append.
type RunRecord struct {
	ID         toolcrib.RunID      `json:"id"`
	Status     toolcrib.Status     `json:"status"`
	StopReason toolcrib.StopReason `json:"stop_reason,omitempty"`
	Agent      string              `json:"agent"`
	Model      string              `json:"model"` // as the agent names it
	User       string              `json:"user"`
	Actor      string              `json:"actor,omitempty"` // who really asked, with --as
	Token      string              `json:"token,omitempty"` // the ID of the access token that started it; "" = none
	Session    toolcrib.SessionID  `json:"session_id"`
	Parent     toolcrib.RunID      `json:"parent_id"`
	Beside     toolcrib.SessionID  `json:"beside,omitempty"` // see [journal.RunStarted]
	Content    string              `json:"content"`
	Truncated  bool                `json:"truncated"`
	Iterations int                 `json:"iterations"`
	Usage      toolcrib.Usage      `json:"usage"`
	Pending    *journal.Pending    `json:"pending,omitempty"`
	Error      *RunError           `json:"error,omitempty"`
	Driver     string              `json:"driver,omitempty"` // cli | server
	Workspace  string              `json:"workspace,omitempty"`
	Once       string              `json:"once,omitempty"` // see [journal.RunStarted]
	CreatedAt  time.Time           `json:"created_at"`
	EndedAt    time.Time           `json:"ended_at,omitzero"` // zero = it has not ended
	// WaitsSince is when the last event of a run came that waits itself, as [RunRecord.Decides]
	// says; zero = it does not.
	WaitsSince time.Time    `json:"waits_since,omitzero"`
	LastSeq    toolcrib.Seq `json:"last_seq"` // the number of its last event

	// PrunedAt is when the content of the run was removed; zero = it is there. It
	// does not follow from the run's own events but from the system journal.
	PrunedAt time.Time `json:"pruned_at,omitzero"`
}

// RunError is why a run failed.
type RunError struct {
	Code    string `json:"error"`
	Message string `json:"message"`
	Ref     string `json:"ref,omitempty"` // the detail is in the log and journal under it
}

// Decides reports whether the run waits for a decision, an answer or a provider of its own.
// One that waits for a run below it does not: what is to be decided is that run's, and
// is told and decided there, once. So does its age count, for what expires.
func (rec *RunRecord) Decides() bool { return rec.Pending != nil && rec.Pending.Run == "" }

// Project brings rec up to date with one more event of its run. Applied to all
// events of a run in their order, beginning with an empty record that has only
// its ID, it gives the record of the run. It never changes what rec pointed to
// before, so a copy of the old record stays as it was.
//
// A run is queued until a driver takes it up, and again when what it was parked
// for has come. One that waits for a run below it continues when its driver says that
// this continues or has ended: what is decided is in the journal of the run below.
// An end is final: later events change nothing but LastSeq.
func Project(rec *RunRecord, e toolcrib.Event) {
	rec.LastSeq = e.Seq
	if rec.CreatedAt.IsZero() {
		rec.CreatedAt = e.Time
	}
	if rec.Status.Ended() {
		return
	}
	if rec.Status == "" {
		rec.Status = toolcrib.StatusQueued
	}
	switch b := e.Body.(type) {
	case *journal.RunStarted:
		projectStart(rec, b)
	case *journal.TakenUp:
		if rec.Status == toolcrib.StatusWaitingForProvider && rec.Decides() {
			wake(rec)
		}
		if !rec.Status.Parked() { // a driver that finds nothing decided lets go again
			rec.Status = toolcrib.StatusRunning
		}
	case *journal.ModelChosen:
		rec.Model = b.Model.Ref
		if rec.Status == toolcrib.StatusWaitingForProvider && rec.Decides() {
			wake(rec)
		}
	case *journal.Granted:
		if rec.Status == toolcrib.StatusWaitingForProvider && rec.Decides() && rec.Pending.Error.Adds() != "" {
			wake(rec)
		}
	case *journal.ModelRequest, *journal.ToolStarted, *journal.ChildStarted, *journal.ChildResumed, *journal.ChildEnded:
		rec.Status, rec.Pending = toolcrib.StatusRunning, nil
	case *journal.Message:
		if !b.Closing {
			rec.Iterations = b.Iteration
		}
	case *journal.ModelFailed:
		rec.Usage = b.Sum
	case *journal.Usage:
		rec.Usage = b.Sum
	case *journal.ConfirmationResolved:
		if rec.Decides() && rec.Pending.ApprovalID == b.ApprovalID && !b.Open {
			wake(rec)
		}
	case *journal.ToolResult:
		projectResult(rec, b)
	case *journal.Stopping:
		wake(rec)
	case *journal.Paused:
		pending := b.Pending
		rec.Status, rec.Pending = b.Status, &pending
	case *journal.Done:
		end(rec, e.Time, b.Status, b.StopReason)
		rec.Content, rec.Truncated, rec.Iterations, rec.Usage = b.Content, b.Truncated, b.Iterations, b.Usage
	case *journal.Error:
		end(rec, e.Time, b.Status, b.StopReason)
		rec.Content, rec.Truncated, rec.Iterations, rec.Usage = b.Content, b.Truncated, b.Iterations, b.Usage
		rec.Error = &RunError{Code: b.Code, Message: b.Message, Ref: b.Ref}
	}
	if rec.WaitsSince = (time.Time{}); rec.Decides() {
		rec.WaitsSince = e.Time
	}
}

func projectStart(rec *RunRecord, b *journal.RunStarted) {
	rec.Agent, rec.Model = b.Agent.Name, b.Agent.Model
	rec.User, rec.Actor, rec.Token = b.Principal.User, b.Principal.Actor, b.Principal.Token
	rec.Session, rec.Parent, rec.Beside = b.Session, b.Parent, b.Beside
	rec.Driver, rec.Workspace, rec.Once = b.Driver, b.Workspace, b.Once
	if b.Given != nil {
		rec.Iterations = 1
	}
}

// projectResult takes a client's result off what a run waits for; with the last
// one the run can go on.
func projectResult(rec *RunRecord, b *journal.ToolResult) {
	if rec.Status != toolcrib.StatusWaitingForTool || !rec.Decides() {
		return
	}
	pending := *rec.Pending
	pending.Calls = make([]journal.ApprovalItem, 0, len(rec.Pending.Calls))
	for _, c := range rec.Pending.Calls {
		if c.ID != b.ToolCallID {
			pending.Calls = append(pending.Calls, c)
		}
	}
	if len(pending.Calls) == 0 {
		wake(rec)
		return
	}
	rec.Pending = &pending
}

// wake makes a parked run one that a driver can take up.
func wake(rec *RunRecord) {
	if rec.Status.Parked() {
		rec.Status, rec.Pending = toolcrib.StatusQueued, nil
	}
}

func end(rec *RunRecord, at time.Time, status toolcrib.Status, why toolcrib.StopReason) {
	rec.Status, rec.StopReason, rec.Pending, rec.EndedAt = status, why, nil, at
}
