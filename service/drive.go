package service

import (
	"context"
	"crypto/cipher"
	"errors"
	"log/slog"
	"os"
	"strconv"
	"sync"

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

// Start starts a run of an agent and drives it until it ends or parks. The run has no ID if it is not in the journal;
// an error means that it was interrupted.
func (s *Service) Start(ctx context.Context, who toolcrib.Principal, r StartRequest, f Front) (Run, error) {
	state, err := s.start(ctx, who, r, f)
	return s.outcome(ctx, who, state, err)
}

// start is Start for the service itself. The state is nil if there is no run.
func (s *Service) start(ctx context.Context, who toolcrib.Principal, r StartRequest, f Front) (*agent.State, error) {
	d, task, err := s.ready(ctx, who, r, f)
	if err != nil {
		return nil, err
	}
	return d.run(ctx, task)
}

// ready returns the task of a request and the drive of its run.
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
	} else if err := s.replaces(ctx, who, r.Replaces, &task); err != nil {
		return nil, task, err
	}
	d, err := p.ready(ctx, &task, f, seen)
	return d, task, err
}

// run starts a run and drives it, as [Service.Start] does. It fills in the parts of the task that come from the agent,
// its session and its skills. If the task names a session, it must also have the history.
func (p *Prepared) run(ctx context.Context, task agent.Task, f Front) (*agent.State, error) {
	d, err := p.ready(ctx, &task, f, policy.Paths{})
	if err != nil {
		return nil, err
	}
	return d.run(ctx, task)
}

// ready fills in a task and returns the drive of its run.
func (p *Prepared) ready(ctx context.Context, task *agent.Task, f Front, seen policy.Paths) (*drive, error) {
	if err := p.s.Env.OpenFor(ctx, p.Who); err != nil {
		return nil, err
	}
	if p.Session != nil && task.Session == "" {
		if err := p.into(ctx, task); err != nil {
			return nil, err
		}
	}
	g, err := p.theGate(seen) // it reads the current policy
	if err != nil {
		return nil, err
	}
	if err := p.fill(ctx, task, p.tell, seen); err != nil {
		return nil, err
	}
	p.reportUnknown()
	p.needMCP(ctx, task)
	return &drive{s: p.s, front: f, who: p.Who, approve: p.Approve, models: p.models, workspace: p.Workspace, gate: g}, nil
}

// A process drives the sub-agents of its run as runs of their own, each under its own lease, or hands them over to
// other servers. Each has its own approvals, but only the run at the top is resumed.

// drive is one run in progress, with everything that it needs.
type drive struct {
	s          *Service
	front      Front
	who        toolcrib.Principal
	approve    agent.Approve // setting of this process for calls that need an approval
	models     *models.Choice
	workspace  string
	gate       *gate.Gate
	log        *slog.Logger
	seen       toolcrib.Seq      // last event that is known, with [Front.SincePause]
	unanswered map[string]bool   // approvals without an answer here, by their IDs
	missing    []toolcrib.Notice // MCP servers that were missing when the run was resumed
	asking     chan struct{}     // has an element while a nested call asks
	stopped    context.Context   // ends when another process asks to cancel the run, or has taken it
	stop       context.CancelCauseFunc
	child      bool // the run at the top is driven by another process, which asks what its runs wait for

	mu      sync.Mutex
	top     toolcrib.RunID            // run that is driven, or "" if it has no ID yet
	taken   map[toolcrib.RunID]func() // the run and those that it started, with functions that release them
	left    bool                      // another process may continue it
	waiting map[string]toolcrib.RunID
}

// run starts the run of a task and drives it.
func (d *drive) run(ctx context.Context, task agent.Task) (*agent.State, error) {
	if d.s.Policy.IsOwn(d.workspace) {
		if err := os.MkdirAll(d.workspace, 0o700); err != nil {
			return nil, err
		}
	}
	return d.carry(ctx, nil, func(ctx context.Context, r *agent.Runner) (*agent.State, error) { return r.Run(ctx, task) })
}

// carry drives the run until it ends, parks, or ctx ends. If the cause is an [agent.CancelError], the run ends as
// cancelled; otherwise it is left to be resumed.
func (d *drive) carry(
	ctx context.Context, before *agent.State, begin func(context.Context, *agent.Runner) (*agent.State, error),
) (*agent.State, error) {
	defer d.release()
	options, err := d.options()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(d.stopped, func() { cancel(context.Cause(d.stopped)) })()
	if options.Approver = d.front.Approver; options.Approver != nil {
		options.Who = d.who
	}
	options.Attended = d.front.Person != nil
	runner, err := agent.New(options)
	if err != nil {
		return nil, err
	}
	if d.front.Driving != nil {
		d.front.Driving(d.s.beforeDriving(ctx, before))
	}
	state, err := begin(ctx, runner)
	if err == nil && state != nil && !d.child {
		state, err = d.resumeAnswered(ctx, runner, state)
	}
	runner.Release() // before another process can continue the run
	if err == nil {
		d.announceLeft(ctx, state)
	}
	// Some tools may not have ended with the run.
	ending, end := context.WithTimeout(context.WithoutCancel(ctx), worker.ToolGrace)
	defer end()
	if late := runner.Wait(ending); late != nil {
		d.log.WarnContext(ctx, "tools were left behind", "error", late)
	}
	if errors.Is(err, context.Canceled) {
		err = context.Cause(ctx) // the error itself only says that it was cancelled
	}
	return state, err
}

// beforeDriving returns a run as it is when it is resumed, or nil for a new run.
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

// take records that this drive holds a run until leave is called. The first run is the one that it drives.
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

// leave releases a run that has parked. Any process may continue it, and requests to its driver no longer concern this
// process.
func (d *drive) leave(run toolcrib.RunID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.left = d.left || run == d.top
	if leave := d.taken[run]; leave != nil {
		leave()
	}
}

// release releases all runs that are still held.
func (d *drive) release() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, leave := range d.taken {
		leave()
	}
}

// driven returns the run that is driven. ok is false if it has been released.
func (d *drive) driven() (run toolcrib.RunID, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.top, d.top != "" && !d.left
}

// observed returns the journal of runs as telemetry observes it.
func (s *Service) observed(j toolcrib.Journal) toolcrib.Journal {
	if s.Env.Observe == nil {
		return j
	}
	return s.Env.Observe(j)
}

// options returns the options of the loop.
func (d *drive) options() (agent.Options, error) {
	s, c := d.s, d.s.Env.Config
	var err error
	d.asking = make(chan struct{}, 1)
	if d.stop == nil {
		d.stopped, d.stop = context.WithCancelCause(context.Background())
	}
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
		FourEyes:      c.Approvals.FourEyes, Expires: s.expireAfter(), Ledger: budgets,
		Memory: policy.Memory{Store: s.Env.Store},
		Journal: s.observed(&beforeImages{
			Journal: s.Env.Store, contents: s.Env.Store, mask: s.Env.Mask, workspace: d.workspace, wrote: d.wrote,
		}),
		Contents: s.Env.Store, Gate: d.gate, Mask: s.Env.Mask, Log: d.log,
		Agents: d.subAgent, Models: s.Models.Opening(d.models),
		Host: agent.Host{
			TreeUse: s.Env.Store.TreeUse, Worker: s.workerName(), Version: version.Version(), NewID: d.newID,
			Claim: d.claim, Nested: d.nested, Hurry: d.front.Hurry, Buffers: d.front.Buffers,
			Inbox: s.inbox, Refuses: true, Seal: func() (cipher.AEAD, error) { return s.Env.Sealer("answer") },
		},
	}
	if w := d.front.work; w != nil {
		o.HandOver = w.HandOver
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
			if top, _ := d.driven(); run == top { // runs below have streams of their own
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

// wrote receives the events of a run that were appended.
func (d *drive) wrote(ctx context.Context, run toolcrib.RunID, events []toolcrib.Event) {
	d.s.Drivers.Wrote(run, events)
	if run != d.top {
		return
	}
	if d.front.SincePause && d.front.Watch != nil {
		if first := events[0].Seq; first > d.seen+1 { // another process has written meanwhile
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
	if run := toolcrib.RunID(id); prefix == "run_" {
		d.take(run, d.s.Drivers.Begin(run, d.stop))
	}
	return id
}

func (d *drive) subAgent(ctx context.Context, who toolcrib.Principal, name, workspace string) (agent.Task, error) {
	tell := func(text string) { d.s.Env.Notice(name + ": " + text) }
	return d.s.subAgent(ctx, d.models, who, name, workspace, tell)
}

func (d *drive) claim(ctx context.Context, run toolcrib.RunID) (release func(), err error) {
	var leave func()
	if w := d.front.work; w != nil {
		leave, err = w.TakeChild(ctx, run, d.stop)
	} else {
		leave, err = d.s.Drivers.TakeChild(ctx, run, d.stop, nil)
	}
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	before := d.taken[run]
	d.mu.Unlock()
	d.take(run, leave)
	if before != nil { // held since it got its ID; the claim holds it now
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

// nested continues a call that a running call has made, as long as its questions are answered. It asks one question at
// a time.
func (d *drive) nested(ctx context.Context, r *agent.Runner, state *agent.State) (*agent.State, error) {
	select {
	case d.asking <- struct{}{}:
		defer func() { <-d.asking }()
		return d.resumeAnswered(ctx, r, state)
	case <-ctx.Done():
		return state, nil
	}
}

// resumeAnswered continues a run as long as its questions are answered.
func (d *drive) resumeAnswered(ctx context.Context, r *agent.Runner, state *agent.State) (*agent.State, error) {
	var err error
	for ; err == nil && state.Pending != nil; state, err = r.Resume(ctx, state.Run) {
		answered, err := d.answerEach(ctx, r, state)
		var cancel *agent.CancelError
		switch {
		case err == nil && answered:
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

// answerEach asks for answers to everything that a parked run waits for, itself or in the runs below it. A question
// without an answer holds up no other, and this process does not ask it again. answered is false if all questions are
// still open.
func (d *drive) answerEach(ctx context.Context, r *agent.Runner, s *agent.State) (answered bool, err error) {
	all := []*agent.State{s}
	if s.Pending.Run != "" {
		if all, err = r.AllWaiting(ctx, s.Run); err != nil {
			return false, err
		}
	}
	for _, at := range all {
		if at.Approval == nil || d.unanswered[at.Approval.ApprovalID] {
			continue
		}
		decided, err := d.answer(ctx, r, at)
		switch {
		case ctx.Err() != nil:
			return false, err
		case errors.Is(err, toolcrib.ErrConflict): // it was decided elsewhere while the question was asked here
			decided = true
		case err != nil:
			return false, err
		case !decided:
			if d.unanswered == nil {
				d.unanswered = map[string]bool{}
			}
			d.unanswered[at.Approval.ApprovalID] = true
		}
		answered = answered || decided
	}
	if answered || s.Pending.Run == "" {
		return answered, nil
	}
	waits, err := r.WaitsFor(ctx, s.Run)
	return err == nil && waits == nil, err // it was decided elsewhere meanwhile
}

// answers reports whether this process answers what a run waits for, by asking a person or by its own setting.
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

// answer answers what one run waits for. It asks again until the answer is valid. decided is false if there is no
// answer.
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

// decide answers what a run waits for, by the setting of this process or by asking a person.
func (d *drive) decide(ctx context.Context, r *agent.Runner, s *agent.State, problem string) (decided, asked bool,
	err error,
) {
	ask := s.Approval
	decision := agent.Decision{ApprovalID: ask.ApprovalID, Digest: ask.Digest, Who: d.who}
	call := ask.Kind == journal.ApprovalCall
	switch {
	case d.approve == agent.ApproveDeny && ask.Kind != journal.ApprovalInDoubt:
		decision.Decision, decision.By = journal.DecisionDeny, core.ByUnattended
	case call && d.approve == agent.ApproveAll && coveredByAll(s, &decision):
		decision.By = core.ByAll
	case d.front.Person == nil:
		return false, false, nil
	default:
		asked = true
		q := Question{
			Run: s.Run, Ask: *ask, Another: d.s.NeedsAnother(d.who, s.Start.Principal.User), Problem: problem,
			Nested: s.Start.Given != nil && s.Start.Parent != "", Session: s.Start.Session != "",
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
		// The approval may have expired meanwhile.
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
			if decision.Result, err = AnswerJSON(ask.Schema, a.Text); err != nil {
				return false, asked, err
			}
		}
		decision.Client, decision.Calls, decision.Reason, decision.Remember = a.Client, a.Calls, a.Reason, a.Remember
		if a.Decision != journal.DecisionMixed {
			decision.Decision = a.Decision
		}
	}
	_, err = r.Decide(ctx, s.Run, decision)
	return err == nil, asked, err
}

// coveredByAll fills in the decision of --approve all: it approves every open call except those that only a person can
// approve. It returns false if there are no such calls.
func coveredByAll(s *agent.State, decision *agent.Decision) bool {
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
		decision.Decision = journal.DecisionApprove
	default:
		decision.Calls = calls
	}
	return true
}

// expireAll denies the expired approvals of a run and the runs below it (approvals.expire).
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

// expire denies the approval that a run waits for, if it has expired.
func (d *drive) expire(ctx context.Context, r *agent.Runner, at *agent.State) (expired bool, err error) {
	return r.Expire(ctx, at.Run, d.s.expireAfter())
}

// runner returns a runner that appends to the journal of a run and asks no model.
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
