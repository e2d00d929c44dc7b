package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/internal/render"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/service"
)

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
