package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/toolcrib/toolcrib/internal/render"
	"github.com/toolcrib/toolcrib/internal/terminal"
)

// asking opens the terminal for questions of a command that drives no run. A signal ends
// the process when the terminal is as it was.
func (a *app) asking(ask func(ctx context.Context, answers *terminal.Input)) {
	answers, err := terminal.Open(a.in, a.err)
	if err != nil {
		a.notice("the terminal: %v", err)
		return // nobody answers
	}
	ctx, stop := a.interruptible(context.Background(), "", io.Discard)
	unhook := context.AfterFunc(ctx, answers.Cancel)
	ask(ctx, answers)
	cause := context.Cause(ctx)
	unhook()
	_ = answers.Close() // it was only read
	stop()
	if cause != nil {
		fmt.Fprintln(a.err)
		os.Exit(codeOf(cause))
	}
}

// answer asks one question, when nobody has typed for calm, and returns the key that
// answers it; no answer is no.
func (a *app) answer(ctx context.Context, answers *terminal.Input, question, tail string, calm time.Duration, keys []render.Key) string {
	answers.Settle(ctx, calm)
	if ctx.Err() != nil {
		return render.KeyNo
	}
	fmt.Fprint(a.err, a.style.Question(question+" "+tail)+" ")
	line, err := answers.Line()
	if err != nil {
		fmt.Fprintln(a.err)
		return render.KeyNo
	}
	return render.Pressed(keys, line)
}
