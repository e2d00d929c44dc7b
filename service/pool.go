package service

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/internal/config"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/natsbus"
	"github.com/toolcrib/toolcrib/provider/limit"
	"github.com/toolcrib/toolcrib/queue"
	"github.com/toolcrib/toolcrib/service/env"
	"github.com/toolcrib/toolcrib/service/nodes"
	"github.com/toolcrib/toolcrib/service/worker"
	"github.com/toolcrib/toolcrib/store"
)

// Pool drives runs of the service in the background.
type Pool struct {
	*worker.Pool
	s    *Service
	log  *slog.Logger
	bus  *natsbus.Bus
	node *nodes.Instance
}

// NewPool returns a pool, and connects to the other servers of the database through the bus of the configuration. Its
// runs are queued by the bus. wrap may replace the queue; it may be nil.
func (s *Service) NewPool(log *slog.Logger, wrap func(queue.Queue) queue.Queue) (*Pool, error) {
	site, err := s.enterSite()
	if err != nil {
		return nil, err
	}
	bus, err := s.Env.OpenBus(context.Background(), func() string { return s.Current().Env.Config.Hash() }, site, log)
	if err != nil {
		return nil, err
	}
	var q queue.Queue = bus
	if wrap != nil {
		q = wrap(q)
	}
	s.Env.Share = func(provider string, concurrent, perMinute int, of limit.Local) limit.Share {
		if share := bus.Limit(provider, concurrent, perMinute, of); share != nil {
			return share
		}
		return nil
	}
	shared := func() bool { return !s.Env.Config.Bus.URL.IsEmpty() && bus.State().Connected }
	var between worker.Bus = bus
	if hints := s.Env.Hints(log); hints != nil {
		between = hints
	}
	p := worker.New(worker.Options{
		Env: s.Env, Drivers: s.Drivers, Runner: runner{s, log}, Queue: q, Bus: between, Shared: shared, Site: site,
		Log: log,
	})
	link, err := nodes.LinkOf(bus)
	var node *nodes.Instance
	if err == nil {
		node, err = s.Nodes.Open(context.Background(), link, true, log)
	}
	if err != nil {
		return nil, errors.Join(err, p.Close(context.Background()))
	}
	s.Bus.Watch(node)
	return &Pool{p, s, log, bus, node}, nil
}

// Node returns the instance of this server on the bus.
func (p *Pool) Node() *nodes.Instance { return p.node }

// Close ends the calls of other nodes, and stops driving runs.
func (p *Pool) Close(ctx context.Context) error {
	p.node.Close()
	return p.Pool.Close(ctx)
}

// enterSite returns the site of the workspaces, and shows other servers that this one shares them. A copy of the
// workspaces of a running server is refused.
func (s *Service) enterSite() (site string, err error) {
	if site, err = s.Env.Site(); err != nil || site == "" {
		return site, err
	}
	if err = s.Env.MarkSite(); err != nil {
		return "", err
	}
	return site, s.Drivers.Copied(context.Background(), site)
}

// tellReady tells the servers of the database that the run at the top of a run can continue. If there is no way to do
// that, or this process is a server, whose pool continues the run, it does nothing.
func (s *Service) tellReady(ctx context.Context, rec store.RunRecord) {
	hints := s.Env.Hints(nil)
	if hints == nil || s.Env.Driver == env.DriverServer {
		return
	}
	if top, err := s.Env.Top(ctx, rec); err == nil && top.Driver == env.DriverServer { // otherwise they find it
		worker.TellReady(hints, top.ID)
	}
}

// Degraded returns what does not work although runs continue.
func (p *Pool) Degraded() []string {
	var all []string
	if !p.bus.State().Connected {
		all = append(all, "bus")
	}
	if p.Astray() {
		all = append(all, "workspaces")
	}
	return all
}

// runner implements [worker.Runner].
type runner struct {
	s   *Service
	log *slog.Logger
}

func (r runner) Config() *config.Config { return r.s.Current().Env.Config }

func (r runner) Resume(
	ctx context.Context, who toolcrib.Principal, run toolcrib.RunID, approve agent.Approve, w *worker.Work,
) (*agent.State, error) {
	if w.Child() {
		return r.s.Current().resumeChild(ctx, who, run, workFront(w, r.log))
	}
	return r.s.Current().resume(ctx, who, ResumeRequest{Run: string(run), Approve: approve}, workFront(w, r.log))
}

func (r runner) Waits(ctx context.Context, rec store.RunRecord) (runs []toolcrib.RunID, err error) {
	a, err := r.s.runner(rec)
	if err != nil {
		return nil, err
	}
	if state, err := a.WaitsFor(ctx, rec.ID); state == nil || err != nil {
		return nil, err
	}
	all, err := a.AllWaiting(ctx, rec.ID)
	for _, at := range all {
		runs = append(runs, at.Run)
	}
	return runs, err
}

func (r runner) ExpireClient(ctx context.Context, run toolcrib.RunID) error {
	a, err := r.s.Current().recorder()
	if err == nil {
		_, err = a.ExpireClient(ctx, run)
	}
	return err
}

// workFront returns the front of a run that a worker drives.
func workFront(w *worker.Work, log *slog.Logger) Front {
	return Front{Watch: w.Watch, Named: w.Named, Person: followers{w}, Log: log, work: w}
}

// followers is the [Person] of a run that a worker drives. The people who follow the run see what its running calls
// ask, and decide it like any other approval. For everything else the run parks.
type followers struct{ *worker.Work }

// Answer implements [Person].
func (f followers) Answer(ctx context.Context, q Question) (a Answer, ok bool, err error) {
	if q.Nested {
		err = f.Attend(ctx, q.Run, &q.Ask)
	}
	return a, false, err
}

// Start starts a run as [Service.Start] does, and returns when it has begun. If a run has begun with the same key,
// Start returns the drive of that run.
func (p *Pool) Start(ctx context.Context, who toolcrib.Principal, r StartRequest) (*worker.Drive, error) {
	return p.begin(ctx, r.Once, r.Subscription, func(ctx context.Context, f Front) (*agent.State, error) {
		return p.s.Current().start(ctx, who, r, f)
	})
}

// Fork starts a run as [Service.Fork] does, and returns when it has begun. If a run has begun with the same key, Fork
// returns the drive of that run.
func (p *Pool) Fork(ctx context.Context, who toolcrib.Principal, q ForkRequest) (*worker.Drive, error) {
	return p.begin(ctx, q.Once, q.Subscription, func(ctx context.Context, f Front) (*agent.State, error) {
		return p.s.Current().fork(ctx, who, q, f)
	})
}

// begin has a worker start a run, unless a run has begun with the same key.
func (p *Pool) begin(
	ctx context.Context, once string, sub *worker.Subscription,
	start func(context.Context, Front) (*agent.State, error),
) (*worker.Drive, error) {
	if run, err := p.s.Begun(ctx, once); run != "" || err != nil {
		return p.Drive(run), err
	}
	d, err := p.Begin(once, sub, func(ctx context.Context, w *worker.Work) (*agent.State, error) {
		return start(ctx, workFront(w, p.log))
	})
	var other *store.OnceError
	if errors.As(err, &other) {
		run, err := sameOnce(other)
		return p.Drive(run), err
	}
	return d, err
}

// Resume continues a run as [Service.Resume] does, and returns when it has begun. A run that this pool drives is a
// conflict, unless it was just decided on: then it continues by itself, and the drive is nil.
func (p *Pool) Resume(ctx context.Context, who toolcrib.Principal, q ResumeRequest) (*worker.Drive, error) {
	if fork, err := p.s.Current().forkUnanswered(ctx, who, &q); err != nil {
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
	away := p.s.Env.CheckSite(top.ID, top.Site)
	if away != nil && (q.Approve != "" || q.Add == journal.Granted{} && q.Model == "" && q.Message == "") {
		return nil, away
	}
	if d := p.Drive(top.ID); q.Once != "" && d.Once() == q.Once {
		return d, nil
	}
	d, full := p.Reserve(top.ID, q.Once) // no other request of this process resumes the run now
	if known, err := p.s.resumedBefore(ctx, named.ID, q.Once); known || err != nil {
		d.Release(err)
		return p.Drive(top.ID), err
	}
	if full != nil {
		return nil, full
	}
	if err := p.s.Current().added(context.WithoutCancel(ctx), who, q); err != nil {
		d.Release(err)
		return nil, err
	}
	if away != nil { // a server with its workspace continues it
		d.Release(nil)
		p.Wake(top.ID)
		return p.Drive(top.ID), nil
	}
	return d, d.Continue(ctx, who, q.Approve, q.Subscription)
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
		held, err := p.Hold(top.ID)
		if err != nil {
			return Run{}, err
		}
		if held != nil && top.ID != rec.ID {
			part, err := p.Hold(rec.ID)
			if part == nil {
				held.Release(nil)
				held = nil
			}
			if err != nil {
				return Run{}, err
			}
			defer part.Release(nil)
		}
		if held != nil { // no worker here has it
			run, err := p.s.Cancel(ctx, who, string(rec.ID))
			held.Release(nil)
			return run, err
		}
		if top.ID != rec.ID {
			return Run{}, toolcrib.Errorf(toolcrib.CodeConflict, "run %s is part of run %s; cancel that one", rec.ID, top.ID)
		}
		if time.Now().After(end) {
			return Run{}, toolcrib.Errorf(toolcrib.CodeTimeout, "run %s was told to stop and is still active", rec.ID)
		}
		if !p.Stop(ctx, top.ID, agent.CancelBy(who), time.Until(end)) {
			continue
		}
		if run, err := p.s.FindRun(ctx, who, string(rec.ID)); err != nil || run.Status.Ended() {
			return run, err
		}
		if err := context.Cause(ctx); err != nil {
			return Run{}, err
		}
	}
}

// Outcome waits until the run of a drive has ended or parked, and returns it as [Service.Run] does.
func (p *Pool) Outcome(ctx context.Context, who toolcrib.Principal, d *worker.Drive) (Run, error) {
	if err := d.Wait(ctx); err != nil {
		return Run{}, err
	}
	if state, rec := d.Ended(); state != nil && env.Owns(who, rec) {
		return shownTo(who, p.s.wholeOf(ctx, who, *rec, state)), nil
	}
	return p.s.Run(ctx, who, string(d.ID()))
}
