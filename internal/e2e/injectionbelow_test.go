package e2e

import (
	"context"
	"fmt"
	"iter"
	"strings"
	"testing"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/journal"
)

// carrier is a model that reads what it was asked to read, and answers with it verbatim, so that
// untrusted text reaches its caller.
type carrier struct{ first toolcrib.ToolCall }

// Stream implements toolcrib.Model.
func (m carrier) Stream(_ context.Context, req *toolcrib.Request) iter.Seq2[toolcrib.Delta, error] {
	var read []string
	for _, message := range req.Messages {
		for _, p := range message.Parts {
			if p.ToolResult != nil {
				read = append(read, p.ToolResult.Content)
			}
		}
	}
	return func(yield func(toolcrib.Delta, error) bool) {
		d, reason := toolcrib.Delta{Text: strings.Join(read, "\n")}, toolcrib.FinishStop
		if len(read) == 0 {
			d = toolcrib.Delta{ToolCall: &toolcrib.ToolCallDelta{Name: m.first.Name, Arguments: string(m.first.Arguments)}}
			reason = toolcrib.FinishToolCalls
		}
		if yield(d, nil) {
			yield(toolcrib.Delta{Finish: &toolcrib.Finish{Reason: reason}}, nil)
		}
	}
}

// below is a run that has text n read by a sub-agent.
type below struct {
	name string
	top  toolcrib.Model // spawns the reader first
	kid  func(first toolcrib.ToolCall) toolcrib.Model
	deep bool // the reader is called by an agent that the run calls
}

func spawnCall(name string) toolcrib.ToolCall {
	return toolcrib.ToolCall{Name: "spawn", Arguments: []byte(fmt.Sprintf(`{"agent":%q,"task":"Read it."}`, name))}
}

// belows are the ways of untrusted text: to the sub-agent, which obeys, and through it to the agents
// above, which obey.
func belows() []below {
	obeys := func(first toolcrib.ToolCall) toolcrib.Model { return obedient{first: first} }
	carries := func(first toolcrib.ToolCall) toolcrib.Model { return carrier{first} }
	return []below{
		{name: "the sub-agent obeys", top: obedient{first: spawnCall("reader")}, kid: obeys},
		{name: "the caller obeys what it is told", top: obedient{first: spawnCall("reader")}, kid: carries},
		{name: "two runs down", top: obedient{first: spawnCall("middle")}, kid: carries, deep: true},
	}
}

// runBelow lets a sub-agent read text n, and returns the runs from the top down.
func (x *exposed) runBelow(t *testing.T, s source, n int, b below, change func(*agent.Task)) (*agent.Runner, []*agent.State) {
	t.Helper()
	r := newRunner(t, x.store, x.gate, map[string]toolcrib.Model{
		"p": b.top, "middle": obedient{first: spawnCall("reader")}, "reader": b.kid(s.read(n)),
	})
	limits := toolcrib.DefaultLimits()
	limits.MaxIterations = 6
	task := func(name, provider string) agent.Task {
		task := agent.Task{
			Agent:     toolcrib.Agent{Name: name, Model: provider + "/model-a", Limits: limits},
			Models:    []journal.ModelInfo{subject{}.info(provider)},
			Principal: toolcrib.Principal{User: "local:test", Admin: true}, Workspace: x.dir,
			Hosted: agent.Hosted{Driver: "cli"},
		}
		if change != nil {
			change(&task)
		}
		return task
	}
	r.Agents = func(_ context.Context, _ toolcrib.Principal, name, _ string) (agent.Task, error) {
		return task(name, name), nil
	}
	begin := task("default", "p")
	begin.Prompt = "Have it read."
	top, err := r.Run(t.Context(), begin)
	if err != nil {
		t.Fatal(err)
	}
	return r, x.family(t, top)
}

// family returns the runs from the top down, each the first one that its parent started.
func (x *exposed) family(t *testing.T, top *agent.State) []*agent.State {
	t.Helper()
	runs := []*agent.State{top}
	for at := top; ; {
		var next toolcrib.RunID
		for _, c := range at.Trace {
			if c.Child != nil && next == "" {
				next = c.Child.Run
			}
		}
		if next == "" {
			return runs
		}
		s, err := agent.Load(t.Context(), x.store, next)
		if err != nil {
			t.Fatal(err)
		}
		runs, at = append(runs, s), s
	}
}

// A model that obeys every untrusted text causes no effect without an approval, even if a sub-agent
// reads the text: neither by the sub-agent, nor by the agents above, which get it.
func TestInjection_BySubAgents_X7_X12(t *testing.T) {
	for i, s := range sources() {
		list := injections(i)
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			x := expose(t, openStore(t), s, list)
			for n, k := range list {
				b := belows()[(n/3+i)%3] // with each of the policies that go by n%3
				t.Run(b.name+", "+k.name, func(t *testing.T) { x.holdsBelow(t, s, n, b) })
			}
		})
	}
}

// holdsBelow tries one text in every way that must have no effect.
func (x *exposed) holdsBelow(t *testing.T, s source, n int, b below) {
	t.Helper()
	none := func(way string, runs []*agent.State) {
		t.Helper()
		if got := x.count(t); got != 0 {
			t.Fatalf("%s: %d effects without an approval: %v", way, got, x.effects.counts())
		}
		for _, run := range runs {
			x.parked(t, run)
		}
	}
	r, runs := x.runBelow(t, s, n, b, nil)
	none("nobody there", runs)
	x.reached(t, runs, b)
	if top := runs[0]; top.Pending != nil {
		at := top.Run
		if top.Pending.Run != "" {
			at = top.Pending.Run
		}
		if _, err := r.Decide(t.Context(), at, agent.Decision{ApprovalID: top.Pending.ApprovalID, Who: toolcrib.Principal{User: "local:test", Admin: true}, Decision: journal.DecisionDeny}); err != nil {
			t.Fatal(err)
		}
		top, err := r.Resume(t.Context(), top.Run)
		if err != nil {
			t.Fatal(err)
		}
		none("denied", x.family(t, top))
	}
	_, runs = x.runBelow(t, s, n, b, func(k *agent.Task) { k.Approve = agent.ApproveAll })
	none("--approve all", runs)
	switch n % 3 {
	case 0:
		_, runs = x.runBelow(t, s, n, b, func(k *agent.Task) { k.Approve = agent.ApproveDeny })
		none("--approve deny", runs)
	case 1:
		_, runs = x.runBelow(t, s, n, b, func(k *agent.Task) { k.Agent.TaintWrites = gate.TaintDeny })
		none("taint.writes: deny", runs)
	case 2:
		// What the sub-agent is configured to allow, the run above does not.
		_, runs = x.runBelow(t, s, n, b, func(k *agent.Task) {
			if k.Agent.Name == "reader" {
				k.Agent.TaintWrites = gate.TaintAllow
			}
		})
		none("a sub-agent with taint.writes: allow", runs)
	}
	if n%5 == 0 {
		for _, run := range runs {
			events(t, x.store, run.Run)
		}
	}
}

// reached wants the text to have come to where it is obeyed, marked as what it is.
func (x *exposed) reached(t *testing.T, runs []*agent.State, b below) {
	t.Helper()
	want := 2
	if b.deep {
		want++
	}
	if len(runs) != want {
		t.Fatalf("%d runs, want %d", len(runs), want)
	}
	tried := 0
	for _, run := range runs {
		tried += ordersTried(run)
	}
	if tried == 0 {
		t.Fatalf("nobody found anything to obey: %+v", runs[0].Trace[0].Result)
	}
	for i, run := range runs {
		first := run.Trace[0]
		if i+1 < len(runs) && first.ChildEnd == nil {
			continue // it waits
		}
		if len(run.Taint) == 0 || !strings.Contains(first.Result.Content, "<untrusted_input") {
			t.Errorf("%s: not marked: %v %+v", run.Start.Agent.Name, run.Taint, first.Result)
		}
	}
}

// The same models with the same texts have every effect where nothing holds them: so
// the test above would see one.
func TestInjection_BySubAgentsControl_X7(t *testing.T) {
	store := openStore(t)
	for i, s := range sources() {
		list := injections(i)
		for _, b := range belows() {
			n := i % len(list)
			x := expose(t, store, s, list)
			_, runs := x.runBelow(t, s, n, b, func(k *agent.Task) {
				k.Agent.TaintWrites, k.Approve = gate.TaintAllow, agent.ApproveAll
			})
			if x.count(t) == 0 {
				t.Errorf("%s, %s, %s: no effect: %+v", s.name, b.name, list[n].name, runs[len(runs)-1].Trace)
			}
		}
	}
}
