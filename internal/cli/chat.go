package cli

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/spf13/cobra"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/api"
	"github.com/toolcrib/toolcrib/internal/config"
	"github.com/toolcrib/toolcrib/internal/render"
	"github.com/toolcrib/toolcrib/internal/tui"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/service"
	"github.com/toolcrib/toolcrib/service/policy"
	"github.com/toolcrib/toolcrib/tool/shell"
)

func (a *app) chatCommand(cmd *cobra.Command) {
	var f runFlags
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return a.chat(cmd, &f) }

	flags := cmd.Flags()
	a.askingFlags(cmd, &f)
	a.sessionFlags(cmd, &f)
	flags.BoolVar(&f.json, "json", false, "")
}

// chat is a conversation and the settings for its next turn.
type chat struct {
	a         *app
	who       toolcrib.Principal
	stopped   error                // the cause of a turn that the user stops
	mu        sync.Mutex           // guards start and agent: the screen reads them while a command sets them
	start     service.StartRequest // template of a turn's request, without prompt and files
	agent     toolcrib.Agent       // the agent that answers
	session   *service.Session
	workspace string // "" with a server, which has its own
	front     front

	with    service.StartRequest // Files and Taint go with the next message
	undone  []string             // commands and undos that the model does not know of yet
	mode    atomic.Int32         // index into modes; the screen changes it at any time
	approve agent.Approve        // approval mode at the start of the conversation

	spent  spent
	full   string               // how full the model's context is; "" if unknown
	listed []toolcrib.SessionID // by the last /sessions
	waits  bool                 // the last turn of the session waits for a person
	review bool                 // the screen was left for /trust
	exit   int                  // first nonzero exit code of a turn
}

// front is the user interface of a conversation.
type front interface {
	// carry drives a run and asks the person what the run waits for. If given is not nil, the run is
	// that single call, without a model.
	carry(ctx context.Context, c *chat, approve agent.Approve, given *toolcrib.ToolCall, do driving) (service.Run, error)
	Note(text string) // an aside
	Warn(text string) // an error
	Text(text string) // the output of a command
	Status(parts []string)
	parked(ctx context.Context, run *service.Run) // a turn stays parked
	costs(run *service.Run)                       // what a turn has cost
}

// spent is the total cost of the session.
type spent struct {
	usage toolcrib.Usage
	known bool // the prices of all models are known
	runs  int
}

func (a *app) chat(cmd *cobra.Command, f *runFlags) error {
	ctx := cmd.Context()
	c, err := a.newChat(cmd, f)
	if err != nil {
		return err
	}
	screen := a.inTerminal && a.outTerminal && a.errTerminal
	if screen && f.json {
		return usagef("--json: is for scripts; give the messages on standard input")
	}
	history, err := a.inputHistory(c.who)
	if err != nil {
		return err
	}
	if name := os.Getenv("TERM"); screen && name != "dumb" && (name != "" || runtime.GOOS == "windows") {
		return a.chatOnScreen(ctx, c, history)
	}
	return a.chatInLines(ctx, c, history, f.json)
}

// newChat reads the settings of a conversation. It reports errors before the first message.
func (a *app) newChat(cmd *cobra.Command, f *runFlags) (*chat, error) {
	ctx := cmd.Context()
	at, who, err := a.opened(ctx, a.knowing)
	if err != nil {
		return nil, err
	}
	c := &chat{
		a: a, who: who, stopped: agent.CancelBy(who), spent: spent{known: true},
		session: &service.Session{},
	}
	if c.start, err = a.request(cmd, f); err != nil {
		return nil, err
	}
	c.start.Session, c.start.Continue, c.approve = "", false, c.start.Approve
	if a.remote == nil {
		if c.workspace, err = a.service.Policy.Workspace(c.start.Workspace, nil); err != nil {
			return nil, err
		}
		if a.inTerminal && a.outTerminal && a.errTerminal && !f.json {
			_, _ = c.reviews(ctx, false) // /trust reports an error
		}
	}
	if c.agent, err = a.openHere(ctx, who, &c.start); err != nil {
		return nil, err
	}
	if err := a.attachTo(ctx, who, &c.with, "--attach", f.attach...); err != nil {
		return nil, err
	}
	if _, _, err := a.opened(ctx, a.changing); err != nil {
		return nil, err
	}
	switch {
	case f.last:
		c.session, err = at.LastConversation(ctx, who)
	case f.session != "":
		c.session, err = at.EnterSession(ctx, who, f.session)
	}
	return c, err
}

// begin starts a run in the session of the conversation, or makes a given call alongside it.
func (c *chat) begin(ctx context.Context, r service.StartRequest, f service.Front) (service.Run, error) {
	r.Agent, r.Admin, r.Change, r.Workspace = c.start.Agent, c.start.Admin, c.start.Change, c.start.Workspace
	r.Approve, r.Tools = cmp.Or(r.Approve, c.start.Approve), c.start.Tools
	r.ReadOnly = r.ReadOnly || c.mode.Load() >= modeReadOnly
	r.Session = cmp.Or(string(c.session.Info.ID), c.session.Name)
	switch {
	case r.Session != "":
	case c.session.From == "":
		r.Begins = true
	case r.Given == nil:
		r.From = c.session.From
	}
	run, err := c.a.api.Start(ctx, c.who, r, f)
	if c.session.Info.ID != "" || run.ID == "" {
		return run, err
	}
	ctx = context.WithoutCancel(ctx)
	if run.SessionID == "" && run.Beside == "" {
		if whole, err := c.a.api.Run(ctx, c.who, string(run.ID)); err == nil {
			run.SessionID, run.Beside = whole.SessionID, whole.Beside
		}
	}
	if id := cmp.Or(run.SessionID, run.Beside); id != "" {
		if info, err := c.a.api.Session(ctx, c.who, string(id)); err == nil {
			c.session.Info = info
		}
	}
	return run, err
}

// inputHistory returns the lines that the user typed in earlier conversations.
func (a *app) inputHistory(who toolcrib.Principal) (*tui.History, error) {
	dir, err := "", error(nil)
	if a.remote == nil {
		dir, err = a.dataDir()
	} else {
		// Input typed on this machine is kept on this machine
		dir, err = config.Default().DataDir.Resolve(config.Resolver{})
	}
	if err != nil {
		return nil, err
	}
	// A user's name may contain characters that are not valid in a file name.
	sum := sha256.Sum256([]byte(who.User))
	h, err := tui.OpenHistory(filepath.Join(dir, "chat", "history-"+hex.EncodeToString(sum[:8])+".ndjson"))
	if err != nil {
		a.notice("%v", err)
	}
	h.Mask = func(line string) string { return a.mask().Mask(line) }
	return h, nil
}

// carry drives one run.
func (c *chat) carry(
	ctx context.Context, approve agent.Approve, given *toolcrib.ToolCall, do driving,
) (service.Run, error) {
	return c.front.carry(ctx, c, approve, given, func(ctx context.Context, f service.Front) (service.Run, error) {
		switch {
		case given != nil && given.Name == shell.Name:
			f.Person, f.Approver = ownCommand{}, nil
		case f.Person != nil:
			f.Person, f.Approver = modePerson{f.Person, c}, nil
		}
		return do(ctx, f)
	})
}

// ctxCause returns the cause of ctx's end if it also ends the conversation.
func (c *chat) ctxCause(ctx context.Context) error {
	if err := context.Cause(ctx); err != nil && !errors.Is(err, c.stopped) {
		return err
	}
	return nil
}

// modes are the permission modes of turns. None of them permits more than the gate.
var modes = [...]string{"ask", "accept-edits", "read-only", "plan"}

// modeTexts describe the modes.
var modeTexts = [len(modes)]string{
	"calls that need an approval are asked about",
	"edits of files in the workspace are not asked about; all other calls are, as before",
	"from the next turn on nothing is changed",
	"from the next turn on nothing is changed, and the model makes a plan",
}

// Indexes into modes.
const (
	modeAsk = iota
	modeEdits
	modeReadOnly
	modePlan
)

// planText begins a message in plan mode.
const planText = "(Plan mode: only read now, nothing can be changed. Find out what is needed, write the plan down " +
	"with update_plan if you have it, and end with the plan for me to agree to.)\n\n"

// set sets the request template and the agent of the next turns.
func (c *chat) set(start service.StartRequest, next toolcrib.Agent) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.start, c.agent = start, next
}

// modeText names the mode for the status line.
func (c *chat) modeText() string {
	c.mu.Lock()
	readOnly := c.agent.ReadOnly
	c.mu.Unlock()
	switch mode := c.mode.Load(); {
	case readOnly && mode < modeReadOnly:
		return modes[modeReadOnly]
	case mode == modeAsk && c.approve != agent.ApproveAsk:
		return "--approve " + string(c.approve)
	default:
		return modes[mode]
	}
}

func (c *chat) setMode(_ context.Context, name string) error {
	if name != "" {
		i := slices.Index(modes[:], name)
		if i < 0 {
			return fmt.Errorf("the mode must be one of %s", strings.Join(modes[:], ", "))
		}
		c.mode.Store(int32(i))
	}
	mode := c.mode.Load()
	c.front.Note(modes[mode] + ": " + modeTexts[mode])
	return nil
}

// modePerson answers questions that the chosen mode has answered in advance.
type modePerson struct {
	service.Person
	c *chat
}

// Answer implements [service.Person].
func (p modePerson) Answer(ctx context.Context, q service.Question) (service.Answer, bool, error) {
	if p.c.mode.Load() == modeEdits && !q.Another && q.Problem == "" && onlyEdits(&q.Ask) {
		return service.Answer{Decision: journal.DecisionApprove, Reason: "mode accept-edits"}, true, nil
	}
	return p.Person.Answer(ctx, q)
}

// onlyEdits reports whether a question is only about edits of files that are asked about because all
// writes are: not because of untrusted data, a rule, or a file that changed.
func onlyEdits(ask *journal.ConfirmationRequired) bool {
	if ask.Kind != journal.ApprovalCall || len(ask.Calls) == 0 {
		return false
	}
	for _, call := range ask.Calls {
		if call.Name != "write_file" && call.Name != "edit_file" || call.Changed != "" || len(call.Questions) == 0 {
			return false
		}
		for _, why := range call.Questions {
			if why.Reason != toolcrib.ReasonNeedsConfirmation || why.Rule != "" || why.Says != "" {
				return false
			}
		}
	}
	return true
}

// answering selects the agent that answers in this session.
func (c *chat) answering(ctx context.Context, name string) error {
	if name == "" {
		all, err := c.a.agents(ctx, c.who)
		names, err := listed(all, func(g shownAgent) string { return g.Name }, err)
		c.front.Text("agent: " + c.agent.Name + "\nconfigured: " + strings.Join(names, ", "))
		return err
	}
	r := c.start
	r.Agent, r.Change = name, policy.Change{ReadOnly: c.start.ReadOnly, Skills: c.start.Skills}
	return c.change(ctx, r, func(next toolcrib.Agent) string { return "agent " + name + " answers, by " + next.Model })
}

// change changes the request template of the next turns; says describes the effect.
func (c *chat) change(ctx context.Context, start service.StartRequest, says func(toolcrib.Agent) string) error {
	next, err := c.a.ready(ctx, c.who, &start)
	if err != nil {
		return err
	}
	c.set(start, next)
	c.front.Note("from now on " + says(next))
	c.showStatus()
	return nil
}

// memory shows one of the user's notes, read by a call through the gate.
func (c *chat) memory(ctx context.Context, key string) error {
	arguments := map[string]any{}
	if key != "" {
		arguments["key"] = key
	}
	_, err := c.given(ctx, "memory_read", arguments)
	return err
}

// maxToldOutput bounds the output of a command that the model receives, in bytes.
const maxToldOutput = 16 << 10

// ownCommand answers the questions about a command for the person who typed it.
type ownCommand struct{}

// Answer implements [service.Person].
func (ownCommand) Answer(_ context.Context, q service.Question) (a service.Answer, ok bool, err error) {
	if q.Ask.Kind == journal.ApprovalCall && !q.Another && q.Problem == "" {
		a.Decision, a.Reason, ok = journal.DecisionApprove, "typed by the person", true
	}
	return a, ok, nil
}

// command runs a command that the user typed: a call of exec_shell that the gate judges like any other. Its
// questions are answered by [ownCommand]; refusals, protection and the sandbox apply.
func (c *chat) command(ctx context.Context, line string) error {
	arguments := map[string]any{"command": line}
	if c.mode.Load() < modeReadOnly && !c.agent.ReadOnly {
		arguments["write"] = true
	}
	r, err := c.given(ctx, shell.Name, arguments)
	switch {
	case err != nil || r == nil || r.Status == toolcrib.ResultRefused:
	case r.Untrusted:
		c.front.Note("its output is untrusted data, so the model does not see it")
	default:
		text := cmp.Or(render.ResultText(r.Result, false), "(no output)")
		if len(text) > maxToldOutput {
			text = strings.ToValidUTF8(text[:maxToldOutput], "") + "\n[cut]"
		}
		c.undone = append(c.undone, "I ran `"+line+"`:\n"+text)
	}
	return err
}

// given makes one call for the user and shows its result.
func (c *chat) given(ctx context.Context, tool string, arguments any) (*api.TraceCall, error) {
	raw, err := json.Marshal(arguments)
	if err != nil {
		return nil, err
	}
	run, err := c.givenCall(ctx, tool, raw)
	if err != nil || run == nil {
		return nil, err
	}
	if run.Status.Parked() {
		c.front.Note("the call waits for a decision: toolcrib approvals show last")
	}
	r := &run.Trace[0]
	if r.Status == "" {
		return nil, nil
	}
	if _, shown := c.front.(*screenFront); !shown {
		// The indent keeps a command's output from looking like a message of this program.
		text := cmp.Or(render.ResultText(r.Result, r.Untrusted), "(no output)")
		if r.Status == toolcrib.ResultRefused {
			text = fmt.Sprintf("refused (%s): %s", r.Reason, text)
		}
		c.front.Text("    " + strings.ReplaceAll(text, "\n", "\n    "))
	}
	return r, nil
}
