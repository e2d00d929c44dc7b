package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/toolcrib/toolcrib/service"
)

func (a *app) runsCancelCommand(cmd *cobra.Command) {
	var asJSON bool
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		run, err := a.cancel(cmd.Context(), args[0])
		if err != nil {
			return err
		}
		return a.cancelled(run, asJSON)
	}

	cmd.Flags().BoolVar(&asJSON, "json", false, "")
}

// cancelled tells of a run that was cancelled.
func (a *app) cancelled(run service.Run, asJSON bool) (err error) {
	tell := a.note
	if asJSON {
		err = printJSON(a.out, run, true)
	} else {
		fmt.Fprintf(a.out, "run %s: %s\n", run.ID, run.Status)
		tell = func(text string) { fmt.Fprintln(a.out, text) }
	}
	if run.Top == "" || err != nil {
		return err
	}
	tell(fmt.Sprintf("it was a part of run %s, which is told so when it continues: %s runs resume %s", run.Top, a.self(), run.Top))
	return nil
}

// cancel ends a run, and returns it as it is then.
func (a *app) cancel(ctx context.Context, name string) (run service.Run, err error) {
	s, who, err := a.changing(ctx)
	if err != nil {
		return run, err
	}
	ctx, stop := a.interruptible(ctx, nameOf(who), a.err)
	defer stop()
	run, err = s.Cancel(ctx, who, name)
	return run, hint(err, name, "`toolcrib runs list` shows what there is")
}
