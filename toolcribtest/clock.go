package toolcribtest

import (
	"context"
	"sync"
	"time"
)

// Clock is a clock that only moves when it is told to. It is safe for use by many
// goroutines at once; the zero value stands at the zero time.
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

// NewClock returns a clock that stands at start.
func NewClock(start time.Time) *Clock { return &Clock{now: start} }

// Now is the time at which the clock stands.
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
