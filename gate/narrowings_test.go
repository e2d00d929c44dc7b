package gate_test

import (
	"slices"
	"strings"

	"pgregory.net/rapid"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/journal"
)

// narrowing restricts a world; it returns false where it does not apply.
type narrowing func(t *rapid.T, w *world) bool

// narrowings are the ways to restrict a world.
func narrowings() map[string]narrowing {
	all := map[string]narrowing{
		"read only":    func(_ *rapid.T, w *world) bool { w.scope.ReadOnly = true; return true },
		"nobody asks":  func(_ *rapid.T, w *world) bool { w.scope.Unattended = true; return true },
		"no skills":    func(_ *rapid.T, w *world) bool { w.scope.HasSkills = false; return true },
		"protected":    func(_ *rapid.T, w *world) bool { w.protects = true; return true },
		"fewer calls":  func(_ *rapid.T, w *world) bool { w.scope.MaxCalls /= 2; return true },
		"less deep":    func(_ *rapid.T, w *world) bool { w.scope.MaxDepth--; return true },
		"undecided":    func(_ *rapid.T, w *world) bool { return w.withoutApprovals() },
		"denied":       func(_ *rapid.T, w *world) bool { return w.deny() },
		"forgotten":    func(_ *rapid.T, w *world) bool { w.facts.Remembered = nil; return true },
		"not counted":  func(_ *rapid.T, w *world) bool { w.facts.Counted = nil; return true },
		"no dry run":   func(_ *rapid.T, w *world) bool { w.facts.DryRun = false; return true },
		"no tools":     func(_ *rapid.T, w *world) bool { w.tools = w.tools[:len(w.tools)/2]; return true },
		"always ask":   func(_ *rapid.T, w *world) bool { return w.alwaysAsk() },
		"confirm":      func(_ *rapid.T, w *world) bool { return w.confirmMore() },
		"no argument":  func(_ *rapid.T, w *world) bool { w.skillArgs = skillNobody; return true },
		"taint denies": func(_ *rapid.T, w *world) bool { w.scope.TaintWrites = gate.TaintDeny; return true },
		"taint asks":   func(_ *rapid.T, w *world) bool { return w.taintAsks() },
		"repeats":      func(_ *rapid.T, w *world) bool { return w.repeatMore() },
		"not offered": func(t *rapid.T, w *world) bool {
			delete(w.facts.Offered, pick(t, "hidden", worldNames()...))
			return true
		},
		"a rule denies": func(t *rapid.T, w *world) bool {
			return w.addRule(t, gate.RuleDeny)
		},
		"a rule asks": func(t *rapid.T, w *world) bool { return w.addRule(t, gate.RuleAsk) },
		"fewer allows": func(_ *rapid.T, w *world) bool {
			w.rules = slices.DeleteFunc(w.rules, func(r worldRule) bool {
				return r.then == gate.RuleAllow && r.cond != condDivides && r.cond != condOne && r.cond != condAbove
			})
			return true
		},
		// What is changed from here on rules may look at, so that one of them may
		// hold no more.
		"deeper": ofCaller(func(_ *rapid.T, w *world) { w.scope.Depth++ }),
		"tainted": ofCaller(func(_ *rapid.T, w *world) {
			w.facts.Taint = append(slices.Clone(w.facts.Taint), "another source")
		}),
		"no admin":     ofCaller(func(_ *rapid.T, w *world) { w.who.Admin, w.people.today.Admin = false, false }),
		"nobody":       ofCaller(func(_ *rapid.T, w *world) { w.who.User, w.people.today.User = "", "" }),
		"refused":      ofCaller(func(_ *rapid.T, w *world) { w.people.kind = peopleRefused }),
		"people error": ofCaller(func(_ *rapid.T, w *world) { w.people.kind = peopleError }),
		"token":        narrowToken,
	}
	narrowLists(all)
	narrowTools(all)
	narrowWorkers(all)
	return all
}

func ofCaller(change func(*rapid.T, *world)) narrowing {
	return func(t *rapid.T, w *world) bool {
		if slices.ContainsFunc(w.rules, func(r worldRule) bool { return r.cond >= condOfCaller }) {
			return false
		}
		change(t, w)
		return true
	}
}

// narrowLists has the lists: made where there is none, shortened where there is one.
func narrowLists(all map[string]narrowing) {
	for name, of := range map[string]func(*world) *[]string{
		"agent list": func(w *world) *[]string { return &w.scope.AgentTools }, "skill list": func(w *world) *[]string { return &w.scope.SkillTools },
		"run list": func(w *world) *[]string { return &w.scope.RunTools }, "worker list": func(w *world) *[]string { return &w.scope.WorkerTools },
		"grants": func(w *world) *[]string { return &w.who.Grants }, "grants of today": func(w *world) *[]string { return &w.people.today.Grants },
	} {
		all[name] = func(t *rapid.T, w *world) bool {
			list := of(w)
			if *list == nil {
				*list = rapid.SliceOfN(rapid.SampledFrom(worldPatterns()), 0, 4).Draw(t, "list")
				if *list == nil {
					*list = []string{}
				}
				return true
			}
			if len(*list) > 0 {
				at := rapid.IntRange(0, len(*list)-1).Draw(t, "taken away")
				if ofAgent := func(e string) bool { return strings.HasPrefix(e, "agent:") }; ofAgent((*list)[at]) &&
					!slices.ContainsFunc(slices.Delete(slices.Clone(*list), at, at+1), ofAgent) {
					return false // where no grant names an agent, all may be used
				}
				*list = slices.Delete(slices.Clone(*list), at, at+1)
			}
			// A skill's entry with a pattern never gives what one without it takes away.
			return true
		}
	}
}

// narrowTools has what is changed about tools.
func narrowTools(all map[string]narrowing) {
	for name, change := range map[string]func(*worldTool){
		"off by default": func(w *worldTool) { w.spec.EnabledByDefault = false }, "for admins": func(w *worldTool) { w.spec.RequiresAdmin = true },
		"nested": func(w *worldTool) { w.spec.Nested = true }, "sink": func(w *worldTool) { w.spec.Sink = true },
		"strict": func(w *worldTool) { w.spec.Parameters = []byte(strictParameters) },
		"admit":  func(w *worldTool) { w.plain, w.admit = false, admitForModel }, "broken": func(w *worldTool) { w.broken, w.spec.Source = true, "mcp:y" },
		"relative": func(w *worldTool) { w.plain, w.target = false, targetRelative },
		"an agent": func(w *worldTool) { w.plain, w.target = false, targetSecret },
	} {
		all["tools: "+name] = func(t *rapid.T, w *world) bool {
			if len(w.tools) == 0 {
				return false
			}
			tool := &w.tools[rapid.IntRange(0, len(w.tools)-1).Draw(t, "tool")]
			if tool.plain && tool.effect != effectOfSpec && name != "off by default" {
				tool.effect = effectOfSpec // what it tells of its effect was not heard before
			}
			if tool.plain && (name == "admit" || name == "relative" || name == "an agent") {
				tool.admit, tool.target = admitAll, targetNone
			}
			if name == "an agent" && tool.target != targetNone {
				return false // it would take another target's place
			}
			change(tool)
			return true
		}
	}
	all["tool off"] = func(t *rapid.T, w *world) bool {
		w.over.Tools[pick(t, "switched off", worldNames()...)] = false
		return true
	}
	all["group off"] = func(t *rapid.T, w *world) bool {
		w.over.Groups[pick(t, "switched off", worldGroups()...)] = false
		return true
	}
}

// narrowWorkers has what holds for workers.
func narrowWorkers(all map[string]narrowing) {
	worker := func(change func(*rapid.T, *journal.WorkerLimits)) narrowing {
		return func(t *rapid.T, w *world) bool {
			limits := journal.WorkerLimits{}
			if w.scope.Worker != nil {
				limits = *w.scope.Worker
			}
			change(t, &limits)
			w.scope.Worker = &limits
			return true
		}
	}
	all["fewer hops"] = worker(func(_ *rapid.T, l *journal.WorkerLimits) {
		if l.Hops--; l.Hops <= 0 {
			l.Hops = 1
		}
	})
	all["a smaller cost cap"] = worker(func(_ *rapid.T, l *journal.WorkerLimits) {
		if l.CostCapMode != "enforce" || l.CostCapUSD <= 0 {
			l.CostCapMode, l.CostCapUSD = "enforce", 0.1
		}
		l.CostCapUSD /= 2
	})
	all["more hops before"] = func(_ *rapid.T, w *world) bool { w.facts.Hops++; return true }
	all["more spent"] = func(_ *rapid.T, w *world) bool { w.facts.SpentUSD += 0.05; return true }
	all["no share"] = func(_ *rapid.T, w *world) bool { w.share = shareGone; return true }
	all["later in the turn"] = func(t *rapid.T, w *world) bool {
		at := rapid.IntRange(0, len(w.turn)-1).Draw(t, "call")
		place := at
		if told, ok := w.facts.Place[w.turn[at].ID]; ok && told >= 0 {
			place = told
		}
		if w.facts.Place == nil {
			w.facts.Place = map[string]int{}
		}
		w.facts.Place[w.turn[at].ID] = place + 1
		return true
	}
	all["a run above"] = func(t *rapid.T, w *world) bool {
		list := []string{}
		for range upTo(t, 12, "entries") {
			list = append(list, pick(t, "entry", append(worldPatterns(), "*(a:*)", "read_*(x)")...))
		}
		w.scope.AboveSkills = slices.Insert(w.scope.AboveSkills, upTo(t, len(w.scope.AboveSkills)+1, "at"), list)
		return true
	}
	all["less in a list above"] = func(t *rapid.T, w *world) bool {
		if len(w.scope.AboveSkills) == 0 {
			return false
		}
		at := upTo(t, len(w.scope.AboveSkills), "list")
		w.scope.AboveSkills[at] = w.scope.AboveSkills[at][:len(w.scope.AboveSkills[at])/2]
		if w.scope.AboveSkills[at] == nil {
			w.scope.AboveSkills[at] = []string{}
		}
		return true
	}
	all["answered by an agent"] = func(t *rapid.T, w *world) bool {
		if len(w.tools) == 0 {
			return false
		}
		tool := &w.tools[upTo(t, len(w.tools), "tool")]
		if tool.spec.AnsweredBy != "" {
			return false
		}
		tool.spec.AnsweredBy = toolcrib.ByAgent
		return true
	}
}

func narrowToken(t *rapid.T, w *world) bool {
	if w.people.kind == peopleNone {
		if w.who.Token != "" {
			return false
		}
		w.people.kind = peopleSame
	}
	k := w.people.token
	if k == nil {
		if w.who.Token != "" {
			return false
		}
		w.who.Token, w.people.token = "tok_1", drawToken(t)
		return true
	}
	switch rapid.IntRange(0, 3).Draw(t, "token narrowed") {
	case 0:
		k.agents = nil
	case 1:
		k.tools = k.tools[:len(k.tools)/2]
	case 2:
		k.arguments = k.arguments[:len(k.arguments)/2]
	case 3:
		k.room /= 2
	}
	return true
}

func (w *world) addRule(t *rapid.T, then gate.RuleThen) bool {
	r := drawRule(t, "added")
	r.then = then
	w.rules = slices.Insert(w.rules, rapid.IntRange(0, len(w.rules)).Draw(t, "at"), r)
	return true
}

func (w *world) withoutApprovals() bool {
	for id, d := range w.facts.Decided {
		if d.Decision == journal.DecisionApprove {
			delete(w.facts.Decided, id)
		}
	}
	// What was remembered is not looked at while there is an approval.
	return len(w.facts.Remembered) == 0
}

func (w *world) deny() bool {
	for _, c := range w.turn {
		w.facts.Decided[c.ID] = gate.Decided{Decision: journal.DecisionDeny}
	}
	return true
}

func (w *world) alwaysAsk() bool {
	for _, n := range worldNames() {
		w.settings[n] = gate.ToolSettings{Confirm: gate.ConfirmAlways}
	}
	return true
}

func (w *world) confirmMore() bool {
	if w.confirm == gate.ConfirmNever {
		w.confirm = gate.ConfirmWrites
	} else {
		w.confirm = gate.ConfirmAlways
	}
	return true
}

func (w *world) taintAsks() bool {
	if w.scope.TaintWrites == gate.TaintAllow {
		w.scope.TaintWrites = gate.TaintAsk
	}
	return true
}

func (w *world) repeatMore() bool {
	if w.repeats.times == -2 {
		return false
	}
	w.repeats.times = max(w.repeats.times, 0) + 1
	if w.scope.MaxRepeats == 0 {
		w.scope.MaxRepeats = 3
	}
	return w.repeats.times > 0
}
