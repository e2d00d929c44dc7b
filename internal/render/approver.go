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
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/internal/terminal"
	"github.com/toolcrib/toolcrib/journal"
)

// Input is where a person answers.
type Input interface {
	// Settle drops what was typed before, and waits until nobody has typed for calm.
	Settle(ctx context.Context, calm time.Duration)
	// Line drops what was typed before and returns the next line.
	Line() (string, error)
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
	fmt.Fprintf(a.Out, "\n%s\n", a.Style.Bold(a.Style.Yellow(NeedApproval(ask.Calls))))
	for i := range ask.Calls {
		a.item(&ask.Calls[i])
	}
}

// NeedApproval is the line above calls that are asked about.
func NeedApproval(calls []journal.ApprovalItem) string {
	if len(calls) > 1 {
		return fmt.Sprintf("These %d calls need your approval", len(calls))
	}
	return "This call needs your approval"
}

func (a *Approver) item(c *journal.ApprovalItem) {
	fmt.Fprint(a.Out, a.Style.Item(c, false))
}

// Item tells what is asked about one call: its arguments, effect, reason and what it
// would change; whole shows all of it.
func (s Style) Item(c *journal.ApprovalItem, whole bool) string {
	var b strings.Builder
	arguments := middle(plainArguments(c.Arguments), 2*previewRows*(s.width()-5))
	switch fits := ansi.StringWidth(line(c.Name, 64)+arguments)+4 <= s.width(); {
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
	text = ansi.Wrap(line(text, previewRows*s.width()), max(s.columns()-4, 8), "")
	for row := range strings.SplitSeq(text, "\n") {
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

// decide asks about the calls together; each of several, if the person wants that.
func (a *Approver) decide(ctx context.Context, ask *journal.ConfirmationRequired) (d journal.ConfirmationResolved, err error) {
	switch key, err := a.word(ctx, callKeys(ask.Calls, false), ask.Calls); {
	case err != nil:
		return d, err
	case key == KeyEach:
		return a.each(ctx, ask)
	case key == KeyYes:
		d.Decision = journal.DecisionApprove
	case key == KeyAlways:
		d.Decision, d.Remember = journal.DecisionApprove, &journal.Remember{Scope: journal.RememberRun}
		fmt.Fprintln(a.Out, a.Style.Dim(RememberText(ask.Calls, *d.Remember)))
	default:
		d.Decision = journal.DecisionDeny
		if key == KeyNoWhy {
			d.Reason, err = a.reason(ctx)
		}
		return d, err
	}
	return d, nil
}

// callKeys are the keys that answer here. Other arguments are given elsewhere: with
// approvals approve --edit, where they are judged before they count.
func callKeys(calls []journal.ApprovalItem, each bool) []Key {
	return slices.DeleteFunc(CallKeys(calls, each), func(k Key) bool { return k.Name == KeyEdit })
}

// word asks until a key says something about the calls.
func (a *Approver) word(ctx context.Context, keys []Key, calls []journal.ApprovalItem) (string, error) {
	question := strings.Join(KeyRows(KeysText(keys), a.Style.width()-3), "\n") + "? "
	for calm := terminal.Calm; ; calm = 0 {
		answer, err := a.read(ctx, question, calm)
		switch key := Pressed(keys, answer); {
		case err != nil || key == KeyLater:
			return "", errNobody
		case key == KeyShow:
			a.showAll(calls)
		case key != "":
			return key, nil
		}
	}
}

func (a *Approver) reason(ctx context.Context) (string, error) {
	answer, err := a.read(ctx, "why (the model reads it; empty = no reason)? ", 0)
	const most = 500
	return firstBytes(strings.TrimSpace(terminal.Pasted(answer)), most), err
}

// showAll shows whole arguments and whole previews.
func (a *Approver) showAll(calls []journal.ApprovalItem) {
	var hints []string // each is said once
	for i := range calls {
		c := &calls[i]
		fmt.Fprint(a.Out, a.Style.Item(c, true))
		if a.Hint == nil {
			continue
		}
		if text := a.Hint(c); text != "" && !slices.Contains(hints, text) {
			hints = append(hints, text)
			fmt.Fprintln(a.Out, a.Style.Dim(guard.Visible(text)))
		}
	}
}

// each asks about one call after the other.
func (a *Approver) each(ctx context.Context, ask *journal.ConfirmationRequired) (d journal.ConfirmationResolved, err error) {
	d.Decision, d.Calls = journal.DecisionMixed, make(map[string]journal.CallDecision, len(ask.Calls))
	for i := range ask.Calls {
		c := &ask.Calls[i]
		a.item(c)
		key, err := a.word(ctx, callKeys(ask.Calls[i:i+1], true), ask.Calls[i:i+1])
		if err != nil {
			return d, err
		}
		decision := journal.DecisionDeny
		if key == KeyYes {
			decision = journal.DecisionApprove
		}
		if key == KeyNoWhy {
			if d.Reason, err = a.reason(ctx); err != nil {
				return d, err
			}
		}
		d.Calls[c.ID] = journal.CallDecision{Decision: decision}
	}
	return d, nil
}

// read asks a question and reads a line, when the person has not typed for calm. What
// they typed before the question stood there is not read.
func (a *Approver) read(ctx context.Context, question string, calm time.Duration) (string, error) {
	a.In.Settle(ctx, calm)
	if ctx.Err() != nil {
		return "", errNobody
	}
	fmt.Fprint(a.Out, a.Style.Cyan(question))
	answer, err := a.In.Line()
	if err != nil || ctx.Err() != nil {
		return "", errNobody
	}
	return answer, nil
}
