package store

import (
	"fmt"
	"time"

	"github.com/toolcrib/toolcrib"
)

// The bounds of [Filter.Limit].
const (
	DefaultLimit = 50
	MaxLimit     = 1000
)

// Filter chooses runs. Every field that is not zero must match.
type Filter struct {
	Status   []toolcrib.Status // any of these; empty = any
	User     string
	Token    string // started by the access token with this ID
	Agent    string
	Session  toolcrib.SessionID
	Beside   toolcrib.SessionID
	Parent   toolcrib.RunID // children of this run
	TopLevel bool           // only runs without a parent
	Deciding bool           // only runs that wait themselves, not for a run below them: see RunRecord.Decides
	Since    time.Time      // created then or later
	Once     string         // begun with the key of this hash
	Waiting  time.Time      // that wait themselves, since then or earlier
	Retry    time.Time      // whose provider is to be asked again by then
	Limit    int            // at most so many; 0 = DefaultLimit; never more than MaxLimit
	Cursor   string         // Page.Next of the page before; "" = from the newest
}

// Bound returns the limit that holds: DefaultLimit for none, at most MaxLimit.
func (f Filter) Bound() int {
	if f.Limit <= 0 {
		return DefaultLimit
	}
	return min(f.Limit, MaxLimit)
}

// Page is a part of a list of runs, newest first.
type Page struct {
	Runs []RunRecord `json:"runs"`
	Next string      `json:"next,omitempty"` // the cursor of the next page; "" = this is the last
}

// AmbiguousError says that a shortened run ID fits several runs.
type AmbiguousError struct {
	Prefix string
	IDs    []toolcrib.RunID // the first few that fit, at least two
	More   bool             // there are others than IDs
}

func (e *AmbiguousError) Error() string {
	text := fmt.Sprintf("run ID %s is ambiguous, give more of it; it fits", e.Prefix)
	for i, id := range e.IDs {
		if i > 0 {
			text += ","
		}
		text += " " + string(id)
	}
	if e.More {
		text += " and others"
	}
	return text
}
