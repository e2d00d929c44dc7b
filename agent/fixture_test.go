package agent_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/journal/inmemory"
)

// world is a runner over a journal in memory, with tools and a model made of Go
// functions.
type world struct {
	journal  *inmemory.Journal
	runner   *agent.Runner
	watching sync.Mutex // of those who answer a run at the same time
	frames   []journal.Frame
	mu       sync.Mutex
	// reply answers request n (from 0).
	reply    func(ctx context.Context, n int, req *toolcrib.Request) ([]toolcrib.Delta, error)
	requests []*toolcrib.Request
	running  atomic.Int32
	most     atomic.Int32
	ran      map[string]int    // by call ID
	writes   int               // calls of tools that write
	gave     map[string]string // the arguments that the tool got, by call ID
	onFrame  func(journal.Frame)
	tools    map[string]toolcrib.Output // what tools without a function return
	all      []toolcrib.Tool

	policyChanges bool // while a run is on
}

type noOverrides struct{}

func (noOverrides) Overrides(context.Context) (gate.Overrides, error) { return gate.Overrides{}, nil }

// fn is a tool made of a function.
type fn struct {
	spec toolcrib.Spec
	w    *world
	call func(ctx context.Context, c toolcrib.Call) (toolcrib.Output, error)
}

func (f *fn) Spec() toolcrib.Spec { return f.spec }

func (f *fn) Call(ctx context.Context, c toolcrib.Call) (toolcrib.Output, error) {
	f.w.mu.Lock()
	f.w.ran[c.ID]++
	f.w.gave[c.ID] = string(c.Arguments)
	if f.spec.Effect.Writes() {
		f.w.writes++
	}
	f.w.mu.Unlock()
	n := f.w.running.Add(1)
	for {
		most := f.w.most.Load()
		if n <= most || f.w.most.CompareAndSwap(most, n) {
			break
		}
	}
	defer f.w.running.Add(-1)
	return f.call(ctx, c)
}

func (w *world) Stream(ctx context.Context, req *toolcrib.Request) iter.Seq2[toolcrib.Delta, error] {
	w.mu.Lock()
	n := len(w.requests)
	copied := *req
	copied.Messages = append([]toolcrib.Message(nil), req.Messages...)
	w.requests = append(w.requests, &copied)
	w.mu.Unlock()
	return func(yield func(toolcrib.Delta, error) bool) {
		deltas, err := w.reply(ctx, n, req)
		for _, d := range deltas {
			if !yield(d, nil) {
				return
			}
		}
		if err != nil {
			yield(toolcrib.Delta{}, err)
		}
	}
}

func newWorld(t testing.TB, confirm gate.ConfirmMode) *world {
	t.Helper()
	w := &world{journal: &inmemory.Journal{}, ran: map[string]int{}, gave: map[string]string{}, tools: map[string]toolcrib.Output{}}
	w.all = w.tooling()
	g, err := gate.New(gate.Options{Tools: w.all, Availability: noOverrides{}, Confirm: confirm})
	if err != nil {
		t.Fatal(err)
	}
	w.runner, err = agent.New(agent.Options{
		Journal: w.journal, Contents: w.journal, Gate: g,
		Models: func(context.Context, journal.ModelInfo) (toolcrib.Model, error) { return w, nil },
		Watch: func(_ toolcrib.RunID, f journal.Frame) {
			w.watching.Lock()
			w.frames = append(w.frames, f)
			w.watching.Unlock()
			if w.onFrame != nil {
				w.onFrame(f)
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// tooling are the tools that a world has: for each way in which one can behave, one.
func (w *world) tooling() []toolcrib.Tool {
	read := toolcrib.Spec{Effect: toolcrib.EffectReadOnly, EnabledByDefault: true, Source: "go"}
	tool := func(name string, spec toolcrib.Spec, call func(context.Context, toolcrib.Call) (toolcrib.Output, error)) toolcrib.Tool {
		spec.Name = name
		return &fn{spec: spec, w: w, call: call}
	}
	write := read
	write.Effect = toolcrib.EffectNonIdempotentWrite
	put := read
	put.Effect = toolcrib.EffectIdempotentWrite
	nested := read
	nested.Nested = true
	strict := read
	strict.Parameters = json.RawMessage(`{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"],"additionalProperties":false}`)
	slow := read
	slow.Timeout = time.Second
	return []toolcrib.Tool{
		tool("echo", read, func(_ context.Context, c toolcrib.Call) (toolcrib.Output, error) {
			return toolcrib.Output{JSON: c.Arguments}, nil
		}),
		tool("strict", strict, func(_ context.Context, c toolcrib.Call) (toolcrib.Output, error) {
			return toolcrib.Output{Text: "strictly " + string(c.Arguments)}, nil
		}),
		tool("fails", read, func(context.Context, toolcrib.Call) (toolcrib.Output, error) {
			return toolcrib.Output{}, toolcrib.Failf(toolcrib.NotFound, "the thing")
		}),
		tool("faulty", read, func(context.Context, toolcrib.Call) (toolcrib.Output, error) {
			return toolcrib.Output{}, errors.New("password=hunter2hunter2")
		}),
		tool("panics", read, func(context.Context, toolcrib.Call) (toolcrib.Output, error) {
			panic("password=hunter2hunter2")
		}),
		tool("typed_nil", read, func(context.Context, toolcrib.Call) (toolcrib.Output, error) {
			var none *toolcrib.ToolError // as by an author who forgets that it is not nil as an error
			return toolcrib.Output{}, none
		}),
		tool("slow", slow, func(ctx context.Context, _ toolcrib.Call) (toolcrib.Output, error) {
			<-ctx.Done()
			return toolcrib.Output{}, ctx.Err()
		}),
		tool("deaf", slow, func(context.Context, toolcrib.Call) (toolcrib.Output, error) {
			time.Sleep(time.Minute)
			return toolcrib.Output{Text: "too late"}, nil
		}),
		tool("wait", read, func(ctx context.Context, _ toolcrib.Call) (toolcrib.Output, error) {
			select {
			case <-time.After(10 * time.Millisecond):
				return toolcrib.Output{Text: "waited"}, nil
			case <-ctx.Done():
				return toolcrib.Output{}, ctx.Err()
			}
		}),
		tool("big", read, func(context.Context, toolcrib.Call) (toolcrib.Output, error) {
			return toolcrib.Output{Text: fmt.Sprintf("%0200000d", 7)}, nil
		}),
		tool("write", write, func(context.Context, toolcrib.Call) (toolcrib.Output, error) {
			return toolcrib.Output{Text: "written"}, nil
		}),
		tool("put", put, func(context.Context, toolcrib.Call) (toolcrib.Output, error) {
			return toolcrib.Output{Text: "put"}, nil
		}),
		tool("draw", read, func(context.Context, toolcrib.Call) (toolcrib.Output, error) {
			if out := w.tools["draw"]; out.IsError { // an error with untrusted data
				return toolcrib.Output{}, &toolcrib.ToolError{Kind: toolcrib.ToolTimeout, Message: out.Text, Untrusted: out.Source}
			}
			return w.tools["draw"], nil
		}),
		tool("nest", nested, func(ctx context.Context, c toolcrib.Call) (toolcrib.Output, error) {
			var in struct{ Tool string }
			mustDecode(c.Arguments, &in)
			got, err := c.Invoke(ctx, in.Tool, nil)
			return toolcrib.Output{Text: string(got.Status)}, err
		}),
		tool("off", toolcrib.Spec{Effect: toolcrib.EffectReadOnly}, func(context.Context, toolcrib.Call) (toolcrib.Output, error) {
			return toolcrib.Output{Text: "must never run"}, nil
		}),
	}
}

// task is a task with default limits.
func task(change ...func(*agent.Task)) agent.Task {
	t := agent.Task{
		Agent: toolcrib.Agent{
			Name: "default", Model: "fake/one", System: "You are a test.", Limits: toolcrib.DefaultLimits(),
		},
		Models:    []journal.ModelInfo{{Ref: "fake/one", Provider: "fake", ID: "one", Price: toolcrib.Price{Input: 1, Output: 2, Known: true}}},
		Principal: me,
		Prompt:    "go", Workspace: "/",
		Hosted: agent.Hosted{Driver: "cli"},
	}
	for _, c := range change {
		c(&t)
	}
	return t
}

// me is who has the runs of the tests.
var me = toolcrib.Principal{User: "local:test", Admin: true} //nolint:gochecknoglobals // a constant, if Go had them

func newEcho(_ context.Context, c toolcrib.Call) (toolcrib.Output, error) {
	return toolcrib.Output{JSON: c.Arguments}, nil
}

func mustDecode(raw json.RawMessage, v any) {
	if err := json.Unmarshal(raw, v); err != nil {
		panic(err)
	}
}

// say is a whole reply of text.
func say(text string) []toolcrib.Delta {
	return []toolcrib.Delta{{Text: text}, finish(toolcrib.FinishStop)}
}

// call is a reply that calls tools: name, arguments, name, arguments, …
func calls(pairs ...string) []toolcrib.Delta {
	var ds []toolcrib.Delta
	for i := 0; i+1 < len(pairs); i += 2 {
		ds = append(ds, toolcrib.Delta{ToolCall: &toolcrib.ToolCallDelta{
			Index: i / 2, ID: "", Name: pairs[i], Arguments: pairs[i+1],
		}})
	}
	return append(ds, finish(toolcrib.FinishToolCalls))
}

func finish(reason toolcrib.FinishReason) toolcrib.Delta {
	return toolcrib.Delta{Finish: &toolcrib.Finish{Reason: reason, Usage: toolcrib.TokenUsage{InputTokens: 100, OutputTokens: 10, Reported: true}}}
}

// script answers request n with the n-th reply, and the last forever.
func (w *world) script(replies ...[]toolcrib.Delta) {
	w.reply = func(_ context.Context, n int, _ *toolcrib.Request) ([]toolcrib.Delta, error) {
		return replies[min(n, len(replies)-1)], nil
	}
}

// events reads the whole journal of a run.
func (w *world) events(t testing.TB, run toolcrib.RunID) []toolcrib.Event {
	t.Helper()
	var events []toolcrib.Event
	for e, err := range w.journal.Read(context.Background(), run, 0) {
		if err != nil {
			t.Fatal(err)
		}
		events = append(events, e)
	}
	return events
}

// checkTranscript is the grammar that every provider asks for: each call has
// exactly one result, in order, in the message right after (N12).
func checkTranscript(messages []toolcrib.Message) error {
	for i := 0; i < len(messages); i++ {
		m := messages[i]
		if len(m.Parts) == 0 {
			return fmt.Errorf("message %d is empty", i)
		}
		switch m.Role {
		case toolcrib.RoleTool:
			return fmt.Errorf("message %d: results without calls", i)
		case toolcrib.RoleAssistant:
			made := m.ToolCalls()
			if len(made) == 0 {
				continue
			}
			if i+1 >= len(messages) || messages[i+1].Role != toolcrib.RoleTool {
				return fmt.Errorf("message %d: %d calls without results", i, len(made))
			}
			results := messages[i+1].Parts
			if len(results) != len(made) {
				return fmt.Errorf("message %d: %d calls, %d results", i, len(made), len(results))
			}
			for k, c := range made {
				if r := results[k].ToolResult; r == nil || r.CallID != c.ID || c.ID == "" {
					return fmt.Errorf("message %d: result %d does not answer call %q", i, k, c.ID)
				}
				if !json.Valid(c.Arguments) {
					return fmt.Errorf("message %d: arguments of %s are not JSON", i, c.ID)
				}
			}
			i++
		}
	}
	return nil
}

// wrote counts the calls of tools that write.
func (w *world) wrote() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.writes
}

// frameText is what a live frame adds to what is shown.
func frameText(t *testing.T, f journal.Frame) string {
	t.Helper()
	raw, err := json.Marshal(f.Data)
	if err != nil {
		t.Fatal(err)
	}
	var data struct {
		Text           string `json:"text"`
		ArgumentsDelta string `json:"arguments_delta"`
	}
	mustDecode(raw, &data)
	return data.Text + data.ArgumentsDelta
}
