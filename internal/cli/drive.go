package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/muesli/cancelreader"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/internal/config"
	"github.com/toolcrib/toolcrib/internal/render"
	"github.com/toolcrib/toolcrib/internal/version"
	"github.com/toolcrib/toolcrib/journal"
)

// drive starts the task, shows it, and tells by the exit code what became of it.
func (a *app) drive(ctx context.Context, c *config.Config, task agent.Task, opened *models, asJSON bool) error {
	d, err := a.newDrive(ctx, c, task, opened)
	if err != nil {
		return err
	}
	var show watcher = &jsonWatcher{out: a.out}
	if !asJSON {
		show = a.live()
	}
	state, err := d.carry(ctx, show)
	if state == nil || err != nil {
		return d.cutOff(state, err)
	}
	if !asJSON {
		d.summary(state)
	}
	d.parked(state)
	return silent(exitOf(state))
}

// drive is one run on its way, with all that it stands on.
type drive struct {
	a      *app
	task   agent.Task
	models *models
	gate   *gate.Gate
	config *config.Config
	dbPath string
	locks  *driverLocks
}

func (a *app) newDrive(ctx context.Context, c *config.Config, task agent.Task, opened *models) (*drive, error) {
	s, err := a.database(ctx)
	if err != nil {
		return nil, err
	}
	g, err := a.gate(ctx, s, task.Workspace)
	if err != nil {
		return nil, err
	}
	for _, list := range []struct {
		what  string
		names []string
	}{{"--tools", task.RunTools}, {"agents." + task.Agent.Name + ".tools", task.Agent.Tools}} {
		for _, name := range g.UnknownNames(list.names) {
			a.unknownTool(g, list.what, name)
		}
	}
	data, err := a.dataDir()
	if err != nil {
		return nil, err
	}
	locks := newDriverLocks(data)
	a.closers = append(a.closers, locks)
	return &drive{a: a, task: task, models: opened, gate: g, config: c, dbPath: s.Path(), locks: locks}, nil
}

// unknownTool tells that a name of a list means no tool and is dropped.
func (a *app) unknownTool(g *gate.Gate, where, name string) {
	text := fmt.Sprintf("%s: there is no tool %q; it is dropped", where, name)
	if near := nearest(name, g.Names()); near != "" {
		text += fmt.Sprintf(" (did you mean %q?)", near)
	}
	a.notice("%s", text)
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
func (d *drive) carry(ctx context.Context, show watcher) (*agent.State, error) {
	a := d.a
	var stderr io.Writer = a.err
	live, terminal := show.(*render.Live)
	if terminal {
		stderr = live
	}
	ctx, stop := a.interruptible(ctx, d.by(), stderr)
	defer stop()
	options, err := d.options(show, stderr)
	if err != nil {
		return nil, err
	}
	if d.task.Approve == agent.ApproveAsk {
		reader, err := cancelreader.NewReader(a.in)
		if err != nil {
			return nil, failedf("the terminal: %v", err)
		}
		defer reader.Close()
		unhook := context.AfterFunc(ctx, func() { reader.Cancel() })
		defer unhook()
		approver := &render.Approver{In: bufio.NewReader(reader), Out: a.err, Style: a.style, By: d.by()}
		if terminal {
			approver.Hold, approver.Release = live.Hold, live.Release
		}
		options.Approver = approver
	}
	runner, err := agent.New(options)
	if err != nil {
		return nil, err
	}
	show.Start()
	defer show.Stop()
	state, err := runner.Run(ctx, d.task)
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

// by is who sits at the keyboard.
func (d *drive) by() string {
	if d.task.Principal.Actor != "" {
		return d.task.Principal.Actor
	}
	return d.task.Principal.User
}

// options are what the loop stands on.
func (d *drive) options(show watcher, stderr io.Writer) (agent.Options, error) {
	a := d.a
	mask := a.mask()
	log, err := a.logger(d.config, mask, stderr)
	if err != nil {
		return agent.Options{}, err
	}
	var top toolcrib.RunID
	return agent.Options{
		Journal: a.store, Contents: a.store, Gate: d.gate, Models: d.models.Open,
		Mask: mask, Log: log, Worker: workerName(), Version: version.Version(),
		Watch: func(run toolcrib.RunID, f journal.Frame) {
			// Runs that the run starts itself have streams of their own.
			if top == "" {
				top = run
			}
			if run == top {
				show.Frame(f)
			}
		},
		NewID: func(prefix string) string {
			id := agent.NewID(prefix)
			if prefix == "run_" {
				d.locks.take(toolcrib.RunID(id))
			}
			return id
		},
	}, nil
}

func workerName() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return driverName + ":" + host + ":" + strconv.Itoa(os.Getpid())
}

// cutOff tells what became of a run that was neither ended nor parked.
func (d *drive) cutOff(state *agent.State, err error) error {
	if state == nil || state.Seq == 0 {
		return err
	}
	code := codeOf(err)
	text := fmt.Sprintf("run %s was cut off: %v", state.Run, err)
	if slices.Contains([]int{exitTerm, exitHangup}, code) {
		text += "; what was done is kept and it can be taken up again"
	}
	return &exitError{code: code, message: text + fmt.Sprintf("\nSee: toolcrib runs show %s", state.Run)}
}

// summary is the last line about a run.
func (d *drive) summary(s *agent.State) {
	a := d.a
	if f := s.Failed; f != nil {
		text := f.Message
		if f.Ref != "" {
			text += " (" + f.Ref + ")"
		}
		a.complain(string(f.StopReason) + ": " + text)
	}
	if s.Stopping != nil && s.Stopping.Message != "" {
		a.notice("%s", s.Stopping.Message)
	}
	known := true
	model := s.Start.Agent.Model
	for _, m := range s.Start.Models[:min(s.Model+1, len(s.Start.Models))] {
		known = known && m.Price.Known
		model = m.Ref
	}
	var parts []string
	if len(s.Start.Models) > 0 {
		parts = append(parts, model, render.Tokens(s.Usage, known), render.Cost(s.Usage, known))
	}
	parts = append(parts, render.Duration(s.Driven))
	fmt.Fprintln(a.err, a.style.Dim(guard.Visible(strings.Join(parts, " · "))))
	fmt.Fprintln(a.err, a.style.Dim(guard.Visible(fmt.Sprintf("toolcrib runs show %s (kept in %s)", s.Run, d.dbPath))))
}

// parked tells what a parked run waits for and how to look at it.
func (d *drive) parked(s *agent.State) {
	if s.Pending == nil {
		return
	}
	a := d.a
	fmt.Fprintf(a.err, "%s run %s waits for an approval (%s):\n", a.style.Yellow("parked:"), s.Run, guard.Visible(s.Pending.ApprovalID))
	for _, c := range s.Pending.Calls {
		fmt.Fprint(a.err, "  "+a.style.Call(c.Name, c.Arguments, ""))
		if c.Reason != "" {
			fmt.Fprintf(a.err, "      %s\n", a.style.Dim(guard.Visible(c.Reason)))
		}
	}
	fmt.Fprintf(a.err, "See: toolcrib runs show %s\nTo let such calls pass, run again with --approve all, or on a terminal.\n", s.Run)
}

// exitOf is the exit code of a run that ended or parked (contract §3, §5).
func exitOf(s *agent.State) int {
	switch {
	case s.Status.Parked():
		return exitParked
	case s.Status == toolcrib.StatusCancelled:
		return exitCanceled
	case s.Failed != nil && s.Failed.StopReason == toolcrib.StopMaxIterations:
		return exitLimit
	case s.Failed != nil || s.Done == nil:
		return exitFailed
	case s.Done.Content == "" && (s.Done.StopReason == toolcrib.StopBudgetExhausted || s.Done.StopReason == toolcrib.StopWallTime):
		return exitLimit
	}
	return exitOK
}
