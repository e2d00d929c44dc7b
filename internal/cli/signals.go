package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/toolcrib/toolcrib/agent"
)

// Why a run was left to be taken up again.
var (
	errTerminated = errors.New("terminated (SIGTERM)")
	errHangup     = errors.New("the terminal has gone (SIGHUP)")
)

// interruptible gives a context that ends as contract §3 says: the first ctrl-c
// cancels the run, SIGTERM and SIGHUP leave it resumable, the second signal of any
// kind ends the process at once. stop must be called.
func (a *app) interruptible(ctx context.Context, by string, stderr io.Writer) (_ context.Context, stop func()) {
	return a.interruptibleBy(ctx, by, stderr, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
}

// interruptibleBy is interruptible by some of these signals only.
func (a *app) interruptibleBy(ctx context.Context, by string, stderr io.Writer, which ...os.Signal) (
	_ context.Context, stop func(),
) {
	ctx, cancel := context.WithCancelCause(ctx)
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, which...)
	quit := make(chan struct{})
	var watch sync.WaitGroup
	watch.Add(1)
	go func() {
		defer watch.Done()
		for n := 0; ; n++ {
			select {
			case <-quit:
				return
			case s := <-signals:
				code, cause := meaning(s, by)
				if n > 0 {
					os.Exit(code)
				}
				if code == exitCanceled {
					fmt.Fprintln(stderr, a.style.Dim("· cancelling; ctrl-c once more ends at once"))
				}
				cancel(cause)
			}
		}
	}()
	return ctx, func() {
		signal.Stop(signals)
		close(quit)
		watch.Wait()
		cancel(nil)
	}
}

// meaning tells exit code and cause of a signal.
func meaning(s os.Signal, by string) (int, error) {
	switch s {
	case syscall.SIGTERM:
		return exitTerm, errTerminated
	case syscall.SIGHUP:
		return exitHangup, errHangup
	}
	return exitCanceled, &agent.CancelError{By: by}
}
