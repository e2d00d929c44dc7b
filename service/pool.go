package service

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/internal/config"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/store"
)

// MaxDrives is how many runs a [Pool] drives at a time.
const MaxDrives = 256

// Pool drives runs in the background of this process: those that it is asked to, and those
// of its drivers that were cut off. Whoever asked may go away.
type Pool struct {
	s   *Service
	log *slog.Logger

	ctx     context.Context // of the runs
	end     context.CancelCauseFunc
	running sync.WaitGroup

	mu     sync.Mutex
	drives map[*Drive]bool
	tops   map[toolcrib.RunID]*Drive // by the run at the top, once it has its ID
	follow map[toolcrib.RunID]map[*follower]bool
	failed map[toolcrib.RunID]failure // runs that could not be taken up
}

// failure is when a run is tried again that could not be taken up.
type failure struct {
	next  time.Time
	pause time.Duration
}

// Drive is one run in a pool, up to its end or its pause.
type Drive struct {
	pool        *Pool
	user, agent string
	ctx         context.Context // of the run
	cancel      context.CancelCauseFunc
	again       *resumption   // continues the run when this drive is over; nil = nobody asked
	begun       chan struct{} // is closed when the run has begun
	done        chan struct{} // is closed when the drive is over
	once        sync.Once
	run         toolcrib.RunID // when begun is closed
	err         error          // when done is closed
}

type resumption struct {
	who toolcrib.Principal
	q   ResumeRequest
}

// NewPool makes a pool, which takes up the runs that were cut off from time to time.
func (s *Service) NewPool(log *slog.Logger) *Pool {
	p := &Pool{
		s: s, log: log, drives: map[*Drive]bool{}, tops: map[toolcrib.RunID]*Drive{},
		follow: map[toolcrib.RunID]map[*follower]bool{}, failed: map[toolcrib.RunID]failure{},
	}
	p.ctx, p.end = context.WithCancelCause(context.Background())
	p.running.Go(p.sweep)
	p.running.Go(p.expireClients)
	return p
}

// Close leaves the runs to be taken up later, and waits until they are left or ctx ends.
func (p *Pool) Close(ctx context.Context) error {
	p.end(errClosed)
	left := make(chan struct{})
	go func() {
		p.running.Wait()
		close(left)
	}()
	select {
	case <-left:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Start starts a run as [Service.Start] does, and returns when it has begun.
func (p *Pool) Start(ctx context.Context, who toolcrib.Principal, r StartRequest) (*Drive, error) {
	return p.begin(ctx, who, cmp.Or(r.Agent, config.DefaultAgent), "", func(ctx context.Context, f Front) (*agent.State,
		error,
	) {
		return p.s.start(ctx, who, r, f)
	})
}

// Fork starts a run as [Service.Fork] does, and returns when it has begun.
func (p *Pool) Fork(ctx context.Context, who toolcrib.Principal, q ForkRequest) (*Drive, error) {
	rec, err := p.s.find(ctx, who, q.Run)
	if err != nil {
		return nil, err
	}
	return p.begin(ctx, who, rec.Agent, "", func(ctx context.Context, f Front) (*agent.State, error) {
		return p.s.fork(ctx, who, q, f)
	})
}

// Resume continues a run as [Service.Resume] does, and returns when it has begun. If it is
// on its way in this pool already, that is a conflict, unless it was just decided on: then
// it continues by itself or as soon as it has parked, and the drive is nil.
func (p *Pool) Resume(ctx context.Context, who toolcrib.Principal, q ResumeRequest) (*Drive, error) {
	_, top, err := p.s.toResume(ctx, who, &q)
	if err != nil {
		return nil, err
	}
	if q.Decided && p.later(top.ID, &resumption{who, q}) {
		return nil, nil
	}
	return p.begin(ctx, who, top.Agent, top.ID, func(ctx context.Context, f Front) (*agent.State, error) {
		return p.s.resume(ctx, who, q, f)
	})
}

// later has a run continue when its drive is over; false = it has none.
func (p *Pool) later(top toolcrib.RunID, again *resumption) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	d := p.tops[top]
	if d != nil {
		d.again = again
	}
	return d != nil
}

// Cancel ends a run as [Service.Cancel] does.
func (p *Pool) Cancel(ctx context.Context, who toolcrib.Principal, name string) (Run, error) {
	rec, err := p.s.find(ctx, who, name)
	if err != nil {
		return Run{}, err
	}
	top, err := p.s.top(ctx, rec)
	if err != nil {
		return Run{}, err
	}
	for end := time.Now().Add(cancelWait); ; {
		held, err := p.hold(who, top.Agent, top.ID, false)
		if toolcrib.CodeOf(err) == toolcrib.CodeOverloaded {
			return Run{}, err
		}
		if err == nil { // nobody drives it here
			defer held.over(nil, nil)
			return p.s.Cancel(ctx, who, string(rec.ID))
		}
		p.mu.Lock()
		d := p.tops[top.ID]
		p.mu.Unlock()
		switch {
		case d == nil:
			continue
		case top.ID != rec.ID:
			return Run{}, toolcrib.Errorf(toolcrib.CodeConflict, "run %s is part of run %s; cancel that one", rec.ID, top.ID)
		case time.Now().After(end):
			return Run{}, toolcrib.Errorf(toolcrib.CodeTimeout, "run %s was told to stop and has not", rec.ID)
		}
		d.cancel(Cancelled(agent.NameOf(who)))
		waiting, stop := context.WithDeadline(ctx, end)
		_ = d.Wait(waiting) // what became of the run is read from the store
		stop()
		if run, err := p.s.FindRun(ctx, who, string(rec.ID)); err != nil || run.Status.Ended() {
			return run, err
		}
		if err := context.Cause(ctx); err != nil {
			return Run{}, err
		}
	}
}

// ID is the run of a drive that has begun.
func (d *Drive) ID() toolcrib.RunID { return d.run }

// Wait waits until the drive is over, and returns what cut the run off; nil = it ended or
// parked.
func (d *Drive) Wait(ctx context.Context) error {
	select {
	case <-d.done:
		return d.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// hold reserves a place in the pool for a run, within the bounds unless it is ended only;
// run is "" if it has no ID yet.
func (p *Pool) hold(who toolcrib.Principal, agentName string, run toolcrib.RunID, bounded bool) (*Drive, error) {
	most, ofUser, ofAgent := p.s.Config.Server.MaxRunsPerUser, 0, 0
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ctx.Err() != nil {
		return nil, overloaded("the server is ending")
	}
	if p.tops[run] != nil {
		return nil, toolcrib.Errorf(toolcrib.CodeConflict, "run %s is active", run)
	}
	for d := range p.drives {
		if d.user == who.User {
			ofUser++
		}
		if d.agent == agentName {
			ofAgent++
		}
	}
	full := ""
	switch bound := p.s.Config.Agents[agentName].MaxConcurrent; {
	case !bounded:
	case len(p.drives) >= MaxDrives:
		full = "the server drives as many runs as it can"
	case most > 0 && ofUser >= most:
		full = "you have as many active runs as server.max_runs_per_user allows"
	case bound > 0 && ofAgent >= bound:
		full = "the agent " + agentName + " has as many active runs as its max_concurrent allows"
	}
	if full != "" {
		err := toolcrib.Errorf(toolcrib.CodeCapacityExceeded, "%s; try again later", full)
		err.RetryAfter = time.Second
		return nil, err
	}
	d := &Drive{
		pool: p, user: who.User, agent: agentName, begun: make(chan struct{}), done: make(chan struct{}),
	}
	d.ctx, d.cancel = context.WithCancelCause(p.ctx)
	if p.drives[d] = true; run != "" {
		d.run, p.tops[run] = run, d
	}
	return d, nil
}

func overloaded(text string) error {
	err := toolcrib.Errorf(toolcrib.CodeOverloaded, "%s; try again later", text)
	err.RetryAfter = time.Second
	return err
}

// begin drives a run in the background, and returns when it has begun. If ctx ends before,
// it begins nevertheless.
func (p *Pool) begin(ctx context.Context, who toolcrib.Principal, agentName string, run toolcrib.RunID, do driveFunc) (
	*Drive, error,
) {
	d, err := p.hold(who, agentName, run, true)
	if err != nil {
		return nil, err
	}
	p.tell(run, journal.Frame{}) // what was written down since it parked comes before its frames
	p.running.Go(func() {
		state, err := do(d.ctx, Front{Watch: d.frame, Log: p.log, Driving: func(before *Run) {
			if before != nil {
				d.begins(before.ID)
			}
		}})
		d.over(state, err)
	})
	select {
	case <-d.begun:
		return d, nil
	case <-d.done:
		if d.run != "" && d.err == nil {
			return d, nil
		}
		return nil, cmp.Or(d.err, error(toolcrib.Errorf(toolcrib.CodeInternal, "the run did not begin")))
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

type driveFunc func(context.Context, Front) (*agent.State, error)

// frame hears what happens in the run.
func (d *Drive) frame(f journal.Frame) {
	if started, ok := f.Data.(journal.StartedView); ok {
		d.begins(started.RunID)
	}
	d.pool.tell(d.run, f)
}

func (d *Drive) begins(run toolcrib.RunID) {
	d.once.Do(func() {
		d.pool.mu.Lock()
		d.run, d.pool.tops[run] = run, d
		d.pool.mu.Unlock()
		close(d.begun)
	})
}

// over ends a drive. What was decided meanwhile continues.
func (d *Drive) over(state *agent.State, err error) {
	p := d.pool
	d.cancel(nil)
	p.mu.Lock()
	delete(p.drives, d)
	if p.tops[d.run] == d {
		delete(p.tops, d.run)
	}
	again := d.again
	p.mu.Unlock()
	if err != nil && state != nil && p.ctx.Err() != nil {
		err = overloaded("the server is ending; run " + string(state.Run) + " continues when it is back")
	}
	d.err = err
	close(d.done)
	p.tell(d.run, journal.Frame{})
	if again == nil || err != nil {
		return
	}
	if _, err := p.Resume(p.ctx, again.who, again.q); err != nil && !over(err) {
		p.log.Warn("a run was decided on and did not continue; it is tried again", "run", d.run, "error", err)
	}
}

// over reports whether a run cannot be continued because it has ended, or is on its way.
func over(err error) bool {
	code := toolcrib.CodeOf(err)
	return code == toolcrib.CodeConflict || code == toolcrib.CodeNotFound
}

// How often the pool looks for runs that were cut off, and how long one that could not be
// taken up is left at most.
const (
	sweepEvery = time.Second
	failedMost = 5 * time.Minute
	maxFailed  = 10_000 // are kept; then all are tried again
)

// sweep takes up the runs that nobody drives, as long as the pool is open.
func (p *Pool) sweep() {
	for {
		if err := p.takeUp(p.ctx); err != nil && p.ctx.Err() == nil {
			p.log.Warn("runs that were cut off cannot be looked for", "error", err)
		}
		if pause(p.ctx, sweepEvery) != nil {
			return
		}
	}
}

// takeUp continues the runs of these drivers that were cut off, or decided on by another
// process.
func (p *Pool) takeUp(ctx context.Context) error {
	f := store.Filter{Status: []toolcrib.Status{toolcrib.StatusRunning, toolcrib.StatusQueued}, Limit: store.MaxLimit}
	return p.s.each(ctx, f, func(rec store.RunRecord) error {
		rec, err := p.s.top(ctx, rec)
		if err != nil || rec.Driver != p.s.Driver || rec.Status.Ended() {
			return nil // runs verify reports one that cannot be read
		}
		p.mu.Lock()
		tried := p.failed[rec.ID]
		mine := p.tops[rec.ID] != nil
		p.mu.Unlock()
		if mine || time.Now().Before(tried.next) || p.s.Drivers.Driven(rec.ID) {
			return nil
		}
		who := toolcrib.Principal{User: rec.User, Actor: rec.Actor}
		_, err = p.begin(ctx, who, rec.Agent, rec.ID, func(ctx context.Context, f Front) (*agent.State, error) {
			return p.s.resume(ctx, who, ResumeRequest{Run: string(rec.ID)}, f)
		})
		p.mu.Lock()
		defer p.mu.Unlock()
		switch code := toolcrib.CodeOf(err); {
		case err == nil:
			delete(p.failed, rec.ID)
		case code == toolcrib.CodeOverloaded, len(p.drives) >= MaxDrives:
			return ErrEnough
		case code == toolcrib.CodeCapacityExceeded: // of this user or agent; those of others continue
		case !over(err):
			tried.pause = min(max(2*tried.pause, sweepEvery), failedMost)
			tried.next = time.Now().Add(tried.pause)
			if len(p.failed) >= maxFailed {
				clear(p.failed)
			}
			p.failed[rec.ID] = tried
			p.log.Warn("a run that was cut off cannot be taken up", "run", rec.ID, "error", err)
		}
		return nil
	})
}

// OwnWorkspace is the folder in which runs of a user work that a server starts, made at
// its first use.
func (s *Service) OwnWorkspace(who toolcrib.Principal) (string, error) {
	if err := somebody(who); err != nil {
		return "", err
	}
	name := who.User
	if !filepath.IsLocal(name) || filepath.Base(name) != name {
		return "", errors.New("the name of a user is not that of a folder: " + name)
	}
	dir := filepath.Join(s.DataDir, "workspaces", name)
	return dir, os.MkdirAll(dir, 0o700)
}

// Reachable returns nil if the store answers.
func (s *Service) Reachable(ctx context.Context) error {
	_, err := s.store.Runs(ctx, store.Filter{Limit: 1})
	return err
}
