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
	"sync/atomic"

	"github.com/spf13/cobra"
	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/internal/config"
	"github.com/toolcrib/toolcrib/internal/render"
	"github.com/toolcrib/toolcrib/internal/tui"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/service"
)

func (a *app) chatCommand(cmd *cobra.Command) {
	var f runFlags
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return a.chat(cmd, &f) }

	flags := cmd.Flags()
	a.askingFlags(cmd, &f)
	a.sessionFlags(cmd, &f)
	flags.BoolVar(&f.json, "json", false, "")
}

// chat is a conversation: what holds for its next turn.
type chat struct {
	a     *app
	p     *service.Prepared // of its next turn
	front front

	files    []toolcrib.OutputFile // go with the next message
	taint    []string              // untrusted data that is in them
	undone   []string              // what was done of which the model does not know
	mode     atomic.Int32          // index into modes; the screen changes it at any time
	readOnly bool                  // the agent is, or was told to be
	told     bool                  // it was
	approve  agent.Approve         // as the conversation began

	spent  spent
	full   string               // how full the model's context is; "" = unknown
	listed []toolcrib.SessionID // by the last /sessions
	waits  bool                 // the last turn of the session waits for a person
	exit   int                  // the first exit code of a turn that was not 0
}

// front is where a conversation takes place.
type front interface {
	// carry drives a run, and puts what it waits for to the person. given is its one call
	// without a model; nil = it has one.
	carry(ctx context.Context, c *chat, approve agent.Approve, given *toolcrib.ToolCall, do driving) (service.Run, error)
	note(text string)  // an aside
	warn(text string)  // what went wrong
	print(text string) // what a command has to say
	status(parts []string)
	parked(ctx context.Context, run *service.Run) // a turn is left waiting
}

// spent sums up what the session has cost.
type spent struct {
	usage toolcrib.Usage
	known bool // the price of every model
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
	history, err := a.inputHistory(c.p.Who)
	if err != nil {
		return err
	}
	if name := os.Getenv("TERM"); screen && name != "dumb" && (name != "" || runtime.GOOS == "windows") {
		return a.chatOnScreen(ctx, c, history)
	}
	return a.chatInLines(ctx, c, history, f.json)
}

// newChat reads what a conversation begins with; what is wrong with it is told
// before anything is said.
func (a *app) newChat(cmd *cobra.Command, f *runFlags) (*chat, error) {
	if len(f.attach) > maxAttached {
		return nil, usagef("--attach: %d files, at most %d go with a message", len(f.attach), maxAttached)
	}
	prepare := a.prepare
	if a.remote != nil {
		prepare = a.prepareThere
	}
	p, err := prepare(cmd, f, false)
	if err != nil {
		return nil, err
	}
	c := &chat{
		a: a, p: p, spent: spent{known: true}, readOnly: p.Agent.ReadOnly, told: p.Agent.ToldReadOnly, approve: p.Approve,
	}
	var first agent.Task
	if err := a.attachTo(cmd.Context(), p.Who, &first, "--attach", f.attach...); err != nil {
		return nil, err
	}
	c.files, c.taint = first.Files, first.Taint
	if _, _, err := a.opened(cmd.Context(), a.changing); err != nil {
		return nil, err
	}
	switch p.Session = (&service.Session{}); {
	case f.last:
		p.Session, err = a.api.LastConversation(cmd.Context(), p.Who)
	case f.session != "":
		p.Session, err = a.api.EnterSession(cmd.Context(), p.Who, f.session)
	}
	if err != nil || a.remote != nil {
		return c, err
	}
	return c, a.openHere(cmd.Context(), p)
}

// begin starts a run of the conversation.
func (c *chat) begin(ctx context.Context, task agent.Task, f service.Front) (service.Run, error) {
	if c.a.remote == nil {
		return c.p.Run(ctx, task, f)
	}
	return c.a.remote.RunOf(ctx, c.p, task, f)
}

// inputHistory is what the user has typed in conversations before.
func (a *app) inputHistory(who toolcrib.Principal) (*tui.History, error) {
	dir, err := "", error(nil)
	if a.remote == nil {
		dir, err = a.dataDir()
	} else {
		dir, err = config.Default().DataDir.Resolve(config.Resolver{}) // what is typed here stays here
	}
	if err != nil {
		return nil, err
	}
	// A user's name may hold characters that no file's name can.
	sum := sha256.Sum256([]byte(who.User))
	h, err := tui.OpenHistory(filepath.Join(dir, "chat", "history-"+hex.EncodeToString(sum[:8])+".ndjson"))
	if err != nil {
		a.notice("%v", err)
	}
	h.Mask = func(line string) string { return a.mask().Mask(line) }
	return h, nil
}

// carry drives one run. What it opened for itself is closed with it, and not only when the
// conversation ends.
func (c *chat) carry(
	ctx context.Context, approve agent.Approve, given *toolcrib.ToolCall, do driving,
) (service.Run, error) {
	before := len(c.a.closers)
	run, err := c.front.carry(ctx, c, approve, given, func(ctx context.Context, f service.Front) (service.Run, error) {
		if f.Person != nil {
			f.Person = modePerson{f.Person, c}
		}
		if f.Approver != nil {
			f.Approver = modeApprover{f.Approver, c}
		}
		return do(ctx, f)
	})
	for _, one := range c.a.closers[before:] {
		if closing := one.Close(); closing != nil {
			c.front.note(closing.Error())
		}
	}
	c.a.closers = c.a.closers[:before]
	return run, err
}

// ctxCause is why ctx ended, if that ends the conversation too.
func ctxCause(ctx context.Context) error {
	if err := context.Cause(ctx); err != nil && !errors.Is(err, tui.ErrStopped) {
		return err
	}
	return nil
}

// modes are what turns may do. None of them widens what the gate allows.
var modes = [...]string{"ask", "accept-edits", "read-only", "plan"}

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

// modeText names the mode at the bottom.
func (c *chat) modeText() string {
	switch mode := c.mode.Load(); {
	case c.readOnly && mode < modeReadOnly:
		return modes[modeReadOnly]
	case mode == modeAsk && c.approve != agent.ApproveAsk:
		return "--approve " + string(c.approve)
	default:
		return modes[mode]
	}
}

// holdMode makes the mode count for the turn that begins.
func (c *chat) holdMode() {
	c.p.Agent.ReadOnly = c.readOnly || c.mode.Load() >= modeReadOnly
	c.p.Agent.ToldReadOnly = c.told || c.mode.Load() >= modeReadOnly
}

func (c *chat) setMode(_ context.Context, name string) error {
	if name != "" {
		i := slices.Index(modes[:], name)
		if i < 0 {
			return fmt.Errorf("the mode must be one of %s", strings.Join(modes[:], ", "))
		}
		c.mode.Store(int32(i))
	}
	says := [...]string{
		"calls that need an approval are asked about",
		"edits of files in the workspace are not asked about; all other calls are, as before",
		"from the next turn on nothing is changed",
		"from the next turn on nothing is changed, and the model makes a plan",
	}
	mode := c.mode.Load()
	c.front.note(modes[mode] + ": " + says[mode])
	return nil
}

// modePerson answers for the person what they have said beforehand with a mode.
type modePerson struct {
	service.Person
	c *chat
}

// Answer implements [service.Person].
func (p modePerson) Answer(ctx context.Context, q service.Question) (service.Answer, bool, error) {
	if p.c.mode.Load() == modeEdits && !q.Another && q.Problem == "" && onlyEdits(&q.Ask) {
		return service.Answer{Decision: journal.DecisionApprove, Reason: editsReason}, true, nil
	}
	return p.Person.Answer(ctx, q)
}

// editsReason is why an edit was approved without a question.
const editsReason = "mode accept-edits"

// modeApprover does the same before a run parks.
type modeApprover struct {
	agent.Approver
	c *chat
}

// Decide implements [agent.Approver].
func (a modeApprover) Decide(ctx context.Context, run toolcrib.RunID,
	ask *journal.ConfirmationRequired,
) (journal.ConfirmationResolved, bool, error) {
	if a.c.mode.Load() == modeEdits && onlyEdits(ask) {
		return journal.ConfirmationResolved{Decision: journal.DecisionApprove, Reason: editsReason, By: nameOf(a.c.p.Who)},
			true, nil
	}
	return a.Approver.Decide(ctx, run, ask)
}

// onlyEdits reports whether a question is about nothing but edits of files that are asked
// about as all writes are: not because of untrusted data, a rule, or a file that changed.
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

// agent changes who answers in this session.
func (c *chat) agent(ctx context.Context, name string) error {
	if name == "" {
		c.front.print("agent: " + c.p.Agent.Name + "\nconfigured: " + strings.Join(c.agentNames(ctx), ", "))
		return nil
	}
	if c.a.remote != nil {
		next, err := c.a.remote.Agent(ctx, name)
		if err != nil {
			return err
		}
		next.ReadOnly, next.ToldReadOnly, next.ToldSkills = c.told, c.told, c.p.Agent.ToldSkills
		c.p.Agent, c.readOnly = next, next.ReadOnly
		c.front.note("from now on agent " + name + " answers, by " + next.Model)
		c.showStatus()
		return nil
	}
	next, err := c.a.service.Prepare(ctx, c.p.Who, service.StartRequest{
		Agent: name, Change: service.Change{ReadOnly: c.told, Skills: c.p.Agent.ToldSkills},
		Workspace: c.p.Workspace, Approve: c.p.Approve, Tools: c.p.Tools,
	})
	if err != nil {
		return err
	}
	if err := next.OpenModels(); err != nil {
		return err
	}
	next.Session = c.p.Session
	c.p, c.readOnly = next, next.Agent.ReadOnly
	c.front.note("from now on agent " + name + " answers, by " + next.Agent.Model)
	c.showStatus()
	return nil
}

// memory shows a note that is kept of the user, by a judged call.
func (c *chat) memory(ctx context.Context, key string) error {
	arguments := map[string]string{}
	if key != "" {
		arguments["key"] = key
	}
	_, err := c.given(ctx, "memory_read", arguments)
	return err
}

// maxToldOutput bounds what the model reads of a command's output, in bytes.
const maxToldOutput = 16 << 10

// command runs a command of the person: a call of exec_shell, which the gate judges as any
// other. Whoever typed it need not be asked about it, if no more than --approve all would do
// is wanted; deny rules, protection and the sandbox hold.
func (c *chat) command(ctx context.Context, line string) error {
	if c.p.Approve == agent.ApproveAsk {
		kept := c.p.Approve
		c.p.Approve = agent.ApproveAll
		defer func() { c.p.Approve = kept }()
	}
	r, err := c.given(ctx, "exec_shell", map[string]string{"command": line})
	switch {
	case err != nil || r == nil || r.Status == toolcrib.ResultRefused:
	case r.Untrusted:
		c.front.note("its output is untrusted data, so the model does not see it")
	default:
		text := cmp.Or(render.ResultText(r.Result, false), "(no output)")
		if len(text) > maxToldOutput {
			text = strings.ToValidUTF8(text[:maxToldOutput], "") + "\n[cut]"
		}
		c.undone = append(c.undone, "I ran `"+line+"`:\n"+text)
	}
	return err
}

// given carries out one call for the person and shows its result.
func (c *chat) given(ctx context.Context, tool string, arguments map[string]string) (*service.TraceCall, error) {
	raw, err := json.Marshal(arguments)
	if err != nil {
		return nil, err
	}
	run, err := c.givenCall(ctx, tool, raw)
	if err != nil || run == nil {
		return nil, err
	}
	if run.Status.Parked() {
		c.front.note("the call waits for a decision: toolcrib approvals show last")
	}
	r := &run.Trace[0]
	if r.Status == "" {
		return nil, nil
	}
	if _, shown := c.front.(*screenFront); !shown {
		// Behind an indent: what a command writes cannot pass for what this program says.
		text := cmp.Or(render.ResultText(r.Result, r.Untrusted), "(no output)")
		c.front.print("    " + strings.ReplaceAll(text, "\n", "\n    "))
	}
	return r, nil
}
