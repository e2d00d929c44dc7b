package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/store"
)

func (a *app) runsCancelCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "cancel RUN",
		Short: "End a run: one that goes on, is parked, or was cut off",
		Long: "End a run as cancelled. One that another process drives is told, and ends by itself. " +
			"RUN is an ID, the beginning of one, or last.",
		Example: "toolcrib runs cancel last\ntoolcrib runs cancel run_01K",
		Args:    positional,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.cancel(cmd.Context(), args[0])
		},
	}
}

func (a *app) cancel(ctx context.Context, name string) error {
	who, err := a.principal(ctx)
	if err != nil {
		return err
	}
	s, err := a.database(ctx)
	if err != nil {
		return err
	}
	rec, err := a.findRun(ctx, s, name)
	if err != nil {
		return err
	}
	ended := func(status toolcrib.Status) error {
		return failedf("conflict: run %s (%s) has ended; there is nothing to cancel", rec.ID, status)
	}
	if rec.Status.Ended() {
		return ended(rec.Status)
	}
	locks, err := a.driverLocks()
	if err != nil {
		return err
	}
	if locks.take(rec.ID) == nil {
		return a.cancelHere(ctx, rec, nameOf(who))
	}
	if rec.Parent != "" {
		return failedf("conflict: run %s is a part of run %s; cancel that one", rec.ID, rec.Parent)
	}
	return a.cancelThere(ctx, rec, nameOf(who))
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
	state, err := r.Cancel(ctx, rec.ID, by)
	if isConflict(err) {
		return failedf("conflict: %v", err)
	}
	if err != nil {
		return err
	}
	fmt.Fprintf(a.out, "run %s: %s\n", rec.ID, state.Status)
	if rec.Parent == "" {
		return nil
	}
	if top, err := a.top(ctx, rec); err == nil && !top.Status.Ended() {
		fmt.Fprintf(a.out, "it was a part of run %s, which is told so when it goes on: %s runs resume %s\n", top.ID, a.self(), top.ID)
	}
	return nil
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
			fmt.Fprintf(a.out, "run %s: %s\n", rec.ID, now.Status)
			return nil
		}
		if !a.locks.driven(rec.ID) && a.locks.take(rec.ID) == nil {
			// Its process let go of it before it saw the request.
			return a.cancelHere(ctx, now, by)
		}
	}
}
