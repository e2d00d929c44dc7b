// Package notify tells people elsewhere that a run waits for a decision of theirs
// (contract §2, approvals.notify).
//
// An address of http or https is a webhook: the message is posted as JSON, signed as
// Standard Webhooks 1.0 says (https://www.standardwebhooks.com). Any other address
// names a messenger, by the URL that nicholas-fedor/shoutrrr gives it; it gets a few
// lines of text.
//
// Nothing here fails a run, and nothing waits for longer than a few seconds. What goes
// wrong is told without the address, which may be a secret, but for its host.
package notify

import (
	"context"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/toolcrib/toolcrib/internal/notify/address"
)

// Target is one address that is told.
type Target struct {
	Address string // filled in; never shown
	Key     []byte // signs what is sent to a webhook; see [address.Key]
}

// Options bound the sending. The zero value has the defaults.
type Options struct {
	UserAgent string
	Total     time.Duration     // for all targets together; 0 = 8s
	Attempt   time.Duration     // for one try; 0 = 3s
	Transport http.RoundTripper // of webhooks; if nil, a new one: no proxy, certificates verified
	// Wait waits between two tries; if nil, really.
	Wait func(ctx context.Context, d time.Duration) error
	Now  func() time.Time // nil = the machine's
	Line *Line            // shared by the notifiers of a process; nil = one of its own
}

// The defaults of [Options]. Nobody waits for longer than Total, and a little for what
// ends then.
const (
	defaultTotal   = 8 * time.Second
	defaultAttempt = 3 * time.Second
)

// Notifier sends messages. It is safe for use by many goroutines.
type Notifier struct {
	targets []Target
	o       Options
}

// Failure says that a target was not told.
type Failure struct {
	Target int
	Where  string // what may be shown of the address
	Reason string // without any secret
}

// New makes a notifier of targets that [address.Check] has nothing against.
func New(targets []Target, o Options) *Notifier {
	if o.Total <= 0 {
		o.Total = defaultTotal
	}
	if o.Attempt <= 0 {
		o.Attempt = defaultAttempt
	}
	if o.Transport == nil {
		o.Transport = transport(o.Attempt)
	}
	if o.Wait == nil {
		o.Wait = wait
	}
	if o.Line == nil {
		o.Line = new(Line)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Notifier{targets: slices.Clone(targets), o: o}
}

func wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Send tells all targets at once, and returns those that could not be told, in their
// order. It ends within Options.Total, and soon after ctx does.
func (n *Notifier) Send(ctx context.Context, m Message) []Failure {
	ctx, cancel := context.WithTimeout(ctx, n.o.Total)
	defer cancel()
	reasons := make([]string, len(n.targets))
	var wg sync.WaitGroup
	for i, target := range n.targets {
		wg.Go(func() { reasons[i] = n.one(ctx, target, m) })
	}
	wg.Wait()
	var failed []Failure
	for i, reason := range reasons {
		if reason != "" {
			failed = append(failed, Failure{Target: i, Where: address.Where(n.targets[i].Address), Reason: reason})
		}
	}
	return failed
}

func (n *Notifier) one(ctx context.Context, t Target, m Message) string {
	if problem := address.Check(t.Address); problem != "" {
		return "the address " + problem
	}
	if address.IsWebhook(t.Address) {
		return n.post(ctx, t, m)
	}
	return n.tell(ctx, t.Address, m)
}
