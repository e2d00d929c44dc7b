package service

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/queue"
	"github.com/toolcrib/toolcrib/service/env"
	"github.com/toolcrib/toolcrib/store"
)

// Drive is one run in a pool, up to its end or its pause.
type Drive struct {
	pool        *Pool
	user, agent string
	run         toolcrib.RunID
	once        string          // the key of the request; "" = it has none
	begun       chan struct{}   // is closed when a worker has begun
	done        chan struct{}   // is closed when the drive is over; nil = the run is only watched
	err         error           // when done is closed
	state       *agent.State    // what the worker has come to, when done is closed; nil = it is read
	record      store.RunRecord // of a run that this has begun, when done is closed

	// Guarded by the pool.
	work  *work        // nil = no worker has it
	held  bool         // no worker takes it
	again bool         // the run is put in the queue once more when the drive is over
	cause error        // with which it ends as soon as a worker has it; nil = it continues
	word  *word        // of who has resumed the run; nil = of nobody
	told  toolcrib.Seq // the last kept frame that those who follow the run were told
}

// work is what one worker does about a run.
type work struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	over   chan struct{}
	after  toolcrib.Seq // the last event of the run before the worker took it

	// Guarded by the pool.
	lease queue.Lease
	kept  time.Time // when the queue was last told, as it has confirmed
}

// unqueued is the lease of a new run, which nobody else is given: it is not in the queue.
type unqueued struct{}

func (unqueued) Run() toolcrib.RunID                       { return "" }
func (unqueued) Keep(context.Context) error                { return nil }
func (unqueued) Done(context.Context) error                { return nil }
func (unqueued) Back(context.Context, time.Duration) error { return nil }

func (p *Pool) newWork(lease queue.Lease) *work {
	w := &work{lease: lease, kept: time.Now(), over: make(chan struct{})}
	w.ctx, w.cancel = context.WithCancelCause(p.ctx)
	return w
}

// word is what somebody said about calls that need an approval when they resumed a run. It holds
// for the process that they said it to.
type word struct {
	who     toolcrib.Principal
	approve agent.Approve
}

// errLost is why a worker stops whose lease has passed: another one may have its run.
var errLost = errors.New("the worker lost its lease")

// handle is a drive that another request has begun; without one, the run is watched.
func (p *Pool) handle(run toolcrib.RunID) *Drive {
	if run == "" {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if d := p.runs[run]; d != nil {
		return d
	}
	return &Drive{pool: p, run: run}
}

// ID is the run of a drive that has begun.
func (d *Drive) ID() toolcrib.RunID { return d.run }

// Wait waits until the drive is over, or that of another process which has taken it over. It
// returns what cut the run off; nil = it ended or parked.
func (d *Drive) Wait(ctx context.Context) error {
	if d.done != nil {
		select {
		case <-d.done:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if d.err != errLost && !errors.Is(d.err, toolcrib.ErrConflict) {
			return d.err
		}
	}
	for {
		rec, err := d.pool.s.Env.Store.Run(ctx, d.run)
		if err != nil || rec.Status.Ended() || rec.Status.Parked() {
			return err
		}
		if err := pause(ctx, followEvery); err != nil {
			return err
		}
	}
}

// Run waits as [Drive.Wait] does, and returns the run as [Service.Run] does.
func (d *Drive) Run(ctx context.Context, who toolcrib.Principal) (Run, error) {
	if err := d.Wait(ctx); err != nil {
		return Run{}, err
	}
	s := d.pool.s
	if d.state != nil && d.record.Status.Ended() && d.record.LastSeq == d.state.Seq && env.Owns(who, &d.record) {
		return shownTo(who, s.wholeOf(ctx, who, d.record, d.state)), nil
	}
	return s.Run(ctx, who, string(d.run)) // others may have continued it
}

// newDrive makes a drive that counts as active. The pool is locked.
func (p *Pool) newDrive(user, agentName string, run toolcrib.RunID) *Drive {
	d := &Drive{
		pool: p, user: user, agent: agentName, run: run, begun: make(chan struct{}), done: make(chan struct{}),
	}
	if p.drives[d] = true; run != "" {
		p.runs[run] = d
	}
	return d
}

// drop ends a drive; what waits for its place is put in the queue. The pool is locked.
func (p *Pool) drop(d *Drive, err error) {
	if !p.drives[d] {
		return
	}
	delete(p.drives, d)
	if p.runs[d.run] == d {
		delete(p.runs, d.run)
	}
	d.err = err
	close(d.done)
	if p.ctx.Err() != nil {
		return
	}
	next := p.nextWaiting(d)
	if d.again {
		next = append(next, d.run)
	}
	if len(next) > 0 {
		p.running.Go(func() {
			for _, run := range next {
				p.put(run)
			}
		})
	}
}

// nextWaiting takes out the run that has waited longest for the place of a drive. The pool is locked.
func (p *Pool) nextWaiting(d *Drive) (next []toolcrib.RunID) {
	var first waiting
	for run, w := range p.waiting {
		if w.user != d.user && w.agent != d.agent || next != nil && !w.since.Before(first.since) ||
			p.full(w.user, w.agent) != "" {
			continue
		}
		first, next = w, []toolcrib.RunID{run}
	}
	if next != nil {
		delete(p.waiting, next[0])
	}
	return next
}

// stop ends the run of a drive, now or as soon as a worker has it. The pool is locked.
func (d *Drive) stop(cause error) {
	if d.cause = cause; d.work != nil {
		d.work.cancel(cause)
	}
}

// take gives the runs of the queue to workers, as long as the pool is open.
func (p *Pool) take() {
	for {
		select {
		case p.slots <- struct{}{}:
		case <-p.ctx.Done():
			return
		}
		lease, err := p.queue.Take(p.ctx)
		switch {
		case p.ctx.Err() != nil:
			return
		case err != nil:
			<-p.slots
			p.log.Error("cannot take a run from the queue", "error", err)
			if pause(p.ctx, sweepEvery) != nil {
				return
			}
			continue
		}
		p.running.Go(func() {
			defer func() { <-p.slots }()
			p.carry(lease)
		})
	}
}

// carry is a worker: it drives a run up to its end or its pause.
func (p *Pool) carry(lease queue.Lease) {
	d, w, who := p.assign(lease)
	if d == nil {
		return
	}
	defer close(w.over)
	q := ResumeRequest{Run: string(d.run)}
	if d.word != nil {
		who, q.Approve = d.word.who, d.word.approve
	}
	p.tell(d.run, journal.Frame{Seq: w.after}) // what was written while nobody had the run is read first
	state, err := p.s.Current().resume(w.ctx, who, q, p.front(d, w))
	p.over(d, w, state, err)
}

// carryNew is a worker that starts its run.
func (p *Pool) carryNew(d *Drive, w *work, ahead *Ahead, start func(context.Context, Front) (*agent.State, error)) {
	defer close(w.over)
	f := p.front(d, w)
	f.record = &d.record
	f.Named = func(run toolcrib.RunID) {
		p.mu.Lock()
		d.run, p.runs[run] = run, d
		p.mu.Unlock()
		p.ahead(ahead, run)
	}
	state, err := d.started(func() (*agent.State, error) { return start(w.ctx, f) })
	select {
	case <-d.begun:
		p.over(d, w, state, err)
		return
	default:
	}
	w.cancel(nil)
	if p.ctx.Err() != nil {
		err = p.ending("")
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.runs, d.run)
	d.run = "" // it was not written down
	p.drop(d, err)
}

// started starts the run. What panics before it is written down is an error, as in any other request.
func (d *Drive) started(start func() (*agent.State, error)) (state *agent.State, err error) {
	defer func() {
		select {
		case <-d.begun:
		default:
			if v := recover(); v != nil {
				err = fmt.Errorf("the run cannot be started: panic: %v", v)
			}
		}
	}()
	return start()
}

// front is what a worker drives its run with.
func (p *Pool) front(d *Drive, w *work) Front {
	return Front{
		Log: p.log, Person: attended{p, d}, Taken: func() { p.begins(d, w) },
		Watch: func(f journal.Frame) {
			if p.has(d, w) {
				p.tell(d.run, f)
			}
		},
		watched: func() bool { return p.hasFollower(d.run) },
	}
}

// assign makes a worker's piece of work of what was taken from the queue; nil if there is nothing to do.
func (p *Pool) assign(lease queue.Lease) (d *Drive, w *work, who toolcrib.Principal) {
	run, now := lease.Run(), time.Now()
	settle := func(do func(context.Context) error) {
		ctx, cancel := context.WithTimeout(context.Background(), settleWait)
		defer cancel()
		if err := do(ctx); err != nil && p.ctx.Err() == nil {
			p.log.Warn("cannot report the state of a run to the queue", "run", run, "error", err)
		}
	}
	later := func(ctx context.Context) error { return lease.Back(ctx, sweepEvery) }
	rec, err := p.s.Env.Store.Run(p.ctx, run)
	if err != nil && !errors.Is(err, toolcrib.ErrNotFound) {
		settle(later)
		return nil, nil, who
	}
	p.mu.Lock()
	d = p.runs[run]
	switch {
	case d != nil && d.held:
		p.mu.Unlock()
		settle(later)
		return nil, nil, who
	case err != nil, rec.Status.Ended(), rec.Driver != p.s.Env.Driver:
		delete(p.waiting, run)
		if d != nil && d.work == nil {
			p.drop(d, nil)
		}
		p.mu.Unlock()
		settle(lease.Done)
		return nil, nil, who
	case d != nil && d.work != nil && now.Sub(d.work.kept) <= p.lease:
		d.work.lease = lease // it was given away too early
		p.mu.Unlock()
		return nil, nil, who
	case d == nil && p.full(rec.User, rec.Agent) != "":
		if _, waits := p.waiting[run]; !waits && len(p.waiting) < maxKnown {
			p.waiting[run] = waiting{rec.User, rec.Agent, now}
		}
		p.mu.Unlock()
		settle(lease.Done)
		return nil, nil, who
	case d == nil:
		d = p.newDrive(rec.User, rec.Agent, run)
	}
	delete(p.waiting, run)
	lost := d.work
	w = p.newWork(lease)
	w.after = rec.LastSeq
	if d.work = w; d.cause != nil {
		w.cancel(d.cause)
	}
	p.mu.Unlock()
	if lost != nil {
		lost.cancel(errLost)
		select { // its tools have a moment to end; the journal keeps it out in any case
		case <-lost.over:
		case <-time.After(toolGrace):
		}
	}
	return d, w, toolcrib.Principal{User: rec.User, Actor: rec.Actor}
}

// has reports whether a worker still has the run of a drive.
func (p *Pool) has(d *Drive, w *work) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return d.work == w
}

// begins notes that a worker has written that it has the run.
func (p *Pool) begins(d *Drive, w *work) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if d.work != w {
		return
	}
	select {
	case <-d.begun:
	default:
		w.kept = time.Now()
		close(d.begun)
	}
}

// unwritten reports whether a drive is to start a run that is not in the journal yet: no other process
// can have that one, however long this one stood still. The pool is locked.
func (d *Drive) unwritten() bool {
	select {
	case <-d.begun:
		return false
	default:
		_, starts := d.work.lease.(unqueued)
		return starts
	}
}

// over ends what a worker did. One that lost its lease says nothing more.
func (p *Pool) over(d *Drive, w *work, state *agent.State, err error) {
	lost := errors.Is(context.Cause(w.ctx), errLost)
	w.cancel(nil)
	p.mu.Lock()
	if d.work != w {
		p.mu.Unlock()
		return
	}
	lease := w.lease
	if lost { // whoever waits for the run here watches the store
		p.drop(d, errLost)
		p.mu.Unlock()
		p.log.Warn("left a run: cannot extend its lease in the queue", "run", d.run)
		p.tell(d.run, journal.Frame{})
		return
	}
	p.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), settleWait)
	defer cancel()
	ended := p.ctx.Err() != nil
	settled := error(nil)
	if ended && err != nil {
		settled = lease.Back(ctx, 0)
	} else {
		settled = lease.Done(ctx)
	}
	if settled != nil && !ended {
		p.log.Warn("cannot tell the queue that a run has ended", "run", d.run, "error", settled)
	}
	p.mu.Lock()
	switch {
	case err == nil:
		d.state = state
		delete(p.failed, d.run)
	case ended:
		err = p.ending(d.run)
	default:
		p.fails(d.run, err)
	}
	p.drop(d, err)
	p.mu.Unlock()
	p.tell(d.run, journal.Frame{})
}

// fails notes that a run could not be continued. It is tried again, later each time. The pool is locked.
func (p *Pool) fails(run toolcrib.RunID, err error) {
	if over(err) {
		return
	}
	f := p.failed[run]
	f.pause = min(max(2*f.pause, sweepEvery), failedMost)
	f.next = time.Now().Add(f.pause)
	if len(p.failed) >= maxKnown {
		clear(p.failed)
	}
	p.failed[run] = f
	p.log.Warn("a run was interrupted; trying again", "run", run, "error", err)
}

// over reports whether a run cannot be continued because it has ended, or is on its way.
func over(err error) bool {
	code := toolcrib.CodeOf(err)
	return code == toolcrib.CodeConflict || code == toolcrib.CodeNotFound || errors.Is(err, toolcrib.ErrConflict)
}

// beat tells other processes that this one is at work, and the queue of the runs that workers have. A worker of
// which the queue could not be told for the time of its lease stops: another one may have its run.
func (p *Pool) beat(ctx context.Context) {
	for {
		p.s.Drivers.Beat()
		if pause(ctx, p.lease/3) != nil {
			return
		}
		p.mu.Lock()
		var all []*work
		for d := range p.drives {
			if d.work != nil && !d.unwritten() {
				all = append(all, d.work)
			}
		}
		p.mu.Unlock()
		within, cancel := context.WithTimeout(ctx, p.lease/3)
		for _, w := range all {
			p.keep(within, w)
		}
		cancel()
	}
}

func (p *Pool) keep(ctx context.Context, w *work) {
	p.mu.Lock()
	lease, at := w.lease, time.Now()
	late := at.Sub(w.kept) > p.lease
	p.mu.Unlock()
	if !late && lease.Keep(ctx) == nil {
		p.mu.Lock()
		w.kept = at
		p.mu.Unlock()
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if time.Since(w.kept) > p.lease {
		w.cancel(errLost)
	}
}
