package notify

import (
	"context"
	"io"
	"log"
	"time"

	"github.com/nicholas-fedor/shoutrrr"
	"github.com/nicholas-fedor/shoutrrr/pkg/types"

	"github.com/toolcrib/toolcrib/internal/notify/address"
)

// tell sends the text of a message to a messenger; "" = it was taken. The library
// cannot be told to stop: what it still does when ctx ends ends with its own time
// limits, or with the process.
func (n *Notifier) tell(ctx context.Context, to string, m Message) string {
	limit := n.o.Total
	if end, ok := ctx.Deadline(); ok {
		limit = min(limit, time.Until(end))
	}
	if ctx.Err() != nil || limit <= 0 {
		return failure(context.DeadlineExceeded)
	}
	done := make(chan string, 1)
	go func() { done <- shout(to, m.Text(), limit) }()
	select {
	case reason := <-done:
		return reason
	case <-ctx.Done():
		return failure(ctx.Err())
	}
}

// shout never repeats what the library says: it may hold the address.
func shout(to, text string, limit time.Duration) (reason string) {
	defer func() {
		if recover() != nil {
			reason = "it cannot be sent to"
		}
	}()
	sender, err := shoutrrr.CreateSender(to)
	if err != nil {
		return "the address is none of " + address.Scheme(to) + ", or it does not let toolcrib in"
	}
	sender.SetLogger(log.New(io.Discard, "", 0))
	sender.Timeout = limit
	for _, err := range sender.Send(text, &types.Params{"title": "toolcrib"}) {
		if err != nil {
			return "it did not take the message"
		}
	}
	return ""
}
