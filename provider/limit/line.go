package limit

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/toolcrib/toolcrib"
)

// line is where the requests of one provider wait, first come, first served. Only
// the first of them looks at the limits, so nobody is overtaken and only one
// sleeps.
type line struct {
	opts Options

	mu      sync.Mutex
	waiting []*waiter
	running int
	sent    []time.Time // within the last minute, at most RequestsPerMinute
	paused  time.Time   // the provider asked to be left alone until then
	circuit circuit
}

// waiter is a request that waits. look is given a token when something has changed
// for it; wake, if set, ends its sleep.
type waiter struct {
	look chan struct{}
	wake context.CancelFunc
}

func (w *waiter) poke() {
	select {
	case w.look <- struct{}{}:
	default:
	}
	if w.wake != nil {
		w.wake()
	}
}

func newLine(o Options) *line {
	return &line{opts: o, circuit: circuit{failures: o.Failures, pause: o.Open}}
}

var errWaited = errors.New("waited too long")

// enter returns when a request may be sent; then leave must follow, once. Its error
// is a [*toolcrib.ModelError] of a request that was not sent. The pause that the provider
// asked for does not hold a request that knows of it; others, which it holds, are
// overtaken.
func (l *line) enter(ctx context.Context, told bool) (permit, error) {
	if ctx.Err() != nil {
		return permit{}, l.gaveUp(ctx)
	}
	l.mu.Lock()
	now := l.opts.Clock.Now()
	if wait, no := l.circuit.refuses(now); no {
		defer l.mu.Unlock()
		return permit{}, l.down(wait)
	}
	if told && l.paused.After(now) || len(l.waiting) == 0 {
		if _, ready := l.ready(now, told); ready {
			defer l.mu.Unlock()
			return l.take(now), nil
		}
	}
	if len(l.waiting) >= l.opts.MaxWaiting {
		defer l.mu.Unlock()
		return permit{}, l.full()
	}
	w := &waiter{look: make(chan struct{}, 1)}
	l.waiting = append(l.waiting, w)
	if len(l.waiting) == 1 {
		w.poke()
	}
	l.mu.Unlock()
	return l.wait(ctx, w)
}

// wait waits until w is the first and nothing holds it back.
func (l *line) wait(ctx context.Context, w *waiter) (permit, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, l.opts.MaxWait, errWaited)
	defer cancel()
	for {
		select {
		case <-w.look:
		case <-ctx.Done():
			l.mu.Lock()
			defer l.mu.Unlock()
			l.remove(w)
			return permit{}, l.gaveUp(ctx)
		}
		p, delay, err := l.try(w)
		if err != nil || delay == 0 {
			return p, err
		}
		if delay > 0 {
			l.sleep(ctx, w, delay)
		}
	}
}

// try lets w pass if it can. A delay above 0 is when to look again, one below 0
// says that someone else will tell.
func (l *line) try(w *waiter) (p permit, delay time.Duration, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.opts.Clock.Now()
	if wait, no := l.circuit.refuses(now); no {
		l.remove(w)
		return permit{}, 0, l.down(wait)
	}
	if l.waiting[0] != w {
		return permit{}, -1, nil
	}
	delay, ready := l.ready(now, false)
	if !ready {
		return permit{}, delay, nil
	}
	p = l.take(now)
	l.remove(w)
	return p, 0, nil
}

// sleep waits until it is time to look again, or something has changed.
func (l *line) sleep(ctx context.Context, w *waiter, delay time.Duration) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	l.mu.Lock()
	if len(w.look) > 0 {
		l.mu.Unlock()
		return
	}
	w.wake = cancel
	l.mu.Unlock()
	err := l.opts.Clock.Sleep(ctx, delay)
	l.mu.Lock()
	defer l.mu.Unlock()
	w.wake = nil
	if err == nil {
		w.poke()
	}
}

// ready reports whether the limits let a request pass now; a delay above 0 is when to
// look again, one below 0 means that a place must become free.
func (l *line) ready(now time.Time, told bool) (delay time.Duration, ready bool) {
	if l.running >= l.opts.MaxConcurrent {
		return -1, false
	}
	if d := l.paused.Sub(now); d > 0 && !told {
		return d, false
	}
	for len(l.sent) > 0 && now.Sub(l.sent[0]) >= minute {
		l.sent = l.sent[1:]
	}
	if most := l.opts.RequestsPerMinute; most > 0 && len(l.sent) >= most {
		return minute - now.Sub(l.sent[0]), false
	}
	return 0, true
}

func (l *line) take(now time.Time) permit {
	l.running++
	if l.opts.RequestsPerMinute > 0 {
		l.sent = append(l.sent, now)
	}
	return l.circuit.admit()
}

// leave gives a place back and takes note of how the request ended.
func (l *line) leave(p permit, out outcome) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.running--
	now := l.opts.Clock.Now()
	if until := now.Add(out.pause); out.pause > 0 && until.After(l.paused) {
		l.paused = until
	}
	if l.circuit.record(p, out.kind, now) {
		for _, w := range l.waiting { // none of them had better wait
			w.poke()
		}
		return
	}
	l.first()
}

// first lets the first of the line look.
func (l *line) first() {
	if len(l.waiting) > 0 {
		l.waiting[0].poke()
	}
}

// remove takes w out of the line and lets the next one look.
func (l *line) remove(w *waiter) {
	for i := range l.waiting {
		if l.waiting[i] == w {
			l.waiting = append(l.waiting[:i], l.waiting[i+1:]...)
			break
		}
	}
	l.first()
}

// The errors of requests that were not sent.

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
