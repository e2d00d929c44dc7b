package worker

import (
	"context"
	"errors"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/store"
)

// Drive is one run in a pool until it ends or parks.
type Drive struct {
	pool  *Pool
	run   toolcrib.RunID
	once  string        // key of the request, or ""
	leave func()        // ends the claim to the run that [Pool.Reserve] has made
	begun chan struct{} // closed when a worker has begun
	done  chan struct{} // closed when the drive is over; nil if the run is only watched

	// Set when done is closed.
	err    error
	state  *agent.State    // result of the worker, or nil
	record store.RunRecord // of a run that the drive has started

	// Guarded by the pool.
	work    *Work // nil if no worker has the run
	held    bool  // no worker takes the run
	again   bool  // queue the run again when the drive is over
	cause   error // ends the run as soon as a worker has it, unless it is nil
	who     toolcrib.Principal
	approve agent.Approve // decision of who about calls that need an approval, or ""; not journaled
	sent    toolcrib.Seq  // last kept frame that the subscriptions have received

	after     toolcrib.Seq      // last event of the run before its worker took it
	readers   map[string]reader // other servers that follow the run, by their IDs
	forwarded uint64            // number of the last message to them
}

// Drive returns the drive of a run. If the pool has none, it watches the run. It is nil if run is "".
func (p *Pool) Drive(run toolcrib.RunID) *Drive {
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

// ID returns the ID of the run, which must have begun.
func (d *Drive) ID() toolcrib.RunID { return d.run }

// Once returns the key of the request that has begun the drive, or "".
func (d *Drive) Once() string { return d.once }

// taken reports whether a worker has the run, or none may take it. The pool is locked.
func (d *Drive) taken() bool { return d.work != nil || d.held }

// Continue has a worker continue the run of a drive from [Pool.Reserve], and waits for a short time until it has
// begun. The worker acts as who, with approve for calls that need an approval, unless approve is "". s may be nil.
func (d *Drive) Continue(ctx context.Context, who toolcrib.Principal, approve agent.Approve, s *Subscription) error {
	p := d.pool
	p.mu.Lock()
	d.held, d.who, d.approve = false, who, approve
	if p.ctx.Err() != nil {
		p.drop(d, p.closing(d.run))
		p.mu.Unlock()
		return d.err
	}
	p.mu.Unlock()
	p.subscribe(s, d.run)
	p.now(func() { p.carry(d.run) })
	late := time.NewTimer(beginWait)
	defer late.Stop()
	select {
	case <-d.begun:
	case <-d.done:
		if d.err != errLost { // otherwise another worker continues it
			return d.err
		}
	case <-late.C:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return nil
}

// Release ends a drive from [Pool.Reserve] or [Pool.Hold]. It does nothing if d is nil.
func (d *Drive) Release(err error) {
	if d == nil {
		return
	}
	d.leave()
	d.pool.mu.Lock()
	defer d.pool.mu.Unlock()
	d.pool.drop(d, err)
}

// Wait waits until the run has ended or parked, also if another process drives it by then. It returns the error that
// has interrupted the run.
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
		rec, err := d.pool.env.Store.Run(ctx, d.run)
		if err != nil || rec.Status.Ended() || rec.Status.Parked() {
			return err
		}
		if err := Pause(ctx, lookEvery); err != nil {
			return err
		}
	}
}

// Ended returns the state and the record of a run that the drive has started and that has ended. The state is nil for
// every other run, which others may have continued. Wait must have returned.
func (d *Drive) Ended() (*agent.State, *store.RunRecord) {
	if d.state == nil || !d.record.Status.Ended() || d.record.LastSeq != d.state.Seq {
		return nil, nil
	}
	return d.state, &d.record
}

// Pause waits for d. If ctx ends before, it returns the cause.
func Pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}
