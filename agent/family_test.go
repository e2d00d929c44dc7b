package agent_test

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"testing"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/replay"
)

// family is a tree of runs of several agents that start one another. Each has a model of its own name,
// whose answer depends on the number of replies in the conversation, so that a resumed run gets the
// same ones.
type family struct {
	*world
	agents  map[string]toolcrib.Agent
	replies map[string][][]toolcrib.Delta
	options func(*agent.Options)
	skills  map[string][]string // what the skills of an agent allow
	price   toolcrib.Price
	mu      sync.Mutex
	asked   map[string]int // requests by agent
}

// newFamily makes the agents boss, helper and third, of which each may do all.
func newFamily(t testing.TB, confirm gate.ConfirmMode, replies map[string][][]toolcrib.Delta, change ...func(*family, *gate.Options)) *family {
	t.Helper()
	f := &family{
		world: newWorld(t, confirm), agents: map[string]toolcrib.Agent{}, replies: replies, asked: map[string]int{},
		price: toolcrib.Price{Input: 1, Output: 2, Known: true}, skills: map[string][]string{},
	}
	for _, name := range []string{"boss", "helper", "third"} {
		f.agents[name] = toolcrib.Agent{Name: name, Model: "fake/" + name, Limits: toolcrib.DefaultLimits()}
	}
	f.all = append(f.all, spawner{})
	o := gate.Options{Tools: f.all, Availability: noOverrides{}, Confirm: confirm}
	for _, c := range change {
		c(f, &o)
	}
	g, err := gate.New(o)
	if err != nil {
		t.Fatal(err)
	}
	f.reply = func(_ context.Context, _ int, req *toolcrib.Request) ([]toolcrib.Delta, error) {
		n := 0
		for _, m := range req.Messages {
			if m.Role == toolcrib.RoleAssistant {
				n++
			}
		}
		f.mu.Lock()
		f.asked[req.Model]++
		f.mu.Unlock()
		all := f.replies[req.Model]
		return all[min(n, len(all)-1)], nil
	}
	f.drivenBy(t, g, f.journal)
	return f
}

// drivenBy makes a new runner over a journal, as another process would have.
func (f *family) drivenBy(t testing.TB, g *gate.Gate, j toolcrib.Journal) {
	t.Helper()
	if g == nil {
		g = f.runner.Gate
	}
	o := agent.Options{
		Journal: j, Contents: f.journal, Gate: g, Agents: f.agent,
		Models: func(context.Context, journal.ModelInfo) (toolcrib.Model, error) { return f.world, nil },
		Watch: func(_ toolcrib.RunID, fr journal.Frame) {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.frames = append(f.frames, fr)
		},
	}
	if f.options != nil {
		f.options(&o)
	}
	var err error
	if f.runner, err = agent.New(o); err != nil {
		t.Fatal(err)
	}
}

func (f *family) agent(_ context.Context, who toolcrib.Principal, name, workspace string) (agent.Task, error) {
	a, ok := f.agents[name]
	if !ok {
		return agent.Task{}, fmt.Errorf("no agent %s in password=hunter2hunter2", name)
	}
	return agent.Task{Agent: a, Models: []journal.ModelInfo{{Ref: a.Model, Provider: "fake", ID: name, Price: f.price}}, Principal: who, Workspace: workspace, Hosted: agent.Hosted{SkillTools: f.skills[name]}}, nil
}

// begin is the task of the agent boss.
func (f *family) begin(change ...func(*agent.Task)) agent.Task {
	t, _ := f.agent(context.Background(), me, "boss", "/")
	t.Prompt, t.Driver, t.Principal = "go", "cli", me
	for _, c := range change {
		c(&t)
	}
	return t
}

func (f *family) start(t testing.TB, change ...func(*agent.Task)) *agent.State {
	t.Helper()
	s, err := f.runner.Run(context.Background(), f.begin(change...))
	if err != nil {
		t.Fatal(err)
	}
	f.replayed(t)
	return s
}

func (f *family) resume(t testing.TB, run toolcrib.RunID) *agent.State {
	t.Helper()
	s, err := f.runner.Resume(context.Background(), run)
	if err != nil {
		t.Fatal(err)
	}
	f.replayed(t)
	return s
}

// replayed replays every run, and checks each transcript.
func (f *family) replayed(t testing.TB) {
	t.Helper()
	for _, run := range f.journal.Runs() {
		if _, err := replay.Run(context.Background(), f.journal, run); err != nil {
			t.Errorf("replay: %v", err)
		}
		s, err := agent.Load(context.Background(), f.journal, run)
		if err != nil {
			t.Fatal(err)
		}
		if s.Turn == nil && s.Start.Given == nil {
			if err := checkTranscript(s.Messages); err != nil {
				t.Errorf("run %s: %v", run, err)
			}
		}
	}
}

// children are the runs that a run has started, in order.
func (f *family) children(t testing.TB, run toolcrib.RunID) []*agent.State {
	t.Helper()
	var all []*agent.State
	for _, e := range f.events(t, run) {
		b, ok := e.Body.(*journal.ChildStarted)
		if !ok {
			continue
		}
		s, err := agent.Load(context.Background(), f.journal, b.Run)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, s)
	}
	return all
}

// spawn is a call of the tool spawn.
func spawn(name string, tools ...string) string {
	args := map[string]any{"agent": name, "task": "do it"}
	if tools != nil {
		args["tools"] = tools
	}
	raw, _ := json.Marshal(args)
	return string(raw)
}

// spawner is a tool that another agent answers.
type spawner struct{}

func (spawner) Spec() toolcrib.Spec {
	return toolcrib.Spec{
		Name: "spawn", Effect: toolcrib.EffectReadOnly, EnabledByDefault: true, Source: "builtin", Nested: true, Sink: true, AnsweredBy: toolcrib.ByAgent,
		Parameters: json.RawMessage(`{"type":"object","properties":{"agent":{"type":"string"},"task":{"type":"string"},"tools":{"type":"array","items":{"type":"string"}}},"required":["agent","task"],"additionalProperties":false}`),
	}
}

func (spawner) Call(context.Context, toolcrib.Call) (toolcrib.Output, error) {
	panic("a tool that another agent answers was called")
}
