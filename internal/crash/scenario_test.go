package crash

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/journal"
)

// Scenario is one run: what the model says, and what the person does.
type Scenario struct {
	Name string

	script string // of the model
	second string // of the fallback; "" = none
	flaky  int    // at so many attempts of each round the model fails
	// If stopped is set, the process is stopped as by SIGTERM at the first attempt of each round, and
	// releases the run.
	stopped bool
	other   string // script of the model that a person gives to a run which waits for its provider; "" = the run asks its own again
	given   *toolcrib.ToolCall

	confirm  gate.ConfirmMode
	approve  agent.Approve
	onDenial string
	limits   func(*toolcrib.Limits)

	// decide returns the person's decision on an open approval. If nil, all are approved.
	decide func(s *agent.State) agent.Decision
	// notHappened: of a call in doubt that had no effect the person says so; else
	// that it is to be tried again.
	notHappened bool
	revoked     bool             // what is remembered for the run is revoked at once
	answer      string           // JSON, to a question
	granted     *journal.Granted // to a question about a limit; nil = deny
	say         string           // before the first decision
	cancel      bool             // instead of a decision

	mcp     string // the way to an MCP server; "" = no server
	context int    // of the model, in tokens; 0 = unknown
	schema  string // of the answer

	team   map[string]*member // whom the run may call; nil = nobody
	budget toolcrib.Budget
	early  bool // the person decides as soon as any run waits, and then continues the run at the top
	// loose: the end may be another one than without kills, for what was lost counts, or
	// runs that are driven at once differ. Only the laws hold.
	loose bool
	waits bool // runs may still wait at the end
}

// Family reports whether there are runs that start one another.
func (sc *Scenario) Family() bool { return sc.team != nil }

// person is who decides, cancels and speaks.
const person = "local:person"

// Scenarios returns all scenarios, each with a name of its own.
func Scenarios() []*Scenario {
	all := slices.Concat(plain(), ended(), asked(), children(), childrenEnded(), childrenAsked())
	for _, sc := range all {
		if sc.confirm == "" {
			sc.confirm = gate.ConfirmNever
		}
	}
	return all
}

func find(name string) (*Scenario, error) {
	for _, sc := range Scenarios() {
		if sc.Name == name {
			return sc, nil
		}
	}
	return nil, fmt.Errorf("no scenario %q", name)
}

// The models of the run at the top, and its fallback's. Other agents have a model of
// their own name.
const (
	firstModel  = "one"
	secondModel = "two"
	otherModel  = "other" // that a person chooses
)

var price = toolcrib.Price{Input: 1, Output: 2, Known: true} // of every model

const done = "- {text: \"done\", usage: {input: 50, output: 5}}\n"

// turn is a reply that makes calls, each NAME ID ARGUMENTS.
func turn(calls ...[3]string) string {
	text := "- usage: {input: 100, output: 10}\n  tool_calls:\n"
	for _, c := range calls {
		text += fmt.Sprintf("  - {name: %s, id: %s, arguments: %s}\n", c[0], c[1], c[2])
	}
	return text
}

// big is a reply with many calls that does not report its usage.
func big(text, id string) string {
	return fmt.Sprintf("- text: %q\n  tool_calls:\n  - {name: big, id: %s, arguments: {}}\n", text, id)
}

func call(name, id, arguments string) [3]string { return [3]string{name, id, arguments} }

// line is a call that must never run twice.
func line(id string) [3]string { return call("append_line", id, "{key: key-"+id+"}") }

func thing(id string) [3]string { return call("read_thing", id, "{name: "+id+"}") }

// outage is for how many attempts a provider is down: a run that has a reply parks before
// that.
const outage = 4

// retry makes a run park after the third attempt, but for the first reply.
func retry() *journal.Retry {
	return &journal.Retry{First: time.Hour, MaxElapsed: time.Second, Park: time.Hour}
}

// overMCP reads and writes by an MCP server.
var overMCP = turn(call("srv__append", "m1", "{key: key-m1}"), call("srv__look", "l1", "{key: key-l1}"), thing("r1")) +
	turn(call("srv__append", "m2", "{key: key-m2}"), line("c1")) + done

// plain are runs that come to their end by themselves.
func plain() []*Scenario {
	return []*Scenario{
		{Name: "answer", script: done},
		{Name: "parallel reads", script: turn(thing("r1"), thing("r2"), thing("r3"), call("read_file", "r4", "{path: old.txt}")) + done},
		{Name: "file writes", script: turn(
			call("write_file", "w1", "{path: new/a.txt, content: first}"),
			call("edit_file", "w2", "{path: old.txt, old_text: two, new_text: zwei}"),
			call("edit_file", "w3", "{path: old.txt, old_text: three, new_text: drei}"),
		) + turn(call("write_file", "w4", "{path: new/a.txt, content: second}"), call("read_file", "r1", "{path: old.txt}")) + done},
		{Name: "writes", script: turn(line("c1"), thing("r1")) + turn(line("c2")) + done},
		{Name: "parallel writes", script: turn(line("c1"), line("c2"), thing("r1"), line("c3")) + done},
		{Name: "MCP over stdio", mcp: overPipes, loose: true, script: overMCP},
		{Name: "MCP over http", mcp: overHTTP, loose: true, script: overMCP},
		{Name: "MCP server dies", mcp: overPipes, loose: true, script: turn(call("srv__append_and_die", "m1", "{key: key-m1}")) +
			turn(call("srv__append", "m2", "{key: key-m2}"), line("c1")) + done},
		{Name: "not happened", notHappened: true, script: turn(line("c1"), line("c2")) + done},
		{Name: "shell writes", script: turn(call("exec_shell", "s1", "{command: echo s1 >> shell.log}")) +
			turn(call("exec_shell", "s2", "{command: echo s2 >> shell.log && wc -l < shell.log}")) + done},
		{Name: "refusals", script: turn(
			call("no_such_tool", "x1", "{}"), call("search_files", "x2", "{pattern: x}"), call("read_thing", "x3", "{nmae: 1}"),
			line("c1"), line("c1"), call("read_file", "x4", "{path: ../outside}"),
		) + done},
		{Name: "tool errors", script: turn(call("fail", "e1", "{}"), call("faulty", "e2", "{}"), call("panics", "e3", "{}"),
			call("edit_file", "e4", "{path: old.txt, old_text: absent, new_text: x}")) + done},
		{Name: "timeout", script: turn(call("slow", "t1", "{}"), thing("r1")) + turn(call("slow_append", "t2", "{key: t2}")) + done},
		{Name: "truncation", script: turn(call("big", "b1", "{}"), thing("r1")) + done},
		{Name: "fallback", script: "- {error: auth}\n", second: turn(line("c1")) + done},
		{Name: "retries", flaky: 1, script: turn(line("c1")) + done},
		{Name: "stopped", stopped: true, script: turn(line("c1"), thing("r1")) + turn(line("c2")) + done},
		{Name: "outages", flaky: outage, script: turn(line("c1"), thing("r1")) + turn(line("c2")) + done},
		{Name: "offer changes", script: turn(call("switch_off", "o1", "{name: read_thing}")) + turn(thing("r1"), line("c1")) + done},
		{Name: "dropped", context: 25_000, script: big("", "b1") + big("", "b2") + turn(line("c1")) + done},
		{Name: "condensed", context: 25_000, script: big("noted", "b1") + big("", "b2") + turn(line("c1")) + done},
		{
			Name: "answer to a schema", schema: `{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}`,
			script: turn(line("c1")) + "- {text: \"one\"}\n- {text: '{\"n\": 1}'}\n",
		},
		{Name: "given call", given: &toolcrib.ToolCall{ID: "call_1", Name: "append_line", Arguments: json.RawMessage(`{"key":"given"}`)}},
	}
}

// ended are runs that are ended from outside, or by a limit.
func ended() []*Scenario {
	two := func(l *toolcrib.Limits) { l.MaxIterations = 2 }
	again := turn(line("c1")) + turn(thing("r2"), line("c2")) + done
	oneByOne := func(l *toolcrib.Limits) { l.MaxParallel = 1 }
	return []*Scenario{
		{Name: "cap finalize", limits: two, script: again},
		{Name: "cap error", limits: func(l *toolcrib.Limits) { two(l); l.OnLimit = toolcrib.OnLimitError }, script: again},
		{Name: "provider failed", script: "- {error: auth}\n"},
		{Name: "another model", script: turn(line("c1")) + "- {error: auth}\n", other: turn(line("c1")) + turn(line("c2")) + done},
		{Name: "cancel outage", cancel: true, script: turn(line("c1")) + "- {error: auth}\n"},
		{Name: "cancel", limits: oneByOne, script: turn(line("c1"), call("cancel_run", "x1", "{}"), line("c2")) + done},
		{Name: "cancel write", limits: oneByOne, script: turn(thing("r1"), call("cancel_and_append", "c1", "{key: one}"), line("c2")) + done},
		{Name: "cancel parked", cancel: true, confirm: gate.ConfirmWrites, script: turn(line("c1"), thing("r1")) + done},
	}
}

// asked are runs that wait for a person.
func asked() []*Scenario {
	writes := turn(line("c1"), call("write_file", "w1", "{path: a.txt, content: one}"), thing("r1")) + done
	return []*Scenario{
		{Name: "approval", confirm: gate.ConfirmWrites, script: writes},
		{Name: "approval one by one", confirm: gate.ConfirmWrites, script: writes, decide: oneByOne},
		{Name: "approval twice", confirm: gate.ConfirmWrites, script: turn(line("c1")) + turn(line("c2")) + done},
		{Name: "approval revoked", confirm: gate.ConfirmWrites, script: turn(line("c1")) + turn(line("c2")) + done, decide: remembered, revoked: true},
		{Name: "edit", confirm: gate.ConfirmWrites, script: writes, decide: edited},
		{Name: "denial", confirm: gate.ConfirmWrites, script: writes, decide: denied},
		{Name: "denial stops", confirm: gate.ConfirmWrites, onDenial: "stop", script: writes, decide: denied},
		{Name: "approve all", confirm: gate.ConfirmWrites, approve: agent.ApproveAll, script: writes},
		{Name: "nobody asks", confirm: gate.ConfirmWrites, approve: agent.ApproveDeny, script: writes},
		{Name: "input", answer: `"blue"`, script: turn(line("c1"), call("ask_user", "q1", "{question: Which colour}")) + done},
		{Name: "message", answer: `"blue"`, say: "and be quick", script: turn(call("ask_user", "q1", "{question: Which colour}")) + done},
		{
			Name: "limit raised", granted: &journal.Granted{Iterations: 2, By: person}, limits: atLimit,
			script: turn(line("c1")) + turn(line("c2")) + done,
		},
		{Name: "limit kept", limits: atLimit, script: turn(line("c1")) + turn(line("c2")) + done},
	}
}

func atLimit(l *toolcrib.Limits) { l.MaxIterations, l.OnLimit = 2, toolcrib.OnLimitAsk }

// oneByOne decides on the first call that is open, and on no other.
func oneByOne(s *agent.State) agent.Decision {
	for _, c := range s.Turn.Calls {
		if c.Verdict != nil && c.Verdict.Decision == toolcrib.Ask && c.Decision == nil {
			return agent.Decision{Calls: map[string]journal.CallDecision{c.ID: {Decision: journal.DecisionApprove}}}
		}
	}
	return agent.Decision{Decision: journal.DecisionApprove}
}

// remembered approves such calls for the whole run.
func remembered(*agent.State) agent.Decision {
	return agent.Decision{Decision: journal.DecisionApprove, Remember: &journal.Remember{Scope: journal.RememberRun, Calls: journal.RememberTool}}
}

func edited(*agent.State) agent.Decision {
	return agent.Decision{Decision: journal.DecisionApprove, Calls: map[string]journal.CallDecision{
		"c1": {Decision: journal.DecisionApprove, Arguments: json.RawMessage(`{"key":"edited"}`)},
		"w1": {Decision: journal.DecisionApprove, Arguments: json.RawMessage(`{"path":"b.txt","content":"edited"}`)},
	}}
}

func denied(*agent.State) agent.Decision {
	return agent.Decision{Decision: journal.DecisionDeny, Reason: "not today", Calls: map[string]journal.CallDecision{
		"w1": {Decision: journal.DecisionApprove},
	}}
}

// task is what the run is given. dir is absolute.
func (sc *Scenario) task(dir string) agent.Task {
	t := agent.Task{
		Agent: toolcrib.Agent{
			Name: "default", Model: firstModel, System: "You are a test.", Limits: toolcrib.DefaultLimits(), OnDenial: sc.onDenial,
		},
		Models:    []journal.ModelInfo{{Ref: "script/" + firstModel, Provider: "script", ID: firstModel, Price: price}},
		Principal: toolcrib.Principal{User: "local:test", Admin: true},
		Prompt:    "go", Workspace: filepath.Join(dir, workspace), Approve: sc.approve,
		Hosted: agent.Hosted{Driver: "cli"},
	}
	if sc.second != "" {
		t.Models = append(t.Models, journal.ModelInfo{Ref: "script/" + secondModel, Provider: "script", ID: secondModel, Price: price})
	}
	t.Agent.Budget = sc.budget
	t.Models[0].Context = sc.context
	if sc.schema != "" {
		t.Agent.OutputSchema = json.RawMessage(sc.schema)
	}
	if sc.limits != nil {
		sc.limits(&t.Agent.Limits)
	}
	if sc.given != nil {
		given := *sc.given
		t.Given, t.Models, t.Prompt = &given, nil, ""
	}
	return t
}

// workFiles are the files of the workspace at the start.
func (sc *Scenario) workFiles() map[string]string {
	return map[string]string{"old.txt": "one\ntwo\nthree\n"}
}
