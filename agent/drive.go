package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/journal"
)

// driver carries one run, on one goroutine. All appends, folds and frames of the
// run go through it, in order.
type driver struct {
	r     *Runner
	s     *State
	model toolcrib.Model // of s.Model, opened at first use
	index int            // the model that is open
	tools string         // how it takes tools
	// verdicts are the gate's answers to the current turn, with their permits.
	// Only what the journal says too is ever used of them.
	verdicts []gate.Verdict
	judged   time.Time        // when they were made
	held     []toolcrib.Event // folded, and not written down yet
	wrote    bool             // something was written down
	tell     func(string)     // of a child run: what it does, for the watchers of its parent; nil = nobody

	drives bool          // it has taken the run up, or goes to
	at     time.Duration // of worked, at the last event
	waited time.Duration // for a provider

	wall    context.Context // ends when the run's wall time does
	unwall  context.CancelFunc
	wallEnd time.Time
	writing context.Context // what appends are made with: it does not end with the driver's

	behind behind
	noted  noted
	unread bool             // the journal has refused a request for messages
	unseen []toolcrib.Delta // memory for [shower.unseen]
}

// verdict is the gate's answer to a call of the current turn; nil = it was not
// judged by this driver.
func (d *driver) verdict(callID string) *gate.Verdict {
	for i := range d.verdicts {
		if d.verdicts[i].CallID == callID {
			return &d.verdicts[i]
		}
	}
	return nil
}

// permit is the gate's leave for a call of the current turn; without one, the zero
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

// worked is a clock that runs while the driver works: it stands still while the machine
// sleeps, and while the run waits for a provider.
func (d *driver) worked() time.Duration { return d.r.Clock.Awake() - d.waited }

// Run starts a task and drives it to its end, or until it parks. The state is nil
// if the run could not be written down. That it was started and taken up is written
// down together with the first thing that it does.
func (r *Runner) Run(ctx context.Context, task Task) (*State, error) {
	d, err := r.begin(ctx, task)
	if err != nil {
		return nil, err
	}
	if err := d.hold(d.takenUp()); err != nil {
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

// loadUntil folds the journal of a run up to an event.
func loadUntil(ctx context.Context, j toolcrib.Journal, run toolcrib.RunID, end func(toolcrib.Event) bool) (*State,
	error,
) {
	s := NewState(run)
	for e, err := range j.Read(ctx, run, 0) {
		if err != nil {
			return nil, err
		}
		if end(e) {
			break
		}
		if err := Fold(s, e); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// Resume takes a run up where its journal ends, and drives it to its end, or until
// it parks. A run that waits for a decision is returned as it is; one that has
// ended is a conflict. The caller holds the lock that keeps two drivers of
// one machine apart; should there be two anyway, the journal's fence lets
// one of them go on, and the other gets [toolcrib.ErrConflict].
func (r *Runner) Resume(ctx context.Context, run toolcrib.RunID) (*State, error) {
	s, err := r.Load(ctx, run)
	if err != nil {
		return nil, err
	}
	if s.Ended() {
		return s, stateErrorf(s, "has ended; `runs fork` starts a new run from one of its turns")
	}
	if waits, err := r.waits(ctx, s); waits != nil || err != nil {
		return s, err
	}
	return s, r.drive(ctx, s)
}

// errState is the cause of a conflict that is not between two writers.
var errState = errors.New("the run is in another state")

// stateErrorf says that a run is not in a state for what was asked.
func stateErrorf(s *State, format string, args ...any) error {
	e := toolcrib.Errorf(toolcrib.CodeConflict, "run %s (%s) "+format, append([]any{s.Run, s.Status}, args...)...)
	e.Err = errState
	return e
}

// raced reports whether an append failed because another writer was first.
func raced(err error) bool { return errors.Is(err, toolcrib.ErrConflict) && !errors.Is(err, errState) }

// drive continues a run until it ends, parks, or ctx ends. If ctx ends with a
// [CancelError] the run ends as cancelled; with any other cause it is left as it
// is, to be taken up again.
func (r *Runner) drive(ctx context.Context, s *State) error {
	d := newDriver(r, s)
	if s.Epochs == 0 { // with the first thing that it does, as in Run
		if err := d.hold(d.takenUp()); err != nil {
			return err
		}
		return d.drive(ctx)
	}
	if err := d.append(ctx, d.takenUpAgain(ctx)); err != nil {
		return err
	}
	return d.drive(ctx)
}

// takenUpAgain says that this driver has taken up a run that others have driven.
func (d *driver) takenUpAgain(ctx context.Context) *journal.TakenUp {
	taken := d.takenUp()
	if d.s.Turn == nil {
		return taken
	}
	for _, c := range d.s.Turn.open() {
		if c.Child == nil || c.ChildEnd != nil {
			continue
		}
		// One that cannot be read achieves nothing; what else is wrong shows when it is
		// needed.
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
	defer d.unbound()
	defer d.lasts(ctx)()
	err := d.run(ctx)
	if cause := context.Cause(ctx); cause != nil && errors.Is(err, cause) && !d.s.Ended() {
		// It was told to leave the run as it is.
		err = errors.Join(err, d.hold(&journal.Released{Cause: cause.Error()}))
	}
	return errors.Join(err, d.flush(ctx))
}

// lasts lets tools run work beside their calls until the function that it returns is called,
// which waits for them.
func (d *driver) lasts(ctx context.Context) (end func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	d.behind.ctx = ctx
	return func() {
		d.behind.mu.Lock()
		cancel(errLetGo)
		d.behind.mu.Unlock()
		d.behind.all.Wait()
	}
}

// errLetGo is why what runs beside the calls of a run ends.
var errLetGo = errors.New("stopped with the run")

// behind is what tools run beside their calls.
type behind struct {
	mu  sync.Mutex
	ctx context.Context // ends when the driver releases the run
	all sync.WaitGroup
}

// runBehind runs work of a tool until the driver releases the run; false if it has.
func (d *driver) runBehind(work func(ctx context.Context)) bool {
	b := &d.behind
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ctx == nil || b.ctx.Err() != nil {
		return false
	}
	b.all.Go(func() {
		_, err := guard.Contain(func() (struct{}, error) {
			work(b.ctx)
			return struct{}{}, nil
		})
		if err != nil {
			d.r.Log.Error("work beside a call failed", "run", d.s.Run, "error", d.r.Mask.Clean(err.Error()+guard.Stack(err)))
		}
	})
	return true
}

// noted are the notices of tools that are not yet written down.
type noted struct {
	mu  sync.Mutex
	all []toolcrib.Body
}

// maxNoted bounds them; more are dropped.
const maxNoted = 64

// noteOf takes a notice of a tool.
func (d *driver) noteOf(n toolcrib.Notice) {
	d.noted.mu.Lock()
	defer d.noted.mu.Unlock()
	if len(d.noted.all) < maxNoted {
		d.noted.all = append(d.noted.all, notice(n.Code, "%s", d.r.Mask.Clean(n.Message)))
	}
}

// takeNoted returns the notices of tools, and forgets them.
func (d *driver) takeNoted() (all []toolcrib.Body) {
	d.noted.mu.Lock()
	defer d.noted.mu.Unlock()
	all, d.noted.all = d.noted.all, nil
	return all
}

// run carries out one step after the other.
func (d *driver) run(ctx context.Context) error {
	s := d.s
	for {
		if !s.Ended() && s.Pending == nil {
			if err := d.hold(d.takeNoted()...); err != nil {
				return err
			}
		}
		step := Next(s)
		if step.Kind == StepAsk {
			heard, err := d.listen(ctx, step)
			if err != nil {
				return err
			}
			if heard {
				continue
			}
		}
		if step.Kind == StepNone || step.Kind == StepWait && (s.Stopping != nil || d.stopped(ctx) == nil) {
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
		if s.Seq == at && !(d.unread && step.Kind == StepAsk) {
			// Only a journal with holes can bring a run here: each step writes down
			// what it did, and an append is all or nothing.
			return fmt.Errorf("run %s: step %q after event %d leads nowhere: the journal is damaged; `runs verify` shows where",
				s.Run, step.Kind, at)
		}
	}
}

// carry carries out one step. Whatever the step was, the state has moved on
// afterwards, or there is an error.
func (d *driver) carry(ctx context.Context, step Step) error {
	if stop := d.stopped(ctx); stop != nil && d.s.Stopping == nil {
		return d.append(ctx, stop)
	}
	if err := context.Cause(ctx); err != nil && d.s.Stopping == nil {
		return err
	}
	switch step.Kind {
	case StepAsk:
		return d.ask(ctx, step)
	case StepJudge:
		return d.judge(ctx)
	case StepConfirm:
		return d.confirm(ctx, step)
	case StepPark:
		return d.park(ctx, step)
	case StepSettle:
		return d.settleLost(ctx)
	case StepReconcile:
		return d.reconcile(ctx)
	case StepExecute:
		return d.execute(ctx)
	case StepChildren:
		return d.children(ctx)
	case StepAnswer:
		return d.answer(ctx, step.Answers)
	case StepStop:
		return d.append(ctx, &journal.Stopping{Reason: step.Reason, Message: step.Message})
	case StepCondense:
		return d.condense(ctx, step)
	case StepCheck:
		return d.check(ctx)
	case StepFinish:
		return d.finish(ctx, step)
	}
	return fmt.Errorf("agent: no way to carry out step %q", step.Kind)
}

// stopped reports whether the run is to end early now: nil = no.
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
		return &journal.Stopping{Reason: toolcrib.StopWallTime, Message: "limits.wall_time of a calling run is used up"}
	case errors.As(cause, &cancel):
		return &journal.Stopping{Reason: toolcrib.StopCancelled, Message: cancel.Error(), By: cancel.By, Token: cancel.Token}
	case cause == nil, errors.Is(cause, errWallTime):
		return d.wallStop()
	}
	return nil
}

// driven is the time under a driver by now.
func (d *driver) driven() time.Duration {
	if !d.s.held {
		return d.s.Driven
	}
	return d.s.Driven + d.worked() - d.at
}

// wallLeft is what is left of the run's wall time, and of that of its session.
func (d *driver) wallLeft() time.Duration {
	worked := d.driven()
	left := d.s.Limits().WallTime - worked
	if ofSession, bounded := d.sessionTime(worked); bounded {
		return min(left, ofSession)
	}
	return left
}

// wallStop says which wall time is used up.
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

// wallDrift is by how much the end of the wall time may move before the context
// that ends with it is made again. It moves while a person decides, and while the run
// waits for a provider.
const wallDrift = 10 * time.Millisecond

// bounded is a context that ends when the run's wall time does. It is the same one
// for as long as that moment stays, and ends with the driving at the latest.
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

// appendGrace bounds an append after the run's own context has ended: what
// happened must still be written down.
const appendGrace = 30 * time.Second

// maxHeld bounds what waits for the next flush.
const maxHeld = 256

// clockDrift is by how much the time between two events may differ from what was worked,
// before that is written down.
const clockDrift = time.Second

// hold folds events and keeps them for the next flush, at the latest before
// anything outside can depend on them: before a request is sent, a call is
// launched, a person is asked, the run ends. Commits are dear, and what is lost
// with a driver before its flush has had no effect: a reply is asked for again, a
// read is read again (design.md §2).
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
	if passed := now.Sub(d.s.Updated); d.s.held && (passed-worked).Abs() >= clockDrift {
		bodies = append([]toolcrib.Body{&journal.Worked{MS: worked.Milliseconds()}}, bodies...)
	}
	for _, b := range bodies {
		e := toolcrib.Event{Seq: d.s.Seq + 1, Time: now, Body: b}
		if err := Fold(d.s, e); err != nil {
			return err
		}
		d.held = append(d.held, e)
		if r, ok := b.(*journal.ToolResult); ok && r.Status != toolcrib.ResultOK && r.FaultRef == "" {
			d.logUnsuccessful(r)
		}
	}
	return nil
}

// logUnsuccessful logs a call that was refused, failed, or ended early (C17); a fault is
// logged with its detail where it happens.
func (d *driver) logUnsuccessful(r *journal.ToolResult) {
	const most = 300
	text := string(r.Status)
	if r.Reason != "" {
		text += " (" + string(r.Reason) + ")"
	}
	d.r.Log.Info("tool execution failed", "run", d.s.Run, "name", r.Name, "call", r.ToolCallID, "error",
		text+": "+strings.ToValidUTF8(r.Content[:min(len(r.Content), most)], ""))
}

// append writes events down, with all that is held, and shows them.
func (d *driver) append(ctx context.Context, bodies ...toolcrib.Body) error {
	if err := d.hold(bodies...); err != nil {
		return err
	}
	return d.flush(ctx)
}

// flush writes down what is held. It also works when ctx has ended: the journal
// must not lose what has already happened.
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
	d.told(events)
	if d.r.Watch != nil {
		for _, e := range events {
			if f, ok := journal.View(d.s.Run, e); ok {
				d.r.Watch(d.s.Run, f)
			}
		}
	}
	clear(events)
	d.held = events[:0] // a journal keeps events, but not the slice that held them
	return nil
}

// told tells the watchers of the parent what a child run does.
func (d *driver) told(events []toolcrib.Event) {
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

// logs reports whether anybody reads what goes well.
func (d *driver) logs(ctx context.Context) bool { return d.r.Log.Enabled(ctx, slog.LevelInfo) }

// live shows a frame that is not kept.
func (d *driver) live(event string, data any) {
	if d.r.Watch != nil {
		d.r.Watch(d.s.Run, journal.Frame{Event: event, Data: data})
	}
}

// answer answers open calls without running them.
func (d *driver) answer(ctx context.Context, answers []Answer) error {
	bodies := make([]toolcrib.Body, 0, len(answers))
	for _, a := range answers {
		ended, err := d.endChild(ctx, a.Call)
		if err != nil {
			return err
		}
		bodies = append(bodies, ended...)
		r := a.Call.result(a.Status, a.Content)
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

// finish ends the run. Where that is its normal end, a message that it has not read comes first: there the
// inbox is read only when the journal has refused the end.
func (d *driver) finish(ctx context.Context, step Step) error {
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

// end writes down the end of the run, which leaves so many messages unread.
func (d *driver) end(ctx context.Context, step Step, unread int) error {
	var bodies []toolcrib.Body
	switch {
	case unread == 1:
		bodies = append(bodies, notice(NoticeUnread, "a message to the run came too late: its end was decided"))
	case unread > 1:
		bodies = append(bodies, notice(NoticeUnread, "%d messages to the run came too late: its end was decided", unread))
	}
	if step.Status == toolcrib.StatusCompleted && step.Reason == toolcrib.StopCompleted && step.Truncated {
		bodies = append(bodies, notice(NoticeOutputTruncated, "the answer was cut by the model's output limit"))
	}
	if step.Reason == toolcrib.StopBudgetExhausted && step.Message != "" {
		bodies = append(bodies, notice(string(step.Reason), "%s", step.Message))
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
