package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent/core"
	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/journal"
)

// driver drives one run, on one goroutine. All its appends, folds and frames go through the driver, in
// order.
type driver struct {
	r     *Runner
	s     *State
	model toolcrib.Model // the model of s.Model, opened at first use
	index int            // index of the open model
	tools string         // how the open model takes tools
	// read has the arguments of the last reply's calls, by call ID. It is lost in a run that is resumed.
	read map[string]*gate.Arguments
	// verdicts are the gate's verdicts on the current turn, with their permits. A verdict is used only
	// if the journal has the same.
	verdicts []gate.Verdict
	judged   time.Time               // time of the verdicts
	held     []toolcrib.Event        // folded, but not written yet
	wrote    bool                    // something was written down
	hurry    <-chan *CancelError     // of [Options.Hurry]; nil in child runs
	cancel   context.CancelCauseFunc // cancels the run
	tell     func(string)            // reports a child run's activity to the watchers of its parent; nil in other runs

	drives bool          // it has resumed the run, or is about to
	at     time.Duration // value of worked at the last event
	waited time.Duration // time spent waiting for a provider

	wall    context.Context // ends when the run's wall time does
	unwall  context.CancelFunc
	wallEnd time.Time
	writing context.Context // context of appends: it outlives the driver's context

	behind *behind
	unread bool             // the journal has refused a request for messages
	unseen []toolcrib.Delta // memory for [deltaView.unseen]
}

// verdict returns the gate's verdict on a call of the current turn, or nil if this driver has not
// judged it.
func (d *driver) verdict(callID string) *gate.Verdict {
	for i := range d.verdicts {
		if d.verdicts[i].CallID == callID {
			return &d.verdicts[i]
		}
	}
	return nil
}

// permit returns the gate's permit for a call of the current turn. Without one it returns the zero
// permit, which runs nothing.
func (d *driver) permit(callID string) *gate.Permit {
	if v := d.verdict(callID); v != nil {
		return &v.Permit
	}
	return &gate.Permit{}
}

func newDriver(r *Runner, s *State) *driver {
	return &driver{r: r, s: s, index: -1, drives: true, at: r.Clock.Awake()}
}

// worked returns the time that the driver has worked, excluding the time when the machine sleeps and
// when the run waits for a provider.
func (d *driver) worked() time.Duration { return d.r.Clock.Awake() - d.waited }

// Run starts a task and drives it to its end, or until it parks. If the run could not be recorded, the
// state is nil. The start of the run is written together with its first event.
func (r *Runner) Run(ctx context.Context, task Task) (*State, error) {
	d, err := r.begin(ctx, task)
	if err != nil {
		return nil, err
	}
	if err := d.takes(ctx); err != nil {
		return nil, err
	}
	err = d.drive(ctx)
	if !d.wrote {
		return nil, err
	}
	return d.s, err
}

// Load folds the journal of a run.
func (r *Runner) Load(ctx context.Context, run toolcrib.RunID) (*State, error) {
	return Load(ctx, r.Journal, run)
}

// Load folds the journal of a run.
func Load(ctx context.Context, j toolcrib.Journal, run toolcrib.RunID) (*State, error) {
	return loadUntil(ctx, j, run, func(toolcrib.Event) bool { return false })
}

// loadUntil folds the journal of a run, up to the first event for which end returns true.
func loadUntil(ctx context.Context, j toolcrib.Journal, run toolcrib.RunID, end func(toolcrib.Event) bool) (*State,
	error,
) {
	s := core.NewState(run)
	for e, err := range j.Read(ctx, run, 0) {
		if err != nil {
			return nil, err
		}
		if end(e) {
			break
		}
		if err := core.Fold(s, e); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// Resume resumes a run from the end of its journal, and drives it to its end, or until it parks. A run
// that waits for a decision is returned unchanged; one that has ended is a conflict. The caller must
// hold the lock that prevents two drivers on one machine. If there are two anyway, the journal's fence
// lets one continue, and the other gets [toolcrib.ErrConflict].
func (r *Runner) Resume(ctx context.Context, run toolcrib.RunID) (*State, error) {
	s, err := r.Load(ctx, run)
	if err != nil {
		return nil, err
	}
	return r.resume(ctx, s)
}

// resume is Resume for a run whose journal was read.
func (r *Runner) resume(ctx context.Context, s *State) (*State, error) {
	if s.Ended() {
		return s, stateErrorf(s, "has ended; `runs fork` starts a new run from one of its turns")
	}
	if waits, err := r.waits(ctx, s); waits != nil || err != nil {
		return s, err
	}
	return s, r.drive(ctx, s)
}

// errState marks a conflict that is not a race of two writers.
var errState = errors.New("the run is in another state")

// stateErrorf returns the error for a request that the state of the run does not permit.
func stateErrorf(s *State, format string, args ...any) error {
	e := toolcrib.Errorf(toolcrib.CodeConflict, "run %s (%s) "+format, append([]any{s.Run, s.Status}, args...)...)
	e.Err = errState
	return e
}

// raced reports whether an append failed because another writer was first.
func raced(err error) bool { return errors.Is(err, toolcrib.ErrConflict) && !errors.Is(err, errState) }

// drive continues a run until it ends, parks, or ctx ends. If the cause of ctx is a [CancelError], the
// run ends as cancelled; with any other cause it is left as it is and can be resumed.
func (r *Runner) drive(ctx context.Context, s *State) error {
	d := newDriver(r, s)
	if err := d.takes(ctx); err != nil {
		return err
	}
	return d.drive(ctx)
}

// takes records that this driver has the run: with its next event for the first driver, and at once
// for each later one, since a run that ends one driver after another must not be retried forever.
func (d *driver) takes(ctx context.Context) error {
	if d.s.Epochs == 0 {
		return d.hold(d.takenUp())
	}
	return d.append(ctx, d.takenUpAgain(ctx))
}

// takenUpAgain returns the event for resuming a run that had other drivers.
func (d *driver) takenUpAgain(ctx context.Context) *journal.TakenUp {
	taken := d.takenUp()
	if d.s.Turn == nil {
		return taken
	}
	for _, c := range d.s.Turn.Open() {
		if c.Child == nil || c.ChildEnd != nil {
			continue
		}
		// A child run that cannot be read makes no progress; other problems show when it is needed.
		if below, err := d.r.Load(context.WithoutCancel(ctx), c.Child.Run); err == nil && below.Seq > 0 && !below.Ended() {
			taken.Children++
		}
	}
	return taken
}

func (d *driver) takenUp() *journal.TakenUp {
	return &journal.TakenUp{Worker: d.r.Worker, Epoch: d.s.Epochs + 1}
}

func (d *driver) drive(ctx context.Context) error {
	ctx, d.cancel = context.WithCancelCause(ctx)
	defer d.cancel(nil)
	if d.s.Start.Parent == "" {
		d.hurry = d.r.Hurry
	}
	defer d.unbound()
	defer d.lasts(ctx)()
	err := d.run(ctx)
	if cause := context.Cause(ctx); cause != nil && errors.Is(err, cause) && !d.s.Ended() {
		// The run is to be left as it is.
		err = errors.Join(err, d.hold(&journal.Released{Cause: cause.Error()}))
	}
	return errors.Join(err, d.flush(ctx))
}

// run carries out one step after another.
func (d *driver) run(ctx context.Context) error {
	s := d.s
	for {
		if !s.Ended() && s.Pending == nil {
			if err := d.hold(d.behind.takeNoted()...); err != nil {
				return err
			}
		}
		step := core.Next(s)
		if step.Kind == core.StepAsk {
			heard, err := d.listen(ctx, step)
			if err != nil {
				return err
			}
			if heard {
				continue
			}
		}
		if step.Kind == core.StepNone || step.Kind == core.StepWait && (s.Stopping != nil || d.stopped(ctx) == nil) {
			return nil
		}
		at := s.Seq
		if err := d.carry(ctx, step); err != nil {
			return err
		}
		if len(d.held) > maxHeld {
			if err := d.flush(ctx); err != nil {
				return err
			}
		}
		if s.Seq == at && !(d.unread && step.Kind == core.StepAsk) {
			// Only a damaged journal can lead here: each step records its effects, and an append is
			// all or nothing.
			return fmt.Errorf("run %s: step %q after event %d leads nowhere: the journal is damaged; `runs verify` shows where",
				s.Run, step.Kind, at)
		}
	}
}

// carry carries out one step. Afterwards the state has advanced, or there is an error.
func (d *driver) carry(ctx context.Context, step core.Step) error {
	if stop := d.stopped(ctx); stop != nil && d.s.Stopping == nil {
		return d.append(ctx, stop)
	}
	if err := context.Cause(ctx); err != nil && d.s.Stopping == nil {
		return err
	}
	switch step.Kind {
	case core.StepAsk:
		return d.ask(ctx, step)
	case core.StepJudge:
		return d.judge(ctx)
	case core.StepConfirm:
		return d.confirm(ctx, step)
	case core.StepPark:
		return d.park(ctx, step)
	case core.StepSettle:
		return d.settleLost(ctx)
	case core.StepReconcile:
		return d.reconcile(ctx)
	case core.StepExecute:
		return d.execute(ctx)
	case core.StepChildren:
		return d.children(ctx)
	case core.StepAnswer:
		return d.answer(ctx, step.Answers)
	case core.StepStop:
		return d.append(ctx, &journal.Stopping{Reason: step.Reason, Message: step.Message})
	case core.StepCondense:
		return d.condense(ctx, step)
	case core.StepCheck:
		return d.check(ctx)
	case core.StepFinish:
		return d.finish(ctx, step)
	}
	return fmt.Errorf("agent: no way to carry out step %q", step.Kind)
}

// stopped returns the stop of a run that must end early now, or nil.
func (d *driver) stopped(ctx context.Context) *journal.Stopping {
	cause := context.Cause(ctx)
	if cause == nil && d.wallLeft() > 0 {
		return nil
	}
	var cancel *CancelError
	above := cause != nil && d.s.Start != nil && d.s.Start.Parent != "" && errors.Is(cause, errWallTime) &&
		d.wallLeft() > 0
	switch {
	case above:
		return &journal.Stopping{Reason: toolcrib.StopWallTime, Message: byWallTime + " is used up"}
	case cause == nil, errors.Is(cause, errWallTime):
		return d.wallStop()
	case errors.As(cause, &cancel):
		return &journal.Stopping{Reason: toolcrib.StopCancelled, Message: cancel.Error(), By: cancel.By, Token: cancel.Token}
	}
	return nil
}

// driven returns how long the run has been driven so far.
func (d *driver) driven() time.Duration {
	if !d.s.Held {
		return d.s.Driven
	}
	return d.s.Driven + d.worked() - d.at
}

// wallLeft returns the remaining wall time of the run, or of its session if that is less.
func (d *driver) wallLeft() time.Duration {
	worked := d.driven()
	left := d.s.Limits().WallTime - worked
	if ofSession, bounded := d.sessionTime(worked); bounded {
		return min(left, ofSession)
	}
	return left
}

// wallStop returns the stop of a run whose wall time, or whose session's, is used up.
func (d *driver) wallStop() *journal.Stopping {
	stop := &journal.Stopping{Reason: toolcrib.StopWallTime}
	worked, own := d.driven(), d.s.Limits().WallTime
	if left, bounded := d.sessionTime(worked); bounded && left <= own-worked {
		stop.By = BySession
		stop.Message = fmt.Sprintf("session.wall_time: %s used up by the runs of the session", left+worked+d.s.Start.Before.Worked)
		return stop
	}
	stop.Message = fmt.Sprintf("limits.wall_time: %s used up", own)
	return stop
}

// wallDrift is how far the end of the wall time may move before its context is replaced. It moves
// while a person decides, and while the run waits for a provider.
const wallDrift = 10 * time.Millisecond

// bounded returns a context that ends with the run's wall time. It returns the same one until that
// time moves; the context ends with the drive at the latest.
func (d *driver) bounded(ctx context.Context) context.Context {
	left := max(d.wallLeft(), 0)
	if d.wall != nil && (time.Until(d.wallEnd)-left).Abs() <= wallDrift {
		return d.wall
	}
	d.unbound()
	d.wallEnd = time.Now().Add(left)
	d.wall, d.unwall = context.WithTimeoutCause(ctx, left, errWallTime)
	return d.wall
}

func (d *driver) unbound() {
	if d.unwall != nil {
		d.unwall()
		d.wall, d.unwall = nil, nil
	}
}

// appendGrace bounds an append after the run's own context has ended, since events that happened must
// still be recorded.
const appendGrace = 30 * time.Second

// maxHeld bounds the events that wait for the next flush.
const maxHeld = 256

// clockDrift is how far the time between two events may differ from the time worked before the latter
// is recorded.
const clockDrift = time.Second

// hold folds events and keeps them for the next flush, which comes before anything outside depends on
// them: before a request is sent, a call is launched, a person is asked, or the run ends. Commits are
// expensive, and events that are lost with a driver before a flush had no effect: the reply is
// requested again, the read is repeated.
func (d *driver) hold(bodies ...toolcrib.Body) error {
	if len(bodies) == 0 {
		return nil
	}
	now := d.r.Clock.Now().UTC().Truncate(time.Microsecond)
	bodies = d.workerNotices(bodies)
	if d.held == nil {
		d.held = make([]toolcrib.Event, 0, max(len(bodies), 8))
	}
	worked := time.Duration(0)
	if d.drives {
		worked = d.worked() - d.at
		d.at += worked
	}
	if passed := now.Sub(d.s.Updated); d.s.Held && (passed-worked).Abs() >= clockDrift {
		bodies = append([]toolcrib.Body{&journal.Worked{MS: worked.Milliseconds()}}, bodies...)
	}
	for _, b := range bodies {
		e := toolcrib.Event{Seq: d.s.Seq + 1, Time: now, Body: b}
		if err := core.Fold(d.s, e); err != nil {
			return err
		}
		d.held = append(d.held, e)
		if r, ok := b.(*journal.ToolResult); ok && r.Status != toolcrib.ResultOK && r.FaultRef == "" {
			d.logUnsuccessful(r)
		}
	}
	return nil
}

// logUnsuccessful logs a call that was refused, failed, or ended early (C17). A fault is logged with
// its detail when it happens.
func (d *driver) logUnsuccessful(r *journal.ToolResult) {
	const most = 300
	text := string(r.Status)
	if r.Reason != "" {
		text += " (" + string(r.Reason) + ")"
	}
	d.r.Log.Info("tool execution failed", "run", d.s.Run, "name", r.Name, "call", r.ToolCallID, "error",
		text+": "+strings.ToValidUTF8(r.Content[:min(len(r.Content), most)], ""))
}

// append writes events, together with those held, and shows them.
func (d *driver) append(ctx context.Context, bodies ...toolcrib.Body) error {
	if err := d.hold(bodies...); err != nil {
		return err
	}
	return d.flush(ctx)
}

// flush writes the events that are held. It works even after ctx has ended, since the journal must not
// lose what has already happened.
func (d *driver) flush(ctx context.Context) error {
	if len(d.held) == 0 {
		return nil
	}
	ended := ctx.Err() != nil
	if d.writing == nil {
		d.writing = context.WithoutCancel(ctx)
	}
	ctx = d.writing
	if ended {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, appendGrace)
		defer cancel()
	}
	events := d.held
	d.held = nil
	if err := d.r.Journal.Append(ctx, d.s.Run, d.s.Seq-toolcrib.Seq(len(events)), events...); err != nil {
		return fmt.Errorf("run %s: %w", d.s.Run, err)
	}
	d.wrote = true
	d.notifyParent(events)
	if d.r.Watch != nil {
		for _, e := range events {
			if f, ok := journal.View(d.s.Run, e); ok {
				d.r.Watch(d.s.Run, f)
			}
		}
	}
	clear(events)
	d.held = events[:0] // a journal may keep the events, but not the slice
	return nil
}

// notifyParent reports events of a child run to the watchers of its parent.
func (d *driver) notifyParent(events []toolcrib.Event) {
	if d.tell == nil {
		return
	}
	for _, e := range events {
		switch b := e.Body.(type) {
		case *journal.ModelRequest:
			d.tell("round " + strconv.Itoa(b.Iteration))
		case *journal.ToolStarted:
			d.tell(b.Name)
		case *journal.Paused:
			if b.Status == toolcrib.StatusWaitingForProvider {
				d.tell("waits for its provider")
				continue
			}
			d.tell("waits for a person")
		}
	}
}

// logs reports whether successes are logged.
func (d *driver) logs(ctx context.Context) bool { return d.r.Log.Enabled(ctx, slog.LevelInfo) }

// live shows a frame that is not stored.
func (d *driver) live(event string, data any) {
	if d.r.Watch != nil {
		d.r.Watch(d.s.Run, journal.Frame{Event: event, Data: data})
	}
}

// answer answers open calls without running them.
func (d *driver) answer(ctx context.Context, answers []core.Answer) error {
	bodies := make([]toolcrib.Body, 0, len(answers))
	for _, a := range answers {
		ended, err := d.endChild(ctx, a.Call)
		if err != nil {
			return err
		}
		bodies = append(bodies, ended...)
		r := a.Call.NewResult(a.Status, a.Content)
		if r.Reason = a.Reason; a.Raw != nil {
			opt := guard.FitOptions{MaxBytes: d.s.Limits().MaxResultBytes, Masker: d.r.Mask}
			if err := d.finished(ctx, a.Call, r, &toolcrib.Output{JSON: a.Raw}, opt); err != nil {
				return err
			}
		}
		bodies = append(bodies, r)
	}
	return d.append(ctx, bodies...)
}

// finish ends the run. Before a normal end it reads any new message; the inbox is read only if the
// journal has refused the end.
func (d *driver) finish(ctx context.Context, step core.Step) error {
	for look := !d.listens(ctx, step); ; look = true {
		var unread int
		if look {
			if heard, err := d.listen(ctx, step); heard || err != nil {
				return err
			}
			said, err := d.inbox(context.WithoutCancel(ctx))
			if err != nil {
				return err
			}
			unread = len(said)
		}
		held := d.held
		err := d.end(ctx, step, unread)
		if !errors.Is(err, journal.ErrUnread) {
			return err
		}
		if err := d.rewind(ctx, err, held); err != nil {
			return err
		}
	}
}

// end writes the end of the run. unread is the number of messages that were not read.
func (d *driver) end(ctx context.Context, step core.Step, unread int) error {
	var bodies []toolcrib.Body
	switch {
	case unread == 1:
		bodies = append(bodies, journal.Noticef(core.NoticeUnread, "a message to the run came too late: its end was decided"))
	case unread > 1:
		bodies = append(bodies, journal.Noticef(core.NoticeUnread, "%d messages to the run came too late: its end was decided", unread))
	}
	if step.Status == toolcrib.StatusCompleted && step.Reason == toolcrib.StopCompleted && step.Truncated {
		bodies = append(bodies, journal.Noticef(core.NoticeOutputTruncated, "the answer was cut by the model's output limit"))
	}
	if step.Reason == toolcrib.StopBudgetExhausted && step.Message != "" {
		bodies = append(bodies, journal.Noticef(string(step.Reason), "%s", step.Message))
	}
	if step.Status == toolcrib.StatusFailed {
		bodies = append(bodies, &journal.Error{
			Code: step.Code, Class: step.Class, Message: step.Message, Ref: step.Ref,
			Status: step.Status, StopReason: step.Reason,
			Content: step.Content, Truncated: step.Truncated, Iterations: d.s.Iterations, Usage: d.s.Usage,
			Unread: unread,
		})
	} else {
		bodies = append(bodies, &journal.Done{
			Status: step.Status, StopReason: step.Reason, Content: step.Content,
			Truncated: step.Truncated, Iterations: d.s.Iterations, Usage: d.s.Usage, Unread: unread,
		})
	}
	text := "tool loop complete, returning text response"
	if step.Status != toolcrib.StatusCompleted {
		text = "tool loop ended without an answer"
	}
	err := d.append(ctx, bodies...)
	if err == nil {
		d.r.Log.InfoContext(ctx, text, "run", string(d.s.Run), "iteration", d.s.Iterations, "stop_reason",
			string(step.Reason))
	}
	return err
}
