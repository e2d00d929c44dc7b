package render

import (
	"context"
	"fmt"
	"strings"

	"github.com/toolcrib/toolcrib/guard"
)

// Left tells whether the person left an approval without an answer before.
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

// Ask shows head, which is made visible, and reads one line as the answer to the
// question. ok is false if there is none; then it is not asked about that approval
// again.
func (a *Approver) Ask(ctx context.Context, approval, head, question string) (answer string, ok bool) {
	if head != "" {
		head = a.Style.Bold(a.Style.Yellow(guard.Visible(head)))
	}
	return a.AskRaw(ctx, approval, head, question)
}

// AskRaw is [Approver.Ask] with a head that is styled and visible already.
func (a *Approver) AskRaw(ctx context.Context, approval, head, question string) (answer string, ok bool) {
	if a.Hold != nil {
		a.Hold()
		defer a.Release()
	}
	if head != "" {
		fmt.Fprintf(a.Out, "\n%s\n", strings.TrimRight(head, "\n"))
	}
	answer, err := a.read(ctx, question)
	if err != nil {
		fmt.Fprintln(a.Out)
	}
	if answer = strings.TrimSpace(answer); err != nil || answer == "" {
		a.leave(approval)
		return "", false
	}
	return answer, true
}
