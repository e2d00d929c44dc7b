package render

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/charmbracelet/x/ansi"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/internal/propose"
	"github.com/toolcrib/toolcrib/internal/terminal"
	"github.com/toolcrib/toolcrib/journal"
)

// Input reads answers of a person.
type Input interface {
	// Settle discards earlier input, and waits until nothing was typed for the duration calm.
	Settle(ctx context.Context, calm time.Duration)
	// Line discards earlier input and returns the next line.
	Line() (string, error)
	// Hidden shows a question, and is then Line without echo.
	Hidden(question string) (string, error)
}

// Approver asks a person on the terminal about calls. It implements the Approver of package agent.
type Approver struct {
	In    Input // its Line must return when the context of Decide ends
	Out   io.Writer
	Style Style
	By    string // person who answers
	// Hint returns an explanation to be shown with the whole call. It may be nil.
	Hint func(c *journal.ApprovalItem) string
	// Hold is called before the terminal is used for a question, and Release afterwards. Both
	// may be nil.
	Hold, Release func()

	left map[string]bool // IDs of approvals left without an answer
}

// errNobody says that there is no answer, because the input or the run ended.
var errNobody = errors.New("nobody answered")

// Decide asks about calls. Without an answer it decides nothing, and the run parks. For other
// kinds of questions see [Approver.Answer].
func (a *Approver) Decide(ctx context.Context, _ toolcrib.RunID,
	ask *journal.ConfirmationRequired,
) (d journal.ConfirmationResolved, ok bool, err error) {
	if ask.Kind != journal.ApprovalCall {
		return d, false, nil
	}
	w, ok := a.Answer(ctx, Question{Ask: *ask})
	if ok {
		d = journal.ConfirmationResolved{
			Decision: cmp.Or(w.Decision, journal.DecisionMixed), Calls: w.Calls, Reason: w.Reason, Remember: w.Remember,
			By: a.By,
		}
	}
	return d, ok, nil
}

// Left reports whether an approval was left without an answer.
func (a *Approver) Left(approval string) bool { return a.left[approval] }

// maxReason bounds the reason for denying a call, in bytes.
const maxReason = 500

// Answer asks a question. ok is false if there is no answer. An approval that was left before is
// not asked about again.
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
			calm = terminal.Calm // the question has changed
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

// prompt returns the prompt for an answer.
func (a *Approver) prompt(d *Dialog) string {
	text := d.Prompt()
	if d.Field == FieldReason {
		text += " (empty = no reason)"
	} else if d.Field != NoField {
		text += " (empty: leave it waiting)"
	}
	return strings.Join(KeyRows(text, a.Style.width()-3), "\n") + "? "
}

// NeedApproval returns the line above calls that need approval.
func NeedApproval(calls []journal.ApprovalItem) string {
	if len(calls) > 1 {
		return fmt.Sprintf("These %d calls need your approval", len(calls))
	}
	return "This call needs your approval"
}

// Item describes a call that needs approval: its arguments, effect, reason and preview. If whole
// is false, long ones are cut.
func (s Style) Item(c *journal.ApprovalItem, whole bool) string {
	var b strings.Builder
	preview, columns := c.Preview, 2*previewRows*(s.width()-5)
	line := !whole && c.Binding != nil && c.Binding.CommandLine
	if line { // the preview repeats it, and describes the sandbox
		preview, columns = nil, commandRows*(s.width()-5)
	}
	arguments := Arguments(c.Arguments, columns)
	for ; line && columns > s.width() && strings.Count(s.Quoted(arguments), "\n") > commandRows; columns -= 8 {
		arguments = Arguments(c.Arguments, columns)
	}
	switch fits := ansi.StringWidth(Line(c.Name, 64)+arguments)+4 <= s.width(); {
	case whole:
		b.WriteString(s.Call(c.Name, nil, ""))
		b.WriteString(s.Quoted(Whole(c.Arguments)))
	case fits || preview != nil:
		b.WriteString(s.Call(c.Name, c.Arguments, ""))
	default: // nothing else shows them
		b.WriteString(s.Call(c.Name, nil, ""))
		b.WriteString(s.Quoted(arguments))
	}
	text := string(c.Effect.OrStrictest())
	switch {
	case line:
		text = lineReason(c)
	case strings.Contains(c.Reason, text):
		text = plainReason(c.Reason)
	case c.Reason != "":
		text += " · " + c.Reason
	}
	for _, row := range Wrap(Line(text, previewRows*s.width()), max(s.columns()-4, 8)) {
		fmt.Fprintf(&b, "    %s\n", s.Dim(row))
	}
	b.WriteString(s.Preview(preview, whole))
	return b.String()
}

// commandRows bounds the rows of a command line in a question, unless it is shown whole.
const commandRows = 3

// lineReason returns the reasons for asking about a command line in a few words: not that it writes, if there is
// another reason.
func lineReason(c *journal.ApprovalItem) string {
	var why []string
	for _, q := range c.Questions {
		if q.Setting == "" {
			why = append(why, strings.TrimPrefix(q.Text, c.Name+" "))
		}
	}
	if len(why) == 0 || c.Changed != "" {
		return plainReason(c.Reason)
	}
	return strings.Join(why, "; ")
}

// plainReason returns the reason for asking about a call in plain words.
func plainReason(reason string) string {
	return strings.NewReplacer(
		" ("+string(toolcrib.EffectIdempotentWrite)+")", "", " ("+string(toolcrib.EffectNonIdempotentWrite)+")", "",
		"tools.confirm is writes", "you decide about writes (tools.confirm)",
	).Replace(reason)
}

// read asks a question and reads a line, after nothing was typed for the duration calm. It
// discards input from before the question was shown.
func (a *Approver) read(ctx context.Context, question string, calm time.Duration, secret bool) (string, error) {
	a.In.Settle(ctx, calm)
	if ctx.Err() != nil {
		return "", errNobody
	}
	answer, err := "", error(nil)
	if question = a.Style.Cyan(question); secret {
		answer, err = a.In.Hidden(question)
	} else {
		fmt.Fprint(a.Out, question)
		answer, err = a.In.Line()
	}
	if err != nil || ctx.Err() != nil {
		return "", errNobody
	}
	return answer, nil
}

// tainted reports whether a call needs approval because the run has read untrusted data.
func tainted(c journal.ApprovalItem) bool {
	return slices.ContainsFunc(c.Questions, func(q journal.Question) bool {
		return q.Reason == toolcrib.ReasonTaintedFlow
	})
}

// RememberedText describes the calls to which a remembered approval applies.
func RememberedText(m journal.Remembered) string { return propose.Covers(m, Line, Arguments) }

// RememberText describes the later calls to which an approval of these calls would apply if it were
// remembered with scope r.
func RememberText(calls []journal.ApprovalItem, r journal.Remember) string {
	parts, still, place := remembers(calls, r, func(m *journal.Remembered, _ *journal.ApprovalItem) string {
		return RememberedText(*m)
	})
	if len(parts) == 0 {
		return "nothing of this can be remembered"
	}
	where := "in this " + r.Scope
	if r.Scope == journal.RememberUser {
		where = "for this user"
	}
	where += when(r.Scope != journal.RememberRun, around(" in the workspace ", place, ""))
	return "not asked again " + where + ": " + strings.Join(parts, "; ") + still
}

// AlwaysText is a short form of RememberText for a question.
func AlwaysText(calls []journal.ApprovalItem, r journal.Remember) string {
	parts, still, _ := remembers(calls, r, func(m *journal.Remembered, c *journal.ApprovalItem) string {
		return cmp.Or(propose.Means(m, c, Line), RememberedText(*m)+when(m.Workspace != "", ", in this workspace"))
	})
	until := "until this " + r.Scope + " ends"
	if r.Scope == journal.RememberUser {
		until = "until you revoke it"
	}
	return strings.Join(parts, "; ") + ", " + until + still
}

// remembers describes, by means, the approvals of calls that are remembered with scope r, and what asks
// nevertheless. place is their workspace.
func remembers(
	calls []journal.ApprovalItem, r journal.Remember, means func(*journal.Remembered, *journal.ApprovalItem) string,
) (parts []string, still, place string) {
	var rules []string
	add := func(list *[]string, text string) {
		if !slices.Contains(*list, text) {
			*list = append(*list, text)
		}
	}
	for _, c := range calls {
		m, ok := r.Extend(&journal.ConfirmationResolved{}, &c)
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
		add(&parts, means(&m, &c))
		place = m.Workspace
	}
	return parts, around("; asked about anyway by ", strings.Join(rules, ", "), "") +
		when(slices.ContainsFunc(calls, tainted), "; where a run has read untrusted data, as this one has, it is asked about anyway"), place
}
