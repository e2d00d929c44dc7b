package store

import (
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/toolcrib/toolcrib"
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

// Bound returns the limit that holds.
func (f SessionFilter) Bound() int { return Filter{Limit: f.Limit}.Bound() }

// SessionPage is a part of a list of sessions, those with the newest runs first.
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
