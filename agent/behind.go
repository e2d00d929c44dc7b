package agent

import (
	"context"
	"errors"
	"sync"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/journal"
)

// errLetGo is the cause that stops the work that outlasts its calls.
var errLetGo = errors.New("stopped with the run")

// behind has the work of the tools of a run that outlasts their calls, and their notices that are not written yet.
type behind struct {
	ctx    context.Context // ends when the run is released
	cancel context.CancelCauseFunc
	all    sync.WaitGroup

	mu    sync.Mutex
	noted []toolcrib.Body
}

// maxNoted bounds the notices; further ones are dropped.
const maxNoted = 64

// parked has what the tools of parked runs have beyond their calls, while [Host.Attended] keeps it.
type parked struct {
	mu  sync.Mutex
	all map[toolcrib.RunID]*behind
}

// take removes and returns what a run has, or nil.
func (p *parked) take(run toolcrib.RunID) *behind {
	p.mu.Lock()
	defer p.mu.Unlock()
	b := p.all[run]
	delete(p.all, run)
	return b
}

func (p *parked) keep(run toolcrib.RunID, b *behind) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.all == nil {
		p.all = map[toolcrib.RunID]*behind{}
	}
	p.all[run] = b
}

// end stops the work of all runs, and waits for it.
func (p *parked) end() {
	p.mu.Lock()
	all := p.all
	p.all = nil
	p.mu.Unlock()
	var ending sync.WaitGroup
	for _, b := range all {
		ending.Go(b.end)
	}
	ending.Wait()
}

// end stops the work, and waits for it.
func (b *behind) end() {
	b.mu.Lock()
	b.cancel(errLetGo)
	b.mu.Unlock()
	b.all.Wait()
}

// lasts permits tools to run work beyond their calls. The function that it returns stops that work and
// waits for it, unless the run has parked for a person who is asked in this process.
func (d *driver) lasts(ctx context.Context) (end func()) {
	b := d.r.parked.take(d.s.Run)
	if b == nil {
		b = &behind{}
		b.ctx, b.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	}
	d.behind = b
	stop := context.AfterFunc(ctx, func() { b.cancel(errLetGo) })
	return func() {
		if stop() && d.r.Attended && d.s.Pending != nil {
			d.r.parked.keep(d.s.Run, b)
			return
		}
		b.end()
	}
}

// runBehind runs work of a tool until the run is released. It returns false if that has happened.
func (d *driver) runBehind(work func(ctx context.Context)) bool {
	b := d.behind
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ctx.Err() != nil {
		return false
	}
	b.all.Go(func() {
		_, err := guard.Contain(func() (struct{}, error) {
			work(b.ctx)
			return struct{}{}, nil
		})
		if err != nil {
			d.r.Log.Error("work beside a call failed", "run", d.s.Run, "error", d.r.Mask.Clean(err.Error()+guard.Stack(err)))
		}
	})
	return true
}

// noteOf adds a notice of a tool.
func (d *driver) noteOf(n toolcrib.Notice) {
	b := d.behind
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.noted) < maxNoted {
		b.noted = append(b.noted, journal.Noticef(n.Code, "%s", d.r.Mask.Clean(n.Message)))
	}
}

// takeNoted returns the notices of tools, and clears them.
func (b *behind) takeNoted() (all []toolcrib.Body) {
	b.mu.Lock()
	defer b.mu.Unlock()
	all, b.noted = b.noted, nil
	return all
}
