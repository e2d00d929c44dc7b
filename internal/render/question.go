package render

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/internal/terminal"
	"github.com/toolcrib/toolcrib/journal"
)

// Left reports whether the person left an approval without an answer before.
func (a *Approver) Left(approval string) bool { return a.left[approval] }

func (a *Approver) leave(approval string) {
	switch {
	case approval == "":
		return
	case a.left == nil:
		a.left = map[string]bool{}
	}
	a.left[approval] = true
}

// Ask shows head, and below it what somebody else wrote, and reads one line as the
// answer to the question. ok is false if there is none; then it is not asked about that
// approval again. Both head and text may be empty, where the same is asked once more.
func (a *Approver) Ask(ctx context.Context, approval, head, text, question string) (answer string, ok bool) {
	if a.Hold != nil {
		a.Hold()
		defer a.Release()
	}
	calm := time.Duration(0)
	if head != "" {
		fmt.Fprintf(a.Out, "\n%s\n%s", a.Style.Bold(a.Style.Yellow(guard.Visible(head))), a.Style.Quoted(text))
		calm = terminal.Calm
	}
	answer, err := a.read(ctx, question, calm)
	if err != nil {
		fmt.Fprintln(a.Out)
	}
	if answer = strings.TrimSpace(terminal.Pasted(answer)); err != nil || answer == "" {
		a.leave(approval)
		return "", false
	}
	return answer, true
}

// AskKey shows head and the call, and reads a key. ok is false if there is no answer, or
// it is left for later; then it is not asked about that approval again.
func (a *Approver) AskKey(ctx context.Context, approval, head string, c *journal.ApprovalItem, keys []Key) (key string, ok bool) {
	if a.Hold != nil {
		a.Hold()
		defer a.Release()
	}
	fmt.Fprintf(a.Out, "\n%s\n", a.Style.Bold(a.Style.Yellow(head)))
	a.item(c)
	key, err := a.word(ctx, keys, []journal.ApprovalItem{*c})
	if err != nil {
		a.leave(approval)
		fmt.Fprintln(a.Out)
	}
	return key, err == nil
}
