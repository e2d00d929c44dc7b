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
	"unicode/utf8"

	"github.com/muesli/cancelreader"
	"github.com/spf13/cobra"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/internal/config"
	"github.com/toolcrib/toolcrib/internal/render"
	"github.com/toolcrib/toolcrib/internal/version"
	"github.com/toolcrib/toolcrib/journal"
)

// driverName marks runs of the command line (contract §3).
const driverName = "cli"

// maxStdin bounds what is read from standard input.
const maxStdin = 1 << 20

// runFlags are the flags of run and, as far as they fit, of tools call.
type runFlags struct {
	agent, model, toolChoice string
	approve, workspace       string
	tools                    string
	maxIterations            int
	readOnly, json           bool
}

func (a *app) runCommand() *cobra.Command {
	var f runFlags
	cmd := &cobra.Command{
		Use:   "run [PROMPT...]",
		Short: "Run an agent on a prompt, once",
		Long: "Run an agent on a prompt. The answer goes to standard output, everything else to standard error. " +
			"- reads the prompt from standard input.",
		Example: `toolcrib run "What is in README.md?"
git diff | toolcrib run -
toolcrib run --tools read_file,search_files --json "Where is main?"
toolcrib run --approve all --workspace ./site "Fix the typo in index.html"
toolcrib run --model anthropic/claude-haiku-4-5 --max-iterations 5 "Plan the week"`,
		RunE: func(cmd *cobra.Command, args []string) error {
			prompt, err := a.prompt(args)
			if err != nil {
				return err
			}
			return a.run(cmd, &f, prompt)
		},
	}
	flags := cmd.Flags()
	a.judgingFlags(cmd, &f)
	flags.StringVar(&f.model, "model", "", "model: a name of the configuration, or PROVIDER/MODEL")
	flags.StringVar(&f.tools, "tools", "", "only these tools, separated by commas; globs work; '' = none")
	flags.StringVar(&f.toolChoice, "tool-choice", "", "auto, none, required, or the name of a tool; for the first request")
	flags.IntVar(&f.maxIterations, "max-iterations", 0, "rounds of model call and tool calls, 1 to 200")
	flags.BoolVar(&f.json, "json", false, "events as JSON, one a line")
	return cmd
}

// judgingFlags are the flags that say how calls are judged.
func (a *app) judgingFlags(cmd *cobra.Command, f *runFlags) {
	flags := cmd.Flags()
	flags.StringVar(&f.agent, "agent", "", "agent of the configuration (default: default)")
	flags.StringVar(&f.approve, "approve", "", "calls that need an approval: ask, all, none (park) or deny (default: ask on a terminal, else none)")
	flags.BoolVar(&f.readOnly, "read-only", false, "refuse every call that writes")
	flags.StringVar(&f.workspace, "workspace", "", "root of the file tools (default: the configuration's, else the current folder)")
	complete := func(words ...string) cobra.CompletionFunc {
		return cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp)
	}
	// The flags were just made, so this cannot fail.
	_ = cmd.RegisterFlagCompletionFunc("approve", complete("ask", "all", "none", "deny"))
	_ = cmd.RegisterFlagCompletionFunc("agent", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		c, err := a.configuration()
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		return c.AgentNames(), cobra.ShellCompDirectiveNoFileComp
	})
}

// prompt joins the arguments, or reads standard input for -.
func (a *app) prompt(args []string) (string, error) {
	prompt := strings.Join(args, " ")
	if len(args) == 1 && args[0] == "-" {
		data, err := a.readStdin()
		if err != nil {
			return "", err
		}
		prompt = string(data)
	}
	switch {
	case strings.TrimSpace(prompt) == "":
		return "", usagef("no prompt: give it as arguments, or - to read it from standard input\nSee: toolcrib run --help")
	case !utf8.ValidString(prompt):
		return "", usagef("the prompt is no valid UTF-8")
	}
	return prompt, nil
}

func (a *app) readStdin() ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(a.in, maxStdin+1))
	switch {
	case err != nil:
		return nil, failedf("standard input: %v", err)
	case len(data) > maxStdin:
		return nil, usagef("standard input holds more than %d bytes", maxStdin)
	}
	return data, nil
}

// run carries out one run of an agent.
func (a *app) run(cmd *cobra.Command, f *runFlags, prompt string) error {
	c, err := a.configuration()
	if err != nil {
		return err
	}
	who, err := a.principal()
	if err != nil {
		return err
	}
	def, err := a.agent(c, f, cmd)
	if err != nil {
		return err
	}
	if err := a.supported(c, def.Name); err != nil {
		return err
	}
	workspace, err := a.workspace(f.workspace, cmd.Flags().Changed("workspace"))
	if err != nil {
		return err
	}
	approve, err := a.approval(f)
	if err != nil {
		return err
	}
	opened, err := a.openModels(c, &def)
	if err != nil {
		return err
	}
	a.passedOver()
	task := agent.Task{
		Agent: def, Models: opened.infos, Principal: who, Prompt: prompt,
		Workspace: workspace, Driver: driverName, Approve: approve,
	}
	if cmd.Flags().Changed("tools") {
		task.RunTools = splitList(f.tools)
	}
	return a.drive(cmd.Context(), c, task, opened, f.json)
}

// agent is the agent of a run: that of the configuration, as the flags change it.
func (a *app) agent(c *config.Config, f *runFlags, cmd *cobra.Command) (toolcrib.Agent, error) {
	def, err := c.Agent(f.agent, a.resolver())
	if err != nil {
		var value config.Error
		if errors.As(err, &value) {
			return def, err
		}
		return def, usagef("%v", err)
	}
	flags := cmd.Flags()
	if flags.Changed("model") {
		def.Model, def.Fallback = f.model, nil
		if f.model == "" {
			return def, usagef("--model: must name a model")
		}
	}
	if flags.Changed("max-iterations") {
		if f.maxIterations < 1 || f.maxIterations > toolcrib.MaxIterationsCeiling {
			return def, usagef("--max-iterations: must be 1 to %d, not %d", toolcrib.MaxIterationsCeiling, f.maxIterations)
		}
		def.Limits.MaxIterations = f.maxIterations
	}
	if flags.Changed("tool-choice") {
		if def.ToolChoice, err = toolChoice(f.toolChoice); err != nil {
			return def, err
		}
	}
	def.ReadOnly = def.ReadOnly || f.readOnly
	return def, nil
}

func toolChoice(text string) (toolcrib.ToolChoice, error) {
	switch text {
	case toolcrib.ChoiceAuto, toolcrib.ChoiceNone, toolcrib.ChoiceRequired:
		return toolcrib.ToolChoice{Mode: text}, nil
	}
	if !toolcrib.ValidToolName(text) {
		return toolcrib.ToolChoice{}, usagef("--tool-choice: must be auto, none, required or the name of a tool, not %q", text)
	}
	return toolcrib.ToolChoice{Mode: toolcrib.ChoiceName, Name: text}, nil
}

// approval is what happens to calls that must be confirmed.
func (a *app) approval(f *runFlags) (agent.Approve, error) {
	switch f.approve {
	case "":
		if a.inTerminal && a.errTerminal {
			return agent.ApproveAsk, nil
		}
		return agent.ApproveNone, nil
	case "none":
		return agent.ApproveNone, nil
	case "ask":
		if !a.inTerminal || !a.errTerminal {
			return "", usagef("--approve ask: there is no terminal to ask on; use all, none or deny")
		}
		return agent.ApproveAsk, nil
	case "all":
		return agent.ApproveAll, nil
	case "deny":
		return agent.ApproveDeny, nil
	}
	return "", usagef("--approve: must be ask, all, none or deny, not %q", f.approve)
}

// splitList splits at commas; what is empty is dropped. It is never nil: an empty
// list means nothing at all.
func splitList(text string) []string {
	list := []string{}
	for _, part := range strings.Split(text, ",") {
		if part = strings.TrimSpace(part); part != "" {
			list = append(list, part)
		}
	}
	return list
}

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
	by := d.task.Principal.Actor
	if by == "" {
		by = d.task.Principal.User
	}
	var stderr io.Writer = a.err
	live, terminal := show.(*render.Live)
	if terminal {
		stderr = live
	}
	ctx, stop := a.interruptible(ctx, by, stderr)
	defer stop()
	mask := a.mask()
	log, err := a.logger(d.config, mask, stderr)
	if err != nil {
		return nil, err
	}
	var top toolcrib.RunID
	options := agent.Options{
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
	}
	if d.task.Approve == agent.ApproveAsk {
		reader, err := cancelreader.NewReader(a.in)
		if err != nil {
			return nil, failedf("the terminal: %v", err)
		}
		defer reader.Close()
		unhook := context.AfterFunc(ctx, func() { reader.Cancel() })
		defer unhook()
		approver := &render.Approver{In: bufio.NewReader(reader), Out: a.err, Style: a.style, By: by}
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
	return runner.Run(ctx, d.task)
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
		parts = append(parts, model, render.Tokens(s.Usage), render.Cost(s.Usage, known))
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
