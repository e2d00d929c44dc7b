package gate_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/journal"
)

// spawns is the spec of a tool that another agent answers.
func spawns() toolcrib.Spec {
	s := reads("spawn")
	s.AnsweredBy, s.Nested, s.Sink = toolcrib.ByAgent, true, true
	return s
}

const subtask = `{"agent":"writer","task":"Write it down."}`

// spawnGate returns a gate with spawn alone, which has no targets.
func spawnGate(t testing.TB) *gate.Gate { return newGate(t, tool(spawns())) }

func TestReadSubtask(t *testing.T) {
	for args, want := range map[string]journal.Subtask{
		`{"agent":"a","task":"t"}`:                 {Agent: "a", Task: "t"},
		`{"agent":"a","task":"t","tools":null}`:    {Agent: "a", Task: "t"},
		`{"agent":"a","task":"t","tools":[]}`:      {Agent: "a", Task: "t", Tools: []string{}},
		`{"agent":"a","task":"t","tools":["x_*"]}`: {Agent: "a", Task: "t", Tools: []string{"x_*"}},
		`{"AGENT":"a","Task":"t","tools":["x"]}`:   {Tools: []string{"x"}}, // names are as they are
		`{"agent":"a","task":"t","tools":"x"}`:     {Tools: []string{}},    // nothing, rather than everything
		`{"agent":"a","task":7,"tools":["x"]}`:     {Tools: []string{}},
		`{"agent":["a"],"task":"t","tools":null}`:  {Tools: []string{}},
		`[]`:                                   {Tools: []string{}},
		``:                                     {Tools: []string{}},
		`{"agent":"a","task":"t","tools":[1]}`: {Tools: []string{}},
		`{"agent":"a","task":"t","tools":["x",{}]}`: {Tools: []string{}},
	} {
		have, _ := journal.ReadSubtask([]byte(args))
		if have.Agent != want.Agent || have.Task != want.Task || !slices.Equal(have.Tools, want.Tools) || (have.Tools == nil) != (want.Tools == nil) {
			t.Errorf("%s: %+v", args, have)
		}
	}
}

// Whatever schema the tool has, a subtask says who does what.
func TestSubtask_SaysWhoDoesWhat(t *testing.T) {
	for args, has := range map[string]string{
		`{}`:                                     "/agent",
		`{"agent":"","task":"t"}`:                "/agent",
		`{"agent":" \n","task":"t"}`:             "/agent",
		`{"AGENT":"a","task":"t"}`:               "/agent",
		`{"agent":"a"}`:                          "/task",
		`{"agent":"a","task":" \t\n\u00a0"}`:     "/task",
		`{"agent":"a","task":null}`:              "/task",
		`{"agent":"a","task":7}`:                 "as texts",
		`{"agent":["a"],"task":"t"}`:             "as texts",
		`{"agent":"a","task":"t","tools":"x"}`:   "array of texts",
		`{"agent":"a","task":"t","tools":[1,2]}`: "array of texts",
	} {
		v := judgeOne(t, spawnGate(t), call("1", "spawn", args))
		wantRefused(t, v, toolcrib.ReasonInvalidArguments, has)
		if !strings.HasPrefix(v.Message, "invalid_arguments: ") || !strings.Contains(v.Content, `"schema_error":{`) {
			t.Errorf("%s: %s", args, v.Content)
		}
	}
	wantAllowed(t, judgeOne(t, spawnGate(t), call("1", "spawn", `{"agent":"a","task":"t","tools":[]}`)))
	plain := reads("spawn")
	wantAllowed(t, judgeOne(t, newGate(t, tool(plain)), call("1", "spawn", `{}`))) // the name means nothing
}

// The permit of a call that another agent answers is marked, and cannot be executed.
func TestSubtask_PermitIsNotExecuted(t *testing.T) {
	asks := reads("spawn")
	asks.AnsweredBy = toolcrib.ByPerson
	for _, spec := range []toolcrib.Spec{spawns(), asks} {
		v := judgeOne(t, newGate(t, tool(spec)), call("1", "spawn", subtask))
		wantAllowed(t, v)
		if v.AnsweredBy != spec.AnsweredBy {
			t.Errorf("answered by %q", v.AnsweredBy)
		}
		if out, err := v.Permit.Execute(t.Context(), gate.Attachments{}); !errors.Is(err, gate.ErrAnsweredElsewhere) || out.Text != "" {
			t.Errorf("%+v, %v", out, err)
		}
	}
	p := permitOf(t, tool(reads("x")))
	if out, err := p.Execute(t.Context(), gate.Attachments{}); err != nil || out.Text != "ran x" {
		t.Errorf("%+v, %v", out, err)
	}
	var none gate.Permit
	if _, err := none.Execute(t.Context(), gate.Attachments{}); !errors.Is(err, gate.ErrNoPermit) {
		t.Error(err)
	}
}

// Another agent may take as long as the run, and counts against the depth, whether its
// tool says so or not.
func TestSubtask_TimeAndDepth(t *testing.T) {
	spec := spawns()
	spec.Nested = false
	g := newGate(t, tool(spec))
	s := wide()
	s.Timeout = 1e9
	v := judge(t, g, alice(), s, offering(g), call("1", "spawn", subtask))[0]
	wantAllowed(t, v)
	if v.Permit.Timeout() != 0 {
		t.Errorf("ends after %s", v.Permit.Timeout())
	}
	s.Depth = s.MaxDepth
	wantRefused(t, judge(t, g, alice(), s, offering(g), call("1", "spawn", subtask))[0], toolcrib.ReasonDepthExceeded, "Do the work yourself")
	if o, err := g.Offer(t.Context(), alice(), s); err != nil || !o.Set()["spawn"] {
		t.Errorf("offered %v (%v): the reason could not be reached", o.Record.Names(), err)
	}
	if x := g.Explain(t.Context(), alice(), s, "spawn")[0]; !slices.ContainsFunc(x.Notes, func(n string) bool { return strings.Contains(n, "depth_exceeded") }) {
		t.Errorf("%q", x.Notes)
	}
}

// M16, N18: an agent that the principal may not use, or that its token does not cover, is not reached
// through any tool, whether or not the tool names its targets.
func TestN18_AgentsAsTargets(t *testing.T) {
	tells := func(agents ...string) toolcrib.Tool {
		return &fullTool{plainTool: plainTool{spawns()}, targets: func(toolcrib.Call) (all []toolcrib.Target) {
			for _, a := range agents {
				all = append(all, toolcrib.Target{Kind: toolcrib.TargetAgent, Name: a})
			}
			return all
		}}
	}
	other := &fullTool{plainTool: plainTool{reads("spawn")}, targets: func(toolcrib.Call) []toolcrib.Target {
		return []toolcrib.Target{{Kind: "host", Name: "secret"}, {Kind: toolcrib.TargetAgent, Name: "secret"}}
	}}
	host := &fullTool{plainTool: plainTool{spawns()}, targets: func(toolcrib.Call) []toolcrib.Target {
		return []toolcrib.Target{{Kind: "host", Name: "writer"}}
	}}
	covers := func(agents ...string) *worldToken {
		return &worldToken{agents: agents, tools: []string{"spawn"}, arguments: []string{subtask}, room: 9}
	}
	for _, c := range []struct {
		name    string
		tool    toolcrib.Tool
		grants  []string
		admin   bool
		token   *worldToken
		allowed bool
		detail  string
	}{
		{"no grants", tells("writer"), nil, false, nil, true, ""},
		{"granted", tells("writer"), []string{"spawn", "agent:default", "agent:wr*"}, false, nil, true, ""},
		{"granted, and the tool tells nothing", tool(spawns()), []string{"spawn", "agent:default", "agent:writer"}, false, nil, true, ""},
		{"another", tells("writer"), []string{"spawn", "agent:default", "agent:other"}, false, nil, false, "no grant of alice names the agent writer"},
		{"another, and the tool tells nothing", tool(spawns()), []string{"spawn", "agent:default"}, false, nil, false, "no grant of alice names the agent writer"},
		{"another, and the tool tells of one that is granted", tells("default"), []string{"spawn", "agent:default"}, false, nil, false, "names the agent writer"},
		{"another, and the tool tells of a host of that name", host, []string{"spawn", "agent:default"}, false, nil, false, "names the agent writer"},
		{"one of two", tells("default", "secret"), []string{"spawn", "agent:default", "agent:writer"}, false, nil, false, "names the agent secret"},
		{"a wildcard alone", tells("writer"), []string{"spawn", "agent:default", "agent:*"}, false, nil, false, "no grant"},
		{"an administrator", tells("writer"), []string{"agent:default"}, true, nil, true, ""},
		{"a tool that answers itself", other, []string{"spawn", "agent:default"}, false, nil, false, "names the agent secret"},
		{"covered", tells("writer"), nil, false, covers("default", "writer"), true, ""},
		{"not covered", tells("writer"), nil, false, covers("default"), false, "does not work"},
		{"not covered, and the tool tells nothing", tool(spawns()), nil, true, covers("default"), false, "does not work"},
		{"covered, not granted", tells("writer"), []string{"spawn", "agent:default"}, false, covers("default", "writer"), false, "no grant"},
	} {
		t.Run(c.name, func(t *testing.T) {
			who := toolcrib.Principal{User: "alice", Admin: c.admin, Grants: c.grants}
			if c.token != nil {
				who.Token = "tok_1"
			}
			w := &world{people: worldPeople{kind: peopleSame, token: c.token}}
			g := gateOf(t, gate.Options{Tools: []toolcrib.Tool{c.tool}, People: current{w}})
			for _, dry := range []bool{false, true} { // decided, and explained with arguments
				f := offering(g)
				f.DryRun = dry
				v := judge(t, g, who, wide(), f, call("1", "spawn", subtask))[0]
				if c.allowed {
					wantAllowed(t, v)
					continue
				}
				wantRefused(t, v, toolcrib.ReasonNotPermitted, "is not available to this user")
				if !strings.Contains(v.Detail, c.detail) || strings.Contains(v.Content, "grant") {
					t.Fatalf("%q; the model reads %s", v.Detail, v.Content)
				}
			}
			offer, err := g.Offer(t.Context(), who, wide())
			if err != nil || !offer.Set()["spawn"] {
				t.Fatalf("offered %v (%v)", offer.Record.Names(), err)
			}
		})
	}
}

// The agent of a subtask is among the targets of the call once, for rules and for the
// journal.
func TestSubtask_AgentIsATarget(t *testing.T) {
	agent := toolcrib.Target{Kind: toolcrib.TargetAgent, Name: "writer"}
	tells := &fullTool{plainTool: plainTool{spawns()}, targets: func(toolcrib.Call) []toolcrib.Target {
		return []toolcrib.Target{{Kind: "host", Name: "writer"}, agent}
	}}
	for want, tl := range map[int]toolcrib.Tool{1: tool(spawns()), 2: tells} {
		v := judgeOne(t, newGate(t, tl), call("1", "spawn", subtask))
		wantAllowed(t, v)
		if len(v.Targets) != want || v.Targets[want-1] != agent || !slices.Equal(v.Permit.Targets(), v.Targets) {
			t.Errorf("%+v", v.Targets)
		}
	}
	v := judgeOne(t, newGate(t, tool(reads("spawn"))), call("1", "spawn", subtask))
	if wantAllowed(t, v); len(v.Targets) != 0 {
		t.Errorf("%+v", v.Targets)
	}
}

// What is said about the arguments of a subtask, and about its budget, in the gate's
// order: each reason is taken away, and the next one shows.
func TestSubtask_Order(t *testing.T) {
	spec := spawns()
	spec.Effect = toolcrib.EffectNonIdempotentWrite
	g := gateOf(t, gate.Options{Tools: []toolcrib.Tool{tool(spec)}, Rules: fakeRules{rules: []worldRule{{name: "a", cond: condTainted, then: gate.RuleDeny}}}})
	who, s, f, c := alice(), wide(), offering(g), call("1", "spawn", `{"agent":"writer","task":" "}`)
	who.Grants = []string{"spawn", "agent:default"}
	s.SkillTools, s.AboveSkills = []string{"spawn(a)"}, [][]string{{"spawn(b)"}}
	s.ReadOnly, s.TaintWrites, s.Unattended, s.MaxRepeats = true, gate.TaintDeny, true, 1
	f.Taint, f.Repeated, f.Share = []string{"web_fetch"}, func(string, []byte) int { return 1 }, func(string) string { return "nothing is left" }
	for i, step := range []struct {
		reason toolcrib.Reason
		lift   func()
	}{
		{toolcrib.ReasonInvalidArguments, func() { c.Arguments = []byte(subtask) }},
		{toolcrib.ReasonNotPermitted, func() { who.Grants = append(who.Grants, "agent:writer") }},
		{toolcrib.ReasonSkillAllowlist, func() { s.SkillTools = nil }},
		{toolcrib.ReasonWorkerAllowlist, func() { s.AboveSkills = nil }},
		{toolcrib.ReasonReadOnlyMode, func() { s.ReadOnly = false }},
		{toolcrib.ReasonRuleDenied, func() { g = newGate(t, tool(spec)) }},
		{toolcrib.ReasonTaintedFlow, func() { s.TaintWrites = gate.TaintAllow }},
		{toolcrib.ReasonRepeatedCall, func() { f.Repeated = nil }},
		{toolcrib.ReasonBudgetExhausted, func() { f.Share = nil }},
		{toolcrib.ReasonNeedsConfirmation, func() { s.Unattended = false }},
	} {
		v := judge(t, g, who, s, f, c)[0]
		if !v.Refused() || v.Reason != step.reason {
			t.Fatalf("step %d: %q %s: %s, want %s", i, v.Decision, v.Reason, v.Message, step.reason)
		}
		step.lift()
	}
	wantAsked(t, judge(t, g, who, s, f, c)[0])
}

// A subtask for which the run's budget has no part left is refused; other calls, and a
// run without a budget, are not.
func TestSubtask_Share(t *testing.T) {
	g := newGate(t, tool(spawns()), tool(reads("read_file")))
	turn := []toolcrib.ToolCall{call("a", "spawn", subtask), call("b", "read_file", `{}`), call("c", "spawn", subtask)}
	for _, dry := range []bool{false, true} {
		f := offering(g)
		f.DryRun, f.Past = dry, dry
		f.Share = func(id string) string {
			if id == "c" {
				return "budget.max_requests: 3 of 3 spent"
			}
			return ""
		}
		all := judge(t, g, alice(), wide(), f, turn...)
		wantAllowed(t, all[0])
		wantAllowed(t, all[1])
		wantRefused(t, all[2], toolcrib.ReasonBudgetExhausted, "no budget is left for another agent (budget.max_requests). Do the work yourself, or answer with what you have.")
		if all[2].Detail != "budget.max_requests: 3 of 3 spent" || strings.Contains(all[2].Content, "3 of 3") {
			t.Errorf("%q; the model reads %s", all[2].Detail, all[2].Content)
		}
		f.Share = func(string) string { panic("share") }
		all = judge(t, g, alice(), wide(), f, turn...)
		wantRefused(t, all[0], toolcrib.ReasonBudgetExhausted, "could not be judged")
		wantAllowed(t, all[1])
		// The calls of an access token are another thing.
		w := &world{people: worldPeople{kind: peopleSame, token: &worldToken{agents: []string{"default", "writer"}, tools: []string{"spawn"}, arguments: []string{subtask}, room: 9}}}
		by := gateOf(t, gate.Options{Tools: []toolcrib.Tool{tool(spawns())}, People: current{w}})
		f.Share = func(string) string { return "nothing is left" }
		f.Counted = map[string]bool{"c": true}
		for _, v := range judge(t, by, toolcrib.Principal{User: "alice", Token: "tok_1"}, wide(), f, turn[0], turn[2]) {
			wantRefused(t, v, toolcrib.ReasonBudgetExhausted, "no budget is left for another agent")
		}
		// An approval pays for nothing.
		f.Share = func(string) string { return "nothing is left" }
		f.Decided = map[string]gate.Decided{"a": {Decision: journal.DecisionApprove}}
		wantRefused(t, judge(t, g, alice(), wide(), f, turn...)[0], toolcrib.ReasonBudgetExhausted, "")
	}
}
