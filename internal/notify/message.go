package notify

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/journal"
)

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

	// Of a body that would be larger. One byte becomes six in JSON at most, so that all
	// but the calls stays far below maxBody.
	maxArguments = 1 << 10 // arguments and preview of a call, each
	maxWords     = 4 << 10 // question, reason and schema, each
	maxName      = 256     // names and IDs, each
	maxCommand   = 1 << 10 // a longer one is left out: half a command is another one
	maxCommands  = 8
)

// body is the message as JSON of at most maxBody bytes. What makes it too large is left
// out in two steps: large arguments and previews and long words, then the last of the
// calls.
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

// shorten bounds every part of the message but the number of calls.
func (m *Message) shorten() {
	m.Truncated = true
	m.Question, m.Reason = cut(m.Question, maxWords), cut(m.Reason, maxWords)
	if len(m.Schema) > maxWords {
		m.Schema = nil
	}
	m.ApprovalID, m.Digest = cut(m.ApprovalID, maxName), cut(m.Digest, maxName)
	m.Run = toolcrib.RunID(cut(string(m.Run), maxName))
	m.Agent, m.User = cut(m.Agent, maxName), cut(m.User, maxName)
	m.Commands = slices.DeleteFunc(slices.Clone(m.Commands), func(c string) bool { return len(c) > maxCommand })
	m.Commands = m.Commands[:min(len(m.Commands), maxCommands)]
	m.Calls = slices.Clone(m.Calls)
	for i := range m.Calls {
		c := &m.Calls[i]
		c.ID, c.Name = cut(c.ID, maxName), cut(c.Name, maxName)
		if len(c.Arguments) > maxArguments {
			c.Arguments, c.Truncated = nil, true
		}
		if c.Preview != nil && len(c.Preview.Text) > maxArguments {
			c.Preview, c.Truncated = nil, true
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
		fmt.Fprintln(&b, cut(plain(m.Question), maxTextCall))
	} else {
		for _, c := range m.Calls {
			line := fmt.Sprintf("- %s (%s) %s", plain(c.Name), c.Effect, cut(plain(string(c.Arguments)), maxTextCall))
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

func cut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	most -= len("…")
	for most > 0 && !utf8.RuneStart(text[most]) {
		most--
	}
	return text[:most] + "…"
}
