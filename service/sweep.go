package service

import (
	"context"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/store"
)

const (
	// sweepEvery is how often the pool looks for runs that can continue; where that takes
	// long, more rarely, so that it takes a small part of the time.
	sweepEvery = time.Second
	sweepPart  = 50
	sweepMost  = 30 * time.Second
	// failedMost is how long a run that could not be continued is left at most.
	failedMost = 5 * time.Minute
)

// sweep puts runs in the queue that can continue, as long as the pool is open: the queue may
// have lost them, another process may have decided about them, or their time has come.
func (p *Pool) sweep() {
	var unmark func()
	defer func() {
		if unmark != nil {
			unmark()
		}
	}()
	for {
		start := time.Now()
		if unmark == nil {
			unmark = p.mark()
		}
		err := p.cutOff(p.ctx)
		if err == nil {
			err = p.due(p.ctx, start)
		}
		if err != nil && p.ctx.Err() == nil {
			p.log.Warn("cannot list runs that can continue", "error", err)
		}
		if pause(p.ctx, untilSweep(time.Since(start))) != nil {
			return
		}
	}
}

// untilSweep is the pause after a sweep that took so long. A machine that stood still for some
// seconds must not delay the next sweep by minutes.
func untilSweep(took time.Duration) time.Duration {
	return min(max(sweepEvery, sweepPart*took), sweepMost)
}

// cutOff queues the runs of these drivers that nobody has, and that wait for nothing.
func (p *Pool) cutOff(ctx context.Context) error {
	f := store.Filter{Status: []toolcrib.Status{toolcrib.StatusRunning, toolcrib.StatusQueued}, Limit: store.MaxLimit}
	for rec, err := range p.s.Env.Each(ctx, f) {
		if err != nil {
			return err
		}
		rec, err := p.s.Env.Top(ctx, rec)
		if err != nil || rec.Driver != p.s.Env.Driver || rec.Status.Ended() {
			continue // runs verify reports one that cannot be read
		}
		p.mu.Lock()
		d := p.runs[rec.ID]
		skip := d != nil && (d.work != nil || d.held) || time.Now().Before(p.failed[rec.ID].next)
		_, waits := p.waiting[rec.ID]
		waits = waits && p.full(rec.User, rec.Agent) != "" // who was to make room for it may have gone another way
		p.mu.Unlock()
		if !skip && !waits && (d != nil || !p.s.Drivers.Driven(rec.ID)) {
			p.put(rec.ID)
		}
	}
	return nil
}

// due wakes runs whose time has come: their provider is asked again, what they wait for has
// expired, or the run below them that they wait for was cancelled.
func (p *Pool) due(ctx context.Context, now time.Time) error {
	filters := []store.Filter{{Retry: now}, {Freed: true}}
	if after := p.s.Current().expireAfter(); after > 0 {
		waiting := []toolcrib.Status{toolcrib.StatusWaitingForApproval}
		filters = append(filters, store.Filter{Status: waiting, Waiting: now.Add(-after)})
	}
	for _, f := range filters {
		f.Limit = store.MaxLimit
		for rec, err := range p.s.Env.Each(ctx, f) {
			if err != nil {
				return err
			}
			top, err := p.s.Env.Top(ctx, rec)
			if err != nil || top.Driver != p.s.Env.Driver {
				continue
			}
			p.mu.Lock()
			later := now.Before(p.failed[top.ID].next)
			p.mu.Unlock()
			if !later && rec.Pending != nil && (f.Freed || rec.Pending.Kind != string(journal.ApprovalInDoubt)) {
				p.wake(top)
			}
		}
	}
	return nil
}
