package access

import (
	"sync"
	"time"
)

// Clock is a time that never goes back, so that a clock that is set back gives no
// expired token a second life, and no used minute a second time. A clock that is set
// forward by mistake, and back, holds until the time has come again or the process
// ends.
type Clock struct {
	now  func() time.Time
	mu   sync.Mutex
	last time.Time
}

// NewClock makes a clock from now (nil = [time.Now]) that starts no earlier than
// floor, the time of the last thing that is known to have happened; it may be zero.
func NewClock(now func() time.Time, floor time.Time) *Clock {
	if now == nil {
		now = time.Now
	}
	return &Clock{now: now, last: floor}
}

// Now returns the time.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	// Without the monotonic reading, which would hide that the clock was set.
	if t := c.now().Round(0); t.After(c.last) {
		c.last = t
	}
	return c.last
}
