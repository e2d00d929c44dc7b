package store

import (
	"errors"
	"time"

	"github.com/toolcrib/toolcrib"
)

// The bounds of [Retention.Max].
const (
	DefaultRetentionRuns = 200
	MaxRetentionRuns     = 10_000
)

// Retention is how long runs are kept, from their end (configuration: retention).
// Runs that have not ended, parked ones too, are never pruned. A run is pruned
// together with its sub-runs, once all of them are that old. The newest run of a
// session that is younger than the limit itself is kept: that run has the transcript
// which the session goes on from.
type Retention struct {
	Runs    time.Duration // older ones are removed, with the sessions that have none left; 0 = never
	Content time.Duration // older ones lose their content; 0 = never
	Max     int           // runs in one call, and the sub-runs of the last; 0 = DefaultRetentionRuns, at most MaxRetentionRuns
	By      string        // stands in the system journal; "" = RetentionBy
}

// RetentionBy stands in the system journal for what was pruned for its age.
const RetentionBy = "retention"

// Check tells what is wrong with it; nil = nothing.
func (r Retention) Check() error {
	if r.Runs < 0 || r.Content < 0 {
		return errors.New("retention: an age must not be negative")
	}
	return nil
}

// Bound returns the limit that holds.
func (r Retention) Bound() int {
	if r.Max <= 0 {
		return DefaultRetentionRuns
	}
	return min(r.Max, MaxRetentionRuns)
}

// RetentionResult is what was pruned. What is removed is overwritten in the
// database file; copies of it may stay in gaps of pages until the file is written
// anew (Compact, or pruning without InPlace).
type RetentionResult struct {
	Removed  []toolcrib.RunID     `json:"removed"`
	Emptied  []toolcrib.RunID     `json:"emptied"` // without content now
	Sessions []toolcrib.SessionID `json:"sessions"`
	Contents int                  `json:"contents"` // kept results that are gone
	Bytes    int64                `json:"bytes"`    // of events and kept results
	More     bool                 `json:"more"`     // there is more than Max; call again
}
