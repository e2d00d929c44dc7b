package worker

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/internal/config"
	"github.com/toolcrib/toolcrib/queue"
	"github.com/toolcrib/toolcrib/service/env"
	"github.com/toolcrib/toolcrib/store"
)

const (
	// beginWait is how long a request waits for a worker to begin its run.
	beginWait = time.Second
	// settleWait is how long the queue may take to answer.
	settleWait = 5 * time.Second
	// maxKnown bounds the failures that a pool keeps, and the runs that a sweep looks at.
	maxKnown = 10_000
)

// Pool drives runs in the background: those that a request starts or resumes, and those of its drivers that were
// interrupted. The client may disconnect. Every run continues in the same way: it is queued, and a worker takes it.
type Pool struct {
	env     *env.Env
	drivers *Drivers
	runner  Runner
	queue   queue.Queue
	bus     Bus
	shared  func() bool
	site    string
	astray  atomic.Bool // see Astray
	swept   swept
	log     *slog.Logger

	ctx     context.Context // of the runs
	end     context.CancelCauseFunc
	running sync.WaitGroup
	most    int           // runs that are driven at a time: server.max_runs at the start
	slots   chan struct{} // one for each busy worker
	room    chan struct{} // has room for one; signals that a run may continue that has waited for a bound

	mu       sync.Mutex
	drives   map[*Drive]bool           // the active drives
	runs     map[toolcrib.RunID]*Drive // the same drives, once their runs have IDs
	follow   map[toolcrib.RunID]map[*Subscription]bool
	lastSeqs map[toolcrib.RunID]knownSeq // of runs that are followed here and not driven here
	failed   map[toolcrib.RunID]failure
	waits    bool                        // a run that could continue waits for a bound
	heard    map[toolcrib.RunID]numbered // of runs that are followed here and driven by another server
	children map[toolcrib.RunID]*awaited // child runs of the runs that are driven here
}

// Options configure a [Pool].
type Options struct {
	Env     *env.Env
	Drivers *Drivers
	Runner  Runner
	Queue   queue.Queue // closed by [Pool.Close]
	Bus     Bus         // to the other servers; nil without one
	Shared  func() bool // reports whether the servers of the store take from one queue; if nil, they do not
	Site    string      // of the workspaces, see [env.Env.Site]; servers with the same one share the queue and the sweep
	Log     *slog.Logger
}

// Runner drives runs for a [Pool], under the configuration in effect.
type Runner interface {
	// Config returns the configuration in effect.
	Config() *config.Config
	// Resume resumes a run and drives it until it ends or parks. approve applies to calls that need an approval; if it is
	// "", the run parks.
	Resume(ctx context.Context, who toolcrib.Principal, run toolcrib.RunID, approve agent.Approve, w *Work) (
		*agent.State, error)
	// Waits returns the runs that wait for a person, a client or a provider, of a run and those below it. It returns none
	// if the run can continue.
	Waits(ctx context.Context, rec store.RunRecord) ([]toolcrib.RunID, error)
	// ExpireClient ends the calls of a run whose client has taken too long.
	ExpireClient(ctx context.Context, run toolcrib.RunID) error
}

// failure is the time of the next attempt to resume a run that could not be resumed.
type failure struct {
	next  time.Time
	pause time.Duration
}

// New returns a pool. It looks for runs that can continue until Close is called.
func New(o Options) *Pool {
	most := o.Runner.Config().Server.MaxRuns
	p := &Pool{
		env: o.Env, drivers: o.Drivers, runner: o.Runner, queue: o.Queue, bus: o.Bus, log: o.Log,
		shared: o.Shared, site: o.Site,
		most: most, slots: make(chan struct{}, most), room: make(chan struct{}, 1), drives: map[*Drive]bool{},
		runs: map[toolcrib.RunID]*Drive{}, follow: map[toolcrib.RunID]map[*Subscription]bool{},
		lastSeqs: map[toolcrib.RunID]knownSeq{}, failed: map[toolcrib.RunID]failure{},
		heard: map[toolcrib.RunID]numbered{}, children: map[toolcrib.RunID]*awaited{},
	}
	if p.shared == nil {
		p.shared = func() bool { return false }
	}
	p.ctx, p.end = context.WithCancelCause(context.Background())
	p.env.Store.SetBounds(p.bounds)
	if p.bus != nil {
		p.listen()
	}
	p.running.Go(p.take)
	p.running.Go(p.sweep)
	p.running.Go(p.describe)
	p.running.Go(p.expireClients)
	return p
}

var errClosed = errors.New("the server has ended")

// Closing is closed when the pool begins to close.
func (p *Pool) Closing() <-chan struct{} { return p.ctx.Done() }

// Close leaves the runs to be resumed later, and waits until the workers have stopped or ctx ends.
func (p *Pool) Close(ctx context.Context) (err error) {
	p.end(errClosed)
	p.mu.Lock()
	for _, d := range p.runs {
		if d.work == nil && !d.held {
			p.drop(d, p.closing(d.run))
		}
	}
	p.mu.Unlock()
	stopped := make(chan struct{})
	go func() {
		p.running.Wait()
		close(stopped)
	}()
	select {
	case <-stopped:
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	p.queue.Close()
	return err
}

// Begin has a worker start a run, and returns when the run is in the journal. The run is not queued: it is started and
// taken up in one append, which is refused over a bound. s may be nil.
func (p *Pool) Begin(
	once string, s *Subscription, start func(context.Context, *Work) (*agent.State, error),
) (*Drive, error) {
	d, err := p.Reserve("", once)
	if err != nil {
		return nil, err
	}
	w := p.newWork(d)
	w.starts, w.subscription = true, s
	p.mu.Lock()
	if d.work, d.held = w, false; p.ctx.Err() != nil {
		p.drop(d, p.closing(""))
	} else {
		p.now(func() { p.carryNew(w, start) })
	}
	p.mu.Unlock()
	select {
	case <-d.begun:
	case <-d.done:
		if d.run == "" {
			return nil, d.err
		}
	}
	return d, nil
}

// now has a worker carry a drive that counts as active.
func (p *Pool) now(carry func()) {
	p.running.Go(func() {
		select {
		case p.slots <- struct{}{}:
			defer func() { <-p.slots }()
		default: // the last slot belongs to the goroutine that waits for the queue
		}
		carry()
	})
}

// Reserve returns a drive that counts as active, if the bounds allow it. run is "" if the run has no ID yet: then the
// bounds of its user and agent apply to its first event. once is the key of the request. No worker takes the run until
// [Drive.Continue] or [Drive.Release] is called.
func (p *Pool) Reserve(run toolcrib.RunID, once string) (*Drive, error) {
	d, err := p.reserve(run, once)
	if err != nil || run == "" {
		return d, err
	}
	// If another process drives the run, what is to be done with it finds out.
	leave, err := p.drivers.Drive(p.ctx, run, nil)
	switch {
	case err == nil:
		d.leave = leave
	case !errors.Is(err, store.ErrLeased):
		d.Release(err)
		return nil, err
	}
	return d, nil
}

func (p *Pool) reserve(run toolcrib.RunID, once string) (*Drive, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.ctx.Err() != nil:
		return nil, p.closing("")
	case p.runs[run] != nil:
		return nil, toolcrib.Errorf(toolcrib.CodeConflict, "run %s is active", run)
	case len(p.drives) >= p.most:
		return nil, reached("the server has reached server.max_runs active runs")
	}
	d := p.newDrive(run)
	d.held, d.once = true, once
	return d, nil
}

// Hold keeps workers from a run until [Drive.Release] is called, without regard to the bounds. The drive is nil if a
// worker has the run, or the drive of its parent has it.
func (p *Pool) Hold(run toolcrib.RunID) (*Drive, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ctx.Err() != nil {
		return nil, p.closing("")
	}
	d := p.runs[run]
	switch {
	case p.children[run] != nil:
		return nil, nil
	case d == nil:
		d = p.newDrive(run)
	case d.taken():
		return nil, nil
	}
	d.held = true
	return d, nil
}

// Stop ends a run with cause, now or as soon as a worker has it, and waits until its drive is over, the time has passed
// or ctx ends. It returns false if the pool does not drive the run.
func (p *Pool) Stop(ctx context.Context, run toolcrib.RunID, cause error, most time.Duration) bool {
	p.mu.Lock()
	d := p.runs[run]
	if d != nil {
		if d.cause = cause; d.work != nil {
			d.work.cancel(cause)
		}
	}
	p.mu.Unlock()
	if d == nil {
		return false
	}
	select {
	case <-d.done: // its worker may have lost the run, and the next worker does not know the cause
	case <-time.After(most):
	case <-ctx.Done():
	}
	return true
}

// Wake continues the run at the top of a run after a decision, a result or a message. If it waits for something else,
// it stays parked.
func (p *Pool) Wake(run toolcrib.RunID) {
	rec, err := p.env.Store.Run(p.ctx, run)
	if err == nil {
		rec, err = p.env.Top(p.ctx, rec)
	}
	if err == nil { // otherwise the sweep finds the run
		p.wake(rec)
	}
}

// wake is Wake for the run at the top.
func (p *Pool) wake(rec store.RunRecord) {
	if rec.Driver != p.env.Driver || rec.Status.Ended() {
		return
	}
	p.mu.Lock()
	if d := p.runs[rec.ID]; d != nil && d.taken() {
		d.again = true
		p.mu.Unlock()
		return
	}
	p.soon(rec.ID)
	p.mu.Unlock()
	m := message{Run: rec.ID, Ready: !p.here(rec.Site)}
	p.tell(wakeMessage, "", &m)
	if !m.Ready {
		p.put(rec.ID)
	}
}

// put queues a run that can continue. If that fails, the sweep queues it later.
func (p *Pool) put(run toolcrib.RunID) {
	ctx, cancel := context.WithTimeout(p.ctx, settleWait)
	defer cancel()
	if _, err := p.queue.Put(ctx, run); err != nil && p.ctx.Err() == nil {
		p.log.Warn("cannot queue a run; trying again", "run", run, "error", err)
	}
}

// Queued returns the number of queued runs that no worker has taken, or 0 if the queue does not answer.
func (p *Pool) Queued(ctx context.Context) int {
	n, _ := p.queue.Depth(ctx)
	return n
}

// Active returns the number of runs that the pool drives.
func (p *Pool) Active() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.drives)
}

// bounds implements [store.LeaseBounds].
func (p *Pool) bounds(_, agentName string) (ofUser, ofAgent store.LeaseBound) {
	c := p.runner.Config()
	ofUser = store.LeaseBound{
		Most: c.Server.MaxRunsPerUser, Err: reached("you have reached server.max_runs_per_user active runs"),
	}
	ofAgent = store.LeaseBound{
		Most: c.Agents[agentName].MaxConcurrent,
		Err:  reached("agent " + agentName + " has reached its max_concurrent active runs"),
	}
	return ofUser, ofAgent
}

// errBound is the cause of an error for a bound that was reached.
var errBound = errors.New("a bound for active runs was reached")

func reached(bound string) error {
	return &toolcrib.Error{
		Code: toolcrib.CodeCapacityExceeded, Message: bound + "; try again later", RetryAfter: time.Second, Err: errBound,
	}
}

// closing returns the error for a run that is left because the server ends.
func (p *Pool) closing(run toolcrib.RunID) error {
	text := "the server is shutting down; try again later"
	if run != "" {
		text = "the server is shutting down; run " + string(run) + " continues after the restart"
	}
	err := toolcrib.Errorf(toolcrib.CodeOverloaded, "%s", text)
	err.RetryAfter = time.Second
	return err
}

// newDrive returns a drive that counts as active. The pool is locked.
func (p *Pool) newDrive(run toolcrib.RunID) *Drive {
	d := &Drive{
		pool: p, run: run, leave: func() {}, begun: make(chan struct{}), done: make(chan struct{}),
	}
	if p.drives[d] = true; run != "" {
		p.runs[run] = d
	}
	return d
}

// drop ends a drive. A run that waits for its place may continue. The pool is locked.
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
	if p.waits {
		select {
		case p.room <- struct{}{}:
		default:
		}
	}
	if d.again {
		p.running.Go(func() { p.put(d.run) })
	}
}
