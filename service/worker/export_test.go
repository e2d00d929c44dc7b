package worker

import (
	"context"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/journal"
)

// Put queues a run.
func (p *Pool) Put(run toolcrib.RunID) { p.put(run) }

// Carry has a worker do what a message of the queue says, and returns when it is done.
func (p *Pool) Carry(run toolcrib.RunID) { p.carry(run) }

// QueueDue queues the runs whose time has come at now.
func (p *Pool) QueueDue(ctx context.Context, now time.Time) error {
	return p.queueDue(ctx, now, p.fits())
}

// Alone reports whether the pool knows of no other server.
func (p *Pool) Alone() bool { return p.bus.Alone() }

// HasWorker reports whether a worker has a run.
func (p *Pool) HasWorker(run toolcrib.RunID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	d := p.runs[run]
	return d != nil && d.work != nil
}

// Lose takes a run from its worker, as if the lease had expired.
func (p *Pool) Lose(run toolcrib.RunID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.runs[run].work.cancel(errLost)
}

// Stopping reports whether a drive was stopped.
func (p *Pool) Stopping(d *Drive) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return d.cause != nil
}

// Delay keeps workers from resuming a run for d, or no longer if d is 0.
func (p *Pool) Delay(run toolcrib.RunID, d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if delete(p.failed, run); d > 0 {
		p.failed[run] = failure{next: time.Now().Add(d)}
	}
}

// Held returns the number of drives, runs, failures and followed runs that the pool keeps.
func (p *Pool) Held() (drives, runs, failed, followed int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.drives), len(p.runs), len(p.failed), len(p.follow)
}

// Workers returns the number of busy workers.
func (p *Pool) Workers() int { return len(p.slots) }

// Over is closed when the worker of a drive is done.
func (d *Drive) Over() <-chan struct{} { return d.work.over }

// Redrive shows a drive that is over as one that has sent the events up to seq.
func (p *Pool) Redrive(d *Drive, seq toolcrib.Seq) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.runs[d.run], d.sent = d, seq
}

// EndRedrive ends it.
func (p *Pool) EndRedrive(d *Drive) {
	p.mu.Lock()
	delete(p.runs, d.run)
	p.mu.Unlock()
	p.send(d.run, journal.Frame{})
}

// Send sends a frame to those who follow a run.
func (p *Pool) Send(run toolcrib.RunID, f journal.Frame) { p.send(run, f) }

// Most is the number of runs that a pool drives at a time.
func (p *Pool) Most() int { return p.most }
