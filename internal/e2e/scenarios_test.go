package e2e

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/store/sqlite"
	"github.com/toolcrib/toolcrib/toolcribtest/modeltest"
)

// scenario is a run that must have the same events with every adapter.
type scenario struct {
	name  string
	steps func() []modeltest.Step
	task  func(*agent.Task)
	// cancel says that the run is cancelled as soon as its first request is there.
	cancel bool
	// parallel says that the story needs several calls in one turn, which a model
	// that calls by text cannot make (the first tag counts).
	parallel bool
	check    func(t *testing.T, s *agent.State)
	// sent is what the first request must hold.
	sent string
}

func steps(replies ...toolcrib.Reply) func() []modeltest.Step {
	return func() []modeltest.Step { return modeltest.Steps(replies...) }
}

func say(parts ...toolcrib.Part) toolcrib.Reply { return reply(toolcrib.FinishStop, parts...) }

func ask(parts ...toolcrib.Part) toolcrib.Reply { return reply(toolcrib.FinishToolCalls, parts...) }

func words(s string) toolcrib.Part { return toolcrib.Part{Text: s} }

func thought(s string) toolcrib.Part {
	return toolcrib.Part{Thinking: &toolcrib.Thinking{Text: s, Signature: "c2lnbmF0dXJl"}}
}

// picture is a PNG of one pixel.
const picture = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="

func scenarios() []scenario {
	return []scenario{
		{
			name: "answer", steps: steps(say(words("Hello, world."))),
			check: func(t *testing.T, s *agent.State) { content(t, s, "Hello, world.", toolcrib.StopCompleted) },
		},
		{
			name:  "one call",
			steps: steps(ask(words("I will look."), call("c_1", "weather", `{"city":"Köln \"am Rhein\" 🌧"}`)), say(words("Clear."))),
			check: func(t *testing.T, s *agent.State) {
				content(t, s, "Clear.", toolcrib.StopCompleted)
				statuses(t, s, "weather=ok")
				if !strings.Contains(s.Trace[0].Result.Content, `Köln \"am Rhein\" 🌧`) {
					t.Errorf("result: %s", s.Trace[0].Result.Content)
				}
			},
		},
		{
			name: "parallel calls", parallel: true,
			steps: steps(ask(call("c_1", "weather", `{"city":"Rome"}`), call("c_2", "weather", `{"city":"Oslo"}`), call("c_3", "broken", `{"city":"Nowhere"}`)), say(words("Done."))),
			check: func(t *testing.T, s *agent.State) {
				content(t, s, "Done.", toolcrib.StopCompleted)
				statuses(t, s, "weather=ok weather=ok broken=error")
			},
		},
		{
			name: "three rounds",
			steps: steps(ask(call("c_1", "weather", `{"city":"a"}`)), ask(call("c_2", "weather", `{"city":"b"}`)),
				ask(words("One more."), call("c_3", "weather", `{"city":"c"}`)), say(words("All three."))),
			check: func(t *testing.T, s *agent.State) {
				content(t, s, "All three.", toolcrib.StopCompleted)
				statuses(t, s, "weather=ok weather=ok weather=ok")
			},
		},
		{
			name: "refusal",
			steps: steps(ask(call("c_1", "ghost", `{"x":1}`)), ask(call("c_2", "weather", `{"town":"a"}`)),
				ask(call("c_3", "note", `{"city":"a"}`)), say(words("I may not."))),
			task: func(k *agent.Task) { k.Approve = agent.ApproveDeny },
			check: func(t *testing.T, s *agent.State) {
				content(t, s, "I may not.", toolcrib.StopCompleted)
				statuses(t, s, "ghost=refused/not_registered weather=refused/invalid_arguments note=refused/needs_confirmation")
			},
		},
		{
			name: "approval", steps: steps(ask(call("c_1", "note", `{"city":"a"}`)), say(words("Noted."))),
			task: func(k *agent.Task) { k.Approve = agent.ApproveAll },
			check: func(t *testing.T, s *agent.State) {
				content(t, s, "Noted.", toolcrib.StopCompleted)
				statuses(t, s, "note=ok")
			},
		},
		{
			name: "parked", steps: steps(ask(call("c_1", "note", `{"city":"a"}`))),
			check: func(t *testing.T, s *agent.State) {
				if s.Status != toolcrib.StatusWaitingForApproval {
					t.Errorf("status %s", s.Status)
				}
			},
		},
		{
			name: "tool error", steps: steps(ask(call("c_1", "broken", `{"city":"a"}`)), say(words("It is not there."))),
			check: func(t *testing.T, s *agent.State) {
				content(t, s, "It is not there.", toolcrib.StopCompleted)
				statuses(t, s, "broken=error")
			},
		},
		{
			name: "model error",
			steps: func() []modeltest.Step {
				return []modeltest.Step{
					{Reply: ask(call("c_1", "weather", `{"city":"a"}`))},
					{Status: 401, ErrorType: "authentication_error", ErrorText: "no such key"},
				}
			},
			check: func(t *testing.T, s *agent.State) {
				if s.Status != toolcrib.StatusWaitingForProvider || s.Pending.Error.Class != toolcrib.ErrAuth {
					t.Errorf("%s, failed %+v, last %+v", s.Status, s.Failed, s.LastFailed)
				}
			},
		},
		{
			name: "cap", steps: steps(ask(words("First."), call("c_1", "weather", `{"city":"a"}`)), ask(call("c_2", "weather", `{"city":"b"}`)), say(words("So far."))),
			task: func(k *agent.Task) { k.Agent.Limits.MaxIterations = 2 },
			check: func(t *testing.T, s *agent.State) {
				content(t, s, "So far.", toolcrib.StopMaxIterations)
			},
		},
		{
			name: "thinking", steps: steps(ask(thought("Where would that be?"), call("c_1", "weather", `{"city":"a"}`)), say(thought("Clear, then."), words("Clear."))),
			check: func(t *testing.T, s *agent.State) {
				content(t, s, "Clear.", toolcrib.StopCompleted)
				if p := s.Messages[1].Parts[0]; p.Thinking == nil || p.Thinking.Text != "Where would that be?" {
					t.Errorf("first part %+v", p)
				}
			},
		},
		{
			name: "usage", steps: steps(ask(call("c_1", "weather", `{"city":"a"}`)), say(words("Clear."))),
			check: func(t *testing.T, s *agent.State) {
				u := s.Usage
				cached := int64(40)
				if strings.Contains(t.Name(), "ollama") {
					cached = 0 // the API does not tell
				}
				if u.InputTokens != 240 || u.CachedInputTokens != cached || u.OutputTokens != 18 || u.TotalTokens != 258 || u.Requests != 2 || u.Estimated {
					t.Errorf("usage %+v", u)
				}
				// at 1 $, cached at 0.1 $ and output at 2 $ for a million
				if want := (float64(240-cached) + 0.1*float64(cached) + 18*2) / 1e6; u.CostUSD < want*0.999 || u.CostUSD > want*1.001 {
					t.Errorf("cost %g, want %g", u.CostUSD, want)
				}
			},
		},
		{
			name: "cancel", cancel: true, steps: func() []modeltest.Step { return []modeltest.Step{{Hang: true}} },
			check: func(t *testing.T, s *agent.State) {
				if s.Status != toolcrib.StatusCancelled {
					t.Errorf("status %s", s.Status)
				}
			},
		},
		{
			name: "structured answer", steps: steps(ask(call("c_1", "weather", `{"city":"a"}`)), say(words(`{"sky":"clear","degrees":21}`))),
			task: func(k *agent.Task) {
				k.Agent.OutputSchema = json.RawMessage(`{"type":"object","properties":{"sky":{"type":"string"},"degrees":{"type":"integer"}},"required":["sky","degrees"],"additionalProperties":false}`)
			},
			check: func(t *testing.T, s *agent.State) {
				content(t, s, `{"degrees":21,"sky":"clear"}`, toolcrib.StopCompleted)
			},
		},
		{
			name: "answer that does not fit", steps: steps(say(words(`{"sky":7}`)), say(words(`{"sky":"clear"}`))),
			task: func(k *agent.Task) {
				k.Agent.OutputSchema = json.RawMessage(`{"type":"object","properties":{"sky":{"type":"string"}},"required":["sky"],"additionalProperties":false}`)
			},
			check: func(t *testing.T, s *agent.State) { content(t, s, `{"sky":"clear"}`, toolcrib.StopCompleted) },
		},
		{
			name: "image", sent: picture, steps: steps(say(words("A pixel."))),
			task: func(k *agent.Task) {
				data, _ := base64.StdEncoding.DecodeString(picture) // a constant
				k.Files = []toolcrib.OutputFile{{MediaType: "image/png", Name: "pixel.png", Data: data}}
			},
			check: func(t *testing.T, s *agent.State) { content(t, s, "A pixel.", toolcrib.StopCompleted) },
		},
		{
			name: "cut", steps: steps(reply(toolcrib.FinishLength, words("It continues and"))),
			check: func(t *testing.T, s *agent.State) {
				if s.Done == nil || !s.Done.Truncated || s.Done.Content != "It continues and" {
					t.Errorf("done %+v", s.Done)
				}
			},
		},
	}
}

func content(t *testing.T, s *agent.State, want string, reason toolcrib.StopReason) {
	t.Helper()
	if s.Done == nil || s.Done.Content != want || s.Done.StopReason != reason {
		t.Errorf("done %+v, failed %+v, want %q (%s)", s.Done, s.Failed, want, reason)
	}
}

func statuses(t *testing.T, s *agent.State, want string) {
	t.Helper()
	var got []string
	for _, c := range s.Trace {
		text := c.Name + "="
		if c.Result != nil {
			text += string(c.Result.Status)
			if c.Result.Reason != "" {
				text += "/" + string(c.Result.Reason)
			}
		}
		got = append(got, text)
	}
	if g := strings.Join(got, " "); g != want {
		t.Errorf("calls: %s, want %s", g, want)
	}
}

// play carries a scenario out and returns the run and its journal, normalised.
func play(t *testing.T, store *sqlite.Store, k scenario, s subject, onePiece bool) (*agent.State, []string) {
	t.Helper()
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	var onRequest func()
	if k.cancel {
		onRequest = func() { cancel(&agent.CancelError{By: "local:test"}) }
	}
	model, server := s.serve(t, k.steps(), onePiece, onRequest, nil)
	g := newGate(t, gate.Options{Tools: (&shelf{}).tools()})
	r := newRunner(t, store, g, map[string]toolcrib.Model{"p": model})
	task := agent.Task{
		Agent:     toolcrib.Agent{Name: "default", Model: "p/model-a", System: "You are a test."},
		Models:    []journal.ModelInfo{s.info("p")},
		Principal: toolcrib.Principal{User: "local:test", Admin: true}, Prompt: "How is it?",
		Workspace: t.TempDir(),
		Hosted:    agent.Hosted{Driver: "cli"},
	}
	if k.task != nil {
		k.task(&task)
	}
	state, err := r.Run(ctx, task)
	if err != nil {
		t.Fatal(err)
	}
	k.check(t, state)
	if server != nil && k.sent != "" && !bytes.Contains(server.Requests()[0], []byte(k.sent)) {
		t.Errorf("the first request lacks %s: %s", k.sent, server.Requests()[0])
	}
	return state, normalJournal(t, events(t, store, state.Run))
}

// Every scenario passes for all adapters, in one piece and as a stream, every
// request is as the API wants it, and the journals are the same but for IDs, times,
// names of models, usage, reasoning data and hashes of requests.
func TestScenarios_AllAdapters_N8_N12_N13(t *testing.T) {
	store := openStore(t)
	for _, k := range scenarios() {
		t.Run(k.name, func(t *testing.T) {
			var want []string
			for _, s := range subjects() {
				if k.parallel && s.byText {
					continue // see TestTextProtocol_FirstCallCounts
				}
				for _, onePiece := range []bool{false, true} {
					if onePiece && s.dialect == "" {
						continue // a script is no API
					}
					name := s.name + map[bool]string{false: " stream", true: " one piece"}[onePiece]
					t.Run(name, func(t *testing.T) {
						_, got := play(t, store, k, s, onePiece)
						if want == nil {
							want = got
							return
						}
						if diff := firstDifference(got, want); diff != "" {
							t.Errorf("the journal is not that of openai chat: %s", diff)
						}
					})
				}
			}
		})
	}
}

// Of the calls that a model by text makes in one turn the first counts (X1); the
// rest of the story is the same.
func TestTextProtocol_FirstCallCounts_X1(t *testing.T) {
	store := openStore(t)
	for _, k := range scenarios() {
		if !k.parallel {
			continue
		}
		k.check = func(t *testing.T, s *agent.State) {
			content(t, s, "Done.", toolcrib.StopCompleted)
			statuses(t, s, "weather=ok")
		}
		for _, s := range subjects() {
			if s.byText {
				play(t, store, k, s, false)
			}
		}
	}
}
