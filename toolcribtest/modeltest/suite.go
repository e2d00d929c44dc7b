package modeltest

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/toolcrib/toolcrib"
)

// Subject is a kind of model under test.
type Subject struct {
	// New makes a model that answers with replies in order: the first to a
	// request without an assistant turn, the next to one with one such turn, …
	New func(t *testing.T, replies ...toolcrib.Reply) toolcrib.Model
	// Thinking: the model passes reasoning on.
	Thinking bool
	// Uncached: the API does not tell input that came from a cache.
	Uncached bool
}

// Run is the conformance suite of [toolcrib.Model].
func Run(t *testing.T, s Subject) {
	t.Run("Answer", s.answer)
	t.Run("N13_Calls", s.calls)
	t.Run("N23_Usage", s.usage)
	t.Run("Length", s.length)
	t.Run("Thinking", s.thinking)
	t.Run("N12_TwoTurns", s.twoTurns)
	t.Run("CancelledBefore", s.cancelled)
	t.Run("ListenerLeaves", s.leaves)
	t.Run("ManyAtOnce", s.many)
	t.Run("RequestUnchanged", s.unchanged)
}

func mustCollect(t *testing.T, m toolcrib.Model, req *toolcrib.Request) toolcrib.Reply {
	t.Helper()
	r, err := Collect(t.Context(), m, req)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func (s Subject) answer(t *testing.T) {
	const text = "Größe: 日本 😀 \"quoted\" \\ back\nnew line\ttab"
	r := mustCollect(t, s.New(t, Text(text)), Request("hi"))
	if got := r.Message.Text(); got != text {
		t.Errorf("text %q, want %q", got, text)
	}
	if r.Message.Role != toolcrib.RoleAssistant || r.Finish.Reason != toolcrib.FinishStop {
		t.Errorf("role %q, reason %q", r.Message.Role, r.Finish.Reason)
	}
}

func (s Subject) calls(t *testing.T) {
	reply := Calls(
		toolcrib.ToolCall{ID: "call_a", Name: "read_file", Arguments: json.RawMessage(`{"path":"notes.txt","n":[1,2.5,null]}`)},
		toolcrib.ToolCall{ID: "call_b", Name: "list_users", Arguments: json.RawMessage(`{}`)},
	)
	req := Request("hi")
	req.Tools = []toolcrib.Spec{
		{Name: "list_users"},
		{Name: "read_file", Parameters: json.RawMessage(`{"type":"object","properties":{"path":{"type":"string"}}}`)},
	}
	r := mustCollect(t, s.New(t, reply), req)
	if r.Finish.Reason != toolcrib.FinishToolCalls {
		t.Errorf("reason %q", r.Finish.Reason)
	}
	if diff := cmp.Diff(Parts(reply.Message), Parts(r.Message), JSONArguments); diff != "" {
		t.Errorf("calls differ (-want +got):\n%s", diff)
	}
}

// JSONArguments compares the arguments of calls as JSON values; those that are
// empty are {}.
var JSONArguments = cmp.Transformer("JSON", func(c WantCall) any {
	var v any
	if c.Arguments == "" {
		c.Arguments = "{}"
	}
	if json.Unmarshal([]byte(c.Arguments), &v) != nil {
		v = c.Arguments
	}
	return struct {
		ID, Name string
		Value    any
	}{c.ID, c.Name, v}
})

func (s Subject) usage(t *testing.T) {
	reply := Text("x")
	reply.Finish.Usage = toolcrib.TokenUsage{InputTokens: 120, CachedInputTokens: 100, OutputTokens: 7, Reported: true}
	if s.Uncached {
		reply.Finish.Usage.CachedInputTokens = 0
	}
	r := mustCollect(t, s.New(t, reply), Request("hi"))
	if diff := cmp.Diff(reply.Finish.Usage, r.Finish.Usage); diff != "" {
		t.Errorf("usage differs (-want +got):\n%s", diff)
	}
}

func (s Subject) length(t *testing.T) {
	reply := Text("cut")
	reply.Finish.Reason = toolcrib.FinishLength
	if r := mustCollect(t, s.New(t, reply), Request("hi")); r.Finish.Reason != toolcrib.FinishLength {
		t.Errorf("reason %q", r.Finish.Reason)
	}
}

func (s Subject) thinking(t *testing.T) {
	if !s.Thinking {
		t.Skip("SKIPPED: this kind of model has no reasoning to pass on")
	}
	reply := Text("answer")
	reply.Message.Parts = append([]toolcrib.Part{{Thinking: &toolcrib.Thinking{Text: "let me see"}}}, reply.Message.Parts...)
	r := mustCollect(t, s.New(t, reply), Request("hi"))
	if len(r.Message.Parts) != 2 || r.Message.Parts[0].Thinking == nil || r.Message.Parts[0].Thinking.Text != "let me see" {
		t.Errorf("parts %+v", Parts(r.Message))
	}
	if got := r.Message.Text(); got != "answer" {
		t.Errorf("text %q", got)
	}
}

func (s Subject) twoTurns(t *testing.T) {
	model := s.New(t, Calls(toolcrib.ToolCall{ID: "call_a", Name: "f", Arguments: json.RawMessage(`{"x":1}`)}), Text("done"))
	if c, ok := model.(toolcrib.Conversational); ok {
		model = c.Conversation()
	}
	req := Request("hi")
	req.Tools, req.ToolsHash = []toolcrib.Spec{{Name: "f"}}, "1"
	first := mustCollect(t, model, req)
	req.Messages = append(req.Messages, first.Message, toolcrib.Message{
		Role:  toolcrib.RoleTool,
		Parts: []toolcrib.Part{{ToolResult: &toolcrib.ToolResult{CallID: "call_a", Name: "f", Content: "ok"}}},
	})
	if second := mustCollect(t, model, req); second.Message.Text() != "done" {
		t.Errorf("second reply %+v", Parts(second.Message))
	}
}

func (s Subject) cancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := Collect(ctx, s.New(t, Text("x")), Request("hi"))
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want %v", err, context.Canceled)
	}
}

func (s Subject) leaves(t *testing.T) {
	model := s.New(t, Text("one two three four five six seven eight nine ten"))
	for _, err := range model.Stream(t.Context(), Request("hi")) {
		if err != nil {
			t.Fatal(err)
		}
		break
	}
	if got := mustCollect(t, model, Request("hi")).Message.Text(); got == "" {
		t.Error("the next request got nothing")
	}
}

func (s Subject) many(t *testing.T) {
	model := s.New(t, Text("same for all"))
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			r, err := Collect(t.Context(), model, Request("hi"))
			if err != nil || r.Message.Text() != "same for all" {
				t.Errorf("reply %q, error %v", r.Message.Text(), err)
			}
		})
	}
	wg.Wait()
}

func (s Subject) unchanged(t *testing.T) {
	req := Request("hi")
	req.Tools = []toolcrib.Spec{{Name: "f", Parameters: json.RawMessage(`{"properties":[]}`)}}
	before := string(encode(req))
	mustCollect(t, s.New(t, Text("x")), req)
	if after := string(encode(req)); after != before {
		t.Errorf("the request was changed:\n%s\n%s", before, after)
	}
}
