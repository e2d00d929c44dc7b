package agent

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/journal"
)

// childFlight is what a call's own run is started and driven with. It holds nothing
// that the parent's driver changes.
type childFlight struct {
	call   string
	run    toolcrib.RunID
	sub    gate.Subtask
	share  *journal.Share
	before journal.SessionUse
	parent toolcrib.RunID
	start  *journal.RunStarted // of the parent
	offer  []string
	taint  []string
	over   bool                 // its end is written down already
	ended  []toolcrib.Body      // the run has ended
	parked *journal.ChildParked // or it waits
	fatal  error                // or it cannot be told what became of it
}

// givesToChild makes the flight of a call that another agent answers; nil = a tool
// does. started is what has to be written down before it.
func (d *driver) givesToChild(c *Call, permit *gate.Permit) (f *childFlight, started *journal.ChildStarted,
	none string,
) {
	if !c.byAgent() {
		return nil, nil, ""
	}
	share, none := d.s.shareFor(c)
	if none != "" {
		return nil, nil, none
	}
	f = &childFlight{
		call: c.ID, sub: gate.ReadSubtask(permit.Call().Arguments), share: share,
		before: d.s.Start.Before, parent: d.s.Run, start: d.s.Start,
		offer: d.s.passedTools(), taint: append([]string(nil), d.s.Taint...),
	}
	f.before.Worked += d.driven()
	if c.Child != nil {
		f.run, f.over = c.Child.Run, c.ChildEnd != nil
		return f, nil, ""
	}
	f.run = toolcrib.RunID(d.r.NewID("run_"))
	return f, &journal.ChildStarted{ID: c.ID, Run: f.run, Agent: f.sub.Agent, Share: share}, ""
}

// errNotStarted is the cause of an error of a sub-agent of whose run nothing is written
// down.
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
		c.ended = s.endings(c.call)
		f.sources = s.Taint
		return childOutput(s)
	case err != nil && f.ctx.Err() != nil:
		return toolcrib.Output{}, err // told to end meanwhile: whoever answers the call ends its run, too
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

// child starts a child run, or continues it where its journal ends.
func (r *Runner) child(ctx context.Context, c *childFlight, tell func(string, float64)) (*State, error) {
	if r.Claim != nil {
		release, err := r.Claim(c.run)
		if err != nil {
			return nil, fmt.Errorf("run %s: %w", c.run, err)
		}
		defer release()
	}
	s, err := r.Load(ctx, c.run)
	if err != nil && !errors.Is(err, toolcrib.ErrNotFound) {
		return nil, err
	}
	var d *driver
	if err != nil || s.Seq == 0 {
		d, err = r.beginChild(ctx, c)
		if err == nil {
			err = d.hold(d.takenUp())
		}
	} else {
		if err := s.partOf(c.parent, c.start.Depth); err != nil {
			return nil, err
		}
		if s.Ended() {
			return s, nil
		}
		if waits, err := r.waits(ctx, s); waits != nil || err != nil {
			return s, err
		}
		d = newDriver(r, s)
		// At once, as whoever resumes a run does: what ends one driver after the other
		// must not go on forever.
		err = d.append(ctx, d.takenUpAgain(ctx))
	}
	if err != nil {
		return nil, err
	}
	d.tell = func(text string) { tell(c.sub.Agent+": "+text, -1) }
	return d.s, d.drive(ctx)
}

// NoticeUnknownTools names the tools that a call passes on although they do not exist.
const NoticeUnknownTools = "unknown_tools"

// unknownTools notes the names that mean no tool and are dropped (contract §6).
func (d *driver) unknownTools(names []string) error {
	unknown := d.r.Gate.UnknownNames(names)
	if len(unknown) == 0 {
		return nil
	}
	const most = 10
	text := strings.Join(unknown[:min(len(unknown), most)], ", ")
	return d.hold(notice(NoticeUnknownTools, "%s", d.r.Mask.Mask("unknown tools are ignored: "+guard.Visible(text))))
}

// childTask is the task of a sub-agent: what it is by itself, and what the calling run
// passes on. Nothing of it is wider than the calling run.
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
	task.Principal, task.Session, task.Workspace, task.Before = p.Principal, p.Session, p.Workspace, c.before
	task.Prompt, task.RunTools, task.WorkerTools = c.sub.Task, c.sub.Tools, c.offer
	task.Above, task.Share, task.Taint, task.Ran = passedOn(p), c.share, c.taint, ranBefore(p.Ran)
	if task.Approve = Approve(p.Approve); task.Approve != ApproveAll && task.Approve != ApproveDeny {
		task.Approve = ApproveNone // whoever sits there is asked by the run at the top
	}
	if r.Shape != nil {
		err = r.Shape(ctx, p, c.call, &task)
	}
	return task, err
}

// passedOn is how a run narrows those that it starts, besides its offer.
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

// ending is what a parent keeps of the end of this run.
func (s *State) ending(call string) *journal.ChildEnded {
	used := s.Used()
	e := &journal.ChildEnded{ID: call, Run: s.Run, Status: s.Status, Usage: used.Usage, Runs: used.Runs, Bytes: used.Bytes}
	if s.Done != nil {
		e.StopReason = s.Done.StopReason
	} else if s.Failed != nil {
		e.StopReason = s.Failed.StopReason
	}
	return e
}

// errChildCancelled is the end of a child run that was cancelled.
var errChildCancelled = errors.New("the sub-agent was cancelled")

// childOutput is what a call's own run has come to. An answer that may lack something
// says so. Of a failure it says what users of a server may read; what a provider said is in
// the journal of the run.
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

// childError is the result of a call whose agent gave no answer, and what it had said before.
func childError(name, what string, reason toolcrib.StopReason, why, lastWords string) []byte {
	text := fmt.Sprintf("agent %s %s (%s)", name, what, reason)
	if why != "" {
		text += ": " + why
	}
	raw, _ := journal.EncodeJSON(struct { // strings can always be written
		Error      string              `json:"error"`
		StopReason toolcrib.StopReason `json:"stop_reason"`
		LastWords  string              `json:"last_words,omitempty"`
	}{toolcrib.Failf(toolcrib.ExecutionFailed, "%s", text).Error(), reason, lastWords})
	return raw
}

// endChild ends the run of a call that is answered without it, and returns what is to
// be written down of that; nil = nothing.
func (d *driver) endChild(ctx context.Context, c *Call) ([]toolcrib.Body, error) {
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
		// A damaged journal can be driven by nobody; it must not keep this run from ending.
		d.r.Log.ErrorContext(ctx, "the journal of a child run cannot be read", "run", d.s.Run, "child", c.Child.Run, "error",
			d.r.Mask.Mask(err.Error()))
		return []toolcrib.Body{&journal.ChildEnded{
			ID: c.ID, Run: c.Child.Run, Status: toolcrib.StatusFailed,
			StopReason: toolcrib.StopWorkerLost,
		}}, nil
	case err != nil:
		return nil, err
	}
	if err := s.partOf(d.s.Run, d.s.Start.Depth); err != nil {
		return nil, err
	}
	if !s.Ended() {
		if s, err = d.r.Cancel(ctx, c.Child.Run, &CancelError{By: "run " + string(d.s.Run)}); err != nil {
			return nil, err
		}
	}
	return s.endings(c.ID), nil
}

// beginChild makes a child run, which is not written down yet. What is told to end by
// then never begins.
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

// partOf says what is wrong if this is no run that the other one has started. Depth grows
// from run to run, so that whoever follows them comes to an end.
func (s *State) partOf(parent toolcrib.RunID, depth int) error {
	if s.Start != nil && s.Start.Parent == parent && s.Start.Depth == depth+1 {
		return nil
	}
	return fmt.Errorf("run %s is not part of run %s: the journal is damaged; `runs verify` shows where", s.Run, parent)
}

// ChildRun is what the core makes of a call that another agent answers, as things stand:
// replay compares it with what the journals say.
type ChildRun struct {
	Agent, Task string
	Tools       []string
	Share       *journal.Share // nil = no cap
	None        string         // why it may not start; "" = it may
	Above       *journal.Above
	Offer       []string // what the calling run passes on
}

// ChildOf makes it of a call of the current turn. It is pure.
func ChildOf(s *State, callID string) ChildRun {
	c, err := s.find(callID)
	if err != nil {
		return ChildRun{None: err.Error()}
	}
	sub := gate.ReadSubtask(c.judgedArguments())
	r := ChildRun{Agent: sub.Agent, Task: sub.Task, Tools: sub.Tools, Above: passedOn(s.Start), Offer: s.passedTools()}
	r.Share, r.None = s.shareFor(c)
	return r
}

// EndOf is what the run that made a call keeps of the end of this one. It is pure.
func EndOf(s *State, callID string) *journal.ChildEnded { return s.ending(callID) }
