package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/toolcrib/toolcrib/store"
)

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
