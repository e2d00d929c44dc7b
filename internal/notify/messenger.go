package notify

import (
	"context"
	"io"
	"log"
	"net/url"
	"sync"

	"github.com/nicholas-fedor/shoutrrr/pkg/types"

	"github.com/toolcrib/toolcrib/internal/notify/address"
)

// Line holds what is on its way to messengers, one message for each address. The
// library cannot be told to stop: what it still does when its time is up continues until
// its own limits, or the process, end it, and until then nothing else is sent there.
// The zero value is ready; it is safe for use by many goroutines, and must not be copied.
type Line struct {
	mu  sync.Mutex
	out map[string]*turn // by address
}

// turn is whose turn it is at one address.
type turn struct {
	free  chan struct{} // holds a value while nothing is on its way
	hangs bool          // the sender of what is on its way has gone; under Line.mu
}

// at returns the turn at an address, and whether a message hangs there.
func (l *Line) at(to string) (t *turn, hangs bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if t = l.out[to]; t == nil {
		if l.out == nil {
			l.out = map[string]*turn{}
		}
		t = &turn{free: make(chan struct{}, 1)}
		t.free <- struct{}{}
		l.out[to] = t
	}
	return t, t.hangs
}

// tell sends the text of a message to a messenger; "" = it was taken. Where an earlier one
// hangs it fails at once: so many that hang would pile up.
func (n *Notifier) tell(ctx context.Context, to string, m Message) string {
	l := n.o.Line
	t, hangs := l.at(to)
	if hangs {
		return "an earlier message to it still hangs; nothing else is sent there before that ends"
	}
	select {
	case <-t.free:
	case <-ctx.Done():
		return failure(ctx.Err())
	}
	if ctx.Err() != nil {
		t.free <- struct{}{}
		return failure(ctx.Err())
	}
	ended, outcome := false, make(chan string, 1)
	go func() {
		reason := shout(to, m.Text())
		l.mu.Lock()
		ended, t.hangs = true, false
		l.mu.Unlock()
		t.free <- struct{}{}
		outcome <- reason
	}()
	select {
	case reason := <-outcome:
		return reason
	case <-ctx.Done():
		l.mu.Lock()
		t.hangs = t.hangs || !ended
		l.mu.Unlock()
		return failure(ctx.Err())
	}
}

// shout ends when the library has done with the message, however long that takes: the
// library's own limit would only leave it behind unseen. What the library says is never
// repeated: it may hold the address.
func shout(to, text string) (reason string) {
	defer func() {
		if recover() != nil {
			reason = "it cannot be sent to"
		}
	}()
	u, err := url.Parse(to)
	var service messenger
	if err == nil && messengers[u.Scheme] != nil {
		service = messengers[u.Scheme]()
		err = service.Initialize(u, log.New(io.Discard, "", 0))
	}
	if err != nil || service == nil {
		return address.Scheme(to) + " does not know the address, or does not let toolcrib in"
	}
	if service.Send(text, &types.Params{"title": "toolcrib"}) != nil {
		return "it did not take the message"
	}
	return ""
}
