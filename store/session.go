package store

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/journal"
)

// SessionPrefix begins the ID of every session that a store made. Other IDs are names
// that a program has given, each within the sessions of its user.
const SessionPrefix = "ses_"

// MaxSessionName is the length of a session's name in bytes.
const MaxSessionName = 256

// ErrSessionName is the error for an invalid session name.
var ErrSessionName = coded(toolcrib.CodeBadRequest, "a session's name must have 1 to 256 bytes, and no /, \\, .. or control characters")

// CheckSessionName returns an error if a person cannot give this name to a session:
// [ErrSessionName], or one that says that the name begins like an ID.
func CheckSessionName(name string) error {
	switch {
	case name == "" || len(name) > MaxSessionName || !utf8.ValidString(name),
		strings.Contains(name, "..") || strings.ContainsAny(name, `/\`),
		strings.ContainsFunc(name, unicode.IsControl):
		return ErrSessionName
	case strings.HasPrefix(name, SessionPrefix):
		return toolcrib.Errorf(toolcrib.CodeBadRequest, "no session has this ID, and no name begins with %s", SessionPrefix)
	}
	return nil
}

// SessionInfo describes a session: ordered runs of one user that share a transcript. The
// transcript is that of the last run, since each run begins with the messages before it.
type SessionInfo struct {
	ID   toolcrib.SessionID `json:"id"`   // value of RunStarted.Session
	Name string             `json:"name"` // name given by the user, or ""
	User string             `json:"user"`
	// Title is the prompt of the oldest run whose content is stored, as [TitleOf] shortens it; "" if none.
	Title     string          `json:"title"`
	CreatedAt time.Time       `json:"created_at"`
	UpdatedAt time.Time       `json:"updated_at"` // when its last run began or ended; without a run, CreatedAt
	Runs      int             `json:"runs"`       // number of stored runs, without sub-runs
	LastRun   toolcrib.RunID  `json:"last_run,omitempty"`
	Status    toolcrib.Status `json:"status,omitempty"` // status of the last run
}

// Busy reports whether the last run of the session has not ended, so that no other can start.
// A parked run has not ended.
func (s SessionInfo) Busy() bool { return s.LastRun != "" && !s.Status.Ended() }

// maxTitle bounds SessionInfo.Title, in characters.
const maxTitle = 80

// TitleOf returns the first line of a prompt that is not empty, cut to 80 characters.
func TitleOf(prompt string) string {
	line := ""
	for l := range strings.Lines(prompt) {
		if line = strings.Join(strings.Fields(l), " "); line != "" {
			break
		}
	}
	if runes := []rune(line); len(runes) > maxTitle {
		return string(runes[:maxTitle-1]) + "…"
	}
	return line
}

// SessionFilter chooses sessions.
type SessionFilter struct {
	User   string // if "", sessions of all users
	Token  string // ID of an access token that started all runs of the session, at least one; if "", any session
	Limit  int    // number of sessions, as [Bound] applies it
	Cursor string // SessionPage.Next of the page before; if "", the list starts with the newest
}

// SessionPage is part of a list of sessions, those with the newest runs first.
type SessionPage struct {
	Sessions []SessionInfo `json:"sessions"`
	Next     string        `json:"next,omitempty"` // cursor of the next page; "" on the last page
}

// The kinds of system events of sessions.
const (
	SystemSessionMade    toolcrib.Kind = "session_made"    // payload: SessionMade
	SystemSessionRemoved toolcrib.Kind = "session_removed" // payload: SessionRemoved
)

// SessionMade records that a session was created.
type SessionMade struct {
	ID   toolcrib.SessionID `json:"session_id"`
	User string             `json:"user"`
	Name string             `json:"name"` // "" if it has no name
}

// SessionRemoved records that a session without runs was removed.
type SessionRemoved struct {
	ID   toolcrib.SessionID `json:"session_id"`
	User string             `json:"user"`
	By   string             `json:"by"`
}

// Bounds of the inbox of a run.
const (
	MaxUnread       = 32       // messages
	MaxMessageBytes = 64 << 10 // bytes of the text of one message
)

// ErrInboxFull is the error for a message to a run that has not read [MaxUnread] others.
var ErrInboxFull = coded(toolcrib.CodeCapacityExceeded, "the run has not read the messages before this one; try again later")

// Message is a message to a run that the run has not read yet.
type Message struct {
	ID   string // unique ID of the message
	Text string
	By   string
	At   time.Time
}

// Inbox stores messages to runs. A run reads them before it asks its model: appending a
// [journal.Said] with the ID of a message removes it from the inbox in the same transaction.
//
// An append that ends a run removes all messages to it, but fails with journal.ErrUnread if there
// are more than its event lists. So does the first attempt of a request that is not for a
// summary, if a message is unread.
type Inbox interface {
	// PutMessage stores a message durably. It returns toolcrib.ErrConflict if the run has ended,
	// [ErrInboxFull] if it has [MaxUnread] messages, [ErrTooLarge] if the text is longer than
	// [MaxMessageBytes], and toolcrib.ErrNotFound if there is no such run.
	PutMessage(ctx context.Context, run toolcrib.RunID, m Message) error
	// Messages returns the messages that a run has not read, oldest first.
	Messages(ctx context.Context, run toolcrib.RunID) ([]Message, error)
}

// SealMessage returns the seal of a message to a run.
func (k *Keys) SealMessage(run toolcrib.RunID, m *Message) Seal {
	s := newSealing(k.Derive("message to a run"))
	return s.Add(string(run), m.ID, m.Text, m.By, m.At.UnixMicro()).Sum()
}

// RunRecord is the state of a run, stored so that it can be listed without reading its journal.
// Each append updates it in the same transaction.
type RunRecord struct {
	ID         toolcrib.RunID      `json:"id"`
	Status     toolcrib.Status     `json:"status"`
	StopReason toolcrib.StopReason `json:"stop_reason,omitempty"`
	Agent      string              `json:"agent"`
	Model      string              `json:"model"` // as the agent names it
	User       string              `json:"user"`
	Actor      string              `json:"actor,omitempty"` // user who acted for User (--as)
	Token      string              `json:"token,omitempty"` // ID of the access token that started it, or ""
	Session    toolcrib.SessionID  `json:"session_id"`
	Parent     toolcrib.RunID      `json:"parent_id"`
	Beside     toolcrib.SessionID  `json:"beside,omitempty"` // see [journal.RunStarted]
	Taint      string              `json:"taint,omitempty"`  // sources of untrusted data that it has read, one per line
	Content    string              `json:"content"`
	Truncated  bool                `json:"truncated"`
	Iterations int                 `json:"iterations"`
	Usage      toolcrib.Usage      `json:"usage"`
	Unpriced   bool                `json:"unpriced,omitempty"` // some of the usage has no known price; see [Meter.Charge]
	Pending    *journal.Pending    `json:"pending,omitempty"`
	Error      *journal.RunError   `json:"error,omitempty"`
	Driver     string              `json:"driver,omitempty"` // cli | server
	Workspace  string              `json:"workspace,omitempty"`
	// Site identifies the folder of workspaces that has Workspace; "" if it is not known, or there is only one.
	Site      string    `json:"site,omitempty"`
	Once      string    `json:"once,omitempty"` // see [journal.RunStarted]
	CreatedAt time.Time `json:"created_at"`
	EndedAt   time.Time `json:"ended_at,omitzero"` // zero until the run ends
	// WaitsSince is the time of the last event while [RunRecord.Decides] reports true; otherwise zero.
	WaitsSince time.Time    `json:"waits_since,omitzero"`
	LastSeq    toolcrib.Seq `json:"last_seq"`

	// PrunedAt is when the content of the run was removed; zero if it was not. It does not
	// follow from the events of the run but from the system journal.
	PrunedAt time.Time `json:"pruned_at,omitzero"`
}

// Public returns the record as users of a server read it (see [journal.Public]).
func (rec RunRecord) Public() RunRecord {
	if e := rec.Error; e != nil && e.Class != "" {
		rec.Error = &journal.RunError{Code: e.Code, Class: e.Class, Message: journal.RequestFailed(e.Class), Ref: e.Ref}
	}
	if rec.Pending != nil {
		pending := *rec.Pending
		pending.Error = pending.Error.Public()
		rec.Pending = &pending
	}
	return rec
}

// Decides reports whether the run itself waits for a decision, an answer or a provider. A run
// that waits for a run below it does not: the decision belongs to that run, is shown and made
// there, and expires by the age of that run.
func (rec *RunRecord) Decides() bool { return rec.Pending != nil && rec.Pending.Run == "" }

// Project updates rec with the next event of its run. Applied in order to all events of a run,
// beginning with a record that has only the ID, it gives the record of the run. It never changes
// values that rec points to, so a copy of the old record stays valid.
//
// A run is queued until a driver takes it up, and again when the event that it was parked for
// has come. A run that waits for a run below it continues when its driver records that the run
// below continues or has ended: the decision is in the journal of the run below. An end is
// final: later events change only LastSeq.
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
		if start, ok := e.Body.(*journal.RunStarted); ok { // only the first one is used
			projectStart(rec, start)
		}
	}
	switch b := e.Body.(type) {
	case *journal.TakenUp:
		if rec.Status == toolcrib.StatusWaitingForProvider && rec.Decides() {
			wake(rec)
		}
		if !rec.Status.Parked() { // without a decision the driver releases the run, which stays parked
			rec.Status = toolcrib.StatusRunning
		}
	case *journal.ModelChosen:
		rec.Model = b.Model.Ref
		if rec.Status == toolcrib.StatusWaitingForProvider && rec.Decides() {
			wake(rec)
		}
	case *journal.Granted:
		if rec.Decides() && (rec.Pending.Error.Adds() != "" || rec.Pending.AsksForMore()) {
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
		if b.Untrusted {
			projectTaint(rec, b.Source)
			projectTaint(rec, b.Sources...)
		}
		projectResult(rec, b)
	case *journal.Stopping:
		wake(rec)
	case *journal.Paused:
		if pending := b.Pending; b.Status.Parked() { // any other status is forged: only Done and Error end a run
			rec.Status, rec.Pending = b.Status, &pending
		}
	case *journal.Done:
		end(rec, e.Time, b.Status, b.StopReason)
		rec.Content, rec.Truncated, rec.Iterations, rec.Usage = b.Content, b.Truncated, b.Iterations, b.Usage
	case *journal.Error:
		end(rec, e.Time, b.Status, b.StopReason)
		rec.Content, rec.Truncated, rec.Iterations, rec.Usage = b.Content, b.Truncated, b.Iterations, b.Usage
		rec.Error = &journal.RunError{Code: b.Code, Class: b.Class, Message: b.Message, Ref: b.Ref}
	}
	if rec.WaitsSince = (time.Time{}); rec.Decides() {
		rec.WaitsSince = e.Time
	}
}

func projectStart(rec *RunRecord, b *journal.RunStarted) {
	rec.Agent, rec.Model = b.Agent.Name, b.Agent.Model
	rec.User, rec.Actor, rec.Token = b.Principal.User, b.Principal.Actor, b.Principal.TokenID()
	rec.Session, rec.Parent, rec.Beside = b.Session, b.Parent, b.Beside
	rec.Driver, rec.Workspace, rec.Site, rec.Once = b.Driver, b.Workspace, b.Site, b.Once
	projectTaint(rec, b.Taint...)
	if b.Given != nil {
		rec.Iterations = 1
	}
}

// The bounds of [RunRecord.Taint]. No decision depends on further sources.
const (
	maxSources = 64
	maxSource  = 256 // bytes of one
)

func projectTaint(rec *RunRecord, sources ...string) {
	for _, source := range sources {
		known := rec.Sources()
		source = cmp.Or(strings.ReplaceAll(guard.Clip(source, maxSource), "\n", " "), "unknown")
		if len(known) < maxSources && !slices.Contains(known, source) {
			rec.Taint = strings.Join(append(known, source), "\n")
		}
	}
}

// Sources returns the sources of untrusted data that the run has read.
func (rec *RunRecord) Sources() []string {
	if rec.Taint == "" {
		return nil
	}
	return strings.Split(rec.Taint, "\n")
}

// projectResult removes the call that b answers from the calls that the run waits for. After the
// last one the run can continue.
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

// wake queues a parked run, so that a driver can take it up.
func wake(rec *RunRecord) {
	if rec.Status.Parked() {
		rec.Status, rec.Pending = toolcrib.StatusQueued, nil
	}
}

func end(rec *RunRecord, at time.Time, status toolcrib.Status, why toolcrib.StopReason) {
	rec.Status, rec.StopReason, rec.Pending, rec.EndedAt = status, why, nil, at
}
