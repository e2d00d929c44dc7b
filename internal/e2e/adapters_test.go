package e2e

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/provider/anthropic"
	"github.com/toolcrib/toolcrib/provider/gemini"
	"github.com/toolcrib/toolcrib/provider/llamacpp"
	"github.com/toolcrib/toolcrib/provider/ollama"
	"github.com/toolcrib/toolcrib/provider/openai"
	"github.com/toolcrib/toolcrib/provider/script"
	"github.com/toolcrib/toolcrib/provider/texttag"
	"github.com/toolcrib/toolcrib/provider/wire"
	"github.com/toolcrib/toolcrib/toolcribtest/modeltest"
)

const testKey = "sk-test-key-123"

// subject is one way to speak to a model.
type subject struct {
	name    string
	dialect modeltest.Dialect // "" = there is no server
	byText  bool              // calls tools by the text protocol
	open    func(o wire.Options) (toolcrib.Model, error)
}

// subjects returns all adapters; script has no server, and texttag uses one of the others.
func subjects() []subject {
	chat := func(o wire.Options) (toolcrib.Model, error) {
		o.API = openai.APIChat
		return openai.New(o)
	}
	return []subject{
		{"openai chat", modeltest.OpenAI, false, chat},
		{"openai responses", modeltest.Responses, false, func(o wire.Options) (toolcrib.Model, error) {
			o.API = openai.APIResponses
			return openai.New(o)
		}},
		{"anthropic", modeltest.Anthropic, false, func(o wire.Options) (toolcrib.Model, error) {
			return anthropic.New(o)
		}},
		{"gemini", modeltest.Gemini, false, func(o wire.Options) (toolcrib.Model, error) {
			return gemini.New(o)
		}},
		{"ollama", modeltest.Ollama, false, func(o wire.Options) (toolcrib.Model, error) {
			return ollama.New(o)
		}},
		{"llamacpp", modeltest.LlamaCpp, false, func(o wire.Options) (toolcrib.Model, error) {
			return llamacpp.New(o)
		}},
		{"texttag", modeltest.OpenAI, true, func(o wire.Options) (toolcrib.Model, error) {
			m, err := chat(o)
			return texttag.New(m), err
		}},
		{name: "script"},
	}
}

// info is the model in a run's snapshot.
func (s subject) info(provider string) journal.ModelInfo {
	m := journal.ModelInfo{
		Ref: provider + "/model-a", Provider: provider, ID: "model-a", Context: 100_000,
		Price: toolcrib.Price{Input: 1, CachedInput: 0.1, Output: 2, Known: true},
	}
	if s.byText {
		m.Tools = "text"
	}
	return m
}

// serve starts a server of the subject's API that answers with steps, and opens the
// model; a script has no server. Every request that is not as the API wants it fails
// the test. onRequest may be nil, as may be transport.
func (s subject) serve(t testing.TB, steps []modeltest.Step, onePiece bool, onRequest func(), transport http.RoundTripper) (toolcrib.Model, *modeltest.Server) {
	t.Helper()
	if s.dialect == "" {
		return s.played(t, steps, onRequest), nil
	}
	if s.byText {
		steps = slices.Clone(steps)
		for i := range steps {
			steps[i].Reply = asText(steps[i].Reply)
		}
	}
	server := modeltest.NewServer(s.dialect, modeltest.ServerOptions{
		Steps: steps, APIKey: testKey,
		OnRequest: func(r *http.Request) {
			if onRequest != nil && r.Method == http.MethodPost && !strings.HasSuffix(r.URL.Path, "/api/show") {
				onRequest()
			}
		},
	})
	url := server.Start(t)
	if s.dialect == modeltest.Gemini {
		url = strings.TrimSuffix(url, "/v1")
	}
	m, err := s.open(wire.Options{Name: "p", BaseURL: url, APIKey: testKey, Proxy: wire.ProxyNone, NoStream: onePiece, Transport: transport})
	if err != nil {
		t.Fatal(err)
	}
	if closer, ok := m.(interface{ Close() error }); ok {
		t.Cleanup(func() { _ = closer.Close() })
	}
	return m, server
}

// asText writes the calls of a reply as a model does that calls by text.
func asText(r toolcrib.Reply) toolcrib.Reply {
	var parts []toolcrib.Part
	for _, p := range r.Message.Parts {
		if p.ToolCall != nil {
			p = toolcrib.Part{Text: fmt.Sprintf("<tool_call>{\"name\": %q, \"args\": %s}</tool_call>", p.ToolCall.Name,
				cmp.Or(p.ToolCall.Broken, string(p.ToolCall.Arguments)))}
		}
		if n := len(parts); n > 0 && p.Thinking == nil && parts[n-1].Thinking == nil {
			parts[n-1].Text += p.Text
			continue
		}
		parts = append(parts, p)
	}
	r.Message.Parts = parts
	if r.Finish.Reason == toolcrib.FinishToolCalls {
		r.Finish.Reason = toolcrib.FinishStop
	}
	return r
}

// played writes the steps as a script and plays it.
func (s subject) played(t testing.TB, steps []modeltest.Step, onRequest func()) toolcrib.Model {
	t.Helper()
	list := make([]map[string]any, len(steps))
	for i, step := range steps {
		r := map[string]any{}
		var text, thinking string
		var calls []map[string]any
		for _, p := range step.Reply.Message.Parts {
			switch {
			case p.ToolCall != nil:
				calls = append(calls, map[string]any{"name": p.ToolCall.Name, "arguments": cmp.Or(p.ToolCall.Broken, string(p.ToolCall.Arguments)), "id": p.ToolCall.ID})
			case p.Thinking != nil:
				thinking += p.Thinking.Text
			default:
				text += p.Text
			}
		}
		r["text"], r["thinking"], r["tool_calls"] = text, thinking, calls
		u := step.Reply.Finish.Usage
		r["usage"] = map[string]any{"input": u.InputTokens, "cached_input": u.CachedInputTokens, "output": u.OutputTokens}
		if step.Reply.Finish.Reason == toolcrib.FinishLength {
			r["finish"] = "length"
		}
		if step.Status == http.StatusUnauthorized {
			r = map[string]any{"error": "auth"}
		}
		if step.Hang {
			r = map[string]any{"delay": "1h"}
		}
		list[i] = r
	}
	yaml, err := json.Marshal(list) // JSON is YAML
	if err != nil {
		t.Fatal(err)
	}
	m, err := script.New(script.Options{Name: "p", Bytes: yaml})
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Check(); err != nil {
		t.Fatalf("%v\n%s", err, yaml)
	}
	if onRequest != nil {
		return told{m, onRequest}
	}
	return m
}
