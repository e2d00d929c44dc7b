package limit

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
	"weak"

	"github.com/toolcrib/toolcrib"
)

// line is the queue of the requests of one provider, first come, first served. Only
// the first request, which has the turn, checks the limits, so none is overtaken.
type line struct {
	opts  Options
	share Share         // nil if the limits are those of this process alone
	turn  chan struct{} // a semaphore: the request that sent to it has the turn

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
	l := &line{
		opts: o, turn: make(chan struct{}, 1), changed: make(chan struct{}), opened: make(chan struct{}),
		circuit: circuit{failures: o.Failures, pause: o.Open},
	}
	if o.Share != nil {
		l.share = o.Share(local{weak.Make(l)})
	}
	return l
}

// local implements [Local]. It does not keep a line that is no longer used.
type local struct{ line weak.Pointer[line] }

func (w local) Use() (running, waiting, sent int, ok bool) {
	l := w.line.Value()
	if l == nil {
		return 0, 0, 0, false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.forget(time.Now())
	return l.running, l.waiting, len(l.sent), true
}

func (w local) Changed() {
	if l := w.line.Value(); l != nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.wake()
	}
}

func (w local) Hold(down bool, d time.Duration) {
	l := w.line.Value()
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if down {
		l.circuit.hold(d > 0, time.Now())
	} else {
		l.pause(min(d, MaxPause))
	}
	l.wake()
}

// forget removes the times of requests that were sent more than a minute ago. The lock must be held.
func (l *line) forget(now time.Time) {
	for len(l.sent) > 0 && now.Sub(l.sent[0]) >= minute {
		l.sent = l.sent[1:]
	}
}

// wake has the request that has the turn look again. The lock must be held.
func (l *line) wake() {
	if l.waiting > 0 {
		close(l.changed)
		l.changed = make(chan struct{})
	}
}

// open has waiting requests fail, because the circuit has opened. The lock must be held.
func (l *line) open() {
	close(l.opened)
	l.opened = make(chan struct{})
}

// pause begins a pause that the provider asked for. The lock must be held.
func (l *line) pause(d time.Duration) {
	if until := time.Now().Add(d); until.After(l.paused) {
		l.paused = until
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
		l.used()
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
	l.forget(now)
	concurrent, most := l.opts.MaxConcurrent, l.opts.RequestsPerMinute
	if l.share != nil {
		part, perMinute := l.share.Part()
		concurrent = min(concurrent, part)
		if most > 0 {
			most = min(most, perMinute)
		}
	}
	switch pause := l.paused.Sub(now); {
	case l.running >= concurrent:
		return false, l.opts.MaxWait, false, nil
	case pause > 0 && !pauseKnown:
		return false, pause, false, nil
	case l.opts.RequestsPerMinute > 0 && len(l.sent) >= most:
		if len(l.sent) == 0 { // all of the limit is used by others
			return false, l.opts.MaxWait, false, nil
		}
		return false, minute - now.Sub(l.sent[0]), false, nil
	case l.opts.RequestsPerMinute > 0:
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
	if out.pause > 0 {
		l.pause(out.pause)
		l.tell(false, out.pause)
	}
	switch opened, closed := l.circuit.record(trial, out.kind, time.Now()); {
	case opened: // waiting requests must not wait any longer
		l.open()
		l.tell(true, l.opts.Open)
	case closed:
		l.tell(true, 0)
	}
	l.used()
	l.wake()
}

// tell reports a pause to the other processes, or that the circuit has opened or closed.
func (l *line) tell(down bool, d time.Duration) {
	if l.share != nil {
		l.share.Tell(down, d)
	}
}

// used reports the use of the limits. The lock must be held.
func (l *line) used() {
	if l.share != nil {
		l.share.Changed(l.running, l.waiting, len(l.sent))
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
