package anthropic_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/provider/anthropic"
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
		StatusCode: 200, Header: http.Header{"Content-Type": {"application/json"}, "Request-Id": {"req_1"}},
		Body: io.NopCloser(bytes.NewReader(modeltest.Anthropic.JSON(modeltest.Text("ok")))),
	}, nil
}

// fields returns the fields of a request, without the marks for the cache.
func (r *recorder) fields(t *testing.T) map[string]json.RawMessage {
	t.Helper()
	var doc map[string]json.RawMessage
	body := bytes.ReplaceAll(r.body, []byte(`,"cache_control":{"type":"ephemeral"}`), nil)
	if err := json.Unmarshal(body, &doc); err != nil {
		t.Fatalf("%v: %s", err, r.body)
	}
	return doc
}

func send(t *testing.T, o anthropic.Options, req *toolcrib.Request) (*recorder, toolcrib.Reply) {
	t.Helper()
	r := &recorder{}
	o.Transport = r
	m, err := anthropic.New(o)
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
	req.System, req.Temperature = "You are careful.", ptr(0.25)
	r, reply := send(t, anthropic.Options{APIKey: "key-1"}, req)
	if r.url != "https://api.anthropic.com/v1/messages" {
		t.Errorf("url %s", r.url)
	}
	if r.header.Get("X-Api-Key") != "key-1" || r.header.Get("Anthropic-Version") != "2023-06-01" ||
		r.header.Get("Authorization") != "" {
		t.Errorf("headers %v", r.header)
	}
	want := `{"model":"model-a","max_tokens":8192,"stream":true,"temperature":0.25,` +
		`"system":[{"type":"text","text":"You are careful.","cache_control":{"type":"ephemeral"}}],` +
		`"messages":[{"role":"user","content":[{"type":"text","text":"question","cache_control":{"type":"ephemeral"}}]}]}`
	if string(r.body) != want {
		t.Errorf("body\n%s\nwant\n%s", r.body, want)
	}
	if reply.Finish.RequestID != "req_1" {
		t.Errorf("request ID %q", reply.Finish.RequestID)
	}
	for _, base := range []string{"https://x.example", "https://x.example/", "https://x.example/v1", "https://x.example/v1/"} {
		if r, _ := send(t, anthropic.Options{BaseURL: base}, req); r.url != "https://x.example/v1/messages" {
			t.Errorf("%s: url %s", base, r.url)
		}
	}
}

func TestN12_ToolTurns(t *testing.T) {
	req := modeltest.Request("q")
	req.Tools = []toolcrib.Spec{{Name: "f"}}
	req.Messages = append(req.Messages,
		toolcrib.Message{Role: toolcrib.RoleAssistant, Parts: []toolcrib.Part{
			{Thinking: &toolcrib.Thinking{Text: "hm\n", Signature: "sig==", Model: "anthropic/model-a"}},
			{Thinking: &toolcrib.Thinking{Redacted: "xyz", Model: "anthropic/model-a"}},
			{Text: "\n"},
			{ToolCall: &toolcrib.ToolCall{ID: "c1", Name: "f", Arguments: json.RawMessage(`{"a":1}`)}},
			{ToolCall: &toolcrib.ToolCall{ID: "c2", Name: "f"}},
		}},
		toolcrib.Message{Role: toolcrib.RoleTool, Parts: []toolcrib.Part{{ToolResult: &toolcrib.ToolResult{CallID: "c1", Name: "f", Content: "one"}}}},
		toolcrib.Message{Role: toolcrib.RoleTool, Parts: []toolcrib.Part{{ToolResult: &toolcrib.ToolResult{CallID: "c2", Name: "f", Content: "two", IsError: true}}}},
		toolcrib.TextMessage(toolcrib.RoleUser, "note"))
	r, _ := send(t, anthropic.Options{}, req)
	want := `[{"role":"user","content":[{"type":"text","text":"q"}]},{"role":"assistant","content":[` +
		`{"type":"thinking","thinking":"hm\n","signature":"sig=="},{"type":"redacted_thinking","data":"xyz"},` +
		`{"type":"tool_use","id":"c1","name":"f","input":{"a":1}},{"type":"tool_use","id":"c2","name":"f","input":{}}]},` +
		`{"role":"user","content":[{"type":"tool_result","tool_use_id":"c1","content":"one"},` +
		`{"type":"tool_result","tool_use_id":"c2","content":"two","is_error":true},{"type":"text","text":"note"}]}]`
	if got := string(r.fields(t)["messages"]); got != want {
		t.Errorf("messages\n%s\nwant\n%s", got, want)
	}
	if got, want := string(r.fields(t)["tools"]), `[{"name":"f","input_schema":{"type":"object","properties":{}}}]`; got != want {
		t.Errorf("tools %s, want %s", got, want)
	}
}

// The marks for the cache move with the conversation, and the one of the previous request
// stays where it was.
func TestCacheMarksMove(t *testing.T) {
	r := &recorder{}
	m, err := anthropic.New(anthropic.Options{Transport: r})
	if err != nil {
		t.Fatal(err)
	}
	conversation := m.Conversation()
	req := modeltest.Request("one")
	for _, text := range []string{"two", "three"} {
		if _, err := modeltest.Collect(t.Context(), conversation, req); err != nil {
			t.Fatal(err)
		}
		req.Messages = append(req.Messages, toolcrib.TextMessage(toolcrib.RoleAssistant, "answer"), toolcrib.TextMessage(toolcrib.RoleUser, text))
	}
	if _, err := modeltest.Collect(t.Context(), conversation, req); err != nil {
		t.Fatal(err)
	}
	const mark = `,"cache_control":{"type":"ephemeral"}`
	want := `[{"role":"user","content":[{"type":"text","text":"one"}]},{"role":"assistant","content":[{"type":"text","text":"answer"}]},` +
		`{"role":"user","content":[{"type":"text","text":"two"` + mark + `}]},{"role":"assistant","content":[{"type":"text","text":"answer"}]},` +
		`{"role":"user","content":[{"type":"text","text":"three"` + mark + `}]}]`
	if !strings.Contains(string(r.body), want) {
		t.Errorf("sent\n%s\nwant the messages\n%s", r.body, want)
	}
}

func TestH13_ToolChoice(t *testing.T) {
	for mode, want := range map[string]string{
		"": "", "auto": `{"type":"auto"}`, "none": `{"type":"none"}`, "required": `{"type":"any"}`, "name": `{"type":"tool","name":"f"}`,
	} {
		req := modeltest.Request("q")
		req.Tools = []toolcrib.Spec{{Name: "f"}}
		req.ToolChoice = toolcrib.ToolChoice{Mode: mode, Name: "f"}
		r, _ := send(t, anthropic.Options{}, req)
		if got := string(r.fields(t)["tool_choice"]); got != want {
			t.Errorf("mode %q: %s, want %s", mode, got, want)
		}
	}
}

func TestReasoning(t *testing.T) {
	const adaptive = `{"type":"adaptive","display":"summarized"}`
	tests := []struct {
		model, level, choice                     string
		max                                      int
		thinking, output, maxTokens, temperature string
	}{
		{model: "claude-sonnet-4-5-20250929", level: "low", thinking: `{"type":"enabled","budget_tokens":2048}`, maxTokens: "10240"},
		{model: "claude-haiku-4-5", level: "high", max: 4000, thinking: `{"type":"enabled","budget_tokens":2000}`, maxTokens: "4000"},
		{model: "claude-opus-4-1-20250805", level: "medium", max: 1500, maxTokens: "1500", temperature: "0.5"},
		{model: "claude-3-7-sonnet-latest", level: "medium", thinking: `{"type":"enabled","budget_tokens":8192}`, maxTokens: "16384"},
		{model: "claude-3-5-haiku-latest", level: "medium", maxTokens: "8192", temperature: "0.5"},
		{model: "claude-3-haiku-20240307", maxTokens: "4096", temperature: "0.5"},
		{model: "claude-opus-4-6", level: "medium", thinking: adaptive, output: `{"effort":"medium"}`, maxTokens: "16384"},
		{model: "claude-opus-4-6", maxTokens: "16384", temperature: "0.5"},
		{model: "claude-opus-4-7", maxTokens: "16384"},
		{model: "claude-opus-4-7", level: "off", maxTokens: "16384"},
		{model: "claude-sonnet-5", level: "off", thinking: `{"type":"disabled"}`, maxTokens: "16384"},
		{model: "claude-sonnet-5", level: "high", choice: "required", thinking: `{"type":"disabled"}`, output: `{"effort":"high"}`, maxTokens: "16384"},
		{model: "claude-fable-5-1", level: "off", output: `{"effort":"low"}`, maxTokens: "16384"},
		{model: "us.anthropic.claude-opus-5-5-v1:0", level: "high", thinking: adaptive, output: `{"effort":"high"}`, maxTokens: "16384"},
		{model: "claude-sonnet-4-5", level: "high", choice: "required", maxTokens: "8192", temperature: "0.5"},
		{model: "other-model", level: "low", thinking: `{"type":"enabled","budget_tokens":2048}`, maxTokens: "10240"},
	}
	for _, tt := range tests {
		req := modeltest.Request("q")
		req.Model, req.Reasoning, req.MaxOutputTokens, req.Temperature = tt.model, tt.level, tt.max, ptr(0.5)
		req.Tools, req.ToolChoice.Mode = []toolcrib.Spec{{Name: "f"}}, tt.choice
		r, _ := send(t, anthropic.Options{}, req)
		got := r.fields(t)
		for field, want := range map[string]string{"thinking": tt.thinking, "output_config": tt.output, "max_tokens": tt.maxTokens, "temperature": tt.temperature} {
			if string(got[field]) != want {
				t.Errorf("%s %q %q: %s is %s, want %s", tt.model, tt.level, tt.choice, field, got[field], want)
			}
		}
	}
}

func TestForcedToolWhereItIsRefused(t *testing.T) {
	req := modeltest.Request("q")
	req.Model, req.Tools, req.ToolChoice.Mode = "claude-opus-5-5", []toolcrib.Spec{{Name: "f"}}, "required"
	r, reply := send(t, anthropic.Options{}, req)
	if _, ok := r.fields(t)["tool_choice"]; ok || len(reply.Finish.Notices) != 1 ||
		reply.Finish.Notices[0].Code != "parameter_ignored" {
		t.Errorf("body %s, notices %v", r.body, reply.Finish.Notices)
	}
	r, _ = send(t, anthropic.Options{BaseURL: "https://gateway.example"}, req)
	if got := string(r.fields(t)["tool_choice"]); got != `{"type":"any"}` {
		t.Errorf("elsewhere it is sent as asked: %s", got)
	}
}

func TestThinkingOfAnotherModelIsNotReplayed(t *testing.T) {
	req := modeltest.Request("q")
	req.Messages = append(req.Messages, toolcrib.Message{Role: toolcrib.RoleAssistant, Parts: []toolcrib.Part{
		{Thinking: &toolcrib.Thinking{Text: "hm", Signature: "s", Model: "anthropic/claude-opus-5"}}, {Thinking: &toolcrib.Thinking{Text: "unsigned"}}, {Text: "a"},
	}},
		toolcrib.TextMessage(toolcrib.RoleUser, "r"))
	for model, want := range map[string]bool{"claude-opus-5": true, "claude-sonnet-5": false} {
		req.Model = model
		r, _ := send(t, anthropic.Options{}, req)
		if got := strings.Contains(string(r.body), `"hm"`); got != want || strings.Contains(string(r.body), "unsigned") {
			t.Errorf("%s: replayed %t, want %t: %s", model, got, want, r.body)
		}
	}
}

func TestOutputSchema(t *testing.T) {
	req := modeltest.Request("q")
	req.System = "s"
	req.OutputSchema = json.RawMessage(`{"type":"object","properties":{"n":{"type":"integer","minimum":1},"o":{"oneOf":[{"type":"string","format":"weird"}]}}}`)
	req.Model = "claude-opus-4-6"
	r, _ := send(t, anthropic.Options{}, req)
	want := `{"format":{"type":"json_schema","schema":{"additionalProperties":false,"properties":{"n":{"type":"integer"},"o":{"anyOf":[{"type":"string"}]}},"type":"object"}}}`
	if got := string(r.fields(t)["output_config"]); got != want {
		t.Errorf("output_config %s, want %s", got, want)
	}
	req.OutputSchema = json.RawMessage(`{"type":"object","properties":{"a":{"$ref":"#/$defs/a","description":"d"}},"$defs":{"a":{"type":"string"}}}`)
	r, _ = send(t, anthropic.Options{}, req)
	want = `{"format":{"type":"json_schema","schema":{"$defs":{"a":{"type":"string"}},"additionalProperties":false,"properties":{"a":{"$ref":"#/$defs/a"}},"type":"object"}}}`
	if got := string(r.fields(t)["output_config"]); got != want {
		t.Errorf("a description next to a reference: output_config %s, want %s", got, want)
	}
	many := ""
	for i := range 25 {
		many += fmt.Sprintf(`"p%d":{},`, i)
	}
	for _, schema := range []string{
		`{"type":"object","additionalProperties":{"type":"string"}}`, `{"type":"object","patternProperties":{}}`, `true`,
		`{"type":"object","properties":{"a":{"$ref":"#/$defs/a"}},"$defs":{"a":{"type":"object","properties":{"b":{"$ref":"#/$defs/b"}}},"b":{"type":"array","items":{"$ref":"#/$defs/a"}}}}`,
		`{"type":"object","properties":{` + many + `"x":{}}}`,
		`{"type":"object","properties":{"a":{"anyOf":[` + strings.Repeat(`{"type":["string","null"]},`, 17) + `{}]}},"required":["a"]}`,
	} {
		req.OutputSchema = json.RawMessage(schema)
		r, _ = send(t, anthropic.Options{}, req)
		if _, ok := r.fields(t)["output_config"]; ok || !strings.Contains(string(r.fields(t)["system"]), "JSON Schema") {
			t.Errorf("%s: body %s", schema, r.body)
		}
	}
}

func TestToolUnusable(t *testing.T) {
	req := modeltest.Request("q")
	req.Tools = []toolcrib.Spec{
		{Name: "bad", Parameters: json.RawMessage(`{"type":"object","properties":{"a b":{}}}`)},
		{Name: "good", Parameters: json.RawMessage(`{"anyOf":[{"properties":{"x":{"type":"string"}}}]}`)},
	}
	r, reply := send(t, anthropic.Options{}, req)
	want := `[{"name":"good","input_schema":{"properties":{"x":{"type":"string"}},"type":"object"}}]`
	if got := string(r.fields(t)["tools"]); got != want {
		t.Errorf("tools %s, want %s", got, want)
	}
	if n := reply.Finish.Notices; len(n) != 1 || n[0].Code != "tool_unusable" || !strings.Contains(n[0].Message, "bad") {
		t.Errorf("notices %+v", n)
	}
}

func TestNoMessages(t *testing.T) {
	m, err := anthropic.New(anthropic.Options{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = modeltest.Collect(t.Context(), m, &toolcrib.Request{Model: "m"})
	if err == nil || !strings.Contains(err.Error(), "no message") {
		t.Errorf("error %v", err)
	}
}

func TestCheck(t *testing.T) {
	s := modeltest.NewServer(modeltest.Anthropic, modeltest.ServerOptions{APIKey: "right"})
	url := s.Start(t)
	names, err := open(t, modeltest.Target{BaseURL: url, APIKey: "right"}).ListModels(t.Context())
	if err != nil || len(names) != 2 {
		t.Errorf("models %v, error %v", names, err)
	}
	if err := open(t, modeltest.Target{BaseURL: url, APIKey: "wrong"}).Check(t.Context()); err == nil ||
		!strings.Contains(err.Error(), "api_key") {
		t.Errorf("wrong key: error %v", err)
	}
}
