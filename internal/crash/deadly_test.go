package crash

import (
	"context"
	"sync"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/store"
)

// deadly is a store whose process dies at an append or at a result that is kept.
// The points of a child run have the name of its agent in their labels, so that they
// are the same ones however runs that are driven at once go along.
type deadly struct {
	*synced
	*dead

	mu    sync.Mutex
	begin map[toolcrib.RunID]*journal.RunStarted
	news  chan struct{} // closed at the next append
}

func newDeadly(st *synced, d *dead) *deadly {
	return &deadly{synced: st, dead: d, begin: map[toolcrib.RunID]*journal.RunStarted{}, news: make(chan struct{})}
}

func (j *deadly) Append(ctx context.Context, run toolcrib.RunID, after toolcrib.Seq, events ...toolcrib.Event) error {
	label, err := j.labelOf(ctx, "append", run, events)
	if err != nil {
		return err
	}
	err = j.around(label, events, func() error { return j.synced.Append(ctx, run, after, events...) })
	j.mu.Lock()
	defer j.mu.Unlock()
	close(j.news)
	j.news = make(chan struct{})
	return err
}

func (j *deadly) Put(ctx context.Context, run toolcrib.RunID, ref string, data []byte) error {
	label, err := j.labelOf(ctx, "keep", run, nil)
	if err != nil {
		return err
	}
	return j.around(label, nil, func() error { return j.synced.Put(ctx, run, ref, data) })
}

// labelOf is the label of the next point of a run.
func (j *deadly) labelOf(ctx context.Context, what string, run toolcrib.RunID, events []toolcrib.Event) (string, error) {
	start, err := j.beginOf(ctx, run, events)
	if err != nil {
		return "", err
	}
	if start != nil && start.Parent != "" {
		what += "/" + start.Agent.Name
	}
	return j.label(what), nil
}

// beginOf returns the first event of a run, or nil if it does not exist yet; events are new ones.
func (j *deadly) beginOf(ctx context.Context, run toolcrib.RunID, events []toolcrib.Event) (*journal.RunStarted, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if start := j.begin[run]; start != nil {
		return start, nil
	}
	if len(events) > 0 {
		if start, ok := events[0].Body.(*journal.RunStarted); ok {
			j.begin[run] = start
			return start, nil
		}
	}
	for e, err := range j.Read(context.WithoutCancel(ctx), run, 0) {
		if err != nil {
			return nil, err
		}
		start, _ := e.Body.(*journal.RunStarted)
		j.begin[run] = start
		return start, nil
	}
	return nil, nil
}

// settled waits until the run of an agent has ended and its parent knows, or until it
// waits for a person.
func (j *deadly) settled(ctx context.Context, name string) error {
	for {
		j.mu.Lock()
		news := j.news
		j.mu.Unlock()
		if is, err := j.isSettled(ctx, name); is || err != nil {
			return err
		}
		select {
		case <-news:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (j *deadly) isSettled(ctx context.Context, name string) (bool, error) {
	page, err := j.Runs(ctx, store.Filter{Agent: name})
	if err != nil || len(page.Runs) == 0 {
		return false, err
	}
	rec := &page.Runs[0]
	if !rec.Status.Ended() {
		return rec.Pending != nil, nil
	}
	parent, err := agent.Load(ctx, j, rec.Parent)
	if err != nil {
		return false, err
	}
	for _, c := range parent.Trace {
		if c.ChildEnd != nil && c.ChildEnd.Run == rec.ID {
			return true, nil
		}
	}
	return false, nil
}
