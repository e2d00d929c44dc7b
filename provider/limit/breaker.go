package limit

import "time"

// Breaker says when a provider counts as down: after Failures in a row within
// Window. Then every request fails at once for Open, so that the loop can go on to
// another model; after that a few trials are let through, and the first that is
// answered closes the circuit again.
//
// What counts is class overloaded, network and timeout, and a status of 500 or
// more of class other. Never counted are auth, bad_request, context_length, refused
// and rate_limit (the request is to blame, or was too early), and requests that
// were given up.
type Breaker struct {
	Failures int           // in a row; 0 = 5, negative = no breaker
	Window   time.Duration // 0 = 1 min
	Open     time.Duration // 0 = 30 s
	Trials   int           // at a time; 0 = 1
}

// Defaults of [Breaker].
const (
	DefaultFailures = 5
	DefaultWindow   = time.Minute
	DefaultOpen     = 30 * time.Second
	DefaultTrials   = 1

	// trialWait is what a request is told to wait that meets a trial under way.
	trialWait = time.Second
)

func (b Breaker) withDefaults() Breaker {
	if b.Failures == 0 {
		b.Failures = DefaultFailures
	}
	if b.Window <= 0 {
		b.Window = DefaultWindow
	}
	if b.Open <= 0 {
		b.Open = DefaultOpen
	}
	if b.Trials <= 0 {
		b.Trials = DefaultTrials
	}
	return b
}

// circuit is the state of a breaker. The line's lock guards it.
type circuit struct {
	set    Breaker
	recent []time.Time // failures in a row, the oldest first, at most set.Failures
	open   bool        // also while trials run
	until  time.Time   // no trial before that
	trials int         // under way
	count  int         // how often it has opened: an answer counts for the circuit that it was sent under
}

// permit is what a request may do: 0 = it is not a trial of the circuit.
type permit struct {
	trial bool
	count int
}

// refuses reports whether a request must fail now, and when to come again.
func (c *circuit) refuses(now time.Time) (wait time.Duration, no bool) {
	switch {
	case !c.open:
		return 0, false
	case now.Before(c.until):
		return c.until.Sub(now), true
	case c.trials >= c.set.Trials:
		return trialWait, true
	}
	return 0, false
}

// admit lets a request pass that refuses has nothing against.
func (c *circuit) admit() permit {
	if c.open {
		c.trials++
	}
	return permit{trial: c.open, count: c.count}
}

// record takes how a request ended; opened tells that the circuit is open now and
// was not before.
func (c *circuit) record(p permit, kind outcomeKind, now time.Time) (opened bool) {
	current := p.count == c.count
	if p.trial && current {
		c.trials--
	}
	switch {
	case c.set.Failures < 0, !current, kind == givenUp:
		// A request that was sent before the circuit opened says nothing new.
		return false
	case kind == answered && p.trial:
		c.open, c.recent, c.count = false, c.recent[:0], c.count+1
		c.trials = 0
		return false
	case kind == answered:
		c.recent = c.recent[:0]
		return false
	case p.trial:
		return c.trip(now)
	}
	if c.recent = append(c.recent, now); len(c.recent) < c.set.Failures {
		return false
	}
	first := c.recent[0]
	c.recent = append(c.recent[:0], c.recent[1:]...)
	return now.Sub(first) <= c.set.Window && c.trip(now)
}

func (c *circuit) trip(now time.Time) bool {
	c.open, c.until, c.trials, c.recent = true, now.Add(c.set.Open), 0, c.recent[:0]
	c.count++
	return true
}
