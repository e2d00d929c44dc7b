package worker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/queue"
	"github.com/toolcrib/toolcrib/store"
)

// ToolGrace is how long tools may take to end after their run was stopped.
const ToolGrace = time.Second

// Work is the work of one worker on a run. A [Runner] reports to it.
type Work struct {
	drive        *Drive
	ctx          context.Context
	cancel       context.CancelCauseFunc
	over         chan struct{} // closed when the worker is done
	after        toolcrib.Seq  // last event of the run before the worker took it
	starts       bool          // the worker starts the run
	subscription *Subscription // made before the run starts, or nil

	// Guarded by the pool.
	lease queue.Lease
	kept  time.Time // last time that the queue has confirmed the lease
}

// newWork returns the work on the run of a drive, which is a new run if lease is nil.
func (p *Pool) newWork(d *Drive, lease queue.Lease) *Work {
	w := &Work{drive: d, lease: lease, kept: time.Now(), over: make(chan struct{})}
	if lease == nil {
		w.starts, w.lease = true, unqueued{}
	}
	w.ctx, w.cancel = context.WithCancelCause(p.ctx)
	return w
}

// unqueued is the lease of a new run, which is not queued, so that no other worker can take it.
type unqueued struct{}

func (unqueued) Run() toolcrib.RunID                       { return "" }
func (unqueued) Keep(context.Context) error                { return nil }
func (unqueued) Done(context.Context) error                { return nil }
func (unqueued) Back(context.Context, time.Duration) error { return nil }

// Named receives the ID of a new run before anything of it is in the journal.
func (w *Work) Named(run toolcrib.RunID) {
	if !w.starts {
		return
	}
	d := w.drive
	d.pool.mu.Lock()
	d.run, d.pool.runs[run] = run, d
	d.pool.mu.Unlock()
	d.pool.subscribe(w.subscription, run)
}

// Wrote receives the events of the run that were appended to the journal.
func (w *Work) Wrote(run toolcrib.RunID, events []toolcrib.Event) {
	d := w.drive
	if w.starts {
		for d.record.ID = run; len(events) > 0; events = events[1:] {
			store.Project(&d.record, events[0])
		}
	}
	if d.hasBegun() {
		return
	}
	d.pool.mu.Lock()
	defer d.pool.mu.Unlock()
	if d.work == w && !d.hasBegun() {
		w.kept = time.Now()
		close(d.begun)
	}
}

// hasBegun reports whether a worker has appended to the journal.
func (d *Drive) hasBegun() bool {
	select {
	case <-d.begun:
		return true
	default:
		return false
	}
}

// Watch receives the frames of the run.
func (w *Work) Watch(f journal.Frame) {
	w.drive.pool.mu.Lock()
	has := w.drive.work == w
	w.drive.pool.mu.Unlock()
	if has {
		w.drive.pool.send(w.drive.run, f)
	}
}

// Watched reports whether the run has subscriptions.
func (w *Work) Watched() bool {
	p := w.drive.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.follow[w.drive.run]) > 0
}

const (
	attendLook  = 200 * time.Millisecond
	attendEvery = 2 * time.Second // the question is sent again, because others may have subscribed
)

// Attend sends a question of a running call to the attended subscriptions, until it is decided like any other approval.
// That is a conflict, and the run continues with the decision. It returns nil if ctx ends or no subscription is left.
func (w *Work) Attend(ctx context.Context, run toolcrib.RunID, ask *journal.ConfirmationRequired) error {
	frame := journal.Frame{Event: string(journal.KindConfirmationRequired), Data: journal.ConfirmationView{
		ApprovalID: ask.ApprovalID, Digest: ask.Digest, Kind: ask.Kind, Calls: ask.Calls, Reason: ask.Reason,
		Question: ask.Question, Schema: ask.Schema, RunID: run,
	}}
	p := w.drive.pool
	look := time.NewTicker(attendLook)
	defer look.Stop()
	for sent := (time.Time{}); ctx.Err() == nil; {
		again := time.Since(sent) >= attendEvery
		if again {
			sent = time.Now()
		}
		if !p.sendAttended(w.drive.run, frame, again) {
			break
		}
		state, err := agent.Load(ctx, p.env.Store, run)
		if err == nil && (state.Approval == nil || state.Approval.ApprovalID != ask.ApprovalID) {
			err = toolcrib.Errorf(toolcrib.CodeConflict, "it was decided meanwhile")
		}
		if err != nil {
			return err
		}
		select {
		case <-look.C:
		case <-ctx.Done():
		}
	}
	return nil
}

// take gives the queued runs to workers until the pool is closed.
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
			if Pause(p.ctx, sweepEvery) != nil {
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

// carry is a worker: it drives a run until it ends or parks.
func (p *Pool) carry(lease queue.Lease) {
	w, who := p.assign(lease)
	if w == nil {
		return
	}
	defer close(w.over)
	d := w.drive
	if d.approve != "" {
		who = d.who
	}
	p.send(d.run, journal.Frame{Seq: w.after}) // first read the events that were written while the run had no worker
	state, err := p.runner.Resume(w.ctx, who, d.run, d.approve, w)
	p.over(w, state, err)
}

// carryNew is a worker that starts its run.
func (p *Pool) carryNew(w *Work, start func(context.Context, *Work) (*agent.State, error)) {
	defer close(w.over)
	d := w.drive
	state, err := w.started(start)
	if d.hasBegun() {
		p.over(w, state, err)
		return
	}
	w.cancel(nil)
	if p.ctx.Err() != nil {
		err = p.closing("")
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.runs, d.run)
	d.run = "" // it is not in the journal
	p.drop(d, err)
}

// started starts the run. A panic before the run is in the journal becomes an error, like in any other request.
func (w *Work) started(start func(context.Context, *Work) (*agent.State, error)) (state *agent.State, err error) {
	defer func() {
		if !w.drive.hasBegun() {
			if v := recover(); v != nil {
				err = fmt.Errorf("the run cannot be started: panic: %v", v)
			}
		}
	}()
	return start(w.ctx, w)
}

// assign returns the work on a run from the queue, and the principal of the run. The work is nil if there is nothing to
// do.
func (p *Pool) assign(lease queue.Lease) (w *Work, who toolcrib.Principal) {
	run, now := lease.Run(), time.Now()
	settle := func(do func(context.Context) error) {
		ctx, cancel := context.WithTimeout(context.Background(), settleWait)
		defer cancel()
		if err := do(ctx); err != nil && p.ctx.Err() == nil {
			p.log.Warn("cannot report the state of a run to the queue", "run", run, "error", err)
		}
	}
	later := func(ctx context.Context) error { return lease.Back(ctx, sweepEvery) }
	rec, err := p.env.Store.Run(p.ctx, run)
	if err != nil && !errors.Is(err, toolcrib.ErrNotFound) {
		settle(later)
		return nil, who
	}
	p.mu.Lock()
	d := p.runs[run]
	switch {
	case d != nil && d.held:
		p.mu.Unlock()
		settle(later)
		return nil, who
	case err != nil, rec.Status.Ended(), rec.Driver != p.env.Driver:
		delete(p.waiting, run)
		if d != nil && d.work == nil {
			p.drop(d, nil)
		}
		p.mu.Unlock()
		settle(lease.Done)
		return nil, who
	case d != nil && d.work != nil && now.Sub(d.work.kept) <= p.lease:
		d.work.lease = lease // the queue has given the run away too early
		p.mu.Unlock()
		return nil, who
	case d == nil && p.reached(rec.User, rec.Agent) != "":
		if _, waits := p.waiting[run]; !waits && len(p.waiting) < maxKnown {
			p.waiting[run] = waiting{rec.User, rec.Agent, now}
		}
		p.mu.Unlock()
		settle(lease.Done)
		return nil, who
	case d == nil:
		d = p.newDrive(rec.User, rec.Agent, run)
	}
	delete(p.waiting, run)
	lost := d.work
	w = p.newWork(d, lease)
	w.after = rec.LastSeq
	if d.work = w; d.cause != nil {
		w.cancel(d.cause)
	}
	p.mu.Unlock()
	if lost != nil {
		lost.cancel(errLost)
		select { // its tools get time to end; the journal accepts nothing more from it in any case
		case <-lost.over:
		case <-time.After(ToolGrace):
		}
	}
	return w, toolcrib.Principal{User: rec.User, Actor: rec.Actor}
}

// over ends the work on a run. A worker that has lost its lease reports no outcome.
func (p *Pool) over(w *Work, state *agent.State, err error) {
	d := w.drive
	lost := errors.Is(context.Cause(w.ctx), errLost)
	w.cancel(nil)
	p.mu.Lock()
	if d.work != w {
		p.mu.Unlock()
		return
	}
	lease := w.lease
	if lost { // what waits for the run here then watches the store
		p.drop(d, errLost)
		p.mu.Unlock()
		p.log.Warn("left a run: cannot extend its lease in the queue", "run", d.run)
		p.send(d.run, journal.Frame{})
		return
	}
	p.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), settleWait)
	defer cancel()
	ended := p.ctx.Err() != nil
	failed := error(nil)
	if ended && err != nil {
		failed = lease.Back(ctx, 0)
	} else {
		failed = lease.Done(ctx)
	}
	if failed != nil && !ended {
		p.log.Warn("cannot tell the queue that a run has ended", "run", d.run, "error", failed)
	}
	p.mu.Lock()
	switch {
	case err == nil:
		d.state = state
		delete(p.failed, d.run)
	case ended:
		err = p.closing(d.run)
	default:
		p.fails(d.run, err)
	}
	p.drop(d, err)
	p.mu.Unlock()
	p.send(d.run, journal.Frame{})
}

// fails records that a run could not be resumed. Each time, the next attempt comes later. The pool is locked.
func (p *Pool) fails(run toolcrib.RunID, err error) {
	if settled(err) {
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

// settled reports whether an error means that a run has ended or is being driven.
func settled(err error) bool {
	code := toolcrib.CodeOf(err)
	return code == toolcrib.CodeConflict || code == toolcrib.CodeNotFound || errors.Is(err, toolcrib.ErrConflict)
}

// beat sends the heartbeat of this process, and renews the leases of its workers. A worker whose lease could not be
// renewed for as long as it lasts stops, because another one may have its run.
func (p *Pool) beat(ctx context.Context) {
	for {
		p.drivers.Beat()
		if Pause(ctx, p.lease/3) != nil {
			return
		}
		p.mu.Lock()
		var all []*Work
		for d := range p.drives {
			// No other process can have a new run before it is in the journal.
			if d.work != nil && (!d.work.starts || d.hasBegun()) {
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

func (p *Pool) keep(ctx context.Context, w *Work) {
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
