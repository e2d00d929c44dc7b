package crash

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/provider/script"
)

// childEnv makes a program play a process of the crash test: an order as JSON.
const childEnv = "TOOLCRIB_CRASH_ORDER"

// The commands of an order.
const (
	commandRun    = "run"
	commandResume = "resume"
	commandDecide = "decide"
	commandGrant  = "grant"
	commandSay    = "say"
	commandModel  = "model"
	commandCancel = "cancel"
)

// order is what one process does, and where it dies.
type order struct {
	Scenario string
	Dir      string
	Command  string
	Run      toolcrib.RunID  `json:",omitempty"`
	Decision *agent.Decision `json:",omitempty"`
	Granted  journal.Granted
	Kill     string // label; "" = live
	// ServerKill is the label at which the MCP server dies that this process starts.
	ServerKill string        `json:",omitempty"`
	Delay      time.Duration // see dead
	Trace      string        // file
}

// refused is the exit status for a command that the run does not allow (now).
const refused = 3

// playProcess plays a process of the crash test, if the program was started as one; then
// it does not return.
func playProcess() {
	text := os.Getenv(childEnv)
	if text == "" {
		return
	}
	var o order
	err := json.Unmarshal([]byte(text), &o)
	if err == nil {
		err = o.carryOut(context.Background())
	}
	switch {
	case toolcrib.CodeOf(err) == toolcrib.CodeConflict:
		fmt.Fprintln(os.Stderr, err)
		os.Exit(refused)
	case err != nil:
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func (o *order) carryOut(ctx context.Context) (err error) {
	sc, err := find(o.Scenario)
	if err != nil {
		return err
	}
	trace, err := os.OpenFile(o.Trace, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, trace.Close()) }()
	st, err := openStore(ctx, o.Dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, st.Close()) }()
	d := &dead{at: o.Kill, delay: o.Delay, trace: trace}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	runner, err := o.runner(sc, st, d, cancel)
	if err != nil {
		return err
	}
	switch o.Command {
	case commandRun:
		_, err = runner.Run(ctx, sc.task(o.Dir))
	case commandResume:
		_, err = runner.Resume(ctx, o.Run)
	case commandDecide:
		if string(o.Decision.Result) == "null" {
			o.Decision.Result = nil // as it was before it became JSON
		}
		_, err = runner.Decide(ctx, o.Run, *o.Decision)
	case commandGrant:
		_, err = runner.Add(ctx, o.Run, agent.Addition{Granted: &o.Granted})
	case commandModel:
		_, err = runner.Add(ctx, o.Run, agent.Addition{Model: &journal.ModelInfo{Ref: "script/" + otherModel, Provider: "script", ID: otherModel, Price: price}, By: person})
	case commandSay:
		_, err = runner.Add(ctx, o.Run, agent.Addition{Message: &sc.say, By: person, Once: "key:request"})
	case commandCancel:
		_, err = runner.Cancel(ctx, o.Run, &agent.CancelError{By: person})
	default:
		err = fmt.Errorf("unknown command %q", o.Command)
	}
	if errors.Is(err, errTold) {
		return nil
	}
	return err
}

// errTold ends a process that leaves its run as it is, as SIGTERM does.
var errTold = errors.New("told to end")

func (o *order) runner(sc *Scenario, st *synced, d *dead, end context.CancelCauseFunc) (*agent.Runner, error) {
	cancel := func() {
		d.pass("cancelled")
		end(&agent.CancelError{By: person})
	}
	given, err := workTools()
	if err != nil {
		return nil, err
	}
	if sc.mcp != "" {
		foreign, err := mcpTools(o, sc.mcp)
		if err != nil {
			return nil, err
		}
		given = append(given, foreign...)
	}
	durable := newDeadly(st, d)
	if len(sc.team) > 0 {
		given = append(given, spawnTool(slices.Sorted(maps.Keys(sc.team))))
	}
	var tools []toolcrib.Tool
	for _, t := range append(given, functions(o.Dir, cancel, durable.settled)...) {
		tools = append(tools, deadlyTool(t, d, o.Dir))
	}
	g, err := gate.New(gate.Options{Tools: tools, Availability: availability{o.Dir}, Confirm: sc.confirm})
	if err != nil {
		return nil, err
	}
	options := agent.Options{
		Journal: durable, Contents: durable, Gate: g, Retry: retry(), Agents: sc.agent,
		Models: func(_ context.Context, m journal.ModelInfo) (toolcrib.Model, error) {
			var model toolcrib.Model
			model, err := script.New(script.Options{Bytes: []byte(sc.scriptOf(m.ID))})
			if sc.flaky > 0 && m.ID != secondModel {
				model = &flaky{Model: model, fails: sc.flaky, mark: filepath.Join(o.Dir, "failed-"+m.ID)}
			}
			if sc.stopped {
				model = &flaky{Model: model, fails: 1, mark: filepath.Join(o.Dir, "stopped-"+m.ID), instead: func() { end(errTold) }}
			}
			return &counted{Model: model, dir: o.Dir, name: m.ID}, err
		},
		Host: agent.Host{Clock: &clock{began: time.Now()}, Worker: "crash", Version: "test"},
	}
	if sc.approve == agent.ApproveAsk {
		options.Approver = terminal{}
	}
	if sc.revoked {
		options.Memory = revoked{st}
	}
	return agent.New(options)
}

// terminal is where somebody sits who approves what is asked, and does not know what
// became of calls in doubt.
type terminal struct{}

func (terminal) Decide(_ context.Context, _ toolcrib.RunID, ask *journal.ConfirmationRequired) (d journal.ConfirmationResolved, ok bool, err error) {
	return journal.ConfirmationResolved{Decision: journal.DecisionApprove}, ask.Kind == journal.ApprovalCall, nil
}

// revoked is where everything that was remembered for a run has been revoked since.
type revoked struct{ st *synced }

func (revoked) Remembered(context.Context, string, toolcrib.SessionID) ([]journal.Remembered, error) {
	return nil, nil
}

func (revoked) Remember(context.Context, string, toolcrib.SessionID, toolcrib.RunID, []journal.Remembered) error {
	return nil
}

func (m revoked) Forgotten(ctx context.Context, run toolcrib.RunID) (list []journal.Forgotten, err error) {
	s, err := agent.Load(ctx, m.st, run)
	if err != nil {
		return nil, err
	}
	for _, r := range s.Remembered {
		list = append(list, journal.Forgotten{
			ApprovalID: r.ApprovalID, Tool: r.Tool, Arguments: r.Arguments, Path: r.Path, Folder: r.Folder, By: person,
		})
	}
	return list, nil
}

// clock is set forth instead of waiting.
type clock struct {
	began time.Time
	by    atomic.Int64
}

func (c *clock) Now() time.Time { return time.Now().Add(time.Duration(c.by.Load())) }

func (c *clock) Awake() time.Duration { return c.Now().Sub(c.began) }

func (c *clock) Sleep(ctx context.Context, d time.Duration) error {
	c.by.Add(int64(d))
	return context.Cause(ctx)
}

// counted is a model that notes each request which reaches it.
type counted struct {
	toolcrib.Model
	dir, name string
}

func (c *counted) Stream(ctx context.Context, req *toolcrib.Request) iter.Seq2[toolcrib.Delta, error] {
	if err := appendLine(filepath.Join(c.dir, askedFile), c.name); err != nil {
		return func(yield func(toolcrib.Delta, error) bool) { yield(toolcrib.Delta{}, err) }
	}
	return c.Model.Stream(ctx, req)
}

// flaky fails at its first attempts at each round; a file for each round says at how many
// it has.
type flaky struct {
	toolcrib.Model
	fails int
	mark  string
	// instead is called, where it is set, and the request is given up.
	instead func()
}

func (f *flaky) Stream(ctx context.Context, req *toolcrib.Request) iter.Seq2[toolcrib.Delta, error] {
	n := 0
	for _, m := range req.Messages {
		if m.Role == toolcrib.RoleAssistant {
			n++
		}
	}
	mark := fmt.Sprintf("%s-%d", f.mark, n)
	if failed, err := os.ReadFile(mark); err == nil && len(failed) >= f.fails {
		return f.Model.Stream(ctx, req)
	}
	return func(yield func(toolcrib.Delta, error) bool) {
		if err := appendLine(mark, ""); err != nil {
			yield(toolcrib.Delta{}, err)
			return
		}
		if f.instead != nil {
			f.instead()
			yield(toolcrib.Delta{}, context.Cause(ctx))
			return
		}
		yield(toolcrib.Delta{}, &toolcrib.ModelError{Class: toolcrib.ErrOverloaded, Status: 529, Message: "too much to do"})
	}
}
