package limit

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/toolcrib/toolcrib"
)

// line is the queue of the requests of one provider, first come, first served. Only
// the first request, which has the turn, checks the limits, so none is overtaken.
type line struct {
	opts Options
	turn chan struct{} // a semaphore: the request that sent to it has the turn

	mu      sync.Mutex
	waiting int
	running int
	sent    []time.Time // times of requests within the last minute, at most RequestsPerMinute
	paused  time.Time   // end of the pause that the provider asked for
	circuit circuit
	changed chan struct{} // closed when a request ends, for the request that has the turn
	opened  chan struct{} // closed when the circuit opens, for all waiting requests
}

func newLine(o Options) *line {
	return &line{
		opts: o, turn: make(chan struct{}, 1), changed: make(chan struct{}), opened: make(chan struct{}),
		circuit: circuit{failures: o.Failures, pause: o.Open},
	}
}

var errWaited = errors.New("waited too long")

// enter blocks until a request may be sent; then leave must be called once. Its error
// is a [*toolcrib.ModelError] of a request that was not sent. If pauseKnown is set, the pause that
// the provider asked for does not apply to the request, which then overtakes those that
// wait for it.
func (l *line) enter(ctx context.Context, pauseKnown bool) (trial bool, err error) {
	if ctx.Err() != nil {
		return false, l.gaveUp(ctx)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if pauseKnown = pauseKnown && l.paused.After(time.Now()); pauseKnown || l.waiting == 0 {
		if trial, _, passed, err := l.try(pauseKnown); passed || err != nil {
			return trial, err
		}
	}
	if l.waiting >= l.opts.MaxWaiting {
		return false, l.full()
	}
	l.waiting++
	defer func() { l.waiting-- }()
	ctx, cancel := context.WithTimeoutCause(ctx, l.opts.MaxWait, errWaited)
	defer cancel()
	opened := l.opened
	l.mu.Unlock()
	select {
	case l.turn <- struct{}{}:
		defer func() { <-l.turn }()
	case <-opened:
	case <-ctx.Done():
	}
	l.mu.Lock()
	for ctx.Err() == nil {
		trial, delay, passed, err := l.try(false)
		if passed || err != nil {
			return trial, err
		}
		changed, again := l.changed, time.NewTimer(delay)
		l.mu.Unlock()
		select {
		case <-changed:
		case <-again.C:
		case <-ctx.Done():
		}
		again.Stop()
		l.mu.Lock()
	}
	return false, l.gaveUp(ctx)
}

// try takes a place if the limits let a request pass now; otherwise delay is the longest time
// until they do if nothing changes. The lock must be held.
func (l *line) try(pauseKnown bool) (trial bool, delay time.Duration, passed bool, err error) {
	now := time.Now()
	if wait, no := l.circuit.refuses(now); no {
		return false, 0, false, l.down(wait)
	}
	for len(l.sent) > 0 && now.Sub(l.sent[0]) >= minute {
		l.sent = l.sent[1:]
	}
	switch pause, most := l.paused.Sub(now), l.opts.RequestsPerMinute; {
	case l.running >= l.opts.MaxConcurrent:
		return false, l.opts.MaxWait, false, nil
	case pause > 0 && !pauseKnown:
		return false, pause, false, nil
	case most > 0 && len(l.sent) >= most:
		return false, minute - now.Sub(l.sent[0]), false, nil
	case most > 0:
		l.sent = append(l.sent, now)
	}
	l.running++
	return l.circuit.admit(), 0, true, nil
}

// leave releases a place and records the outcome of the request.
func (l *line) leave(trial bool, out outcome) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.running--
	now := time.Now()
	if until := now.Add(out.pause); out.pause > 0 && until.After(l.paused) {
		l.paused = until
	}
	if l.circuit.record(trial, out.kind, now) { // waiting requests must not wait any longer
		close(l.opened)
		l.opened = make(chan struct{})
	}
	if l.waiting > 0 {
		close(l.changed)
		l.changed = make(chan struct{})
	}
}

// Errors of requests that were not sent.

func (l *line) down(wait time.Duration) error {
	return &toolcrib.ModelError{
		Class: toolcrib.ErrOverloaded, Provider: l.opts.Name, RetryAfter: wait, Unsent: true,
		Message: fmt.Sprintf("not asked: it failed several times in a row; it is tried again in %s",
			max(wait.Round(time.Second), time.Second)),
	}
}

func (l *line) full() error {
	return &toolcrib.ModelError{
		Class: toolcrib.ErrOverloaded, Provider: l.opts.Name, Unsent: true,
		Message: fmt.Sprintf("not asked: %d requests wait for it already (max_concurrent, requests_per_minute)",
			l.opts.MaxWaiting),
	}
}

func (l *line) gaveUp(ctx context.Context) error {
	cause := context.Cause(ctx)
	if errors.Is(cause, errWaited) {
		return &toolcrib.ModelError{
			Class: toolcrib.ErrOverloaded, Provider: l.opts.Name, Unsent: true, Err: cause,
			Message: fmt.Sprintf("not asked: it was not this request's turn within %s (max_concurrent, requests_per_minute)",
				l.opts.MaxWait),
		}
	}
	return &toolcrib.ModelError{
		Class: toolcrib.ErrOther, Provider: l.opts.Name, Unsent: true, Err: cause,
		Message: "not asked: the request was given up while it waited for its turn",
	}
}
