// Package limit enforces limits between a provider and all runs of a process that
// use it, or of several processes ([Share]): concurrent requests, requests per minute, the pause
// that the provider asked for, and a circuit breaker.
//
// It is a decorator around a [toolcrib.Model]. It never sends a request
// twice: retry and fallback are the loop's. Requests that cannot be sent yet wait
// in the order of their arrival until their context ends; while the circuit is open,
// requests fail at once. Every error of this package is of a request that was not sent
// ([toolcrib.ModelError.Unsent]).
package limit

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"slices"
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
	MaxPause             = 60 * time.Second // the longest pause that one request's reply imposes on others
	minute               = time.Minute
)

// Options are the limits of a provider. The zero value is useful: many
// concurrent requests, any number per minute, and a breaker.
type Options struct {
	Name              string // name of the provider, for errors
	MaxConcurrent     int    // concurrent requests; if 0, 256
	RequestsPerMinute int    // in any 60 s; if 0, no limit
	MaxWaiting        int    // waiting requests; one more fails at once; if 0, 1024
	// MaxWait is the longest that a request waits; if 0, 10 min.
	MaxWait time.Duration

	// After Failures in a row within a minute the circuit opens: every request fails
	// at once for the time Open, so that the loop can continue with another model. After that,
	// one request at a time is let through, and the first that is answered closes the
	// circuit.
	//
	// Failures are errors of class overloaded, network and timeout, and of class other with a
	// status of 500 or more. Errors of class auth, bad_request, context_length, refused and
	// rate_limit are not (the request itself is at fault, or was too early), nor are
	// canceled requests.
	Failures int           // if 0, 5; if negative, the circuit never opens
	Open     time.Duration // if 0, 30 s

	// Share returns this process's share of the limits, which several processes have together. If nil, or if it
	// returns nil, they are those of this process alone.
	Share func(Local) Share
}

// Local is the use of limits in this process. Its methods may be called from any goroutine.
type Local interface {
	// Use returns the numbers of requests that are in flight, that wait, and that were sent within the last minute.
	// ok is false if there will be no more.
	Use() (running, waiting, sent int, ok bool)
	// Changed reports that the part of this process has changed.
	Changed()
	// Hold reports that the provider has asked another process for a pause or, if down is set, has failed there until
	// the circuit has opened. If d is 0, it answers again.
	Hold(down bool, d time.Duration)
}

// Share is the share of a process in the limits of a provider. Its methods do not block, and do not call [Local].
type Share interface {
	// Part returns how many concurrent requests and requests per minute this process may send now.
	Part() (concurrent, perMinute int)
	// Changed reports the use in this process.
	Changed(running, waiting, sent int)
	// Tell reports a [Local.Hold] to the other processes.
	Tell(down bool, d time.Duration)
}

func (o Options) withDefaults() Options {
	o.MaxConcurrent = cmp.Or(max(o.MaxConcurrent, 0), DefaultMaxConcurrent)
	o.MaxWaiting = cmp.Or(max(o.MaxWaiting, 0), DefaultMaxWaiting)
	o.MaxWait = cmp.Or(max(o.MaxWait, 0), DefaultMaxWait)
	o.Failures = cmp.Or(o.Failures, DefaultFailures)
	o.Open = cmp.Or(max(o.Open, 0), DefaultOpen)
	return o
}

// Model is a model under the limits of its provider. It is safe for concurrent use; all conversations share the
// limits.
type Model struct {
	inner toolcrib.Model
	line  *line
	// pauseKnown reports whether the reply to the last request of this conversation asked for a
	// pause. Its run has waited already, so the pause applies to others only.
	own, pauseKnown bool
}

var _ interface {
	toolcrib.Model
	toolcrib.Conversational
} = (*Model)(nil)

// New returns inner under limits. For several models of one provider, New is
// called once for all of them.
func New(inner toolcrib.Model, o Options) *Model {
	return &Model{inner: inner, line: newLine(o.withDefaults())}
}

// Unwrap returns the wrapped model.
func (m *Model) Unwrap() toolcrib.Model { return m.inner }

// Conversation implements [toolcrib.Conversational].
func (m *Model) Conversation() toolcrib.Model {
	inner := m.inner
	if c, ok := inner.(toolcrib.Conversational); ok {
		inner = c.Conversation()
	}
	return &Model{inner: inner, line: m.line, own: true}
}

// Stream waits until the limits permit the request, and then sends it. Its place is
// released when the stream ends, for whatever reason.
func (m *Model) Stream(ctx context.Context, req *toolcrib.Request) iter.Seq2[toolcrib.Delta, error] {
	return func(yield func(toolcrib.Delta, error) bool) {
		trial, err := m.line.enter(ctx, m.pauseKnown)
		if err != nil {
			yield(toolcrib.Delta{}, err)
			return
		}
		out := outcome{kind: givenUp} // after a panic, or if the caller stops reading
		defer func() {
			if m.own {
				m.pauseKnown = out.pause > 0
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

// errBrokenOff is the error of a stream without an end, which the loop treats as a network
// error.
var errBrokenOff = &toolcrib.ModelError{Class: toolcrib.ErrNetwork, Message: "the reply broke off before its end"}

// outcome is the result of a request as it concerns its provider.
type outcome struct {
	kind  outcomeKind
	pause time.Duration // pause that the provider asked for
}

type outcomeKind int

const (
	givenUp  outcomeKind = iota // no information about the provider
	answered                    // the provider answers, even if it refuses
	failed                      // overloaded or unreachable
)

// outcomeOf classifies an error. An error that the request itself caused counts as answered,
// a canceled request as givenUp.
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
		return outcome{kind: givenUp} // such as a missing key
	case e.Class == toolcrib.ErrRateLimit:
		return outcome{kind: answered, pause: min(e.RetryAfter, MaxPause)}
	}
	return outcome{kind: answered}
}

// trialWait is the delay after which to retry a request that arrived during a trial.
const trialWait = time.Second

// circuit is the state of a breaker, guarded by the line's lock.
type circuit struct {
	failures int           // limit of failures in a row; if negative, it never opens
	pause    time.Duration // time that it stays open
	recent   []time.Time   // times of the failures in a row, oldest first, at most failures
	open     bool          // true also during a trial
	until    time.Time     // earliest time of a trial
	trying   bool          // a trial is in flight
}

// refuses reports whether a request must fail now, and the delay after which to retry.
func (c *circuit) refuses(now time.Time) (wait time.Duration, no bool) {
	switch {
	case !c.open:
		return 0, false
	case now.Before(c.until):
		return c.until.Sub(now), true
	}
	return trialWait, c.trying
}

// hold takes the report of another process that the provider is down or answers again. The reason may be the network of
// that process, so the next request of this one decides: one failure opens the circuit, one answer closes it.
func (c *circuit) hold(down bool, now time.Time) {
	switch {
	case !down:
		c.until = now
	case !c.open && c.failures > 0:
		c.recent = slices.Repeat([]time.Time{now}, c.failures-1)
	}
}

// admit lets a request pass that refuses did not refuse; trial reports whether it is a trial.
func (c *circuit) admit() (trial bool) {
	c.trying = c.open
	return c.open
}

// record records the outcome of a request, and reports whether that opened or closed the circuit.
func (c *circuit) record(trial bool, kind outcomeKind, now time.Time) (opened, closed bool) {
	c.trying = c.trying && !trial
	switch {
	case c.failures < 0, kind == givenUp, c.open && !trial: // sent before the circuit opened
		return false, false
	case kind == answered:
		closed = c.open
		c.open, c.recent = false, c.recent[:0]
		return false, closed
	case !trial:
		if c.recent = append(c.recent, now); len(c.recent) < c.failures {
			return false, false
		}
		first := c.recent[0]
		if c.recent = append(c.recent[:0], c.recent[1:]...); now.Sub(first) > minute {
			return false, false
		}
	}
	c.open, c.until, c.recent = true, now.Add(c.pause), c.recent[:0]
	return true, false
}
