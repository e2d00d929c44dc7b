package gate_test

import (
	"fmt"
	"maps"
	"math/bits"
	"slices"

	"pgregory.net/rapid"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/journal"
)

// world is everything that a decision depends on, as plain data: the fakes of
// world_fakes_test.go make a gate of it, and model_test.go says independently what
// the gate must answer.
type world struct {
	tools     []worldTool
	over      gate.Overrides
	overFault fault // of the availability
	confirm   gate.ConfirmMode
	settings  map[string]gate.ToolSettings
	protects  bool
	who       toolcrib.Principal // as the run recorded it
	people    worldPeople
	rules     []worldRule
	realRules bool // by CEL, else by a fake
	ruleFault fault
	skillArgs skillAnswer
	scope     gate.Scope
	facts     gate.Facts
	repeats   repeats
	share     shareKind
	turn      []toolcrib.ToolCall
	answered  map[string]answerKind // of the calls that were approved, what the person was asked
}

// answerKind says which questions of a call a person was asked.
type answerKind int

const (
	answerAll     answerKind = iota
	answerUntaint            // all but those about untrusted data
	answerNone
	answerKinds
)

// fault is how a part that the gate asks fails.
type fault int

const (
	noFault fault = iota
	errorFault
	panicFault
)

type worldTool struct {
	spec    toolcrib.Spec
	plain   bool // none of the optional interfaces
	admit   admitKind
	effect  effectKind
	target  targetKind
	preview fault
	broken  bool // a schema that cannot be read; from elsewhere
}

type admitKind int

const (
	admitAll admitKind = iota
	admitOne           // {"n":1} only
	admitForModel
	admitFault
	admitPanic
	admitKinds
)

type effectKind int

const (
	effectOfSpec effectKind = iota
	effectReads
	effectByArguments // {"n":1} reads, everything else writes
	effectWeird
	effectPanic
	effectKinds
)

type targetKind int

const (
	targetNone targetKind = iota
	targetHost
	targetGitRead
	targetGitWrite
	targetGitFolded
	targetData
	targetDataExcept
	targetSettings
	targetRelative
	targetNUL
	targetMany
	targetPanic
	targetHelper // an agent
	targetSecret // another one
	targetKinds
)

type skillAnswer int

const (
	skillNobody skillAnswer = iota
	skillYes
	skillNo
	skillError
	skillPanic
	skillByEntry // yes if an entry for the tool has the pattern a:*
	skillAnswers
)

// shareKind is what is left of a run's budget for other agents.
type shareKind int

const (
	shareNoBudget shareKind = iota
	shareLeft
	shareGone
	shareForOne // for the first call of the turn only
	sharePanic
	shareKinds
)

type repeats struct {
	times int // -1 = Repeated is nil, -2 = it panics
}

// worldPeople is what is known of the principal today.
type worldPeople struct {
	kind  peopleKind
	today toolcrib.Principal // for peopleToday
	token *worldToken
}

type peopleKind int

const (
	peopleNone peopleKind = iota // no gate.People
	peopleSame
	peopleToday
	peopleRefused
	peopleOther // the answer is about somebody else, an administrator
	peopleError
	peoplePanic
	peopleKinds
)

// worldToken is the scope of an access token.
type worldToken struct {
	agents, tools []string
	arguments     []string
	room          int
	offers        fault
	covers        fault
	roomFault     fault
	take          fault
}

type worldRule struct {
	name  string
	tools []string // nil = every one
	cond  condition
	then  gate.RuleThen
}

// condition is what a rule looks at; conditionTexts has it in CEL.
type condition int

const (
	condAlways condition = iota
	condNever
	condOne      // n is 1; an error without n
	condHas      // there is an n
	condAbove    // n is above 1; an error without n, or if n is no number
	condDivides  // an error, whatever the arguments
	condReads    // the effect is read_only
	condTainted  // from here on: looks at whom or what the run is
	condAdmin    //
	condDeep     //
	condAlice    //
	condKinds    //
	condOfCaller = condTainted
)

func conditionTexts() map[condition]string {
	return map[condition]string{
		condAlways: "", condNever: "false", condOne: "args.n == 1", condHas: "has(args.n)", condAbove: "args.n > 1",
		condDivides: "1 / (size(tool) - size(tool)) > 0", condReads: `effect == "read_only"`, condTainted: "tainted",
		condAdmin: "admin", condDeep: "depth > 0", condAlice: `user == "alice"`,
	}
}

func worldNames() []string {
	return []string{"read_file", "read_dir", "write_file", "gh__get", "gh__put", "spawn", "read_skill", "describe_tables", "ask_user"}
}

func worldGroups() []string { return []string{"files", "gh", "odd one"} }

func worldPatterns() []string {
	return append(worldNames(), "*", "read_*", "gh__*", "*_fi?e", "ghost", "[x", "", "re\u0430d_file", "READ_FILE", "read_file,gh__get", "??????????*")
}

func worldArguments() []string {
	return []string{
		`{}`, `{"n":1}`, `{"n":1}`, `{"n":2}`, `{"n":"x"}`, `{"n":1,"n":2}`, `{"N":1,"n":2}`, `[1]`, `{"n":`,
		`{"schema":{"type":7}}`, `{"schema":{"type":"string"}}`,
		`{"agent":"helper","n":1,"task":"t"}`, `{"agent":"secret","n":2,"task":"t"}`, `{"agent":"helper","task":"t"}`,
		`{"AGENT":"helper","n":1,"task":"t"}`, `{"agent":"helper","n":1,"task":" "}`, `{"agent":" ","n":1,"task":"t"}`,
		`{"agent":"helper","n":1,"task":"t","tools":"*"}`, `{"agent":"helper","n":1,"task":"t","tools":["*"]}`,
	}
}

// upTo draws a number below n, each as likely as the others: the library's own
// ranges prefer small ones, so that nearly every world would be out of the ordinary
// somewhere. Zero, the ordinary, is what a failure shrinks to.
func upTo(t *rapid.T, n int, label string) int {
	return rapid.Custom(func(t *rapid.T) int {
		v := 0
		for range bits.Len(uint(n)) + 2 {
			v <<= 1
			if rapid.Bool().Draw(t, "bit") {
				v |= 1
			}
		}
		return v % n
	}).Draw(t, label)
}

func oneIn(t *rapid.T, n int, label string) bool { return upTo(t, n, label) == n-1 }

func pick[E any](t *rapid.T, label string, from ...E) E { return from[upTo(t, len(from), label)] }

func drawWorld(t *rapid.T) world {
	w := world{
		over:     gate.Overrides{Tools: drawSwitches(t, "tools", worldNames()), Groups: drawSwitches(t, "groups", worldGroups())},
		confirm:  pick(t, "confirm", "", gate.ConfirmNever, gate.ConfirmWrites, gate.ConfirmAlways),
		who:      drawPrincipal(t),
		settings: map[string]gate.ToolSettings{},
		protects: rapid.Bool().Draw(t, "protects"),
	}
	if oneIn(t, 24, "over fault?") {
		w.overFault = pick(t, "over fault", errorFault, panicFault)
	}
	for _, name := range worldNames() {
		if !oneIn(t, 20, "unregistered") {
			w.tools = append(w.tools, drawTool(t, name))
		}
		if oneIn(t, 5, "settings?") {
			w.settings[name] = gate.ToolSettings{Confirm: pick(t, "setting", gate.ConfirmNever, gate.ConfirmWrites, gate.ConfirmAlways), Untrusted: rapid.Bool().Draw(t, "untrusted")}
		}
	}
	w.people = drawPeople(t, w.who)
	if w.people.token != nil && !oneIn(t, 10, "scope without a token") || oneIn(t, 24, "token without people") {
		w.who.Token = "tok_1"
	}
	w.rules, w.realRules = drawRules(t), rapid.Bool().Draw(t, "real rules")
	if oneIn(t, 24, "rule fault") {
		w.ruleFault = panicFault
	}
	w.skillArgs = skillAnswer(upTo(t, int(skillAnswers), "skill arguments"))
	w.scope = drawScope(t)
	w.repeats.times = pick(t, "repeated", 0, 0, 0, 0, 1, 2, -1)
	if oneIn(t, 20, "repeated panics") {
		w.repeats.times = -2
	}
	w.drawFacts(t)
	w.calm(t)
	return w
}

// calm makes most of a world ordinary again, so that about half of all calls come
// as far as the last step, and those that do not have few reasons.
func (w *world) calm(t *rapid.T) {
	ofTools := func(change func(*worldTool)) func() {
		return func() {
			for i := range w.tools {
				change(&w.tools[i])
			}
		}
	}
	for _, ordinary := range []func(){
		func() {
			for i := range w.turn {
				w.turn[i].Cut, w.turn[i].Malformed, w.turn[i].Duplicate, w.turn[i].Broken, w.turn[i].Problem = false, false, false, "", ""
			}
		},
		func() {
			for i := range w.turn {
				w.turn[i].Arguments = []byte(pick(t, "good arguments", `{"n":1}`, `{"n":2}`))
				if x := w.tool(w.turn[i].Name); x != nil && x.spec.AnsweredBy == toolcrib.ByAgent {
					w.turn[i].Arguments = []byte(pick(t, "good subtask", `{"agent":"helper","n":1,"task":"t"}`, `{"agent":"secret","n":2,"task":"t"}`))
				}
			}
		},
		func() { w.scope.MaxCalls = 8 },
		func() { w.scope.Depth, w.scope.MaxDepth = 0, 3 },
		func() { w.scope.ReadOnly = false },
		func() { w.scope.AgentTools = nil },
		func() { w.scope.SkillTools, w.scope.HasSkills = nil, true },
		func() { w.scope.RunTools = nil },
		func() { w.scope.WorkerTools = nil },
		func() { w.scope.AboveSkills = nil },
		func() { w.scope.Worker = nil },
		func() { w.facts.Place = nil },
		func() { w.share = shareKind(upTo(t, 2, "ordinary share")) },
		func() { w.over, w.overFault = gate.Overrides{}, noFault },
		func() {
			if w.people.kind > peopleToday {
				w.people.kind = peopleSame
			}
		},
		func() { w.who.Grants, w.people.today.Grants = nil, nil },
		func() { w.repeats.times = 0 },
		func() { maps.DeleteFunc(w.facts.Offered, func(_ string, on bool) bool { return !on }); w.offerAll() },
		ofTools(func(x *worldTool) { x.spec.EnabledByDefault, x.spec.RequiresAdmin = true, false }),
		ofTools(func(x *worldTool) { x.admit = admitAll }),
		ofTools(func(x *worldTool) { x.target = targetNone }),
		ofTools(func(x *worldTool) { x.broken = false }),
		ofTools(func(x *worldTool) { x.effect = effectByArguments }),
	} {
		if !oneIn(t, 5, "ordinary") {
			ordinary()
		}
	}
	// What has most to do with the last steps is left as it is more often.
	for _, ordinary := range []func(){
		func() { w.people.token, w.who.Token = nil, "" },
		func() { w.facts.Taint = nil },
		func() { w.rules, w.ruleFault = nil, noFault },
	} {
		if oneIn(t, 2, "ordinary") {
			ordinary()
		}
	}
	if w.over.Tools == nil {
		w.over = gate.Overrides{Tools: map[string]bool{}, Groups: map[string]bool{}}
	}
}

func (w *world) offerAll() {
	for _, c := range w.turn {
		w.facts.Offered[c.Name] = true
	}
}

func drawPrincipal(t *rapid.T) toolcrib.Principal {
	return toolcrib.Principal{
		User: pick(t, "user", "alice", "alice", "bob", ""), Admin: rapid.Bool().Draw(t, "admin"),
		Grants: drawList(t, "grants", append(worldNames(), "files", "gh", "odd one", "g?", "*", "??*", "read_*", "spawn", "agent:default", "agent:default",
			"agent:helper", "agent:h*", "agent:*", "sql:shop/public.orders", "sql:*", "re\u0430d_file")),
	}
}

func drawPeople(t *rapid.T, who toolcrib.Principal) worldPeople {
	p := worldPeople{kind: pick(t, "people", peopleNone, peopleNone, peopleNone, peopleNone, peopleSame, peopleSame, peopleSame, peopleSame, peopleSame, peopleSame,
		peopleToday, peopleToday, peopleToday, peopleRefused, peopleOther, peopleError, peoplePanic)}
	if p.kind == peopleToday {
		p.today = drawPrincipal(t)
		p.today.User = who.User
	}
	if p.kind != peopleNone && oneIn(t, 3, "token?") {
		p.token = drawToken(t)
	}
	return p
}

func drawToken(t *rapid.T) *worldToken {
	k := &worldToken{
		agents:    pick(t, "token agents", []string{"default", "helper", ""}, []string{"default", "helper", "secret"}, []string{"default"}, []string{"other"}),
		arguments: pick(t, "token arguments", worldArguments(), []string{`{}`, `{"n":1}`, `{"n":2}`, `{"n":"x"}`, `{"agent":"helper","n":1,"task":"t"}`}, []string{`{"n":1}`}),
		room:      pick(t, "room", 100, 100, 2, 1, 0),
	}
	for _, name := range worldNames() {
		if !oneIn(t, 6, "not covered") {
			k.tools = append(k.tools, name)
		}
	}
	if oneIn(t, 4, "token fault?") {
		for _, at := range []*fault{&k.offers, &k.covers, &k.roomFault, &k.take} {
			if oneIn(t, 3, "token fault") {
				*at = panicFault
			}
		}
	}
	return k
}

func drawRules(t *rapid.T) []worldRule {
	var rules []worldRule
	for i := range upTo(t, 4, "rules") {
		rules = append(rules, drawRule(t, fmt.Sprint("rule", i)))
	}
	return rules
}

func drawRule(t *rapid.T, name string) worldRule {
	return worldRule{
		name: name, cond: condition(upTo(t, int(condKinds), "condition")),
		then:  pick(t, "then", gate.RuleAllow, gate.RuleAllow, gate.RuleAsk, gate.RuleDeny),
		tools: pick(t, "rule tools", nil, []string{}, []string{"read_*"}, []string{"write_file", "gh__put"}, []string{"gh__*", "spawn"}),
	}
}

func drawSkillList(t *rapid.T, label string) []string {
	return drawList(t, label, skillPatterns())
}

func skillPatterns() []string {
	return append(worldPatterns(), "read_*(a:*)", "*(a:*)", "gh__put(x)", "write_file(", "(x)", "*(n)")
}

// drawWorker draws the bounds of a worker.
func drawWorker(t *rapid.T) *journal.WorkerLimits {
	if !oneIn(t, 2, "worker?") {
		return nil
	}
	return &journal.WorkerLimits{
		Hops: pick(t, "hops", 0, 9, 2, 3, 1, -1), CostCapUSD: pick(t, "cost cap", 0.05, 0.1, 0, -1),
		CostCapMode: pick(t, "cost cap mode", "enforce", "enforce", "warn", "off", "", "typo"),
	}
}

func drawScope(t *rapid.T) gate.Scope {
	var above [][]string
	for range upTo(t, 3, "runs above") {
		above = append(above, drawSkillList(t, "skill list above"))
	}
	return gate.Scope{
		Agent: "default", AboveSkills: above, Worker: drawWorker(t),
		AgentTools: drawList(t, "agent list", worldPatterns()),
		SkillTools: drawSkillList(t, "skill list"),
		RunTools:   drawList(t, "run list", worldPatterns()), WorkerTools: drawList(t, "worker list", worldPatterns()),
		HasSkills: rapid.Bool().Draw(t, "has skills"), ReadOnly: oneIn(t, 5, "read only"),
		TaintWrites: pick(t, "taint writes", "", gate.TaintAsk, gate.TaintDeny, gate.TaintAllow, "typo"),
		Unattended:  oneIn(t, 6, "nobody asks"),
		Depth:       upTo(t, 3, "depth"), MaxDepth: pick(t, "max depth", 3, 3, 3, 3, 2, 1, 0),
		MaxCalls: pick(t, "max calls", 8, 8, 8, 8, 8, 8, 2, 0), MaxRepeats: pick(t, "max repeats", 0, 3, 2, 1),
	}
}

func (w *world) sourceOf(tool string) string {
	for i := range w.tools {
		if w.tools[i].spec.Name == tool {
			return w.tools[i].spec.Source
		}
	}
	return ""
}

func (w *world) drawFacts(t *rapid.T) {
	w.answered = map[string]answerKind{}
	w.facts = gate.Facts{Offered: map[string]bool{}, Decided: map[string]gate.Decided{}, Counted: map[string]bool{}, DryRun: oneIn(t, 6, "dry run")}
	if oneIn(t, 2, "tainted") {
		w.facts.Taint = pick(t, "taint", []string{"web_fetch"}, []string{"mail; x writes", "web_fetch"})
	}
	for range upTo(t, 3, "remembered") {
		m := journal.Remembered{
			Tool: pick(t, "remembered tool", worldNames()...), ApprovalID: "apr_0", By: "bob", Scope: journal.RememberRun,
			Effect: pick(t, "remembered effect", "", toolcrib.EffectReadOnly, toolcrib.EffectIdempotentWrite, toolcrib.EffectNonIdempotentWrite),
		}
		if rapid.Bool().Draw(t, "remembered arguments?") {
			m.Arguments = []byte(pick(t, "remembered arguments", `{}`, `{"n":1}`))
		}
		if m.Source = w.sourceOf(m.Tool); oneIn(t, 5, "from elsewhere") {
			m.Source = "client"
		}
		w.facts.Remembered = append(w.facts.Remembered, m)
	}
	w.facts.Hops, w.facts.SpentUSD = upTo(t, 4, "hops before"), pick(t, "spent", 0, 0.05, 0.06, 0.2)
	w.share = shareKind(upTo(t, int(shareKinds), "share"))
	for i := range 1 + upTo(t, 5, "calls") {
		w.drawCall(t, fmt.Sprint("call_", i))
	}
	if oneIn(t, 3, "places?") {
		w.facts.Place = map[string]int{}
		for _, c := range w.turn {
			if rapid.Bool().Draw(t, "placed") {
				w.facts.Place[c.ID] = upTo(t, 9, "place") - 1
			}
		}
	}
}

func drawTool(t *rapid.T, name string) worldTool {
	w := worldTool{
		spec: toolcrib.Spec{
			Name: name, Source: pick(t, "source", "go", "builtin", "mcp:x"), EnabledByDefault: !oneIn(t, 5, "off by default"),
			Effect:        pick(t, "effect", "", toolcrib.EffectReadOnly, toolcrib.EffectIdempotentWrite, toolcrib.EffectNonIdempotentWrite),
			Group:         pick(t, "group", append(worldGroups(), "")...),
			RequiresAdmin: oneIn(t, 5, "requires admin"), Nested: name == "spawn" && rapid.Bool().Draw(t, "says it is nested") || oneIn(t, 10, "nested"),
			Sink: oneIn(t, 4, "sink"), Untrusted: oneIn(t, 4, "untrusted"),
		},
		plain: oneIn(t, 3, "plain"), preview: pick(t, "preview", noFault, errorFault, panicFault),
		effect: pick(t, "effect kind", effectOfSpec, effectOfSpec, effectReads, effectByArguments, effectByArguments, effectWeird, effectPanic),
	}
	switch {
	case name == "ask_user":
		w.spec.AnsweredBy = toolcrib.ByPerson
	case name == "spawn" && !oneIn(t, 6, "answers itself"):
		w.spec.AnsweredBy = toolcrib.ByAgent
	}
	if rapid.Bool().Draw(t, "strict") {
		w.spec.Parameters = []byte(strictParameters)
	}
	if oneIn(t, 5, "admit?") {
		w.admit = admitKind(upTo(t, int(admitKinds), "admit"))
	}
	if oneIn(t, 5, "target?") {
		w.target = targetKind(upTo(t, int(targetKinds), "target"))
	}
	if oneIn(t, 20, "broken") {
		w.broken, w.spec.Source = true, "mcp:x"
	}
	return w
}

const strictParameters = `{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}`

func (w *world) drawCall(t *rapid.T, id string) {
	name := pick(t, "name", append(append(worldNames(), worldNames()...), "spawn", "spawn")...)
	if oneIn(t, 8, "no tool") {
		name = pick(t, "which", "ghost", "READ_FILE", "re\u0430d_file", "", toolcrib.InvalidName)
	}
	c := call(id, name, pick(t, "arguments", append(worldArguments(), `{"n":1}`, `{"n":1}`, `{"n":1}`, `{"n":2}`, `{"n":2}`, `{"n":2}`, `{}`, `{}`)...))
	if oneIn(t, 8, "provider name") {
		c.ProviderName = pick(t, "provider name", worldNames()...)
	}
	switch upTo(t, 20, "flaw") {
	case 19:
		c.Cut = true
	case 18:
		c.Duplicate = true
	case 17:
		c.Broken, c.Problem = "{", "no end"
	case 16:
		c.Malformed, c.Problem = true, "no name"
	}
	w.turn = append(w.turn, c)
	f := &w.facts
	f.Offered[c.Name] = !oneIn(t, 8, "not offered")
	if oneIn(t, 5, "counted") {
		f.Counted[id] = true
	}
	switch upTo(t, 6, "decided") {
	case 4, 5:
		f.Decided[id] = gate.Decided{Decision: journal.DecisionApprove, ApprovalID: "apr_1", By: "bob", Unbound: true}
		w.answered[id] = answerKind(upTo(t, int(answerKinds), "asked"))
	case 3:
		f.Decided[id] = gate.Decided{Decision: pick(t, "decision", journal.DecisionDeny, "", "yes"), By: "bob"}
	}
}

func drawList(t *rapid.T, label string, from []string) []string {
	if !oneIn(t, 4, label+"?") {
		return nil
	}
	list := []string{}
	for range upTo(t, 8, label+" length") {
		list = append(list, pick(t, label, from...))
	}
	return list
}

func drawSwitches(t *rapid.T, label string, from []string) map[string]bool {
	m := map[string]bool{}
	for range upTo(t, 4, label) {
		m[pick(t, label, from...)] = !oneIn(t, 3, label+" off")
	}
	return m
}

// clone copies a world so far that a change of one does not show in the other.
func (w world) clone() world {
	w.tools, w.rules, w.turn = slices.Clone(w.tools), slices.Clone(w.rules), slices.Clone(w.turn)
	w.over = gate.Overrides{Tools: maps.Clone(w.over.Tools), Groups: maps.Clone(w.over.Groups)}
	w.settings = maps.Clone(w.settings)
	w.facts.Offered, w.facts.Decided, w.facts.Counted = maps.Clone(w.facts.Offered), maps.Clone(w.facts.Decided), maps.Clone(w.facts.Counted)
	w.answered = maps.Clone(w.answered)
	w.facts.Place, w.scope.AboveSkills = maps.Clone(w.facts.Place), slices.Clone(w.scope.AboveSkills)
	if w.people.token != nil {
		token := *w.people.token
		w.people.token = &token
	}
	return w
}

func (w *world) tool(name string) *worldTool {
	for i := range w.tools {
		if w.tools[i].spec.Name == name {
			return &w.tools[i]
		}
	}
	return nil
}
