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
	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/journal"
)

// cancelGrace is how long a call may take to notice that it was told to end. A
// tool that does not is left behind; its run continues.
const cancelGrace = 200 * time.Millisecond

// execute answers the refused calls of the turn and runs the allowed ones: at
// most MaxParallel at a time, calls that touch the same target one after another
// in their order. It takes permits and looks nothing up. [law]
func (d *driver) execute(ctx context.Context) error {
	open := d.s.Turn.open()
	x := &execution{d: d, ctx: ctx, order: open, results: make([]*journal.ToolResult, len(open))}
	ready := make([]*Call, 0, len(open))
	for i, c := range open {
		v := d.verdict(c.ID)
		if v == nil {
			// Taken up from the journal: the permits are gone, and the policy is
			// today's.
			return d.judge(ctx)
		}
		if c.question() || c.byClient() || c.Waits != nil {
			continue // a person or the client answers it, when all else is done
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
	x.told, x.news = x.ctx.Done(), make(chan news, newsOfCall*len(ready))
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

// refusal is the result of a call that the gate did not let pass.
func refusal(c *Call, v *gate.Verdict) *journal.ToolResult {
	content := v.Content
	reason := c.Verdict.Reason
	if content == "" || c.Verdict.Decision == toolcrib.Allow {
		// A verdict without a text or a permit without a tool: still a refusal.
		reason = toolcrib.ReasonToolPolicy
		content = guard.Refusal{Tool: c.Name, Reason: reason, Message: "the call was not allowed"}.JSON()
	}
	status := toolcrib.ResultRefused
	if c.doubtful() { // not once more, but it may have taken effect the first time
		status, content = toolcrib.ResultInDoubt, textInDoubt
	}
	r := c.result(status, content)
	r.Reason = reason
	return r
}

// result is the result of the call.
func (c *Call) result(status toolcrib.ResultStatus, content string) *journal.ToolResult {
	return &journal.ToolResult{
		ToolCallID: c.ID, Name: c.Name, Status: status, IsError: status != toolcrib.ResultOK, Content: content,
	}
}

// execution runs the allowed calls of one turn. Its channel has room for all that
// can ever be sent, so that a call that was left behind never blocks.
type execution struct {
	d       *driver
	ctx     context.Context
	told    <-chan struct{}       // ends with ctx; nil = that was seen
	order   []*Call               // the open calls of the turn
	results []*journal.ToolResult // of those in order; nil = none, or written down
	waiting []*Call
	flying  []*flight
	news    chan news
	ticks   chan progress   // nil = nobody watches
	parked  []toolcrib.Body // child runs that wait; written down when all else is
	fatal   error           // what ended the driver of a child run; nothing more is launched
}

// news is what a call tells: it has ended, or it is prepared and asks to be written
// down as started; or that it was told to end, and had the time for it.
type news struct {
	f           *flight
	ended, late bool
}

// newsOfCall is how much there can be of one call: it may be told to end by its timeout, by
// its run, and because its answer is no longer needed.
const newsOfCall = 5

// put keeps the result of a call until it is written down.
func (x *execution) put(c *Call, r *journal.ToolResult) {
	if i := slices.Index(x.order, c); i >= 0 {
		x.results[i] = r
	}
}

// flight is one call on its way.
type flight struct {
	clock
	call     *Call
	permit   *gate.Permit
	prepared []byte
	leave    chan error // of a write: the answer to its wish to start, nil = go
	out      toolcrib.Output
	err      error
	took     time.Duration
	cause    error  // why it was told to end; nil = it was not
	whole    string // of a result that was cut; to be kept
	files    []keptFile
	taint    []string               // of the run when the call was launched
	nested   atomic.Pointer[string] // the source of untrusted data that a nested call read
	answers  guard.Masker           // of persons, about secrets: the result does not repeat them
	progress chan<- progress
	child    *childFlight // of a call that another agent answers; nil = a tool does
	sources  []string     // of untrusted data that its run has read
}

// grace is how long a call may take to end when it was told to. A child run writes
// down its own end first.
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

// run launches calls, writes down what they do, and returns when all that could
// be answered are. An error means that the journal could not be written.
func (x *execution) run() error {
	for {
		if err := x.enough(); err != nil {
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

// step waits for the next thing that a call does, and writes it down.
func (x *execution) step() error {
	select {
	case n := <-x.news:
		return x.hear(n)
	case p := <-x.ticks:
		x.d.live(journal.FrameToolProgress, journal.ProgressView{
			ID: p.id, Message: x.d.r.Mask.Clean(p.message),
			Fraction: p.fraction,
		})
		return nil
	case <-x.told:
		x.told = nil
		for _, f := range x.flying {
			x.awaitEnd(f)
		}
		return nil
	}
}

// hear writes down what a call tells.
func (x *execution) hear(n news) error {
	f := n.f
	switch {
	case n.ended:
		return x.land(f)
	case n.late:
		return x.leaveBehind(f)
	}
	if f.ctx.Err() != nil || x.d.s.Stopping != nil {
		// Told to end before it began: what has not started does not start.
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

// awaitEnd gives a call that was told to end the time for it. After that it is left behind.
func (x *execution) awaitEnd(f *flight) {
	time.AfterFunc(f.grace(), func() { x.news <- news{f: f, late: true} })
}

// launch starts every waiting call that may start now.
func (x *execution) launch() error {
	most := x.d.s.Limits().MaxParallel
	var rest []*Call
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
	// The starts of reads share one append with the verdicts; a write is written
	// down by itself, when it is prepared and just before it runs.
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
	timer *time.Timer // nil = no timeout

	mu      sync.Mutex
	began   time.Time
	timeout time.Duration
	left    time.Duration // from began on, until the timeout
	all     time.Duration // from began on, however often the timeout begins again
	held    int
}

// start makes the context of a call, and has it ended by up when its time is. A timeout of 0
// does not bound it.
func (c *clock) start(ctx context.Context, timeout time.Duration, up func()) {
	c.ctx, c.end = context.WithCancelCause(ctx)
	if timeout > 0 {
		c.began, c.timeout, c.left = time.Now(), timeout, timeout
		c.all = max(timeout, min(maxTimeouts*timeout, time.Hour))
		c.timer = time.AfterFunc(timeout, up)
	}
}

// hold stops the clock, until as many calls of resume as of hold.
func (c *clock) hold() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.held++; c.held == 1 && c.timer != nil && c.timer.Stop() {
		passed := time.Since(c.began)
		c.left, c.all = c.left-passed, c.all-passed
	}
}

// maxTimeouts is how often the timeout of a call that makes progress may pass.
const maxTimeouts = 10

// alive begins the timeout again.
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

// outOfTime is the cause that ends a call whose time is up. A child run ends by it, too:
// nobody would continue with it.
func (f *flight) outOfTime() error {
	if f.child == nil {
		return fmt.Errorf("%w: %w", errToolTimeout, toolcrib.Failf(toolcrib.ToolTimeout, "%s", seconds(f.permit.Timeout())))
	}
	return fmt.Errorf("%w: %w", errToolTimeout, &CancelError{By: "the timeout of " + f.call.Name})
}

// toChild gives a call to a run of its own, if another agent answers it. gone says that
// nothing is left for that, and that the call is refused.
func (x *execution) toChild(f *flight) (gone bool, err error) {
	child, begins, none := x.d.givesToChild(f.call, f.permit)
	if none != "" {
		v, err := x.d.overrule(gate.NoShare(&f.call.ToolCall, none)) // it shows only when its siblings have theirs
		if err != nil {
			return true, err
		}
		x.put(f.call, refusal(f.call, v))
		return true, nil
	}
	if f.child = child; child == nil {
		return false, nil
	}
	// At once, so that the next sibling's share is of what this one leaves.
	if f.call.Started == nil {
		err = x.d.hold(&journal.ToolStarted{ID: f.call.ID, Name: f.call.Name})
	}
	if err == nil && begins != nil {
		err = x.d.hold(begins)
	}
	return false, err
}

// blocked reports whether an earlier call on the same target has not ended yet.
func (x *execution) blocked(c *Call, permit *gate.Permit, earlier []*Call, ready []*flight) bool {
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

// land writes down the end of a call.
func (x *execution) land(f *flight) error {
	if !x.remove(f) {
		return nil // left behind; its result was written down already
	}
	// An error of the tool's own type may panic where it is read.
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
	result.Content = f.call.noted(result.Content)
	x.put(f.call, result)
	return x.flush(false)
}

// landChild writes down what became of a call's own run; done = the call has no result
// yet.
func (x *execution) landChild(f *flight, result *journal.ToolResult) (done bool, err error) {
	c := f.child
	switch {
	case c.fatal != nil:
		if x.leftResumable() {
			return true, nil // the run below was left as this one is
		}
		if x.fatal == nil {
			x.fatal = c.fatal // what else runs is not cut off by it
		}
		return true, nil
	case c.parked != nil:
		x.parked = append(x.parked, c.parked)
		return true, nil
	case c.ended != nil && f.call.ChildEnd == nil:
		return false, x.d.hold(c.ended...)
	case result.Status == toolcrib.ResultCancelled && x.leftResumable():
		return true, nil // whoever takes the run up starts it
	}
	return false, x.endChild(f.call) // it never began, or nobody runs it now
}

// endChild ends the run of a call that is answered without it, if it has one.
func (x *execution) endChild(c *Call) error {
	ended, err := x.d.endChild(x.ctx, c)
	if err != nil {
		return err
	}
	return x.d.hold(ended...)
}

// noted is a result with a note to the model, if a person changed the arguments of
// the call (contract §5.5).
func (c *Call) noted(content string) string {
	if c.Decision == nil || len(c.Decision.Arguments) == 0 {
		return content
	}
	return textEdited + string(c.Decision.Arguments) + "\n" + content
}

// flush writes down results in the order of the calls: those that wait for no
// earlier call, and the results of writes, which never wait: that a write happened
// must not be lost, while a read whose driver is lost is read again. At the end
// the rest is written too.
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
		// That the run is to end stands before what it ends.
		bodies = append([]toolcrib.Body{stop}, bodies...)
	}
	if err := x.d.hold(bodies...); err != nil || !wrote && len(x.flying) == 0 {
		return err // reads ride with what comes next
	}
	return x.d.flush(x.ctx)
}

// leftResumable reports whether the driver releases the run without ending it.
// Then a call that was cut off keeps no result: whoever takes the run up decides
// about it.
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

// leaveBehind answers a call that did not end when it was told to.
func (x *execution) leaveBehind(f *flight) error {
	if !x.remove(f) {
		return nil // it ended after all
	}
	f.answer(errLeftBehind)
	result := endedResult(f, !errors.Is(context.Cause(f.ctx), errToolTimeout))
	if result.Status == toolcrib.ResultCancelled && x.leftResumable() {
		return nil
	}
	if err := x.endChild(f.call); err != nil { // the fence ends whoever still drives it
		return err
	}
	x.put(f.call, result)
	return x.flush(false)
}

// abort releases all calls after the journal failed: nothing more can be
// written, so nothing more may run.
func (x *execution) abort() {
	for _, f := range x.flying {
		f.cancel()
		f.answer(errLeftBehind)
	}
	x.flying = nil
}

// answer answers the call's wish to start; the first answer counts.
func (f *flight) answer(err error) {
	select {
	case f.leave <- err:
	default:
	}
}

var errLeftBehind = errors.New("the run continued without this call")

// stop ends the execution: calls that never started are answered by the next
// step, if the run is to stop.
func (x *execution) stop() error {
	if x.ctx.Err() == nil {
		return nil
	}
	return x.d.givenUp(x.ctx, context.Cause(x.ctx))
}
