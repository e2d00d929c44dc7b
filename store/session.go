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

// SessionPrefix begins the ID of every session that a store made. Other IDs are
// names that a program has given; those are each user's own.
const SessionPrefix = "ses_"

// MaxSessionName is the length of a session's name in bytes (C13).
const MaxSessionName = 256

// ErrSessionName is what is wrong with the name of a session (C13).
var ErrSessionName = coded(toolcrib.CodeBadRequest, "a session's name must have 1 to 256 bytes, and no /, \\, .. or control characters")

// CheckSessionName reports what is wrong with a name that a person gives to a
// session (C13): ErrSessionName, or nothing. A name that looks like an ID is
// none.
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

// SessionInfo is what a store knows about a session: ordered runs of one user that
// share a transcript (contract §1). The transcript is that of its last run: each run
// begins with what came before.
type SessionInfo struct {
	ID   toolcrib.SessionID `json:"id"`   // what RunStarted.Session holds
	Name string             `json:"name"` // as the user calls it; "" = it has none
	User string             `json:"user"`
	// the prompt of the oldest run that has its content, cut; "" = none has
	Title     string          `json:"title"`
	CreatedAt time.Time       `json:"created_at"` // of the session
	UpdatedAt time.Time       `json:"updated_at"` // when its last run began or ended; without a run, CreatedAt
	Runs      int             `json:"runs"`       // that are stored, without sub-runs
	LastRun   toolcrib.RunID  `json:"last_run,omitempty"`
	Status    toolcrib.Status `json:"status,omitempty"` // of the last run; the session is busy if that has not ended
}

// Busy reports whether the session has a run that has not ended, so that it takes
// no other. A parked run has not ended.
func (s SessionInfo) Busy() bool { return s.LastRun != "" && !s.Status.Ended() }

// maxTitle bounds SessionInfo.Title, in characters.
const maxTitle = 80

// TitleOf makes one line of a prompt: the first of its lines that is not empty, cut
// to 80 characters.
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
	User   string // "" = all
	Token  string // only sessions all of whose runs this access token started, at least one; "" = any
	Limit  int    // at most so many; 0 = DefaultLimit; never more than MaxLimit
	Cursor string // SessionPage.Next of the page before; "" = from the newest
}

// SessionPage is part of a list of sessions, those with the newest runs first.
type SessionPage struct {
	Sessions []SessionInfo `json:"sessions"`
	Next     string        `json:"next,omitempty"` // the cursor of the next page; "" = this is the last
}

// The kinds of system events of sessions.
const (
	SystemSessionMade    toolcrib.Kind = "session_made"    // payload: SessionMade
	SystemSessionRemoved toolcrib.Kind = "session_removed" // payload: SessionRemoved
)

// SessionMade says that there is a session.
type SessionMade struct {
	ID   toolcrib.SessionID `json:"session_id"`
	User string             `json:"user"`
	Name string             `json:"name"` // "" = it has none
}

// SessionRemoved says that a session is there no more: it was old and had no run.
type SessionRemoved struct {
	ID   toolcrib.SessionID `json:"session_id"`
	User string             `json:"user"`
	By   string             `json:"by"`
}

// Bounds of what a run has not read yet.
const (
	MaxUnread       = 32       // messages of one run
	MaxMessageBytes = 64 << 10 // of one message
)

// ErrInboxFull is the error for a message to a run that has not read [MaxUnread] others.
var ErrInboxFull = coded(toolcrib.CodeCapacityExceeded, "the run has not read the messages before this one; try again later")

// Message is what someone says to a run that has not read it yet.
type Message struct {
	ID   string // of its own
	Text string
	By   string
	At   time.Time
}

// Inbox are messages to runs. A run reads them before it asks its model: the append of a
// [journal.Said] with the ID of one takes it out of the inbox, in one transaction.
//
// An append that ends a run is journal.ErrUnread if there are more messages than its event knows
// of, and takes all of them out otherwise. So is the first attempt of a request, unless it is for a summary, if
// there is a message that is not read by then.
type Inbox interface {
	// PutMessage keeps a message durably. A run that has ended is toolcrib.ErrConflict, a
	// [MaxUnread] of messages ErrInboxFull, a text of more than [MaxMessageBytes] ErrTooLarge, and a run
	// that is not there toolcrib.ErrNotFound.
	PutMessage(ctx context.Context, run toolcrib.RunID, m Message) error
	// Messages returns those that a run has not read, oldest first.
	Messages(ctx context.Context, run toolcrib.RunID) ([]Message, error)
}

// SealMessage is the seal of a message to a run.
func (k *Keys) SealMessage(run toolcrib.RunID, m *Message) Seal {
	s := newSealing(k.Derive("message to a run"))
	return s.Add(string(run), m.ID, m.Text, m.By, m.At.UnixMicro()).Sum()
}

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
	Taint      string              `json:"taint,omitempty"`  // a line for each source of untrusted data that it has read
	Content    string              `json:"content"`
	Truncated  bool                `json:"truncated"`
	Iterations int                 `json:"iterations"`
	Usage      toolcrib.Usage      `json:"usage"`
	Unpriced   bool                `json:"unpriced,omitempty"` // no price is known of some of it; see [Meter.Charge]
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
	Code    string              `json:"error"`
	Class   toolcrib.ErrorClass `json:"class,omitempty"` // if Message says what a provider said
	Message string              `json:"message"`
	Ref     string              `json:"ref,omitempty"` // the detail is in the log and journal under it
}

// Public is the record as users of a server read it (see [journal.Public]).
func (rec RunRecord) Public() RunRecord {
	if e := rec.Error; e != nil && e.Class != "" {
		rec.Error = &RunError{e.Code, e.Class, journal.RequestFailed(e.Class), e.Ref}
	}
	if rec.Pending != nil {
		pending := *rec.Pending
		pending.Error = pending.Error.Public()
		rec.Pending = &pending
	}
	return rec
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
		if start, ok := e.Body.(*journal.RunStarted); ok { // what it says stays as it is
			projectStart(rec, start)
		}
	}
	switch b := e.Body.(type) {
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
		if pending := b.Pending; b.Status.Parked() { // else it is forged: only Done and Error end a run
			rec.Status, rec.Pending = b.Status, &pending
		}
	case *journal.Done:
		end(rec, e.Time, b.Status, b.StopReason)
		rec.Content, rec.Truncated, rec.Iterations, rec.Usage = b.Content, b.Truncated, b.Iterations, b.Usage
	case *journal.Error:
		end(rec, e.Time, b.Status, b.StopReason)
		rec.Content, rec.Truncated, rec.Iterations, rec.Usage = b.Content, b.Truncated, b.Iterations, b.Usage
		rec.Error = &RunError{Code: b.Code, Class: b.Class, Message: b.Message, Ref: b.Ref}
	}
	if rec.WaitsSince = (time.Time{}); rec.Decides() {
		rec.WaitsSince = e.Time
	}
}

func projectStart(rec *RunRecord, b *journal.RunStarted) {
	rec.Agent, rec.Model = b.Agent.Name, b.Agent.Model
	rec.User, rec.Actor, rec.Token = b.Principal.User, b.Principal.Actor, b.Principal.TokenID()
	rec.Session, rec.Parent, rec.Beside = b.Session, b.Parent, b.Beside
	rec.Driver, rec.Workspace, rec.Once = b.Driver, b.Workspace, b.Once
	projectTaint(rec, b.Taint...)
	if b.Given != nil {
		rec.Iterations = 1
	}
}

// The bounds of [RunRecord.Taint]: sources more than that change nothing in what is decided.
const (
	maxSources = 64
	maxSource  = 256
)

// projectTaint notes sources of untrusted data.
func projectTaint(rec *RunRecord, sources ...string) {
	for _, source := range sources {
		known := rec.Sources()
		source = cmp.Or(strings.ReplaceAll(guard.Clip(source, maxSource), "\n", " "), "unknown")
		if len(known) < maxSources && !slices.Contains(known, source) {
			rec.Taint = strings.Join(append(known, source), "\n")
		}
	}
}

// Sources are the sources of untrusted data that the run has read; none = it has read no such data.
func (rec *RunRecord) Sources() []string {
	if rec.Taint == "" {
		return nil
	}
	return strings.Split(rec.Taint, "\n")
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
