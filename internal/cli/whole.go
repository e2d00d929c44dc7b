package cli

import (
	"context"
	"iter"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/store/sqlite"
)

// wholeJournal reads the journals of a store and finds where an event is missing,
// so that nothing is told of a run, or done with it, as if that had not been.
type wholeJournal struct{ *sqlite.Store }

// Read yields the events after the one numbered after, and an error for a gap.
func (j wholeJournal) Read(ctx context.Context, run toolcrib.RunID, after toolcrib.Seq) iter.Seq2[toolcrib.Event, error] {
	return func(yield func(toolcrib.Event, error) bool) {
		last := after
		for e, err := range j.Store.Read(ctx, run, after) {
			if err == nil && e.Seq != last+1 {
				yield(toolcrib.Event{}, brokenJournal(run, last+1))
				return
			}
			last = e.Seq
			if !yield(e, err) {
				return
			}
		}
	}
}

func brokenJournal(run toolcrib.RunID, missing toolcrib.Seq) error {
	return failedf("run %s: event %d is missing from its journal, so the run cannot be gone through any further; "+
		"`toolcrib runs verify %s` tells what was changed; restore a copy of the data folder", run, missing, run)
}

// load rebuilds a run from its journal.
func (a *app) load(ctx context.Context, s *sqlite.Store, run toolcrib.RunID) (*agent.State, error) {
	return agent.Load(ctx, wholeJournal{s}, run)
}
