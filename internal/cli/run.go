package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/internal/media"
	"github.com/toolcrib/toolcrib/internal/safefile"
	"github.com/toolcrib/toolcrib/service"
	"github.com/toolcrib/toolcrib/service/mcpset"
	"github.com/toolcrib/toolcrib/service/policy"
	"github.com/toolcrib/toolcrib/store"
)

// driverName is the driver of runs that the command line starts.
const driverName = "cli"

// maxStdin bounds the input from standard input, in bytes.
const maxStdin = 1 << 20

// runFlags are the flags of run and, where applicable, of tools call.
type runFlags struct {
	agent, model, toolChoice string
	workspace, tools         string
	approve                  agent.Approve // "" if not given
	maxIterations            int
	readOnly, json, last     bool
	detach                   bool
	attach, skills           []string
	session, output          string
}

func (a *app) runCommand(cmd *cobra.Command) {
	var f runFlags
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		format, err := f.format()
		if err != nil {
			return err
		}
		prompt, err := a.piped(args)
		if err == nil && (prompt != "" || len(f.attach) == 0) {
			err = checkPrompt(cmd, prompt)
		}
		if err != nil {
			return err
		}
		if meantRuns(cmd, args) {
			text := strings.Join(args, " ")
			a.notice("%q is taken as a prompt; for stored runs use: %s runs %s", text, a.self(), text)
		}
		return a.run(cmd, &f, prompt, format)
	}

	flags := cmd.Flags()
	a.askingFlags(cmd, &f)
	a.sessionFlags(cmd, &f)
	outputFlags(cmd, &f)
	flags.BoolP("print", "p", false, "")
	flags.BoolVar(&f.detach, "detach", false, "")
}

// Output formats of run.
const (
	outputText   = "text"        // the answer
	outputJSON   = "json"        // the run, once it has ended or parked
	outputEvents = "stream-json" // its events, one per line
)

// outputFlags adds the flags that select the output of a command that shows a run.
func outputFlags(cmd *cobra.Command, f *runFlags) {
	cmd.Flags().BoolVar(&f.json, "json", false, "")
	choice(cmd, "output", &f.output, outputText, outputJSON, outputEvents)
}

// format returns the output format.
func (f *runFlags) format() (string, error) {
	switch {
	case f.json && f.output != "" && f.output != outputEvents:
		return "", usagef("--json: means --output stream-json and cannot be combined with another --output")
	case f.json:
		return outputEvents, nil
	}
	return cmp.Or(f.output, outputText), nil
}

// sessionFlags adds the flags that select the session of a run.
func (a *app) sessionFlags(cmd *cobra.Command, f *runFlags) {
	cmd.Flags().StringVar(&f.session, "session", "", "")
	cmd.Flags().BoolVarP(&f.last, "continue", "c", false, "")
}

// askingFlags adds the flags of a command that asks a model.
func (a *app) askingFlags(cmd *cobra.Command, f *runFlags) {
	flags := cmd.Flags()
	a.judgingFlags(cmd, f)
	flags.FuncP("model", "m", "", filled(&f.model))
	flags.StringVar(&f.tools, "tools", "", "")
	flags.StringVar(&f.toolChoice, "tool-choice", "", "")
	flags.Func("max-iterations", "", between(&f.maxIterations, 1, toolcrib.MaxIterationsCeiling))
	flags.StringArrayVar(&f.attach, "attach", nil, "")
}

// judgingFlags adds the flags that control how calls are judged.
func (a *app) judgingFlags(cmd *cobra.Command, f *runFlags) {
	flags := cmd.Flags()
	flags.Func("agent", "", filled(&f.agent))
	flags.StringArrayVar(&f.skills, "skill", nil, "")
	approveFlag(cmd, f)
	flags.BoolVar(&f.readOnly, "read-only", false, "")
	flags.Func("workspace", "", filled(&f.workspace))
}

// approveFlag adds the flag that controls calls that need confirmation.
func approveFlag(cmd *cobra.Command, f *runFlags) {
	choice(cmd, "approve", (*string)(&f.approve), string(agent.ApproveAsk), string(agent.ApproveAll),
		string(agent.ApproveNone), string(agent.ApproveDeny))
}

// prompt joins the arguments, or reads standard input for -.
func (a *app) prompt(cmd *cobra.Command, args []string) (prompt string, err error) {
	if slices.Equal(args, []string{"-"}) {
		prompt, err = a.readText()
	} else {
		prompt, err = a.words(args)
	}
	if err == nil {
		err = checkPrompt(cmd, prompt)
	}
	return prompt, err
}

func (a *app) words(args []string) (string, error) {
	if len(args) > 1 && args[0] == "-" {
		return "", usagef("give the prompt as words, or - to read it from standard input, not both")
	}
	return guard.Clean(strings.Join(args, " ")), nil
}

// piped returns the prompt of run: the arguments, followed by the piped standard input. Either may be
// missing.
func (a *app) piped(args []string) (prompt string, err error) {
	if !slices.Equal(args, []string{"-"}) {
		if prompt, err = a.words(args); err != nil || !a.inPiped() {
			return prompt, err
		}
	}
	text, err := a.readText()
	switch {
	case err != nil || strings.TrimSpace(text) == "":
		return prompt, err
	case prompt == "":
		return text, nil
	}
	return prompt + "\n\n" + text, nil
}

// inPiped reports whether standard input is a pipe or a file, as opposed to a terminal or the null
// device.
func (a *app) inPiped() bool {
	info, err := a.in.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice == 0 &&
		(info.Mode().IsRegular() || info.Mode()&(os.ModeNamedPipe|os.ModeSocket) != 0)
}

// readText reads standard input. After a while without input it says what it waits for: a script may
// have left a pipe open by mistake.
func (a *app) readText() (string, error) {
	told := time.AfterFunc(pipePatience, func() {
		fmt.Fprintln(a.err, a.style.Dim("reading standard input ... (end it with ctrl-d; </dev/null gives none)"))
	})
	defer told.Stop()
	data, err := a.readStdin()
	return guard.Clean(string(data)), err
}

// pipePatience is the time without input after which the command says that it waits for standard input.
const pipePatience = 3 * time.Second

func checkPrompt(cmd *cobra.Command, prompt string) error {
	if strings.TrimSpace(prompt) == "" {
		return usagef("no prompt: give it as arguments or on standard input\nSee: %s --help", cmd.CommandPath())
	}
	return nil
}

func (a *app) readStdin() ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(a.in, maxStdin+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("standard input: %v", err)
	case len(data) > maxStdin:
		return nil, usagef("standard input holds more than %d bytes", maxStdin)
	}
	return data, nil
}

// request builds the request of a command that starts runs from its flags.
func (a *app) request(cmd *cobra.Command, f *runFlags) (r service.StartRequest, err error) {
	flags := cmd.Flags()
	if r.Change, err = f.change(flags); err != nil {
		return r, err
	}
	if f.workspace != "" {
		if a.remote != nil {
			return r, usagef("--workspace: a server has a folder of its own for each user; leave it out")
		}
		if r.Workspace, err = a.service.Policy.Workspace(f.workspace, nil); err != nil {
			return r, usagef("--%v", err)
		}
	}
	if r.Approve, err = a.approval(f); err != nil {
		return r, err
	}
	r.Agent, r.Admin = f.agent, a.adminFlag
	if flags.Changed("tools") {
		r.Tools = splitList(f.tools)
	}
	if session := flags.Lookup("session"); session != nil && session.Changed && f.session == "" {
		return r, usagef("--session: %v", store.CheckSessionName(""))
	}
	if f.last && f.session != "" {
		return r, usagef("--continue: is for the last session; leave out --session")
	}
	r.Session, r.Continue = f.session, f.last
	return r, nil
}

// ready checks that the runs of a request can start. A model that was detected here is used for all of
// them; a server uses the model of its agent, which may change.
func (a *app) ready(ctx context.Context, who toolcrib.Principal, r *service.StartRequest) (toolcrib.Agent, error) {
	def, err := a.api.Ready(ctx, who, *r)
	if err == nil && a.remote == nil && len(def.Fallback) == 0 {
		r.Model = def.Model
	}
	return def, err
}

// openHere is like ready for a command in the current folder: on a terminal it asks about content of
// the folder that needs trust, and it reports content that is not used.
func (a *app) openHere(ctx context.Context, who toolcrib.Principal, r *service.StartRequest) (toolcrib.Agent, error) {
	def, err := a.ready(ctx, who, r)
	if err != nil || a.remote != nil {
		return def, err
	}
	a.passedOver()
	return def, a.trustSkills(ctx, def.Skills)
}

// run makes one run of an agent.
func (a *app) run(cmd *cobra.Command, f *runFlags, prompt, format string) error {
	ctx := cmd.Context()
	at, who, err := a.opened(ctx, a.knowing)
	if err != nil {
		return err
	}
	r, err := a.request(cmd, f)
	if err == nil {
		r.Prompt = prompt
		err = a.attachTo(ctx, who, &r, "--attach", f.attach...)
	}
	if err == nil && a.remote == nil {
		_, err = a.openHere(ctx, who, &r)
	}
	if err != nil {
		return err
	}
	if f.detach {
		return a.detach(ctx, who, f, r, format)
	}
	return a.show(ctx, format, who, r.Approve, func(ctx context.Context, f service.Front) (service.Run, error) {
		return at.Start(ctx, who, r, f)
	})
}

// detach leaves a run to a server: the one of the data folder, or the remote one.
func (a *app) detach(
	ctx context.Context, who toolcrib.Principal, f *runFlags, r service.StartRequest, format string,
) error {
	if r.Approve == agent.ApproveAsk {
		if f.approve != "" {
			return usagef("--approve ask: nobody is asked here with --detach; use all, none or deny")
		}
		r.Approve = agent.ApproveNone
	}
	run, err := a.api.Detach(ctx, who, r)
	if err != nil {
		return err
	}
	if format == outputText {
		fmt.Fprintln(a.out, run.ID)
	} else if err := printJSON(a.out, run, format == outputJSON); err != nil {
		return err
	}
	by := a.place()
	if a.remote == nil {
		by = a.service.Server(ctx)
	}
	if by != "" {
		fmt.Fprintf(a.err, "The server (%s) continues it; `%s runs events %s --follow` shows it.\n", by, a.self(),
			toolcrib.ShortID(string(run.ID)))
		return nil
	}
	fmt.Fprintf(a.err, "No server runs on this data folder, so the run stays queued: `%s serve` starts one.\n", a.self())
	return nil
}

// change returns the changes that the flags make to an agent.
func (f *runFlags) change(flags *pflag.FlagSet) (policy.Change, error) {
	ch := policy.Change{Model: f.model, MaxIterations: f.maxIterations, ReadOnly: f.readOnly, Skills: f.skills}
	if flags.Changed("tool-choice") {
		choice, err := toolChoice(f.toolChoice)
		ch.ToolChoice = &choice
		return ch, err
	}
	return ch, nil
}

func toolChoice(text string) (toolcrib.ToolChoice, error) {
	switch mode := strings.ToLower(text); mode {
	case toolcrib.ChoiceAuto, toolcrib.ChoiceNone, toolcrib.ChoiceRequired:
		return toolcrib.ToolChoice{Mode: mode}, nil
	}
	if !toolcrib.ValidToolName(text) {
		return toolcrib.ToolChoice{}, usagef("--tool-choice: must be auto, none, required or the name of a tool, not %q", text)
	}
	return toolcrib.ToolChoice{Mode: toolcrib.ChoiceName, Name: text}, nil
}

// approval returns how to handle calls that need confirmation.
func (a *app) approval(f *runFlags) (agent.Approve, error) {
	switch terminal := a.inTerminal && a.errTerminal; {
	case f.approve == agent.ApproveAsk && !terminal:
		return "", usagef("--approve ask: there is no terminal to ask on; use all, none or deny")
	case f.approve == "" && terminal:
		return agent.ApproveAsk, nil
	}
	return cmp.Or(f.approve, agent.ApproveNone), nil
}

// splitList splits at commas and drops empty elements. The result is never nil: an empty list means
// nothing at all.
func splitList(text string) []string {
	list := []string{}
	for _, part := range strings.Split(text, ",") {
		if part = strings.TrimSpace(part); part != "" {
			list = append(list, part)
		}
	}
	return list
}

// attachTo adds attachments to the prompt of a request: images, PDF documents, texts, and resources of
// MCP servers as SERVER:URI. by is the flag or argument that named them.
func (a *app) attachTo(
	ctx context.Context, who toolcrib.Principal, r *service.StartRequest, by string, paths ...string,
) error {
	for _, path := range paths {
		data, err := safefile.Read(path, toolcrib.MaxFileBytes)
		file, err := attached(filepath.Base(path), data, err)
		if name, uri, ok := strings.Cut(path, ":"); err != nil && ok {
			read, also := a.api.MCPResource(ctx, who, name, uri)
			if also == nil {
				attachRead(r, read)
				continue
			} else if toolcrib.CodeOf(also) != toolcrib.CodeNotFound {
				return also
			}
		}
		if err != nil {
			return usagef("%s: %s %v", by, guard.Visible(path), err)
		}
		r.Files = append(r.Files, file)
	}
	return nil
}

// attachRead adds a resource of an MCP server to a request.
func attachRead(r *service.StartRequest, read mcpset.Read) {
	r.Files = append(r.Files, read.Files...)
	for _, source := range read.Taint {
		if !slices.Contains(r.Taint, source) {
			r.Taint = append(r.Taint, source)
		}
	}
}

// attached returns the content of a file as an attachment, if its type is supported.
func attached(name string, data []byte, err error) (toolcrib.OutputFile, error) {
	file := toolcrib.OutputFile{MediaType: media.Type(data), Name: name, Data: data}
	switch {
	case err != nil:
	case len(data) == 0:
		err = errors.New("is empty")
	case file.MediaType == "":
		err = errors.New("is neither an image (PNG, JPEG, GIF, WebP) nor a PDF document nor a text")
	}
	return file, err
}
