package store

import (
	"errors"
	"fmt"
	"time"

	"github.com/toolcrib/toolcrib"
)

// PruneOptions chooses what is pruned: the runs that are named, or all that ended
// so long ago. Only runs that have ended are pruned, and a run only together with the
// runs that it started, at once.
type PruneOptions struct {
	// Runs are pruned, all of which must have ended, and all that they started. One
	// that another run started may be named too, once all runs above it have ended:
	// then these stay, and their journals say what they had started.
	Runs []toolcrib.RunID
	// OlderThan chooses the runs that ended longer ago, and whose sub-runs did;
	// sub-runs are never chosen without the run that they are a part of. 0 = none, so
	// no setting that is left out removes anything.
	OlderThan time.Duration
	// ContentOnly keeps each run with its row, its events without their content,
	// and its chain. Else runs are removed, and only their anchors stay.
	ContentOnly bool
	// InPlace leaves the file as large as it is and does not rewrite it: quick,
	// also for a large one, but copies of what is removed may stay in it.
	InPlace bool
	// By is who prunes; it is in the system journal.
	By string
}

// Check returns an error if the options are invalid.
func (o PruneOptions) Check() error {
	switch {
	case o.By == "":
		return errors.New("prune: the actor is missing")
	case o.OlderThan < 0:
		return errors.New("prune: the age of what is pruned must not be negative")
	case len(o.Runs) == 0 && o.OlderThan == 0:
		return errors.New("prune: runs or an age must be given")
	case len(o.Runs) > 0 && o.OlderThan > 0:
		return errors.New("prune: give either runs or an age")
	}
	return nil
}

// RunAboveError says that a run is not pruned because one above it has not ended. That
// one continues by what the journals of the runs below it say: without them it would
// start what has run already, or never end. It is a conflict.
type RunAboveError struct {
	Run    toolcrib.RunID
	Above  toolcrib.RunID // the topmost one that has not ended
	Status toolcrib.Status
}

func (e *RunAboveError) Error() string {
	return fmt.Sprintf("run %s is part of run %s, which has not ended (%s), so it cannot be pruned; resume or cancel run %s first", e.Run, e.Above, e.Status, e.Above)
}

// Unwrap makes the error [toolcrib.ErrConflict].
func (e *RunAboveError) Unwrap() error { return toolcrib.ErrConflict }

// PruneResult is what was pruned.
type PruneResult struct {
	Runs     []toolcrib.RunID `json:"runs"`
	Events   int              `json:"events"`   // whose content is gone
	Contents int              `json:"contents"` // kept results that are gone
	Bytes    int64            `json:"bytes"`    // of both
	// Wiped says that the bytes are surely gone from the files too. If not, the
	// file was not rewritten, because of InPlace, because another process still
	// used it as it was, or because the disk has no room for that.
	Wiped bool `json:"wiped"`
}

// The kinds of system events of pruning.
const (
	SystemContentPruned toolcrib.Kind = "content_pruned" // payload: Pruned
	SystemRunRemoved    toolcrib.Kind = "run_removed"    // payload: Pruned
)

// Pruned is what the system journal keeps of a run that was pruned.
type Pruned struct {
	Run      toolcrib.RunID  `json:"run_id"`
	By       string          `json:"by"`
	Status   toolcrib.Status `json:"status"`
	EndedAt  time.Time       `json:"ended_at"`
	Seq      toolcrib.Seq    `json:"seq"`  // the last event
	Hash     string          `json:"hash"` // hex, of the run's chain up to Seq
	Events   int             `json:"events"`
	Contents int             `json:"contents"`
	Bytes    int64           `json:"bytes"`
	Record   string          `json:"record,omitempty"` // hex, hash of the row that stays
	Used     []UseEntry      `json:"used"`             // what follows from no event of the run any more
}

// The bounds of [Retention.Max].
const (
	DefaultRetentionRuns = 200
	MaxRetentionRuns     = 10_000
)

// Retention is how long runs are kept, from their end (configuration: retention).
// Runs that have not ended, parked ones too, are never pruned. A run is pruned
// together with its sub-runs, once all of them are that old. The newest run of a
// session that is younger than the limit itself is kept: that run has the transcript
// which the session continues from.
type Retention struct {
	Runs    time.Duration // older ones are removed, with the sessions that have none left; 0 = never
	Content time.Duration // older ones lose their content; 0 = never
	// runs in one call, and the sub-runs of the last; 0 = DefaultRetentionRuns, at most MaxRetentionRuns
	Max int
	By  string // is in the system journal; "" = RetentionBy
}

// RetentionBy is in the system journal for what was pruned for its age.
const RetentionBy = "retention"

// Check returns an error if it is invalid.
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
// again (Compact, or pruning without InPlace).
type RetentionResult struct {
	Removed  []toolcrib.RunID     `json:"removed"`
	Emptied  []toolcrib.RunID     `json:"emptied"` // without content now
	Sessions []toolcrib.SessionID `json:"sessions"`
	Contents int                  `json:"contents"` // kept results that are gone
	Bytes    int64                `json:"bytes"`    // of events and kept results
	More     bool                 `json:"more"`     // there is more than Max; call again
}
