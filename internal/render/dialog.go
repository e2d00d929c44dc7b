package render

import (
	"bytes"
	"cmp"
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

// Question is a question of a run to a person.
type Question struct {
	Ask     journal.ConfirmationRequired // with the calls that are still open
	Choices string                       // format of an answer to a question of the model
	Unit    string                       // unit of the limit to be raised
	// Options are the answers to choose from, by text or by number. If nil, any answer is accepted.
	Options []string
	Many    bool // whether several options may be chosen, separated by commas
	Session bool // whether the run belongs to a session
	// Another reports whether only another person may run calls in doubt again.
	Another bool
	// Problem says why the last answer to the same question was not accepted.
	Problem string
}

// Answer is a person's decision on a [Question].
type Answer struct {
	Later    bool                            // whether nothing was decided
	Decision string                          // decision on the calls that are not in Calls, or ""
	Calls    map[string]journal.CallDecision // decisions by call ID
	Reason   string
	Remember *journal.Remember
	Text     string // answer to a question, or amount by which a limit is raised
}

// Field is the input field of a question.
type Field int

// The fields. With NoField the question is answered by keys.
const (
	NoField       Field = iota
	FieldReason         // reason for denying a call
	FieldEdit           // other arguments of a call
	FieldHappened       // result of a call that took effect
	FieldAnswer         // answer to a question of the model
	FieldLimit          // amount by which a limit is raised
)

// Dialog asks a [Question]: it returns the texts to show, interprets keys and input, and returns
// the answer. It neither reads nor writes.
type Dialog struct {
	Question
	Style Style
	Edits bool   // whether the arguments of a call can be edited
	Mark  string // prefix of heads
	// Hint returns an explanation to be shown with the whole call. It may be nil.
	Hint func(c *journal.ApprovalItem) string

	Field     Field
	each      bool // whether calls are asked about one by one
	all       bool // whether everything was shown, so that KeyNarrow is offered as well
	at        int  // index of the current call then
	decisions map[string]journal.CallDecision
	reason    string
}

// Open begins the dialog and returns the text to show, or "" if the same question is repeated.
func (d *Dialog) Open() string {
	d.decisions = map[string]journal.CallDecision{}
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
		return d.card(head, calls) + d.meanings()
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

// card formats calls that need approval.
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

// Keys returns the keys that are valid now.
func (d *Dialog) Keys() []Key {
	if d.Ask.Kind == journal.ApprovalInDoubt {
		return DoubtKeys(d.Another)
	}
	absent := func(k Key) bool { return k.Name == KeyEdit && !d.Edits }
	return slices.DeleteFunc(CallKeys(d.Ask.Calls, d.each, d.always()), absent)
}

// Prompt describes the input that is expected, or lists the keys.
func (d *Dialog) Prompt() string {
	switch d.Field {
	case FieldReason:
		return "why? The model reads it"
	case FieldEdit:
		return "other arguments, as JSON"
	case FieldHappened:
		return "its result, for the model to read"
	case FieldAnswer:
		return "your answer" + cmp.Or(when(d.Secret(), " (it is not shown)"), when(len(d.Options) > 0, ", or its number"))
	case FieldLimit:
		return fmt.Sprintf("how many %s more? (%s: no more, the run ends with what it has)", d.Unit, KeyNo)
	}
	return KeysText(d.Keys())
}

// Secret reports whether input must not be shown now.
func (d *Dialog) Secret() bool { return d.Field == FieldAnswer && d.Ask.Secret() }

// Each reports whether calls of an approval are asked about one by one.
func (d *Dialog) Each() bool { return d.each && d.Ask.Kind != journal.ApprovalInDoubt }

// Draft returns the initial text of the field.
func (d *Dialog) Draft() string {
	if d.Field != FieldEdit {
		return ""
	}
	var b bytes.Buffer
	if err := json.Indent(&b, d.Ask.Calls[d.at].Arguments, "", "  "); err != nil {
		return ""
	}
	return b.String() // as it is: it is approved as it is
}

// Press handles a key. It returns the text to show, and the answer if the question is answered.
func (d *Dialog) Press(key string) (shown string, a *Answer) {
	doubt := d.Ask.Kind == journal.ApprovalInDoubt
	switch key {
	case KeyYes:
		return d.decide(journal.CallDecision{Decision: journal.DecisionApprove})
	case KeyNo:
		if doubt {
			return d.decide(journal.CallDecision{Decision: journal.DecisionNotHappened})
		}
		return d.decide(journal.CallDecision{Decision: journal.DecisionDeny})
	case KeyRetry:
		return d.decide(journal.CallDecision{Decision: journal.DecisionRetry})
	case KeyNoWhy, KeyEdit, KeyHappened:
		d.Field = map[string]Field{KeyNoWhy: FieldReason, KeyEdit: FieldEdit, KeyHappened: FieldHappened}[key]
	case KeyEach:
		d.each = true
		return d.card("One by one", d.Ask.Calls[:1]), nil
	case KeyAlways, KeyNarrow:
		r := d.always()[slices.Index(alwaysKeys[:], key)]
		return d.Style.Note(RememberText(d.Ask.Calls, r)), &Answer{Decision: journal.DecisionApprove, Remember: &r}
	case KeyShow:
		d.all = true
		return d.whole(), nil
	case KeyLater:
		return "", d.Later()
	}
	return "", nil
}

// Later ends the dialog without an answer. Decisions on calls in doubt are kept.
func (d *Dialog) Later() *Answer {
	if d.Ask.Kind == journal.ApprovalInDoubt && len(d.decisions) > 0 {
		return &Answer{Calls: d.decisions}
	}
	return &Answer{Later: true}
}

// Back undoes the last step. In a question that is answered by a text it is Later.
func (d *Dialog) Back() *Answer {
	switch {
	case d.Field == FieldAnswer || d.Field == FieldLimit:
		return d.Later()
	case d.Field != NoField:
		d.Field = NoField
	case d.Each():
		d.each, d.at, d.reason = false, 0, ""
		clear(d.decisions)
	}
	return nil
}

// Enter handles the text of the field. problem says why the text is not accepted, or is "".
func (d *Dialog) Enter(text string) (shown string, a *Answer, problem string) {
	text = strings.TrimSpace(text)
	switch {
	case d.Field == FieldReason:
		d.reason = text
		shown, a = d.decide(journal.CallDecision{Decision: journal.DecisionDeny})
	case d.Field == FieldEdit && !json.Valid([]byte(text)):
		problem = "this is not JSON"
	case d.Field == FieldEdit:
		shown, a = d.decide(journal.CallDecision{Decision: journal.DecisionApprove, Arguments: json.RawMessage(text)})
	case text == "":
	case d.Field == FieldHappened:
		shown, a = d.decide(journal.CallDecision{Decision: journal.DecisionHappened, Result: JSONOrText(text)})
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

// chosen returns the option with the number in text, or text itself.
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

// decide records a decision on all calls, or on the current one. It returns the answer, or the
// next call.
func (d *Dialog) decide(w journal.CallDecision) (shown string, a *Answer) {
	d.Field = NoField
	switch {
	case !d.each && w.Arguments == nil:
		return "", &Answer{Decision: w.Decision, Reason: d.reason}
	case d.at >= len(d.Ask.Calls):
		return "", &Answer{Later: true}
	}
	d.decisions[d.Ask.Calls[d.at].ID] = w
	if d.at++; d.at == len(d.Ask.Calls) || !d.each {
		return "", &Answer{Calls: d.decisions, Reason: d.reason}
	}
	head := "The next one"
	if d.Ask.Kind == journal.ApprovalInDoubt {
		head = "This was cut off as well"
	}
	return d.card(head, d.Ask.Calls[d.at:d.at+1]), nil
}

// whole formats the calls with all of their arguments and previews.
func (d *Dialog) whole() string {
	calls := d.Ask.Calls
	if d.each {
		calls = calls[min(d.at, len(calls)):min(d.at+1, len(calls))]
	}
	text, hints := "", []string(nil) // each hint is shown once
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
	return text + d.meanings()
}

// meanings explains KeyAlways and KeyNarrow, if they are offered.
func (d *Dialog) meanings() (text string) {
	for i, r := range d.always() {
		if Pressed(d.Keys(), alwaysKeys[i]) != "" {
			text += d.Style.Note(alwaysKeys[i] + ": " + AlwaysText(d.Ask.Calls, r))
		}
	}
	return text
}

// always returns what KeyAlways remembers and, once everything was shown, KeyNarrow.
func (d *Dialog) always() []journal.Remember {
	all := propose.Always(d.Ask.Calls, d.Session)
	if !d.all {
		return all[:1]
	}
	return all
}

// alwaysKeys are the keys for the scopes of [propose.Always].
var alwaysKeys = [...]string{KeyAlways, KeyNarrow}

// The keys that answer questions. A key has the same meaning in all questions, but not every
// question has all of them.
const (
	KeyYes      = "y"
	KeyNo       = "n"
	KeyNoWhy    = "d"
	KeyEdit     = "e"
	KeyEach     = "o"
	KeyAlways   = "a"
	KeyNarrow   = "t"
	KeyRetry    = "r"
	KeyHappened = "h"
	KeyShow     = "s"
	KeyLater    = "l"
)

// Key is a key that answers a question, with its label.
type Key struct{ Name, Word string }

// CallKeys returns the keys for an approval of these calls. each reports whether they are asked
// about one by one. always is what an approval can be remembered for.
func CallKeys(calls []journal.ApprovalItem, each bool, always []journal.Remember) []Key {
	keys := []Key{{KeyYes, "yes"}, {KeyNo, "no"}, {KeyNoWhy, "no, and why"}, {KeyEdit, "edit"}}
	if many := len(calls) > 1; many && !each {
		keys = []Key{{KeyYes, "yes to all"}, {KeyNo, "no to all"}, {KeyNoWhy, "no, and why"}, {KeyEach, "one by one"}}
	}
	if !each && propose.Rememberable(calls) {
		for i, r := range always {
			keys = append(keys, Key{alwaysKeys[i], alwaysWord(calls, r, i > 0)})
		}
	}
	keys = append(keys, Key{KeyShow, "show all"})
	if !each {
		keys = append(keys, Key{KeyLater, "later"})
	}
	return keys
}

// alwaysWord is the label of a key that remembers an approval with scope r. narrow reports whether another key does
// so with a wider one.
func alwaysWord(calls []journal.ApprovalItem, r journal.Remember, narrow bool) string {
	const most = 24
	switch m, _ := r.Extend(&journal.ConfirmationResolved{}, &calls[0]); {
	case r.Calls == journal.RememberProgram && len(calls) == 1:
		return "always " + Line(m.Program, most) + " …"
	case r.Calls == journal.RememberProgram:
		return "always these programs"
	case r.Calls == journal.RememberFolder:
		return "always in this folder"
	case narrow && len(calls) == 1 && m.Path != "":
		return "always this file"
	case narrow && len(calls) == 1:
		return "always this line"
	case r.Scope == journal.RememberUser:
		return "always this line here"
	}
	return "always in this " + r.Scope
}

// DoubtKeys returns the keys for a call in doubt. another reports whether only another person may
// run it again.
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

// YesKeys returns the keys for a question about a text. cut reports whether only a part of the
// text is shown.
func YesKeys(cut bool) []Key {
	keys := []Key{{KeyYes, "yes"}, {KeyNo, "no"}}
	if cut {
		keys = append(keys, Key{KeyShow, "show all"})
	}
	return keys
}

// Pressed returns the key among keys that a line names, or "". The lines yes and no name the keys
// for them.
func Pressed(keys []Key, line string) string {
	line = strings.ToLower(strings.TrimSpace(line))
	if line == "yes" || line == "no" {
		line = line[:1]
	}
	return when(slices.ContainsFunc(keys, func(k Key) bool { return k.Name == line }), line)
}

// keySeparator separates keys in a list.
const keySeparator = " · "

// KeysText lists the keys.
func KeysText(keys []Key) string {
	words := make([]string, len(keys))
	for i, k := range keys {
		words[i] = k.Name + " " + k.Word
	}
	return strings.Join(words, keySeparator)
}

// KeyRows breaks a list of keys between keys, into rows of at most width columns if possible.
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
