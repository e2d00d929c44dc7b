// Package limit is between a provider and all runs of a process that
// use it: a bound of requests at a time, a bound of requests a minute, the pause
// that the provider asked for, and a circuit breaker.
//
// It is a decorator around a [toolcrib.Model] (design §3). It never sends a request
// twice: retry and fallback are the loop's. Requests that cannot be sent yet wait
// in the order in which they came, and stop waiting when their context ends; those
// that had better not be sent fail at once. Whatever fails here was never sent, and
// says so ([toolcrib.ModelError.Unsent]).
package limit

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"time"

	"github.com/toolcrib/toolcrib"
)

// Defaults and bounds of [Options].
const (
	DefaultMaxConcurrent = 256
	DefaultMaxWaiting    = 1024
	DefaultMaxWait       = 10 * time.Minute
	DefaultFailures      = 5
	DefaultOpen          = 30 * time.Second
	MaxPause             = 60 * time.Second // that a provider can ask for others than who asked
	minute               = time.Minute
)

// Options say how much a provider takes. The zero value is good: a wide bound of
// requests at a time, none a minute, and a breaker.
type Options struct {
	Name              string // the provider's name, for errors
	MaxConcurrent     int    // requests at a time; 0 = 256
	RequestsPerMinute int    // within any 60 s; 0 = not bounded
	MaxWaiting        int    // requests that wait; one more fails at once; 0 = 1024
	// MaxWait is the longest that a request waits; 0 = 10 min.
	MaxWait time.Duration

	// After Failures in a row within a minute a provider counts as down: every request fails
	// at once for Open, so that the loop can continue with another model. After that one
	// request at a time is let through, and the first that is answered closes the circuit
	// again.
	//
	// What counts is class overloaded, network and timeout, and a status of 500 or more of
	// class other. Never counted are auth, bad_request, context_length, refused and rate_limit
	// (the request is to blame, or was too early), and requests that were given up.
	Failures int           // 0 = 5, negative = never
	Open     time.Duration // 0 = 30 s
}

func (o Options) withDefaults() Options {
	o.MaxConcurrent = cmp.Or(max(o.MaxConcurrent, 0), DefaultMaxConcurrent)
	o.MaxWaiting = cmp.Or(max(o.MaxWaiting, 0), DefaultMaxWaiting)
	o.MaxWait = cmp.Or(max(o.MaxWait, 0), DefaultMaxWait)
	o.Failures = cmp.Or(o.Failures, DefaultFailures)
	o.Open = cmp.Or(max(o.Open, 0), DefaultOpen)
	return o
}

// Model is a model under the limits of its provider. It is safe for use by many
// runs at once; every conversation of it is under the same limits.
type Model struct {
	inner toolcrib.Model
	line  *line
	// told = the last request of this conversation was told how long to wait. Its run has
	// waited, as far as it can: the pause is for others.
	own, told bool
}

var _ interface {
	toolcrib.Model
	toolcrib.Conversational
} = (*Model)(nil)

// New puts inner under limits. Where one provider serves several models, New is
// called once for all of them.
func New(inner toolcrib.Model, o Options) *Model {
	return &Model{inner: inner, line: newLine(o.withDefaults())}
}

// Unwrap returns the model inside.
func (m *Model) Unwrap() toolcrib.Model { return m.inner }

// Conversation implements [toolcrib.Conversational].
func (m *Model) Conversation() toolcrib.Model {
	inner := m.inner
	if c, ok := inner.(toolcrib.Conversational); ok {
		inner = c.Conversation()
	}
	return &Model{inner: inner, line: m.line, own: true}
}

// Stream waits for its turn, then sends the request. The place is given back when
// the stream ends, however it does.
func (m *Model) Stream(ctx context.Context, req *toolcrib.Request) iter.Seq2[toolcrib.Delta, error] {
	return func(yield func(toolcrib.Delta, error) bool) {
		trial, err := m.line.enter(ctx, m.told)
		if err != nil {
			yield(toolcrib.Delta{}, err)
			return
		}
		out := outcome{kind: givenUp} // a panic, or nobody is listening
		defer func() {
			if m.own {
				m.told = out.pause > 0
			}
			m.line.leave(trial, out)
		}()
		finished := false
		for d, err := range m.inner.Stream(ctx, req) {
			if err != nil {
				out = outcomeOf(ctx, err)
			} else if d.Finish != nil {
				finished, out.kind = true, answered
			}
			if !yield(d, err) || err != nil {
				return
			}
		}
		if !finished {
			out = outcomeOf(ctx, errBrokenOff)
		}
	}
}

// errBrokenOff is the error of a stream without an end, which the loop takes for a fault
// of the network.
var errBrokenOff = &toolcrib.ModelError{Class: toolcrib.ErrNetwork, Message: "the reply broke off before its end"}

// outcome is how a request ended, as far as its provider is concerned.
type outcome struct {
	kind  outcomeKind
	pause time.Duration // the provider asked for
}

type outcomeKind int

const (
	givenUp  outcomeKind = iota // says nothing about the provider
	answered                    // the provider answers, if only to refuse
	failed                      // overloaded, or not to be reached
)

// outcomeOf sorts an error. What the request itself is to blame for is an answer; a
// request that was cancelled says nothing.
func outcomeOf(ctx context.Context, err error) outcome {
	var e *toolcrib.ModelError
	switch {
	case ctx.Err() != nil, !errors.As(err, &e):
		return outcome{kind: givenUp}
	case e.Class == toolcrib.ErrOverloaded, e.Class == toolcrib.ErrNetwork, e.Class == toolcrib.ErrTimeout:
		return outcome{kind: failed}
	case e.Class == toolcrib.ErrOther && e.Status >= 500:
		return outcome{kind: failed}
	case e.Unsent:
		return outcome{kind: givenUp} // such as a key that is missing
	case e.Class == toolcrib.ErrRateLimit:
		return outcome{kind: answered, pause: min(e.RetryAfter, MaxPause)}
	}
	return outcome{kind: answered}
}

// trialWait is what a request is told to wait that meets a trial in flight.
const trialWait = time.Second

// circuit is the state of a breaker. The line's lock guards it.
type circuit struct {
	failures int           // in a row; negative = it never opens
	pause    time.Duration // that it stays open
	recent   []time.Time   // failures in a row, the oldest first, at most failures
	open     bool          // also while a trial runs
	until    time.Time     // no trial before that
	trying   bool          // a trial is in flight
}

// refuses reports whether a request must fail now, and when to come again.
func (c *circuit) refuses(now time.Time) (wait time.Duration, no bool) {
	switch {
	case !c.open:
		return 0, false
	case now.Before(c.until):
		return c.until.Sub(now), true
	}
	return trialWait, c.trying
}

// admit lets a request pass that refuses has nothing against; trial reports that it is one.
func (c *circuit) admit() (trial bool) {
	c.trying = c.open
	return c.open
}

// record takes how a request ended; opened reports that the circuit is open now and
// was not before.
func (c *circuit) record(trial bool, kind outcomeKind, now time.Time) (opened bool) {
	c.trying = c.trying && !trial
	switch {
	case c.failures < 0, kind == givenUp, c.open && !trial: // it was sent before, and says nothing new
		return false
	case kind == answered:
		c.open, c.recent = false, c.recent[:0]
		return false
	case !trial:
		if c.recent = append(c.recent, now); len(c.recent) < c.failures {
			return false
		}
		first := c.recent[0]
		if c.recent = append(c.recent[:0], c.recent[1:]...); now.Sub(first) > minute {
			return false
		}
	}
	c.open, c.until, c.recent = true, now.Add(c.pause), c.recent[:0]
	return true
}
