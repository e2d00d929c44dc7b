package notify

import (
	"context"
	"io"
	"log"
	"sync"

	"github.com/nicholas-fedor/shoutrrr/pkg/router"
	"github.com/nicholas-fedor/shoutrrr/pkg/types"

	"github.com/toolcrib/toolcrib/internal/notify/address"
)

// Line holds what is on its way to messengers, one message for each address. The
// library cannot be told to stop: what it still does when its time is up continues until
// its own limits, or the process, end it, and until then nothing else is sent there.
// The zero value is ready; it is safe for use by many goroutines, and must not be copied.
type Line struct {
	mu  sync.Mutex
	out map[string]*underway // by address
}

// underway is one message that the library has.
type underway struct {
	done    chan struct{} // closed when the library has let go of it
	hangs   chan struct{} // closed when its sender has gone
	outcome string        // once done is closed; "" = it was taken
}

// reasonHangs is why nothing is sent: so many that hang would pile up.
const reasonHangs = "an earlier message to it still hangs; nothing else is sent there before that ends"

// enter waits for its turn, and fails at once where a message hangs.
func (l *Line) enter(ctx context.Context, to string) (mine *underway, reason string) {
	for {
		l.mu.Lock()
		other := l.out[to]
		if other == nil {
			if l.out == nil {
				l.out = map[string]*underway{}
			}
			mine = &underway{done: make(chan struct{}), hangs: make(chan struct{})}
			l.out[to] = mine
			l.mu.Unlock()
			return mine, ""
		}
		l.mu.Unlock()
		select {
		case <-other.hangs:
			return nil, reasonHangs
		default:
		}
		select {
		case <-other.done:
		case <-other.hangs:
			return nil, reasonHangs
		case <-ctx.Done():
			return nil, failure(ctx.Err())
		}
	}
}

// end tells that the library has let go of a message.
func (l *Line) end(to string, u *underway, outcome string) {
	l.mu.Lock()
	delete(l.out, to)
	l.mu.Unlock()
	u.outcome = outcome
	close(u.done)
}

// tell sends the text of a message to a messenger; "" = it was taken.
func (n *Notifier) tell(ctx context.Context, to string, m Message) string {
	mine, reason := n.o.Line.enter(ctx, to)
	if mine == nil {
		return reason
	}
	if ctx.Err() != nil {
		reason = failure(ctx.Err())
		n.o.Line.end(to, mine, reason)
		return reason
	}
	go func() { n.o.Line.end(to, mine, shout(to, m.Text())) }()
	select {
	case <-mine.done:
		return mine.outcome
	case <-ctx.Done():
		close(mine.hangs)
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
	var known router.ServiceRouter
	known.SetLogger(log.New(io.Discard, "", 0))
	service, err := known.Locate(to)
	if err != nil {
		return address.Scheme(to) + " does not know the address, or does not let toolcrib in"
	}
	if service.Send(text, &types.Params{"title": "toolcrib"}) != nil {
		return "it did not take the message"
	}
	return ""
}
