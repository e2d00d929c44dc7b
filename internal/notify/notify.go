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

// The types of messages.
const (
	TypeApproval = "approval.required"
	TypeTest     = "approval.test"
)

// Message is what is told. As JSON it is the body of a webhook.
type Message struct {
	// ID is the webhook-id: the same for the same message, however often it is sent, so
	// that a receiver can tell. It is not part of the body.
	ID   string    `json:"-"`
	Type string    `json:"type"`
	Time time.Time `json:"time"`

	ApprovalID string               `json:"approval_id,omitempty"`
	Digest     string               `json:"digest,omitempty"`
	Run        toolcrib.RunID       `json:"run_id,omitempty"`
	Agent      string               `json:"agent,omitempty"`
	User       string               `json:"user,omitempty"` // for whom the run acts
	Kind       journal.ApprovalKind `json:"kind,omitempty"`
	Reason     string               `json:"reason,omitempty"`
	Question   string               `json:"question,omitempty"` // of kind input
	Schema     json.RawMessage      `json:"schema,omitempty"`
	ExpiresAt  *time.Time           `json:"expires_at"` // null = never
	Calls      []Call               `json:"calls"`
	Commands   []string             `json:"commands"`            // that show and decide it
	Truncated  bool                 `json:"truncated,omitempty"` // something is cut or left out
}

// Call is one call as a person is shown it.
type Call struct {
	ID        string            `json:"id"`
	Name      string            `json:"name"`
	Effect    toolcrib.Effect   `json:"effect"`
	Arguments json.RawMessage   `json:"arguments"` // as the journal has them; null = left out, see Truncated
	Preview   *toolcrib.Preview `json:"preview"`
	Truncated bool              `json:"truncated,omitempty"` // the message was too large for the arguments
}

// Bounds of what is sent, in bytes.
const (
	maxBody     = 256 << 10
	maxText     = 1800 // messengers take about 2000 characters
	maxTextCall = 200

	// Of a body that would be larger.
	maxArguments = 1 << 10 // arguments and preview of a call, each
	maxWords     = 4 << 10 // question and reason, each
)

// body is the message as JSON of at most maxBody bytes. What makes it too large is left
// out in two steps: large arguments and previews, the schema and the end of long words, then the
// last of the calls.
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

// shorten bounds what others chose, but the number of calls.
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

// plain takes what messengers act upon out of words that a model may have chosen:
// mentions, links, marks.
func plain(text string) string {
	text = strings.Join(strings.Fields(guard.Visible(text)), " ")
	return strings.NewReplacer("@", "＠", "<", "‹", ">", "›", "`", "'", "://", ": //", "*", "∗",
		"[", "(", "]", ")", "|", "¦").Replace(text)
}

// Text is the message in a few lines.
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
	for _, c := range m.Commands {
		if b.Len()+len(c) < maxText {
			fmt.Fprintln(&b, plain(c))
		}
	}
	return strings.TrimRight(b.String(), "\n")
}
