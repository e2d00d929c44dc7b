package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent/core"
	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/journal"
)

// cancelGrace is how long a call may take to return after it was cancelled. A tool that takes longer
// is abandoned, and its run continues.
const cancelGrace = 200 * time.Millisecond

// execute answers the refused calls of the turn and runs the allowed ones: at most MaxParallel at a
// time, and calls on the same target one after another, in their order. It uses permits only. [law]
func (d *driver) execute(ctx context.Context) error {
	open := d.s.Turn.Open()
	x := &execution{d: d, ctx: ctx, order: open, results: make([]*journal.ToolResult, len(open))}
	ready := make([]*core.Call, 0, len(open))
	for i, c := range open {
		v := d.verdict(c.ID)
		if v == nil {
			// The permits are lost in a run that was resumed, and the policy may have changed.
			return d.judge(ctx)
		}
		if c.Question() || c.ByClient() || c.Waits != nil {
			continue // answered by a person or the client, after all others
		}
		if c.Verdict.Decision == toolcrib.Allow && v.Permit.Valid() {
			ready = append(ready, c)
			continue
		}
		if err := x.endChild(c); err != nil {
			return err
		}
		x.results[i] = refusal(c, v)
	}
	x.ctx, x.waiting = d.bounded(ctx), ready
	x.done, x.news = x.ctx.Done(), make(chan news, newsOfCall*len(ready))
	if d.r.Watch != nil {
		x.ticks = make(chan progress, 16)
	}
	err := x.run()
	if err == nil {
		err = x.flush(true)
	}
	if err == nil {
		err = d.hold(x.parked...)
	}
	if err == nil {
		err = x.fatal
	}
	if err != nil {
		return err
	}
	return x.stop()
}

// refusal returns the result of a call that the gate refused.
func refusal(c *core.Call, v *gate.Verdict) *journal.ToolResult {
	content := v.Content
	reason := c.Verdict.Reason
	if content == "" || c.Verdict.Decision == toolcrib.Allow {
		// A verdict without a text, or a permit without a tool, is still a refusal.
		reason = toolcrib.ReasonToolPolicy
		content = guard.Refusal{Tool: c.Name, Reason: reason, Message: "the call was not allowed"}.JSON()
	}
	status := toolcrib.ResultRefused
	if c.Doubtful() { // it may have taken effect the first time
		status, content = toolcrib.ResultInDoubt, core.TextInDoubt
	}
	r := c.NewResult(status, content)
	r.Reason = reason
	return r
}

// execution runs the allowed calls of one turn. Its channel has room for everything that can ever be
// sent, so that an abandoned call never blocks.
type execution struct {
	d       *driver
	ctx     context.Context
	done    <-chan struct{}       // ends with ctx; nil once that was handled
	order   []*core.Call          // open calls of the turn
	results []*journal.ToolResult // their results, in the same order; nil if none, or it was written
	waiting []*core.Call
	flying  []*flight
	news    chan news
	ticks   chan progress   // nil if there is no watcher
	parked  []toolcrib.Body // child runs that wait; written after all other calls have ended
	fatal   error           // the error that ended the driver of a child run; nothing more is launched
}

// news is a report of a call: it has ended; or it is prepared and asks to be recorded as started; or
// it was cancelled and its time to return is over.
type news struct {
	f           *flight
	ended, late bool
}

// newsOfCall bounds the news of one call, which may be cancelled by its timeout, by its run, and
// because its answer is no longer needed.
const newsOfCall = 5

// put keeps the result of a call until it is written.
func (x *execution) put(c *core.Call, r *journal.ToolResult) {
	if i := slices.Index(x.order, c); i >= 0 {
		x.results[i] = r
	}
}

// flight is one call in progress.
type flight struct {
	clock
	call     *core.Call
	permit   *gate.Permit
	prepared []byte
	leave    chan error // for a write: the answer to its request to start; nil lets it start
	out      toolcrib.Output
	err      error
	took     time.Duration
	cause    error  // why the call was cancelled, or nil
	whole    string // the complete text of a result that was cut, to be stored
	files    []keptFile
	taint    []string               // taint of the run when the call was launched
	nested   atomic.Pointer[string] // the source of untrusted data that a nested call read
	answers  guard.Masker           // people's answers about secrets, which the result must not repeat
	progress chan<- progress
	child    *childFlight // nil if a tool answers the call
	sources  []string     // sources of untrusted data that the child run has read
}

// grace is how long a call may take to return after it was cancelled. A child run records its own end
// first.
func (f *flight) grace() time.Duration {
	if f.child != nil {
		return appendGrace
	}
	return cancelGrace
}

type progress struct {
	id, message string
	fraction    float64
}

// run launches calls, records their events, and returns when all that could be answered are. An error
// means that the journal could not be written.
func (x *execution) run() error {
	for {
		if err := x.enough(nil); err != nil {
			x.abort()
			return err
		}
		if x.ctx.Err() == nil && x.fatal == nil && x.d.s.Stopping == nil && len(x.waiting) > 0 {
			if err := x.launch(); err != nil {
				x.abort()
				return err
			}
		}
		if len(x.flying) == 0 {
			return nil
		}
		if err := x.step(); err != nil {
			x.abort()
			return err
		}
	}
}

// step waits for the next news of a call, and records it.
func (x *execution) step() error {
	select {
	case n := <-x.news:
		return x.record(n)
	case p := <-x.ticks:
		x.d.live(journal.FrameToolProgress, journal.ProgressView{
			ID: p.id, Message: x.d.r.Mask.Clean(p.message),
			Fraction: p.fraction,
		})
		return nil
	case by := <-x.d.hurry:
		return x.enough(by)
	case <-x.done:
		x.done = nil
		for _, f := range x.flying {
			x.awaitEnd(f)
		}
		return nil
	}
}

// record records the news of a call.
func (x *execution) record(n news) error {
	f := n.f
	switch {
	case n.ended:
		return x.land(f)
	case n.late:
		return x.leaveBehind(f)
	}
	if f.ctx.Err() != nil || x.d.s.Stopping != nil {
		// Cancelled before it started: it does not start.
		f.answer(errLeftBehind)
		return nil
	}
	err := x.d.append(x.ctx, &journal.ToolStarted{
		ID: f.call.ID, Name: f.call.Name, Write: f.permit.Effect().Writes(),
		Prepared: f.prepared,
	})
	f.answer(err)
	return err
}

// awaitEnd gives a cancelled call time to return. After that it is abandoned.
func (x *execution) awaitEnd(f *flight) {
	time.AfterFunc(f.grace(), func() { x.news <- news{f: f, late: true} })
}

// launch starts all waiting calls that may start now.
func (x *execution) launch() error {
	most := x.d.s.Limits().MaxParallel
	var rest []*core.Call
	started := make([]toolcrib.Body, 0, 4)
	ready := make([]*flight, 0, 4)
	for _, c := range x.waiting {
		permit := x.d.permit(c.ID)
		if len(x.flying)+len(ready) >= most || x.blocked(c, permit, rest, ready) {
			rest = append(rest, c)
			continue
		}
		switch v, err := x.d.withdrawn(x.ctx, c); {
		case err != nil:
			return err
		case v != nil:
			if err := x.endChild(c); err != nil {
				return err
			}
			x.put(c, refusal(c, v))
			continue
		}
		f := &flight{call: c, permit: permit, progress: x.ticks, taint: slices.Clip(x.d.s.Taint)}
		gone, err := x.toChild(f)
		if err != nil {
			return err
		}
		if gone {
			continue
		}
		if f.child != nil && x.d.r.HandOver != nil &&
			(slices.ContainsFunc(x.flying, drivesChild) || slices.ContainsFunc(ready, drivesChild)) {
			f.child.handOver = x.d.r.HandOver()
		}
		ready = append(ready, f)
		switch {
		case f.child != nil:
		case permit.Effect().Writes():
			f.leave = make(chan error, 1)
		default:
			started = append(started, &journal.ToolStarted{ID: c.ID, Name: c.Name})
		}
	}
	x.waiting = rest
	// The starts of reads share one append with the verdicts. A write is recorded separately, when it
	// is prepared and just before it runs.
	if err := x.d.append(x.ctx, started...); err != nil {
		return err
	}
	for _, f := range ready {
		if x.d.logs(x.ctx) {
			x.d.r.Log.InfoContext(x.ctx, "executing tool", "run", string(x.d.s.Run), "name", f.call.Name, "call", f.call.ID)
		}
		f.start(x.ctx, f.permit.Timeout(), func() {
			f.end(f.outOfTime())
			x.awaitEnd(f)
		})
		x.flying = append(x.flying, f)
		x.d.r.tools.Add(1)
		go x.fly(f)
	}
	return nil
}

// clock bounds a call by a timeout, and can be stopped while a person is asked.
type clock struct {
	ctx   context.Context
	end   context.CancelCauseFunc
	timer *time.Timer // nil without a timeout

	mu      sync.Mutex
	began   time.Time
	timeout time.Duration
	left    time.Duration // time from began until the timeout
	all     time.Duration // time left from began, however often the timeout is restarted
	held    int
}

// start makes the context of a call, and calls up when its time is over. A timeout of 0 means no
// bound.
func (c *clock) start(ctx context.Context, timeout time.Duration, up func()) {
	c.ctx, c.end = context.WithCancelCause(ctx)
	if timeout > 0 {
		c.began, c.timeout, c.left = time.Now(), timeout, timeout
		c.all = max(timeout, min(maxTimeouts*timeout, time.Hour))
		c.timer = time.AfterFunc(timeout, up)
	}
}

// hold stops the clock until resume has been called as often as hold.
func (c *clock) hold() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.held++; c.held == 1 && c.timer != nil && c.timer.Stop() {
		passed := time.Since(c.began)
		c.left, c.all = c.left-passed, c.all-passed
	}
}

// maxTimeouts is how many timeouts a call that makes progress may last.
const maxTimeouts = 10

// alive restarts the timeout.
func (c *clock) alive() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.timer == nil || c.held > 0 || !c.timer.Stop() {
		return
	}
	c.all -= time.Since(c.began)
	c.began, c.left = time.Now(), max(min(c.timeout, c.all), 0)
	c.timer.Reset(c.left)
}

func (c *clock) resume() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.held--; c.held == 0 && c.timer != nil && c.ctx.Err() == nil {
		c.began = time.Now()
		c.timer.Reset(max(c.left, 0))
	}
}

func (c *clock) cancel() {
	if c.timer != nil {
		c.timer.Stop()
	}
	c.end(nil)
}

var errToolTimeout = errors.New("tool timeout")

// outOfTime returns the cause that ends a call whose time is over. It also ends a child run, which
// would not be continued otherwise.
func (f *flight) outOfTime() error {
	if f.child == nil {
		return fmt.Errorf("%w: %w", errToolTimeout, toolcrib.Failf(toolcrib.ToolTimeout, "%s", seconds(f.permit.Timeout())))
	}
	return fmt.Errorf("%w: %w", errToolTimeout, &CancelError{By: "the timeout of " + f.call.Name})
}

// toChild gives a call that another agent answers to a run of its own. gone means that the budget
// leaves nothing for that run and the call is refused.
func (x *execution) toChild(f *flight) (gone bool, err error) {
	child, begins, none := x.d.givesToChild(f.call, f.permit)
	if none != "" {
		v, err := x.d.overrule(gate.NoShare(&f.call.ToolCall, none)) // known only once its siblings have their shares
		if err != nil {
			return true, err
		}
		x.put(f.call, refusal(f.call, v))
		return true, nil
	}
	if f.child = child; child == nil {
		return false, nil
	}
	// Held at once, so that the share of the next sibling is computed from the rest.
	if f.call.Started == nil {
		err = x.d.hold(&journal.ToolStarted{ID: f.call.ID, Name: f.call.Name})
	}
	if err == nil && begins != nil {
		err = x.d.hold(begins)
	}
	return false, err
}

// drivesChild reports whether a call's own run is driven in this process.
func drivesChild(f *flight) bool { return f.child != nil && f.child.handOver == nil }

// blocked reports whether an earlier call on the same target has not ended yet.
func (x *execution) blocked(c *core.Call, permit *gate.Permit, earlier []*core.Call, ready []*flight) bool {
	for _, e := range earlier {
		if overlap(x.d.permit(e.ID).Targets(), permit.Targets()) {
			return true
		}
	}
	for _, flights := range [][]*flight{x.flying, ready} {
		for _, f := range flights {
			if overlap(f.permit.Targets(), permit.Targets()) {
				return true
			}
		}
	}
	return false
}

// overlap reports whether two calls touch the same target and at least one of them
// writes. A folder overlaps what is in it.
func overlap(a, b []toolcrib.Target) bool {
	for _, t := range a {
		for _, u := range b {
			if (t.Write || u.Write) && t.Kind == u.Kind && sameOrWithin(t, u) {
				return true
			}
		}
	}
	return false
}

func sameOrWithin(t, u toolcrib.Target) bool {
	if t.Name == u.Name {
		return true
	}
	if t.Kind != toolcrib.TargetFile {
		return false
	}
	return within(t.Name, u.Name) || within(u.Name, t.Name)
}

func within(folder, path string) bool {
	rest, ok := strings.CutPrefix(path, strings.TrimRight(folder, `/\`))
	return ok && rest != "" && (rest[0] == '/' || rest[0] == '\\')
}

// land records the end of a call.
func (x *execution) land(f *flight) error {
	if !x.remove(f) {
		return nil // abandoned; its result was recorded before
	}
	// The methods of a tool's own error type may panic.
	result, err := guard.Contain(func() (*journal.ToolResult, error) { return x.resultOf(f), nil })
	if err != nil {
		result = x.fault(f, err)
	}
	result.DurationMS = f.took.Milliseconds()
	if f.child != nil {
		if done, err := x.landChild(f, result); done || err != nil {
			return err
		}
	}
	if result.Status == toolcrib.ResultCancelled && x.leftResumable() {
		return nil
	}
	if err := x.d.keep(x.ctx, result, f.whole, f.files...); err != nil {
		return err
	}
	result.Content = f.call.Noted(result.Content)
	x.put(f.call, result)
	return x.flush(false)
}

// landChild records the outcome of a call's own run. done means that the call has no result yet.
func (x *execution) landChild(f *flight, result *journal.ToolResult) (done bool, err error) {
	c := f.child
	switch {
	case c.fatal != nil:
		if x.leftResumable() {
			return true, nil // the run below is left resumable, like this one
		}
		if x.fatal == nil {
			x.fatal = c.fatal // other calls in progress are not cut off by it
		}
		return true, nil
	case c.parked != nil:
		x.parked = append(x.parked, c.parked)
		return true, nil
	case c.ended != nil && f.call.ChildEnd == nil:
		return false, x.d.hold(c.ended...)
	case result.Status == toolcrib.ResultCancelled && x.leftResumable():
		return true, nil // started when the run is resumed
	}
	return false, x.endChild(f.call) // it never began, or has no driver now
}

// endChild ends the run of a call that gets another result, if it has one.
func (x *execution) endChild(c *core.Call) error {
	ended, err := x.d.endChild(x.ctx, c)
	if err != nil {
		return err
	}
	return x.d.hold(ended...)
}

// flush records results in the order of the calls: those that wait for no earlier call, and the
// results of writes, which never wait. That a write happened must not be lost, whereas a read whose
// driver is lost is repeated. If rest is set, all are recorded.
func (x *execution) flush(rest bool) error {
	bodies := make([]toolcrib.Body, 0, 4)
	waits, wrote := false, false
	for i, c := range x.order {
		r := x.results[i]
		switch {
		case r == nil:
			waits = waits || c.Result == nil
		case rest || !waits || c.Started != nil && c.Started.Write:
			bodies = append(bodies, r)
			x.results[i] = nil
			wrote = wrote || c.Started != nil && c.Started.Write
		}
	}
	if stop := x.d.stopped(x.ctx); stop != nil && x.d.s.Stopping == nil {
		// The stop comes before the results that it causes.
		bodies = append([]toolcrib.Body{stop}, bodies...)
	}
	if err := x.d.hold(bodies...); err != nil || !wrote && len(x.flying) == 0 {
		return err // reads are written with the next events
	}
	return x.d.flush(x.ctx)
}

// leftResumable reports whether the driver releases the run without ending it. Then a call that was
// cut off gets no result; the next driver decides about it.
func (x *execution) leftResumable() bool {
	return x.ctx.Err() != nil && x.d.s.Stopping == nil && x.d.stopped(x.ctx) == nil
}

func (x *execution) remove(f *flight) bool {
	i := slices.Index(x.flying, f)
	if i >= 0 {
		x.flying = slices.Delete(x.flying, i, i+1)
	}
	return i >= 0
}

// leaveBehind answers a call that did not return after it was cancelled.
func (x *execution) leaveBehind(f *flight) error {
	if !x.remove(f) {
		return nil // it returned after all
	}
	f.answer(errLeftBehind)
	result := endedResult(f, !errors.Is(context.Cause(f.ctx), errToolTimeout))
	if result.Status == toolcrib.ResultCancelled && x.leftResumable() {
		return nil
	}
	if err := x.endChild(f.call); err != nil { // the fence stops any driver that the run still has
		return err
	}
	x.put(f.call, result)
	return x.flush(false)
}

// abort releases all calls after the journal failed: nothing more can be written, so nothing more may
// run.
func (x *execution) abort() {
	for _, f := range x.flying {
		f.cancel()
		f.answer(errLeftBehind)
	}
	x.flying = nil
}

// answer answers the call's request to start; only the first answer has an effect.
func (f *flight) answer(err error) {
	select {
	case f.leave <- err:
	default:
	}
}

var errLeftBehind = errors.New("the run continued without this call")

// stop ends the execution. If the run is to stop, the next step answers the calls that never started.
func (x *execution) stop() error {
	if x.ctx.Err() == nil {
		return nil
	}
	return x.d.givenUp(x.ctx, context.Cause(x.ctx))
}
