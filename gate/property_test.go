package gate_test

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/gate/celrule"
	"github.com/toolcrib/toolcrib/journal"
)

// forWorlds checks something of many worlds.
func forWorlds(t *testing.T, check func(t *rapid.T, c *celRules, w world)) {
	c := &celRules{compiled: map[string]*celrule.Set{}}
	rapid.Check(t, func(t *rapid.T) { check(t, c, drawWorld(t)) })
}

// leave orders decisions by what they let happen.
func leave(d toolcrib.Decision) int {
	return slices.Index([]toolcrib.Decision{toolcrib.Refuse, toolcrib.Ask, toolcrib.Allow}, d)
}

// layerReasons are the reasons of the gate's own layers.
func layerReasons() []toolcrib.Reason {
	return []toolcrib.Reason{
		toolcrib.ReasonNotRegistered, toolcrib.ReasonToolDisabled, toolcrib.ReasonRequiresAdmin, toolcrib.ReasonNotPermitted,
		toolcrib.ReasonAgentAllowlist, toolcrib.ReasonSkillAllowlist, toolcrib.ReasonRunAllowlist, toolcrib.ReasonWorkerAllowlist,
	}
}

// TestN4_Property_FirstReasonIsReported holds every decision to the model: what is
// decided, and that the reason is the first in the gate's order of all that
// would refuse.
func TestN4_Property_FirstReasonIsReported(t *testing.T) {
	forWorlds(t, func(t *rapid.T, c *celRules, w world) {
		verdicts := c.gateOf(t, w).Judge(context.Background(), w.who, w.scope, w.known(), w.turn)
		for i, x := range w.model() {
			v := verdicts[i]
			checkVerdict(t, w.turn[i], v)
			if v.Decision != x.decision || v.Reason != x.reason {
				t.Fatalf("%s %s: %q %q (%s: %s)\nwant %q %q of %v, questions %q", v.Tool, w.turn[i].Arguments,
					v.Decision, v.Reason, v.Message, strings.SplitN(v.Detail, "\n", 2)[0], x.decision, x.reason, x.against, x.questions)
			}
		}
	})
}

// TestA3_Property_ExplainIsTheDecision compares what is explained, what is offered
// and what is decided: offered is what no layer refuses, and the layer that is
// named is the first that does.
func TestA3_Property_ExplainIsTheDecision(t *testing.T) {
	forWorlds(t, func(t *rapid.T, c *celRules, w world) {
		o := c.decide(t, w)
		for name, x := range o.explain {
			if x.Offered != slices.Contains(o.offered, name) {
				t.Fatalf("%s: explained as offered %v, offer %v", name, x.Offered, o.offered)
			}
			first := slices.IndexFunc(x.Layers, func(a gate.LayerAnswer) bool { return !a.Allowed })
			if x.Offered != (first < 0) || first >= 0 && x.Layers[first].Layer != x.Reason || len(x.Layers) != len(layerReasons()) {
				t.Fatalf("%s: %s is not the first refusing layer of %+v", name, x.Reason, x.Layers)
			}
			for i, want := range layerReasons() {
				if x.Layers[i].Layer != want {
					t.Fatalf("layer %d is %s, want %s", i, x.Layers[i].Layer, want)
				}
			}
			if x.Registered != (w.tool(name) != nil) || x.Offered && x.Reason != "" {
				t.Fatalf("%+v", x)
			}
		}
		model := w.model()
		for i, v := range o.verdicts {
			x, against := o.explain[v.Tool], model[i].against
			if w.turn[i].Name == toolcrib.InvalidName {
				continue
			}
			// The reasons before the layers are about the call, not about the tool.
			against = slices.DeleteFunc(slices.Clone(against), func(r toolcrib.Reason) bool {
				return slices.Contains([]toolcrib.Reason{
					toolcrib.ReasonParseError, toolcrib.ReasonCostCapExceeded, toolcrib.ReasonHopBudgetExhausted,
					toolcrib.ReasonDuplicateCallID, toolcrib.ReasonTooManyCalls,
				}, r)
			})
			if len(against) == len(model[i].against) && !x.Offered && (v.Decision != toolcrib.Refuse || v.Reason != x.Reason) {
				t.Fatalf("%s was %q %s and is explained as %s", v.Tool, v.Decision, v.Reason, x.Reason)
			}
			if x.Offered && len(against) == len(model[i].against) && slices.Contains(layerReasons(), v.Reason) && !byArguments(v.Reason) {
				t.Fatalf("%s is explained as offered, and refused as %s", v.Tool, v.Reason)
			}
		}
	})
}

// byArguments reports whether a layer's reason is also given for arguments.
func byArguments(r toolcrib.Reason) bool {
	return r == toolcrib.ReasonNotPermitted || r == toolcrib.ReasonSkillAllowlist || r == toolcrib.ReasonWorkerAllowlist
}

// TestA4_Property_OfferHoldsWhatIsAllowed finds everything that is allowed or asked
// about in the offer of the same policy, and nothing in it that the model refuses
// whatever the arguments.
func TestA4_Property_OfferHoldsWhatIsAllowed(t *testing.T) {
	forWorlds(t, func(t *rapid.T, c *celRules, w world) {
		o := c.decide(t, w)
		for _, v := range o.verdicts {
			if v.Decision != toolcrib.Refuse && (!slices.Contains(o.offered, v.Tool) || !w.facts.Offered[v.Tool]) {
				t.Fatalf("%s is %q, and was not offered", v.Tool, v.Decision)
			}
		}
		who, token, lost := w.modelStanding()
		for _, name := range worldNames() {
			m := modelCall{w: &w, call: call("x", name, `{}`), tool: w.tool(name), who: who, token: token, lost: lost}
			refused := m.tool == nil
			for _, q := range modelLayers() {
				refused = refused || q.refuses(&m)
			}
			if refused == slices.Contains(o.offered, name) {
				t.Fatalf("%s: the layers refuse it %v, offered %v", name, refused, o.offered)
			}
		}
	})
}

// TestA4_Property_KeptOfferIsTheOffer asks one gate again and again, under a policy
// that changes in between in all that the layers look at, and finds what a gate that
// remembers nothing offers, and decides.
func TestA4_Property_KeptOfferIsTheOffer(t *testing.T) {
	ways := policyChanges()
	names := slices.Sorted(maps.Keys(ways))
	forWorlds(t, func(t *rapid.T, c *celRules, w world) {
		if w.people.kind == peopleNone {
			w.people.kind = peopleSame
		}
		now := &world{}
		kept := c.gateFrom(t, w, current{now})
		worlds := []world{w}
		for range rapid.IntRange(1, 3).Draw(t, "changes") {
			changed := worlds[len(worlds)-1].clone()
			ways[pick(t, "change", names...)](t, &changed)
			worlds = append(worlds, changed, w)
		}
		for _, today := range worlds {
			*now = today
			fresh := c.gateOf(t, today)
			have, errHave := kept.Offer(context.Background(), today.who, today.scope)
			want, errWant := fresh.Offer(context.Background(), today.who, today.scope)
			if (errHave == nil) != (errWant == nil) || !slices.Equal(have.Record.Names(), want.Record.Names()) || have.Record.Hash != want.Record.Hash {
				t.Fatalf("offered %q (%v), want %q (%v)", have.Record.Names(), errHave, want.Record.Names(), errWant)
			}
			verdicts := kept.Judge(context.Background(), today.who, today.scope, today.known(), today.turn)
			for i, v := range fresh.Judge(context.Background(), today.who, today.scope, today.known(), today.turn) {
				if verdicts[i].Decision != v.Decision || verdicts[i].Reason != v.Reason {
					t.Fatalf("%s: %q %s, want %q %s", v.Tool, verdicts[i].Decision, verdicts[i].Reason, v.Decision, v.Reason)
				}
			}
		}
	})
}

// policyChanges change one thing that the layers look at, to something wider or
// narrower.
func policyChanges() map[string]func(*rapid.T, *world) {
	list := func(of func(*world) *[]string) func(*rapid.T, *world) {
		return func(t *rapid.T, w *world) {
			patterns := append(worldPatterns(), "files", "gh", "sql:shop/x", "agent:default")
			list := []string{}
			for range upTo(t, 14, "length") {
				list = append(list, pick(t, "entry", patterns...))
			}
			*of(w) = pick(t, "list", list, nil, []string{}, append(slices.Clone(*of(w)), list...))
		}
	}
	return map[string]func(*rapid.T, *world){
		"agent list": list(func(w *world) *[]string { return &w.scope.AgentTools }), "skill list": list(func(w *world) *[]string { return &w.scope.SkillTools }),
		"run list": list(func(w *world) *[]string { return &w.scope.RunTools }), "worker list": list(func(w *world) *[]string { return &w.scope.WorkerTools }),
		"grants": list(func(w *world) *[]string { return &w.who.Grants }),
		"skills above": func(t *rapid.T, w *world) {
			var own []string
			list(func(*world) *[]string { return &own })(t, w)
			w.scope.AboveSkills = pick(t, "skills above", nil, [][]string{own}, [][]string{nil}, append(w.scope.AboveSkills, own))
		},
		"admin":  func(_ *rapid.T, w *world) { w.who.Admin = !w.who.Admin },
		"user":   func(t *rapid.T, w *world) { w.who.User = pick(t, "user", "alice", "bob", "") },
		"skills": func(_ *rapid.T, w *world) { w.scope.HasSkills = !w.scope.HasSkills },
		"agent":  func(t *rapid.T, w *world) { w.scope.Agent = pick(t, "agent", "default", "other", "") },
		"people": func(t *rapid.T, w *world) { w.people.kind = pick(t, "people", peopleSame, peopleRefused, peopleOther) },
		"token":  func(t *rapid.T, w *world) { w.people.token, w.who.Token = drawToken(t), "tok_1" },
		"no token": func(_ *rapid.T, w *world) {
			w.people.token, w.who.Token = nil, ""
		},
		"scope without a token": func(_ *rapid.T, w *world) { w.people.token, w.who.Token = &worldToken{}, "" },
		"another token":         func(_ *rapid.T, w *world) { w.who.Token = "tok_2" },
		"tools":                 func(t *rapid.T, w *world) { w.over.Tools = drawSwitches(t, "tools", worldNames()) },
		"groups":                func(t *rapid.T, w *world) { w.over.Groups = drawSwitches(t, "groups", worldGroups()) },
	}
}

// TestA5_Property_NothingWidens restricts a world in every way there is, and finds
// that the offer has shrunk and no call has come nearer to running.
func TestA5_Property_NothingWidens(t *testing.T) {
	ways := narrowings()
	names := slices.Sorted(maps.Keys(ways))
	forWorlds(t, func(t *rapid.T, c *celRules, w world) {
		how := pick(t, "how", names...)
		before := c.decide(t, w)
		narrower := w.clone()
		if !ways[how](t, &narrower) {
			return
		}
		notWider(t, how, before, c.decide(t, narrower))
	})
}

// TestA5_Property_FurtherLayerNarrows puts a layer behind the gate's own.
func TestA5_Property_FurtherLayerNarrows(t *testing.T) {
	forWorlds(t, func(t *rapid.T, c *celRules, w world) {
		before := c.decide(t, w)
		g := c.gateOf(t, w, onlyLayer{"read_file"})
		after := outcome{verdicts: g.Judge(context.Background(), w.who, w.scope, w.known(), w.turn)}
		if offer, err := g.Offer(context.Background(), w.who, w.scope); err == nil {
			after.offered = offer.Record.Names()
		}
		notWider(t, "a further layer", before, after)
		for _, v := range after.verdicts {
			if v.Tool != "read_file" && v.Decision != toolcrib.Refuse {
				t.Fatalf("%s: %q past the last layer", v.Tool, v.Decision)
			}
		}
	})
}

func notWider(t *rapid.T, how string, before, after outcome) {
	for _, name := range after.offered {
		if !slices.Contains(before.offered, name) {
			t.Fatalf("%s: %s is offered, and was not before", how, name)
		}
	}
	for i, v := range after.verdicts {
		was := before.verdicts[i]
		// A call of the turn that is refused now leaves its place among the calls of
		// the token to a later one.
		if was.Reason == toolcrib.ReasonBudgetExhausted && strings.Contains(was.Message, "access token") {
			continue
		}
		if leave(v.Decision) > leave(was.Decision) {
			t.Fatalf("%s: %s is %q %s, and was %q %s before", how, v.Tool, v.Decision, v.Reason, was.Decision, was.Reason)
		}
	}
}

// TestH16_Property_LiftsOnlyTheQuestion adds allow rules and remembered decisions,
// and finds that nothing is lifted but the question of tools.confirm.
func TestH16_Property_LiftsOnlyTheQuestion(t *testing.T) {
	forWorlds(t, func(t *rapid.T, c *celRules, w world) {
		before := c.decide(t, w)
		lifted := w.clone()
		if rapid.Bool().Draw(t, "by a rule") {
			lifted.rules = append(lifted.rules, worldRule{name: "added", cond: condAlways, then: gate.RuleAllow})
		} else {
			for _, name := range worldNames() {
				lifted.facts.Remembered = append(lifted.facts.Remembered, journal.Remembered{Tool: name, Source: lifted.sourceOf(name), Scope: journal.RememberUser, ApprovalID: "apr_9"})
			}
		}
		after := c.decide(t, lifted)
		if !slices.Equal(before.offered, after.offered) {
			t.Fatalf("offered %v, then %v", before.offered, after.offered)
		}
		model := w.model()
		for i, v := range after.verdicts {
			was := before.verdicts[i]
			if was.Reason == toolcrib.ReasonBudgetExhausted || v.Decision == was.Decision && v.Reason == was.Reason {
				continue
			}
			if v.Reason == toolcrib.ReasonBudgetExhausted {
				continue // a call before it runs now, and has taken the place
			}
			always := w.settings[v.Tool].Confirm == gate.ConfirmAlways
			only := len(model[i].questions) == 1 && len(model[i].against) == 0
			if v.Decision != toolcrib.Allow || was.Reason != toolcrib.ReasonNeedsConfirmation || was.Rule != "" || always || !only {
				t.Fatalf("%s: %q %s (rule %q, always %v, questions %q) became %q %s", v.Tool,
					was.Decision, was.Reason, was.Rule, always, model[i].questions, v.Decision, v.Reason)
			}
		}
	})
}

// TestH16_Property_ResumeAsksAnew approves what was asked about, changes the world,
// and judges again: what runs then was asked in every point, or needs no question.
func TestH16_Property_ResumeAsksAnew(t *testing.T) {
	ways := narrowings()
	names := slices.Sorted(maps.Keys(ways))
	forWorlds(t, func(t *rapid.T, c *celRules, w world) {
		w.facts.Decided = map[string]gate.Decided{}
		asked := w.model()
		before := c.gateOf(t, w).Judge(context.Background(), w.who, w.scope, w.known(), w.turn)
		today := w.clone()
		for i, v := range before {
			if v.Decision == toolcrib.Ask {
				today.facts.Decided[w.turn[i].ID] = gate.Decided{Decision: journal.DecisionApprove, ApprovalID: "apr_1", By: "bob", Asked: v.Questions, Binding: v.Binding}
				delete(today.answered, w.turn[i].ID)
			}
		}
		for range rapid.IntRange(0, 2).Draw(t, "changes") {
			ways[pick(t, "change", names...)](t, &today)
		}
		if today.facts.Decided == nil {
			return // the decisions were taken away
		}
		again := c.gateOf(t, today).Judge(context.Background(), today.who, today.scope, today.known(), today.turn)
		for i, x := range today.model() {
			v := again[i]
			// A call that is asked about again takes no room of a token, so one after it has some.
			room := v.Decision == toolcrib.Ask && slices.Equal(x.against, []toolcrib.Reason{toolcrib.ReasonBudgetExhausted}) &&
				slices.ContainsFunc(again[:i], func(v gate.Verdict) bool { return v.Decision == toolcrib.Ask })
			if len(x.against) > 0 && v.Decision != toolcrib.Refuse && !room {
				t.Fatalf("%s: approved, and %q in spite of %v", v.Tool, v.Decision, x.against)
			}
			if v.Decision != toolcrib.Allow || len(x.questions) == 0 {
				continue
			}
			decided := today.facts.Decided[v.CallID]
			for _, q := range x.questions {
				if decided.Decision == "" || !slices.Contains(asked[i].questions, q) {
					t.Fatalf("%s runs, and nobody was asked %q: only %q (%v)", v.Tool, q, asked[i].questions, decided.Asked)
				}
			}
		}
	})
}

// TestN21_Property_FaultsRefuse breaks a part of the world that is asked about the
// call, and finds that a call which ran or was asked about is refused.
func TestN21_Property_FaultsRefuse(t *testing.T) {
	breaks := map[string]func(*world){
		"overrides error": func(w *world) { w.overFault = errorFault },
		"overrides panic": func(w *world) { w.overFault = panicFault },
		"people error":    func(w *world) { w.people.kind = peopleError },
		"people panic":    func(w *world) { w.people.kind = peoplePanic },
		"people other":    func(w *world) { w.people.kind = peopleOther },
		"rules panic":     func(w *world) { w.ruleFault = panicFault },
		"rule error": func(w *world) {
			w.rules = append(w.rules, worldRule{name: "bad", cond: condDivides, then: gate.RuleAllow})
		},
		"admit fault":     ofTools(func(w *worldTool) { w.plain, w.admit = false, admitFault }),
		"admit panic":     ofTools(func(w *worldTool) { w.plain, w.admit = false, admitPanic }),
		"targets panic":   ofTools(func(w *worldTool) { w.plain, w.target = false, targetPanic }),
		"effect panic":    ofTools(func(w *worldTool) { w.plain, w.effect = false, effectPanic }),
		"schema":          ofTools(func(w *worldTool) { w.broken, w.spec.Source = true, "bus:x" }),
		"repeated panics": func(w *world) { w.repeats.times, w.scope.MaxRepeats = -2, 1 },
		"share panics": func(w *world) {
			w.share = sharePanic
			ofTools(func(w *worldTool) { w.spec.AnsweredBy = toolcrib.ByAgent })(w)
		},
		"token unknown": func(w *world) { w.who.Token, w.people.token = "tok_2", nil },
		"token offers":  ofToken(func(k *worldToken) { k.offers = panicFault }),
		"token covers":  ofToken(func(k *worldToken) { k.covers = panicFault }),
		"token room":    ofToken(func(k *worldToken) { k.roomFault = panicFault }),
	}
	names := slices.Sorted(maps.Keys(breaks))
	forWorlds(t, func(t *rapid.T, c *celRules, w world) {
		w.facts.Counted, w.facts.DryRun = nil, false
		how := pick(t, "broken", names...)
		broken := w.clone()
		breaks[how](&broken)
		for _, v := range c.decide(t, broken).verdicts {
			if v.Decision != toolcrib.Refuse {
				t.Fatalf("%s: %s is %q", how, v.Tool, v.Decision)
			}
		}
	})
}

func ofTools(change func(*worldTool)) func(*world) {
	return func(w *world) {
		for i := range w.tools {
			change(&w.tools[i])
		}
	}
}

func ofToken(change func(*worldToken)) func(*world) {
	return func(w *world) {
		if w.people.token == nil {
			w.people = worldPeople{kind: peopleSame, token: wideToken()}
		}
		w.who.Token = "tok_1"
		change(w.people.token)
	}
}

func wideToken() *worldToken {
	return &worldToken{agents: []string{"default", "helper", "secret", ""}, tools: worldNames(), arguments: worldArguments(), room: 100}
}

// TestN18_Property_ZeroRefuses takes something away altogether.
func TestN18_Property_ZeroRefuses(t *testing.T) {
	forWorlds(t, func(t *rapid.T, c *celRules, w world) {
		switch rapid.IntRange(0, 4).Draw(t, "zero") {
		case 0:
			w.tools = nil
		case 1:
			w.facts = gate.Facts{}
		case 2:
			w.scope = gate.Scope{}
		case 3:
			w.who = toolcrib.Principal{Token: "tok_3"}
			w.people = worldPeople{}
		case 4:
			for _, v := range new(gate.Gate).Judge(context.Background(), w.who, w.scope, w.known(), w.turn) {
				if !v.Refused() || v.Permit.Valid() {
					t.Fatalf("the zero gate: %+v", v)
				}
			}
			return
		}
		for _, v := range c.decide(t, w).verdicts {
			if !v.Refused() || v.Permit.Valid() {
				t.Fatalf("%+v", v)
			}
		}
	})
}
