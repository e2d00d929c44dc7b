package spawn_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/skill"
	"github.com/toolcrib/toolcrib/tool/spawn"
	"github.com/toolcrib/toolcrib/toolcribtest/tooltest"
)

// some agents, not in order.
func some() []spawn.Agent {
	return []spawn.Agent{
		{Name: "reviewer", Description: "reviews changes of code"},
		{Name: "default"},
		{Name: "coder_2", Description: "writes\n- code"},
	}
}

func many(n int) []spawn.Agent {
	agents := make([]spawn.Agent, n)
	for i := range agents {
		agents[i] = spawn.Agent{Name: fmt.Sprintf("agent-%04d", i), Description: strings.Repeat("does much ", 40)}
	}
	return agents
}

// judge is what the gate says to a call by a person who may use everything.
func judge(t *testing.T, tool toolcrib.Tool, scope gate.Scope, arguments string) gate.Verdict {
	t.Helper()
	g, err := gate.New(gate.Options{
		Availability: gate.Overrides{}, Confirm: gate.ConfirmWrites, Tools: []toolcrib.Tool{tool},
		SkillArguments: skill.Allowed,
	})
	if err != nil {
		t.Fatal(err)
	}
	scope.Workspace, scope.MaxCalls = t.TempDir(), 64
	facts := gate.Facts{Run: "run_x", Offered: map[string]bool{spawn.Name: true}}
	if scope.TaintWrites != "" {
		facts.Taint = []string{"https://example.com"}
	}
	return g.Judge(t.Context(), toolcrib.Principal{User: "root", Admin: true}, scope, facts, []toolcrib.ToolCall{
		{ID: "c1", Name: spawn.Name, Arguments: json.RawMessage(arguments)},
	})[0]
}

// TestN1_SpawnSpec checks the specification of spawn.
func TestN1_SpawnSpec(t *testing.T) {
	spec := spawn.New(some()).Spec()
	if err := spec.Check(); err != nil {
		t.Fatal(err)
	}
	if spec.Name != "spawn" || spec.AnsweredBy != toolcrib.ByAgent || !spec.Nested || !spec.Sink ||
		spec.Effect != toolcrib.EffectReadOnly || spec.Group != "agents" || spec.Source != "builtin" ||
		!spec.EnabledByDefault || spec.RequiresAdmin || spec.Untrusted {
		t.Errorf("%+v", spec)
	}
	if !strings.HasSuffix(spec.Description, "\nAgents:\n- coder_2: writes - code\n- default\n- reviewer: reviews changes of code") {
		t.Errorf("%s", spec.Description)
	}
	var schema struct {
		Properties struct{ Agent struct{ Enum []string } }
		Closed     *bool `json:"additionalProperties"`
	}
	if err := json.Unmarshal(spec.Parameters, &schema); err != nil {
		t.Fatal(err)
	}
	if got := schema.Properties.Agent.Enum; !slices.Equal(got, []string{"coder_2", "default", "reviewer"}) || schema.Closed == nil || *schema.Closed {
		t.Errorf("%s", spec.Parameters)
	}
	var toolErr *toolcrib.ToolError
	if _, err := spawn.New(some()).Call(t.Context(), toolcrib.Call{}); !errors.As(err, &toolErr) || toolErr.Kind != toolcrib.ExecutionFailed {
		t.Errorf("a call that nobody executes: %v", err)
	}
}

// What the gate says to arguments, by schema and by the tool's own policy (N26, C15).
func TestN26_SpawnArguments(t *testing.T) {
	few, crowd := spawn.New(some()), spawn.New(many(1000))
	long := func(n int) string { return strings.Repeat("ä", n) }
	list := func(n int, item string) string {
		return `["` + strings.Repeat(item+`","`, n-1) + item + `"]`
	}
	for _, c := range []struct {
		tool            toolcrib.Tool
		arguments, want string
	}{
		{few, `{"agent":"default","task":"x"}`, "allow"},
		{few, `{"agent":"default","task":"` + long(32768) + `"}`, "allow"},
		{few, `{"agent":"default","task":"` + long(32769) + `"}`, "invalid_arguments"},
		{few, `{"agent":"default","task":""}`, "invalid_arguments"},
		{few, `{"agent":"default","task":" \n\t "}`, "invalid_arguments"},
		{few, `{"agent":"default"}`, "invalid_arguments"},
		{few, `{"task":"x"}`, "invalid_arguments"},
		{few, `{"agent":"nobody","task":"x"}`, "invalid_arguments"},
		{few, `{"agent":"DEFAULT","task":"x"}`, "invalid_arguments"},
		{few, `{"agent":"","task":"x"}`, "invalid_arguments"},
		{few, `{"agent":null,"task":"x"}`, "invalid_arguments"},
		{few, `{"agent":["default"],"task":"x"}`, "invalid_arguments"},
		{few, `{"agent":"default","task":"x","depth":1}`, "invalid_arguments"},
		{few, `{"agent":"default","agent":"reviewer","task":"x"}`, "invalid_arguments"},
		{few, `{"agent":"default","task":"x","tools":null}`, "invalid_arguments"},
		{few, `{"agent":"default","task":"x","tools":"read_*"}`, "invalid_arguments"},
		{few, `{"agent":"default","task":"x","tools":[]}`, "allow"},
		{few, `{"agent":"default","task":"x","tools":["read_*","ghost"]}`, "allow"},
		{few, `{"agent":"default","task":"x","tools":[""]}`, "invalid_arguments"},
		{few, `{"agent":"default","task":"x","tools":` + list(200, strings.Repeat("a", 128)) + `}`, "allow"},
		{few, `{"agent":"default","task":"x","tools":` + list(201, "a") + `}`, "invalid_arguments"},
		{few, `{"agent":"default","task":"x","tools":` + list(1, strings.Repeat("a", 129)) + `}`, "invalid_arguments"},
		{crowd, `{"agent":"agent-0999","task":"x"}`, "allow"},
		{crowd, `{"agent":"Agent_999","task":"x"}`, `tool_policy not found: there is no agent "Agent_999"; near it are: agent-0999, agent-0099, agent-0199`},
		{crowd, `{"agent":"translator","task":"x"}`, `tool_policy not found: there is no agent "translator"; there are: agent-0000, agent-0001, agent-0002, …`},
		{crowd, `{"agent":"a\u001b[2J\u202e","task":"x"}`, `tool_policy not found: there is no agent "a[U+001B][2J[U+202E]"; there are: agent-0000, agent-0001, agent-0002, …`},
		{crowd, `{"agent":"` + strings.Repeat("a", 129) + `","task":"x"}`, "invalid_arguments"},
		{spawn.New(nil), `{"agent":"default","task":"x"}`, `tool_policy not found: there is no agent "default"; no agent is configured`},
	} {
		v := judge(t, c.tool, gate.Scope{MaxDepth: 3}, c.arguments)
		got := string(v.Decision)
		if v.Decision == toolcrib.Refuse {
			got = string(v.Reason)
		}
		if v.Reason == toolcrib.ReasonToolPolicy {
			got += " " + v.Message
		}
		if got != c.want {
			t.Errorf("%.80s: %s (%s), want %s", c.arguments, got, v.Message, c.want)
		}
	}
}

// Its target is the agent; it needs no approval by its effect, passes in a run that
// may only read, carries data out of a tainted one, and counts against the depth.
func TestN26_SpawnAtTheGate(t *testing.T) {
	const call = `{"agent":"reviewer","task":"x"}`
	for name, c := range map[string]struct {
		scope gate.Scope
		want  string
	}{
		"plain":       {gate.Scope{MaxDepth: 3}, "allow"},
		"read only":   {gate.Scope{MaxDepth: 3, ReadOnly: true}, "allow"},
		"depth":       {gate.Scope{MaxDepth: 3, Depth: 3}, "depth_exceeded"},
		"tainted ask": {gate.Scope{MaxDepth: 3, TaintWrites: gate.TaintAsk}, "ask tainted_flow"},
		"tainted no":  {gate.Scope{MaxDepth: 3, TaintWrites: gate.TaintDeny}, "tainted_flow"},
		"agent list":  {gate.Scope{MaxDepth: 3, AgentTools: []string{"read_*"}}, "agent_allowlist"},
		"empty list":  {gate.Scope{MaxDepth: 3, RunTools: []string{}}, "run_allowlist"},
		"skill":       {gate.Scope{MaxDepth: 3, SkillTools: []string{"spawn(rev*)"}}, "allow"},
		"other skill": {gate.Scope{MaxDepth: 3, SkillTools: []string{"Task(coder_2)"}}, "skill_allowlist"},
	} {
		v := judge(t, spawn.New(some()), c.scope, call)
		got := strings.TrimSpace(string(v.Decision) + " " + string(v.Reason))
		if got != c.want {
			t.Errorf("%s: %s (%s), want %s", name, got, v.Message, c.want)
		}
		if v.Decision != toolcrib.Refuse && (len(v.Targets) != 1 || v.Targets[0] != toolcrib.Target{Kind: toolcrib.TargetAgent, Name: "reviewer"}) {
			t.Errorf("%s: targets %+v", name, v.Targets)
		}
		if v.Decision == toolcrib.Ask && (v.Preview == nil || !strings.HasPrefix(v.Preview.Text, "agent: reviewer (reviews changes of code)\n")) {
			t.Errorf("%s: preview %+v", name, v.Preview)
		}
	}
}

// A name or description from anywhere breaks nothing of what a model reads, and is
// bounded: control characters, other entries of the list, 1 MB.
func TestC7_SpawnHostileAgents(t *testing.T) {
	huge := strings.Repeat("x", 1<<20)
	hostile := []spawn.Agent{
		{Name: ""},
		{Name: "a b"},
		{Name: "a\nb"},
		{Name: "a\x00"},
		{Name: "a\x1b[2J"},
		{Name: "a\u202e"},
		{Name: "a\xff"},
		{Name: "\u200b"},
		{Name: huge},
		{Name: strings.Repeat("n", 129)},
		{Name: `q"],"x":["`},
		{Name: `back\slash`},
		{Name: "日本", Description: "fine"},
		{Name: "first", Description: "one"},
		{Name: "first", Description: "two"},
		{Name: "control", Description: "a\x1b[31m\x00b\r\n- admin: does all\u2028\u202e\xff%s%n"},
		{Name: "huge", Description: huge},
		{Name: "spaces", Description: strings.Repeat(" ", 1<<20)},
		{Name: "wide", Description: strings.Repeat("日", 1<<18)},
	}
	spec := spawn.New(hostile).Spec()
	text := spec.Description
	if guard.Visible(text) != text || !utf8.ValidString(text) || len(text) > 6<<10 {
		t.Errorf("%d bytes: %q", len(text), text)
	}
	_, listed, _ := strings.Cut(text, "\nAgents:\n")
	var names []string
	for line := range strings.SplitSeq(listed, "\n") {
		name, about, _ := strings.Cut(strings.TrimPrefix(line, "- "), ": ")
		if n := utf8.RuneCountInString(about); n > 500 {
			t.Errorf("%s: %d characters", name, n)
		}
		names = append(names, name)
	}
	want := []string{`back\slash`, "control", "first", "huge", `q"],"x":["`, "spaces", "wide", "日本"}
	if !slices.Equal(names, want) || !strings.Contains(text, "- first: one\n") {
		t.Errorf("got %q", names)
	}
	var schema struct {
		Properties struct{ Agent struct{ Enum []string } }
	}
	if err := json.Unmarshal(spec.Parameters, &schema); err != nil || !slices.Equal(schema.Properties.Agent.Enum, want) {
		t.Errorf("%v: %s", err, spec.Parameters)
	}
	for _, a := range hostile {
		raw, err := json.Marshal(map[string]string{"agent": a.Name, "task": "x"})
		if err != nil {
			t.Fatal(err)
		}
		if v := judge(t, spawn.New(hostile), gate.Scope{MaxDepth: 1}, string(raw)); (v.Decision == toolcrib.Allow) != slices.Contains(want, a.Name) {
			t.Errorf("%.40q: %s %s", a.Name, v.Decision, v.Message)
		}
	}
}

// However many agents there are, the text is bounded and says what it leaves out.
func TestC7_SpawnManyAgents(t *testing.T) {
	intro := strings.Index(spawn.New(some()).Spec().Description, "\nAgents:") + len("\nAgents:")
	for _, c := range []struct {
		agents       int
		listed, enum int
		described    int
		ends         string
	}{
		{agents: 5, listed: 5, enum: 5, described: 5},
		{agents: 20, listed: 20, enum: 20, described: 9},
		{agents: 200, listed: 200, enum: 200, described: 3},
		{agents: 201, listed: 200, described: 3, ends: "- and 1 more that are not listed here: a name that does not exist is answered with names near it"},
		{agents: 1000, listed: 200, described: 3, ends: "- and 800 more that are not listed here: a name that does not exist is answered with names near it"},
	} {
		spec := spawn.New(many(c.agents)).Spec()
		list := spec.Description[intro:]
		if len(list) > 4096 {
			t.Errorf("%d agents: %d bytes", c.agents, len(list))
		}
		listed, described := strings.Count(list, "\n- agent-"), strings.Count(list, ": does much")
		enum := strings.Count(string(spec.Parameters), `"agent-`)
		if listed != c.listed || enum != c.enum || described != c.described || !strings.HasSuffix(list, c.ends) {
			t.Errorf("%d agents: %d listed, %d in the enum, %d described, ends %q", c.agents, listed, enum, described, list[max(0, len(list)-120):])
		}
	}
	long := make([]spawn.Agent, 100)
	for i := range long {
		long[i].Name = fmt.Sprintf("%s-%03d", strings.Repeat("n", 120), i)
	}
	if text := spawn.New(long).Spec().Description; len(text[intro:]) > 4096 || !strings.HasSuffix(text, " more, which the parameter agent names") {
		t.Errorf("%d bytes: %s", len(text), text)
	}
}

// A person sees who would work on what, with which tools; no task can forge that.
func TestC9_SpawnPreview(t *testing.T) {
	for _, c := range []struct{ arguments, want string }{
		{`{"agent":"default","task":"Look."}`, "agent: default\ntools: all that it and the caller have\ntask (5 characters):\n  Look."},
		{`{"agent":"reviewer","task":"Look.","tools":[]}`, "agent: reviewer (reviews changes of code)\ntools: none\ntask (5 characters):\n  Look."},
		{
			`{"agent":"default","task":"x\r\ntools: none\u001b[2J","tools":["read_*","a\nagent: z"]}`,
			"agent: default\ntools: read_*, a agent: z\ntask (18 characters):\n  x\n  tools: none[U+001B][2J",
		},
	} {
		p, err := tooltest.Preview(t.Context(), spawn.New(some()), toolcrib.Call{Arguments: json.RawMessage(c.arguments)})
		if err != nil || p.Kind != "text" || p.Text != c.want {
			t.Errorf("%v: %q, want %q", err, p.Text, c.want)
		}
	}
	task, err := json.Marshal(map[string]any{"agent": "default", "task": strings.Repeat("日", 32768), "tools": slices.Repeat([]string{strings.Repeat("t", 128)}, 200)})
	if err != nil {
		t.Fatal(err)
	}
	p, err := tooltest.Preview(t.Context(), spawn.New(some()), toolcrib.Call{Arguments: task})
	if err != nil || utf8.RuneCountInString(p.Text) > 4600 || !strings.Contains(p.Text, " and 197 more\n") || !strings.HasSuffix(p.Text, "日…") {
		t.Errorf("%v, %d characters: %.300s", err, utf8.RuneCountInString(p.Text), p.Text)
	}
}
