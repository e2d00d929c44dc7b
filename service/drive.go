package service

import (
	"context"
	"crypto/cipher"
	"errors"
	"log/slog"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/agent/core"
	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/internal/version"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/service/models"
	"github.com/toolcrib/toolcrib/service/policy"
	"github.com/toolcrib/toolcrib/service/worker"
	"github.com/toolcrib/toolcrib/store"
	"github.com/toolcrib/toolcrib/team"
)

// Start starts a run of an agent, and drives it to its end or its pause. The run has no ID if
// it was not written down; with an error it was cut off.
func (s *Service) Start(ctx context.Context, who toolcrib.Principal, r StartRequest, f Front) (Run, error) {
	state, err := s.start(ctx, who, r, f)
	return s.outcome(ctx, who, state, err)
}

// start is [Service.Start] for the service itself; the state is nil if there is no run.
func (s *Service) start(ctx context.Context, who toolcrib.Principal, r StartRequest, f Front) (*agent.State, error) {
	d, task, err := s.ready(ctx, who, r, f)
	if err != nil {
		return nil, err
	}
	return d.run(ctx, task)
}

// ready makes the task of a request and the drive of its run.
func (s *Service) ready(ctx context.Context, who toolcrib.Principal, r StartRequest, f Front) (*drive, agent.Task,
	error,
) {
	if r.Team != nil {
		return s.readyTeam(ctx, who, r, f)
	}
	seen := policy.Paths{}
	p, err := s.prepareSeeing(ctx, who, r, seen)
	if err == nil && r.Given == nil {
		err = p.openModels()
	}
	if err != nil {
		return nil, agent.Task{}, err
	}
	task := r.task(s)
	if r.Again {
		if task, err = p.Again(ctx); err != nil {
			return nil, task, err
		}
		task.Once = r.Once
	} else if err := s.traced(ctx, p.Who, &r, &task); err != nil {
		return nil, task, err
	} else if err := s.instead(ctx, who, r.Instead, &task); err != nil {
		return nil, task, err
	}
	d, err := p.ready(ctx, &task, f, seen)
	return d, task, err
}

// run starts a run and drives it, as [Service.Start] does. Of the task it fills in what the agent, its session and
// its skills say. A task that names its session itself has the history, too.
func (p *Prepared) run(ctx context.Context, task agent.Task, f Front) (*agent.State, error) {
	d, err := p.ready(ctx, &task, f, policy.Paths{})
	if err != nil {
		return nil, err
	}
	return d.run(ctx, task)
}

// ready fills in a task and makes the drive of its run.
func (p *Prepared) ready(ctx context.Context, task *agent.Task, f Front, seen policy.Paths) (*drive, error) {
	if err := p.s.Env.OpenFor(ctx, p.Who); err != nil {
		return nil, err
	}
	if p.Session != nil && task.Session == "" {
		if err := p.into(ctx, task); err != nil {
			return nil, err
		}
	}
	g, err := p.theGate(seen) // it reads the rights of today
	if err != nil {
		return nil, err
	}
	if err := p.fill(ctx, task, p.tell, seen); err != nil {
		return nil, err
	}
	p.tellUnknown()
	p.needMCP(ctx, task)
	return &drive{s: p.s, front: f, who: p.Who, approve: p.Approve, models: p.models, workspace: p.Workspace, gate: g}, nil
}

// A run of this process drives its sub-agents itself, as runs of their own under its lock and theirs. What one of
// them waits for is decided on its own approval; what is resumed is always the run at the top.

// drive is one run in progress, with all that it stands on.
type drive struct {
	s         *Service
	front     Front
	who       toolcrib.Principal // who drives
	approve   agent.Approve      // what this process does about calls that need an approval
	models    *models.Choice
	workspace string
	gate      *gate.Gate
	log       *slog.Logger
	seen      toolcrib.Seq      // the last event that is known, with [Front.SincePause]
	told      map[string]bool   // approvals that nobody answered here, by their IDs
	missing   []toolcrib.Notice // of MCP servers, when the run was resumed
	asking    chan struct{}     // a nested call asks

	mu      sync.Mutex
	top     toolcrib.RunID            // the run that is driven; "" = it has no ID yet
	taken   map[toolcrib.RunID]func() // with those that it started; each frees one
	left    bool                      // others may continue it
	waiting map[string]toolcrib.RunID
}

// run starts the run of a task, and carries it.
func (d *drive) run(ctx context.Context, task agent.Task) (*agent.State, error) {
	if d.s.Policy.IsOwn(d.workspace) {
		if err := os.MkdirAll(d.workspace, 0o700); err != nil {
			return nil, err
		}
	}
	return d.carry(ctx, nil, func(ctx context.Context, r *agent.Runner) (*agent.State, error) { return r.Run(ctx, task) })
}

// carry drives the run to its end or its pause, or until ctx ends: as cancelled if the
// cause is an [agent.CancelError], else as it is.
func (d *drive) carry(
	ctx context.Context, before *agent.State, begin func(context.Context, *agent.Runner) (*agent.State, error),
) (*agent.State, error) {
	defer d.release()
	ctx, unwatch := d.cancellable(ctx)
	defer unwatch()
	options, err := d.options()
	if err != nil {
		return nil, err
	}
	if options.Approver = d.front.Approver; options.Approver != nil {
		options.Who = d.who
	}
	runner, err := agent.New(options)
	if err != nil {
		return nil, err
	}
	if d.front.Driving != nil {
		d.front.Driving(d.s.beforeDriving(ctx, before))
	}
	state, err := begin(ctx, runner)
	if err == nil && state != nil {
		state, err = d.onward(ctx, runner, state)
	}
	if err == nil {
		d.announceLeft(ctx, state)
	}
	// Tools that did not end when they were told to end with the run.
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), worker.ToolGrace)
	defer cancel()
	if late := runner.Wait(ending); late != nil {
		d.log.WarnContext(ctx, "tools were left behind", "error", late)
	}
	if errors.Is(err, context.Canceled) {
		err = context.Cause(ctx) // what was under way says no more than that
	}
	return state, err
}

// beforeDriving is a run as it is when it is taken up; nil if it is a new one.
func (s *Service) beforeDriving(ctx context.Context, state *agent.State) *Run {
	if state == nil {
		return nil
	}
	v := Run{ID: state.Run, Status: state.Status}
	if rec, err := s.Env.Store.Run(ctx, state.Run); err == nil {
		v = s.runOf(state.Start.Principal, rec)
	}
	whole(&v, state)
	return &v
}

// take notes a run that this drive holds until leave is called; the first is the one that it drives.
func (d *drive) take(run toolcrib.RunID, leave func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.top == "" {
		d.top, d.taken = run, map[toolcrib.RunID]func(){}
		if d.front.Named != nil {
			d.front.Named(run)
		}
	}
	d.taken[run] = leave
}

// leave frees a run that has parked: any process may continue it, and what is asked of its
// driver is no longer for this one.
func (d *drive) leave(run toolcrib.RunID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.left = d.left || run == d.top
	if leave := d.taken[run]; leave != nil {
		leave()
	}
}

// release frees all runs that are still held.
func (d *drive) release() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, leave := range d.taken {
		leave()
	}
}

// driven is the run that is driven; ok is false if it is free by now.
func (d *drive) driven() (run toolcrib.RunID, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.top, d.top != "" && !d.left
}

// cancelEvery is how often a driver looks for a request to cancel its run.
const cancelEvery = 200 * time.Millisecond

// cancellable gives a context that ends when another process asks to cancel the run. stop
// must be called, and ends the looking.
func (d *drive) cancellable(ctx context.Context) (_ context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	var looking sync.WaitGroup
	looking.Go(func() {
		for worker.Pause(ctx, cancelEvery) == nil {
			if run, ok := d.driven(); ok {
				if by := d.s.Drivers.Requested(run); by != nil {
					cancel(by)
				}
			}
		}
	})
	return ctx, func() {
		cancel(nil)
		looking.Wait()
	}
}

// observed is the journal of runs as telemetry hears it.
func (s *Service) observed(j toolcrib.Journal) toolcrib.Journal {
	if s.Env.Observe == nil {
		return j
	}
	return s.Env.Observe(j)
}

// options are what the loop stands on.
func (d *drive) options() (agent.Options, error) {
	s, c := d.s, d.s.Env.Config
	var err error
	d.asking = make(chan struct{}, 1)
	if d.log = d.front.Log; d.log == nil && s.Env.Log != nil {
		d.log, err = s.Env.Log()
	}
	if err != nil {
		return agent.Options{}, err
	}
	if d.log == nil {
		d.log = slog.New(slog.DiscardHandler)
	}
	budgets, err := s.ledger()
	if err != nil {
		return agent.Options{}, err
	}
	retry := c.Retry
	o := agent.Options{
		Retry:         &journal.Retry{First: retry.First.Std(), MaxElapsed: retry.MaxElapsed.Std(), Park: retry.Park.Std()},
		ClientTimeout: c.Server.ClientToolTimeout.Std(),
		FourEyes:      c.Approvals.FourEyes, Expires: s.expireAfter(), Ledger: budgets, TreeUse: s.Env.Store.TreeUse,
		Memory: policy.Memory{Store: s.Env.Store},
		Journal: s.observed(&beforeImages{
			Journal: s.Env.Store, contents: s.Env.Store, mask: s.Env.Mask, workspace: d.workspace, wrote: d.wrote,
		}),
		Contents: s.Env.Store, Gate: d.gate, Mask: s.Env.Mask, Log: d.log, Worker: s.workerName(),
		Version: version.Version(), NewID: d.newID, Agents: d.subAgent, Claim: d.claim, Models: s.Models.Opening(d.models),
		Nested: d.nested, Hurry: d.front.Hurry, Buffers: d.front.Buffers,
		Inbox: s.inbox, Refuses: true, Seal: func() (cipher.AEAD, error) { return s.Env.Sealer("answer") },
	}
	team.Join(&o, s.file, s.Policy.AnyHost())
	if len(c.Approvals.Notify) > 0 {
		d.waiting = map[string]toolcrib.RunID{}
		o.Announcer = d
	}
	if said := d.front.Said; said != nil {
		o.Said = func(run toolcrib.RunID) string {
			if top, _ := d.driven(); run == top {
				return said()
			}
			return ""
		}
	}
	if watch := d.front.Watch; watch != nil {
		o.Watch = func(run toolcrib.RunID, f journal.Frame) {
			if top, _ := d.driven(); run == top { // runs that the run starts have streams of their own
				watch(f)
			}
		}
		if w := d.front.work; w != nil {
			o.Watched = func(run toolcrib.RunID) bool {
				top, _ := d.driven()
				return run == top && w.Watched()
			}
		}
	}
	return o, nil
}

// wrote hears what was written down of a run.
func (d *drive) wrote(ctx context.Context, run toolcrib.RunID, events []toolcrib.Event) {
	if run != d.top {
		return
	}
	if d.front.SincePause && d.front.Watch != nil {
		if first := events[0].Seq; first > d.seen+1 { // somebody has written since this process looked
			d.sincePause(ctx, first)
		}
		d.seen = events[len(events)-1].Seq
	}
	if w := d.front.work; w != nil {
		w.Wrote(run, events)
	}
}

func (d *drive) newID(prefix string) string {
	id := d.s.ids.next(prefix)
	if prefix == "run_" {
		leave, err := d.s.Drivers.Take(toolcrib.RunID(id))
		if err != nil { // nobody else can have a new one
			leave = func() {}
		}
		d.take(toolcrib.RunID(id), leave)
	}
	return id
}

func (d *drive) subAgent(ctx context.Context, who toolcrib.Principal, name, workspace string) (agent.Task, error) {
	tell := func(text string) { d.s.Env.Notice(name + ": " + text) }
	return d.s.subAgent(ctx, d.models, who, name, workspace, tell)
}

func (d *drive) claim(run toolcrib.RunID) (release func(), err error) {
	leave, err := d.s.Drivers.Take(run)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	before := d.taken[run]
	d.mu.Unlock()
	d.take(run, leave)
	if before != nil { // since it got its ID: it is free when the claim ends
		before()
	}
	return leave, nil
}

func (s *Service) workerName() string {
	host, err := hostname()
	if err != nil {
		host = "unknown"
	}
	return s.Env.Driver + ":" + host + ":" + strconv.Itoa(os.Getpid())
}

var hostname = sync.OnceValues(os.Hostname)

// nested continues a call that a running call has made, as long as someone answers what it
// waits for: one at a time.
func (d *drive) nested(ctx context.Context, r *agent.Runner, state *agent.State) (*agent.State, error) {
	select {
	case d.asking <- struct{}{}:
		defer func() { <-d.asking }()
		return d.onward(ctx, r, state)
	case <-ctx.Done():
		return state, nil
	}
}

// onward continues a run as long as someone answers what it waits for.
func (d *drive) onward(ctx context.Context, r *agent.Runner, state *agent.State) (*agent.State, error) {
	var err error
	for ; err == nil && state.Pending != nil; state, err = r.Resume(ctx, state.Run) {
		goesOn, err := d.answerEach(ctx, r, state)
		var cancel *agent.CancelError
		switch {
		case err == nil && goesOn:
			continue
		case errors.As(context.Cause(ctx), &cancel):
			return r.Cancel(context.WithoutCancel(ctx), state.Run, cancel)
		case err != nil && !errors.Is(err, toolcrib.ErrConflict):
			return state, err
		}
		return state, context.Cause(ctx)
	}
	return state, err
}

// answerEach has everything answered that a parked run waits for, itself or by runs below it: what nobody answers
// keeps nothing else waiting, and is not put again by this process. goesOn is false if all of it still waits.
func (d *drive) answerEach(ctx context.Context, r *agent.Runner, s *agent.State) (goesOn bool, err error) {
	all := []*agent.State{s}
	if s.Pending.Run != "" {
		if all, err = r.AllWaiting(ctx, s.Run); err != nil {
			return false, err
		}
	}
	for _, at := range all {
		if at.Approval == nil || d.told[at.Approval.ApprovalID] {
			continue
		}
		decided, err := d.answer(ctx, r, at)
		switch {
		case ctx.Err() != nil:
			return false, err
		case errors.Is(err, toolcrib.ErrConflict): // someone else was quicker, while the question was here
			decided = true
		case err != nil:
			return false, err
		case !decided:
			if d.told == nil {
				d.told = map[string]bool{}
			}
			d.told[at.Approval.ApprovalID] = true
		}
		goesOn = goesOn || decided
	}
	if goesOn || s.Pending.Run == "" {
		return goesOn, nil
	}
	waits, err := r.WaitsFor(ctx, s.Run)
	return err == nil && waits == nil, err // someone did, meanwhile
}

// answers reports whether this process puts to a person what a run waits for, or decides it as it was told.
func (d *drive) answers(s *agent.State) bool {
	present := d.front.Person != nil
	switch s.Approval.Kind {
	case journal.ApprovalCall:
		another := d.s.NeedsAnother(d.who, s.Start.Principal.User)
		switch d.approve {
		case agent.ApproveDeny:
			return true
		case agent.ApproveAll:
			return !another
		}
		return d.approve == agent.ApproveAsk && present && !another
	case journal.ApprovalInput:
		return present || d.approve == agent.ApproveDeny
	}
	return present
}

// answer has answered what one run waits for, and put again until the answer can be meant; false = it is left.
func (d *drive) answer(ctx context.Context, r *agent.Runner, s *agent.State) (decided bool, err error) {
	if ctx.Err() != nil || !d.answers(s) {
		return false, nil
	}
	for problem := ""; ; {
		if expired, err := d.expire(ctx, r, s); expired || err != nil {
			return expired, err
		}
		decided, asked, err := d.decide(ctx, r, s, problem)
		switch {
		case ctx.Err() != nil:
		case asked && toolcrib.CodeOf(err) == toolcrib.CodeBadRequest:
			problem = err.Error()
			continue
		case toolcrib.CodeOf(err) == toolcrib.CodeForbidden:
			d.s.Env.Notice(err.Error())
			return false, nil
		}
		return decided, err
	}
}

// decide answers what a run waits for as this process was told, or as its person says.
func (d *drive) decide(ctx context.Context, r *agent.Runner, s *agent.State, problem string) (decided, asked bool,
	err error,
) {
	ask := s.Approval
	word := agent.Decision{ApprovalID: ask.ApprovalID, Digest: ask.Digest, Who: d.who}
	call := ask.Kind == journal.ApprovalCall
	switch {
	case d.approve == agent.ApproveDeny && ask.Kind != journal.ApprovalInDoubt:
		word.Decision, word.By = journal.DecisionDeny, core.ByUnattended
	case call && d.approve == agent.ApproveAll && coveredByAll(s, &word):
		word.By = core.ByAll
	case d.front.Person == nil:
		return false, false, nil
	default:
		asked = true
		q := Question{
			Run: s.Run, Ask: *ask, Another: d.s.NeedsAnother(d.who, s.Start.Principal.User), Problem: problem,
			Nested: s.Start.Given != nil && s.Start.Parent != "",
		}
		switch {
		case ask.Kind != journal.ApprovalInput:
			q.Ask.Calls = openCalls(s)
		case len(ask.Calls) == 0:
			limit := LimitOf(ask.Reason)
			q.Limit = &limit
		}
		a, ok, err := d.front.Person.Answer(ctx, q)
		switch {
		case err != nil || !ok:
			return false, asked, err
		}
		// They may have thought about it for too long.
		if expired, err := d.expire(ctx, r, s); expired || err != nil {
			return expired, asked, err
		}
		switch {
		case q.Limit != nil && a.Decision == "":
			granted, err := q.Limit.More(a.Text)
			if err == nil {
				granted.By = agent.NameOf(d.who)
				_, err = r.Add(ctx, s.Run, agent.Addition{Granted: &granted})
			}
			return err == nil, asked, err
		case a.Decision == journal.DecisionAnswer:
			if word.Result, err = AnswerJSON(ask.Schema, a.Text); err != nil {
				return false, asked, err
			}
		}
		word.Client = a.Client
		if word.Calls, word.Reason, word.Remember = a.Calls, a.Reason, a.Remember; a.Decision != journal.DecisionMixed {
			word.Decision = a.Decision
		}
	}
	_, err = r.Decide(ctx, s.Run, word)
	return err == nil, asked, err
}

// coveredByAll makes the decision of --approve all: it approves every open call but those
// that only a person can answer. It returns false if there was nothing to decide.
func coveredByAll(s *agent.State, word *agent.Decision) bool {
	person := map[string]bool{}
	if s.Turn != nil {
		for _, c := range s.Turn.Calls {
			person[c.ID] = c.Verdict.ForAPerson()
		}
	}
	open := openCalls(s)
	calls := make(map[string]journal.CallDecision, len(open))
	for _, c := range open {
		if !person[c.ID] {
			calls[c.ID] = journal.CallDecision{Decision: journal.DecisionApprove}
		}
	}
	switch len(calls) {
	case 0:
		return false
	case len(open):
		word.Decision = journal.DecisionApprove
	default:
		word.Calls = calls
	}
	return true
}

// expireAll denies what a run waits for, itself or by runs below it, and has waited for
// too long (approvals.expire).
func (d *drive) expireAll(ctx context.Context, r *agent.Runner, run toolcrib.RunID) error {
	all, err := r.AllWaiting(ctx, run)
	if err != nil {
		return err
	}
	for _, at := range all {
		if _, err := d.expire(ctx, r, at); err != nil && !errors.Is(err, toolcrib.ErrConflict) {
			return err
		}
	}
	return nil
}

// expire denies a decision that a run has waited for too long.
func (d *drive) expire(ctx context.Context, r *agent.Runner, at *agent.State) (expired bool, err error) {
	return r.Expire(ctx, at.Run, d.s.expireAfter())
}

// runner makes a runner that writes something down about a run, and asks no model.
func (s *Service) runner(rec store.RunRecord) (*agent.Runner, error) {
	g, err := s.gateOfRun(context.Background(), rec)
	if err != nil {
		return nil, err
	}
	d := &drive{s: s, gate: g, models: &models.Choice{}, workspace: rec.Workspace}
	options, err := d.options()
	if err != nil {
		return nil, err
	}
	return agent.New(options)
}
