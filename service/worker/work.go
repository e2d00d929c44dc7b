package worker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/journal"
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
	starts       bool          // the worker starts the run
	child        bool          // see Child
	subscription *Subscription // made before the run starts, or nil
}

// newWork returns the work on the run of a drive.
func (p *Pool) newWork(d *Drive) *Work {
	w := &Work{drive: d, over: make(chan struct{})}
	w.ctx, w.cancel = context.WithCancelCause(p.ctx)
	return w
}

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
		close(d.begun)
		w.tellParent()
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
	return len(p.follow[w.drive.run]) > 0 || p.forward(w.drive, nil, false, false)
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
		run, err := p.queue.Take(p.ctx)
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
			p.carry(run)
		})
	}
}

// carry is a worker: it drives a run until it ends or parks.
func (p *Pool) carry(run toolcrib.RunID) {
	w, who := p.assign(run)
	if w == nil {
		return
	}
	defer close(w.over)
	d := w.drive
	if d.approve != "" {
		who = d.who
	}
	p.send(d.run, journal.Frame{Seq: d.after}) // first read the events that were written while the run had no worker
	state, err := p.runner.Resume(w.ctx, who, d.run, d.approve, w)
	d.leave()
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
	var refused *toolcrib.Error
	switch {
	case p.ctx.Err() != nil:
		err = p.closing("")
	case errors.Is(err, errBound) && errors.As(err, &refused):
		err = refused // without the ID of a run that there is not
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
// do now. What is left undone the sweep finds.
func (p *Pool) assign(run toolcrib.RunID) (w *Work, who toolcrib.Principal) {
	rec, err := p.env.Store.Run(p.ctx, run)
	if err != nil && !errors.Is(err, toolcrib.ErrNotFound) {
		p.mu.Lock()
		defer p.mu.Unlock()
		if d := p.runs[run]; d != nil && !d.taken() {
			p.running.Go(d.leave)
			p.drop(d, err)
		}
		return nil, who
	}
	waits := err == nil && rec.Driver == p.env.Driver && rec.Status.Parked() && !p.driven(run) &&
		p.keepsWaiting(rec)
	p.mu.Lock()
	defer p.mu.Unlock()
	d := p.runs[run]
	switch {
	case d != nil && d.taken():
		d.again = true // its worker may have read the journal before it was woken
		return nil, who
	case p.tellChild(run): // a drive of this server has it
		return nil, who
	case err == nil && rec.Parent != "" && d == nil && len(p.drives) >= p.most/2: // the server of its parent drives it
		return nil, who
	case err != nil, rec.Status.Ended(), rec.Driver != p.env.Driver, !p.here(rec.Site):
		if d != nil {
			p.running.Go(d.leave)
			p.drop(d, nil)
		}
		return nil, who
	case d == nil && (waits || time.Now().Before(p.failed[run].next)): // whatever the queue says
		return nil, who
	case d == nil:
		d = p.newDrive(run)
	}
	w = p.newWork(d)
	d.after, w.child = rec.LastSeq, rec.Parent != ""
	if d.work = w; d.cause != nil {
		w.cancel(d.cause)
	}
	return w, toolcrib.Principal{User: rec.User, Actor: rec.Actor}
}

// keepsWaiting reports whether a parked run and those below it wait, and the time of none has come.
func (p *Pool) keepsWaiting(rec store.RunRecord) bool {
	waits, err := p.runner.Waits(p.ctx, rec)
	for i := 0; i < len(waits) && err == nil; i++ {
		if rec, err = p.env.Store.Run(p.ctx, waits[i]); err == nil && p.due(&rec, time.Now()) {
			return false
		}
	}
	return err == nil && len(waits) > 0 // a worker reports an error
}

// over ends the work on a run. A worker that has lost its lease, or got none because a bound was reached, reports no
// outcome: what waits for the run here then watches the store.
func (p *Pool) over(w *Work, state *agent.State, err error) {
	d := w.drive
	lost := errors.Is(err, errLost) || errors.Is(context.Cause(w.ctx), errLost)
	w.cancel(nil)
	p.mu.Lock()
	switch {
	case lost:
		err = errLost
		p.log.Warn("left a run that another process continues", "run", d.run)
	case errors.Is(err, errBound):
		err, p.waits = errLost, true
	case err == nil:
		d.state = state
		delete(p.failed, d.run)
	case p.ctx.Err() != nil:
		err = p.closing(d.run)
	default:
		p.fails(d.run, err)
	}
	w.tellParent()
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

// soon has the next attempt to resume a run come now. The pool is locked.
func (p *Pool) soon(run toolcrib.RunID) {
	if f, ok := p.failed[run]; ok {
		f.next = time.Time{}
		p.failed[run] = f
	}
}

// settled reports whether an error means that a run has ended or is being driven.
func settled(err error) bool {
	code := toolcrib.CodeOf(err)
	return code == toolcrib.CodeConflict || code == toolcrib.CodeNotFound || errors.Is(err, toolcrib.ErrConflict)
}
