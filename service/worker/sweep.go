package worker

import (
	"context"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/store"
)

const (
	// sweepEvery is how often the pool looks for runs that can continue. It looks less often if that takes long, so that
	// it takes a small part of the time.
	sweepEvery = time.Second
	sweepPart  = 50
	sweepMost  = 30 * time.Second
	// failedMost bounds the time between two attempts to resume a run.
	failedMost = 5 * time.Minute
)

// swept is the state of the sweep, for its goroutine.
type swept struct {
	last  toolcrib.RunID // last run that it has looked at, or ""
	lease store.Lease    // of sweepRun, or zero
}

// sweep queues runs that can continue until the pool is closed: the queue may have lost them, another process may have
// decided about them, or their time has come.
func (p *Pool) sweep() {
	defer p.leaveSweep()
	for pause := sweepEvery; ; {
		start := time.Now()
		err := p.drivers.endDead(p.ctx)
		if err == nil && p.sweeps(p.ctx, sweepEvery+pause) {
			fit := p.fits()
			if err = p.queueInterrupted(p.ctx, fit); err == nil {
				err = p.queueDue(p.ctx, start, fit)
			}
		} else { // another server knows what waits
			p.mu.Lock()
			p.waits = false
			p.mu.Unlock()
		}
		if err != nil && p.ctx.Err() == nil {
			p.log.Warn("cannot list runs that can continue", "error", err)
		}
		took := time.Since(start)
		pause = untilSweep(took)
		least := min(sweepPart*took, sweepMost)
		if Pause(p.ctx, least) != nil {
			return
		}
		select {
		case <-p.room:
		case <-time.After(pause - least):
		case <-p.ctx.Done():
			return
		}
	}
}

// sweeps reports whether this server sweeps. Of several that take from one queue, one does, as long as it has the lease
// of sweepRun with their site. Two that sweep at once do no harm, so a server that takes the lease waits for nothing.
// Otherwise each server has a queue of its own, and sweeps.
func (p *Pool) sweeps(ctx context.Context, lasts time.Duration) bool {
	if !p.shared() {
		p.leaveSweep()
		return true
	}
	if p.Astray() { // another server of the site queues its runs
		p.leaveSweep()
		return false
	}
	run := sweepRun
	if p.site != "" {
		run += toolcrib.RunID(" " + p.site)
	}
	leases, err := p.env.Store.Leases(ctx, store.LeaseFilter{Runs: []toolcrib.RunID{run}})
	if err != nil || len(leases) > 0 && !leases[0].Expired && leases[0].Owner.ID != p.env.Owner().ID {
		return false
	}
	l, err := p.env.Store.TakeLease(ctx, run, lasts, false)
	if err == nil {
		p.swept.lease = l
	}
	return err == nil
}

// leaveSweep lets another server sweep.
func (p *Pool) leaveSweep() {
	if p.swept.lease.Epoch != 0 {
		p.drivers.release(p.swept.lease)
		p.swept.lease = store.Lease{}
	}
}

// fits reports whether the bounds have room for one more run, and takes the room.
type fits func(ctx context.Context, rec *store.RunRecord) bool

// fits returns the room that the bounds have now.
func (p *Pool) fits() fits {
	p.mu.Lock()
	p.waits = false
	p.mu.Unlock()
	var users, agents map[string]int
	return func(ctx context.Context, rec *store.RunRecord) bool {
		ofUser, ofAgent := p.bounds(rec.User, rec.Agent)
		if ofUser.Most == 0 && ofAgent.Most == 0 {
			return true
		}
		if users == nil {
			all, err := p.env.Store.Active(ctx, p.env.Driver)
			if err != nil {
				return false // the next sweep looks again
			}
			users, agents = map[string]int{}, map[string]int{}
			for of, n := range all {
				users[of.User] += n
				agents[of.Agent] += n
			}
		}
		if ofUser.Most > 0 && users[rec.User] >= ofUser.Most || ofAgent.Most > 0 && agents[rec.Agent] >= ofAgent.Most {
			p.mu.Lock()
			p.waits = true
			p.mu.Unlock()
			return false
		}
		users[rec.User]++
		agents[rec.Agent]++
		return true
	}
}

// untilSweep returns the pause after a sweep that took so long. A machine that was suspended for some seconds must not
// delay the next sweep by minutes.
func untilSweep(took time.Duration) time.Duration {
	return min(max(sweepEvery, sweepPart*took), sweepMost)
}

// queueInterrupted queues the runs of these drivers that no process has and that wait for nothing. Of very many it
// looks at the next ones each time.
func (p *Pool) queueInterrupted(ctx context.Context, fit fits) error {
	runs, more, err := p.env.Store.Undriven(ctx, p.env.Driver, p.site, p.swept.last, maxKnown)
	if p.swept.last = ""; more {
		p.swept.last = runs[len(runs)-1]
	}
	for _, run := range runs {
		if p.skips(run) {
			continue
		}
		rec, err := p.env.Store.Run(ctx, run)
		if err == nil {
			rec, err = p.env.Top(ctx, rec)
		}
		if err != nil || rec.Driver != p.env.Driver || rec.Status.Ended() || rec.ID != run && p.skips(rec.ID) {
			continue // runs verify reports a run that cannot be read
		}
		if (rec.ID == run || !p.drivers.Driven(ctx, rec.ID)) && fit(ctx, &rec) {
			p.put(rec.ID)
		}
	}
	return err
}

// skips reports whether a run that no process has is not queued now: it has a worker here, or is to be resumed later.
func (p *Pool) skips(run toolcrib.RunID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	d := p.runs[run]
	return d != nil && d.taken() || time.Now().Before(p.failed[run].next)
}

// queueDue queues runs whose time has come: their provider is to be asked again, their approval has expired, or the run
// below them that they wait for was cancelled.
func (p *Pool) queueDue(ctx context.Context, now time.Time, fit fits) error {
	filters := []store.Filter{{Retry: now}, {Freed: true}}
	if after := p.runner.Config().Approvals.Expire.Std(); after > 0 {
		waiting := []toolcrib.Status{toolcrib.StatusWaitingForApproval}
		filters = append(filters, store.Filter{Status: waiting, Waiting: now.Add(-after)})
	}
	for _, f := range filters {
		f.Limit, f.Site = store.MaxLimit, p.site
		for rec, err := range p.env.Each(ctx, f) {
			if err != nil {
				return err
			}
			top, err := p.env.Top(ctx, rec)
			if err != nil || top.Driver != p.env.Driver {
				continue
			}
			p.mu.Lock()
			later := now.Before(p.failed[top.ID].next)
			p.mu.Unlock()
			if !later && rec.Pending != nil && (f.Freed || rec.Pending.Kind != string(journal.ApprovalInDoubt)) &&
				fit(ctx, &top) {
				p.wake(top)
			}
		}
	}
	return nil
}

// due reports whether the time of a run that waits has come, as [Pool.queueDue] finds it.
func (p *Pool) due(rec *store.RunRecord, now time.Time) bool {
	var after time.Duration
	switch {
	case rec.Pending == nil || rec.WaitsSince.IsZero():
	case rec.Status == toolcrib.StatusWaitingForProvider && rec.Pending.Error != nil:
		after = time.Duration(rec.Pending.Error.RetryMS) * time.Millisecond
	case rec.Status == toolcrib.StatusWaitingForApproval && rec.Pending.Kind != string(journal.ApprovalInDoubt):
		after = p.runner.Config().Approvals.Expire.Std()
	}
	return after > 0 && !now.Before(rec.WaitsSince.Add(after))
}

// Clients that have taken too long are looked for at intervals between these.
const (
	leastExpiry = 100 * time.Millisecond
	mostExpiry  = time.Minute
)

// expireClients ends calls whose clients have taken too long, until the pool is closed. The sweep continues their runs.
func (p *Pool) expireClients() {
	for {
		now := time.Now()
		// A run that begins to wait after this look has the whole time.
		next := now.Add(p.runner.Config().Server.ClientToolTimeout.Std())
		for rec, err := range p.env.Each(p.ctx, store.Filter{Status: []toolcrib.Status{toolcrib.StatusWaitingForTool}}) {
			switch {
			case err != nil:
				if p.ctx.Err() == nil {
					p.log.Warn("cannot list runs that wait for their clients", "error", err)
				}
				continue
			case rec.Driver != p.env.Driver || rec.Pending == nil || rec.Pending.ExpiresAt == nil:
				continue
			}
			if at := *rec.Pending.ExpiresAt; at.After(now) {
				if at.Before(next) {
					next = at
				}
				continue
			}
			if err := p.runner.ExpireClient(p.ctx, rec.ID); err != nil && !settled(err) {
				p.log.Warn("cannot time out a client tool call", "run", rec.ID, "error", err)
			}
		}
		if Pause(p.ctx, min(max(time.Until(next), leastExpiry), mostExpiry)) != nil {
			return
		}
	}
}
