package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"sync"
	"syscall"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/internal/version"
	"github.com/toolcrib/toolcrib/service"
	"github.com/toolcrib/toolcrib/telemetry"
)

// logger returns the operator's log. With log.file it writes there, from log.level on. Otherwise
// standard error receives warnings and errors, and everything at level debug or on a server. people
// reports whether the events of a run are shown on standard error: what they say is not logged there
// again.
func (a *app) logger(stderr io.Writer, people bool) (*slog.Logger, error) {
	c, mask := a.service.Env.Config, a.mask()
	var level slog.Level
	if err := level.UnmarshalText([]byte(c.Log.Level)); err != nil {
		return nil, usagef("log.level: %v", err)
	}
	if a.verboseFlag {
		level = slog.LevelDebug
	}
	kept := level // level of the records for fetch_logs without a file, independent of the output
	w := stderr
	file, err := c.Log.File.Resolve(a.resolver())
	if err != nil {
		return nil, err
	}
	if file != "" {
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			return nil, fmt.Errorf("log.file: %v", err)
		}
		if a.logFile == nil {
			if a.logFile, err = os.OpenFile(file, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600); err != nil {
				return nil, fmt.Errorf("log.file: %v", err)
			}
			a.closers = append(a.closers, a.logFile)
		}
		w, people = a.logFile, false
	} else if level > slog.LevelDebug && !a.operates {
		level = max(level, slog.LevelWarn)
	} else {
		people = false
	}
	var told []string // messages that people see in another form
	if file == "" && level > slog.LevelDebug && !a.operates {
		told = append(told, service.NoticeNotifyFailed)
		if people {
			told = append(told, agent.LogRequestFailed)
		}
	}
	w = through{w, mask.MaskBytes} // slog writes one line at a time
	options := &slog.HandlerOptions{Level: level}
	var handler slog.Handler = slog.NewTextHandler(w, options)
	if c.Log.Format == "json" {
		handler = slog.NewJSONHandler(w, options)
	}
	handler = except{handler, told}
	if file == "" {
		handler = slog.NewMultiHandler(handler, a.service.Policy.Ring().Handler(kept))
	}
	return slog.New(handler), nil
}

// plainLogger returns the log for commands that do not show a run.
func (a *app) plainLogger() (*slog.Logger, error) { return a.logger(a.err, false) }

// except is a handler that drops records with certain messages.
type except struct {
	slog.Handler
	messages []string
}

func (h except) Handle(ctx context.Context, r slog.Record) error {
	if slices.Contains(h.messages, r.Message) {
		return nil
	}
	return h.Handler.Handle(ctx, r)
}

func (h except) WithAttrs(attrs []slog.Attr) slog.Handler {
	return except{h.Handler.WithAttrs(attrs), h.messages}
}

func (h except) WithGroup(name string) slog.Handler {
	return except{h.Handler.WithGroup(name), h.messages}
}

// through is a writer that transforms everything that is written with make.
type through struct {
	w    io.Writer
	make func(p []byte) []byte
}

func (t through) Write(p []byte) (int, error) {
	if _, err := t.w.Write(t.make(p)); err != nil {
		return 0, err
	}
	return len(p), nil
}

// observe returns j with the observers that the configuration and the environment ask for, or j itself
// without any. They are set up at the first use.
func (a *app) observe(j toolcrib.Journal) toolcrib.Journal {
	a.observing.Do(func() {
		traces, err := a.openTraces()
		if err != nil {
			a.notice("no traces are sent: %v", err)
		}
		if traces != nil || a.metrics != nil {
			a.observer = &telemetry.Observer{Traces: traces, Metrics: a.metrics}
			a.observer.Log, _ = a.plainLogger() // the command returns its error where it first needs the log
		}
	})
	return a.observer.Journal(j)
}

// openTraces starts to send traces. It returns nil if traces are not enabled.
func (a *app) openTraces() (*telemetry.Traces, error) {
	c := a.service.Env.Config.Telemetry
	endpoint, err := c.OTLP.Resolve(a.resolver())
	if err != nil {
		return nil, err
	}
	o := telemetry.TraceOptions{Endpoint: endpoint, Content: c.Content, Version: version.Version(), Mask: a.mask()}
	if !o.Wanted() {
		return nil, nil
	}
	if o.Log, err = a.plainLogger(); err != nil {
		return nil, err
	}
	traces, err := telemetry.OpenTraces(context.Background(), o)
	if err == nil {
		a.closers = append(a.closers, traces)
	}
	return traces, err
}

// Causes of a run that was left resumable.
var (
	errTerminated = errors.New("terminated (SIGTERM)")
	errHangup     = errors.New("the terminal has gone (SIGHUP)")
)

// interruptible returns a context that ends on signals: the first ctrl-c cancels the run, or takes the
// answers that a team has; SIGTERM and SIGHUP leave it resumable; the second signal of any kind ends
// the process at once. stop must be called. which selects the signals; without any, all three are handled.
func (a *app) interruptible(ctx context.Context, by string, stderr io.Writer, which ...os.Signal) (
	_ context.Context, stop func(),
) {
	if len(which) == 0 {
		which = []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, which...)
	quit := make(chan struct{})
	var watch sync.WaitGroup
	watch.Go(func() {
		for n := 0; ; n++ {
			select {
			case <-quit:
				return
			case s := <-signals:
				code, cause := meaning(s, by)
				if n > 0 {
					os.Exit(code)
				}
				var hurry *agent.CancelError
				if a.hurry != nil && errors.As(cause, &hurry) {
					fmt.Fprintln(stderr, a.style.Dim("· taking the answers that are there; ctrl-c once more ends at once"))
					a.hurry <- hurry
					continue
				}
				if code == exitCanceled {
					fmt.Fprintln(stderr, a.style.Dim("· cancelling; ctrl-c once more ends at once"))
				}
				cancel(cause)
			}
		}
	})
	return ctx, func() {
		signal.Stop(signals)
		close(quit)
		watch.Wait()
		cancel(nil)
	}
}

// meaning returns the exit code and the cause for a signal.
func meaning(s os.Signal, by string) (int, error) {
	switch s {
	case syscall.SIGTERM:
		return exitTerm, errTerminated
	case syscall.SIGHUP:
		return exitHangup, errHangup
	}
	return exitCanceled, &agent.CancelError{By: by}
}
