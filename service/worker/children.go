package worker

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/store"
)

const (
	// handOverWait is how long a child run waits for another server before its parent's server drives it.
	handOverWait = 500 * time.Millisecond
	// handOverLook is how often the lease of such a run is looked at.
	handOverLook = 100 * time.Millisecond
	// endWait is how long another process may take to end a child run, and endAgain how often it is asked to.
	endWait  = 10 * time.Second
	endAgain = time.Second
)

// awaited is a child run that a drive of this server has, or waits for. The pool guards it.
type awaited struct {
	by   int           // number of drives
	news chan struct{} // has room for one; something has happened to the run elsewhere, or it came back to this server
}

// await records that a drive has a child run, or waits for it, until release is called. No worker of this server takes
// the run meanwhile. own is the drive of one that has the run already, or nil.
func (p *Pool) await(run toolcrib.RunID) (a *awaited, own *Drive, release func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if a = p.children[run]; a == nil {
		a = &awaited{news: make(chan struct{}, 1)}
		p.children[run] = a
	}
	a.by++
	if own = p.runs[run]; own != nil && own.work == nil {
		own = nil
	}
	return a, own, sync.OnceFunc(func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if a.by--; a.by == 0 {
			delete(p.children, run)
		}
	})
}

// tellChild tells the drive that waits for a child run, if this server has it, that something has happened to that run.
// It reports whether there is one. The pool is locked.
func (p *Pool) tellChild(run toolcrib.RunID) bool {
	a := p.children[run]
	if a == nil {
		return false
	}
	select {
	case a.news <- struct{}{}:
	default:
	}
	return true
}

// Child reports whether the run is one that a run of another server has started. It is driven alone, and that run
// continues when it has ended or parked.
func (w *Work) Child() bool { return w.child }

// tellParent tells the server that has the parent of a child run that something has happened to the run.
func (w *Work) tellParent() {
	if w.child {
		w.drive.pool.tell(wakeMessage, "", &message{Run: w.drive.run})
	}
}

// TakeChild is [Drivers.TakeChild] for a child run of the run that the worker drives.
func (w *Work) TakeChild(ctx context.Context, run toolcrib.RunID, stop func(error)) (leave func(), err error) {
	p := w.drive.pool
	a, own, release := p.await(run)
	defer func() {
		if err != nil {
			release()
		}
	}()
	if own != nil { // it was handed over to this server while another one had the parent
		select {
		case <-own.done:
		case <-ctx.Done():
			cancel := agent.CancelOf(context.Cause(ctx))
			if cancel == nil {
				return nil, context.Cause(ctx)
			}
			p.Stop(context.WithoutCancel(ctx), run, cancel, endWait)
		}
		select {
		case <-own.done:
		default:
			return nil, store.ErrLeased
		}
	}
	free, err := p.drivers.TakeChild(ctx, run, stop, a.news)
	return func() { free(); release() }, err
}

// HandOver returns a function that gives a child run to another server: it queues the run, and returns when a server
// has it, or, after a short time, when none has taken it. It returns nil if there is no other server, or if this drive
// decides, or people here may be asked about running calls.
func (w *Work) HandOver() func(context.Context, toolcrib.RunID) {
	p := w.drive.pool
	if p.bus == nil || p.bus.Alone() || w.drive.approve != "" || p.sendAttended(w.drive.run, journal.Frame{}, false) {
		return nil
	}
	return p.handOver
}

func (p *Pool) handOver(ctx context.Context, run toolcrib.RunID) {
	a, _, release := p.await(run)
	defer release()
	ctx, cancel := context.WithTimeout(ctx, handOverWait)
	defer cancel()
	if _, err := p.queue.Put(ctx, run); err != nil {
		return
	}
	for {
		select {
		case <-a.news:
			return
		case <-ctx.Done():
			return
		case <-time.After(handOverLook):
		}
		leases, err := p.env.Store.Leases(ctx, store.LeaseFilter{Runs: []toolcrib.RunID{run}})
		if err != nil || len(leases) > 0 {
			return
		}
	}
}

// TakeChild is [Drivers.Take] for a child run. While another process has the run, it waits; it looks when there is
// news, and from time to time. If ctx ends, and the run must end with it, TakeChild has that process end the run, and
// then takes it. If that takes too long, it returns [store.ErrLeased].
func (d *Drivers) TakeChild(ctx context.Context, run toolcrib.RunID, stop func(error), news <-chan struct{}) (
	leave func(), err error,
) {
	var asked, end time.Time
	for {
		leave, err = d.Take(context.WithoutCancel(ctx), run, stop)
		if !errors.Is(err, store.ErrLeased) {
			return leave, err
		}
		over := ctx.Done()
		if ctx.Err() != nil {
			by := agent.CancelOf(context.Cause(ctx))
			if by == nil {
				return nil, context.Cause(ctx)
			}
			now := time.Now()
			if end.IsZero() {
				end = now.Add(endWait)
			}
			if now.After(end) {
				return nil, err
			}
			if now.Sub(asked) >= endAgain { // another process may have taken the lease, which ends the request
				if err := d.env.Store.RequestCancel(context.WithoutCancel(ctx), run, by.By, by.Token); err != nil {
					return nil, err
				}
				asked = now
			}
			over = nil
		}
		select {
		case <-news:
		case <-over:
		case <-time.After(lookEvery):
		}
	}
}
