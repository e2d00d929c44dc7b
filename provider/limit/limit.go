// Package limit is what stands between a provider and all runs of a process that
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
	Breaker Breaker
	Clock   Clock // nil = the machine's
}

// Clock tells the time and waits. Tests give their own.
type Clock interface {
	Now() time.Time
	// Sleep waits for d, or until ctx ends, and then returns its error.
	Sleep(ctx context.Context, d time.Duration) error
}

func (o Options) withDefaults() Options {
	if o.MaxConcurrent <= 0 {
		o.MaxConcurrent = DefaultMaxConcurrent
	}
	if o.MaxWaiting <= 0 {
		o.MaxWaiting = DefaultMaxWaiting
	}
	if o.MaxWait <= 0 {
		o.MaxWait = DefaultMaxWait
	}
	if o.Clock == nil {
		o.Clock = machine{}
	}
	o.Breaker = o.Breaker.withDefaults()
	return o
}

// Model is a model under the limits of its provider. It is safe for use by many
// runs at once; every conversation of it is under the same limits.
type Model struct {
	inner toolcrib.Model
	line  *line
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
	if c, ok := m.inner.(toolcrib.Conversational); ok {
		return &Model{inner: c.Conversation(), line: m.line}
	}
	return m
}

// Stream waits for its turn, then sends the request. The place is given back when
// the stream ends, however it does.
func (m *Model) Stream(ctx context.Context, req *toolcrib.Request) iter.Seq2[toolcrib.Delta, error] {
	return func(yield func(toolcrib.Delta, error) bool) {
		trial, err := m.line.enter(ctx)
		if err != nil {
			yield(toolcrib.Delta{}, err)
			return
		}
		out := outcome{kind: givenUp} // a panic, or nobody is listening
		defer func() { m.line.leave(trial, out) }()
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

// errBrokenOff stands for a stream without an end, which the loop takes for a fault
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

// machine is the clock of the machine.
type machine struct{}

func (machine) Now() time.Time { return time.Now() }

func (machine) Sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
