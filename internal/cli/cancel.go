package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/toolcrib/toolcrib/service"
	"github.com/toolcrib/toolcrib/store"
)

func (a *app) runsCancelCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "cancel RUN",
		Short: "End a run: one that is going on, is parked, or was cut off",
		Long: "End a run as cancelled. One that another process drives is told, and ends by itself. " +
			"RUN is an ID, the beginning of one, or last.",
		Example: "toolcrib runs cancel last\ntoolcrib runs cancel run_01K\ntoolcrib runs cancel last --json",
		Args:    positional,
		RunE: func(cmd *cobra.Command, args []string) error {
			rec, err := a.cancel(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return a.cancelled(cmd.Context(), rec, asJSON)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "the run as one JSON value, as in runs list")
	return cmd
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
