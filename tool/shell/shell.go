// Package shell implements exec_shell, which runs command lines in the
// workspace of a run.
//
// In mode allowlist no shell is involved. The line is parsed, and the syntax tree is both
// judged and run: it may have simple commands, joined by |, &&, || and ;, and nothing that a
// shell would expand. Each program must be on the list of allowed programs, each option of a
// program of the built-in table must be known to be harmless, and each operand must be in the
// workspace. Programs are started by absolute path, with exactly the judged arguments. A
// program that the user added to the list runs with any options; such a call is a write.
//
// In mode ask a line that mode allowlist would refuse runs in a sandbox in which any program can
// only read, unless it reaches outside the workspace. With the argument write, or without such a
// sandbox, a person is asked. If approved, the line runs as in mode any.
//
// In mode any the line is run by bash, or by sh if bash is missing. It is confined only by the
// sandbox (see [Report]). Each call is a write, and changes to protected files that the
// sandbox could not prevent are detected afterwards and reported.
//
// A program that uses this package must call [Main] first in its main function; otherwise
// there is no sandbox. An exit status other than 0 is a result, not an error: grep reports by
// it that it found nothing, and diff that it found differences.
package shell

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/tool/internal/beneath"
	"github.com/toolcrib/toolcrib/tool/internal/wire"
	"github.com/toolcrib/toolcrib/tool/shell/internal/line"
)

// Name is the name of the tool, Group its group, Source its source.
const (
	Name   = "exec_shell"
	Group  = "shell"
	Source = "builtin"
)

// Mode is which command lines run (tools.shell.mode). The zero value is [ModeAllowlist].
type Mode string

const (
	ModeAsk       Mode = "ask" // lines that [ModeAllowlist] refuses run as in [ModeAny] if a person approves
	ModeAllowlist Mode = "allowlist"
	ModeAny       Mode = "any"
	ModeOff       Mode = "off"
)

// Sandbox is what happens on a machine without a sandbox (tools.shell.sandbox). The zero value
// is [SandboxBestEffort].
type Sandbox string

const (
	SandboxBestEffort Sandbox = "best_effort" // run without one, and say so
	SandboxRequired   Sandbox = "required"    // refuse
)

// DefaultAllow returns the programs that are allowed by default. test also allows [.
func DefaultAllow() []string {
	return []string{
		"echo", "cat", "ls", "pwd", "head", "tail", "wc", "grep", "find", "sort", "uniq", "diff", "date",
		"true", "false", "test",
	}
}

// Limits of a call. The timeout of a call is in seconds. A call without a timeout ends when it
// has neither printed nor used the processor for DefaultTimeout, and at the latest after MaxTimeout.
const (
	DefaultTimeout = 30
	MaxTimeout     = 300

	maxCommandBytes = 16 << 10
	maxKept         = 1 << 20
	maxDrained      = 64 << 20 // bytes of output that are read before the line is killed
	grace           = 10 * time.Second
)

// Options for [New]. Paths are absolute. The zero value is the default mode with
// the default programs, a sandbox where there is one, no network and no protected
// path.
type Options struct {
	Mode    Mode
	Allow   []string // names of programs, without a path; if nil, [DefaultAllow]; if empty, none
	Sandbox Sandbox
	Network Network // what programs reach

	// Path are the folders in which programs are searched, except those that [SearchPath]
	// excludes. If empty, they are the PATH of this process. Env are variables for programs.
	Path []string
	Env  map[string]string
	// Home is the home folder of the user, of which programs see only toolchains and their
	// downloads. If "", they see nothing of it. Caches is the folder for build caches, one for
	// each user and workspace. If "", caches last only for the call.
	Home, Caches string

	// Protected are files and folders that may be read but never written. ProtectedNames are
	// names, such as .git, that are protected anywhere in the workspace. Bubblewrap prevents
	// writing them and, directly in the workspace, also creating them. One created deeper down
	// is detected after the call and reported, and with [SandboxRequired] also renamed. If
	// bubblewrap is missing or cannot protect everything, a person is asked each time (with
	// [SandboxRequired] the call is refused), and a change is detected after the call and reported.
	Protected      []string
	ProtectedNames []string
	// Hidden are files and folders that may be neither read nor written, Except those below
	// them that may. The longest path decides.
	Hidden []string
	Except []string

	// OnProtectedChange is called with the protected paths that a call changed, and with the
	// new names of files that it created and that were renamed. All are absolute. If nil, only
	// the model learns of them. It must not block for long.
	OnProtectedChange func(call toolcrib.Call, changed, setAside []string)

	// Unconfined reports whether a principal who is not an administrator may run programs that are
	// not in the built-in table without a sandbox. If nil, none may. It must not block.
	Unconfined func(who toolcrib.Principal) bool

	// Elsewhere says that another program runs the lines, without the sandbox: they are only judged.
	Elsewhere bool

	// Loopbacks are shared by the tools of the same runs. If nil, the tool has its own.
	Loopbacks *Loopbacks

	// Report describes the sandbox of the machine. If nil, [Probe] is called once.
	Report *Report

	open   bool        // programs reach any network, as in the tools that a configuration makes of programs
	own    beneath.Own // files of Hidden, for one call
	git    bool        // whether the call may write a repository, except its settings
	visits int         // bound on the entries of the workspace that are visited
}

// New returns exec_shell. In mode off it returns nil and no error.
func New(options Options) (toolcrib.Tool, error) {
	options.Mode = cmp.Or(options.Mode, ModeAllowlist)
	if options.Allow == nil {
		options.Allow = DefaultAllow()
	}
	if err := options.check(); err != nil {
		return nil, err
	}
	if options.Mode == ModeOff {
		return nil, nil
	}
	options.Allow = slices.Clone(options.Allow)
	return &shell{
		quiet: DefaultTimeout * time.Second, most: MaxTimeout * time.Second, work: time.Second,
		options: options, bounds: boundsOf, report: options.probe(),
		installed: sync.OnceValue(options.install), shells: []string{"bash", "sh"},
		background: &background{jobs: map[toolcrib.RunID][]*process{}},
	}, nil
}

// probe returns a function that returns the report.
func (o *Options) probe() func() Report {
	if o.Report == nil {
		return sync.OnceValue(Probe)
	}
	given := *o.Report
	return func() Report { return given }
}

// check completes the options, and returns an error if they are invalid.
func (o *Options) check() error {
	o.Sandbox, o.Loopbacks, o.visits = cmp.Or(o.Sandbox, SandboxBestEffort), cmp.Or(o.Loopbacks, new(Loopbacks)), maxVisits
	switch o.Mode {
	case ModeAsk, ModeAllowlist, ModeAny, ModeOff:
	default:
		return fmt.Errorf("shell: unknown mode %q", o.Mode)
	}
	switch o.Sandbox {
	case SandboxBestEffort, SandboxRequired:
	default:
		return fmt.Errorf("shell: unknown sandbox %q", o.Sandbox)
	}
	for _, name := range o.Allow {
		if name == "" || strings.HasPrefix(name, "-") || strings.ContainsAny(name, "/\\\x00 \t\n") {
			return fmt.Errorf("shell: %q is not the name of a program", name)
		}
	}
	for _, name := range []string{"PATH", "HOME", "TMPDIR"} {
		if _, set := o.Env[name]; set {
			return fmt.Errorf("shell.env.%s: cannot be set; HOME and TMPDIR are new for each call, PATH is shell.path", name)
		}
	}
	if err := o.Network.check(); err != nil {
		return err
	}
	if o.Caches != "" && !isAbs(o.Caches) || o.Home != "" && !isAbs(o.Home) {
		return fmt.Errorf("shell: paths %q and %q must be absolute", o.Caches, o.Home)
	}
	for _, list := range [][]string{o.Protected, o.Hidden, o.Except} {
		for _, path := range list {
			if !isAbs(path) {
				return fmt.Errorf("shell: path %q must be absolute", path)
			}
		}
	}
	return nil
}

// shell is exec_shell.
type shell struct {
	quiet, most time.Duration // limits of a call without a timeout
	work        time.Duration // processor time that is reported as activity
	background  *background
	prepared    preparedSandboxes
	sweep       sync.Once
	bounds      func(line.Sandbox) bounds
	options     Options
	report      func() Report
	installed   func() *installed
	shells      []string // shells that run lines; the first one installed is used
}

// arguments of a call.
type arguments struct {
	Command string   `json:"command"`
	Timeout *float64 `json:"timeout,omitempty"`

	Background bool `json:"background,omitempty"`
	Write      bool `json:"write,omitempty"`

	Network []string `json:"network,omitempty"`
}

// result is the result of a call. ExitCode is that of the last command that ran, or -1 if a
// signal ended it.
type result struct {
	ExitCode        int    `json:"exit_code"`
	Signal          string `json:"signal,omitempty"`
	Warning         string `json:"warning,omitempty"`
	Hint            string `json:"hint,omitempty"`
	DurationMS      int64  `json:"duration_ms"`
	StdoutTruncated bool   `json:"stdout_truncated,omitempty"`
	StderrTruncated bool   `json:"stderr_truncated,omitempty"`
	Stdout          string `json:"stdout"`
	Stderr          string `json:"stderr"`
}

const parameters = `{
  "type": "object",
  "properties": {
    "command": {"type": "string", "minLength": 1, "maxLength": 16384},
    "timeout": {"type": "integer", "minimum": 1, "maximum": 300, "description": "seconds; default: until 30 idle ones"},
    "background": {"type": "boolean", "description": "return at once, with an id"},
    "write": {"type": "boolean"}
  },
  "required": ["command"],
  "additionalProperties": false
}`

// networkParameter is the parameter of a tool with a network.
const networkParameter = `"network": {"type": "array", "items": {"type": "string"}, "maxItems": 20,
      "description": "hosts to reach, such as registry.npmjs.org"},
    `

// Spec describes the tool. Its timeout is longer than the longest that a call may ask for, so
// that the timeout of the call applies (C18).
func (s *shell) Spec() toolcrib.Spec {
	schema := parameters
	if s.options.Network.on() && !s.options.Elsewhere {
		schema = strings.Replace(schema, `"background"`, networkParameter+`"background"`, 1)
	}
	return toolcrib.Spec{
		Name: Name, Description: s.description(), Parameters: json.RawMessage(schema),
		Effect: toolcrib.EffectNonIdempotentWrite, Group: Group, Source: Source, EnabledByDefault: true,
		Timeout: MaxTimeout*time.Second + grace, TimeoutAsked: true,
		Plans: toolcrib.PlanFacts{Effect: true, Targets: true, Policy: true, Concerns: true},
	}
}

func (s *shell) description() string {
	const gives = "Returns exit_code, stdout, stderr and duration_ms; an exit_code other than 0 is no error of the tool."
	if s.options.Mode == ModeAny {
		return "Run a command line with " + s.shellName() + " in the workspace, the only place it can write. " + gives
	}
	allowed := strings.Join(s.options.Allow, ", ")
	if allowed == "" {
		allowed = "none"
	}
	if s.options.Mode == ModeAsk {
		return "Run a command line with " + s.shellName() + " in the workspace. " +
			"Without write it can only read; with it a person is asked."
	}
	return "Run a command line in the workspace, without a shell. Allowed programs: " + allowed +
		". Commands may be joined by |, &&, || and ;, and words quoted; *, ? and [a-z] match file names; 2>/dev/null, 2>&1 and <FILE work. " +
		"There are no variables, substitutions, other redirections or control flow, no options that write or run something, and no paths outside the workspace. " +
		"To write files use the tools for files. " + gives
}

// shellName returns the name of the shell that runs lines, for the description.
func (s *shell) shellName() string {
	for _, name := range s.shells {
		if _, err := findIn(s.options.Path, name, true); err == nil {
			return name
		}
	}
	return "sh"
}

func (s *shell) arguments(call toolcrib.Call) (arguments, time.Duration, error) {
	var in arguments
	if err := wire.Decode(call.Arguments, &in); err != nil {
		return in, 0, err
	}
	timeout := float64(DefaultTimeout)
	if in.Timeout != nil {
		timeout = *in.Timeout
	}
	switch {
	case strings.TrimSpace(in.Command) == "":
		return in, 0, toolcrib.Failf(toolcrib.InvalidArguments, "command is empty")
	case len(in.Command) > maxCommandBytes:
		return in, 0, toolcrib.Failf(toolcrib.InvalidArguments, "command is longer than %d bytes", maxCommandBytes)
	case strings.ContainsRune(in.Command, 0):
		return in, 0, toolcrib.Failf(toolcrib.InvalidArguments, "command contains a NUL byte")
	case !(timeout >= 1 && timeout <= MaxTimeout):
		return in, 0, toolcrib.Failf(toolcrib.InvalidArguments, "timeout must be 1 to %d seconds", MaxTimeout)
	}
	return in, time.Duration(timeout * float64(time.Second)), nil
}

// Plan judges the line of a call. It refuses lines that the mode does not allow; the error says what is
// allowed instead. The effect is read_only if every program and option of the line is in the built-in
// table. The targets are the files of the line: those that a command of the built-in table reads; for
// other commands the whole workspace and each word that may be a path, as written.
//
// The concerns are programs that the mode does not run unasked, and protection that the sandbox cannot
// give. The latter needs an approval each time.
func (s *shell) Plan(_ context.Context, call toolcrib.Call) (*toolcrib.Plan, error) {
	p, err := s.plan(call)
	if err != nil {
		return nil, err
	}
	return s.planned(p), nil
}

func (s *shell) planned(p *plan) *toolcrib.Plan {
	out := &toolcrib.Plan{
		Effect: p.Effect(), Targets: p.Targets, CommandLine: true, Programs: p.Programs, Scope: p.Scope, Concerns: p.Concerns,
		Matches: p.Line.Matches, Hidden: p.hidden, Hide: s.hide(p),
		Preview: func(context.Context) (toolcrib.Preview, error) {
			return toolcrib.Preview{Kind: "text", Text: p.Command + "\n\n" + s.confinement(p)}, nil
		},
		Run: func(ctx context.Context, call toolcrib.Call) (toolcrib.Output, error) { return s.do(ctx, call, p) },
	}
	if reachable := s.reachable(p); len(reachable) > 0 {
		targets, concerns := s.connects(reachable)
		out.Effect, out.Targets = toolcrib.EffectNonIdempotentWrite, slices.Concat(out.Targets, targets)
		out.Concerns = slices.Concat(out.Concerns, concerns)
	}
	if p.gap != "" {
		out.Concerns = append(out.Concerns, toolcrib.Concern{
			Reason: toolcrib.ReasonNeedsConfirmation, Why: "asks each time: " + p.gap,
		})
	}
	return out
}

// BadPattern returns why a pattern cannot match any line, or "".
func (s *shell) BadPattern(pattern string) string { return line.BadPattern(pattern) }

// Call plans the call and runs the plan.
func (s *shell) Call(ctx context.Context, call toolcrib.Call) (toolcrib.Output, error) {
	return toolcrib.RunPlan(ctx, s, call)
}

// confinement says how the line of a plan is confined.
func (s *shell) confinement(p *plan) string {
	if p.ReadOnly == line.ByTable {
		text := "Only reads: every program and option is in the built-in table."
		if r := s.report(); !r.sandboxed() {
			text += " There is NO sandbox (" + r.Problem + "): another process that changes links meanwhile can make it read other files."
		}
		return text
	}
	if p.Sandbox() == line.ReadsWorkspace {
		return s.strictText(p)
	}
	text := "Runs programs that are not in the built-in table. "
	if p.Shell != "" {
		text = "Runs with " + p.Shell + ". "
	}
	text += s.report().describe(s.network(p))
	if s.report().Bubblewrap != "" {
		what := "reported"
		if s.options.Sandbox == SandboxRequired {
			what = "renamed"
		}
		text += "\nNew files with protected names in subfolders are found afterwards and " + what + "."
		if p.gap != "" {
			text += " But " + p.gap + "."
		}
	}
	if p.notStrict != "" {
		text += "\nIt cannot run unasked where it only reads: " + p.notStrict + "."
	}
	return text
}

// do runs a plan. It returns a result, a timeout error after the timeout of the call (C18), or the error of ctx. In
// each case no process that it started is left running, as far as the system reports it (see [Report]), except a
// prepared sandbox for the next call, which runs nothing yet.
func (s *shell) do(ctx context.Context, call toolcrib.Call, judged *plan) (toolcrib.Output, error) {
	if err := ctx.Err(); err != nil {
		return toolcrib.Output{}, err
	}
	p, err := s.reopen(call, judged)
	if err != nil {
		return toolcrib.Output{}, err
	}
	p.shared = s.loopback(call, p)
	p.proxy = s.proxy(call, p)
	timeout := p.timeout
	if p.Background {
		if p.Timeout == nil {
			timeout = maxLasting
		}
		return s.start(ctx, call, p, timeout)
	}
	defer p.w.Close()
	progress := &progress{report: call.Progress}
	if call.Progress == nil {
		progress.report = func(string, float64) {}
	}
	defer progress.stop()
	started := time.Now()
	timed, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	work := &pace{quiet: timeout, most: timeout, began: started}
	if p.Timeout == nil {
		work.quiet, work.most = s.quiet, s.most
	}
	go work.keep(timed, cancel)
	res, err := s.run(timed, call, p, func(output []byte) {
		work.active()
		progress.output(output)
	}, work.active)
	s.connected(call, p, &res)
	// A command that ended by itself has a result, even if it is late.
	switch {
	case (err != nil || res.stopped) && ctx.Err() != nil:
		var late *toolcrib.ToolError // limits.tool_timeout
		if err == nil && errors.As(context.Cause(ctx), &late) && late.Kind == toolcrib.ToolTimeout {
			return toolcrib.Output{}, timedOut(late.Message, &res.result, call.MaxBytes, p.sources())
		}
		return toolcrib.Output{}, ctx.Err()
	case res.stopped && errors.Is(context.Cause(timed), errTimeout):
		return toolcrib.Output{}, timedOut(work.text(), &res.result, call.MaxBytes, p.sources())
	case err != nil:
		return toolcrib.Output{}, err
	}
	res.DurationMS = time.Since(started).Milliseconds()
	out, err := wire.Output(res.result)
	out.Long = []string{"stdout", "stderr"}
	out.Cut = res.StdoutTruncated || res.StderrTruncated
	if from := p.sources(); from != "" {
		out.Untrusted, out.Source = true, from
	}
	return out, err
}

// pace ends a call that has done nothing for quiet, and any call after most.
type pace struct {
	quiet, most time.Duration
	began       time.Time
	last        atomic.Int64 // time of the last activity, as a Duration since began
	ended       time.Duration
}

// active records activity of the command.
func (p *pace) active() { p.last.Store(int64(time.Since(p.began))) }

func (p *pace) keep(ctx context.Context, end context.CancelCauseFunc) {
	timer := time.NewTimer(p.quiet)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		left := min(time.Duration(p.last.Load())+p.quiet, p.most) - time.Since(p.began)
		if left <= 0 {
			if p.ended = p.most; p.quiet < p.most {
				p.ended = time.Since(p.began).Round(time.Second)
			}
			end(errTimeout)
			return
		}
		timer.Reset(left)
	}
}

// text returns the message for the timeout.
func (p *pace) text() string {
	text := strconv.FormatFloat(p.ended.Seconds(), 'f', -1, 64) + "s" // 90s, not 1m30s: C15
	if p.quiet < p.most {
		text += fmt.Sprintf("; without a timeout of its own (at most %d) a command ends after %d seconds in which it neither prints nor computes; "+
			"a server runs with background", MaxTimeout, DefaultTimeout)
	}
	return text
}

// timedOut returns the error of a call that was ended (C18): the time, and the end of its output.
func timedOut(text string, r *result, most int, from string) error {
	if r.Hint != "" {
		text += "; " + r.Hint
	}
	err := toolcrib.Failf(toolcrib.ToolTimeout, "%s", text+tails(r.Stdout, r.Stderr, most))
	err.Untrusted = from
	return err
}

// tails returns the ends of two outputs, within a bound of the result.
func tails(stdout, stderr string, most int) (text string) {
	for _, of := range []struct{ name, text string }{{"stdout", stdout}, {"stderr", stderr}} {
		if end := ending(of.text, min(2<<10, max(most, guard.MinResultBytes)/4)); end != "" {
			text += "; its last " + of.name + ":\n" + end
		}
	}
	return text
}

// ending returns the last lines of an output. They are complete, so that a secret in a line can be recognized.
func ending(text string, most int) string {
	if len(text) <= most {
		return text
	}
	_, text, _ = strings.Cut(text[len(text)-most:], "\n")
	return text
}

// errTimeout is the cause of a context that ended with the timeout of the call.
var errTimeout = errors.New("the call's timeout")
