package cli

import (
	"fmt"

	"github.com/spf13/cobra"
)

func (a *app) runsCancelCommand(cmd *cobra.Command) {
	a.answering(cmd, a.changing, func(c call) (any, func(), error) {
		ctx, stop := a.interruptible(c, nameOf(c.who), a.err)
		defer stop()
		run, err := c.Cancel(ctx, c.who, c.arg())
		if err != nil {
			return nil, nil, noRun(err, c.arg())
		}
		text := fmt.Sprintf("run %s: %s", run.ID, run.Status)
		if run.Top != "" {
			part := fmt.Sprintf("it was a part of run %s, which is told so when it continues: %s runs resume %s", run.Top, a.self(), run.Top)
			if c.json {
				a.note(part)
			}
			text += "\n" + part
		}
		return run, func() { fmt.Fprintln(a.out, text) }, nil
	})
}
