package service

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/agent/core"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/service/env"
	"github.com/toolcrib/toolcrib/service/models"
	"github.com/toolcrib/toolcrib/service/policy"
	"github.com/toolcrib/toolcrib/service/worker"
	"github.com/toolcrib/toolcrib/store"
	"github.com/toolcrib/toolcrib/team"
)

// ResumeRequest is a request to resume a run that is parked, decided on, or interrupted.
type ResumeRequest struct {
	Run string // name as for [Service.FindRun]
	// Approve applies to calls that need an approval; "" parks the run. A run that was started with approve all or deny
	// keeps that setting.
	Approve agent.Approve
	Add     journal.Granted // what the run may use in addition
	Model   string          // model that continues it; "" means the run's own
	Message string          // read by the model before it continues
	Decided bool            // it was just decided on, so the driver of the run above may continue it
	Once    string          // from [Once], for [Pool.Resume]; "" means that an identical request resumes it again

	// Subscription follows the run, for [Pool.Resume]. It may be nil.
	Subscription *worker.Subscription

	onlyAdds bool // nothing is driven, so the workspace need not be here
}

// ElsewhereError reports that another process drives the run at the top, and will continue the run below that was to be
// resumed.
type ElsewhereError struct{ Run, Top toolcrib.RunID }

func (e *ElsewhereError) Error() string {
	return fmt.Sprintf("another process is running run %s, and continues %s, too", e.Top, e.Run)
}

// Resume continues a run where its journal ends, and drives it as [Service.Start] does. If another run started it, the
// run at the top is resumed.
func (s *Service) Resume(ctx context.Context, who toolcrib.Principal, q ResumeRequest, f Front) (Run, error) {
	state, err := s.resume(ctx, who, q, f)
	return s.outcome(ctx, who, state, err)
}

func (s *Service) resume(ctx context.Context, who toolcrib.Principal, q ResumeRequest, f Front) (*agent.State, error) {
	if fork, err := s.forkUnanswered(ctx, who, &q); err != nil {
		return nil, err
	} else if fork != nil {
		return s.fork(ctx, who, *fork, f)
	}
	a, err := s.hold(ctx, who, &q, f)
	if err != nil {
		return nil, err
	}
	run := a.state.Run
	return a.carry(ctx, a.state, func(ctx context.Context, r *agent.Runner) (*agent.State, error) {
		if f.SincePause && f.Watch != nil {
			a.sincePause(ctx, 0)
		}
		if len(a.missing) > 0 && a.state.Epochs > 0 { // the start of a run reports them itself
			if _, err := r.Note(ctx, run, a.missing); err != nil {
				return nil, err
			}
		}
		if err := a.add(ctx, r, &q); err != nil {
			return nil, err
		}
		if err := a.expireAll(ctx, r, run); err != nil {
			return nil, err
		}
		return r.Resume(ctx, run)
	})
}

// forkUnanswered returns the fork that continues a run which has ended without an answer of its model, because a run
// that has ended does not change. It returns nil if the run can be resumed.
func (s *Service) forkUnanswered(ctx context.Context, who toolcrib.Principal, q *ResumeRequest) (*ForkRequest, error) {
	if err := s.Env.OpenFor(ctx, who); err != nil {
		return nil, err
	}
	rec, top, err := s.toResume(ctx, who, q)
	if err != nil || top.ID != rec.ID || !rec.Status.Ended() {
		return nil, err
	}
	state, err := agent.Load(ctx, s.Env.Store, rec.ID)
	if err != nil {
		return nil, err
	}
	fork := s.continuing(state)
	if fork.failed = team.Incomplete(state); fork.failed {
		fork.why[0].Code, fork.why[0].Message = core.NoticeRetry, fmt.Sprintf("run %s has ended without all answers; this one asks the failed agents again", state.Run)
	} else if !state.Unanswered() {
		return nil, nil
	}
	fork.Prompt, fork.Model, fork.Approve = q.Message, q.Model, cmp.Or(fork.Approve, q.Approve)
	fork.Once, fork.Subscription = q.Once, q.Subscription
	return fork, nil
}

// continuing returns the request for a run that continues one which has ended without an answer.
func (s *Service) continuing(state *agent.State) *ForkRequest {
	code := core.NoticeReplyEmpty
	if state.LastFailed != nil {
		code = core.NoticeRetry
	}
	return &ForkRequest{
		why: []toolcrib.Notice{{
			Code:    code,
			Message: fmt.Sprintf("run %s has ended without an answer; this one continues it and asks the model again", state.Run),
		}},
		Run: string(state.Run), Approve: s.keptApprove(state),
	}
}

// added appends what a request adds to a run, and does not drive the run.
func (s *Service) added(ctx context.Context, who toolcrib.Principal, q ResumeRequest) error {
	q.onlyAdds = true
	a, err := s.hold(ctx, who, &q, Front{})
	if err != nil {
		return err
	}
	_, err = a.carry(ctx, a.state, func(ctx context.Context, r *agent.Runner) (*agent.State, error) {
		return nil, a.add(ctx, r, &q)
	})
	return err
}

// resumed is a run that is about to be resumed. Its drive holds it.
type resumed struct {
	*drive
	state  *agent.State       // state of the run at the top
	named  toolcrib.RunID     // run that the request names
	chosen *journal.ModelInfo // new model, or nil
}

// resumeChild drives a run that another server has handed over, until it ends or parks. Its gate is that of the run at
// the top.
func (s *Service) resumeChild(ctx context.Context, who toolcrib.Principal, run toolcrib.RunID, f Front) (*agent.State,
	error,
) {
	if err := s.Env.OpenFor(ctx, who); err != nil {
		return nil, err
	}
	rec, err := s.Env.Store.Run(ctx, run)
	if err != nil {
		return nil, err
	}
	top, err := s.Env.Top(ctx, rec)
	if err != nil {
		return nil, err
	}
	g, err := s.gateOfRun(ctx, top)
	if err != nil {
		return nil, err
	}
	a, err := s.holdRun(ctx, who, rec, &ResumeRequest{}, f)
	if err != nil {
		return nil, err
	}
	if len(a.missing) > 0 { // the server of its caller may have what is missing
		a.release()
		return nil, toolcrib.Errorf(toolcrib.CodeConflict, "run %s is not continued here: %s", run, a.missing[0].Message)
	}
	a.gate, a.child = g, true
	return a.carry(ctx, a.state, func(ctx context.Context, r *agent.Runner) (*agent.State, error) {
		return r.ResumeChild(ctx, run)
	})
}

func (s *Service) hold(ctx context.Context, who toolcrib.Principal, q *ResumeRequest, f Front) (*resumed, error) {
	if err := s.Env.OpenFor(ctx, who); err != nil {
		return nil, err
	}
	named, rec, err := s.toResume(ctx, who, q)
	switch {
	case err != nil:
		return nil, err
	case q.Decided: // the process that drove it may be about to release it
		if err = s.awaitFree(ctx, rec.ID, named.ID); rec.ID == named.ID && errors.As(err, new(*ElsewhereError)) {
			err = nil // takeUp reports which process
		}
	case rec.ID == named.ID:
	default:
		s.Env.Notice(fmt.Sprintf("run %s is part of run %s; the run at the top continues", named.ID, named.Parent))
	}
	if err != nil {
		return nil, err
	}
	a, err := s.holdRun(ctx, who, rec, q, f)
	if err != nil {
		return nil, err
	}
	a.named = named.ID
	for _, n := range a.missing {
		s.Env.Notice(n.Message)
	}
	s.reportFourEyes(who, a.state.Start.Principal.User, a.approve, s.Env.Notice)
	return a, nil
}

// holdRun claims a run, and returns it with its drive.
func (s *Service) holdRun(ctx context.Context, who toolcrib.Principal, rec store.RunRecord, q *ResumeRequest, f Front) (
	_ *resumed, err error,
) {
	stopped, stop := context.WithCancelCause(context.Background())
	leave, err := s.takeUp(ctx, rec, stop)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			leave()
		}
	}()
	a := &resumed{}
	if a.state, err = agent.Load(ctx, s.Env.Store, rec.ID); err != nil {
		return nil, err
	}
	if a.state.Ended() {
		return nil, toolcrib.Errorf(toolcrib.CodeConflict, "run %s (%s) has ended; there is nothing to resume", rec.ID,
			a.state.Status)
	}
	if who.Token != "" && a.state.Start.Principal.Token != who.Token {
		// The token's scope would not apply to it.
		return nil, toolcrib.Errorf(toolcrib.CodeScopeInsufficient, "run %s was not started by this access token, so it "+
			"would continue without its scope; resume it without the token", rec.ID)
	}
	if !q.onlyAdds {
		if err = s.Env.CheckSite(rec.ID, a.state.Start.Site); err == nil {
			err = s.checkWorkspace(a.state)
		}
		if err != nil {
			return nil, err
		}
	}
	approve := cmp.Or(s.keptApprove(a.state), q.Approve, agent.ApproveNone)
	needed := a.state.Model
	if q.Model != "" || f.work != nil { // for a worker, the run itself reports the errors of its model
		needed = -1
	}
	if a.drive, a.chosen, err = s.driveAgain(a.state, needed, who, approve, q.Model, f); err != nil {
		return nil, err
	}
	a.stopped, a.stop = stopped, stop
	a.take(rec.ID, leave)
	return a, nil
}

// KeptApprove returns the setting for calls that need an approval with which the run of a request was started and that
// still applies, or "".
func (s *Service) KeptApprove(ctx context.Context, who toolcrib.Principal, q ResumeRequest) (agent.Approve, error) {
	if err := s.Env.OpenFor(ctx, who); err != nil {
		return "", err
	}
	_, rec, err := s.toResume(ctx, who, &q)
	if err != nil {
		return "", err
	}
	state, err := agent.Load(ctx, s.Env.Store, rec.ID)
	if err != nil {
		return "", err
	}
	return s.keptApprove(state), nil
}

func (s *Service) keptApprove(state *agent.State) agent.Approve {
	switch own := agent.Approve(state.Start.Approve); {
	case own == agent.ApproveAll && s.Env.Config.Approvals.FourEyes: // it was a decision of the user of the run
	case own == agent.ApproveAll, own == agent.ApproveDeny:
		return own
	}
	return ""
}

// add appends what a request adds to a run, before the run continues. If runs below wait for their providers, the model
// is for them, and if one waits for its limit, the grant is for that one.
func (a *resumed) add(ctx context.Context, r *agent.Runner, q *ResumeRequest) error {
	by := agent.NameOf(a.who)
	more := agent.Addition{Model: a.chosen, By: by, Once: q.Once}
	if granted := q.Add; granted != (journal.Granted{}) {
		granted.By, granted.Token = by, a.who.TokenID()
		more.Granted = &granted
	}
	if q.Message != "" {
		more.Message = &q.Message
	}
	var below []toolcrib.RunID // runs that get the model instead
	var limited []string       // runs that get the grant instead
	if a.chosen != nil || more.Granted != nil {
		all, err := r.AllWaiting(ctx, a.named)
		if err != nil {
			return err
		}
		for _, at := range all {
			switch {
			case at.Run == a.named:
			case a.chosen != nil && at.Pending.Kind == journal.PendingProvider:
				below, more.Model = append(below, at.Run), nil
			case more.Granted != nil && at.Pending.AsksForMore():
				limited = append(limited, string(at.Run))
			}
		}
	}
	if len(limited) > 1 {
		return toolcrib.Errorf(toolcrib.CodeConflict, "%d runs below run %s wait for their limits; resume each with what "+
			"is to be added: %s", len(limited), a.named, strings.Join(limited, ", "))
	}
	// First the additions that may be refused, which change nothing if the request is repeated. Last those that are added
	// each time.
	if more.Model != nil && len(limited) > 0 {
		below, more.Model = append(below, a.named), nil
	}
	for _, run := range below {
		if _, err := r.Add(ctx, run, agent.Addition{Model: a.chosen, By: by}); err != nil {
			return err
		}
	}
	if len(limited) > 0 {
		a.s.Env.Notice(fmt.Sprintf("run %s, which waits for its limit, gets what is added", limited[0]))
		if _, err := r.Add(ctx, toolcrib.RunID(limited[0]), agent.Addition{Granted: more.Granted, By: by}); err != nil {
			return fmt.Errorf("run %s, which waits for its limit: %w", limited[0], err)
		}
		more.Granted = nil
	}
	if more == (agent.Addition{By: by}) {
		return nil
	}
	_, err := r.Add(ctx, a.named, more)
	return err
}

// ForkRequest is a request for a new run from a round of another one.
type ForkRequest struct {
	Run     string        // name as for [Service.FindRun]
	Round   int           // round before which it begins, from 1; 0 means the last
	Prompt  string        // next message, or ""
	Model   string        // model of the new run; "" means that of the old one
	Approve agent.Approve // "" parks the run
	Admin   bool          // as in [StartRequest]
	Once    string        // as in [StartRequest]

	Subscription *worker.Subscription // as in [StartRequest]

	why    []toolcrib.Notice // notices at the beginning of the new run
	failed bool              // ask the failed agents of a team again
}

// Fork starts a new run from a round of another one, and drives it as [Service.Start] does.
func (s *Service) Fork(ctx context.Context, who toolcrib.Principal, q ForkRequest, f Front) (Run, error) {
	state, err := s.fork(ctx, who, q, f)
	return s.outcome(ctx, who, state, err)
}

func (s *Service) fork(ctx context.Context, who toolcrib.Principal, q ForkRequest, f Front) (*agent.State, error) {
	if err := s.Env.OpenFor(ctx, who); err != nil {
		return nil, err
	}
	rec, err := s.Env.Find(ctx, who, q.Run)
	if err != nil {
		return nil, err
	}
	old, err := agent.Load(ctx, s.Env.Store, rec.ID)
	if err != nil {
		return nil, err
	}
	if s.Env.Driver == env.DriverServer { // a person at the command line knows where it is
		err = s.Env.CheckSite(rec.ID, old.Start.Site)
	}
	if err == nil {
		err = s.checkWorkspace(old)
	}
	if err != nil {
		return nil, err
	}
	round, approve := q.Round, cmp.Or(q.Approve, agent.ApproveNone)
	if round == 0 {
		round = max(old.Iterations, 1)
	}
	needed := old.Model
	if q.Model != "" {
		needed = -1
	}
	d, chosen, err := s.driveAgain(old, needed, who, approve, q.Model, f)
	if err != nil {
		return nil, err
	}
	return d.carry(ctx, nil, func(ctx context.Context, r *agent.Runner) (*agent.State, error) {
		task, err := r.Forked(ctx, rec.ID, round, policy.RunsAs(who, q.Admin), q.Prompt, approve)
		if err != nil {
			return nil, err
		}
		if q.failed {
			if err := team.Again(old, &task); err != nil {
				return nil, err
			}
			if err := s.rejoin(ctx, old, &task); err != nil {
				return nil, err
			}
		}
		if chosen != nil {
			task.Agent.Model, task.Agent.Fallback, task.Models = chosen.Ref, nil, []journal.ModelInfo{*chosen}
		}
		if task.Site, err = s.Env.Site(); err != nil {
			return nil, err
		}
		task.Driver, task.Once, task.Notices = s.Env.Driver, q.Once, append(d.missing, q.why...)
		prompt := toolcrib.TextMessage(toolcrib.RoleUser, q.Prompt)
		taint, why, err := s.retrace(ctx, who.User, []toolcrib.Message{prompt})
		if err != nil {
			return nil, err
		}
		if task.Taint = append(slices.Clip(task.Taint), taint...); why != nil {
			task.Notices = append(task.Notices, *why)
		}
		return r.Run(ctx, task)
	})
}

// rejoin makes a run that continues the last run of a session of its user part of that session.
func (s *Service) rejoin(ctx context.Context, old *agent.State, task *agent.Task) error {
	session, user := old.Start.Session, task.Principal.User
	if session == "" || user != old.Start.Principal.User {
		return nil
	}
	last, err := store.LastRun(ctx, s.Env.Store, user, session)
	if err == nil && last.ID == old.Run {
		task.Session, task.Before = session, old.SessionUse()
	}
	return err
}

// checkWorkspace returns an error unless the workspace of a stored run is here.
func (s *Service) checkWorkspace(state *agent.State) error {
	if info, err := os.Stat(state.Start.Workspace); err != nil || !info.IsDir() {
		return fmt.Errorf("the workspace of run %s, %s, no longer exists; put it back, or cancel the run", state.Run,
			state.Start.Workspace)
	}
	return nil
}

// driveAgain returns the drive of a stored run under the current configuration. If model is not empty, it opens and
// returns that model. needed is the index of the model of the run that has to open, or -1 for none.
func (s *Service) driveAgain(
	state *agent.State, needed int, who toolcrib.Principal, approve agent.Approve, model string, f Front,
) (*drive, *journal.ModelInfo, error) {
	start := state.Start
	if team.PlanOf(start) == nil && needed >= 0 && needed < len(state.Models) { // a run of one given call has none
		if err := s.Models.Reopens(state.Models[needed]); err != nil {
			return nil, nil, err
		}
	}
	opened := &models.Choice{}
	var chosen *journal.ModelInfo
	if model != "" {
		infos, err := s.Models.Resolve(opened, &toolcrib.Agent{Name: start.Agent.Name, Model: model}, s.Env.Notice)
		if err != nil {
			return nil, nil, err
		}
		chosen = &infos[0]
	}
	noBus := s.Bus.NeedTools(context.Background(), state.Offer.Names())
	g, err := s.Policy.GateFor(start.Workspace, start)
	if err != nil {
		return nil, nil, err
	}
	d := &drive{s: s, front: f, who: who, approve: approve, models: opened, workspace: start.Workspace, gate: g}
	d.missing = s.MCP.Need(context.Background(), start.Offer.Names(), g)
	if noBus != nil {
		d.missing = append(d.missing, busNotice(noBus))
	}
	if texts := s.Policy.UnknownNames(d.gate, &start.Agent, start.RunTools); len(texts) > 0 {
		s.Env.Notice(fmt.Sprintf("run %s of %s: %s", state.Run, start.Principal.User, strings.Join(texts, "; ")))
	}
	return d, chosen, nil
}

// takeUp claims the run for this process.
func (s *Service) takeUp(ctx context.Context, rec store.RunRecord, stop func(error)) (leave func(), err error) {
	if rec.Driver != "" && rec.Driver != s.Env.Driver && !rec.Status.Ended() {
		why := "it belongs to the command line that started it, and is resumed there"
		if rec.Driver == env.DriverServer {
			why = ToContinue(rec.Driver, rec.ID, s.Env.Self)
		}
		return nil, toolcrib.Errorf(toolcrib.CodeConflict, "run %s is not resumed here: %s", rec.ID, why)
	}
	if leave, err = s.Drivers.Drive(ctx, rec.ID, stop); errors.Is(err, store.ErrLeased) {
		by := cmp.Or(s.Drivers.Processes(ctx, rec.ID)[rec.ID], "another process") // which may have released it since
		err = toolcrib.Errorf(toolcrib.CodeConflict,
			"run %s is active: %s is running it; `toolcrib runs events %s --follow` shows it, `toolcrib runs cancel %s` ends it",
			rec.ID, by, rec.ID, rec.ID)
	}
	return leave, err
}

// freeWait is how long the process that drives the runs above may take to release a run that was decided on, and
// freeLook how often the run is looked at.
const (
	freeWait = 3 * time.Second
	freeLook = 50 * time.Millisecond
)

// awaitFree waits until a run is free. It returns an [*ElsewhereError] if another process continues the run, which
// continues the runs below when the other calls of its turn are done.
func (s *Service) awaitFree(ctx context.Context, run, part toolcrib.RunID) error {
	for end := time.Now().Add(freeWait); ; {
		leave, err := s.Drivers.Take(ctx, run, nil)
		if err == nil {
			leave() // takeUp claims it again
			return nil
		}
		if !errors.Is(err, store.ErrLeased) {
			return err
		}
		if time.Now().After(end) {
			return &ElsewhereError{Run: part, Top: run}
		}
		if err := worker.Pause(ctx, freeLook); err != nil {
			return err
		}
	}
}

// toResume returns the run that a request names, and the run at the top, which is resumed. After a decision about a
// run, the person who decided may resume it.
func (s *Service) toResume(ctx context.Context, who toolcrib.Principal, q *ResumeRequest) (rec, top store.RunRecord,
	err error,
) {
	if !q.Decided {
		rec, err = s.Env.Find(ctx, who, q.Run)
	} else if rec, err = s.Env.Store.Run(ctx, toolcrib.RunID(q.Run)); err == nil && !env.Decides(who, &rec) {
		err = toolcrib.Errorf(toolcrib.CodeNotFound, "there is no run %s", q.Run)
	}
	if err != nil {
		return rec, rec, err
	}
	top, err = s.Env.Top(ctx, rec)
	switch {
	case err != nil, top.ID == rec.ID:
	case rec.Status.Ended():
		err = toolcrib.Errorf(toolcrib.CodeConflict,
			"run %s (%s) has ended; there is nothing to resume; it was part of run %s", rec.ID, rec.Status, top.ID)
	case top.Status.Ended():
		err = toolcrib.Errorf(toolcrib.CodeConflict,
			"run %s is part of run %s, which has ended (%s); `%s runs cancel %s` ends it", rec.ID, top.ID, top.Status,
			s.Env.Self, rec.ID)
	}
	return rec, top, err
}

// sincePause sends the events before a number, or all if that is 0, that are in no stream: those that another process
// has written since this one last read or wrote the run, such as the decision. For a resumed run they begin after its
// last pause, because earlier events were in the stream of its driver.
func (d *drive) sincePause(ctx context.Context, before toolcrib.Seq) {
	var since []toolcrib.Event
	known := d.seen
	passes := known > 0
	for e, err := range d.s.Env.Store.Read(ctx, d.top, known) {
		if err != nil {
			d.front.SincePause = false
			d.s.Env.Notice(fmt.Sprintf("the events since the pause cannot be written: %v; %s runs events %s --json has it", err,
				d.s.Env.Self, d.top))
			return
		}
		if before > 0 && e.Seq >= before {
			break
		}
		d.seen = e.Seq
		if _, ok := e.Body.(*journal.Paused); ok && known == 0 {
			since, passes = since[:0], true
		} else if passes {
			since = append(since, e)
		}
	}
	for _, e := range since {
		if f, ok := journal.View(d.top, e); ok {
			d.front.Watch(f)
		}
	}
}
