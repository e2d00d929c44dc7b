package render

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/journal"
)

// Approver asks a person on the terminal about calls (contract §5.5). It
// implements the loop's Approver.
type Approver struct {
	In    *bufio.Reader // reads lines; must return when the context of Decide ends
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

// Decide shows the calls and asks. No answer decides nothing: the run parks. What
// is no approval of calls is asked about with [Approver.Ask].
func (a *Approver) Decide(ctx context.Context, _ toolcrib.RunID, ask *journal.ConfirmationRequired) (journal.ConfirmationResolved, bool, error) {
	if ask.Kind != journal.ApprovalCall || a.Left(ask.ApprovalID) {
		return journal.ConfirmationResolved{}, false, nil
	}
	if a.Hold != nil {
		a.Hold()
		defer a.Release()
	}
	a.show(ask)
	d, err := a.decide(ctx, ask)
	if err != nil {
		a.leave(ask.ApprovalID)
		fmt.Fprintln(a.Out)
		return journal.ConfirmationResolved{}, false, nil
	}
	d.By = a.By
	return d, true, nil
}

// show tells what is asked about: each call with arguments, effect, reason and
// what it would change.
func (a *Approver) show(ask *journal.ConfirmationRequired) {
	s := a.Style
	what := "This call needs your approval"
	if len(ask.Calls) > 1 {
		what = fmt.Sprintf("These %d calls need your approval", len(ask.Calls))
	}
	fmt.Fprintf(a.Out, "\n%s\n", s.Bold(s.Yellow(what)))
	for i := range ask.Calls {
		a.item(&ask.Calls[i])
	}
}

func (a *Approver) item(c *journal.ApprovalItem) {
	fmt.Fprint(a.Out, a.Style.Item(c, false))
}

// Item tells what is asked about one call: its arguments, effect, reason and what
// it would change; whole shows all of it.
func (s Style) Item(c *journal.ApprovalItem, whole bool) string {
	var b strings.Builder
	b.WriteString(s.Call(c.Name, c.Arguments, ""))
	most := previewLines
	if whole {
		most = 0
		b.WriteString(Indented(c.Arguments) + "\n")
	}
	text := string(c.Effect.OrStrictest())
	switch {
	case strings.Contains(c.Reason, text):
		text = line(plainReason(c.Reason), s.width()-4)
	case c.Reason != "":
		text += " · " + line(c.Reason, s.width()-len(text)-8)
	}
	fmt.Fprintf(&b, "    %s\n", s.Dim(text))
	b.WriteString(s.Preview(c.Preview, most))
	if !whole && cutSomewhere(b.String(), c) {
		fmt.Fprintf(&b, "    %s\n", s.Dim("… (s shows all)"))
	}
	return b.String()
}

// cutSomewhere tells whether something of a call is not shown.
func cutSomewhere(shown string, c *journal.ApprovalItem) bool {
	whole := string(c.Arguments) + c.Reason
	if c.Preview != nil {
		whole += c.Preview.Text
	}
	return strings.Contains(shown, "…") && !strings.Contains(whole, "…") && !strings.Contains(shown, moreLines)
}

// plainReason says in the words of everyday why a call is asked about.
func plainReason(reason string) string {
	return strings.NewReplacer(
		" ("+string(toolcrib.EffectIdempotentWrite)+")", "", " ("+string(toolcrib.EffectNonIdempotentWrite)+")", "",
		"tools.confirm is writes", "you decide about writes (tools.confirm)",
	).Replace(reason)
}

// decide asks until there is an answer.
func (a *Approver) decide(ctx context.Context, ask *journal.ConfirmationRequired) (d journal.ConfirmationResolved, err error) {
	many := len(ask.Calls) > 1
	always := ""
	if Rememberable(ask.Calls) {
		always = "a[l]ways in this run, "
	}
	question := "[a]pprove, " + always + "[d]eny, [s]how everything"
	if many {
		question = "[a]pprove all, " + always + "[d]eny all, [e]ach by itself, [s]how all"
	}
	for {
		answer, err := a.read(ctx, question+"? ")
		if err != nil {
			return d, err
		}
		switch strings.ToLower(strings.TrimSpace(answer)) {
		case "a", "approve", "y", "yes":
			d.Decision = journal.DecisionApprove
			return d, nil
		case "l", "always":
			if always != "" {
				d.Decision, d.Remember = journal.DecisionApprove, &journal.Remember{Scope: journal.RememberRun}
				fmt.Fprintln(a.Out, a.Style.Dim(RememberText(ask.Calls, *d.Remember)))
				return d, nil
			}
		case "d", "deny", "n", "no":
			d.Decision = journal.DecisionDeny
			d.Reason, err = a.reason(ctx)
			return d, err
		case "s", "show":
			a.showAll(ask)
		case "e", "each":
			if many {
				return a.each(ctx, ask)
			}
		}
	}
}

func (a *Approver) reason(ctx context.Context) (string, error) {
	answer, err := a.read(ctx, "why (the model reads it; empty = no reason)? ")
	const most = 500
	return firstBytes(strings.TrimSpace(answer), most), err
}

// showAll shows whole arguments and whole previews.
func (a *Approver) showAll(ask *journal.ConfirmationRequired) {
	var hints []string // each is said once
	for _, c := range ask.Calls {
		fmt.Fprintf(a.Out, "%s %s\n", a.Style.Bold(line(c.Name, 64)), a.Style.Dim(guard.Visible(c.ID)))
		fmt.Fprintln(a.Out, Indented(c.Arguments))
		fmt.Fprint(a.Out, a.Style.Preview(c.Preview, 0))
		if a.Hint == nil {
			continue
		}
		if text := a.Hint(&c); text != "" && !slices.Contains(hints, text) {
			hints = append(hints, text)
			fmt.Fprintln(a.Out, a.Style.Dim(guard.Visible(text)))
		}
	}
}

// each asks about one call after the other.
func (a *Approver) each(ctx context.Context, ask *journal.ConfirmationRequired) (d journal.ConfirmationResolved, err error) {
	d.Decision, d.Calls = journal.DecisionMixed, make(map[string]journal.CallDecision, len(ask.Calls))
	denied := false
	for i := range ask.Calls {
		c := &ask.Calls[i]
		a.item(c)
		one := *ask
		one.Calls = ask.Calls[i : i+1]
		decision, err := a.one(ctx, &one)
		if err != nil {
			return d, err
		}
		denied = denied || decision == journal.DecisionDeny
		d.Calls[c.ID] = journal.CallDecision{Decision: decision}
	}
	if denied {
		d.Reason, err = a.reason(ctx)
	}
	return d, err
}

func (a *Approver) one(ctx context.Context, ask *journal.ConfirmationRequired) (string, error) {
	for {
		answer, err := a.read(ctx, "[a]pprove, [d]eny, [s]how everything? ")
		if err != nil {
			return "", err
		}
		switch strings.ToLower(strings.TrimSpace(answer)) {
		case "a", "approve", "y", "yes":
			return journal.DecisionApprove, nil
		case "d", "deny", "n", "no":
			return journal.DecisionDeny, nil
		case "s", "show":
			a.showAll(ask)
		}
	}
}

// read reads one line. What stands on the last line without its end is no answer:
// it may be half of one.
func (a *Approver) read(ctx context.Context, question string) (string, error) {
	if ctx.Err() != nil {
		return "", errNobody
	}
	fmt.Fprint(a.Out, a.Style.Cyan(question))
	answer, err := a.In.ReadString('\n')
	if err != nil || ctx.Err() != nil {
		return "", errNobody
	}
	return answer, nil
}
