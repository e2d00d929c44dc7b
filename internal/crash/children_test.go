package crash

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/journal"
)

// member is an agent that others may call. Its model has its name. The IDs of calls are
// unique in a scenario, over all its runs.
type member struct {
	script   string
	limits   func(*toolcrib.Limits)
	onDenial string
	broken   bool // it cannot be started
}

// scriptOf is what a model says.
func (sc *Scenario) scriptOf(model string) string {
	switch m := sc.team[model]; {
	case m != nil:
		return m.script
	case model == secondModel:
		return sc.second
	case model == otherModel:
		return sc.other
	}
	return sc.script
}

// agent is the task of an agent that another one calls.
func (sc *Scenario) agent(_ context.Context, _ toolcrib.Principal, name, _ string) (agent.Task, error) {
	m := sc.team[name]
	switch {
	case m == nil:
		return agent.Task{}, fmt.Errorf("no agent %q", name)
	case m.broken:
		return agent.Task{}, errors.New("its skills are gone")
	}
	t := agent.Task{
		Agent:  toolcrib.Agent{Name: name, Model: name, System: "You help.", Limits: toolcrib.DefaultLimits(), OnDenial: m.onDenial},
		Models: []journal.ModelInfo{{Ref: "script/" + name, Provider: "script", ID: name, Price: price}},
	}
	if m.limits != nil {
		m.limits(&t.Agent.Limits)
	}
	return t, nil
}

// spawns is a call of another agent.
func spawns(id, name string) [3]string {
	return call("spawn", id, "{agent: "+name+", task: help}")
}

// says is a team of agents with these scripts.
func says(scripts ...string) map[string]*member {
	team := map[string]*member{}
	for i := 0; i < len(scripts); i += 2 {
		team[scripts[i]] = &member{script: scripts[i+1]}
	}
	return team
}

const (
	one = "helper"
	two = "second"
)

// children are runs that call agents, and come to their end by themselves.
func children() []*Scenario {
	calls := turn(spawns("p1", one)) + turn(line("c9")) + done
	writes := turn(call("write_file", "w1", "{path: a.txt, content: one}"), line("c1")) +
		turn(call("edit_file", "w2", "{path: old.txt, old_text: two, new_text: zwei}"), thing("r1")) + done
	below := turn(spawns("p2", two), thing("r2")) + turn(line("c2")) + done
	tight := says(one, turn(thing("r1"))+turn(line("c1"))+done, two, turn(thing("r2"), line("c2"))+done)
	both := turn(spawns("p1", one), spawns("p2", two)) + turn(line("c9")) + done
	return []*Scenario{
		{Name: "child", script: turn(spawns("p1", one), thing("r9")) + turn(line("c9")) + done, team: says(one, writes)},
		{Name: "child, not happened", script: calls, team: says(one, turn(line("c1"), line("c2"))+done), notHappened: true},
		{Name: "child of a child", script: calls, team: says(one, below, two, writes)},
		{
			// The second ends first, and its end is written down before its result is.
			Name: "two children", budget: toolcrib.Budget{MaxRequests: 100},
			script: turn(spawns("p1", one), spawns("p2", two), thing("r9")) + turn(line("c9")) + done,
			team:   says(one, turn(line("c1"))+turn(call("await", "r1", "{name: "+two+"}"))+done, two, writes2+done),
		},
		{Name: "child after child", script: turn(spawns("p1", one)) + turn(spawns("p2", one), spawns("p3", two)) + done, team: says(one, done, two, writes2+done)},
		{Name: "child fails", script: calls, team: says(one, "- {error: auth}\n")},
		{Name: "child, outages", flaky: outage, script: calls, team: says(one, turn(line("c1"))+turn(thing("r1"))+done)},
		{Name: "child cannot start", script: calls, team: map[string]*member{one: {broken: true}}},
		{Name: "child says much", script: calls, team: says(one, "- {text: \""+strings.Repeat("0123456789abcdef", 6<<10)+"\"}\n")},
		{Name: "child reads much", script: calls, team: says(one, turn(call("big", "b1", "{}"))+done)},
		{Name: "children, few requests", loose: true, budget: toolcrib.Budget{MaxRequests: 7}, script: both, team: tight},
		{Name: "children, few tokens", loose: true, budget: toolcrib.Budget{MaxTokens: 12_000, MaxCostUSD: 0.016}, script: both, team: tight},
		{
			Name: "child refused later", loose: true, team: says(one, turn(line("c1"))+turn(line("c2"))+done),
			script: turn(spawns("p1", one), call("switch_off", "o1", "{name: spawn}")) + turn(line("c9")) + done,
		},
	}
}

const writes2 = "- usage: {input: 100, output: 10}\n" +
	"  tool_calls:\n" +
	"  - {name: write_file, id: w3, arguments: {path: b.txt, content: two}}\n" +
	"  - {name: append_line, id: c3, arguments: {key: key-c3}}\n"

// childrenEnded are runs that call agents and are ended from outside.
func childrenEnded() []*Scenario {
	oneByOne := func(l *toolcrib.Limits) { l.MaxParallel = 1 }
	calls := turn(thing("r9")) + turn(spawns("p1", one)) + turn(line("c9")) + done
	cancels := turn(line("c1"), call("cancel_run", "x1", "{}"), line("c2")) + done
	return []*Scenario{
		{Name: "cancel, child", script: calls, team: map[string]*member{one: {script: cancels, limits: oneByOne}}},
		{
			Name: "cancel, child writes", script: calls,
			team: says(one, turn(call("cancel_and_append", "c1", "{key: one}"))+turn(line("c2"))+done),
		},
		{
			Name: "cancel, child of a child", script: calls,
			team: map[string]*member{one: {script: turn(spawns("p2", two)) + done}, two: {script: cancels, limits: oneByOne}},
		},
		{
			Name: "cancel, two children", loose: true, script: turn(spawns("p1", one), spawns("p2", two)) + done,
			team: map[string]*member{one: {script: cancels, limits: oneByOne}, two: {script: writes2 + turn(line("c4")) + done}},
		},
		{Name: "cancel, child parked", cancel: true, confirm: gate.ConfirmWrites, script: calls, team: says(one, turn(line("c1"), thing("r1"))+done)},
		{
			Name: "cancel, children parked", cancel: true, confirm: gate.ConfirmWrites, script: turn(spawns("p1", one), spawns("p3", two)) + done,
			team: map[string]*member{one: {script: turn(spawns("p2", two)) + done}, two: {script: turn(thing("r1"), line("c1")) + done}},
		},
	}
}

// childrenAsked are runs that call agents which wait for a person.
func childrenAsked() []*Scenario {
	calls := turn(spawns("p1", one), thing("r9")) + done
	both := turn(spawns("p1", one), spawns("p2", two), line("c9")) + done
	writes := turn(line("c1"), call("write_file", "w1", "{path: a.txt, content: one}"), thing("r1")) + done
	below := turn(line("c2"), spawns("p2", two)) + done
	strange := turn(call("read_stranger", "s1", "{}")) + "- {text: as the stranger says}\n"
	return []*Scenario{
		{Name: "child, approval", confirm: gate.ConfirmWrites, script: calls, team: says(one, writes)},
		{Name: "child, approval twice", confirm: gate.ConfirmWrites, early: true, script: calls, team: says(one, turn(line("c1"))+turn(line("c2"))+done)},
		{Name: "child of a child, approval", confirm: gate.ConfirmWrites, script: calls, team: says(one, below, two, writes)},
		{Name: "child of a child, early", confirm: gate.ConfirmWrites, early: true, script: calls, team: says(one, below, two, writes)},
		{Name: "two children, approval", confirm: gate.ConfirmWrites, say: "and be quick", script: both, team: says(one, writes, two, writes2+done)},
		{Name: "two children, early", confirm: gate.ConfirmWrites, early: true, script: both, team: says(one, writes, two, writes2+done)},
		{Name: "child, edit", confirm: gate.ConfirmWrites, decide: edited, script: calls, team: says(one, writes)},
		{Name: "child, denial", confirm: gate.ConfirmWrites, decide: denied, script: calls, team: says(one, writes)},
		{
			Name: "child, denial stops", confirm: gate.ConfirmWrites, decide: denied, script: calls,
			team: map[string]*member{one: {script: writes, onDenial: "stop"}},
		},
		{Name: "children, approve all", confirm: gate.ConfirmWrites, approve: agent.ApproveAll, script: both, team: says(one, writes, two, writes2+done)},
		{Name: "child of a child, all", confirm: gate.ConfirmWrites, approve: agent.ApproveAll, script: calls, team: says(one, below, two, writes)},
		{Name: "children, nobody asks", confirm: gate.ConfirmWrites, approve: agent.ApproveDeny, script: both, team: says(one, writes, two, writes2+done)},
		{Name: "children, terminal", confirm: gate.ConfirmWrites, approve: agent.ApproveAsk, script: both, team: says(one, writes, two, writes2+done)},
		{Name: "child of a child, terminal", confirm: gate.ConfirmWrites, approve: agent.ApproveAsk, script: calls, team: says(one, below, two, writes)},
		{Name: "child, taint", script: turn(spawns("p1", one)) + turn(line("c9")) + done, team: says(one, strange)},
		{
			Name: "taint, child", approve: agent.ApproveAll, script: turn(call("read_stranger", "s1", "{}")) + turn(spawns("p1", one)) + done,
			team: says(one, turn(line("c1"))+done),
		},
		{
			Name: "child asks", answer: `"blue"`, confirm: gate.ConfirmWrites,
			script: turn(spawns("p1", one), spawns("p2", two), call("ask_user", "q9", "{question: Which shade}")) + done,
			team:   says(one, turn(line("c1"), call("ask_user", "q1", "{question: Which colour}"))+done, two, done),
		},
		{
			Name: "child, limit raised", granted: &journal.Granted{Iterations: 2, By: person}, script: calls,
			team: map[string]*member{one: {script: turn(line("c1")) + turn(line("c2")) + done, limits: atLimit}},
		},
	}
}
