package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/internal/config"
	"github.com/toolcrib/toolcrib/internal/render"
	"github.com/toolcrib/toolcrib/internal/terminal"
	"github.com/toolcrib/toolcrib/internal/version"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/service"
)

// drive starts the task, shows it, and tells by the exit code what became of it.
func (a *app) drive(ctx context.Context, c *config.Config, task agent.Task, opened *service.Models, asJSON bool) error {
	d, err := a.newDrive(ctx, c, setup{
		who: task.Principal, approve: task.Approve, models: opened, workspace: task.Workspace,
		agent: task.Agent, runTools: task.RunTools,
	})
	if err != nil {
		return err
	}
	return d.show(ctx, asJSON, func(ctx context.Context, r *agent.Runner) (*agent.State, error) {
		state, err := r.Run(ctx, task)
		return d.onward(ctx, r, state, err)
	})
}

// setup is what a drive is made from.
type setup struct {
	who       toolcrib.Principal // who drives
	approve   agent.Approve      // what this process does about calls that need an approval
	models    *service.Models
	workspace string
	agent     toolcrib.Agent
	runTools  []string
	seen      []*agent.Call  // calls that were shown before, of a run that is taken up
	resumed   toolcrib.RunID // the run that is taken up; "" = it is a new one
}

// drive is one run on its way, with all that it stands on.
type drive struct {
	setup
	a      *app
	gate   *gate.Gate
	config *config.Config
	dbPath string
	locks  *service.LockFiles
	ask    *render.Approver // nil = nobody can be asked
	screen bool             // a person is asked on the screen of a conversation
	left   map[string]bool  // approvals that nobody answered here, by their IDs

	announcing *announcer // nil = nobody is to be told that the run waits
	log        *slog.Logger
}

// begin is what a drive does: it starts a run, or takes one up.
type begin func(ctx context.Context, r *agent.Runner) (*agent.State, error)

func (a *app) newDrive(ctx context.Context, c *config.Config, set setup) (*drive, error) {
	s, err := a.database(ctx)
	if err != nil {
		return nil, err
	}
	g, err := a.service.Gate(set.workspace)
	if err != nil {
		return nil, err
	}
	a.service.TellUnknown(g, &set.agent, set.runTools)
	return &drive{setup: set, a: a, gate: g, config: c, dbPath: s.Path(), locks: a.service.Drivers}, nil
}

// show drives, shows what happens, and tells by the exit code what became of it.
func (d *drive) show(ctx context.Context, asJSON bool, begin begin) error {
	var show watcher = &jsonWatcher{out: d.a.out}
	if asJSON && d.resumed != "" {
		show = d.sincePause(ctx, show, d.resumed)
	}
	if !asJSON {
		live := d.a.live()
		d.recall(live)
		show = live
	}
	state, err := d.carry(ctx, show, begin)
	if state == nil || err != nil {
		return d.cutOff(state, err)
	}
	if !asJSON {
		d.summary(state)
	}
	d.parked(state)
	d.a.keepNoLonger(ctx, d.config)
	return silent(exitOf(state))
}

// watcher shows the frames of a run.
type watcher interface {
	Start()
	Frame(f journal.Frame)
	Stop()
}

// jsonWatcher writes frames as NDJSON (contract §8), each in one write.
type jsonWatcher struct {
	out *output
	buf strings.Builder
}

func (*jsonWatcher) Start() {}
func (*jsonWatcher) Stop()  {}

func (w *jsonWatcher) Frame(f journal.Frame) {
	w.buf.Reset()
	if printJSON(&w.buf, f, false) == nil {
		_, _ = w.out.Write([]byte(w.buf.String())) // kept and told by output itself
	}
}

func (a *app) live() *render.Live {
	return &render.Live{Out: a.out, Err: a.err, OutTerminal: a.outTerminal, ErrTerminal: a.errTerminal, Style: a.style}
}

// carry drives the run to its end, its pause, or a signal.
func (d *drive) carry(ctx context.Context, show watcher, begin begin) (*agent.State, error) {
	a := d.a
	var stderr io.Writer = a.err
	live, shown := show.(*render.Live)
	if shown {
		stderr = live
	}
	a.beside = stderr
	ctx, stop := a.interruptible(ctx, nameOf(d.who), stderr)
	defer stop()
	ctx, unwatch := d.cancellable(ctx)
	defer unwatch()
	options, err := d.options(show, stderr)
	if err != nil {
		return nil, err
	}
	if d.approve == agent.ApproveAsk || d.approve == agent.ApproveAll && a.inTerminal && a.errTerminal {
		answers, err := terminal.Open(a.in, a.err)
		if err != nil {
			return nil, fmt.Errorf("the terminal: %v", err)
		}
		defer answers.Close()
		unhook := context.AfterFunc(ctx, answers.Cancel)
		defer unhook()
		approver := &render.Approver{In: answers, Out: a.err, Style: a.style, By: nameOf(d.who)}
		approver.Hint = d.hint
		if shown {
			approver.Hold, approver.Release = live.Hold, live.Release
		}
		options.Approver, options.Who, d.ask = approver, d.who, approver
	}
	runner, err := agent.New(options)
	if err != nil {
		return nil, err
	}
	show.Start()
	defer show.Stop()
	state, err := begin(ctx, runner)
	if err == nil {
		d.announceLeft(ctx, state)
	}
	// Tools that did not end when they were told to end with the process.
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), toolGrace)
	defer cancel()
	if late := runner.Wait(ending); late != nil {
		options.Log.WarnContext(ctx, "tools were left behind", "error", late)
	}
	if errors.Is(err, context.Canceled) {
		// What was under way when the signal came says no more than that.
		err = context.Cause(ctx)
	}
	return state, err
}

// toolGrace is how long the process waits for tools that were told to end.
const toolGrace = time.Second

// nameOf names who acts; with --as both names.
func nameOf(who toolcrib.Principal) string {
	return agent.NameOf(who)
}

// cancelEvery is how often a driver looks for a request to cancel its run.
const cancelEvery = 500 * time.Millisecond

// cancellable gives a context that ends when another process asks to cancel the
// run. stop must be called; it waits for the watch to end.
func (d *drive) cancellable(ctx context.Context) (_ context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(cancelEvery)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			if by, ok := d.locks.Requested(d.locks.First()); ok {
				cancel(&agent.CancelError{By: by})
			}
		}
	}()
	return ctx, func() {
		cancel(nil)
		<-ended
	}
}

// options are what the loop stands on.
func (d *drive) options(show watcher, stderr io.Writer) (agent.Options, error) {
	a := d.a
	mask := a.mask()
	_, people := show.(*render.Live)
	log, err := a.logger(d.config, mask, stderr, people)
	if err != nil {
		return agent.Options{}, err
	}
	d.log = log
	budgets, err := a.service.Ledger()
	if err != nil {
		return agent.Options{}, err
	}
	retry := d.config.Retry
	o := agent.Options{
		Retry:    &journal.Retry{First: retry.First.Std(), MaxElapsed: retry.MaxElapsed.Std(), Park: retry.Park.Std()},
		FourEyes: d.config.Approvals.FourEyes, Expires: d.config.Approvals.Expire.Std(), Announcer: d.announcer(),
		Ledger: budgets, Memory: a.service.Memory(), Journal: d.journaled(), Contents: a.store, Gate: d.gate,
		Mask: mask, Log: log, Worker: workerName(), Version: version.Version(),
		Watch: func(run toolcrib.RunID, f journal.Frame) {
			// Runs that the run starts itself have streams of their own.
			if run == d.locks.First() {
				show.Frame(f)
			}
		},
		NewID: func(prefix string) string {
			id := agent.NewID(prefix)
			if prefix == "run_" {
				_ = d.locks.Take(toolcrib.RunID(id)) // nobody else can have a new one
			}
			return id
		},
	}
	d.subAgents(&o)
	return o, nil
}

func workerName() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return driverName + ":" + host + ":" + strconv.Itoa(os.Getpid())
}
