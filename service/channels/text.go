package channels

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/api"
	"github.com/toolcrib/toolcrib/channel"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/store"
)

// maxQuestionParts bounds the messages of one question. One that would be longer cannot be approved in the chat,
// because it is not shown as a whole.
const maxQuestionParts = 6

// maxError bounds the text of an error, in bytes.
const maxError = 500

// shown returns a text of others in one line, with what is hidden in it.
func shown(text string) string {
	return guard.Clip(strings.Join(strings.Fields(guard.Visible(text)), " "), maxError)
}

// prompt returns the prompt of a message, and the sources of untrusted data in it. What the sender has not written is
// marked as such.
func (l *line) prompt(m *channel.Message) (text string, taint []string) {
	source := "channel:" + l.name
	text = m.Text
	if m.Forwarded && text != "" {
		text = "The user forwarded this message, which somebody else wrote:\n" + guard.WrapUntrusted(source, text)
	}
	if len(m.Attachments) > 0 {
		var b strings.Builder
		for _, f := range m.Attachments[:min(len(m.Attachments), maxFiles)] {
			fmt.Fprintf(&b, "- %s (%s)\n", guard.Clip(guard.Visible(f.Name), 200), guard.Clip(guard.Visible(f.Type), 100))
		}
		text = strings.TrimSpace(text + "\n\nThe message has attachments. Only their names and types are known:\n" +
			guard.WrapUntrusted(source, strings.TrimSpace(b.String())))
	}
	if m.Forwarded || len(m.Attachments) > 0 {
		taint = []string{source}
	}
	return text, taint
}

// maxFiles bounds the attachments that a prompt names.
const maxFiles = 16

// outcome returns the answer of a run that has ended.
func outcome(rec *store.RunRecord) string {
	text := strings.TrimSpace(guard.Clean(rec.Content))
	id := toolcrib.ShortID(rec.ID)
	switch {
	case rec.Status == toolcrib.StatusCancelled:
		text = strings.TrimSpace(text + "\n\nCancelled.")
	case rec.Error != nil:
		text = strings.TrimSpace(text + "\n\nThe run failed: " + shown(rec.Public().Error.Message) + " (run " + id + ")")
	case text == "":
		text = "Done, without a text (run " + id + ")."
	}
	return text
}

// question returns the text of what a run waits for.
func (l *line) question(v *api.Approval, a *asked) string {
	var b strings.Builder
	what := map[journal.ApprovalKind]string{
		journal.ApprovalCall: "An approval is needed", journal.ApprovalInDoubt: "It is not known whether this happened",
		journal.ApprovalInput: "A question",
	}[v.Kind]
	fmt.Fprintf(&b, "%s (%s): agent %s for %s\n", what, a.Code, shown(v.Agent), shown(v.User))
	open := v.Open()
	switch {
	case a.Question:
		fmt.Fprintf(&b, "\n%s\n", guard.Visible(v.Question))
		if len(v.Schema) > 0 && string(v.Schema) != "null" {
			fmt.Fprintf(&b, "Schema of the answer: %s\n", guard.Visible(string(v.Schema)))
		}
	case v.Kind == journal.ApprovalInput:
		fmt.Fprintf(&b, "\n%s\nA higher limit is set on the page or the command line.\n", shown(v.Reason))
	}
	for _, c := range v.Calls {
		if v.Kind == journal.ApprovalInput || !slices.Contains(open, c.ID) {
			continue
		}
		fmt.Fprintf(&b, "\n%s (%s) %s\n", shown(c.Name), c.Effect.OrStrictest(), lines(c.Arguments))
		if c.Preview != nil && c.Preview.Text != "" {
			fmt.Fprintln(&b, guard.Visible(c.Preview.Text))
		}
		if c.Reason != "" {
			fmt.Fprintln(&b, shown(c.Reason))
		}
	}
	b.WriteString("\n" + l.ways(v, a))
	return b.String()
}

// lines returns arguments as they were judged, each in a line of its own if there are several.
func lines(arguments json.RawMessage) string {
	text, err := guard.EncodeJSON(arguments, true)
	if err != nil {
		text = arguments
	}
	return guard.Visible(strings.TrimSpace(string(text)))
}

// ways returns how a question is decided.
func (l *line) ways(v *api.Approval, a *asked) string {
	var ways []string
	if a.Question {
		ways = []string{"reply to this message", "answer " + a.Code + " TEXT"}
	}
	for _, b := range a.buttons(v) {
		ways = append(ways, b.Token)
	}
	text := "Answer: " + strings.Join(ways, ", or ")
	if v.Kind != journal.ApprovalInDoubt { // the last way is to deny
		text += " REASON"
	}
	text += "."
	if origin := l.o.Host.Config().Server.Origin; origin != "" { // its page only shows it
		text += "\n" + origin + "/approvals/" + v.ID
	}
	return text
}

// partly returns the last part of a question of which not everything can be shown.
func (l *line) partly(v *api.Approval, a *asked) string {
	return "… The rest is too long to be shown here, so this cannot be approved here (toolcrib approvals show " +
		toolcrib.ShortID(v.ID) + ").\n" + l.ways(v, a)
}
