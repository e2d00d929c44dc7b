package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/toolcrib/toolcrib/store"
)

func (a *app) runsCancelCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "cancel RUN",
		Short: "End a run: one that goes on, is parked, or was cut off",
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
func (a *app) cancelled(ctx context.Context, rec store.RunRecord, asJSON bool) error {
	rec, err := a.store.Run(ctx, rec.ID)
	if err != nil {
		return err
	}
	tell := a.note
	if asJSON {
		err = printJSON(a.out, viewOfRecord(rec), true)
	} else {
		fmt.Fprintf(a.out, "run %s: %s\n", rec.ID, rec.Status)
		tell = func(text string) { fmt.Fprintln(a.out, text) }
	}
	if rec.Parent == "" || err != nil {
		return err
	}
	if top, err := a.top(ctx, rec); err == nil && !top.Status.Ended() {
		tell(fmt.Sprintf("it was a part of run %s, which is told so when it goes on: %s runs resume %s", top.ID, a.self(), top.ID))
	}
	return nil
}

// cancel ends a run, and returns it as it was before.
func (a *app) cancel(ctx context.Context, name string) (rec store.RunRecord, err error) {
	who, err := a.principal(ctx)
	if err != nil {
		return rec, err
	}
	s, err := a.database(ctx)
	if err != nil {
		return rec, err
	}
	if rec, err = a.findRun(ctx, s, name); err != nil {
		return rec, err
	}
	if rec.Status.Ended() {
		return rec, failedf("conflict: run %s (%s) has ended; there is nothing to cancel", rec.ID, rec.Status)
	}
	locks, err := a.driverLocks()
	if err != nil {
		return rec, err
	}
	if locks.take(rec.ID) == nil {
		return rec, a.cancelHere(ctx, rec, nameOf(who))
	}
	if rec.Parent != "" {
		return rec, failedf("conflict: run %s is a part of run %s; cancel that one", rec.ID, rec.Parent)
	}
	return rec, a.cancelThere(ctx, rec, nameOf(who))
}

// cancelHere ends a run that nobody drives.
func (a *app) cancelHere(ctx context.Context, rec store.RunRecord, by string) error {
	if _, err := a.load(ctx, a.store, rec.ID); err != nil {
		return err
	}
	r, err := a.runnerOf(ctx, rec)
	if err != nil {
		return err
	}
	if _, err = r.Cancel(ctx, rec.ID, by); isConflict(err) {
		return failedf("conflict: %v", err)
	}
	return err
}

// How long another process may take to end its run, and how often it is looked at.
const (
	cancelWait = 10 * time.Second
	cancelLook = 100 * time.Millisecond
)

// cancelThere asks the process that drives a run to end it, and waits until it has.
func (a *app) cancelThere(ctx context.Context, rec store.RunRecord, by string) error {
	ctx, stop := a.interruptible(ctx, by, a.err)
	defer stop()
	if err := a.locks.request(rec.ID, by); err != nil {
		return failedf("run %s cannot be told to end: %v", rec.ID, err)
	}
	defer a.locks.removeRequest(rec.ID)
	timeout := time.NewTimer(cancelWait)
	defer timeout.Stop()
	tick := time.NewTicker(cancelLook)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-timeout.C:
			return failedf("run %s was told to end and has not yet; its process does not answer", rec.ID)
		}
		now, err := a.store.Run(ctx, rec.ID)
		if err != nil {
			return err
		}
		if now.Status.Ended() {
			return nil
		}
		if !a.locks.driven(rec.ID) && a.locks.take(rec.ID) == nil {
			// Its process let go of it before it saw the request.
			return a.cancelHere(ctx, now, by)
		}
	}
}
