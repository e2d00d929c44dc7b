package agent

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent/core"
	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/journal"
)

// Task is the task of a run.
//
// In each list of tools here and in [toolcrib.Agent], nil is no restriction and an empty list permits
// no tool. In other lists nil and empty are the same.
type Task struct {
	Agent toolcrib.Agent
	// Models are the agent's model and its fallbacks. If empty, [Options.Model]
	// answers as the model named Agent.Model.
	Models    []journal.ModelInfo
	Principal toolcrib.Principal // the user of the run; without a User its calls cannot be approved

	Prompt string
	Files  []toolcrib.OutputFile // attached to the prompt: at most 16, each at most MaxFileBytes
	// History is a valid transcript that precedes the prompt, and Taint are the sources of untrusted data
	// in it. [Task.After] sets both.
	History []toolcrib.Message
	Taint   []string
	Session toolcrib.SessionID // the conversation of which the run is part; "" means none

	Workspace string   // absolute
	RunTools  []string // the agent's tools that this run may use
	Approve   Approve  // if "", ask the [Options.Approver] if there is one, otherwise park

	// ClientTools are carried out by the program that starts the run, which parks as waiting_for_tool
	// until [Runner.GiveResults] has their results. Their Source and AnsweredBy are filled in. At most
	// [MaxClientTools]; none may have the name of an offered tool.
	ClientTools []toolcrib.Spec

	Hosted
}

// After makes the task the next one of a conversation: its run has the transcript of the run s, and what that has
// read of untrusted data still applies.
func (t *Task) After(s *State) {
	t.History, t.Canary, t.Before = s.Messages, s.Start.Canary, s.SessionUse()
	t.Session = cmp.Or(t.Session, s.Start.Session)
	for _, source := range s.Taint {
		if !slices.Contains(t.Taint, source) {
			t.Taint = append(t.Taint, source)
		}
	}
}

// Approve determines what happens to calls that need an approval.
type Approve string

const (
	ApproveNone Approve = "none" // the run parks
	ApproveAsk  Approve = "ask"  // the Approver is asked
	ApproveAll  Approve = "all"  // approved, and recorded as such
	ApproveDeny Approve = "deny" // refused: no person can be asked
)

// usagef returns the error for an invalid request.
func usagef(format string, args ...any) error {
	return toolcrib.Errorf(toolcrib.CodeBadRequest, format, args...)
}

// Start records a new run, without driving it.
func (r *Runner) Start(ctx context.Context, task Task) (*State, error) {
	d, err := r.begin(ctx, task)
	if err != nil {
		return nil, err
	}
	if err := d.flush(ctx); err != nil {
		return nil, err
	}
	return d.s, nil
}

// begin makes a new run that is not in the journal yet.
func (r *Runner) begin(ctx context.Context, task Task) (*driver, error) {
	r.complete(&task)
	ignored, err := r.check(&task)
	if err != nil {
		return nil, err
	}
	costCap, err := r.costCap(&task)
	if err != nil {
		return nil, err
	}
	run := task.Run
	if run == "" {
		run = toolcrib.RunID(r.NewID("run_"))
	}
	attached, err := r.attach(ctx, run, task.allFiles())
	if err != nil {
		return nil, err
	}
	if task.FromClient {
		r.fence(&task)
	}
	if len(attached) > 0 && r.Gate.FilesUntrusted() && !slices.Contains(task.Taint, attachmentSource) {
		task.Taint = append(slices.Clone(task.Taint), attachmentSource)
	}
	start := r.started(ctx, &task, task.place(attached))
	start.CostCap = costCap
	if err := r.checkSecrets(start); err != nil {
		return nil, err
	}
	if err := r.checkNames(ctx, start); err != nil {
		return nil, err
	}
	offer, err := r.Gate.Offer(ctx, start.Principal, scopeOf(start))
	if err != nil {
		return nil, fmt.Errorf("the offer of tools: %w", err)
	}
	start.Offer = offer.Record
	if err := checkChoice(&task, start.Offer); err != nil {
		return nil, err
	}
	unused := ignored && len(start.Offer.Tools) > 0
	if ignored {
		start.Offer = journal.Offer{Tools: []journal.OfferedTool{}}
	}
	d := newDriver(r, core.NewState(run))
	events := []toolcrib.Body{start}
	if unused {
		events = append(events, ignoredTools(task.Agent.Model))
	}
	if len(task.Ran) > 0 && task.Parent == "" {
		events = append(events, ranNotice(task.Ran))
	}
	for _, n := range task.Notices {
		n.Message, n.Public = r.Mask.Mask(n.Message), r.Mask.Mask(n.Public)
		events = append(events, &journal.Notice{Notice: n})
	}
	return d, d.hold(events...)
}

// complete fills in the parts of a task that its runner determines.
func (r *Runner) complete(task *Task) {
	task.Agent.Limits = task.Agent.Limits.WithDefaults()
	if r.Model != nil && len(task.Models) == 0 && task.Given == nil {
		task.Models = []journal.ModelInfo{{Ref: task.Agent.Model, ID: task.Agent.Model}}
	}
	if task.Approve == "" {
		task.Approve = ApproveNone
		if r.Approver != nil && task.Parent == "" {
			task.Approve = ApproveAsk
		}
	}
}

func ignoredTools(model string) *journal.Notice {
	return journal.Noticef(core.NoticeToolsIgnored, "model %s takes no tools; the run continues without them", model)
}

func (r *Runner) started(ctx context.Context, task *Task, attached []toolcrib.Part) *journal.RunStarted {
	// In the stored form, so that requests have the same bytes after the run is loaded again.
	task.Agent.System = r.Mask.Clean(task.Agent.System)
	task.Agent.OutputSchema = guard.EscapeJSON(r.Mask.MaskJSON(task.Agent.OutputSchema))
	models := slices.Clone(task.Models)
	for i := range models {
		models[i].Extra = guard.EscapeJSON(models[i].Extra)
	}
	input := make([]toolcrib.Message, 0, len(task.History)+1)
	for _, m := range task.History {
		input = append(input, cleanMessage(r.Mask, m))
	}
	if task.Given == nil && (task.Prompt != "" || len(attached) > 0) {
		said := toolcrib.Message{Role: toolcrib.RoleUser}
		if task.Prompt != "" {
			said = toolcrib.TextMessage(toolcrib.RoleUser, r.Mask.Clean(task.Prompt))
		}
		said.Parts = append(said.Parts, attached...)
		input = append(input, said)
	}
	canary := task.Canary
	if canary == "" && (task.Given == nil || task.Parent == "") { // the result of a nested call is for a tool
		canary = r.newCanary()
	}
	retry := r.Retry
	if task.Retry != nil {
		retry = task.Retry
	}
	return &journal.RunStarted{
		Format: journal.Format, Version: r.Version,
		Agent: task.Agent, Models: models, Principal: task.Principal,
		Session: task.Session, Before: task.Before, Parent: task.Parent, Depth: task.Depth,
		ForkedFrom: task.ForkedFrom, ForkedRound: task.ForkedRound, Compact: task.Compact, Ran: r.keptRan(ctx, task.Ran),
		Workspace: task.Workspace, Driver: task.Driver, Site: task.Site, Once: task.Once, Asked: task.Asked,
		System: task.Agent.System, Input: input,
		RunTools: task.RunTools, SkillTools: task.SkillTools, WorkerTools: task.WorkerTools,
		Skills: task.Skills, Listed: task.Listed, Approve: string(task.Approve), Given: task.Given, Beside: task.Beside,
		Taint:  r.maskedAll(task.Taint),
		Canary: canary,
		Retry:  *retry, Above: task.Above, Share: task.Share, Worker: task.Worker,
		ClientTools: clientTools(task.ClientTools, r.Mask),
	}
}

// maskedAll returns texts with secrets masked.
func (r *Runner) maskedAll(texts []string) []string {
	texts = slices.Clone(texts)
	for i := range texts {
		texts[i] = r.Mask.Mask(texts[i])
	}
	return texts
}

// check refuses invalid tasks before anything is written. ignored means that the model takes no tools.
func (r *Runner) check(task *Task) (ignored bool, err error) {
	if err := r.checkDecider(task.Approve, task.Principal); err != nil {
		return false, err
	}
	if task.Given != nil {
		return false, nil
	}
	if len(task.Models) == 0 {
		return false, usagef("agent %s has no model", task.Agent.Name)
	}
	if err := checkFiles(task); err != nil {
		return false, err
	}
	if task.Prompt == "" && task.ForkedFrom == "" && len(task.Files) == 0 && !task.Compact && !task.FromClient {
		return false, usagef("the prompt is empty")
	}
	if task.FromClient {
		if err := checkHistory(task); err != nil {
			return false, err
		}
	}
	if err := checkSchema(task.Agent.OutputSchema); err != nil {
		return false, err
	}
	if err := checkClientTools(task.ClientTools); err != nil {
		return false, err
	}
	first, b := &task.Models[0], task.Agent.Budget
	switch {
	case first.Price.Known:
	case task.Share != nil && task.Share.CostUSD > 0:
		return false, unpriced(first, "budget.max_cost_usd of the calling run", "")
	case b.MaxCostUSD > 0 && (b.Mode == "" || b.Mode == toolcrib.BudgetEnforce):
		return false, unpriced(first, "budget.max_cost_usd", ", or set budget.mode to warn")
	}
	return first.Tools == journal.ToolsNone, nil
}

// unpriced refuses a model without a known price if there is a cap on cost, which could not be
// enforced.
func unpriced(m *journal.ModelInfo, bound, or string) error {
	return usagef("model %s has no known price, so %s cannot be kept: give models.NAME.price {input, output} in dollars per 1M tokens%s", m.Ref, bound, or)
}

// checkSecrets refuses a run with a secret in a name, because names are stored and shown unmasked.
func (r *Runner) checkSecrets(start *journal.RunStarted) error {
	names := []any{
		start.Principal, start.Agent.Name, start.Agent.Model, start.Agent.ToolChoice.Name, start.RunTools,
		start.SkillTools, start.WorkerTools,
	}
	for _, m := range start.Models {
		names = append(names, m.Ref, m.ID)
	}
	for _, t := range start.ClientTools {
		names = append(names, t.Name)
	}
	if start.Given != nil {
		names = append(names, start.Given.ID, start.Given.Name)
	}
	if name := r.Mask.SecretIn(names); name != "" {
		return usagef("a name of the request holds the secret %s; names are stored and shown as they are", name)
	}
	return nil
}

// checkDecider refuses a run whose calls nobody could approve.
func (r *Runner) checkDecider(approve Approve, who toolcrib.Principal) error {
	asks := approve == ApproveAll || approve == ApproveAsk && r.Approver != nil && r.Who.User == ""
	if who.User == "" && asks {
		return usagef("Task.Principal.User is empty, but an approval needs a user; name the one whom the run acts for")
	}
	return nil
}

// costCap returns the name of the cap on cost of the user or the session, which cannot be enforced for
// a model without a known price, or "" if none.
func (r *Runner) costCap(task *Task) (bucket string, err error) {
	limits := sessionLimits(&task.Agent, task.Above)
	switch {
	case task.Given != nil:
		return "", nil
	case r.TreeUse == nil && (limits.MaxCostUSD > 0 || limits.MaxTokens > 0):
		return "", usagef("agents.%s.session cannot be kept without Options.TreeUse", task.Agent.Name)
	case limits.MaxCostUSD > 0:
		bucket = "session.max_cost_usd"
	}
	whose := bucket
	if r.Ledger != nil {
		if name := r.Ledger.CapsCost(task.Principal.User); name != "" {
			bucket, whose = name, name+" of "+task.Principal.User
		}
	}
	if first := &task.Models[0]; bucket != "" && !first.Price.Known {
		return "", unpriced(first, whose, "")
	}
	return bucket, nil
}

// checkChoice refuses a tool choice that is not possible with the offer.
func checkChoice(task *Task, offer journal.Offer) error {
	choice := task.Agent.ToolChoice
	if choice.Mode != toolcrib.ChoiceRequired && choice.Mode != toolcrib.ChoiceName || task.Given != nil {
		return nil
	}
	if task.Models[0].Tools == journal.ToolsNone {
		return usagef("tool_choice: model %s does not support tools", task.Agent.Model)
	}
	if choice.Mode == toolcrib.ChoiceRequired && len(offer.Tools) == 0 {
		return usagef("tool_choice: required, but no tool is offered")
	}
	for _, t := range offer.Tools {
		if t.Name == choice.Name || choice.Mode == toolcrib.ChoiceRequired {
			return nil
		}
	}
	return usagef("tool_choice: %q is not offered; `toolcrib tools explain %s` says why", choice.Name, choice.Name)
}

// scopeOf returns the restrictions on the tools of the run: its own, and those of the runs above.
func scopeOf(start *journal.RunStarted) gate.Scope {
	l := start.Agent.Limits
	scope := gate.Scope{
		Agent: start.Agent.Name, AgentTools: start.Agent.Tools, SkillTools: start.SkillTools,
		RunTools: start.RunTools, WorkerTools: start.WorkerTools, HasSkills: len(start.Skills)+len(start.Listed) > 0,
		ReadOnly: start.Agent.ReadOnly, TaintWrites: start.Agent.TaintWrites,
		Unattended:  Approve(start.Approve) == ApproveDeny,
		AllApproved: Approve(start.Approve) == ApproveAll,
		Workspace:   start.Workspace, Depth: start.Depth, MaxDepth: l.MaxDepth,
		MaxCalls: l.MaxCallsPerTurn, MaxRepeats: l.MaxIdenticalCalls,
		Timeout: l.ToolTimeout, TimeoutSet: l.ToolTimeoutSet, MaxBytes: resultBytes(start, 1), Worker: start.Worker,
		FindAbove: start.Agent.FindAbove, ClientTools: start.ClientTools,
	}
	if a := start.Above; a != nil {
		scope.AboveSkills = a.SkillTools
		scope.ReadOnly = scope.ReadOnly || a.ReadOnly
		scope.TaintWrites = stricter(scope.TaintWrites, a.TaintWrites)
		scope.MaxDepth = smaller(scope.MaxDepth, a.MaxDepth)
	}
	return scope
}

// resultBytes bounds the result of each of n calls of a turn. Together they may take about half of the
// model's context, at two bytes per token. More could leave no request that fits, since a turn is not
// condensed before the model has read it.
func resultBytes(start *journal.RunStarted, n int) int {
	l := &start.Agent.Limits
	if len(start.Models) == 0 || start.Models[0].Context <= 0 {
		return l.MaxResultBytes
	}
	if l.MaxCallsPerTurn > 0 {
		n = min(n, l.MaxCallsPerTurn)
	}
	return smaller(l.MaxResultBytes, max(2*start.Models[0].Context/max(n, 1), guard.MinResultBytes))
}

// stricter returns the stricter of two values of taint.writes. Unknown values ask.
func stricter(a, b string) string {
	rank := func(word string) int {
		switch word {
		case gate.TaintAllow:
			return 0
		case gate.TaintDeny:
			return 2
		}
		return 1
	}
	if rank(b) > rank(a) {
		return b
	}
	return a
}
