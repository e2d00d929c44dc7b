package render

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/charmbracelet/x/ansi"
	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/internal/propose"
	"github.com/toolcrib/toolcrib/internal/terminal"
	"github.com/toolcrib/toolcrib/journal"
)

// Input is where a person answers.
type Input interface {
	// Settle drops what was typed before, and waits until nobody has typed for calm.
	Settle(ctx context.Context, calm time.Duration)
	// Line drops what was typed before and returns the next line.
	Line() (string, error)
	// Hidden is Line that does not show what is typed.
	Hidden() (string, error)
}

// Approver asks a person on the terminal about calls (contract §5.5). It
// implements the loop's Approver.
type Approver struct {
	In    Input // its Line must return when the context of Decide ends
	Out   io.Writer
	Style Style
	By    string // who answers
	// Hint says more about a call where all of it is shown; may be nil.
	Hint func(c *journal.ApprovalItem) string
	// Hold and Release leave the terminal to the question and take it back; may
	// be nil.
	Hold, Release func()

	left map[string]bool // approvals that got no answer, by their IDs
}

// errNobody says that no answer came: the end of the input, or of the run.
var errNobody = errors.New("nobody answered")

// Decide asks about calls. No answer decides nothing: the run parks. Other kinds of
// questions are put with [Approver.Answer].
func (a *Approver) Decide(ctx context.Context, _ toolcrib.RunID,
	ask *journal.ConfirmationRequired,
) (d journal.ConfirmationResolved, ok bool, err error) {
	if ask.Kind != journal.ApprovalCall {
		return d, false, nil
	}
	w, ok := a.Answer(ctx, Question{Ask: *ask})
	if ok {
		d = journal.ConfirmationResolved{
			Decision: w.Decision, Calls: w.Calls, Reason: w.Reason, Remember: w.Remember, By: a.By,
		}
	}
	if ok && d.Decision == "" {
		d.Decision = journal.DecisionMixed
	}
	return d, ok, nil
}

// Left reports whether the person left an approval without an answer before.
func (a *Approver) Left(approval string) bool { return a.left[approval] }

// maxReason bounds why a call is denied.
const maxReason = 500

// Answer puts a question. ok is false if nothing was said; what was left is not asked about
// again.
func (a *Approver) Answer(ctx context.Context, q Question) (w Answer, ok bool) {
	if a.Left(q.Ask.ApprovalID) {
		return w, false
	}
	if a.Hold != nil {
		a.Hold()
		defer a.Release()
	}
	d := Dialog{Question: q, Style: a.Style, Hint: a.Hint}
	fmt.Fprint(a.Out, d.Open())
	calm := terminal.Calm
	if q.Problem != "" && d.Field != NoField {
		calm = 0 // the person is answering it already
	}
	for {
		line, err := a.read(ctx, a.prompt(&d), calm, d.Secret())
		key, text := Pressed(d.Keys(), line), strings.TrimSpace(terminal.Pasted(line))
		shown, said := "", (*Answer)(nil)
		calm = 0
		switch {
		case err != nil:
			fmt.Fprintln(a.Out)
			key, said = KeyLater, d.Later()
		case d.Field == FieldReason:
			shown, said, _ = d.Enter(firstBytes(text, maxReason))
		case d.Field != NoField && text == "":
			key, said = KeyLater, d.Later()
		case d.Field != NoField:
			shown, said, _ = d.Enter(text)
		default:
			shown, said = d.Press(key)
		}
		fmt.Fprint(a.Out, shown)
		if shown != "" && key != KeyShow {
			calm = terminal.Calm // something else is asked about now
		}
		if said != nil {
			if key == KeyLater && q.Ask.ApprovalID != "" {
				if a.left == nil {
					a.left = map[string]bool{}
				}
				a.left[q.Ask.ApprovalID] = true
			}
			return *said, !said.Later
		}
	}
}

// prompt is the question before an answer.
func (a *Approver) prompt(d *Dialog) string {
	text := d.Prompt()
	switch d.Field {
	case FieldReason:
		text += " (empty = no reason)"
	case FieldHappened, FieldAnswer, FieldLimit:
		text += " (empty: leave it waiting)"
	}
	return strings.Join(KeyRows(text, a.Style.width()-3), "\n") + "? "
}

// NeedApproval is the line above calls that are asked about.
func NeedApproval(calls []journal.ApprovalItem) string {
	if len(calls) > 1 {
		return fmt.Sprintf("These %d calls need your approval", len(calls))
	}
	return "This call needs your approval"
}

// Item says what is asked about one call: its arguments, effect, reason and what it
// would change; whole shows all of it.
func (s Style) Item(c *journal.ApprovalItem, whole bool) string {
	var b strings.Builder
	arguments := Arguments(c.Arguments, 2*previewRows*(s.width()-5))
	switch fits := ansi.StringWidth(Line(c.Name, 64)+arguments)+4 <= s.width(); {
	case whole:
		b.WriteString(s.Call(c.Name, nil, ""))
		b.WriteString(s.Quoted(Whole(c.Arguments)))
	case fits || c.Preview != nil:
		b.WriteString(s.Call(c.Name, c.Arguments, ""))
	default: // nothing else shows them
		b.WriteString(s.Call(c.Name, nil, ""))
		b.WriteString(s.Quoted(arguments))
	}
	text := string(c.Effect.OrStrictest())
	if strings.Contains(c.Reason, text) {
		text = plainReason(c.Reason)
	} else if c.Reason != "" {
		text += " · " + c.Reason
	}
	for _, row := range Wrap(Line(text, previewRows*s.width()), max(s.columns()-4, 8)) {
		fmt.Fprintf(&b, "    %s\n", s.Dim(row))
	}
	b.WriteString(s.Preview(c.Preview, whole))
	return b.String()
}

// plainReason says in the words of everyday why a call is asked about.
func plainReason(reason string) string {
	return strings.NewReplacer(
		" ("+string(toolcrib.EffectIdempotentWrite)+")", "", " ("+string(toolcrib.EffectNonIdempotentWrite)+")", "",
		"tools.confirm is writes", "you decide about writes (tools.confirm)",
	).Replace(reason)
}

// read asks a question and reads a line, when the person has not typed for calm. What
// they typed before the question was shown is not read.
func (a *Approver) read(ctx context.Context, question string, calm time.Duration, secret bool) (string, error) {
	a.In.Settle(ctx, calm)
	if ctx.Err() != nil {
		return "", errNobody
	}
	fmt.Fprint(a.Out, a.Style.Cyan(question))
	line := a.In.Line
	if secret {
		line = a.In.Hidden
	}
	answer, err := line()
	if err != nil || ctx.Err() != nil {
		return "", errNobody
	}
	return answer, nil
}

// tainted reports whether a call is asked about because of what the run has read.
func tainted(c journal.ApprovalItem) bool {
	return slices.ContainsFunc(c.Questions, func(q journal.Question) bool {
		return q.Reason == toolcrib.ReasonTaintedFlow
	})
}

// RememberedText says which calls an approval that is remembered is about, in its
// workspace.
func RememberedText(m gate.Remembered) string { return propose.Covers(m, Line, Arguments) }

// RememberText says for which later calls an approval of these holds.
func RememberText(calls []journal.ApprovalItem, r journal.Remember) string {
	var parts, rules []string
	place := ""
	add := func(list *[]string, text string) {
		if !slices.Contains(*list, text) {
			*list = append(*list, text)
		}
	}
	for _, c := range calls {
		m, ok := gate.Remember(r, &journal.ConfirmationResolved{}, &c)
		if !propose.Storable([]journal.ApprovalItem{c}) || !ok {
			continue
		}
		for _, q := range c.Questions {
			switch {
			case q.Rule != "":
				add(&rules, "rule "+Line(q.Rule, 64))
			case q.Reason == toolcrib.ReasonNeedsConfirmation && q.Setting == "":
				add(&rules, Line(c.Name, 64)+" itself")
			}
		}
		add(&parts, RememberedText(m))
		place = m.Workspace
	}
	if len(parts) == 0 {
		return "nothing of this can be remembered"
	}
	still := ""
	if len(rules) > 0 {
		still = "; asked about anyway by " + strings.Join(rules, ", ")
	}
	if slices.ContainsFunc(calls, tainted) {
		still += "; where a run has read untrusted data, as this one has, it is asked about anyway"
	}
	where := "in this " + r.Scope
	if r.Scope == journal.RememberUser {
		where = "for this user"
	}
	if r.Scope != journal.RememberRun && place != "" {
		where += " in the workspace " + place
	}
	return "not asked again " + where + ": " + strings.Join(parts, "; ") + still
}
