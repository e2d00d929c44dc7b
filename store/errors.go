package store

import (
	"errors"
	"fmt"
	"time"

	"github.com/toolcrib/toolcrib"
)

// What can be wrong with a store. Each text says what to do. toolcrib.CodeOf gives the code.
var (
	ErrLocked = coded(toolcrib.CodeOverloaded, "the database is locked: another program has held it for too long; end that program, or try again")
	ErrFull   = coded(toolcrib.CodeCapacityExceeded,
		"the database cannot grow: the disk is full; make room and try again, nothing was stored in part")
	ErrNewer       = errors.New("the database was written by a later version of toolcrib and was not touched; use that version, or take its runs into another data folder: `toolcrib runs export` with that version, `toolcrib runs import` with this one")
	ErrCorrupt     = errors.New("the file is damaged or is not a database of toolcrib; move it away with its -wal and -shm files and restore a copy, or start with an empty data folder")
	ErrOlder       = errors.New("the database was written by an earlier version of toolcrib and was not touched; use that version, or take its runs into another data folder: `toolcrib runs export` with that version, `toolcrib runs import` with this one")
	ErrLost        = errors.New("the database is missing or empty, but its keys are still here; restore a copy of the database, or, to start over without its contents, move the key file away")
	ErrIncomplete  = errors.New("the database was in use when it was copied without its -wal file, or that file was removed, so its newest events are missing; put the file back beside it, restore a backup (`toolcrib restore`), or accept what is left with `toolcrib runs verify --adopt`")
	ErrReplaced    = errors.New("the database was removed or replaced while it was in use, so nothing more is done; put it back, or a copy of it, and start again")
	ErrDamaged     = errors.New("damage was found in the database, so no new run is started; restore a copy of the data folder, or look at what `toolcrib runs verify` reports and accept it with `toolcrib runs verify --adopt`")
	ErrReadOnly    = errors.New("the database cannot be written; make the file and its folder writable for this user, or use another data folder")
	ErrUnavailable = errors.New("the database cannot be used; check the path, the rights and the disk")
	ErrClosed      = errors.New("the store is closed")
	ErrTooLarge    = coded(toolcrib.CodeTooLarge, "too large to store")
	ErrKeys        = errors.New("the key file cannot be used; restore it from a backup, or accept what is stored as it is, with a new key")
	ErrNetwork     = errors.New("the database lies on a network file system, where its write-ahead log does not work; choose a data folder on a local disk")
	ErrPruned      = errors.New("content pruned")
	ErrBadCursor   = coded(toolcrib.CodeBadRequest, "invalid cursor; start the list again without one")
)

// coded is a kind of error with the code that front ends see; the others are
// internal_error.
func coded(code toolcrib.Code, text string) error { return toolcrib.Errorf(code, "%s", text) }

// Error is a store that could not do its work. Kind is one of the values above;
// Err is the cause, for operators.
type Error struct {
	Kind error
	Path string // of the database; not for people outside
	Err  error
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

// SessionBusyError says that a session has a run that has not ended: one at a
// time (contract §1). It is a conflict.
type SessionBusyError struct {
	Session toolcrib.SessionID
	Run     toolcrib.RunID // the one that has not ended
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

// OnceError says that a run has begun with the key of another one. It is a conflict.
type OnceError struct {
	Run  toolcrib.RunID
	Same bool // it was asked with the same
}

func (e *OnceError) Error() string {
	return fmt.Sprintf("run %s has begun with the same key", e.Run)
}

// Unwrap makes the error [toolcrib.ErrConflict].
func (e *OnceError) Unwrap() error { return toolcrib.ErrConflict }

// Verified is what a chain was found to hold.
type Verified struct {
	Events  int `json:"events"`
	Pruned  int `json:"pruned"`  // of these, without content; the chain holds all the same
	Anchors int `json:"anchors"` // that are in the system journal and fit

	// Sealed, of a run, is the event up to which its seal reaches: nothing of it can be
	// changed, and nothing up to there removed. What comes later can be lost as by a loss
	// of power, and is then done again.
	Sealed toolcrib.Seq `json:"sealed,omitempty"`

	// Adopted, of the system journal, is the event before which nothing was sealed
	// by the key that the head has now; 0 = all was.
	Adopted toolcrib.Seq `json:"adopted,omitempty"`
}

// VerifiedAll is what a whole store was found to hold.
type VerifiedAll struct {
	Runs    int      `json:"runs"`
	Removed int      `json:"removed"` // runs that were removed, as the system journal says
	Events  int      `json:"events"`  // of all runs
	Pruned  int      `json:"pruned"`  // of these, without content
	System  Verified `json:"system"`  // of the system journal

	// Problems are what does not hold, at most MaxProblems of them. More says that
	// there are others.
	Problems []*ChainError `json:"problems,omitempty"`
	More     bool          `json:"more,omitempty"`
}

// MaxProblems is how many problems are told at once.
const MaxProblems = 100

// ChainError says where a hash chain does not hold: someone has changed what is
// stored.
type ChainError struct {
	Run  toolcrib.RunID `json:"run_id"` // SystemChain for the system journal; "" = of no run
	Seq  toolcrib.Seq   `json:"seq"`    // the first event that does not fit; 0 = none in particular
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
