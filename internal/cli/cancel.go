package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/toolcrib/toolcrib/service"
	"github.com/toolcrib/toolcrib/store"
)

func (a *app) runsCancelCommand(cmd *cobra.Command) {
	var asJSON bool
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		rec, err := a.cancel(cmd.Context(), args[0])
		if err != nil {
			return err
		}
		return a.cancelled(cmd.Context(), rec, asJSON)
	}

	cmd.Flags().BoolVar(&asJSON, "json", false, "")
}

// cancelled tells of a run that was cancelled.
func (a *app) cancelled(ctx context.Context, rec store.RunRecord, asJSON bool) (err error) {
	tell := a.note
	if asJSON {
		err = printJSON(a.out, service.RunOf(rec), true)
	} else {
		fmt.Fprintf(a.out, "run %s: %s\n", rec.ID, rec.Status)
		tell = func(text string) { fmt.Fprintln(a.out, text) }
	}
	if rec.Parent == "" || err != nil {
		return err
	}
	if top, err := a.service.Top(ctx, rec); err == nil && !top.Status.Ended() {
		tell(fmt.Sprintf("it was a part of run %s, which is told so when it continues: %s runs resume %s", top.ID, a.self(), top.ID))
	}
	return nil
}

// cancel ends a run, and returns it as it is then.
func (a *app) cancel(ctx context.Context, name string) (rec store.RunRecord, err error) {
	s, who, err := a.changing(ctx)
	if err != nil {
		return rec, err
	}
	ctx, stop := a.interruptible(ctx, nameOf(who), a.err)
	defer stop()
	rec, err = s.Cancel(ctx, who, name)
	return rec, hint(err, name, "`toolcrib runs list` shows what there is")
}
