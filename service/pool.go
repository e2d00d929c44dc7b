package service

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/internal/config"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/queue"
	"github.com/toolcrib/toolcrib/store"
)

const (
	// maxDrives is how many runs a [Pool] drives at a time.
	maxDrives = 256
	// runLease is how long a worker that says nothing keeps its run. A run of a worker that
	// hangs continues with another one within twice this time.
	runLease = 4 * time.Second
	// beginWait is how long a request waits for a worker to begin its run.
	beginWait = time.Second
	// settleWait is how long the queue may take to answer.
	settleWait = 5 * time.Second
	queueDir   = "queue"
)

// Pool drives runs in the background: those that it is asked to, and those of its drivers that
// were cut off. Whoever asked may go away. There is one way for a run to continue, whatever
// the reason: it is put in the queue, and a worker takes it.
type Pool struct {
	s     *Service
	log   *slog.Logger
	queue queue.Queue
	lease time.Duration

	ctx     context.Context // of the runs
	end     context.CancelCauseFunc
	running sync.WaitGroup
	slots   chan struct{} // one for each worker at work
	beating func()        // ends the workers' heartbeat

	mu      sync.Mutex
	drives  map[*Drive]bool            // those that count as active
	runs    map[toolcrib.RunID]*Drive  // the same by their runs, once they have IDs
	waiting map[toolcrib.RunID]waiting // for one of their user or agent to end
	follow  map[toolcrib.RunID]map[*follower]bool
	looks   map[toolcrib.RunID]look    // at those that are followed and driven elsewhere, or by nobody
	failed  map[toolcrib.RunID]failure // runs that could not be taken up
}

// failure is when a run is tried again that could not be taken up.
type failure struct {
	next  time.Time
	pause time.Duration
}

// waiting is a run that could continue, but its user or agent has as many active ones as they may.
type waiting struct {
	user, agent string
	since       time.Time
}

// maxKnown bounds how many failures, and how many waiting runs, a pool knows. What it forgets it
// finds again in the store.
const maxKnown = 10_000

// NewPool makes a pool with a queue inside this process. From time to time it looks for runs that can continue.
func (s *Service) NewPool(log *slog.Logger) (*Pool, error) {
	lease := cmp.Or(s.Env.Lease, runLease)
	q, err := queue.Open(context.Background(), filepath.Join(s.Env.DataDir, queueDir), lease)
	if err != nil {
		return nil, err
	}
	return s.newPool(log, q, lease), nil
}

func (s *Service) newPool(log *slog.Logger, q queue.Queue, lease time.Duration) *Pool {
	p := &Pool{
		s: s, log: log, queue: q, lease: lease, slots: make(chan struct{}, maxDrives), drives: map[*Drive]bool{},
		runs: map[toolcrib.RunID]*Drive{}, follow: map[toolcrib.RunID]map[*follower]bool{},
		failed: map[toolcrib.RunID]failure{}, waiting: map[toolcrib.RunID]waiting{},
	}
	p.ctx, p.end = context.WithCancelCause(context.Background())
	beat, stop := context.WithCancel(context.Background())
	var beats sync.WaitGroup
	beats.Go(func() { p.beat(beat) })
	p.beating = func() {
		stop()
		beats.Wait()
	}
	p.running.Go(p.take)
	p.running.Go(p.sweep)
	p.running.Go(p.expireClients)
	return p
}

// Close leaves the runs to be taken up later, and waits until they are left or ctx ends.
func (p *Pool) Close(ctx context.Context) (err error) {
	p.end(errClosed)
	p.mu.Lock()
	for _, d := range p.runs {
		if d.work == nil && !d.held {
			p.drop(d, p.ending(d.run))
		}
	}
	p.mu.Unlock()
	left := make(chan struct{})
	go func() {
		p.running.Wait()
		close(left)
	}()
	select {
	case <-left:
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	p.beating()
	p.queue.Close()
	return err
}

// Start starts a run as [Service.Start] does, and returns when it has begun. If a run has begun
// with the same key, that one is returned.
func (p *Pool) Start(ctx context.Context, who toolcrib.Principal, r StartRequest) (*Drive, error) {
	name := cmp.Or(r.Agent, config.DefaultAgent)
	return p.begin(ctx, who, name, r.Once, r.Ahead, func(ctx context.Context, f Front) (*agent.State, error) {
		return p.s.Current().start(ctx, who, r, f)
	})
}

// Fork starts a run as [Service.Fork] does, and returns when it has begun. If a run has begun
// with the same key, that one is returned.
func (p *Pool) Fork(ctx context.Context, who toolcrib.Principal, q ForkRequest) (*Drive, error) {
	rec, err := p.s.Env.Find(ctx, who, q.Run)
	if err != nil {
		return nil, err
	}
	return p.begin(ctx, who, rec.Agent, q.Once, q.Ahead, func(ctx context.Context, f Front) (*agent.State, error) {
		return p.s.Current().fork(ctx, who, q, f)
	})
}

// begin has a worker start a run, within the bounds, and waits until the run is written down. It is
// not in the queue: that it was started and taken up is one append.
func (p *Pool) begin(ctx context.Context, who toolcrib.Principal, agentName, once string, ahead *Ahead,
	start func(context.Context, Front) (*agent.State, error),
) (*Drive, error) {
	if run, err := p.s.Begun(ctx, once); run != "" || err != nil {
		return p.handle(run), err
	}
	d, err := p.hold(who.User, agentName, "", once)
	if err != nil {
		return nil, err
	}
	w := p.newWork(unqueued{})
	p.mu.Lock()
	if d.work, d.held = w, false; p.ctx.Err() != nil {
		p.drop(d, p.ending(""))
	} else {
		p.running.Go(func() {
			select {
			case p.slots <- struct{}{}:
				defer func() { <-p.slots }()
			default: // the last is held by what waits for the queue
			}
			p.carryNew(d, w, ahead, start)
		})
	}
	p.mu.Unlock()
	select {
	case <-d.begun:
		return d, nil
	case <-d.done:
	}
	var other *store.OnceError
	switch {
	case d.run != "":
		return d, nil
	case errors.As(d.err, &other):
		run, err := sameOnce(other)
		return p.handle(run), err
	}
	return nil, d.err
}

// queued puts the run of a drive in the queue, and waits until a worker has begun it; if that
// takes long, it is there anyway.
func (p *Pool) queued(ctx context.Context, d *Drive) error {
	p.put(d.run)
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

// put queues a run that can continue. If that fails, it is found later.
func (p *Pool) put(run toolcrib.RunID) {
	ctx, cancel := context.WithTimeout(p.ctx, settleWait)
	defer cancel()
	if _, err := p.queue.Put(ctx, run); err != nil && p.ctx.Err() == nil {
		p.log.Warn("cannot queue a run; trying again", "run", run, "error", err)
	}
}

// Resume continues a run as [Service.Resume] does, and returns when it has begun. If it is on its way in this pool
// already, that is a conflict, unless it was just decided on: then it continues by itself, and the drive is nil.
func (p *Pool) Resume(ctx context.Context, who toolcrib.Principal, q ResumeRequest) (*Drive, error) {
	if fork, err := p.s.Current().askAgain(ctx, who, &q); err != nil {
		return nil, err
	} else if fork != nil {
		return p.Fork(ctx, who, *fork)
	}
	named, top, err := p.s.toResume(ctx, who, &q)
	if err != nil {
		return nil, err
	}
	if q.Decided {
		p.Wake(top.ID)
		return nil, nil
	}
	p.mu.Lock()
	now := p.runs[top.ID]
	p.mu.Unlock()
	if now != nil && q.Once != "" && now.once == q.Once {
		return now, nil
	}
	d, full := p.hold(top.User, top.Agent, top.ID, q.Once) // from here on no other request here resumes it
	if known, err := p.resumedBefore(ctx, named.ID, q.Once); known || err != nil {
		if d != nil {
			p.mu.Lock()
			p.drop(d, err)
			p.mu.Unlock()
		}
		return p.handle(top.ID), err
	}
	if full != nil {
		return nil, full
	}
	if q.Approve != "" {
		d.word = &word{who, q.Approve}
	}
	err = p.s.Current().added(context.WithoutCancel(ctx), who, q)
	p.mu.Lock()
	if d.held = false; err == nil && p.ctx.Err() != nil {
		err = p.ending(top.ID)
	}
	if err != nil {
		p.drop(d, err)
	}
	p.mu.Unlock()
	if err != nil {
		return nil, err
	}
	p.ahead(q.Ahead, d.run)
	return d, p.queued(ctx, d)
}

// resumedBefore reports whether the request with this key has resumed the run before, as its journal says. Another
// request with it is a conflict.
func (p *Pool) resumedBefore(ctx context.Context, named toolcrib.RunID, once string) (bool, error) {
	if once == "" {
		return false, nil
	}
	key, _, _ := strings.Cut(once, ":")
	for e, err := range p.s.Env.Store.Read(ctx, named, 0) {
		if err != nil {
			return false, err
		}
		b, ok := e.Body.(*journal.Resumed)
		if ok && strings.HasPrefix(b.Once, key+":") && time.Since(e.Time) < store.OnceAge {
			_, err := sameOnce(&store.OnceError{Run: named, Same: b.Once == once})
			return true, err
		}
	}
	return false, nil
}

// Queued is how many runs are queued that no worker has taken; 0 if the queue does not answer.
func (p *Pool) Queued(ctx context.Context) int {
	n, _ := p.queue.Depth(ctx)
	return n
}

// Wake continues a run that something has come for: a decision, a result, a message, its time.
// If it still waits, it waits on.
func (p *Pool) Wake(run toolcrib.RunID) {
	rec, err := p.s.Env.Store.Run(p.ctx, run)
	if err == nil {
		rec, err = p.s.Env.Top(p.ctx, rec)
	}
	if err == nil { // the sweep finds what could not be read
		p.wake(rec)
	}
}

// wake is [Pool.Wake] of the run at the top.
func (p *Pool) wake(rec store.RunRecord) {
	if rec.Driver != p.s.Env.Driver || rec.Status.Ended() {
		return
	}
	p.mu.Lock()
	if d := p.runs[rec.ID]; d != nil && (d.work != nil || d.held) {
		d.again = true
		p.mu.Unlock()
		return
	}
	p.mu.Unlock()
	p.put(rec.ID)
}

// Cancel ends a run as [Service.Cancel] does.
func (p *Pool) Cancel(ctx context.Context, who toolcrib.Principal, name string) (Run, error) {
	rec, err := p.s.Env.Find(ctx, who, name)
	if err != nil {
		return Run{}, err
	}
	top, err := p.s.Env.Top(ctx, rec)
	if err != nil {
		return Run{}, err
	}
	for end := time.Now().Add(cancelWait); ; {
		held, err := p.free(top.User, top.Agent, top.ID)
		if err != nil {
			return Run{}, err
		}
		if held != nil { // nobody drives it here
			run, err := p.s.Cancel(ctx, who, string(rec.ID))
			p.mu.Lock()
			p.drop(held, nil)
			p.mu.Unlock()
			return run, err
		}
		if top.ID != rec.ID {
			return Run{}, toolcrib.Errorf(toolcrib.CodeConflict, "run %s is part of run %s; cancel that one", rec.ID, top.ID)
		}
		if time.Now().After(end) {
			return Run{}, toolcrib.Errorf(toolcrib.CodeTimeout, "run %s was told to stop and is still active", rec.ID)
		}
		p.mu.Lock()
		d := p.runs[top.ID]
		if d != nil {
			d.stop(agent.CancelBy(who))
		}
		p.mu.Unlock()
		if d == nil {
			continue
		}
		select {
		case <-d.done: // its worker may have lost the run, and the next has not heard of this
		case <-time.After(time.Until(end)):
		case <-ctx.Done():
		}
		if run, err := p.s.FindRun(ctx, who, string(rec.ID)); err != nil || run.Status.Ended() {
			return run, err
		}
		if err := context.Cause(ctx); err != nil {
			return Run{}, err
		}
	}
}

// free keeps workers away from a run, unless one has it: then the drive is nil.
func (p *Pool) free(user, agentName string, run toolcrib.RunID) (*Drive, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ctx.Err() != nil {
		return nil, p.ending("")
	}
	d := p.runs[run]
	switch {
	case d == nil:
		d = p.newDrive(user, agentName, run)
	case d.work != nil || d.held:
		return nil, nil
	}
	d.held = true
	return d, nil
}

// hold reserves a place for a run, within the bounds, for the request with a key; run is "" if it has
// no ID yet. No worker takes it while it is held.
func (p *Pool) hold(user, agentName string, run toolcrib.RunID, once string) (*Drive, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ctx.Err() != nil {
		return nil, p.ending("")
	}
	if p.runs[run] != nil {
		return nil, toolcrib.Errorf(toolcrib.CodeConflict, "run %s is active", run)
	}
	full := p.full(user, agentName)
	if full == "" && len(p.drives) >= maxDrives {
		full = "the server has reached its limit of active runs"
	}
	if full != "" {
		err := toolcrib.Errorf(toolcrib.CodeCapacityExceeded, "%s; try again later", full)
		err.RetryAfter = time.Second
		return nil, err
	}
	d := p.newDrive(user, agentName, run)
	d.held, d.once = true, once
	return d, nil
}

// place is hold for a run that no worker of the pool drives.
func (p *Pool) place(user, agentName string, run toolcrib.RunID) (leave func(), err error) {
	d, err := p.hold(user, agentName, run, "")
	if err != nil {
		return nil, err
	}
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.drop(d, nil)
	}, nil
}

// full says which bound a user or agent has reached; "" = none.
func (p *Pool) full(user, agentName string) string {
	c, ofUser, ofAgent := p.s.Current().Env.Config, 0, 0
	for d := range p.drives {
		if d.user == user {
			ofUser++
		}
		if d.agent == agentName {
			ofAgent++
		}
	}
	switch bound := c.Agents[agentName].MaxConcurrent; {
	case c.Server.MaxRunsPerUser > 0 && ofUser >= c.Server.MaxRunsPerUser:
		return "you have reached server.max_runs_per_user active runs"
	case bound > 0 && ofAgent >= bound:
		return "agent " + agentName + " has reached its max_concurrent active runs"
	}
	return ""
}

// ending says that a run is left because the server ends.
func (p *Pool) ending(run toolcrib.RunID) error {
	text := "the server is shutting down; try again later"
	if run != "" {
		text = "the server is shutting down; run " + string(run) + " continues after the restart"
	}
	err := toolcrib.Errorf(toolcrib.CodeOverloaded, "%s", text)
	err.RetryAfter = time.Second
	return err
}

// Reachable returns nil if the store answers, and can be written.
func (s *Service) Reachable(ctx context.Context) error {
	if _, err := s.Env.Store.Runs(ctx, store.Filter{Limit: 1}); err != nil {
		return err
	}
	return s.Env.Store.Writable(ctx)
}

// Active is how many runs the pool drives.
func (p *Pool) Active() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.drives)
}
