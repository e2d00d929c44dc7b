package people

import (
	"context"
	"time"

	"github.com/toolcrib/toolcrib/access"
)

// SetNow sets the clock.
func (s *People) SetNow(now func() time.Time) {
	s.state.Lock()
	defer s.state.Unlock()
	s.state.clock = access.NewClock(now, time.Time{})
}

// Failed records that n sign-ins with a name have failed, from many addresses, and that the next one is checked after a
// wait.
func (s *People) Failed(ctx context.Context, name string, n int, wait time.Duration) error {
	return s.fail(ctx, unknown(name, "")[2], n, wait)
}

// BrowsersFailed is [People.Failed] for all known browsers of a user.
func (s *People) BrowsersFailed(ctx context.Context, user string, n int, wait time.Duration) error {
	return s.fail(ctx, browsersOf(user), n, wait)
}

// Attempt counts an attempt from an address. succeeded says that it was right.
func (s *People) Attempt(ctx context.Context, from string) (succeeded func() error, err error) {
	c := []counter{byAddress(from)}
	return func() error { return s.succeeded(ctx, c) }, s.count(ctx, c)
}

// AddressFailed is [People.Failed] for an address, which need not wait.
func (s *People) AddressFailed(ctx context.Context, from string, n int) error {
	return s.fail(ctx, byAddress(from), n, 0)
}

// Crowd lets as many sign-ins wait as may, until they end.
func (s *People) Crowd() (end func()) {
	for range cap(s.state.waiting) {
		s.state.waiting <- struct{}{}
	}
	return func() {
		for range cap(s.state.waiting) {
			<-s.state.waiting
		}
	}
}

func (s *People) fail(ctx context.Context, c counter, n int, wait time.Duration) error {
	return s.changeAttempts(ctx, c.key, func(_ attempts, now time.Time) (attempts, error) {
		return attempts{Failed: n, Last: now, Until: now.Add(wait)}, nil
	})
}

// GuessesADay returns how many guesses of the password of a name are checked in a day, if somebody with any number of
// addresses tries all the time, after this many failures.
func GuessesADay(failed int) (n int) {
	began := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	a := attempts{Failed: failed}
	for now := began; now.Before(began.AddDate(0, 0, 1)); {
		next, wait, err := a.next(ofName, now)
		if err != nil {
			now = now.Add(100 * time.Millisecond)
			continue
		}
		if a = next; now.Add(wait).Before(began.AddDate(0, 0, 1)) {
			n++
		}
	}
	return n
}
