package render

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/charmbracelet/x/ansi"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/internal/propose"
	"github.com/toolcrib/toolcrib/journal"
)

// Question is what a run waits for a person to say.
type Question struct {
	Ask journal.ConfirmationRequired // with the calls that are open
	// Choices says what an answer to a question of the model must look like; Unit
	// what a limit is to be raised by.
	Choices, Unit string
	// Options are the answers to choose from, by their text or their number; nil = any.
	Options []string
	Many    bool // several of them may be chosen, separated by commas
	// Another is set if only another person may have calls in doubt run once more.
	Another bool
	// Problem says why the last answer to the same question would not do.
	Problem string
}

// Answer is a person's word on a [Question].
type Answer struct {
	Later    bool                            // nothing was decided
	Decision string                          // for all calls that Calls does not name; "" = only those
	Calls    map[string]journal.CallDecision // by call ID
	Reason   string
	Remember *journal.Remember
	Text     string // the answer to a question, or by how much a limit is raised
}

// Field is what is typed in answer to a question.
type Field int

// What is typed; with NoField a key answers.
const (
	NoField       Field = iota
	FieldReason         // why a call is denied
	FieldEdit           // other arguments of a call
	FieldHappened       // the result of a call that took effect
	FieldAnswer         // to a question of the model
	FieldLimit          // by how much a limit is raised
)

// Dialog puts a [Question] to a person: what is shown, which keys answer, and what they
// say. It neither reads nor writes.
type Dialog struct {
	Question
	Style Style
	// Edits is set if other arguments of a call can be given.
	Edits bool
	// Mark is put before heads.
	Mark string
	// Hint says more about a call where all of it is shown; may be nil.
	Hint func(c *journal.ApprovalItem) string

	Field  Field
	each   bool // one call after the other
	at     int  // the call that is asked about then
	words  map[string]journal.CallDecision
	reason string
}

// Open begins, and returns what to show: nothing where the same question is asked once more.
func (d *Dialog) Open() string {
	d.words = map[string]journal.CallDecision{}
	calls, head := d.Ask.Calls, NeedApproval(d.Ask.Calls)
	switch {
	case d.Ask.Kind == journal.ApprovalInDoubt:
		d.each = true
		calls, head = calls[:min(1, len(calls))], "This was cut off while it ran; nobody knows whether it took effect"
		if d.Another {
			head += "; only another person may run it once more"
		}
		return d.card(head, calls)
	case d.Ask.Kind == journal.ApprovalInput && len(calls) == 0:
		d.Field, head = FieldLimit, "A limit was reached: "+d.Ask.Reason
	case d.Ask.Kind == journal.ApprovalInput:
		d.Field, head = FieldAnswer, "The model asks you:"
	}
	switch {
	case d.Problem != "":
		return ""
	case d.Field == NoField:
		return d.card(head, calls) + d.always()
	case d.Field == FieldLimit:
		return d.head(head)
	}
	text := d.head(head) + d.Style.Quoted(d.Ask.Question)
	switch {
	case len(d.Options) > 0 && len(d.Options) <= maxOptions:
		rows := make([]string, len(d.Options))
		for i, option := range d.Options {
			rows[i] = fmt.Sprintf("%d  %s", i+1, Line(option, 2*d.Style.width()))
		}
		text += d.Style.Quoted(strings.Join(rows, "\n"))
		if d.Many {
			text += "  " + d.Style.Dim("one or more, separated by commas") + "\n"
		}
	case d.Choices != "":
		text += "  " + d.Style.Dim(Line(d.Choices, 4*d.Style.width())) + "\n"
	}
	return text
}

func (d *Dialog) head(text string) string {
	var b strings.Builder
	for _, row := range d.Style.hanging(d.Mark + text) {
		b.WriteString(d.Style.Bold(d.Style.Yellow(row)) + "\n")
	}
	return b.String()
}

// card shows the calls that are asked about.
func (d *Dialog) card(head string, calls []journal.ApprovalItem) string {
	text := d.head(head)
	for i := range calls {
		text += d.Style.Item(&calls[i], false)
	}
	if len(calls) == 0 {
		text += d.Style.Dim("  (no call is open)") + "\n"
	}
	return text
}

// Keys are the keys that answer now.
func (d *Dialog) Keys() []Key {
	if d.Ask.Kind == journal.ApprovalInDoubt {
		return DoubtKeys(d.Another)
	}
	return slices.DeleteFunc(CallKeys(d.Ask.Calls, d.each), func(k Key) bool { return k.Name == KeyEdit && !d.Edits })
}

// Prompt says what is to be typed, or which keys answer.
func (d *Dialog) Prompt() string {
	switch d.Field {
	case FieldReason:
		return "why? The model reads it"
	case FieldEdit:
		return "other arguments, as JSON"
	case FieldHappened:
		return "its result, for the model to read"
	case FieldAnswer:
		switch {
		case d.Secret():
			return "your answer (it is not shown)"
		case len(d.Options) > 0:
			return "your answer, or its number"
		}
		return "your answer"
	case FieldLimit:
		return fmt.Sprintf("how many %s more? (%s: no more, the run ends with what it has)", d.Unit, KeyNo)
	}
	return KeysText(d.Keys())
}

// Secret reports whether what is typed now is not to be shown.
func (d *Dialog) Secret() bool { return d.Field == FieldAnswer && d.Ask.Secret() }

// Each reports whether calls of an approval are asked about one by one.
func (d *Dialog) Each() bool { return d.each && d.Ask.Kind != journal.ApprovalInDoubt }

// Draft is what a field holds at first.
func (d *Dialog) Draft() string {
	if d.Field != FieldEdit {
		return ""
	}
	return Indented(d.Ask.Calls[d.at].Arguments)
}

// Press takes a key. It returns what is shown then, and the answer, if there is one.
func (d *Dialog) Press(key string) (shown string, a *Answer) {
	doubt := d.Ask.Kind == journal.ApprovalInDoubt
	switch key {
	case KeyYes:
		return d.word(journal.CallDecision{Decision: journal.DecisionApprove})
	case KeyNo:
		if doubt {
			return d.word(journal.CallDecision{Decision: journal.DecisionNotHappened})
		}
		return d.word(journal.CallDecision{Decision: journal.DecisionDeny})
	case KeyRetry:
		return d.word(journal.CallDecision{Decision: journal.DecisionRetry})
	case KeyNoWhy, KeyEdit, KeyHappened:
		d.Field = map[string]Field{KeyNoWhy: FieldReason, KeyEdit: FieldEdit, KeyHappened: FieldHappened}[key]
	case KeyEach:
		d.each = true
		return d.card("One by one", d.Ask.Calls[:1]), nil
	case KeyAlways:
		r := propose.Always(d.Ask.Calls)
		return d.Style.Note(RememberText(d.Ask.Calls, r)), &Answer{Decision: journal.DecisionApprove, Remember: &r}
	case KeyShow:
		return d.whole(), nil
	case KeyLater:
		return "", d.Later()
	}
	return "", nil
}

// Later leaves the question, with what was said about calls in doubt.
func (d *Dialog) Later() *Answer {
	if d.Ask.Kind == journal.ApprovalInDoubt && len(d.words) > 0 {
		return &Answer{Calls: d.words}
	}
	return &Answer{Later: true}
}

// Back takes back the last step; a question that is answered by a text is left.
func (d *Dialog) Back() *Answer {
	switch {
	case d.Field == FieldAnswer || d.Field == FieldLimit:
		return d.Later()
	case d.Field != NoField:
		d.Field = NoField
	case d.Each():
		d.each, d.at, d.reason = false, 0, ""
		clear(d.words)
	}
	return nil
}

// Enter takes what was typed into the field. A problem is why it does not count.
func (d *Dialog) Enter(text string) (shown string, a *Answer, problem string) {
	text = strings.TrimSpace(text)
	switch {
	case d.Field == FieldReason:
		d.reason = text
		shown, a = d.word(journal.CallDecision{Decision: journal.DecisionDeny})
	case d.Field == FieldEdit && !json.Valid([]byte(text)):
		problem = "this is not JSON"
	case d.Field == FieldEdit:
		shown, a = d.word(journal.CallDecision{Decision: journal.DecisionApprove, Arguments: json.RawMessage(text)})
	case text == "":
	case d.Field == FieldHappened:
		shown, a = d.word(journal.CallDecision{Decision: journal.DecisionHappened, Result: JSONOrText(text)})
	case d.Field == FieldAnswer:
		a = &Answer{Decision: journal.DecisionAnswer, Text: d.chosen(text)}
	case Pressed(YesKeys(false), text) == KeyNo:
		a = &Answer{Decision: journal.DecisionDeny}
	default:
		a = &Answer{Text: text}
	}
	return shown, a, problem
}

// maxOptions bounds how many answers are listed with numbers.
const maxOptions = 20

// chosen is the answer that a number stands for, or the text itself.
func (d *Dialog) chosen(text string) string {
	if d.Many && !slices.Contains(d.Options, text) && !strings.HasPrefix(text, "[") && strings.Contains(text, ",") {
		parts := strings.Split(text, ",")
		for i, part := range parts {
			parts[i] = d.chosen(strings.TrimSpace(part))
		}
		return strings.Join(parts, ", ")
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > len(d.Options) || len(d.Options) > maxOptions || slices.Contains(d.Options, text) {
		return text
	}
	return d.Options[n-1]
}

// word is the person's word on all calls, or on the one that is asked about; then the next
// one is shown.
func (d *Dialog) word(w journal.CallDecision) (shown string, a *Answer) {
	d.Field = NoField
	switch {
	case !d.each && w.Arguments == nil:
		return "", &Answer{Decision: w.Decision, Reason: d.reason}
	case d.at >= len(d.Ask.Calls):
		return "", &Answer{Later: true}
	}
	d.words[d.Ask.Calls[d.at].ID] = w
	if d.at++; d.at == len(d.Ask.Calls) || !d.each {
		return "", &Answer{Calls: d.words, Reason: d.reason}
	}
	head := "The next one"
	if d.Ask.Kind == journal.ApprovalInDoubt {
		head = "This was cut off as well"
	}
	return d.card(head, d.Ask.Calls[d.at:d.at+1]), nil
}

// whole shows whole arguments and whole previews.
func (d *Dialog) whole() string {
	calls := d.Ask.Calls
	if d.each {
		calls = calls[min(d.at, len(calls)):min(d.at+1, len(calls))]
	}
	text, hints := "", []string(nil) // each is said once
	for i := range calls {
		text += d.Style.Item(&calls[i], true)
		if d.Hint == nil {
			continue
		}
		if hint := d.Hint(&calls[i]); hint != "" && !slices.Contains(hints, hint) {
			hints = append(hints, hint)
			text += d.Style.Dim(guard.Visible(hint)) + "\n"
		}
	}
	return text + d.always()
}

// always says what the key for it would mean; "" = it is not offered.
func (d *Dialog) always() string {
	if d.each || Pressed(d.Keys(), KeyAlways) == "" {
		return ""
	}
	return d.Style.Note("a: " + RememberText(d.Ask.Calls, propose.Always(d.Ask.Calls)))
}

// The keys that answer questions. A key means the same wherever something is asked; not
// every question takes all of them.
const (
	KeyYes      = "y"
	KeyNo       = "n"
	KeyNoWhy    = "d"
	KeyEdit     = "e"
	KeyEach     = "o"
	KeyAlways   = "a"
	KeyRetry    = "r"
	KeyHappened = "h"
	KeyShow     = "s"
	KeyLater    = "l"
)

// Key is a key that answers a question, and what it says there.
type Key struct{ Name, Word string }

// CallKeys are the keys that answer an approval of these calls; each is true if they are
// asked about one by one.
func CallKeys(calls []journal.ApprovalItem, each bool) []Key {
	keys := []Key{{KeyYes, "yes"}, {KeyNo, "no"}, {KeyNoWhy, "no, and why"}, {KeyEdit, "edit"}}
	if many := len(calls) > 1; many && !each {
		keys = []Key{{KeyYes, "yes to all"}, {KeyNo, "no to all"}, {KeyNoWhy, "no, and why"}, {KeyEach, "one by one"}}
	}
	if !each && propose.Rememberable(calls) {
		word := "always in this run"
		if propose.Always(calls).Scope != journal.RememberRun {
			word = "always this line here"
		}
		keys = append(keys, Key{KeyAlways, word})
	}
	keys = append(keys, Key{KeyShow, "show all"})
	if !each {
		keys = append(keys, Key{KeyLater, "later"})
	}
	return keys
}

// DoubtKeys are the keys that say what became of a call in doubt; another is true if
// only another person may run it once more.
func DoubtKeys(another bool) []Key {
	keys := []Key{
		{KeyRetry, "run it once more"},
		{KeyHappened, "it happened"},
		{KeyNo, "it did not happen"},
		{KeyShow, "show all"},
		{KeyLater, "later"},
	}
	if another {
		return keys[1:]
	}
	return keys
}

// YesKeys are the keys of a question about something that is shown in part, or whole.
func YesKeys(cut bool) []Key {
	keys := []Key{{KeyYes, "yes"}, {KeyNo, "no"}}
	if cut {
		keys = append(keys, Key{KeyShow, "show all"})
	}
	return keys
}

// Pressed returns the key that a line names; "" if it is none of these. The words yes
// and no are as good as their keys.
func Pressed(keys []Key, line string) string {
	line = strings.ToLower(strings.TrimSpace(line))
	if line == "yes" || line == "no" {
		line = line[:1]
	}
	for _, k := range keys {
		if line == k.Name {
			return k.Name
		}
	}
	return ""
}

// keySeparator is put between the keys that are shown.
const keySeparator = " · "

// KeysText lists the keys.
func KeysText(keys []Key) string {
	words := make([]string, len(keys))
	for i, k := range keys {
		words[i] = k.Name + " " + k.Word
	}
	return strings.Join(words, keySeparator)
}

// KeyRows breaks a text that lists keys between them, to rows of at most width columns
// where that can be.
func KeyRows(text string, width int) []string {
	var rows []string
	row := ""
	for key := range strings.SplitSeq(text, keySeparator) {
		next := key
		if row != "" {
			next = row + keySeparator + key
		}
		if row != "" && ansi.StringWidth(next) > width {
			rows, next = append(rows, row), key
		}
		row = next
	}
	return append(rows, row)
}
