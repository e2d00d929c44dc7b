package cli

import (
	"context"
	"fmt"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/journal"
)

// resumedWatcher writes the frames of a run that is taken up after a pause. What was kept
// since then, such as the decision, was written by another process and stands in no
// stream: it comes first, so that the streams of a run together have each kept event.
type resumedWatcher struct {
	watcher
	journal toolcrib.Journal
	run     toolcrib.RunID
	after   toolcrib.Seq // the events up to this one were written, or stood in the stream before
	live    bool         // a kept frame has come from the driver: from now on it tells all
	failed  func(error)
}

// sincePause is such a watcher, for the events after the last pause; a run that never
// paused was cut off, and its events stood in the stream of whoever drove it.
func (d *drive) sincePause(ctx context.Context, show watcher, run toolcrib.RunID) watcher {
	w := &resumedWatcher{watcher: show, journal: d.a.store, run: run}
	w.failed = func(err error) {
		d.a.noticeBeside("what was kept since the pause cannot be written: %v; %s runs events %s --json has it", err, d.a.self(), run)
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

// Start implements [watcher].
func (w *resumedWatcher) Start() {
	w.watcher.Start()
	w.kept(0)
}

// Frame implements [watcher]. Between Start and the first event of this driver another
// process may have written one more.
func (w *resumedWatcher) Frame(f journal.Frame) {
	if f.Seq > 0 && !w.live {
		w.kept(f.Seq)
		w.live = true
	}
	w.watcher.Frame(f)
}

// kept writes the kept frames after those that were written, before the one numbered to;
// 0 = all that there are.
func (w *resumedWatcher) kept(to toolcrib.Seq) {
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
			w.watcher.Frame(f)
		}
	}
}
