// Package cli implements toolcrib's command line. Besides cmd/toolcrib, it is the only place where the
// parts are wired together: configuration, trust, store, gate, models and the loop.
//
// Results go to standard output, everything else to standard error. A command opens only what it needs:
// version, completion and config schema touch no file.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"os/user"
	"path/filepath"
	"runtime/debug"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/internal/config"
	"github.com/toolcrib/toolcrib/internal/lazyregexp"
	"github.com/toolcrib/toolcrib/internal/remote"
	"github.com/toolcrib/toolcrib/internal/render"
	"github.com/toolcrib/toolcrib/internal/terminal"
	"github.com/toolcrib/toolcrib/internal/trust"
	"github.com/toolcrib/toolcrib/internal/version"
	"github.com/toolcrib/toolcrib/service"
	"github.com/toolcrib/toolcrib/store"
	"github.com/toolcrib/toolcrib/telemetry"
	"github.com/toolcrib/toolcrib/tool/shell"
)

// app is one invocation: its flags, its streams, and what it has opened so far.
type app struct {
	in    *os.File
	out   *output
	err   io.Writer
	began bool // one of our commands was reached: its errors are ours
	// hook ends the watch over the command gate hook, in which every error is exitUsage. It is nil for
	// other commands.
	hook func()
	// helpErr is the error of a request for help on an unknown topic.
	helpErr error
	// noSandbox returns the reason why programs run without a sandbox, or "" if they run in one.
	noSandbox func() string

	inTerminal, outTerminal, errTerminal bool
	noticeTo                             io.Writer    // receives messages while a run is shown; if nil, err does
	style                                render.Style // style of standard error
	outStyle                             render.Style

	hurry chan *agent.CancelError // receives the first ctrl-c while a team is asked; else nil

	configFlag, dataFlag, asFlag, tokenFlag, serverFlag string
	adminFlag, plainFlag, verboseFlag                   bool
	args                                                []string // command line arguments

	tools []toolcrib.Tool // offered in addition to the built-in ones

	acting *acting // the principal the command acts for, once known

	ollamaAt string // where to look for an Ollama that is not configured

	// before is called with the configuration of a service before the service is made. Tests set it.
	before func(c *config.Config, dataDir string)

	started time.Time
	folder  string // of the project, if that is not the current folder
	config  *config.Config
	masker  *guard.Masker // all secrets seen so far; shared with the driver of runs
	service *service.Service
	api     backend         // the service, or a server in its place
	remote  *remote.Service // that server; nil without one
	closers []io.Closer

	logFile   *os.File // log.file; nil unless it is open
	operates  bool     // standard error is the log of a server's operator
	observing sync.Once
	observer  *telemetry.Observer // observes runs; nil without traces and metrics
	metrics   *telemetry.Metrics  // metrics of serve; nil without metrics
}

func newApp(in, out, err *os.File) *app {
	a := &app{
		in: in, out: &output{w: screen(out)}, err: screen(err), started: time.Now(), ollamaAt: config.OllamaAddress,
		noSandbox: shell.Problem, masker: guard.NewMasker(),
	}
	a.inTerminal, a.outTerminal, a.errTerminal = isTerminal(in), isTerminal(out), isTerminal(err)
	a.style = styleOf(err, a.errTerminal)
	a.outStyle = styleOf(out, a.outTerminal)
	return a
}

// elsewhere returns an app for a project in another folder, with the streams, the flags and the principal of a.
func (a *app) elsewhere(folder string) *app {
	return &app{
		in: a.in, out: a.out, err: a.err, began: a.began, noSandbox: a.noSandbox, style: a.style, outStyle: a.outStyle,
		configFlag: a.configFlag, dataFlag: a.dataFlag, asFlag: a.asFlag, tokenFlag: a.tokenFlag, serverFlag: a.serverFlag,
		adminFlag: a.adminFlag, plainFlag: a.plainFlag, verboseFlag: a.verboseFlag, args: a.args, tools: a.tools,
		acting: a.acting, ollamaAt: a.ollamaAt, started: a.started, masker: a.masker, folder: folder,
		before: a.before,
	}
}

// screen returns a writer for text that people read in f.
func screen(f *os.File) io.Writer {
	if isTerminal(f) && !terminal.UTF8(os.Getenv) {
		return terminal.ASCII{File: f}
	}
	return f
}

func isTerminal(f *os.File) bool { return term.IsTerminal(int(f.Fd())) }

// styleOf returns a style with colors only if f is a terminal that can show them and NO_COLOR
// (https://no-color.org) is not set.
func styleOf(f *os.File, terminal bool) render.Style {
	if !terminal {
		return render.Style{}
	}
	columns := func() int {
		width, _, err := term.GetSize(int(f.Fd()))
		if err != nil {
			return 0
		}
		return width
	}
	dumb := os.Getenv("TERM") == "dumb"
	return render.Style{Color: os.Getenv("NO_COLOR") == "" && !dumb, Dumb: dumb, Width: columns(), Columns: columns}
}

// close closes everything that was opened, last first.
func (a *app) close() error {
	var errs []error
	for i := len(a.closers) - 1; i >= 0; i-- {
		errs = append(errs, a.closers[i].Close())
	}
	a.closers = nil
	return errors.Join(errs...)
}

// osUser returns the name of the current user of the operating system.
func osUser() string {
	if u, err := user.Current(); err == nil && u.Username != "" {
		return u.Username
	}
	return "unknown"
}

// maxUserName bounds a name given with --as.
const maxUserName = 256

// resolver resolves references; the secrets among them are masked from then on.
func (a *app) resolver() config.Resolver {
	return config.Resolver{Secrets: lazySecrets{a}, OnSecret: func(s guard.Secret) { a.masker.Learn(s) }}
}

// mask returns the masker of every secret that the command knows, including those it learns later.
func (a *app) mask() *guard.Masker {
	if a.config != nil {
		a.masker.Learn(a.config.Secrets()...)
	}
	return a.masker
}

// dataDir returns the absolute path of the data folder.
func (a *app) dataDir() (string, error) {
	if a.dataFlag != "" {
		return a.dataFlag, nil
	}
	c, err := a.configuration()
	if err != nil {
		return "", err
	}
	// The stored secrets are in that folder, so its path cannot refer to them.
	return c.DataDir.Resolve(config.Resolver{})
}

// gcPercent is the default for GOGC.
const gcPercent = 400

// Main runs the command line, with tools in addition to the built-in ones, and returns its exit code.
func Main(args []string, tools ...toolcrib.Tool) int {
	// Most commands end before a collection pays off: collecting takes half of the start-up time.
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	// A reader that closes the pipe does not end a run: further output is dropped.
	signal.Ignore(syscall.SIGPIPE)
	a := newApp(os.Stdin, os.Stdout, os.Stderr)
	if err := ownTools(tools); err != nil {
		a.complain(err.Error())
		return exitUsage
	}
	a.tools = tools
	return a.main(args)
}

// ownTools returns an error if tools cannot be used, or have the names of built-in ones.
func ownTools(tools []toolcrib.Tool) error {
	for _, tool := range tools {
		if tool == nil {
			return errors.New("a tool of this program is nil")
		}
		spec := tool.Spec()
		if err := spec.Check(); err != nil {
			return err
		}
		if known := config.BuiltInTool(spec.Name); known != "" {
			return fmt.Errorf("tool %s: %s is a built-in tool; use another name", spec.Name, known)
		}
	}
	_, err := gate.New(gate.Options{Tools: tools, Availability: gate.Overrides{}})
	return err
}

func (a *app) main(args []string) int {
	code := a.execute(context.Background(), args)
	if code == exitOK { // otherwise a write without a reader may still be in progress
		if err := a.out.failure(); err != nil {
			code = exitFailed
			if !errors.Is(err, syscall.EPIPE) { // a closed pipe is not reported
				fmt.Fprintf(a.err, "toolcrib: standard output: %v\n", err)
			}
		}
	}
	if a.hook != nil {
		a.hook()
		if code != exitOK {
			code = exitUsage
		}
	}
	return code
}

// execute runs one command line.
func (a *app) execute(ctx context.Context, args []string) int {
	a.args = args
	root := a.root()
	root.SetArgs(args)
	root.SetFlagErrorFunc(flagError)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		err = a.helpErr
	}
	if closing := a.close(); err == nil {
		err = closing
	}
	if err == nil {
		return exitOK
	}
	if message := flagNamed(cmd, err); message != "" {
		var broken *store.ChainError
		if errors.As(err, &broken) {
			message += "\n`toolcrib runs verify` lists everything that was changed; restore a copy of the data folder"
		}
		a.complain(message)
	}
	return a.code(err)
}

// complain writes an error. Any line of it may contain untrusted data.
func (a *app) complain(message string) {
	message = guard.Visible(shortIDs(a.mask().Mask(strings.TrimRight(message, "\n"))))
	const head = "toolcrib:"
	for i, line := range strings.Split(head+" "+message, "\n") {
		line = a.style.Question(line)
		if i == 0 {
			line = a.style.Red(head) + strings.TrimPrefix(line, head)
		}
		fmt.Fprintln(a.err, line)
	}
}

// code returns the exit code for an error of a command. An error from cobra itself is wrong usage.
func (a *app) code(err error) int {
	if !a.began {
		return exitUsage
	}
	return codeOf(err)
}

func (a *app) root() *cobra.Command {
	root := a.tree()
	root.SilenceUsage, root.SilenceErrors = true, true
	chat, _, _ := root.Find([]string{"chat"})
	root.RunE = func(cmd *cobra.Command, args []string) error {
		if version, _ := cmd.Flags().GetBool("version"); version && len(args) == 0 {
			a.printVersion()
			return nil
		}
		if len(args) == 0 && a.inTerminal && a.outTerminal && a.errTerminal {
			chat.SetContext(cmd.Context())
			return chat.RunE(chat, nil)
		}
		return group(cmd, args)
	}
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error {
		a.began = true
		if cmd.CommandPath() == hookPath {
			a.answersHook(cmd)
		}
		return a.actor(cmd)
	}
	root.CompletionOptions.DisableDefaultCmd = true
	help, _, _ := root.Find([]string{"help"})
	root.SetHelpCommand(help)
	root.SetHelpFunc(a.help)
	root.SetIn(a.in)
	root.SetOut(a.out)
	root.SetErr(a.err)
	return root
}

// group runs a command that only has subcommands: without a name it shows its help, any other name is
// wrong usage.
func group(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return cmd.Help()
	}
	text := fmt.Sprintf("unknown command %q for %q", args[0], cmd.CommandPath())
	if !cmd.HasParent() && strings.ContainsRune(args[0], ' ') {
		text += "; did you mean: toolcrib run " + trust.ShellWord(args[0])
	} else if habit := habitual(cmd, args[0]); habit != "" {
		text += fmt.Sprintf("; did you mean %q?", habit)
	} else if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		text += fmt.Sprintf("; did you mean %q?", near[0])
	} else {
		text += guard.DidYouMean(args[0], commandNames(cmd))
	}
	return usagef("%s\nSee: %s --help", text, cmd.CommandPath())
}

func commandNames(cmd *cobra.Command) []string {
	var names []string
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			names = append(names, c.Name())
		}
	}
	return names
}

// self returns the beginning of the command lines that are shown, including the flags that locate the
// data of this process: a pasted command works from any folder.
func (a *app) self() string {
	text, token := program(), ""
	if a.remote != nil { // the server of the command
		token = a.tokenFlag
	}
	for _, f := range []struct{ name, path string }{
		{"--config", a.configFlag}, {"--data-dir", a.dataFlag}, {"--server", a.serverFlag}, {"--token-file", token},
	} {
		if f.path == "" || f.path == "-" {
			continue
		}
		path := f.path
		if abs, err := filepath.Abs(path); err == nil && f.name != "--server" {
			path = abs
		}
		text += " " + f.name + " " + trust.ShellWord(path)
	}
	return text
}

// program returns the command that this program was started by.
func program() string {
	path, err := os.Executable()
	info, ok := debug.ReadBuildInfo()
	if err != nil || !ok {
		return "toolcrib"
	}
	_, err = os.Stat(filepath.FromSlash(clonePackage + "/main.go"))
	return startedBy(filepath.ToSlash(path), info, err == nil)
}

// clonePackage is the package of this program in a clone.
const clonePackage = "./cmd/toolcrib"

// byGoRun matches the path of a program that go run has built, for the first time or in its cache.
var byGoRun = lazyregexp.New(`/go-build[^/]*/.*/exe/[^/]+$|/[0-9a-f]{64}-d/[^/]+$`)

// startedBy returns the command by which the program at a path was started. inClone reports whether the
// current folder is the root of a clone.
func startedBy(path string, info *debug.BuildInfo, inClone bool) string {
	version := info.Main.Version
	switch {
	case !byGoRun.MatchString(path):
		return "toolcrib"
	case inClone:
		return "go run " + clonePackage
	case version == "" || version == "(devel)" || strings.HasSuffix(version, "+dirty"):
		return "go run " + info.Path
	}
	return "go run " + info.Path + "@" + version
}

// inHome abbreviates the home folder in a path to ~.
func inHome(path string) string {
	home, err := os.UserHomeDir()
	if rest, ok := strings.CutPrefix(path, home+string(filepath.Separator)); err == nil && home != "" && ok {
		return filepath.Join("~", rest)
	}
	return path
}

func (a *app) versionCommand(cmd *cobra.Command) {
	a.answering(cmd, nil, func(call) (any, func(), error) {
		return map[string]string{
			"version": version.Version(), "commit": version.Commit(), "go": version.Go(), "platform": version.Platform(),
		}, a.printVersion, nil
	})
}

func (a *app) printVersion() {
	text := "toolcrib " + version.Version()
	if commit := version.Commit(); commit != "" {
		text += " (" + commit + ")"
	}
	fmt.Fprintf(a.out, "%s %s %s\n", text, version.Go(), version.Platform())
}

func (a *app) completionCommand(cmd *cobra.Command) {
	shells := []string{"bash", "zsh", "fish", "powershell"}
	cmd.ValidArgs = shells
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		root := cmd.Root()
		switch args[0] {
		case "bash":
			return root.GenBashCompletionV2(a.out, true)
		case "zsh":
			return root.GenZshCompletion(a.out)
		case "fish":
			return root.GenFishCompletion(a.out, true)
		case "powershell":
			return root.GenPowerShellCompletionWithDesc(a.out)
		}
		return usagef("unknown shell %q: one of bash, zsh, fish, powershell", args[0])
	}
}
