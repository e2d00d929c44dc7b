package gate_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/journal"
)

// reasonsOf judges a turn and returns what became of each call.
func reasonsOf(t *testing.T, g *gate.Gate, s gate.Scope, f gate.Facts, turn ...toolcrib.ToolCall) string {
	t.Helper()
	var all []string
	for _, v := range judge(t, g, alice(), s, f, turn...) {
		all = append(all, string(v.Decision)+string(v.Reason))
	}
	return strings.Join(all, " ")
}

// X6: each attempt is a hop, even a refused or broken one; the next one beyond the budget is refused,
// and the model is asked to answer.
func TestX6_HopBudget(t *testing.T) {
	g := newGate(t, tool(reads("fetch")))
	good, broken, ghost := call("1", "fetch", `{}`), call("2", "fetch", `{}`), call("3", "ghost", `{}`)
	broken.Malformed, broken.Problem = true, "no name"
	last := call("4", "fetch", `{}`)
	const gone = "hop_budget_exhausted"
	for _, c := range []struct {
		hops, before int
		place        map[string]int
		turn         []toolcrib.ToolCall
		want         string
	}{
		{2, 0, nil, []toolcrib.ToolCall{good, last}, "allow allow"},
		{2, 1, nil, []toolcrib.ToolCall{good, last}, "allow " + gone},
		{2, 2, nil, []toolcrib.ToolCall{good, last}, gone + " " + gone},
		{2, 7, nil, []toolcrib.ToolCall{good}, gone},
		{2, -7, nil, []toolcrib.ToolCall{good, ghost, last}, "allow not_registered " + gone},
		{2, 0, nil, []toolcrib.ToolCall{broken, ghost, last}, "parse_error not_registered " + gone},
		{1, 0, nil, []toolcrib.ToolCall{good, broken, ghost}, "allow parse_error " + gone}, // what cannot be read comes first
		{0, 100, nil, []toolcrib.ToolCall{good, last}, "allow allow"},
		{-1, 100, nil, []toolcrib.ToolCall{good, last}, "allow allow"},
		// What is left of a turn is where it was in the turn.
		{2, 0, map[string]int{"1": 0, "4": 2}, []toolcrib.ToolCall{good, last}, "allow " + gone},
		{2, 0, map[string]int{"4": 2}, []toolcrib.ToolCall{last}, gone},
		{2, 1, map[string]int{"4": 0}, []toolcrib.ToolCall{good, last}, "allow allow"},
		{2, 0, map[string]int{"4": -3}, []toolcrib.ToolCall{good, ghost, last}, "allow not_registered " + gone},
	} {
		s, f := wide(), offering(g)
		s.Worker, f.Hops, f.Place = &journal.WorkerLimits{Hops: c.hops}, c.before, c.place
		if have := reasonsOf(t, g, s, f, c.turn...); have != c.want {
			t.Errorf("%d hops, %d before, places %v: %s, want %s", c.hops, c.before, c.place, have, c.want)
		}
		s.Worker = nil
		if have := reasonsOf(t, g, s, f, c.turn...); strings.Contains(have, gone) {
			t.Errorf("no worker: %s", have)
		}
	}
	s, f := wide(), offering(g)
	s.Worker, f.Hops = &journal.WorkerLimits{Hops: 2}, 2
	v := judge(t, g, alice(), s, f, good)[0]
	const want = `{"refused":true,"tool":"fetch","reason":"hop_budget_exhausted","message":"tool-hop budget exceeded (2)","operator_hint":"Produce your final answer now without further tool calls."}`
	if v.Content != want {
		t.Errorf("the model reads %s", v.Content)
	}
}

// X15, X17, X18: only a cap that is enforced and passed refuses, and it refuses before
// the hops do.
func TestX15_X17_X18_CostCap(t *testing.T) {
	g := newGate(t, tool(reads("fetch")))
	const over = "cost_cap_exceeded"
	for _, c := range []struct {
		cap, spent float64
		mode       string
		hops       int
		want       string
	}{
		{0.05, 0.06, "enforce", 0, over},
		{0.05, 0.05, "enforce", 0, "allow"}, // observed > cap
		{0.05, 0.04, "enforce", 0, "allow"},
		{0.05, 0.06, "enforce", 1, over},
		{0.05, 0.04, "enforce", 1, "hop_budget_exhausted"},
		{0.05, 0.06, "warn", 0, "allow"},
		{0.05, 0.06, "", 0, "allow"},
		{0.05, 0.06, "off", 0, "allow"},
		{0.05, 0.06, "Enforce", 0, "allow"}, // an unknown mode is warn
		{0, 0.06, "enforce", 0, "allow"},
		{-1, 0.06, "enforce", 0, "allow"},
		{math.NaN(), 0.06, "enforce", 0, "allow"},
		{0.05, math.NaN(), "enforce", 0, over}, // what is not known is not below
		{0.05, math.Inf(1), "enforce", 0, over},
	} {
		s, f := wide(), offering(g)
		s.Worker = &journal.WorkerLimits{Hops: c.hops, CostCapUSD: c.cap, CostCapMode: c.mode}
		f.SpentUSD, f.Hops = c.spent, 1
		if have := reasonsOf(t, g, s, f, call("1", "fetch", `{}`)); have != c.want {
			t.Errorf("%+v: %s", c, have)
		}
	}
	s, f := wide(), offering(g)
	s.Worker, f.SpentUSD = &journal.WorkerLimits{CostCapUSD: 0.05, CostCapMode: "enforce"}, 0.0625
	v := judge(t, g, alice(), s, f, call("1", "ghost", `{`))[0]
	wantRefused(t, v, over, "")
	if v.Message != "per-turn cost cap exceeded (observed=$0.0625, cap=$0.05)" {
		t.Errorf("%q", v.Message)
	}
}

// explain says what bounds a worker, and only then.
func TestX6_X17_ExplainTellsTheBounds(t *testing.T) {
	g := newGate(t, tool(reads("fetch")))
	for want, w := range map[string]*journal.WorkerLimits{
		"": nil,
		"calls are refused once the run has tried 2 (hop_budget_exhausted)":                                       {Hops: 2, CostCapUSD: 1},
		"calls are refused once the run has spent more than $0.5 (cost_cap_exceeded)":                             {CostCapUSD: 0.5, CostCapMode: "enforce"},
		"once the run has spent more than $1 (cost_cap_exceeded)|once the run has tried 3 (hop_budget_exhausted)": {Hops: 3, CostCapUSD: 1, CostCapMode: "enforce"},
	} {
		s := wide()
		s.Worker = w
		notes := strings.Join(g.Explain(t.Context(), alice(), s, "fetch")[0].Notes, "\n")
		for part := range strings.SplitSeq(want, "|") {
			if !strings.Contains(notes, part) || want == "" && notes != "" || strings.Count(notes, "calls are refused") != strings.Count(want, "once") {
				t.Errorf("%+v: %q", w, notes)
			}
		}
	}
}

// What is left of a turn that was cut off is still beyond max_calls_per_turn.
func TestPlace_TooManyCalls(t *testing.T) {
	g := newGate(t, tool(reads("x")))
	s, f := wide(), offering(g)
	s.MaxCalls = 2
	f.Place = map[string]int{"b": 1, "c": 2}
	if have := reasonsOf(t, g, s, f, call("b", "x", `{}`), call("c", "x", `{}`)); have != "allow too_many_calls" {
		t.Error(have)
	}
}

// N15: the skills of each run above apply to the calls of a worker, by name and by arguments, in
// offer, decision and explanation.
func TestN15_SkillsOfRunsAbove(t *testing.T) {
	for _, c := range []struct {
		above   string // lists parted by |, entries by space; "null" = no restriction
		own     []string
		answer  skillAnswer // about arguments
		offered bool
		reason  toolcrib.Reason // "" = allowed
	}{
		{"null", nil, skillNo, true, ""},
		{"null|null", nil, skillNo, true, ""},
		{"", nil, skillYes, false, toolcrib.ReasonWorkerAllowlist}, // a list without entries
		{"x", nil, skillNo, true, ""},
		{"x|y", nil, skillYes, false, toolcrib.ReasonWorkerAllowlist},
		{"y|x", nil, skillYes, false, toolcrib.ReasonWorkerAllowlist},
		{"null|x*", nil, skillNo, true, ""},
		{"x|null|y z", nil, skillYes, false, toolcrib.ReasonWorkerAllowlist},
		{"x(a:*)", nil, skillYes, true, ""},
		{"x(a:*)", nil, skillNo, true, toolcrib.ReasonWorkerAllowlist},
		{"x(a:*)", nil, skillError, true, toolcrib.ReasonWorkerAllowlist},
		{"x(a:*)", nil, skillPanic, true, toolcrib.ReasonWorkerAllowlist},
		{"x(a:*)", nil, skillNobody, true, toolcrib.ReasonWorkerAllowlist},
		{"x(a:*) x", nil, skillNo, true, ""},
		{"x|x(a:*)", nil, skillNo, true, toolcrib.ReasonWorkerAllowlist},
		{"x(a:*)|x", nil, skillNo, true, toolcrib.ReasonWorkerAllowlist},
		{"x(a:*)", []string{"x(b)"}, skillNo, true, toolcrib.ReasonSkillAllowlist}, // its own come first
		{"x(a:*)", []string{"x"}, skillNo, true, toolcrib.ReasonWorkerAllowlist},
		{"y(a:*)", []string{"y"}, skillYes, false, toolcrib.ReasonSkillAllowlist},
		{strings.Repeat("y* ", 20), nil, skillYes, false, toolcrib.ReasonWorkerAllowlist}, // long enough to be made ready
		{strings.Repeat("y* ", 20) + "x", nil, skillNo, true, ""},
		{"null|" + strings.Repeat("y* ", 20) + "x(a)", nil, skillNo, true, toolcrib.ReasonWorkerAllowlist},
		{"x|" + strings.Repeat("y* ", 20), nil, skillYes, false, toolcrib.ReasonWorkerAllowlist},
		{strings.Repeat("x ", 20) + "|" + strings.Repeat("y* ", 20), nil, skillYes, false, toolcrib.ReasonWorkerAllowlist},
		{strings.Repeat("y* ", 20) + "|" + strings.Repeat("x ", 20), nil, skillYes, false, toolcrib.ReasonWorkerAllowlist},
		{strings.Repeat("x ", 20) + "|" + strings.Repeat("x* ", 20), nil, skillNo, true, ""},
	} {
		t.Run(fmt.Sprint(c.above, c.own, c.answer), func(t *testing.T) {
			s := wide()
			s.SkillTools, s.HasSkills = c.own, true
			for list := range strings.SplitSeq(c.above, "|") {
				if entries := strings.Fields(list); list == "null" {
					s.AboveSkills = append(s.AboveSkills, nil)
				} else {
					s.AboveSkills = append(s.AboveSkills, append([]string{}, entries...))
				}
			}
			g := gateOf(t, gate.Options{Tools: []toolcrib.Tool{tool(reads("x"))}, SkillArguments: c.answer.judge()})
			v := g.Judge(t.Context(), alice(), s, offering(g), []toolcrib.ToolCall{call("1", "x", `{}`)})[0]
			if v.Reason != c.reason || v.Refused() != (c.reason != "") {
				t.Errorf("%q %s: %s", v.Decision, v.Reason, v.Message)
			}
			for range 2 {
				if o, err := g.Offer(t.Context(), alice(), s); err != nil || o.Set()["x"] != c.offered {
					t.Errorf("offered %v (%v)", o.Record.Names(), err)
				}
			}
			x := g.Explain(t.Context(), alice(), s, "x")[0]
			if x.Offered != c.offered || !c.offered && x.Reason != c.reason {
				t.Errorf("explained as %v %s", x.Offered, x.Reason)
			}
			call := call("1", "x", `{}`)
			if _, gone := g.Withdrawn(t.Context(), alice(), s, &call); gone == c.offered {
				t.Errorf("withdrawn: %v", gone)
			}
			if err := g.MayApprove(t.Context(), alice(), s, "x"); (err == nil) != c.offered {
				t.Errorf("approves: %v", err)
			}
		})
	}
}

// The lists are separate: an entry of one never applies to another, not even in offers.
func TestN15_SkillsOfRunsAboveAreKeptApart(t *testing.T) {
	var seen [][]string
	g := gateOf(t, gate.Options{
		Tools: []toolcrib.Tool{tool(reads("x")), tool(reads("y"))},
		SkillArguments: func(entries []string, _ string, _ *toolcrib.Plan) (bool, error) {
			seen = append(seen, entries)
			return true, nil
		},
	})
	s := wide()
	s.SkillTools, s.AboveSkills = []string{"x(own)"}, [][]string{{"x(a)"}, nil, {"x(b)", "y"}}
	wantAllowed(t, judge(t, g, alice(), s, offering(g), call("1", "x", `{}`))[0])
	if len(seen) != 3 || seen[0][0] != "x(own)" || seen[1][0] != "x(a)" || seen[2][0] != "x(b)" {
		t.Errorf("asked about %q", seen)
	}
	s.SkillTools = nil
	for range 2 {
		for want, above := range map[string][][]string{
			"x y":  {{"x", "y"}},
			"":     {{"x"}, {"y"}},
			"x":    {{"x"}},
			"x ":   {{"x"}, nil},
			"x  ":  {nil, {"x"}},
			"y":    {{"y"}, {"x", "y"}},
			"x y ": {nil},
			" ":    {{}},
		} {
			s.AboveSkills = above
			o, err := g.Offer(t.Context(), alice(), s)
			if have := strings.Join(o.Record.Names(), " "); err != nil || have != strings.TrimSpace(want) {
				t.Fatalf("%q: offered %q (%v)", above, have, err)
			}
		}
	}
}

// A worker learns only that the runs above it do not allow a call.
func TestN15_SkillsOfRunsAboveAreNotTold(t *testing.T) {
	g := gateOf(t, gate.Options{Tools: []toolcrib.Tool{tool(reads("x"))}, SkillArguments: skillNo.judge()})
	s := wide()
	s.WorkerTools, s.AboveSkills = []string{"x", "ghost"}, [][]string{{"x(secret:*)"}}
	v := judge(t, g, alice(), s, offering(g), call("1", "x", `{}`))[0]
	wantRefused(t, v, toolcrib.ReasonWorkerAllowlist, "by the skills of the calling agent")
	if strings.Contains(v.Content, "secret") {
		t.Error(v.Content)
	}
	i := slices.IndexFunc(g.Explain(t.Context(), alice(), s, "x")[0].Layers, func(a gate.LayerAnswer) bool { return a.Layer == toolcrib.ReasonWorkerAllowlist })
	if a := g.Explain(t.Context(), alice(), s, "x")[0].Layers[i]; !slices.Equal(a.Unknown, []string{"ghost"}) {
		t.Errorf("%+v", a)
	}
	s.AboveSkills = [][]string{{"y"}}
	if a := g.Explain(t.Context(), alice(), s, "x")[0].Layers[i]; a.Allowed || !strings.Contains(a.Detail, "skills of a run above") {
		t.Errorf("%+v", a)
	}
}
