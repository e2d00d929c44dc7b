package openai_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/provider/openai"
	"github.com/toolcrib/toolcrib/provider/wire"
	"github.com/toolcrib/toolcrib/toolcribtest/modeltest"
)

// recorder records requests and answers with one reply.
type recorder struct {
	body   []byte
	header http.Header
	url    string
}

func (r *recorder) RoundTrip(req *http.Request) (*http.Response, error) {
	r.body, _ = io.ReadAll(req.Body)
	r.header, r.url = req.Header.Clone(), req.URL.String()
	if err := req.Body.Close(); err != nil {
		return nil, err
	}
	return &http.Response{
		StatusCode: 200, Header: http.Header{"Content-Type": {"application/json"}, "X-Request-Id": {"req_1"}},
		Body: io.NopCloser(bytes.NewReader(modeltest.OpenAI.JSON(modeltest.Text("ok")))),
	}, nil
}

func (r *recorder) fields(t *testing.T) map[string]json.RawMessage {
	t.Helper()
	var doc map[string]json.RawMessage
	if err := json.Unmarshal(r.body, &doc); err != nil {
		t.Fatalf("%v: %s", err, r.body)
	}
	return doc
}

func send(t *testing.T, o openai.Options, req *toolcrib.Request) (*recorder, toolcrib.Reply) {
	t.Helper()
	r := &recorder{}
	o.Transport = r
	m, err := openai.New(o)
	if err != nil {
		t.Fatal(err)
	}
	reply, err := modeltest.Collect(t.Context(), m, req)
	if err != nil {
		t.Fatal(err)
	}
	return r, reply
}

func ptr[T any](v T) *T { return &v }

func TestN5_ConfigurationReachesTheAPI(t *testing.T) {
	req := modeltest.Request("question")
	req.Model, req.System, req.Temperature, req.MaxOutputTokens = "tiny", "You are careful.", ptr(0.25), 99
	r, reply := send(t, openai.Options{
		BaseURL: "https://llm.example/api/v1/", APIKey: "key-1", Headers: map[string]string{"x-team": "blue"},
	}, req)
	if r.url != "https://llm.example/api/v1/chat/completions" {
		t.Errorf("url %s", r.url)
	}
	if r.header.Get("Authorization") != "Bearer key-1" || r.header.Get("X-Team") != "blue" {
		t.Errorf("headers %v", r.header)
	}
	want := `{"model":"tiny","stream":true,"stream_options":{"include_usage":true},"temperature":0.25,"max_tokens":99,` +
		`"messages":[{"role":"system","content":"You are careful."},{"role":"user","content":"question"}]}`
	if string(r.body) != want {
		t.Errorf("body\n%s\nwant\n%s", r.body, want)
	}
	if reply.Finish.RequestID != "req_1" {
		t.Errorf("request ID %q", reply.Finish.RequestID)
	}
}

func TestN8_NothingOptionalIsSentUnasked(t *testing.T) {
	r, _ := send(t, openai.Options{NoStream: true}, modeltest.Request("q"))
	if want := `{"model":"model-a","messages":[{"role":"user","content":"q"}]}`; string(r.body) != want {
		t.Errorf("body %s, want %s", r.body, want)
	}
	if _, ok := r.header["Authorization"]; ok {
		t.Error("a header for a key that there is not")
	}
}

func TestN12_ToolTurns(t *testing.T) {
	req := modeltest.Request("q")
	req.Tools = []toolcrib.Spec{{Name: "f"}}
	req.Messages = append(req.Messages,
		toolcrib.Message{Role: toolcrib.RoleAssistant, Parts: []toolcrib.Part{
			{ToolCall: &toolcrib.ToolCall{ID: "c1", Name: "f", Arguments: json.RawMessage(`{"a":"é\n"}`)}},
			{ToolCall: &toolcrib.ToolCall{ID: "c2", Name: "f", Broken: "{nope", Arguments: json.RawMessage(`{}`)}},
		}},
		toolcrib.Message{Role: toolcrib.RoleTool, Parts: []toolcrib.Part{
			{ToolResult: &toolcrib.ToolResult{CallID: "c1", Name: "f", Content: "one"}},
			{ToolResult: &toolcrib.ToolResult{CallID: "c2", Name: "f", Content: "two", IsError: true}},
		}})
	r, _ := send(t, openai.Options{}, req)
	want := `[{"role":"user","content":"q"},{"role":"assistant","content":null,"tool_calls":[` +
		`{"id":"c1","type":"function","function":{"name":"f","arguments":"{\"a\":\"é\\n\"}"}},` +
		`{"id":"c2","type":"function","function":{"name":"f","arguments":"{}"}}]},` +
		`{"role":"tool","tool_call_id":"c1","content":"one"},{"role":"tool","tool_call_id":"c2","content":"two"}]`
	if got := string(r.fields(t)["messages"]); got != want {
		t.Errorf("messages\n%s\nwant\n%s", got, want)
	}
	if got, want := string(r.fields(t)["tools"]), `[{"type":"function","function":{"name":"f","description":"","parameters":{"type":"object","properties":{}}}}]`; got != want {
		t.Errorf("tools %s, want %s", got, want)
	}
}

func TestH13_ToolChoice(t *testing.T) {
	for mode, want := range map[string]string{
		"": "", "auto": `"auto"`, "none": `"none"`, "required": `"required"`, "name": `{"type":"function","function":{"name":"f"}}`,
	} {
		req := modeltest.Request("q")
		req.Tools = []toolcrib.Spec{{Name: "f"}}
		req.ToolChoice = toolcrib.ToolChoice{Mode: mode, Name: "f"}
		r, _ := send(t, openai.Options{}, req)
		if got := string(r.fields(t)["tool_choice"]); got != want {
			t.Errorf("mode %q: %s, want %s", mode, got, want)
		}
	}
}

func TestExtra_MergedLast(t *testing.T) {
	req := modeltest.Request("q")
	req.Temperature, req.MaxOutputTokens, req.Reasoning = ptr(0.5), 10, "high"
	req.Extra = json.RawMessage(`{"seed": 7, "temperature": 0.9, "model": "evil", "messages": [], "tools": [{}], "reasoning_effort": null, "max_completion_tokens": 5, "stream": false, "stream_options": {}}`)
	r, _ := send(t, openai.Options{}, req)
	want := `{"model":"model-a","seed":7,"temperature":0.9,"max_completion_tokens":5,"messages":[{"role":"user","content":"q"}]}`
	if string(r.body) != want {
		t.Errorf("body\n%s\nwant\n%s", r.body, want)
	}
	for _, bad := range []string{`[1]`, `{"a":`, `"x"`} {
		req.Extra = json.RawMessage(bad)
		m, err := openai.New(openai.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := modeltest.Collect(t.Context(), m, req); err == nil || !strings.Contains(err.Error(), "extra") {
			t.Errorf("extra %s: error %v", bad, err)
		}
	}
}

func TestVendorRules(t *testing.T) {
	tests := []struct {
		model, host, field, want string
		tools                    bool
	}{
		{"gpt-4.1", "https://api.openai.com/v1", "max_completion_tokens", "10", false},
		{"gpt-4.1", "https://api.openai.com/v1", "temperature", "0.5", false},
		{"qwen3", "http://localhost:1234/v1", "max_tokens", "10", false},
		{"openai/o3", "https://gateway.example/v1", "max_completion_tokens", "10", false},
		{"o3", "https://api.openai.com/v1", "temperature", "", false},
		{"gpt-5-mini", "https://api.openai.com/v1", "temperature", "", false},
		{"gpt-5-mini", "http://localhost:1234/v1", "temperature", "0.5", false},
		{"gpt-5-chat-latest", "https://api.openai.com/v1", "temperature", "0.5", false},
		{"gpt-5.6", "https://api.openai.com/v1", "reasoning_effort", `"high"`, false},
		{"gpt-5.6", "https://api.openai.com/v1", "reasoning_effort", `"none"`, true},
		{"gpt-5.1", "https://api.openai.com/v1", "reasoning_effort", `"high"`, true},
		{"gpt-5.6", "http://localhost:1234/v1", "reasoning_effort", `"high"`, true},
	}
	for _, tt := range tests {
		req := modeltest.Request("q")
		req.Model, req.Temperature, req.MaxOutputTokens, req.Reasoning = tt.model, ptr(0.5), 10, "high"
		if tt.tools {
			req.Tools = []toolcrib.Spec{{Name: "f"}}
		}
		r, reply := send(t, openai.Options{API: openai.APIChat, BaseURL: tt.host}, req)
		if got := string(r.fields(t)[tt.field]); got != tt.want {
			t.Errorf("%s at %s: %s is %s, want %s", tt.model, tt.host, tt.field, got, tt.want)
		}
		if tt.want == "" && len(reply.Finish.Notices) == 0 {
			t.Errorf("%s: left out without a notice", tt.model)
		}
	}
}

func TestToolUnusable(t *testing.T) {
	req := modeltest.Request("q")
	req.Tools = []toolcrib.Spec{{Name: "bad", Parameters: json.RawMessage(`"x"`)}, {Name: "good"}, {Name: "not good"}}
	r, reply := send(t, openai.Options{}, req)
	if tools := string(r.fields(t)["tools"]); strings.Contains(tools, "bad") || strings.Contains(tools, "not good") ||
		!strings.Contains(tools, "good") {
		t.Errorf("tools %s", tools)
	}
	if n := reply.Finish.Notices; len(n) != 2 || n[0].Code != "tool_unusable" || !strings.Contains(n[0].Message, "bad") {
		t.Errorf("notices %+v", n)
	}
	req.Tools = req.Tools[:1]
	r, _ = send(t, openai.Options{}, req)
	if _, ok := r.fields(t)["tools"]; ok {
		t.Error("N8: an empty list of tools was sent")
	}
}

func TestReasoningIsReplayedWhereAskedFor(t *testing.T) {
	req := modeltest.Request("q")
	req.Messages = append(req.Messages, toolcrib.Message{Role: toolcrib.RoleAssistant, Parts: []toolcrib.Part{{Thinking: &toolcrib.Thinking{Text: "hm"}}, {Text: "a"}}},
		toolcrib.TextMessage(toolcrib.RoleUser, "r"))
	thinking := req.Messages[1].Parts[0].Thinking
	const own, empty, none = `"reasoning_content":"hm"`, `"reasoning_content":""`, `"content":"a"}`
	for _, tt := range []struct {
		host, reasoning, model, of, signature, want string
	}{
		{"https://api.deepseek.com", "", "deepseek-chat", "", "", own},
		{"https://api.deepseek.com", "", "deepseek-chat", "anthropic/claude-x", "sig==", empty},
		{"https://api.deepseek.com", "drop", "deepseek-chat", "", "", none},
		{"https://api.openai.com/v1", "", "m", "", wire.ReasoningContent, none},
		{"https://gateway.example/v1", "", "m", "g/m", wire.ReasoningContent, own},
		{"https://gateway.example/v1", "", "m", "g/m", "", none},
		{"https://gateway.example/v1", "", "m", "g/other", wire.ReasoningContent, none},
		{"https://gateway.example/v1", "", "deepseek-ai/DeepSeek-V4-Pro", "g/other", "", empty},
		{"https://gateway.example/v1", "", "moonshotai/kimi-k2.5", "", "", own},
		{"https://gateway.example/v1", "replay", "m", "g/other", "", empty},
		{"https://gateway.example/v1", "drop", "kimi-k2.5", "g/kimi-k2.5", wire.ReasoningContent, none},
	} {
		req.Model, thinking.Model, thinking.Signature = tt.model, tt.of, tt.signature
		r, _ := send(t, openai.Options{BaseURL: tt.host, Reasoning: tt.reasoning}, req)
		if !strings.Contains(string(r.body), tt.want) {
			t.Errorf("%+v: sent %s", tt, r.fields(t)["messages"])
		}
	}
}

// After a server has sent reasoning, earlier turns are also sent with the field.
func TestReasoning_OfEarlierTurns(t *testing.T) {
	rec := &recorder{}
	m, err := openai.New(openai.Options{BaseURL: "https://gateway.example/v1", Transport: rec})
	if err != nil {
		t.Fatal(err)
	}
	c, req := m.Conversation(), modeltest.Request("q")
	ask := func(want string, more ...toolcrib.Message) {
		t.Helper()
		req.Messages = append(req.Messages, more...)
		if _, err := modeltest.Collect(t.Context(), c, req); err != nil {
			t.Fatal(err)
		}
		if got := string(rec.fields(t)["messages"]); got != want {
			t.Errorf("sent %s, want %s", got, want)
		}
	}
	said := func(parts ...toolcrib.Part) toolcrib.Message {
		return toolcrib.Message{Role: toolcrib.RoleAssistant, Parts: parts}
	}
	ask(`[{"role":"user","content":"q"},{"role":"assistant","content":"a"},{"role":"user","content":"r"}]`,
		said(toolcrib.Part{Text: "a"}), toolcrib.TextMessage(toolcrib.RoleUser, "r"))
	ask(`[{"role":"user","content":"q"},{"role":"assistant","content":"a","reasoning_content":""},{"role":"user","content":"r"},`+
		`{"role":"assistant","content":"b","reasoning_content":"hm"},{"role":"user","content":"s"}]`,
		said(toolcrib.Part{Thinking: &toolcrib.Thinking{Text: "hm", Signature: wire.ReasoningContent}}, toolcrib.Part{Text: "b"}),
		toolcrib.TextMessage(toolcrib.RoleUser, "s"))
}

func TestOutputSchema(t *testing.T) {
	req := modeltest.Request("q")
	req.OutputSchema = json.RawMessage(`{"type":"object"}`)
	r, _ := send(t, openai.Options{}, req)
	if got, want := string(r.fields(t)["response_format"]), `{"type":"json_schema","json_schema":{"name":"answer","strict":false,"schema":{"type":"object"}}}`; got != want {
		t.Errorf("response_format %s, want %s", got, want)
	}
}

func TestOptions_Errors(t *testing.T) {
	for name, o := range map[string]wire.Options{
		"base_url": {BaseURL: "localhost:8080"}, "base_url ": {BaseURL: "https://user:hunter22@host/v1"}, "base_url  ": {BaseURL: "ftp://x"},
		"proxy": {Proxy: "gopher://x"}, "ca_file": {CAFile: "/nowhere/ca.pem"},
	} {
		_, err := openai.New(o)
		if err == nil || !strings.Contains(err.Error(), strings.TrimSpace(name)) ||
			strings.Contains(err.Error(), "hunter22") {
			t.Errorf("%+v: error %v", o, err)
		}
	}
}

func TestCheck(t *testing.T) {
	s := modeltest.NewServer(modeltest.OpenAI, modeltest.ServerOptions{APIKey: "right"})
	url := s.Start(t)
	m := open(t, modeltest.Target{BaseURL: url, APIKey: "right"})
	names, err := m.ListModels(t.Context())
	if err != nil || len(names) != 2 || names[0] != "model-a" {
		t.Errorf("models %v, error %v", names, err)
	}
	if err := open(t, modeltest.Target{BaseURL: url, APIKey: "wrong"}).Check(t.Context()); err == nil ||
		!strings.Contains(err.Error(), "api_key") {
		t.Errorf("wrong key: error %v", err)
	}
}
