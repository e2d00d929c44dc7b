package openai_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/provider/openai"
	"github.com/toolcrib/toolcrib/provider/wire"
	"github.com/toolcrib/toolcrib/toolcribtest/modeltest"
)

// either answers with the API of the request.
type either struct {
	recorder
	bodies [][]byte
}

func (e *either) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := e.recorder.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	e.bodies = append(e.bodies, e.body)
	if strings.HasSuffix(req.URL.Path, "/responses") {
		resp.Body = io.NopCloser(bytes.NewReader(modeltest.Responses.JSON(modeltest.Text("ok"))))
	}
	return resp, nil
}

// ask sends a request and returns the recorded one.
func ask(t *testing.T, o openai.Options, req *toolcrib.Request) (*either, toolcrib.Reply) {
	t.Helper()
	r := &either{}
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

func openResponses(t *testing.T, target modeltest.Target) *openai.Model {
	t.Helper()
	target.Proxy = wire.ProxyNone
	target.API = openai.APIResponses
	m, err := openai.New(target)
	return modeltest.Opened(t, m, err)
}

func TestResponses_HTTP(t *testing.T) {
	modeltest.RunHTTP(t, modeltest.HTTPSubject{Dialect: modeltest.Responses, Refuses: refusesResponses, New: func(t *testing.T, target modeltest.Target) toolcrib.Model {
		return openResponses(t, target)
	}})
}

func TestResponses_ChosenByName(t *testing.T) {
	const (
		vendor = "https://api.openai.com/v1"
		azure  = "https://team.openai.azure.com/openai/v1"
	)
	tests := []struct {
		host, model, api string
		want             bool
	}{
		{vendor, "gpt-5-codex", "", true},
		{vendor, "gpt-5.1-codex-mini", "", true},
		{vendor, "gpt-5.1-codex-max", "", true},
		{vendor, "codex-mini-latest", "", true},
		{vendor, "o1-pro", "", true},
		{vendor, "o1-pro-2025-03-19", "", true},
		{vendor, "o3-pro", "", true},
		{vendor, "gpt-5-pro-2025-10-06", "", true},
		{vendor, "gpt-5.2-pro", "", true},
		{vendor, "o3-deep-research", "", true},
		{vendor, "o4-mini-deep-research-2025-06-26", "", true},
		{vendor, "gpt-5.4", "", true},
		{vendor, "gpt-5.6-terra", "", true},
		{vendor, "gpt-6", "", true},
		{vendor, "gpt-5", "", false},
		{vendor, "gpt-5.3", "", false},
		{vendor, "gpt-5-mini", "", false},
		{vendor, "gpt-5.4-chat-latest", "", false},
		{vendor, "o3", "", false},
		{vendor, "gpt-4.1", "", false},
		{vendor, "gpt-4.1", openai.APIResponses, true},
		{vendor, "gpt-5-codex", openai.APIChat, false},
		{azure, "gpt-5-codex", "", true},
		{azure, "gpt-4.1", "", false},
		{azure + "/?api-version=preview", "o3-pro", "", true},
		{"https://team.openai.azure.com/openai/deployments/x?api-version=2024-10-21", "gpt-5-codex", "", false},
		{"https://openrouter.ai/api/v1", "openai/gpt-5-codex", "", false},
		{"http://localhost:1234/v1", "gpt-5-codex", "", false},
		{"http://localhost:1234/v1", "qwen3", openai.APIResponses, true},
	}
	for _, tt := range tests {
		req := modeltest.Request("q")
		req.Model = tt.model
		r, reply := ask(t, openai.Options{API: tt.api, BaseURL: tt.host}, req)
		if got := strings.Contains(r.url, "/responses"); got != tt.want || reply.Message.Text() != "ok" {
			t.Errorf("%s at %s, api %q: asked %s", tt.model, tt.host, tt.api, r.url)
		}
	}
	if _, err := openai.New(openai.Options{API: "completions"}); err == nil || !strings.Contains(err.Error(), "api") {
		t.Errorf("a wrong API: error %v", err)
	}
}

func TestResponses_Request(t *testing.T) {
	req := modeltest.Request("question")
	req.Model, req.System, req.Temperature, req.MaxOutputTokens, req.Reasoning = "gpt-5.1-codex", "Be careful.", ptr(0.5), 5, "high"
	req.Tools = []toolcrib.Spec{{Name: "f", Description: "does"}}
	req.ToolChoice = toolcrib.ToolChoice{Mode: "name", Name: "f"}
	r, reply := ask(t, openai.Options{APIKey: "key-1"}, req)
	want := `{"model":"gpt-5.1-codex","stream":true,"store":false,"include":["reasoning.encrypted_content"],"instructions":"Be careful.",` +
		`"reasoning":{"effort":"high"},"max_output_tokens":16,"tool_choice":{"type":"function","name":"f"},` +
		`"tools":[{"type":"function","strict":false,"name":"f","description":"does","parameters":{"type":"object","properties":{}}}],` +
		`"input":[{"type":"message","role":"user","content":[{"type":"input_text","text":"question"}]}]}`
	if string(r.body) != want {
		t.Errorf("body\n%s\nwant\n%s", r.body, want)
	}
	if r.url != "https://api.openai.com/v1/responses" || r.header.Get("Authorization") != "Bearer key-1" {
		t.Errorf("url %s, headers %v", r.url, r.header)
	}
	if n := reply.Finish.Notices; len(n) != 1 || !strings.Contains(n[0].Message, "temperature") {
		t.Errorf("notices %v", n)
	}
}

func TestResponses_NothingOptionalIsSentUnasked(t *testing.T) {
	r, _ := ask(t, openai.Options{API: openai.APIResponses, NoStream: true}, modeltest.Request("q"))
	if want := `{"model":"model-a","store":false,"input":[{"type":"message","role":"user","content":[{"type":"input_text","text":"q"}]}]}`; string(r.body) != want {
		t.Errorf("body %s, want %s", r.body, want)
	}
}

func TestResponses_Effort(t *testing.T) {
	tests := []struct{ model, level, want string }{
		{"gpt-5-pro", "low", "high"},
		{"gpt-5.2-pro", "low", "medium"},
		{"gpt-5.2-pro", "high", "high"},
		{"gpt-5-codex", "off", "low"},
		{"gpt-5.1-codex", "off", "low"},
		{"o3-pro", "off", "low"},
		{"gpt-5.4", "off", "none"},
		{"gpt-5.4", "medium", "medium"},
		{"gpt-5.6-terra", "", ""},
	}
	for _, tt := range tests {
		req := modeltest.Request("q")
		req.Model, req.Reasoning = tt.model, tt.level
		r, reply := ask(t, openai.Options{}, req)
		want := ""
		if tt.want != "" {
			want = `{"effort":"` + tt.want + `"}`
		}
		if got := string(r.fields(t)["reasoning"]); got != want {
			t.Errorf("%s %q: reasoning %s, want %s", tt.model, tt.level, got, want)
		}
		changed := tt.want != tt.level && tt.want != "none"
		if (len(reply.Finish.Notices) > 0) != changed {
			t.Errorf("%s %q: notices %v", tt.model, tt.level, reply.Finish.Notices)
		}
	}
}

const (
	sealedItem = `{"type":"reasoning","id":"rs_1","summary":[{"type": "summary_text","text":"hm"}],"encrypted_content":"gAAA="}`
	bareItem   = `{"type":"reasoning","id":"rs_2","summary":[],"encrypted_content":"gBBB="}`
)

func TestResponses_N12_ToolTurns(t *testing.T) {
	req := modeltest.Request("q")
	req.Model, req.Tools = "gpt-5-codex", []toolcrib.Spec{{Name: "f"}}
	own := "openai/gpt-5-codex"
	req.Messages = append(req.Messages,
		toolcrib.Message{Role: toolcrib.RoleAssistant, Parts: []toolcrib.Part{
			{Thinking: &toolcrib.Thinking{Text: "hm", Signature: sealedItem, Model: own}},
			{Text: "I "},
			{Text: "look."},
			{Thinking: &toolcrib.Thinking{Redacted: bareItem, Model: own}},
			{ToolCall: &toolcrib.ToolCall{ID: "c1", Name: "f", Arguments: json.RawMessage(`{"a":"é"}`)}},
			{ToolCall: &toolcrib.ToolCall{ID: "c2", Name: "f", Broken: "{nope", Arguments: json.RawMessage(`{}`)}},
			{Thinking: &toolcrib.Thinking{Redacted: strings.ReplaceAll(bareItem, "rs_2", "rs_3"), Model: own}}, // without a text or call after it
		}},
		toolcrib.Message{Role: toolcrib.RoleTool, Parts: []toolcrib.Part{
			{ToolResult: &toolcrib.ToolResult{CallID: "c1", Name: "f", Content: "one"}},
			{ToolResult: &toolcrib.ToolResult{CallID: "c2", Name: "f", Content: "two", IsError: true}},
		}},
		toolcrib.Message{Role: toolcrib.RoleAssistant, Parts: []toolcrib.Part{
			{Thinking: &toolcrib.Thinking{Text: "not mine", Signature: "sig==", Model: own}},
			{Thinking: &toolcrib.Thinking{Text: "hm", Signature: sealedItem, Model: "openai/o3-pro"}},
			{Text: "done"},
		}},
		toolcrib.TextMessage(toolcrib.RoleUser, "more"))
	r, _ := ask(t, openai.Options{}, req)
	want := `[{"type":"message","role":"user","content":[{"type":"input_text","text":"q"}]},` + sealedItem +
		`,{"type":"message","role":"assistant","content":"I look."},` + bareItem +
		`,{"type":"function_call","call_id":"c1","name":"f","arguments":"{\"a\":\"é\"}"},{"type":"function_call","call_id":"c2","name":"f","arguments":"{}"},` +
		`{"type":"function_call_output","call_id":"c1","output":"one"},{"type":"function_call_output","call_id":"c2","output":"two"},` +
		`{"type":"message","role":"assistant","content":"done"},{"type":"message","role":"user","content":[{"type":"input_text","text":"more"}]}]`
	if got := string(r.fields(t)["input"]); got != want {
		t.Errorf("input\n%s\nwant\n%s", got, want)
	}
	if err := modeltest.Responses.Check(r.body); err != nil {
		t.Error(err)
	}
}

// Reasoning is sent back byte for byte, before the calls that
// it led to.
func TestResponses_ReasoningComesBack(t *testing.T) {
	for _, thinking := range []string{"let me see", ""} {
		reply := modeltest.Calls(toolcrib.ToolCall{ID: "call_a", Name: "f", Arguments: json.RawMessage(`{}`)})
		reply.Message.Parts = append([]toolcrib.Part{{Thinking: &toolcrib.Thinking{Text: thinking}}}, reply.Message.Parts...)
		server := modeltest.NewServer(modeltest.Responses, modeltest.ServerOptions{Refuses: refusesResponses, Steps: modeltest.Steps(reply, modeltest.Text("done"))})
		model := openResponses(t, modeltest.Target{BaseURL: server.Start(t)}).Conversation()
		req := modeltest.Request("hi")
		req.Tools, req.ToolsHash = []toolcrib.Spec{{Name: "f"}}, "1"
		first, err := modeltest.Collect(t.Context(), model, req)
		if err != nil {
			t.Fatal(err)
		}
		req.Messages = append(req.Messages, first.Message, toolcrib.Message{
			Role:  toolcrib.RoleTool,
			Parts: []toolcrib.Part{{ToolResult: &toolcrib.ToolResult{CallID: "call_a", Name: "f", Content: "ok"}}},
		})
		if _, err := modeltest.Collect(t.Context(), model, req); err != nil {
			t.Fatal(err)
		}
		summary := `[{"text":"` + thinking + `","type":"summary_text"}]`
		if thinking == "" {
			summary = `[]`
		}
		want := `{"type":"reasoning","id":"rs_0_test","summary":` + summary + `,"encrypted_content":"sealed-0_test"},{"type":"function_call"`
		if got := string(server.Requests()[1]); !strings.Contains(got, want) {
			t.Errorf("thinking %q: sent %s\nwithout %s", thinking, got, want)
		}
	}
}

func TestResponses_Phases(t *testing.T) {
	req := modeltest.Request("q")
	req.Messages = append(req.Messages,
		toolcrib.Message{Role: toolcrib.RoleAssistant, Parts: []toolcrib.Part{{Text: "on it"}, {ToolCall: &toolcrib.ToolCall{ID: "c", Name: "f"}}}},
		toolcrib.Message{Role: toolcrib.RoleTool, Parts: []toolcrib.Part{{ToolResult: &toolcrib.ToolResult{CallID: "c", Name: "f", Content: "x"}}}},
		toolcrib.TextMessage(toolcrib.RoleAssistant, "done"), toolcrib.TextMessage(toolcrib.RoleUser, "more"))
	for model, want := range map[string]bool{"gpt-5.4": true, "gpt-5.3-codex": true, "gpt-5.2-codex": false} {
		req.Model = model
		r, _ := ask(t, openai.Options{}, req)
		body := string(r.body)
		if got := strings.Contains(body, `"phase":"commentary","content":"on it"`) && strings.Contains(body, `"phase":"final_answer","content":"done"`); got != want || strings.Contains(body, "phase") != want {
			t.Errorf("%s: %s", model, body)
		}
	}
}

func TestResponses_Files(t *testing.T) {
	req := withFiles()
	req.Model = "gpt-5-codex"
	r, reply := ask(t, openai.Options{}, req)
	want := `[{"type":"message","role":"user","content":[{"type":"input_text","text":"see"},` +
		`{"type":"input_image","detail":"auto","image_url":"data:image/png;base64,` + pixel64 + `"},{"type":"input_text","text":"and[file sheet.xls, application/vnd.ms-excel]"},` +
		`{"type":"input_file","filename":"a.pdf","file_data":"data:application/pdf;base64,JVBERi0xLjcK"}]},` +
		`{"type":"function_call","call_id":"c1","name":"f","arguments":"{}"},` +
		`{"type":"function_call_output","call_id":"c1","output":[{"type":"input_text","text":"shot\n[file gone.png, image/png]"},` +
		`{"type":"input_image","detail":"auto","image_url":"data:image/png;base64,` + pixel64 + `"}]}]`
	if got := string(r.fields(t)["input"]); got != want {
		t.Errorf("input\n%s\nwant\n%s", got, want)
	}
	if n := reply.Finish.Notices; len(n) != 2 || n[0].Code != toolcrib.NoticeFileNotSent ||
		n[1].Code != toolcrib.NoticeFileNotSent {
		t.Errorf("notices %v", n)
	}
	if err := modeltest.Responses.Check(r.body); err != nil {
		t.Error(err)
	}
}

func TestResponses_OutputSchema(t *testing.T) {
	req := modeltest.Request("q")
	req.Model, req.System, req.Tools = "gpt-5-codex", "s", []toolcrib.Spec{{Name: "f"}}
	for schema, want := range map[string]string{
		`{"type":"object"}`: `{"format":{"type":"json_schema","name":"answer","strict":false,"schema":{"type":"object"}}}`,
		`{"type":"object","properties":{"a":{"type":"string"}},"required":["a"],"additionalProperties":false}`: `{"format":{"type":"json_schema","name":"answer","strict":true,` +
			`"schema":{"type":"object","properties":{"a":{"type":"string"}},"required":["a"],"additionalProperties":false}}}`,
	} {
		req.OutputSchema = json.RawMessage(schema)
		r, _ := ask(t, openai.Options{}, req)
		if got := string(r.fields(t)["text"]); got != want || string(r.fields(t)["instructions"]) != `"s"` {
			t.Errorf("text %s, want %s", got, want)
		}
	}
	req.OutputSchema = json.RawMessage(`{"type":"array"}`)
	r, _ := ask(t, openai.Options{}, req)
	if _, ok := r.fields(t)["text"]; ok || !strings.Contains(string(r.fields(t)["instructions"]), "JSON Schema") {
		t.Errorf("a schema that is no object's: %s", r.body)
	}
}

// The history is encoded again if the next request uses the other API.
func TestResponses_ModelChanges(t *testing.T) {
	r := &either{}
	m, err := openai.New(openai.Options{Transport: r})
	if err != nil {
		t.Fatal(err)
	}
	conversation := m.Conversation()
	req := modeltest.Request("q")
	req.Tools, req.ToolsHash = []toolcrib.Spec{{Name: "f"}}, "1"
	for _, model := range []string{"gpt-4.1", "gpt-5-codex", "gpt-4.1"} {
		req.Model = model
		if _, err := modeltest.Collect(t.Context(), conversation, req); err != nil {
			t.Fatal(err)
		}
	}
	if err := modeltest.Responses.Check(r.bodies[1]); err != nil {
		t.Error(err)
	}
	if err := modeltest.OpenAI.Check(r.bodies[2]); err != nil || !bytes.Equal(r.bodies[0], r.bodies[2]) {
		t.Errorf("%v\n%s\n%s", err, r.bodies[0], r.bodies[2])
	}
}

// While the API only reports progress, the timeout of the
// first piece applies and not the one between pieces.
func TestResponses_ThinkingIsNoPause(t *testing.T) {
	begun := []string{
		`{"type":"response.created","response":{"object":"response","status":"in_progress","output":[]}}`,
		`{"type":"response.in_progress","response":{"object":"response","status":"in_progress","output":[]}}`,
		`{"type":"response.output_item.added","output_index":0,"item":{"id":"rs_1","type":"reasoning","summary":[]}}`,
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		for _, data := range begun {
			_, _ = io.WriteString(w, "data: "+data+"\n\n")
		}
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}))
	t.Cleanup(server.Close)
	model := openResponses(t, modeltest.Target{BaseURL: server.URL, IdleTimeout: time.Nanosecond, FirstTokenTimeout: 200 * time.Millisecond})
	_, err := modeltest.Collect(t.Context(), model, modeltest.Request("hi"))
	if err == nil || !strings.Contains(err.Error(), "first_token_timeout") {
		t.Errorf("error %v", err)
	}
}
