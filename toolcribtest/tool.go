package toolcribtest

import (
	"bytes"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/toolcrib/toolcrib"
)

// ToolOptions say what a [Tool] is and does.
type ToolOptions struct {
	Spec toolcrib.Spec

	// What a call does, in this order: it waits for Hold or its context, panics with
	// Panic, fails with Err, does Do, returns Output. A [*toolcrib.ToolError] as Err is a
	// failure, any other error a fault.
	Hold   <-chan struct{}
	Panic  any
	Err    error
	Do     func(ctx context.Context, call toolcrib.Call) (toolcrib.Output, error)
	Output toolcrib.Output
}

// Tool does what it is told to and records its calls. It is safe for use by many
// runs at once.
type Tool struct {
	o ToolOptions

	mu      sync.Mutex
	calls   []toolcrib.Call
	running int
	changed signal
}

// NewTool returns a tool as o says.
func NewTool(o ToolOptions) *Tool { return &Tool{o: o} }

// ReadOnly returns a tool of that name, on by default, that only reads and always
// returns text.
func ReadOnly(name, text string) *Tool {
	return NewTool(ToolOptions{
		Spec:   toolcrib.Spec{Name: name, Effect: toolcrib.EffectReadOnly, EnabledByDefault: true, Source: "go"},
		Output: toolcrib.Output{Text: text},
	})
}

// Writer returns a tool of that name, on by default, whose calls are writes that
// must not be repeated, and that always returns text.
func Writer(name, text string) *Tool {
	return NewTool(ToolOptions{
		Spec:   toolcrib.Spec{Name: name, Effect: toolcrib.EffectNonIdempotentWrite, EnabledByDefault: true, Source: "go"},
		Output: toolcrib.Output{Text: text},
	})
}

// Spec returns the spec that was given.
func (t *Tool) Spec() toolcrib.Spec { return t.o.Spec }

// Call records the call and does what the options say.
func (t *Tool) Call(ctx context.Context, call toolcrib.Call) (toolcrib.Output, error) {
	t.begin(call)
	defer t.end()
	if err := hold(ctx, t.o.Hold); err != nil {
		return toolcrib.Output{}, err
	}
	switch {
	case t.o.Panic != nil:
		panic(t.o.Panic)
	case t.o.Err != nil:
		return toolcrib.Output{}, t.o.Err
	case t.o.Do != nil:
		return t.o.Do(ctx, call)
	}
	return t.o.Output, nil
}

func (t *Tool) begin(call toolcrib.Call) {
	call.Arguments = bytes.Clone(call.Arguments)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.calls = append(t.calls, call)
	t.running++
	t.changed.all()
}

func (t *Tool) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.running--
}

// Calls returns the calls so far, in the order in which they began.
func (t *Tool) Calls() []toolcrib.Call {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.calls)
}

// Running is the number of calls that have begun and not ended.
func (t *Tool) Running() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.running
}

// WaitForCalls returns once n calls have begun, or with ctx's error.
func (t *Tool) WaitForCalls(ctx context.Context, n int) error {
	return t.changed.wait(ctx, &t.mu, func() bool { return len(t.calls) >= n })
}

// Clock is a clock that only moves when it is told to. It is safe for use by many
// goroutines at once; the zero value shows the zero time.
type Clock struct {
	mu       sync.Mutex
	now      time.Time
	sleepers map[*sleeper]struct{}
	changed  signal
}

type sleeper struct {
	until time.Time
	wake  chan struct{}
}

// NewClock returns a clock that shows start.
func NewClock(start time.Time) *Clock { return &Clock{now: start} }

// Now returns the time that the clock shows.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// Sleep waits until the clock has moved by d, or returns ctx's error if ctx ends
// before. It does not wait for a d of 0 or less.
func (c *Clock) Sleep(ctx context.Context, d time.Duration) error {
	if err := ctx.Err(); err != nil || d <= 0 {
		return err
	}
	c.mu.Lock()
	s := &sleeper{until: c.now.Add(d), wake: make(chan struct{})}
	if c.sleepers == nil {
		c.sleepers = make(map[*sleeper]struct{})
	}
	c.sleepers[s] = struct{}{}
	c.changed.all()
	c.mu.Unlock()

	select {
	case <-s.wake:
		return nil
	case <-ctx.Done():
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.sleepers, s)
		c.changed.all()
		return ctx.Err()
	}
}

// Advance moves the clock by d and wakes who has slept long enough. It does not
// wait for them to go on.
func (c *Clock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
	for s := range c.sleepers {
		if !s.until.After(c.now) {
			delete(c.sleepers, s)
			close(s.wake)
		}
	}
	c.changed.all()
}

// WaitForSleepers returns once n goroutines sleep at the same time, or with ctx's
// error. It is what a test calls before Advance.
func (c *Clock) WaitForSleepers(ctx context.Context, n int) error {
	return c.changed.wait(ctx, &c.mu, func() bool { return len(c.sleepers) >= n })
}
