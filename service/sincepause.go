package service

import (
	"context"
	"fmt"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/journal"
)

// sincePause watches a run that is resumed after a pause. What was kept since then, such
// as the decision, was written by another process and is in no stream: it comes first, so
// that the streams of a run together have each kept event.
type sincePause struct {
	watch   func(journal.Frame)
	journal toolcrib.Journal
	run     toolcrib.RunID
	after   toolcrib.Seq // the events up to this one were written, or were in the stream before
	live    bool         // a kept frame has come from the driver: from now on it tells all
	failed  func(error)
}

// sincePause makes one, for the events after the last pause; a run that never paused was
// cut off, and its events were in the stream of whoever drove it.
func (s *Service) sincePause(ctx context.Context, watch func(journal.Frame), run toolcrib.RunID) *sincePause {
	w := &sincePause{watch: watch, journal: s.store, run: run}
	w.failed = func(err error) {
		s.Notice(fmt.Sprintf("the events since the pause cannot be written: %v; %s runs events %s --json has it", err,
			s.Self, run))
	}
	w.live = true // until a pause is found
	for e, err := range w.journal.Read(ctx, run, 0) {
		if err != nil {
			w.failed(fmt.Errorf("the journal: %w", err))
			break
		}
		if _, paused := e.Body.(*journal.Paused); paused {
			w.after, w.live = e.Seq, false
		}
	}
	return w
}

// frame writes a frame of the driver. Between the start and the first of them another
// process may have written one more event.
func (w *sincePause) frame(f journal.Frame) {
	if f.Seq > 0 && !w.live {
		w.kept(f.Seq)
		w.live = true
	}
	w.watch(f)
}

// kept writes the kept frames after those that were written, before the one numbered to;
// 0 = all that there are.
func (w *sincePause) kept(to toolcrib.Seq) {
	if w.live {
		return
	}
	for e, err := range w.journal.Read(context.Background(), w.run, w.after) {
		switch {
		case err != nil:
			w.failed(err)
			return
		case to > 0 && e.Seq >= to:
			return
		}
		w.after = e.Seq
		if f, ok := journal.View(w.run, e); ok {
			w.watch(f)
		}
	}
}
