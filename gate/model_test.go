package gate_test

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/journal"
)

// What the gate must answer, written down a second time, over the
// plain data of a world and without any of the gate's code. Each question is
// answered by itself, whatever the others say; the reason that is reported is then
// the first in the order of modelQuestions.

// modelMatch is the glob of lists: * any characters, ? one.
func modelMatch(pattern, name string) bool {
	if len(pattern) > 256 || !regexp.MustCompile(`^[A-Za-z0-9_*?-]+$`).MatchString(pattern) {
		return false
	}
	return modelGlob(pattern, name)
}

func modelGlob(pattern, name string) bool {
	switch {
	case pattern == "":
		return name == ""
	case pattern[0] == '*':
		return modelGlob(pattern[1:], name) || name != "" && modelGlob(pattern, name[1:])
	}
	return name != "" && (pattern[0] == '?' || pattern[0] == name[0]) && modelGlob(pattern[1:], name[1:])
}

// model reports whether a condition holds for a call, or fails.
func (c condition) model(arguments string, effect toolcrib.Effect, who *toolcrib.Principal, depth int, tainted bool) (holds, failed bool) {
	var args map[string]any
	_ = json.Unmarshal([]byte(arguments), &args)
	n, has := args["n"]
	number, isNumber := n.(float64)
	switch c {
	case condAlways:
		return true, false
	case condOne:
		return has && isNumber && number == 1, !has
	case condHas:
		return has, false
	case condAbove:
		return has && isNumber && number > 1, !has || !isNumber
	case condDivides:
		return false, true
	case condReads:
		return effect == toolcrib.EffectReadOnly, false
	case condTainted:
		return tainted, false
	case condAdmin:
		return who.Admin, false
	case condDeep:
		return depth > 0, false
	case condAlice:
		return who.User == "alice", false
	}
	return false, false
}

// modelCall is one call of a world with what there is to know about it.
type modelCall struct {
	w     *world
	i     int
	call  toolcrib.ToolCall
	tool  *worldTool // nil = there is none
	who   toolcrib.Principal
	token *worldToken
	// lost says that the principal's rights of today are not known.
	lost bool
	left int // calls of the token

	denies, asks, allows, failed bool // rules
	asksBy                       string
}

// modelStanding returns the principal and the token for which the calls of a world are judged.
func (w *world) modelStanding() (who toolcrib.Principal, token *worldToken, lost bool) {
	p := w.people
	switch {
	case w.overFault != noFault:
		return w.who, nil, true // nothing is known, and everything is off
	case p.kind == peopleNone && w.who.Token == "":
		return w.who, nil, false
	case p.kind == peopleNone, p.kind == peopleRefused, p.kind == peopleOther, p.kind == peopleError, p.kind == peoplePanic,
		p.token == nil && w.who.Token != "":
		return toolcrib.Principal{User: w.who.User, Grants: []string{}}, p.token, true
	case p.kind == peopleToday:
		return p.today, p.token, false
	}
	return w.who, p.token, false
}

// modelExpectation is what the gate must answer to one call.
type modelExpectation struct {
	decision toolcrib.Decision
	reason   toolcrib.Reason
	against  []toolcrib.Reason // all that would refuse, in their order
	questions
}

// questions are what a person would be asked about a call.
type questions []string

// model is what the gate must answer to the turn of a world.
func (w *world) model() []modelExpectation {
	who, token, lost := w.modelStanding()
	left := 0
	if token != nil {
		left = token.room
	}
	var all []modelExpectation
	for i, c := range w.turn {
		m := modelCall{w: w, i: i, call: c, tool: w.tool(c.Name), who: who, token: token, lost: lost, left: left}
		m.judgeRules()
		x := m.expect()
		if x.decision == toolcrib.Allow && token != nil && !w.facts.DryRun && !w.facts.Counted[c.ID] {
			if left <= 0 || token.take != noFault {
				x.decision, x.reason = toolcrib.Refuse, toolcrib.ReasonBudgetExhausted
			} else {
				left--
			}
		}
		all = append(all, x)
	}
	return all
}

// expect asks everything, and says what follows.
func (m *modelCall) expect() modelExpectation {
	var x modelExpectation
	for _, q := range modelQuestions() {
		if m.tool == nil && q.needsTool {
			continue
		}
		if q.refuses(m) {
			x.against = append(x.against, q.reason)
		}
	}
	if m.tool != nil {
		x.questions = m.questions()
	}
	decided := m.w.facts.Decided[m.call.ID]
	gravest := toolcrib.ReasonNeedsConfirmation
	if x.tainted() {
		gravest = toolcrib.ReasonTaintedFlow
	}
	kind := m.w.answered[m.call.ID]
	approved := decided.Decision == journal.DecisionApprove && (kind == answerAll || kind == answerUntaint && !x.tainted())
	switch {
	case len(x.against) > 0:
		x.reason = x.against[0]
	case decided.Decision == journal.DecisionDeny:
		x.reason = toolcrib.ReasonApprovalDenied
	case m.w.scope.Unattended && m.tool.spec.AnsweredBy == "person":
		x.reason = toolcrib.ReasonNeedsConfirmation
	case len(x.questions) == 0, approved:
		x.decision = toolcrib.Allow
	default:
		x.reason = gravest
		if !m.w.scope.Unattended {
			x.decision = toolcrib.Ask
		}
	}
	return x
}

func (q questions) tainted() bool {
	return slices.ContainsFunc(q, func(s string) bool { return strings.HasPrefix(s, "taint") })
}

type modelQuestion struct {
	reason    toolcrib.Reason
	needsTool bool
	refuses   func(*modelCall) bool
}

// modelQuestions are what can refuse, in the gate's order. What a token and a
// skill say about arguments can only be asked once the arguments are good.
func modelQuestions() []modelQuestion {
	list := func(of func(gate.Scope) []string, entry func(string) string) func(*modelCall) bool {
		return func(m *modelCall) bool {
			patterns := of(m.w.scope)
			return patterns != nil && !slices.ContainsFunc(patterns, func(p string) bool { return modelMatch(entry(p), m.call.Name) })
		}
	}
	plain := func(p string) string { return p }
	entry := func(p string) string { return strings.Split(p, "(")[0] }
	return []modelQuestion{
		{toolcrib.ReasonParseError, false, func(m *modelCall) bool { return m.call.Cut || m.call.Malformed }},
		{toolcrib.ReasonCostCapExceeded, false, func(m *modelCall) bool {
			w := m.w.scope.Worker
			return w != nil && w.CostCapMode == "enforce" && w.CostCapUSD > 0 && m.w.facts.SpentUSD > w.CostCapUSD
		}},
		{toolcrib.ReasonHopBudgetExhausted, false, func(m *modelCall) bool {
			w := m.w.scope.Worker
			return w != nil && w.Hops > 0 && m.w.facts.Hops+m.place() >= w.Hops
		}},
		{toolcrib.ReasonDuplicateCallID, false, func(m *modelCall) bool { return m.call.Duplicate }},
		{toolcrib.ReasonTooManyCalls, false, func(m *modelCall) bool { return m.place() >= m.w.scope.MaxCalls }},
		{toolcrib.ReasonNotRegistered, false, func(m *modelCall) bool { return m.tool == nil }},
		{toolcrib.ReasonToolDisabled, true, (*modelCall).off},
		{toolcrib.ReasonRequiresAdmin, true, func(m *modelCall) bool {
			return m.tool.spec.RequiresAdmin && (m.who.User == "" || !m.who.Admin)
		}},
		{toolcrib.ReasonNotPermitted, true, (*modelCall).notPermitted},
		{toolcrib.ReasonAgentAllowlist, true, list(func(s gate.Scope) []string { return s.AgentTools }, plain)},
		{toolcrib.ReasonSkillAllowlist, true, func(m *modelCall) bool {
			return m.call.Name == "read_skill" && !m.w.scope.HasSkills ||
				list(func(s gate.Scope) []string { return s.SkillTools }, entry)(m)
		}},
		{toolcrib.ReasonRunAllowlist, true, list(func(s gate.Scope) []string { return s.RunTools }, plain)},
		{toolcrib.ReasonWorkerAllowlist, true, func(m *modelCall) bool {
			return list(func(s gate.Scope) []string { return s.WorkerTools }, plain)(m) ||
				slices.ContainsFunc(m.w.scope.AboveSkills, func(above []string) bool {
					return list(func(gate.Scope) []string { return above }, entry)(m)
				})
		}},
		{toolcrib.ReasonNotOffered, true, func(m *modelCall) bool { return !m.w.facts.Offered[m.call.Name] }},
		{toolcrib.ReasonDepthExceeded, true, func(m *modelCall) bool {
			room := m.w.scope.MaxDepth - m.w.scope.Depth
			return room < 0 || (m.tool.spec.Nested || m.byAgent()) && room == 0
		}},
		{toolcrib.ReasonInvalidArguments, true, (*modelCall).badArguments},
		{toolcrib.ReasonToolPolicy, true, (*modelCall).notAdmitted},
		{toolcrib.ReasonToolPolicy, true, func(m *modelCall) bool { // the plan panics
			return !m.tool.plain && (m.tool.target == targetPanic || m.tool.effect == effectPanic)
		}},
		{toolcrib.ReasonProtectedPath, true, (*modelCall).protected},
		{toolcrib.ReasonNotPermitted, true, func(m *modelCall) bool {
			return m.token != nil && (m.token.covers != noFault || !slices.Contains(m.token.arguments, string(m.call.Arguments))) || m.agentsRefused()
		}},
		{toolcrib.ReasonSkillAllowlist, true, func(m *modelCall) bool { return m.skillsRefuse(m.w.scope.SkillTools) }},
		{toolcrib.ReasonWorkerAllowlist, true, func(m *modelCall) bool {
			return slices.ContainsFunc(m.w.scope.AboveSkills, m.skillsRefuse)
		}},
		{toolcrib.ReasonReadOnlyMode, true, func(m *modelCall) bool { return m.w.scope.ReadOnly && m.effect().Writes() }},
		{toolcrib.ReasonRuleDenied, true, func(m *modelCall) bool { return m.w.ruleFault != noFault || m.denies || m.failed }},
		{toolcrib.ReasonTaintedFlow, true, func(m *modelCall) bool {
			return len(m.w.facts.Taint) > 0 && (m.effect().Writes() || m.tool.spec.Sink) && m.w.scope.TaintWrites == gate.TaintDeny
		}},
		{toolcrib.ReasonRepeatedCall, true, func(m *modelCall) bool {
			most := m.w.scope.MaxRepeats
			return most > 0 && (m.w.repeats.times == -2 || m.w.repeats.times >= most)
		}},
		{toolcrib.ReasonBudgetExhausted, true, func(m *modelCall) bool {
			counts := m.token != nil && !m.w.facts.Counted[m.call.ID]
			return counts && (m.left <= 0 || m.token.roomFault != noFault) || m.byAgent() && m.noShare()
		}},
	}
}

// modelLayers are those that are about the tool, whatever the call.
func modelLayers() []modelQuestion {
	all := modelQuestions()
	from := slices.IndexFunc(all, func(q modelQuestion) bool { return q.reason == toolcrib.ReasonToolDisabled })
	to := slices.IndexFunc(all, func(q modelQuestion) bool { return q.reason == toolcrib.ReasonNotOffered })
	return all[from:to]
}

func (m *modelCall) off() bool {
	if m.w.overFault != noFault || m.tool.broken {
		return true
	}
	if on, told := m.w.over.Groups[m.tool.spec.Group]; told && !on {
		return true
	}
	if on, told := m.w.over.Tools[m.call.Name]; told {
		return !on
	}
	return !m.tool.spec.EnabledByDefault
}

func (m *modelCall) notPermitted() bool {
	if m.lost {
		return true
	}
	if k := m.token; k != nil {
		if k.offers != noFault || !slices.Contains(k.agents, m.w.scope.Agent) || !slices.Contains(k.tools, m.call.Name) {
			return true
		}
	}
	if m.who.Admin && m.who.User != "" || m.who.Grants == nil {
		return false
	}
	if !m.granted(m.w.scope.Agent) {
		return true
	}
	group := m.tool.spec.Group
	return !slices.ContainsFunc(m.who.Grants, func(grant string) bool {
		switch {
		case strings.Trim(grant, "*?") == "", strings.HasPrefix(grant, "agent:"):
			return false
		case strings.HasPrefix(grant, "sql:"):
			return m.call.Name == "describe_tables"
		}
		return modelMatch(grant, m.call.Name) || group != "" && (grant == group || modelMatch(grant, group))
	})
}

// granted reports whether the principal may use an agent.
func (m *modelCall) granted(agent string) bool {
	if m.who.Admin && m.who.User != "" {
		return true
	}
	named := false
	for _, grant := range m.who.Grants {
		pattern, ofAgent := strings.CutPrefix(grant, "agent:")
		named = named || ofAgent
		if ofAgent && strings.Trim(pattern, "*?") != "" && modelMatch(pattern, agent) {
			return true
		}
	}
	return !named
}

func (m *modelCall) byAgent() bool { return m.tool.spec.AnsweredBy == "agent" }

// agentsRefused reports whether the call would let an agent work that may not be used.
func (m *modelCall) agentsRefused() bool {
	var agents []string
	if !m.tool.plain && m.tool.target == targetHelper {
		agents = append(agents, "helper")
	}
	if !m.tool.plain && m.tool.target == targetSecret {
		agents = append(agents, "secret")
	}
	if m.byAgent() {
		var args map[string]any
		_ = json.Unmarshal(m.call.Arguments, &args) // what cannot be read is empty
		name, _ := args["agent"].(string)
		agents = append(agents, name)
	}
	return slices.ContainsFunc(agents, func(name string) bool {
		return !m.granted(name) || m.token != nil && !slices.Contains(m.token.agents, name)
	})
}

func (m *modelCall) noShare() bool {
	switch m.w.share {
	case shareNoBudget, shareLeft:
		return false
	case shareForOne:
		return m.call.ID != "call_0"
	}
	return true
}

// place is where the call is in its turn.
func (m *modelCall) place() int {
	if at, told := m.w.facts.Place[m.call.ID]; told && at >= 0 {
		return at
	}
	return m.i
}

func (m *modelCall) badArguments() bool {
	if m.call.Broken != "" || m.call.Problem != "" || m.tool.broken {
		return true
	}
	// What is an object without a key twice; whether n is an integer; whether it is a
	// subtask.
	known := map[string][3]bool{
		`{}`: {true}, `{"n":1}`: {true, true}, `{"n":2}`: {true, true}, `{"n":"x"}`: {true},
		`{"schema":{"type":7}}`: {true}, `{"schema":{"type":"string"}}`: {true},
		`{"agent":"helper","n":1,"task":"t"}`: {true, true, true}, `{"agent":"secret","n":2,"task":"t"}`: {true, true, true},
		`{"agent":"helper","task":"t"}`: {true, false, true}, `{"AGENT":"helper","n":1,"task":"t"}`: {true, true},
		`{"agent":"helper","n":1,"task":" "}`: {true, true}, `{"agent":" ","n":1,"task":"t"}`: {true, true},
		`{"agent":"helper","n":1,"task":"t","tools":"*"}`: {true, true}, `{"agent":"helper","n":1,"task":"t","tools":["*"]}`: {true, true, true},
	}[string(m.call.Arguments)]
	return !known[0] || len(m.tool.spec.Parameters) > 0 && !known[1] || m.byAgent() && !known[2] ||
		m.tool.spec.AnsweredBy == "person" && string(m.call.Arguments) == `{"schema":{"type":7}}`
}

func (m *modelCall) notAdmitted() bool {
	switch {
	case m.tool.plain, m.tool.admit == admitAll:
		return false
	case m.tool.admit == admitOne:
		return string(m.call.Arguments) != `{"n":1}`
	}
	return true
}

func (m *modelCall) protected() bool {
	if m.tool.plain {
		return false
	}
	switch m.tool.target {
	case targetRelative, targetNUL, targetMany:
		return true
	case targetGitWrite, targetGitFolded, targetData, targetSettings:
		return m.w.protects
	}
	return false
}

// skillsRefuse reports whether a list of skills' entries refuses the arguments.
func (m *modelCall) skillsRefuse(entries []string) bool {
	if entries == nil {
		return false
	}
	byPattern := false
	for _, entry := range entries {
		name, pattern, patterned := strings.Cut(entry, "(")
		if !modelMatch(name, m.call.Name) {
			continue
		}
		if !patterned {
			return false
		}
		byPattern = byPattern || pattern == "a:*)"
	}
	return m.w.skillArgs != skillYes && !(m.w.skillArgs == skillByEntry && byPattern)
}

func (m *modelCall) effect() toolcrib.Effect {
	effect := m.tool.spec.Effect
	if !m.tool.plain {
		switch m.tool.effect {
		case effectReads:
			effect = toolcrib.EffectReadOnly
		case effectByArguments:
			effect = toolcrib.EffectIdempotentWrite
			if string(m.call.Arguments) == `{"n":1}` {
				effect = toolcrib.EffectReadOnly
			}
		case effectWeird, effectPanic:
			effect = ""
		}
	}
	if effect == "" {
		effect = toolcrib.EffectNonIdempotentWrite
	}
	return effect
}

func (m *modelCall) judgeRules() {
	if m.tool == nil {
		return
	}
	for _, r := range m.w.rules {
		if r.tools != nil && !slices.ContainsFunc(r.tools, func(p string) bool { return modelMatch(p, m.call.Name) }) {
			continue
		}
		holds, failed := r.cond.model(string(m.call.Arguments), m.effect(), &m.who, m.w.scope.Depth, len(m.w.facts.Taint) > 0)
		m.failed = m.failed || failed
		if !holds {
			continue
		}
		switch r.then {
		case gate.RuleAllow:
			m.allows = true
		case gate.RuleAsk:
			if !m.asks {
				m.asks, m.asksBy = true, r.name
			}
		default:
			m.denies = true
		}
	}
}

// questions are what a person would be asked, each with all that it is about.
func (m *modelCall) questions() questions {
	var q questions
	w, mode := m.w.scope.TaintWrites, m.w.confirm
	if len(m.w.facts.Taint) > 0 && (m.effect().Writes() || m.tool.spec.Sink) && w != gate.TaintDeny && w != gate.TaintAllow {
		q = append(q, fmt.Sprint("taint ", m.w.facts.Taint, m.effect()))
	}
	if m.asks {
		q = append(q, "rule "+m.asksBy)
	}
	own := m.w.settings[m.call.Name].Confirm
	if own != "" {
		mode = own
	}
	asks := mode != gate.ConfirmNever && (mode == gate.ConfirmAlways || m.effect().Writes())
	if asks && (own == gate.ConfirmAlways || !m.allows && !m.remembered()) {
		q = append(q, fmt.Sprint("confirm ", own, mode, m.effect()))
	}
	return q
}

// remembered reports whether the call was approved once and for all, by another approval than
// the one that decides it now.
func (m *modelCall) remembered() bool {
	worse := []toolcrib.Effect{toolcrib.EffectReadOnly, toolcrib.EffectIdempotentWrite, toolcrib.EffectNonIdempotentWrite, ""}
	return slices.ContainsFunc(m.w.facts.Remembered, func(r journal.Remembered) bool {
		if r.Tool != m.call.Name || r.Source != m.w.sourceOf(r.Tool) {
			return false
		}
		if r.Arguments != nil {
			return string(r.Arguments) == string(m.call.Arguments)
		}
		return slices.Index(worse, m.effect()) <= slices.Index(worse, r.Effect)
	})
}
