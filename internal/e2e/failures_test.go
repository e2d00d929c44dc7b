package e2e

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/agent/core"
	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/journal/inmemory"
	"github.com/toolcrib/toolcrib/provider/wire"
	"github.com/toolcrib/toolcrib/replay"
	"github.com/toolcrib/toolcrib/toolcribtest/modeltest"
)

// story is what a provider that does not fail makes of a run: it reads, writes, and
// answers.
func story() []modeltest.Step {
	return modeltest.Steps(
		ask(words("I will look."), call("c_1", "weather", `{"city":"Rome"}`)),
		ask(call("c_2", "note", `{"city":"Rome"}`)),
		say(words("Clear, and noted down.")),
	)
}

// failing is one run over a provider that fails.
type failing struct {
	s        subject
	way      *faulty
	fallback bool
}

// run carries the run out, with time that only passes when everything waits.
func (f failing) run(t *testing.T) {
	t.Helper()
	steps := story()
	if f.s.byText {
		for i := range steps {
			steps[i].Reply = asText(steps[i].Reply)
		}
	}
	server := modeltest.NewServer(f.s.dialect, modeltest.ServerOptions{Steps: steps, ByTurn: true})
	f.way.handler = server.Handler()
	base := "http://model.example/v1"
	if f.s.dialect == modeltest.Gemini || f.s.dialect == modeltest.Ollama {
		base = "http://model.example"
	}
	model, err := f.s.open(wire.Options{Name: "p", BaseURL: base, APIKey: testKey, Transport: f.way})
	if err != nil {
		t.Fatal(err)
	}
	second := subject{name: "script"}.played(t, story(), nil)
	models := map[string]toolcrib.Model{"p": model, "q": second}
	memory, tools := &inmemory.Journal{}, &shelf{}
	r, err := agent.New(agent.Options{
		Journal: memory, Contents: memory,
		Gate:   newGate(t, gate.Options{Tools: tools.tools(), Confirm: gate.ConfirmNever}),
		Models: func(_ context.Context, m journal.ModelInfo) (toolcrib.Model, error) { return models[m.Provider], nil },
		Host:   agent.Host{Worker: "e2e"},
	})
	if err != nil {
		t.Fatal(err)
	}
	task := agent.Task{
		// What is too long is not condensed: the server would take the shorter
		// transcript for an earlier turn.
		Agent:     toolcrib.Agent{Name: "default", Model: "p/model-a", ContextStrategy: core.ContextFail},
		Models:    []journal.ModelInfo{f.s.info("p")},
		Principal: toolcrib.Principal{User: "local:test", Admin: true}, Prompt: "How is it?", Workspace: "/",
		Hosted: agent.Hosted{Driver: "cli"},
	}
	if f.fallback {
		task.Agent.Fallback = []string{"q/model-a"}
		task.Models = append(task.Models, subject{}.info("q"))
	}
	state, err := r.Run(t.Context(), task)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Wait(t.Context()); err != nil {
		t.Error(err)
	}
	if f.way.at < 0 && state.Done == nil {
		t.Errorf("failed without a fault: %+v", state.LastFailed)
	}
	if err := server.Errors(); err != nil {
		t.Errorf("a bad request: %v", err)
	}
	f.check(t, state, tools.counts())
	if _, err := replay.Run(t.Context(), memory, state.Run); err != nil {
		t.Errorf("replay: %v", err)
	}
}

// check wants an end by fallback or a clear error, each call with one result, and no
// effect twice.
func (f failing) check(t *testing.T, s *agent.State, ran map[string]int) {
	t.Helper()
	switch {
	case s.Status == toolcrib.StatusWaitingForProvider:
		out := s.Pending.Error
		if f.fallback || s.Iterations == 0 || out.Message == "" || !f.way.forever && out.Class.Retryable() {
			t.Errorf("waits after %d rounds: %+v", s.Iterations, out)
		}
	case !s.Ended():
		t.Errorf("the run has not ended: %s", s.Status)
	case s.Failed != nil && s.Iterations > 0 && s.LastFailed != nil &&
		s.LastFailed.Class != toolcrib.ErrContextLength && s.LastFailed.Class != toolcrib.ErrRefused:
		t.Errorf("an outage has ended a run with a reply: %+v", s.Failed)
	case s.Failed != nil:
		if f.fallback {
			t.Errorf("failed in spite of the fallback: %+v", s.Failed)
		}
		if s.Failed.Message == "" || s.LastFailed == nil || s.LastFailed.Class == "" ||
			s.Failed.StopReason != toolcrib.StopProviderFailed && s.Failed.StopReason != toolcrib.StopContextLength {
			t.Errorf("no clear error: %+v, last %+v", s.Failed, s.LastFailed)
		} else if !f.way.forever && s.LastFailed.Class.Retryable() {
			t.Errorf("not tried again: %+v", s.LastFailed)
		}
	case s.Done.Content != "Clear, and noted down." || s.Done.Truncated:
		t.Errorf("done %+v", s.Done)
	case len(s.Trace) != 2 || len(ran) != 2:
		t.Errorf("%d calls, %d ran", len(s.Trace), len(ran))
	}
	done := map[string]int{}
	for _, c := range s.Trace {
		if c.Result == nil || c.Result.Status != toolcrib.ResultOK {
			t.Errorf("call %s %s %s: result %+v", c.ID, c.Name, c.Arguments, c.Result)
			continue
		}
		done[c.ID+" "+string(c.Arguments)]++
	}
	for key, n := range ran {
		if n != 1 || done[key] != 1 {
			t.Errorf("%s ran %d times and has %d results", key, n, done[key])
		}
	}
	if len(done) != len(ran) {
		t.Errorf("%d results of calls that never ran", len(done)-len(ran))
	}
	seen := map[string]bool{}
	for _, c := range s.Trace {
		if key := c.Name + string(c.Arguments); seen[key] {
			t.Errorf("%s was called twice", key)
		} else {
			seen[key] = true
		}
	}
}

// answers returns the bodies of the answers of a run without a fault.
func answers(t *testing.T, s subject) [][]byte {
	t.Helper()
	way := &faulty{at: -1}
	synctest.Test(t, func(t *testing.T) { failing{s: s, way: way}.run(t) })
	if len(way.bodies) != 3 {
		t.Fatalf("%d answers: %s", len(way.bodies), way.bodies)
	}
	return way.bodies
}

// With a provider that fails at every possible point, a run ends by its fallback or
// with a clear error, or waits if it has a reply, and never with a lost or doubled call.
func TestFailures_EveryPoint_N5_H14(t *testing.T) {
	for _, s := range subjects() {
		if s.dialect == "" {
			continue
		}
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			cases := 0
			for at, answer := range answers(t, s) {
				faults := append(faultsBefore(s.dialect), faultsWithin(answer, s.dialect)...)
				for i := range 2 * len(faults) {
					// Over the three requests each fault is met once and forever, with
					// and without a fallback.
					k, fallback := faults[i/2], i%2 != 0
					forever := (i/2+at)%2 == 0 != fallback
					if cases++; testing.Short() && cases%5 != len(s.name)%5 {
						continue
					}
					synctest.Test(t, func(t *testing.T) {
						failing{s: s, way: &faulty{at: at, forever: forever, fault: k}, fallback: fallback}.run(t)
						if t.Failed() {
							t.Logf("request %d, %s, forever %v, fallback %v", at+1, k.name, forever, fallback)
						}
					})
				}
			}
			t.Logf("%d runs", cases)
		})
	}
}
