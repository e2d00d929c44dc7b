// Package notify sends notifications of runs that wait for a person's decision (approvals.notify).
//
// An address of http or https is a webhook: the message is posted as JSON, signed according to
// Standard Webhooks 1.0 (https://www.standardwebhooks.com). Any other address names a messenger, by
// its URL in nicholas-fedor/shoutrrr, which gets a few lines of text.
//
// Failures do not affect the run, and sending takes only a few seconds. Failures are reported without
// the address, which may be a secret, except for its host.
package notify

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/internal/notify/address"
	"github.com/toolcrib/toolcrib/journal"
)

// Target is an address that is notified.
type Target struct {
	Address string // resolved address, which must not be shown
	Key     []byte // signs messages to a webhook; see [address.Key]
}

// Options bound the sending. The zero value has the defaults.
type Options struct {
	UserAgent string
	Total     time.Duration     // timeout for all targets; 0 means 8s
	Attempt   time.Duration     // timeout for one attempt; 0 means 3s
	Transport http.RoundTripper // for webhooks; if nil, a new one without a proxy
	// Wait waits between two attempts. If nil, it is a real delay.
	Wait func(ctx context.Context, d time.Duration) error
	Now  func() time.Time // if nil, time.Now
	Line *Line            // shared by the notifiers of a process; if nil, a new one
}

// The defaults of [Options].
const (
	defaultTotal   = 8 * time.Second
	defaultAttempt = 3 * time.Second
)

// Notifier sends messages. It is safe for concurrent use.
type Notifier struct {
	targets []Target
	o       Options
}

// Failure says that a target was not notified.
type Failure struct {
	Target int    // index of the target
	Where  string // part of the address that may be shown
	Reason string // reason, without secrets
}

// New returns a notifier for targets, whose addresses must have passed [address.Check].
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

// Send notifies all targets concurrently, and returns the failures in their order. It returns within
// Options.Total, and soon after ctx ends.
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
	return Tell(ctx, n.o.Line, t.Address, m.Text())
}

// The types of messages.
const (
	TypeApproval = "approval.required"
	TypeTest     = "approval.test"
)

// Message is a notification. As JSON it is the body of a webhook.
type Message struct {
	// ID is the webhook-id. It is the same each time that a message is sent, so that receivers can
	// detect duplicates. It is not part of the body.
	ID   string    `json:"-"`
	Type string    `json:"type"`
	Time time.Time `json:"time"`

	ApprovalID string               `json:"approval_id,omitempty"`
	Digest     string               `json:"digest,omitempty"`
	Run        toolcrib.RunID       `json:"run_id,omitempty"`
	Agent      string               `json:"agent,omitempty"`
	User       string               `json:"user,omitempty"` // user for whom the run acts
	Kind       journal.ApprovalKind `json:"kind,omitempty"`
	Reason     string               `json:"reason,omitempty"`
	Question   string               `json:"question,omitempty"` // only for kind input
	Schema     json.RawMessage      `json:"schema,omitempty"`
	ExpiresAt  *time.Time           `json:"expires_at"` // null if it does not expire
	Calls      []Call               `json:"calls"`
	Commands   []string             `json:"commands"`            // commands that show and decide it
	URL        string               `json:"url,omitempty"`       // its page, if the address of the server is known
	Truncated  bool                 `json:"truncated,omitempty"` // whether anything is cut or left out
}

// Call is a call that needs approval.
type Call struct {
	ID        string            `json:"id"`
	Name      string            `json:"name"`
	Effect    toolcrib.Effect   `json:"effect"`
	Arguments json.RawMessage   `json:"arguments"` // as in the journal; null if Truncated
	Preview   *toolcrib.Preview `json:"preview"`
	Truncated bool              `json:"truncated,omitempty"` // whether arguments and preview were too large
}

// Bounds of messages, in bytes.
const (
	maxBody     = 256 << 10
	maxText     = 1800 // messengers take about 2000 characters
	maxTextCall = 200

	// Bounds in a body that would otherwise be larger.
	maxArguments = 1 << 10 // arguments and preview of a call, each
	maxWords     = 4 << 10 // question and reason, each
)

// body returns the message as JSON of at most maxBody bytes. If it would be larger, large arguments and
// previews, the schema and the ends of long texts are left out first, then the last calls.
func (m Message) body() ([]byte, error) {
	body, err := json.Marshal(m)
	if err != nil || len(body) <= maxBody {
		return body, err
	}
	m.shorten()
	for {
		body, err := json.Marshal(m)
		if err != nil || len(body) <= maxBody || len(m.Calls) == 0 {
			return body, err
		}
		m.Calls = m.Calls[:len(m.Calls)/2]
	}
}

// shorten bounds the texts of the message, but not the number of calls.
func (m *Message) shorten() {
	m.Truncated, m.Schema = true, nil
	m.Question, m.Reason = guard.Cut(m.Question, maxWords), guard.Cut(m.Reason, maxWords)
	m.Calls = slices.Clone(m.Calls)
	for i := range m.Calls {
		c := &m.Calls[i]
		if len(c.Arguments) > maxArguments || c.Preview != nil && len(c.Preview.Text) > maxArguments {
			c.Arguments, c.Preview, c.Truncated = nil, nil, true
		}
	}
}

// plain removes markup for messengers, such as mentions and links, from a text that a model may have
// written.
func plain(text string) string {
	text = strings.Join(strings.Fields(guard.Visible(text)), " ")
	return strings.NewReplacer("@", "＠", "<", "‹", ">", "›", "`", "'", "://", ": //", "*", "∗",
		"[", "(", "]", ")", "|", "¦").Replace(text)
}

// Text returns the message as a few lines of text.
func (m Message) Text() string {
	if m.Type == TypeTest {
		return "toolcrib: this is a test. Approvals will be announced here."
	}
	what := map[journal.ApprovalKind]string{
		journal.ApprovalCall: "an approval", journal.ApprovalInDoubt: "a decision on calls in doubt",
		journal.ApprovalInput: "an answer",
	}[m.Kind]
	var b strings.Builder
	fmt.Fprintf(&b, "toolcrib: a run of agent %s for %s waits for %s\n", plain(m.Agent), plain(m.User), what)
	if m.Question != "" {
		fmt.Fprintln(&b, guard.Cut(plain(m.Question), maxTextCall))
	} else {
		for _, c := range m.Calls {
			line := fmt.Sprintf("- %s (%s) %s", plain(c.Name), c.Effect, guard.Cut(plain(string(c.Arguments)), maxTextCall))
			if b.Len()+len(line) > maxText/2 {
				fmt.Fprintln(&b, "- …")
				break
			}
			fmt.Fprintln(&b, line)
		}
	}
	if m.URL != "" && len(m.URL) < maxTextCall {
		fmt.Fprintln(&b, m.URL)
	}
	for _, c := range m.Commands {
		if b.Len()+len(c) < maxText {
			fmt.Fprintln(&b, plain(c))
		}
	}
	return strings.TrimRight(b.String(), "\n")
}
