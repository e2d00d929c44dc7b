package gate_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/journal"
)

// A family is a run and the runs below it, each started by the one before: a worker gets the
// intersection of its parent's offer and its own. All of them judge the same turn, for the same
// principal, under the same policy.

// asks is what is asked of a child run: by the agent's configuration, and by the call
// that starts it. None of it has to be within what the parent may do.
type asks struct {
	agent                string
	agentTools, runTools []string
	skills               []string // allowed-tools of its own
	hasSkills            bool
	readOnly, nobody     bool
	taint                string
	maxDepth, maxCalls   int
	maxRepeats           int
	worker               *journal.WorkerLimits
	share                shareKind
	taints               []string // sources that it has read besides its parent's
}

// drawAsks draws what is asked of a child run: the ordinary, with at most three things
// out of it, so that much is still allowed three runs below.
func drawAsks(t *rapid.T) asks {
	a := asks{agent: pick(t, "agent", "helper", "helper", "helper", "secret", "default"), hasSkills: true, maxDepth: 9, maxCalls: 8}
	ways := []func(){
		func() { a.agentTools = drawEntries(t, "agent list", worldPatterns()) },
		func() { a.runTools = drawEntries(t, "tools", worldPatterns()) },
		func() { a.skills = drawEntries(t, "skill list", skillPatterns()) },
		func() {
			a.skills = drawEntries(t, "skill list", []string{"*(a:*)", "read_*(a:*)", "spawn(b)", "*", "gh__*"})
		},
		func() { a.hasSkills = false },
		func() { a.readOnly = true },
		func() { a.nobody = true },
		func() { a.taint = pick(t, "taint", gate.TaintAllow, gate.TaintDeny, "typo") },
		func() { a.taints = []string{"web_search"} },
		func() { a.maxDepth = upTo(t, 4, "max depth") },
		func() { a.maxCalls = upTo(t, 4, "max calls") },
		func() { a.maxRepeats = 1 + upTo(t, 3, "max repeats") },
		func() { a.worker = drawWorker(t) },
		func() { a.share = shareKind(upTo(t, int(shareKinds), "share")) },
	}
	for range upTo(t, 4, "out of the ordinary") {
		ways[upTo(t, len(ways), "what")]()
	}
	return a
}

// drawEntries draws a list that has something on it, most of the time.
func drawEntries(t *rapid.T, label string, from []string) []string {
	list := []string{}
	for range upTo(t, 9, label+" length") {
		list = append(list, pick(t, label, from...))
	}
	return list
}

// below derives the scope of a child run from its parent's and from what the parent
// was really offered.
func below(parent *gate.Scope, offered []string, a asks) gate.Scope {
	s := gate.Scope{
		Agent: a.agent, AgentTools: a.agentTools, SkillTools: a.skills, RunTools: a.runTools,
		WorkerTools: append([]string{}, offered...), AboveSkills: slices.Clone(parent.AboveSkills), Worker: a.worker, HasSkills: a.hasSkills,
		ReadOnly: parent.ReadOnly || a.readOnly, TaintWrites: strictest(parent.TaintWrites, a.taint), Unattended: parent.Unattended || a.nobody,
		Workspace: parent.Workspace, Depth: parent.Depth + 1, MaxDepth: min(parent.MaxDepth, a.maxDepth),
		MaxCalls: a.maxCalls, MaxRepeats: a.maxRepeats,
	}
	if parent.SkillTools != nil {
		s.AboveSkills = append(s.AboveSkills, parent.SkillTools)
	}
	return s
}

// strictest of what tainted runs may do: deny before ask before allow, and ask is what
// everything else means.
func strictest(a, b string) string {
	order := map[string]int{gate.TaintDeny: 2, gate.TaintAllow: 0}
	rank := func(s string) int {
		if n, known := order[s]; known {
			return n
		}
		return 1
	}
	if rank(b) > rank(a) {
		return b
	}
	return a
}

// child is the world of a run that a run of w starts. The offer of w is asked for, and
// the child's is what its calls answer.
func (c *celRules) child(t *rapid.T, w world, a asks) world {
	w = w.clone()
	offer, _ := c.gateOf(t, w).Offer(context.Background(), w.who, w.scope) // none with an error
	w.scope = below(&w.scope, offer.Record.Names(), a)
	w.facts.Taint, w.share = slices.Concat(w.facts.Taint, a.taints), a.share
	return c.offered(t, w)
}

// offered makes the real offer of a world what its calls answer.
func (c *celRules) offered(t *rapid.T, w world) world {
	w = w.clone()
	offer, _ := c.gateOf(t, w).Offer(context.Background(), w.who, w.scope)
	w.facts.Offered = offer.Set()
	return w
}

// drawFamily draws a run and one to three runs below it, in a world whose rules do not
// look at what a child run has another of.
func (c *celRules) drawFamily(t *rapid.T, w world) (root world, below []asks) {
	for range 1 + upTo(t, 3, "runs below") {
		below = append(below, drawAsks(t))
	}
	looks := condDeep
	if slices.ContainsFunc(below, func(a asks) bool { return a.taints != nil }) {
		looks = condTainted
	}
	w.rules = slices.DeleteFunc(slices.Clone(w.rules), func(r worldRule) bool { return r.cond == looks || r.cond == condDeep })
	if !oneIn(t, 4, "as deep as it was") {
		w.scope.Depth, w.scope.MaxDepth = 0, 9
	}
	// Without any right to agents there is no child.
	if w.people.token != nil && !oneIn(t, 4, "token as it was") {
		w.people.token.agents = []string{"default", "helper", "secret"}
	}
	return c.offered(t, w), below
}

// descend is the line of worlds from the run down.
func (c *celRules) descend(t *rapid.T, root world, below []asks) []world {
	line := []world{root}
	for _, a := range below {
		line = append(line, c.child(t, line[len(line)-1], a))
	}
	return line
}

// unbounded takes away what a run has of its own and does not pass on.
func (w world) unbounded() world {
	w = w.clone()
	w.scope.MaxCalls, w.scope.MaxRepeats, w.scope.Worker, w.share = 1<<20, 0, nil, shareNoBudget
	return w
}

// TestN15_Property_ChildIsWithinItsParent finds everything that a run below is offered
// offered to each run above it, and everything that it may call allowed to each of
// them: the same calls with the same arguments, but for the bounds that are a run's own.
func TestN15_Property_ChildIsWithinItsParent(t *testing.T) {
	forWorlds(t, func(t *rapid.T, c *celRules, w world) {
		root, below := c.drawFamily(t, w)
		line := c.descend(t, root, below)
		outcomes := make([]outcome, len(line))
		for i, w := range line {
			outcomes[i] = c.decide(t, w)
		}
		for i := range line {
			for above := range i {
				how := fmt.Sprintf("run %d of depth %d, below run %d", i, line[i].scope.Depth, above)
				notWider(t, how, c.decide(t, line[above].unbounded()), outcomes[i])
			}
			for name := range line[i].facts.Offered {
				if i > 0 && !line[i-1].facts.Offered[name] {
					t.Fatalf("run %d is offered %s, its parent was not", i, name)
				}
			}
		}
	})
}

// TestX6_Property_WorkersAreAsTheModelSays holds the calls of child runs to the model,
// as those of any run: what is decided, and the reason, in the gate's order; and
// what explain and a second look say is what was decided.
func TestX6_Property_WorkersAreAsTheModelSays(t *testing.T) {
	forWorlds(t, func(t *rapid.T, c *celRules, w world) {
		root, below := c.drawFamily(t, w)
		line := c.descend(t, root, below)
		for i, w := range line {
			o := c.decide(t, w)
			g := c.gateOf(t, w)
			for k, x := range w.model() {
				v := o.verdicts[k]
				if v.Decision != x.decision || v.Reason != x.reason {
					t.Fatalf("run %d, %s %s: %q %q (%s: %s)\nwant %q %q of %v, questions %q", i, v.Tool, w.turn[k].Arguments,
						v.Decision, v.Reason, v.Message, strings.SplitN(v.Detail, "\n", 2)[0], x.decision, x.reason, x.against, x.questions)
				}
				explained := o.explain[v.Tool]
				again, gone := g.Withdrawn(context.Background(), w.who, w.scope, &w.turn[k])
				if w.turn[k].Name != toolcrib.InvalidName && (gone == explained.Offered || again.Reason != explained.Reason) {
					t.Fatalf("run %d, %s: withdrawn %v as %s, explained as offered %v, %s", i, v.Tool, gone, again.Reason, explained.Offered, explained.Reason)
				}
			}
		}
	})
}

// TestN15_Property_MoreAboveNeverWidens puts one more run into a line, narrows one of
// it, or lets one ask for less, and finds that the last one may do no more than before.
func TestN15_Property_MoreAboveNeverWidens(t *testing.T) {
	ways := narrowings()
	names := slices.Sorted(maps.Keys(ways))
	forWorlds(t, func(t *rapid.T, c *celRules, w world) {
		root, below := c.drawFamily(t, w)
		before := c.descend(t, root, below)
		last := before[len(before)-1]
		how := "one more run"
		switch upTo(t, 3, "change") {
		case 0:
			a := drawAsks(t)
			if slices.ContainsFunc(w.rules, func(r worldRule) bool { return r.cond == condTainted }) {
				a.taints = nil
			}
			below = slices.Insert(slices.Clone(below), upTo(t, len(below), "at"), a)
		case 1:
			how = "the first run: " + pick(t, "how", names...)
			if !ways[strings.TrimPrefix(how, "the first run: ")](t, &root) {
				return
			}
			root = c.offered(t, root)
			if root.scope.Depth > before[0].scope.Depth && len(w.rules) > 0 {
				return // a rule may look at the depth
			}
		case 2:
			how = "less is asked for"
			below = slices.Clone(below)
			lessAsked(t, &below[upTo(t, len(below), "which")])
		}
		after := c.descend(t, root, below)
		notWider(t, how, c.decide(t, last.unbounded()), c.decide(t, after[len(after)-1]))
	})
}

// lessAsked narrows what is asked of one child run.
func lessAsked(t *rapid.T, a *asks) {
	fewer := func(list []string) []string {
		if len(list) == 0 {
			return []string{}
		}
		return list[:len(list)/2]
	}
	switch upTo(t, 7, "less") {
	case 0:
		a.agentTools = fewer(a.agentTools)
	case 1:
		a.runTools = fewer(a.runTools)
	case 2:
		a.skills = fewer(a.skills)
	case 3:
		a.hasSkills = false
	case 4:
		a.readOnly = true
	case 5:
		a.nobody = true
	case 6:
		a.taint = strictest(a.taint, pick(t, "stricter", gate.TaintAsk, gate.TaintDeny))
	}
}
