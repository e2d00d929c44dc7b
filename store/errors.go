package store

import (
	"errors"
	"fmt"
	"time"

	"github.com/toolcrib/toolcrib"
)

// The kinds of errors of a store. Each text says what to do; [toolcrib.CodeOf] returns the code.
var (
	ErrLocked = coded(toolcrib.CodeOverloaded,
		"the database is locked: another program has held it for too long; end that program, or try again")
	ErrFull = coded(toolcrib.CodeCapacityExceeded,
		"the database cannot grow: the disk is full; make room and try again, nothing was stored in part")
	ErrNewer = errors.New("the database was written by a later version of toolcrib and was not touched; use that " +
		"version, or take its runs into another data folder: `toolcrib runs export` with that version, `toolcrib runs " +
		"import` with this one")
	ErrUnmigrated = errors.New("the database has the schema of an earlier version of toolcrib and was not touched; " +
		"run `toolcrib migrate` with the role that owns the tables; a file of SQLite is changed when it is opened for " +
		"writing")
	ErrCorrupt = errors.New("the file is damaged or is not a database of toolcrib; move it away with its -wal and " +
		"-shm files and restore a copy, or start with an empty data folder")
	ErrOlder = errors.New("the database was written by an earlier version of toolcrib and was not touched; use " +
		"that version, or take its runs into another data folder: `toolcrib runs export` with that version, `toolcrib " +
		"runs import` with this one")
	ErrLost = errors.New("the database is missing or empty, but its keys are still here; restore a copy of the " +
		"database, or, to start over without its contents, move the key file away")
	ErrIncomplete = errors.New("the database was in use when it was copied without its -wal file, or that file was " +
		"removed, so its newest events are missing; put the file back beside it, restore a backup (`toolcrib restore`), " +
		"or accept what is left with `toolcrib runs verify --adopt`")
	ErrReplaced = errors.New("the database was removed or replaced while it was in use, so nothing more is done; " +
		"put it back, or a copy of it, and start again")
	ErrDamaged = errors.New("damage was found in the database, so no new run is started; restore a copy of the " +
		"data folder, or look at what `toolcrib runs verify` reports and accept it with `toolcrib runs verify --adopt`")
	ErrReadOnly = errors.New("the database cannot be written; make the file and its folder writable for this user, " +
		"or use another data folder")
	ErrUnavailable = errors.New("the database cannot be used; check the path, the rights and the disk")
	ErrUnreachable = coded(toolcrib.CodeOverloaded,
		"the database server does not answer; check its address and the server, and try again")
	ErrUnsuitable = errors.New("the database cannot be used as it is")
	ErrClosed     = errors.New("the store is closed")
	ErrTooLarge   = coded(toolcrib.CodeTooLarge, "too large to store")
	ErrKeys       = errors.New("the key file cannot be used; restore it from a backup, or accept what is stored as it " +
		"is, with a new key")
	ErrNetwork = errors.New("the database lies on a network file system, where its write-ahead log does not work; " +
		"choose a data folder on a local disk")
	ErrPruned    = errors.New("content pruned")
	ErrBadCursor = coded(toolcrib.CodeBadRequest, "invalid cursor; start the list again without one")
)

// coded returns a kind of error with a code for front ends. Kinds without one are internal_error.
func coded(code toolcrib.Code, text string) error { return toolcrib.Errorf(code, "%s", text) }

// Error is the failure of a store.
type Error struct {
	Kind error  // one of the values above
	Path string // path of the database or key file, for operators only
	Err  error  // cause, for operators only
}

func (e *Error) Error() string {
	text := e.Kind.Error()
	if e.Path != "" {
		text = e.Path + ": " + text
	}
	if e.Err != nil {
		text += " (" + e.Err.Error() + ")"
	}
	return text
}

// Unwrap makes both the kind and the cause known to [errors.Is].
func (e *Error) Unwrap() []error {
	if e.Err == nil {
		return []error{e.Kind}
	}
	return []error{e.Kind, e.Err}
}

// SessionBusyError reports that a session has a run that has not ended; it can have only one at a time.
// It is a conflict.
type SessionBusyError struct {
	Session toolcrib.SessionID
	Run     toolcrib.RunID // run that has not ended
	Status  toolcrib.Status
}

func (e *SessionBusyError) Error() string {
	return fmt.Sprintf("session %s has run %s (%s), which has not ended; let it end or cancel it first",
		e.Session, e.Run, e.Status)
}

// Unwrap makes the error [toolcrib.ErrConflict].
func (e *SessionBusyError) Unwrap() error { return toolcrib.ErrConflict }

// OnceAge is how long a key ([journal.RunStarted.Once]) belongs to the run that began with it.
const OnceAge = 24 * time.Hour

// OnceError reports that an earlier run began with the same key. It is a conflict.
type OnceError struct {
	Run  toolcrib.RunID // earlier run
	Same bool           // whether both requests were the same
}

func (e *OnceError) Error() string {
	return fmt.Sprintf("run %s has begun with the same key", e.Run)
}

// Unwrap makes the error [toolcrib.ErrConflict].
func (e *OnceError) Unwrap() error { return toolcrib.ErrConflict }

// Verified is the result of verifying the chain of a run or of the system journal.
type Verified struct {
	Events  int `json:"events"`
	Pruned  int `json:"pruned"`  // number of events without content; the chain is valid without it
	Anchors int `json:"anchors"` // number of matching anchors in the system journal

	// Sealed is the last event of a run that its seal covers. No event up to there can be
	// removed or changed without detection. Later ones can be lost as by a loss of power;
	// their work is then repeated.
	Sealed toolcrib.Seq `json:"sealed,omitempty"`

	// Adopted is the event of the system journal before which nothing was sealed by the
	// current key; 0 if everything was.
	Adopted toolcrib.Seq `json:"adopted,omitempty"`
}

// VerifiedAll is the result of verifying a whole store.
type VerifiedAll struct {
	Runs    int      `json:"runs"`
	Removed int      `json:"removed"` // runs whose removal the system journal records
	Events  int      `json:"events"`  // events of all runs
	Pruned  int      `json:"pruned"`  // events of runs without content
	System  Verified `json:"system"`

	Problems []*ChainError `json:"problems,omitempty"` // at most MaxProblems
	More     bool          `json:"more,omitempty"`     // whether there are other problems
}

// MaxProblems bounds the problems that are reported at once.
const MaxProblems = 100

// ChainError reports that stored data was changed from outside, and where.
type ChainError struct {
	Run  toolcrib.RunID `json:"run_id"` // SystemChain for the system journal; "" if no run is concerned
	Seq  toolcrib.Seq   `json:"seq"`    // first event that is wrong; 0 if no event is
	What string         `json:"what"`
}

func (e *ChainError) Error() string {
	switch {
	case e.Run == "":
		return e.What + "; the stored data was changed from outside"
	case e.Seq == 0:
		return fmt.Sprintf("run %s: %s; the stored data was changed from outside", e.Run, e.What)
	}
	return fmt.Sprintf("the chain of %s breaks at event %d: %s; the stored data was changed from outside", e.Run,
		e.Seq, e.What)
}
