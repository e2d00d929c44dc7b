package gate

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/internal/ulid"
	"github.com/toolcrib/toolcrib/journal"
)

const (
	minResultBytes = 256 // the smallest bound of a result (limits.max_result_bytes)
	maxNear        = 3   // offered names that are suggested for a wrong one
)

// Judge judges all calls of a turn, and returns the verdicts in the order of the calls. The
// overrides and the current rights of the principal are read once for the turn. If they cannot be
// read, or ctx has ended, every call is refused. Judge runs no tool, but asks each for the plan of
// its call. If a tool panics, its call is refused.
func (g *Gate) Judge(ctx context.Context, who toolcrib.Principal, scope Scope, facts Facts,
	turn []toolcrib.ToolCall,
) []Verdict {
	if g == nil {
		g = &Gate{}
	}
	p, err := g.policyOf(ctx, &who, &scope)
	verdicts := make([]Verdict, len(turn))
	j, writes := new(judgement), false
	for i := range turn {
		if err == nil && ctx.Err() != nil {
			err = ctx.Err()
			refused := Standing{Principal: who, Refused: err.Error()}
			p = (&policy{gate: g}).of(p.tools, &refused, &scope, Overrides{}, err)
		}
		*j = judgement{
			policy: p, ctx: ctx, facts: facts, index: i, asked: &turn[i],
			entry: p.tools.byName[turn[i].Name], verdict: &verdicts[i], afterWrite: writes,
		}
		j.run()
		writes = writes || j.effect.Writes() && !verdicts[i].Refused()
	}
	return verdicts
}

// judgement is the state of judging one call.
type judgement struct {
	*policy
	ctx     context.Context
	facts   Facts
	index   int // index among the calls that are judged
	asked   *toolcrib.ToolCall
	entry   *entry // nil if the tool does not exist
	verdict *Verdict
	// afterWrite reports whether an earlier call of the turn may write.
	afterWrite bool

	// Results of the steps.
	call    toolcrib.Call
	plan    toolcrib.Plan
	effect  toolcrib.Effect
	targets []toolcrib.Target

	ruleAsks, ruleMayDeny, ruleAllows *RuleMatch        // nil if no rule does
	taintAsks                         *journal.Question // nil if the taint does not
}

// step is one question of the judgement. judge returns nil if it does not refuse the call.
type step struct {
	reason toolcrib.Reason
	judge  func(*judgement) *refusal
}

// steps returns the questions in their order. The first refusal is the one reported. No step
// restores what another refused.
func steps() [20]step {
	return [...]step{
		{toolcrib.ReasonParseError, (*judgement).parseStep},
		{toolcrib.ReasonCostCapExceeded, (*judgement).costCapStep},
		{toolcrib.ReasonHopBudgetExhausted, (*judgement).hopStep},
		{toolcrib.ReasonDuplicateCallID, (*judgement).duplicateStep},
		{toolcrib.ReasonTooManyCalls, (*judgement).countStep},
		{toolcrib.ReasonNotPermitted, (*judgement).layersStep}, // reports the layer's own reason
		{toolcrib.ReasonNotOffered, (*judgement).offeredStep},
		{toolcrib.ReasonDepthExceeded, (*judgement).depthStep},
		{toolcrib.ReasonInvalidArguments, (*judgement).argumentsStep},
		{toolcrib.ReasonToolPolicy, (*judgement).planStep},
		{toolcrib.ReasonProtectedPath, (*judgement).targetsStep},
		{toolcrib.ReasonNotPermitted, (*judgement).tokenStep},    // by arguments
		{toolcrib.ReasonSkillAllowlist, (*judgement).skillStep},  // by arguments
		{toolcrib.ReasonWorkerAllowlist, (*judgement).aboveStep}, // by arguments
		{toolcrib.ReasonReadOnlyMode, (*judgement).effectStep},
		{toolcrib.ReasonRuleDenied, (*judgement).ruleStep},
		{toolcrib.ReasonTaintedFlow, (*judgement).taintStep},
		{toolcrib.ReasonRepeatedCall, (*judgement).repeatedStep},
		{toolcrib.ReasonBudgetExhausted, (*judgement).budgetStep},
		{toolcrib.ReasonNeedsConfirmation, (*judgement).confirmStep},
	}
}

// run asks the steps in order and writes the verdict. Until the last step has answered, the verdict
// is its zero value, which refuses.
func (j *judgement) run() {
	v := j.verdict
	v.CallID, v.Tool = j.asked.ID, j.asked.Name
	if j.entry != nil {
		j.effect = j.entry.spec.Effect.OrStrictest()
	}
	all := steps()
	r := j.ask(all[:])
	v.Effect, v.Targets = j.effect, j.targets
	if r != nil {
		v.refused(r)
		return
	}
	if v.Decision == toolcrib.Ask {
		return
	}
	if r := j.count(); r != nil {
		v.refused(r)
		return
	}
	j.allow()
}

// ask asks steps until one refuses; a panic refuses.
func (j *judgement) ask(steps []step) (r *refusal) {
	at := 0
	_, err := contained(j.gate, func() (struct{}, error) {
		for ; at < len(steps) && r == nil; at++ {
			r = steps[at].judge(j)
		}
		return struct{}{}, nil
	})
	var p *panicked
	if errors.As(err, &p) {
		r = refuse("%s could not be judged, so it was refused. Continue without it.", j.name()).
			because("", p.Error())
		r.ref = p.ref
		if steps[at].reason == toolcrib.ReasonNeedsConfirmation {
			r.reason = toolcrib.ReasonToolPolicy // this step calls the plan
		}
		at++
	}
	if r != nil && r.reason == "" {
		r.reason = steps[at-1].reason
	}
	return r
}

// allow writes the verdict that lets the call run, with its permit.
func (j *judgement) allow() {
	e, v := j.entry, j.verdict
	v.Decision = toolcrib.Allow
	v.Untrusted = j.untrusted()
	if j.facts.DryRun {
		j.preview() // says why the call may run
	}
	v.MaxBytes = j.maxBytes()
	timeout := j.timeout()
	v.TimeoutMS = timeout.Milliseconds()
	v.AnsweredBy = e.spec.AnsweredBy
	j.call.MaxBytes = v.MaxBytes
	if e.finder != nil {
		j.call.Offered = offeredSpecs(j.tools, j.facts.Offered)
	}
	v.Permit = Permit{
		plan: j.plan, planned: e.planner != nil, call: j.call, effect: j.effect, targets: j.targets,
		timeout: timeout, maxBytes: v.MaxBytes, untrusted: v.Untrusted, answered: e.spec.AnsweredBy,
	}
}

// timeout returns the first timeout that is set: of the settings, the tool, the run. A tool that
// calls tools or agents itself and sets none may take as long as the run. If a call may ask for its
// own timeout, one that the configuration sets is the maximum.
func (j *judgement) timeout() time.Duration {
	spec := &j.entry.spec
	switch {
	case j.entry.settings.Timeout > 0:
		return j.entry.settings.Timeout
	case spec.TimeoutAsked && j.scope.TimeoutSet && j.scope.Timeout > 0:
		return min(spec.Timeout, j.scope.Timeout)
	case spec.Timeout > 0:
		return spec.Timeout
	case j.entry.nested():
		return 0
	case j.scope.Timeout > 0:
		return j.scope.Timeout
	}
	return toolcrib.DefaultLimits().ToolTimeout
}

// maxBytes returns the smallest bound that is set.
func (j *judgement) maxBytes() int {
	smallest := toolcrib.DefaultLimits().MaxResultBytes
	if j.scope.MaxBytes > 0 {
		smallest = j.scope.MaxBytes
	}
	for _, bound := range []int{j.entry.spec.MaxResultBytes, j.entry.settings.MaxResultBytes} {
		if bound > 0 {
			smallest = min(smallest, bound)
		}
	}
	return max(smallest, minResultBytes)
}

// name returns the tool's name as it may be repeated in a text.
func (j *judgement) name() string {
	if j.asked.ProviderName != "" {
		return shown(j.asked.ProviderName)
	}
	return shown(j.asked.Name)
}

func (j *judgement) parseStep() *refusal {
	if j.asked.Cut {
		return refuse("the reply was cut inside this call, so it was not run. Call again, with shorter arguments.")
	}
	if j.asked.Malformed {
		return refuse("this call cannot be read, so it was not run: %s. Write it again.", j.asked.Problem)
	}
	return nil
}

func (j *judgement) duplicateStep() *refusal {
	if j.asked.Duplicate {
		return refuse("another call of this turn has the same id. Give each call its own id.")
	}
	return nil
}

func (j *judgement) countStep() *refusal {
	if j.place() < j.scope.MaxCalls {
		return nil
	}
	return refuse("at most %s can run in one turn. Call again in the next turn.",
		guard.Count(max(0, j.scope.MaxCalls), "call")).
		at(j.gate.scopePosition(j.scope, "agents.AGENT.limits.max_calls_per_turn"))
}

func (j *judgement) layersStep() *refusal {
	a, no := j.gate.firstRefusal(j.query(j.asked.Name, j.entry))
	if !no {
		return nil
	}
	if j.scope.Worker != nil {
		return j.notForWorkers(&a)
	}
	return &refusal{
		reason: a.Layer, message: j.layerMessage(a.Layer), hint: a.hint,
		position: a.Position, detail: a.Detail,
	}
}

// layerMessage returns the text of a layer's refusal for the model. It reveals no more than the
// reason does, and nothing about the layers after it.
func (j *judgement) layerMessage(reason toolcrib.Reason) string {
	name := j.name()
	switch reason {
	case toolcrib.ReasonNotRegistered:
		text := toolcrib.Failf(toolcrib.ToolNotFound, "%s", name).Error()
		offered := slices.DeleteFunc(slices.Sorted(maps.Keys(j.facts.Offered)), func(name string) bool {
			return !j.facts.Offered[name] || name == j.asked.Name
		})
		if near := guard.NearNames(j.asked.Name, offered, maxNear); len(near) > 0 {
			text += ". Offered are: " + strings.Join(near, ", ")
		}
		return text
	case toolcrib.ReasonToolDisabled:
		return name + " is not available. Continue without it."
	case toolcrib.ReasonRequiresAdmin, toolcrib.ReasonNotPermitted:
		return name + " is not available to this user. Continue without it."
	}
	what := map[toolcrib.Reason]string{
		toolcrib.ReasonAgentAllowlist:  "is not among the tools of this agent",
		toolcrib.ReasonSkillAllowlist:  "is not among the tools that the skills of this run allow",
		toolcrib.ReasonRunAllowlist:    "is not among the tools of this run",
		toolcrib.ReasonWorkerAllowlist: "was not passed on to this agent",
	}[reason]
	return name + " " + cmp.Or(what, "is not available in this run") + ". Use the tools that you were offered."
}

func (j *judgement) offeredStep() *refusal {
	if j.facts.Offered[j.asked.Name] {
		return nil
	}
	return refuse("%s was not offered in this request. Use the tools that you were offered.", j.name())
}

func (j *judgement) depthStep() *refusal {
	if !j.entry.tooDeep(j.scope) {
		return nil
	}
	return refuse("agents and tools may call each other %d deep, and this is the end. Do the work yourself.",
		max(0, j.scope.MaxDepth)).at(j.gate.scopePosition(j.scope, "agents.AGENT.limits.max_depth"))
}

func (j *judgement) repeatedStep() *refusal {
	s := j.scope
	if s.MaxRepeats <= 0 || j.facts.Repeated == nil {
		return nil
	}
	times := j.facts.Repeated(j.call.Name, j.call.Arguments)
	if times < s.MaxRepeats {
		return nil
	}
	return refuse("this very call had the same result %s in a row. Try something else, or answer with what you have.",
		guard.Count(times, "time")).at(j.gate.scopePosition(s, "agents.AGENT.limits.max_identical_calls"))
}

// scopePosition returns the position of keyPath in the configuration. AGENT in keyPath means the
// name of the run's agent.
func (g *Gate) scopePosition(s *Scope, keyPath string) string {
	if g.options.Positions == nil || keyPath == "" {
		return ""
	}
	if before, after, ok := strings.Cut(keyPath, ".AGENT."); ok {
		if s == nil || s.Agent == "" {
			return ""
		}
		keyPath = before + "." + s.Agent + "." + after
	}
	return g.position(keyPath)
}

// Refused reports whether the call must not run.
func (v Verdict) Refused() bool {
	return v.Decision != toolcrib.Ask && (v.Decision != toolcrib.Allow || !v.Permit.Valid())
}

// refusal is a step's refusal of a call; nil means that the step does not refuse it.
type refusal struct {
	reason      toolcrib.Reason // if "", the reason of the step
	message     string          // for the model
	hint        string          // for the model and its operator
	rule        string
	schemaError json.RawMessage
	position    string // for operators
	detail      string // for operators
	ref         string // reference of a panic in the log
}

func refuse(format string, args ...any) *refusal {
	return &refusal{message: fmt.Sprintf(format, args...)}
}

// at sets the position of the decision in the configuration.
func (r *refusal) at(position string) *refusal {
	r.position = position
	return r
}

// because sets a reason other than that of the step, and the detail for operators. If reason is "",
// the step's applies.
func (r *refusal) because(reason toolcrib.Reason, detail string) *refusal {
	r.reason, r.detail = reason, detail
	return r
}

// refused writes a refusal into a verdict. It cleans the texts that people also read;
// [guard.Refusal] cleans the rest.
func (v *Verdict) refused(r *refusal) {
	v.Decision, v.Reason = toolcrib.Refuse, r.reason
	v.Message = guard.Cut(guard.Clean(r.message), maxMessageBytes)
	v.OperatorHint, v.Rule = guard.Cut(guard.Clean(r.hint), maxMessageBytes), r.rule
	v.SchemaError = r.schemaError
	v.Position, v.Detail, v.Ref = r.position, guard.Cut(r.detail, maxDetailBytes), r.ref
	v.Permit, v.Preview, v.Approval, v.NoEffect = Permit{}, nil, "", false
	v.Questions, v.Changed, v.Binding = nil, "", nil
	v.Content = guard.Refusal{
		Tool: shown(v.Tool), Reason: v.Reason, Message: v.Message,
		OperatorHint: v.OperatorHint, Rule: v.Rule, SchemaError: v.SchemaError, Ref: v.Ref,
	}.JSON()
}

// encode returns v as JSON without HTML escapes. Its callers pass only values that can be encoded.
func encode(v any) json.RawMessage {
	raw, err := journal.EncodeJSON(v)
	if err != nil {
		return json.RawMessage("null")
	}
	return raw
}

// Bounds of texts that the gate keeps or shows.
const (
	maxMessageBytes = 2 << 10 // message of a refusal, for the model
	maxDetailBytes  = 4 << 10 // detail, for operators
	maxShownName    = 128     // name written by a model
)

// contain is [guard.Contain] for functions that return only an error.
func contain(f func() error) error {
	_, err := guard.Contain(func() (struct{}, error) { return struct{}{}, f() })
	return err
}

// contained is [guard.Contain], but logs a panic under a reference, which replaces the panic in the
// error.
func contained[T any](g *Gate, f func() (T, error)) (v T, err error) {
	v, err = guard.Contain(f)
	var p *guard.Panic
	if !errors.As(err, &p) {
		return v, err
	}
	ref := ulid.New("ref_", time.Now())
	if g.options.Panicked != nil {
		g.options.Panicked(ref, p.Error()+guard.Stack(p))
	}
	return v, &panicked{ref}
}

// panicked is a reference to a panic that was logged.
type panicked struct{ ref string }

func (p *panicked) Error() string { return "it panicked; the log has more under " + p.ref }

// shown returns a name as it may be repeated in a text. The text is cleaned as a whole with the
// verdict.
func shown(name string) string { return guard.Cut(name, maxShownName) }
