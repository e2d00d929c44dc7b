package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent/core"
	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/journal"
)

// childFlight has the values with which a call's own run is started and driven. It contains nothing
// that the parent's driver changes.
type childFlight struct {
	call   string
	run    toolcrib.RunID
	sub    journal.Subtask
	share  *journal.Share
	before journal.SessionUse
	parent toolcrib.RunID
	start  *journal.RunStarted // start of the parent
	offer  []string
	taint  []string
	over   bool // its end is in the parent's journal already
	// handOver gives the run to another process, from [Host.HandOver]; nil means that it is driven here.
	handOver func(context.Context, toolcrib.RunID)
	ended    []toolcrib.Body      // set if the run has ended
	parked   *journal.ChildParked // set if the run waits
	fatal    error                // set if the outcome is unknown
}

// givesToChild makes the flight of a call that another agent answers; it is nil if a tool answers the
// call. started is the event to write first.
func (d *driver) givesToChild(c *core.Call, permit *gate.Permit) (f *childFlight, started *journal.ChildStarted,
	none string,
) {
	if !c.ByAgent() {
		return nil, nil, ""
	}
	share, none := d.s.ShareFor(c)
	if none != "" {
		return nil, nil, none
	}
	sub, _ := journal.ReadSubtask(permit.Call().Arguments) // the gate refuses what cannot be read
	f = &childFlight{
		call: c.ID, sub: sub, share: share,
		before: d.s.Start.Before, parent: d.s.Run, start: d.s.Start,
		offer: d.s.PassedTools(), taint: append([]string(nil), d.s.Taint...),
	}
	f.before.Worked += d.driven()
	if c.Child != nil {
		f.run, f.over = c.Child.Run, c.ChildEnd != nil
		return f, nil, ""
	}
	f.run = toolcrib.RunID(d.r.NewID("run_"))
	return f, &journal.ChildStarted{ID: c.ID, Run: f.run, Agent: f.sub.Agent, Share: share}, ""
}

// errNotStarted is the cause of the error of a sub-agent whose run is not in any journal.
var errNotStarted = errors.New("cannot be started")

func (c *childFlight) notStarted(err error) error {
	return fmt.Errorf("agent %s %w: %w", c.sub.Agent, errNotStarted, err)
}

// answerByAgent drives a call's own run, and makes the call's output of its end.
func (x *execution) answerByAgent(f *flight) (toolcrib.Output, error) {
	s, err := x.d.r.child(f.ctx, f.child, f.tell)
	c := f.child
	switch {
	case errors.Is(err, errNotStarted):
		return toolcrib.Output{}, err
	case s != nil && s.Ended():
		c.ended = s.Endings(c.call)
		f.sources = s.Taint
		return childOutput(s)
	case err != nil && f.ctx.Err() != nil:
		return toolcrib.Output{}, err // stopped meanwhile: the result of the call ends its run too
	case err != nil:
		c.fatal = err
	case s.Pending != nil:
		pending := *s.Pending
		if pending.Run == "" {
			pending.Run = s.Run
		}
		c.parked = &journal.ChildParked{ID: c.call, Run: c.run, Status: s.Status, Pending: pending}
	default:
		c.fatal = fmt.Errorf("run %s has neither ended nor parked (%s)", c.run, s.Status)
	}
	return toolcrib.Output{}, nil
}

// child starts a child run, or continues it from the end of its journal. It returns when the run has
// ended or parked, here or in a process to which it was handed over.
func (r *Runner) child(ctx context.Context, c *childFlight, tell func(string, float64)) (*State, error) {
	release, err := r.claim(ctx, c.run)
	if err != nil {
		return nil, err
	}
	defer func() { release() }()
	d, s, err := r.childDriver(ctx, c)
	if d != nil && err == nil && c.handOver != nil {
		if err := d.flush(ctx); err != nil {
			return nil, err
		}
		release()
		c.handOver(ctx, c.run)
		if release, err = r.claim(ctx, c.run); err != nil {
			release = func() {}
			return nil, err
		}
		d, s, err = r.childDriver(ctx, c)
	}
	if d == nil || err != nil {
		return s, err
	}
	if err := d.takes(ctx); err != nil {
		return nil, err
	}
	d.tell = func(text string) { tell(c.sub.Agent+": "+text, -1) }
	return d.s, d.drive(ctx)
}

// claim claims a child run for this process.
func (r *Runner) claim(ctx context.Context, run toolcrib.RunID) (release func(), err error) {
	if r.Claim == nil {
		return func() {}, nil
	}
	if release, err = r.Claim(ctx, run); err != nil {
		return nil, fmt.Errorf("run %s: %w", run, err)
	}
	return release, nil
}

// childDriver returns a driver for a child run, which begins if it is not in the journal yet. The driver
// is nil if the run has ended or waits; then s is its state.
func (r *Runner) childDriver(ctx context.Context, c *childFlight) (d *driver, s *State, err error) {
	read := context.WithoutCancel(ctx) // what the run has become matters if ctx has ended, too
	s, err = r.Load(read, c.run)
	if err != nil && !errors.Is(err, toolcrib.ErrNotFound) {
		return nil, nil, err
	}
	if err != nil || s.Seq == 0 {
		d, err = r.beginChild(ctx, c)
		return d, nil, err
	}
	if err := s.PartOf(c.parent, c.start.Depth); err != nil {
		return nil, nil, err
	}
	if s.Ended() {
		return nil, s, nil
	}
	if waits, err := r.waits(read, s); waits != nil || err != nil {
		return nil, s, err
	}
	if cause := context.Cause(ctx); cause != nil && CancelOf(cause) == nil {
		return nil, nil, cause
	}
	return newDriver(r, s), s, nil
}

// ResumeChild resumes a child run that the process of its parent has handed over (see [Host.HandOver]),
// and drives it like [Runner.Resume]. It is a conflict if the parent does not wait for the run.
func (r *Runner) ResumeChild(ctx context.Context, run toolcrib.RunID) (*State, error) {
	s, err := r.Load(ctx, run)
	if err != nil {
		return nil, err
	}
	if s.Start == nil {
		return s, stateErrorf(s, "has not begun")
	}
	parent, err := r.Load(ctx, s.Start.Parent)
	if err != nil {
		return s, err
	}
	if err := s.PartOf(parent.Run, parent.Start.Depth); err != nil {
		return s, err
	}
	answers := func(c *core.Call) bool {
		return c.Child != nil && c.Child.Run == run && c.ChildEnd == nil && c.Result == nil
	}
	if parent.Stopping != nil || !slices.ContainsFunc(parent.Trace, answers) {
		return s, stateErrorf(s, "is not continued: its caller, run %s, does not wait for it", parent.Run)
	}
	return r.resume(ctx, s)
}

// NoticeUnknownTools lists the tools that a call passes on although they do not exist.
const NoticeUnknownTools = "unknown_tools"

// unknownTools reports the names of tools that do not exist and are dropped.
func (d *driver) unknownTools(names []string) error {
	unknown := d.r.Gate.UnknownNames(names)
	if len(unknown) == 0 {
		return nil
	}
	const most = 10
	text := "unknown tools are ignored: " + guard.Visible(strings.Join(unknown[:min(len(unknown), most)], ", "))
	return d.hold(journal.Noticef(NoticeUnknownTools, "%s", d.r.Mask.Mask(text)))
}

// childTask returns the task of a sub-agent: its own, narrowed by what the calling run passes on. No
// part of it is wider than the calling run.
func (r *Runner) childTask(ctx context.Context, c *childFlight) (Task, error) {
	if r.Agents == nil {
		return Task{}, errors.New("no agents can be started here")
	}
	p := c.start
	task, err := guard.Contain(func() (Task, error) { return r.Agents(ctx, p.Principal, c.sub.Agent, p.Workspace) })
	if err != nil {
		return Task{}, err
	}
	task.Run, task.Parent, task.Depth, task.Driver = c.run, c.parent, p.Depth+1, p.Driver
	task.Site = p.Site
	task.Principal, task.Session, task.Workspace, task.Before = p.Principal, p.Session, p.Workspace, c.before
	task.Prompt, task.RunTools, task.WorkerTools = c.sub.Task, c.sub.Tools, c.offer
	task.Above, task.Share, task.Taint, task.Ran = passedOn(p), c.share, c.taint, ranBefore(p.Ran)
	if task.Approve = Approve(p.Approve); task.Approve != ApproveAll && task.Approve != ApproveDeny {
		task.Approve = ApproveNone // the run at the top asks the Approver
	}
	if r.Shape != nil {
		err = r.Shape(ctx, p, c.call, &task)
	}
	return task, err
}

// passedOn returns the restrictions of a run on those that it starts, except its offer.
func passedOn(p *journal.RunStarted) *journal.Above {
	a := journal.Above{TaintWrites: gate.TaintAllow}
	if p.Above != nil {
		a = *p.Above
		a.SkillTools = append([][]string(nil), a.SkillTools...)
	}
	if p.SkillTools != nil {
		a.SkillTools = append(a.SkillTools, p.SkillTools)
	}
	a.ReadOnly = a.ReadOnly || p.Agent.ReadOnly
	if a.TaintWrites = stricter(a.TaintWrites, p.Agent.TaintWrites); a.TaintWrites == "" {
		a.TaintWrites = gate.TaintAsk
	}
	a.MaxDepth = smaller(a.MaxDepth, p.Agent.Limits.MaxDepth)
	a.Session = sessionLimits(&p.Agent, p.Above)
	return &a
}

// errChildCancelled is the outcome of a child run that was cancelled.
var errChildCancelled = errors.New("the sub-agent was cancelled")

// childOutput returns the output of a call's own run. An answer that may be incomplete says so. The
// text of a failure is for users of a server; the provider's message is in the journal of the run.
func childOutput(s *State) (toolcrib.Output, error) {
	name := s.Start.Agent.Name
	out := toolcrib.Output{Untrusted: len(s.Taint) > 0, Source: "agent " + name}
	switch {
	case s.Status == toolcrib.StatusCancelled:
		return out, errChildCancelled
	case s.Done != nil && s.Done.StopReason == toolcrib.StopCompleted && !s.Done.Truncated:
		out.Text = s.Done.Content
		return out, nil
	case s.Done != nil && strings.TrimSpace(s.Done.Content) != "":
		why := string(s.Done.StopReason)
		if s.Done.StopReason == toolcrib.StopCompleted {
			why = "its answer was cut"
		}
		out.Text = fmt.Sprintf("[agent %s stopped early (%s); this may be incomplete]\n%s", name, why, s.Done.Content)
		return out, nil
	case s.Done != nil:
		why := ""
		if s.Stopping != nil {
			why = s.Stopping.Message
		}
		out.JSON, out.IsError = childError(name, "stopped without an answer", s.Done.StopReason, why, ""), true
	default:
		failed := s.Failed
		if public, ok := journal.Public(failed).(*journal.Error); ok {
			failed = public
		}
		out.IsError = true
		out.JSON = childError(name, "failed", failed.StopReason, failed.Text(), strings.TrimSpace(failed.Content))
	}
	return out, nil
}

// childError makes the result of a call whose agent gave no answer, with the last text of that agent.
func childError(name, what string, reason toolcrib.StopReason, why, lastWords string) []byte {
	text := fmt.Sprintf("agent %s %s (%s)", name, what, reason)
	if why != "" {
		text += ": " + why
	}
	raw, _ := journal.EncodeJSON(struct { // strings can always be encoded
		Error      string              `json:"error"`
		StopReason toolcrib.StopReason `json:"stop_reason"`
		LastWords  string              `json:"last_words,omitempty"`
	}{toolcrib.Failf(toolcrib.ExecutionFailed, "%s", text).Error(), reason, lastWords})
	return raw
}

// endChild ends the run of a call that gets another result, and returns the events to write for it, if
// any.
func (d *driver) endChild(ctx context.Context, c *core.Call) ([]toolcrib.Body, error) {
	if c.Child == nil || c.ChildEnd != nil || c.Result != nil {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), appendGrace)
	defer cancel()
	s, err := d.r.Load(ctx, c.Child.Run)
	switch {
	case errors.Is(err, toolcrib.ErrNotFound), err == nil && s.Seq == 0:
		return []toolcrib.Body{&journal.ChildEnded{
			ID: c.ID, Run: c.Child.Run, Status: toolcrib.StatusCancelled,
			StopReason: toolcrib.StopCancelled,
		}}, nil
	case err != nil && d.s.Stopping != nil && ctx.Err() == nil:
		// A damaged journal cannot be driven; it must not keep this run from ending.
		d.r.Log.ErrorContext(ctx, "the journal of a child run cannot be read", "run", d.s.Run, "child", c.Child.Run, "error",
			d.r.Mask.Mask(err.Error()))
		return []toolcrib.Body{&journal.ChildEnded{
			ID: c.ID, Run: c.Child.Run, Status: toolcrib.StatusFailed,
			StopReason: toolcrib.StopWorkerLost,
		}}, nil
	case err != nil:
		return nil, err
	}
	if err := s.PartOf(d.s.Run, d.s.Start.Depth); err != nil {
		return nil, err
	}
	if !s.Ended() {
		if s, err = d.r.cancelChild(ctx, s.Run, &CancelError{By: "run " + string(d.s.Run)}); err != nil {
			return nil, err
		}
	}
	return s.Endings(c.ID), nil
}

// cancelChild cancels a child run. A process that drives it can end it first; one that takes too long
// is stopped by the fence of the journal.
func (r *Runner) cancelChild(ctx context.Context, run toolcrib.RunID, by *CancelError) (*State, error) {
	ended, end := context.WithCancelCause(ctx)
	end(by)
	if release, err := r.claim(ended, run); err == nil {
		defer release()
	}
	if s, err := r.Load(ctx, run); err != nil || s.Ended() {
		return s, err
	}
	return r.Cancel(ctx, run, by)
}

// beginChild makes a child run that is not in the journal yet. A run that is stopped before then never
// begins.
func (r *Runner) beginChild(ctx context.Context, c *childFlight) (*driver, error) {
	if c.over {
		return nil, c.notStarted(errors.New("its run was stopped before it began"))
	}
	task, err := r.childTask(ctx, c)
	if err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		return nil, c.notStarted(err)
	}
	d, err := r.begin(ctx, task)
	if toolcrib.CodeOf(err) == toolcrib.CodeBadRequest {
		return nil, c.notStarted(err)
	}
	if err != nil {
		return nil, err
	}
	return d, d.unknownTools(task.RunTools)
}

// ChildRun is the core's account of a call that another agent answers, from the current state. Replay
// compares it with the journals.
type ChildRun struct {
	Agent, Task string
	Tools       []string
	Share       *journal.Share // nil means no cap
	None        string         // why the run may not start, or ""
	Above       *journal.Above
	Offer       []string // the tools that the calling run passes on
}

// ChildOf returns the child run of a call of the current turn. It is pure.
func ChildOf(s *State, callID string) ChildRun {
	c, err := s.Find(callID)
	if err != nil {
		return ChildRun{None: err.Error()}
	}
	sub, _ := journal.ReadSubtask(c.JudgedArguments()) // the gate refuses what cannot be read
	r := ChildRun{Agent: sub.Agent, Task: sub.Task, Tools: sub.Tools, Above: passedOn(s.Start), Offer: s.PassedTools()}
	r.Share, r.None = s.ShareFor(c)
	return r
}
