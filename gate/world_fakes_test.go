package gate_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"pgregory.net/rapid"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/gate/celrule"
	"github.com/toolcrib/toolcrib/journal"
)

var errFake = errors.New("it does not work")

// happen is what a part of a world does where it should answer.
func (f fault) happen() error {
	switch f {
	case errorFault:
		return errFake
	case panicFault:
		panic("a part of the world panics")
	}
	return nil
}

// Overrides makes a world its own availability.
func (w world) Overrides(context.Context) (gate.Overrides, error) {
	if err := w.overFault.happen(); err != nil {
		return gate.Overrides{}, err
	}
	return w.over, nil
}

// Standing makes a world its own people.
func (w world) Standing(_ context.Context, who toolcrib.Principal) (gate.Standing, error) {
	s := gate.Standing{Principal: who}
	if w.people.token != nil {
		s.Token = &takenToken{worldToken: *w.people.token}
	}
	switch w.people.kind {
	case peopleToday:
		s.Principal = w.people.today
		s.Principal.Token = who.Token
	case peopleRefused:
		s.Refused = "disabled"
	case peopleOther:
		s.Principal.User, s.Principal.Admin = who.User+"x", true
	case peopleError:
		return s, errFake
	case peoplePanic:
		panic("people")
	}
	return s, nil
}

// takenToken is a token that counts its calls.
type takenToken struct {
	worldToken
	mu    sync.Mutex
	taken int
}

func (k *takenToken) Agent(name string) error { return covered(slices.Contains(k.agents, name)) }

func (k *takenToken) Offers(agent, tool string) error {
	_ = k.offers.happen()
	return covered(slices.Contains(k.agents, agent) && slices.Contains(k.tools, tool))
}

func (k *takenToken) Covers(agent, tool string, arguments json.RawMessage) error {
	_ = k.covers.happen()
	if err := covered(slices.Contains(k.agents, agent) && slices.Contains(k.tools, tool)); err != nil {
		return err
	}
	return covered(slices.Contains(k.arguments, string(arguments)))
}

func (k *takenToken) Room(context.Context) error {
	_ = k.roomFault.happen()
	k.mu.Lock()
	defer k.mu.Unlock()
	return covered(k.taken < k.room)
}

func (k *takenToken) Take(context.Context) error {
	_ = k.take.happen()
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.taken >= k.room {
		return errFake
	}
	k.taken++
	return nil
}

func covered(ok bool) error {
	if !ok {
		return errFake
	}
	return nil
}

// make makes the tool of a world.
func (w worldTool) make() toolcrib.Tool {
	spec := w.spec
	if w.broken {
		spec.Parameters = []byte(`{"type":7,"type":7}`)
	}
	if w.plain {
		return &plainTool{spec}
	}
	f := &fullTool{plainTool: plainTool{spec}}
	f.admit = func(c toolcrib.Call) error {
		switch w.admit {
		case admitOne:
			if string(c.Arguments) == `{"n":1}` {
				return nil
			}
			return toolcrib.Failf(toolcrib.PermissionDenied, "only one")
		case admitForModel:
			return toolcrib.Failf(toolcrib.PermissionDenied, "no")
		case admitFault:
			return errFake
		case admitPanic:
			panic("admit")
		}
		return nil
	}
	f.effect = func(c toolcrib.Call) toolcrib.Effect {
		switch w.effect {
		case effectReads:
			return toolcrib.EffectReadOnly
		case effectByArguments:
			if string(c.Arguments) == `{"n":1}` {
				return toolcrib.EffectReadOnly
			}
			return toolcrib.EffectIdempotentWrite
		case effectWeird:
			return "harmless"
		case effectPanic:
			panic("effect")
		}
		return w.spec.Effect
	}
	f.targets = func(toolcrib.Call) []toolcrib.Target { return w.target.targets() }
	f.preview = func(context.Context, toolcrib.Call) (toolcrib.Preview, error) {
		return toolcrib.Preview{Kind: "text", Text: "what would be"}, w.preview.happen()
	}
	return f
}

func (k targetKind) targets() []toolcrib.Target {
	file := func(name string, write bool) []toolcrib.Target {
		return []toolcrib.Target{{Kind: "host", Name: "example.org"}, {Kind: toolcrib.TargetFile, Name: name, Write: write}}
	}
	switch k {
	case targetHost:
		return []toolcrib.Target{{Kind: "host", Name: "example.org", Write: true}}
	case targetGitRead:
		return file("/ws/.git/config", false)
	case targetGitWrite:
		return file("/ws/.git/config", true)
	case targetGitFolded:
		return file("/ws/x/.GiT. /hooks", true)
	case targetData:
		return file("/data/toolcrib.db", false)
	case targetDataExcept:
		return file("/data/workspaces/ann/x", true)
	case targetSettings:
		return file("/ws/../ws/toolcrib.yaml", true)
	case targetRelative:
		return file("notes.txt", false)
	case targetNUL:
		return file("/ws/a\x00b", false)
	case targetMany:
		return slices.Repeat(file("/ws/a", false), 1000)
	case targetPanic:
		panic("targets")
	case targetHelper:
		return []toolcrib.Target{{Kind: toolcrib.TargetAgent, Name: "helper"}}
	case targetSecret:
		return []toolcrib.Target{{Kind: "host", Name: "example.org"}, {Kind: toolcrib.TargetAgent, Name: "secret"}}
	}
	return nil
}

// fakeRules are the rules of a world, without CEL.
type fakeRules struct {
	rules []worldRule
	fault fault
}

func (f fakeRules) About(tool string) []gate.RuleInfo {
	_ = f.fault.happen()
	var infos []gate.RuleInfo
	for _, r := range f.rules {
		if r.tools == nil || slices.ContainsFunc(r.tools, func(p string) bool { return modelMatch(p, tool) }) {
			infos = append(infos, gate.RuleInfo{Name: r.name, Then: r.then})
		}
	}
	return infos
}

func (f fakeRules) Judge(_ context.Context, in gate.RuleInput) []gate.RuleMatch {
	_ = f.fault.happen()
	var matches []gate.RuleMatch
	for _, r := range f.rules {
		if r.tools != nil && !slices.ContainsFunc(r.tools, func(p string) bool { return modelMatch(p, in.Tool) }) {
			continue
		}
		holds, failed := r.cond.model(string(in.Arguments), in.Effect, in.Who, in.Depth, len(in.Taint) > 0)
		m := gate.RuleMatch{RuleInfo: gate.RuleInfo{Name: r.name, Then: r.then}}
		if failed {
			m.Err = errFake
		}
		if holds || failed {
			matches = append(matches, m)
		}
	}
	return matches
}

// celRules compiles rules one by one, and keeps them: the same few come again and
// again.
type celRules struct {
	mu       sync.Mutex
	compiled map[string]*celrule.Set
}

func (c *celRules) of(t *rapid.T, rules []worldRule) gate.Rules {
	c.mu.Lock()
	defer c.mu.Unlock()
	var sets joinedRules
	for _, r := range rules {
		key := fmt.Sprintf("%#v", r)
		if c.compiled[key] == nil {
			set, err := celrule.New([]celrule.Rule{{Name: r.name, Tools: r.tools, When: conditionTexts()[r.cond], Then: r.then}}, celrule.Options{})
			if err != nil {
				t.Fatal(err)
			}
			c.compiled[key] = set
		}
		sets = append(sets, c.compiled[key])
	}
	return sets
}

type joinedRules []*celrule.Set

func (j joinedRules) Judge(ctx context.Context, in gate.RuleInput) (matches []gate.RuleMatch) {
	for _, set := range j {
		matches = append(matches, set.Judge(ctx, in)...)
	}
	return matches
}

func (j joinedRules) About(tool string) (infos []gate.RuleInfo) {
	for _, set := range j {
		infos = append(infos, set.About(tool)...)
	}
	return infos
}

// current is a world that can be exchanged under a gate.
type current struct{ world *world }

func (c current) Overrides(ctx context.Context) (gate.Overrides, error) {
	return c.world.Overrides(ctx)
}

func (c current) Standing(ctx context.Context, who toolcrib.Principal) (gate.Standing, error) {
	return c.world.Standing(ctx, who)
}

// gateOf makes the gate of a world.
func (c *celRules) gateOf(t *rapid.T, w world, layers ...gate.Layer) *gate.Gate {
	return c.gateFrom(t, w, current{&w}, layers...)
}

// gateFrom makes the gate of a world; what may change under it comes from the
// source.
func (c *celRules) gateFrom(t *rapid.T, w world, source current, layers ...gate.Layer) *gate.Gate {
	o := gate.Options{Availability: source, Confirm: w.confirm, Settings: w.settings, Layers: layers}
	for _, tool := range w.tools {
		o.Tools = append(o.Tools, tool.make())
	}
	if w.people.kind != peopleNone {
		o.People = source
	}
	if w.protects {
		o.Protected = gate.Protected{
			Names: []string{".git"}, Write: []string{"/ws/toolcrib.yaml"}, Touch: []string{"/data"}, Except: []string{"/data/workspaces"},
		}
	}
	switch {
	case w.realRules && w.ruleFault == noFault:
		o.Rules = c.of(t, w.rules)
	default:
		o.Rules = fakeRules{w.rules, w.ruleFault}
	}
	o.SkillArguments = w.skillArgs.judge()
	g, err := gate.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// judge is what judges the arguments by the skills' entries.
func (a skillAnswer) judge() gate.SkillArguments {
	if a == skillNobody {
		return nil
	}
	return func(entries []string, tool string, _ *toolcrib.Plan) (bool, error) {
		switch a {
		case skillByEntry:
			return slices.ContainsFunc(entries, func(e string) bool {
				name, ok := strings.CutSuffix(e, "(a:*)")
				return ok && modelMatch(name, tool)
			}), nil
		case skillYes:
			return true, nil
		case skillError:
			return true, errFake
		case skillPanic:
			panic("skills")
		}
		return false, nil
	}
}

// left says why nothing is left for a call.
func (k shareKind) left(callID string) string {
	switch {
	case k == sharePanic:
		panic("share")
	case k == shareGone, k == shareForOne && callID != "call_0":
		return "nothing is left"
	}
	return ""
}

// known are the facts of a world for the gate. asked are all possible questions about a call; a person
// who answered more than is asked now has answered that as well.
func (w world) asked(kind answerKind) []journal.Question {
	var all []journal.Question
	if kind == answerNone {
		return []journal.Question{{Reason: toolcrib.ReasonNeedsConfirmation, Text: "something else"}}
	}
	effects := []toolcrib.Effect{"", toolcrib.EffectReadOnly, toolcrib.EffectIdempotentWrite, toolcrib.EffectNonIdempotentWrite}
	sources := slices.Compact(slices.Sorted(slices.Values(w.facts.Taint)))
	for _, effect := range effects {
		if kind == answerAll {
			all = append(all, journal.Question{Reason: toolcrib.ReasonTaintedFlow, Sources: sources, Effect: effect})
		}
		for _, name := range append(worldNames(), "") {
			setting := "tools.confirm"
			if name != "" {
				setting = gate.ConfirmSetting(name)
			}
			for _, mode := range []gate.ConfirmMode{gate.ConfirmWrites, gate.ConfirmAlways} {
				all = append(all, journal.Question{Reason: toolcrib.ReasonNeedsConfirmation, Setting: setting, Mode: string(mode), Effect: effect})
			}
		}
	}
	for _, r := range w.rules {
		all = append(all, journal.Question{Reason: toolcrib.ReasonNeedsConfirmation, Rule: r.name})
	}
	return all
}

func (w world) known() gate.Facts {
	f := w.facts
	f.Run, f.Session = "run_1", "ses_1"
	f.Decided = maps.Clone(f.Decided)
	for id, kind := range w.answered {
		if d := f.Decided[id]; d.Decision == journal.DecisionApprove {
			d.Asked = w.asked(kind)
			f.Decided[id] = d
		}
	}
	if w.share != shareNoBudget {
		f.Share = w.share.left
	}
	switch w.repeats.times {
	case -1:
	case -2:
		f.Repeated = func(string, []byte) int { panic("repeated") }
	default:
		f.Repeated = func(string, []byte) int { return w.repeats.times }
	}
	return f
}

// outcome is what a world leads to.
type outcome struct {
	offered  []string // nil if there is no offer
	verdicts []gate.Verdict
	explain  map[string]gate.Explanation
}

func (c *celRules) decide(t *rapid.T, w world, layers ...gate.Layer) outcome {
	g := c.gateOf(t, w, layers...)
	ctx := context.Background()
	offer, err := g.Offer(ctx, w.who, w.scope)
	again, errAgain := g.Offer(ctx, w.who, w.scope) // the same once more
	if (err == nil) != (errAgain == nil) || !slices.Equal(again.Record.Names(), offer.Record.Names()) || again.Record.Hash != offer.Record.Hash {
		t.Fatalf("offered %v, then %v (%v, %v)", offer.Record.Names(), again.Record.Names(), err, errAgain)
	}
	if err != nil && len(offer.Record.Tools)+len(offer.Specs) > 0 {
		t.Fatalf("offered %v in spite of %v", offer.Record.Names(), err)
	}
	o := outcome{
		offered: offer.Record.Names(), verdicts: g.Judge(ctx, w.who, w.scope, w.known(), w.turn),
		explain: map[string]gate.Explanation{},
	}
	for i, v := range o.verdicts {
		checkVerdict(t, w.turn[i], v)
	}
	for _, x := range g.Explain(ctx, w.who, w.scope, append(worldNames(), "ghost", "READ_FILE", "re\u0430d_file", "")...) {
		o.explain[x.Tool] = x
	}
	return o
}
