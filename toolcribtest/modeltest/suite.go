// Package modeltest tests models: one conformance suite for every
// [toolcrib.Model], a hostile HTTP suite for adapters of model APIs, one check of
// the transcript that a request holds, whatever API it is for, servers that play
// model APIs from a script, and recorded replies.
//
// The servers and the check need no test: programs and benchmarks can use them too.
package modeltest

import (
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"strings"
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
		toolcrib.ToolCall{
			ID: "call_a", Name: "read_file",
			Arguments: json.RawMessage(`{"path":"notes.txt","n":[1,2.5,null]}`),
		},
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
	reply.Message.Parts = append([]toolcrib.Part{{Thinking: &toolcrib.Thinking{Text: "let me see"}}},
		reply.Message.Parts...)
	r := mustCollect(t, s.New(t, reply), Request("hi"))
	if len(r.Message.Parts) != 2 || r.Message.Parts[0].Thinking == nil ||
		r.Message.Parts[0].Thinking.Text != "let me see" {
		t.Errorf("parts %+v", Parts(r.Message))
	}
	if got := r.Message.Text(); got != "answer" {
		t.Errorf("text %q", got)
	}
}

func (s Subject) twoTurns(t *testing.T) {
	model := s.New(t, Calls(toolcrib.ToolCall{ID: "call_a", Name: "f", Arguments: json.RawMessage(`{"x":1}`)}),
		Text("done"))
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

// ErrNoFinish says that a stream ended without Finish and without an error.
var ErrNoFinish = errors.New("the stream ended without finish")

// Collect sends a request and joins what comes back. It returns an error for
// whatever breaks the rules of [toolcrib.Model]: two things in one delta,
// anything after the end, or no end.
func Collect(ctx context.Context, m toolcrib.Model, req *toolcrib.Request) (toolcrib.Reply, error) {
	var b toolcrib.ReplyBuilder
	var failed error
	for d, err := range m.Stream(ctx, req) {
		switch {
		case failed != nil:
			return b.Reply(), errors.Join(failed, errors.New("something came after the error"))
		case err != nil:
			failed = err
			continue
		case b.Finished():
			return b.Reply(), errors.New("something came after finish")
		}
		if n := fields(d); n > 1 {
			return b.Reply(), fmt.Errorf("a delta has %d fields set", n)
		}
		b.Add(d)
	}
	switch {
	case failed != nil:
		return b.Reply(), failed
	case !b.Finished():
		return b.Reply(), ErrNoFinish
	}
	return b.Reply(), nil
}

func fields(d toolcrib.Delta) (n int) {
	for _, set := range [...]bool{
		d.Text != "", d.Thinking != "", d.Signature != "", d.Redacted != "", d.ToolCall != nil,
		d.Finish != nil,
	} {
		if set {
			n++
		}
	}
	return n
}

// Request is a plain request of one user text, for tests.
func Request(text string) *toolcrib.Request {
	return &toolcrib.Request{Model: "model-a", Messages: []toolcrib.Message{toolcrib.TextMessage(toolcrib.RoleUser, text)}}
}

//go:embed testdata
var testdata embed.FS

// Fixture is one recorded reply, written after the vendor's documentation: as a
// stream, in one piece, or both.
type Fixture struct {
	Name   string
	Stream []byte // server-sent events, or NDJSON; nil = none
	Whole  []byte // JSON; nil = none
	Want   Want
}

// Want is what an adapter must make of a fixture.
type Want struct {
	Parts  []WantPart            `json:"parts"`
	Reason toolcrib.FinishReason `json:"reason"`
	Usage  toolcrib.TokenUsage   `json:"usage"`
	Model  string                `json:"model"`
	Error  toolcrib.ErrorClass   `json:"error,omitempty"` // an error instead of a reply

	// beyond what the API says: the vendor's own library need not read it
	Lenient       bool `json:"lenient,omitempty"`
	JSONArguments bool `json:"json_arguments,omitempty"` // arguments are compared as JSON values
}

// WantPart is one part; exactly what is expected is set.
type WantPart struct {
	Text      string    `json:"text,omitempty"`
	Thinking  string    `json:"thinking,omitempty"`
	Signature string    `json:"signature,omitempty"`
	Redacted  string    `json:"redacted,omitempty"`
	Call      *WantCall `json:"call,omitempty"`
}

// WantCall is one call; the arguments are text, since they need not be JSON.
type WantCall struct {
	ID        string `json:"id"`
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
}

// Fixtures returns the recorded replies of a dialect.
func Fixtures(d Dialect) ([]Fixture, error) {
	dir := "testdata/" + string(d)
	entries, err := fs.ReadDir(testdata, dir)
	if err != nil {
		return nil, err
	}
	var list []Fixture
	for _, e := range entries {
		name, ok := strings.CutSuffix(e.Name(), ".want.json")
		if !ok {
			continue
		}
		f := Fixture{Name: name}
		want, err := fs.ReadFile(testdata, dir+"/"+e.Name())
		if err != nil {
			return nil, err
		}
		if err := json.Unmarshal(want, &f.Want); err != nil {
			return nil, fmt.Errorf("%s: %w", e.Name(), err)
		}
		f.Stream, _ = fs.ReadFile(testdata, dir+"/"+name+".sse") // either may be absent
		if d == Ollama {
			f.Stream, _ = fs.ReadFile(testdata, dir+"/"+name+".ndjson")
		}
		f.Whole, _ = fs.ReadFile(testdata, dir+"/"+name+".json")
		if f.Stream == nil && f.Whole == nil {
			return nil, fmt.Errorf("%s: has neither .sse nor .json", name)
		}
		list = append(list, f)
	}
	return list, nil
}

// Parts brings a message into the form of Want.
func Parts(m toolcrib.Message) []WantPart {
	list := []WantPart{}
	for i := range m.Parts {
		p := &m.Parts[i]
		switch {
		case p.ToolCall != nil:
			list = append(list, WantPart{Call: &WantCall{
				ID: p.ToolCall.ID, Name: p.ToolCall.Name,
				Arguments: string(p.ToolCall.Arguments),
			}})
		case p.Thinking != nil:
			list = append(list, WantPart{
				Thinking: p.Thinking.Text, Signature: p.Thinking.Signature,
				Redacted: p.Thinking.Redacted,
			})
		default:
			list = append(list, WantPart{Text: p.Text})
		}
	}
	return list
}
