package llamacpp_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/provider/llamacpp"
	"github.com/toolcrib/toolcrib/toolcribtest/modeltest"
)

// recorder records chat requests and answers with one reply; props
// answers /props, unless it is "": then there is no such route.
type recorder struct {
	body  []byte
	urls  []string
	props string
}

func (r *recorder) RoundTrip(req *http.Request) (*http.Response, error) {
	r.urls = append(r.urls, req.URL.String())
	answer := func(status int, text []byte) (*http.Response, error) {
		return &http.Response{
			StatusCode: status, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(text)),
		}, nil
	}
	if req.Method == http.MethodGet {
		if r.props == "" {
			return answer(http.StatusNotFound, []byte(`{"error":{"code":404,"message":"File Not Found","type":"not_found_error"}}`))
		}
		return answer(http.StatusOK, []byte(r.props))
	}
	r.body, _ = io.ReadAll(req.Body)
	if err := req.Body.Close(); err != nil {
		return nil, err
	}
	return answer(http.StatusOK, modeltest.LlamaCpp.JSON(modeltest.Text("ok")))
}

func send(t *testing.T, base string, props string, req *toolcrib.Request) *recorder {
	t.Helper()
	r := &recorder{props: props}
	m, err := llamacpp.New(llamacpp.Options{BaseURL: base, Transport: r})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := modeltest.Collect(t.Context(), m, req); err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *recorder) fields(t *testing.T) map[string]json.RawMessage {
	t.Helper()
	var doc map[string]json.RawMessage
	if err := json.Unmarshal(r.body, &doc); err != nil {
		t.Fatalf("%v: %s", err, r.body)
	}
	return doc
}

func withTools() *toolcrib.Request {
	req := modeltest.Request("q")
	req.Tools = []toolcrib.Spec{{Name: "f"}, {Name: "g", Parameters: json.RawMessage(`{"type":"object","properties":{"x":{"type":"string","pattern":"\\S","maxLength":65536}}}`)}}
	return req
}

// A model file may have any name; the server supports one name of the bound.
func TestMaxTokens(t *testing.T) {
	for _, name := range []string{"qwen3", "o3", "gpt-5-mini", "openai/gpt-oss"} {
		req := modeltest.Request("q")
		req.Model, req.MaxOutputTokens = name, 10
		fields := send(t, "", "", req).fields(t)
		if string(fields["max_tokens"]) != "10" || fields["max_completion_tokens"] != nil {
			t.Errorf("%s: %s", name, fields)
		}
	}
}

func TestWhereItIs(t *testing.T) {
	for base, want := range map[string]string{
		"":                                  "http://localhost:8080/props http://localhost:8080/v1/chat/completions",
		"http://box:8080":                   "http://box:8080/props http://box:8080/v1/chat/completions",
		"http://box:8080/v1/":               "http://box:8080/props http://box:8080/v1/chat/completions",
		"https://gate.example/llama":        "https://gate.example/llama/props https://gate.example/llama/chat/completions",
		"https://gate.example/llama/api/v1": "https://gate.example/llama/api/props https://gate.example/llama/api/v1/chat/completions",
	} {
		r := send(t, base, modeltest.LlamaCppProps(true), withTools())
		if got := strings.Join(r.urls, " "); got != want {
			t.Errorf("base %q: %s, want %s", base, got, want)
		}
	}
	if r := send(t, "", "", modeltest.Request("q")); len(r.urls) != 1 {
		t.Errorf("without tools: %v", r.urls)
	}
}

func TestGrammarCanBeMade(t *testing.T) {
	req := withTools()
	r := send(t, "", "", req)
	if err := check(r.body); err != nil {
		t.Error(err)
	}
	tools := string(r.fields(t)["tools"])
	if strings.Contains(tools, "pattern") || strings.Contains(tools, "maxLength") || !strings.Contains(tools, `"x"`) {
		t.Errorf("tools %s", tools)
	}
	if !strings.Contains(string(req.Tools[1].Parameters), "pattern") {
		t.Error("the request was changed")
	}
	if got := string(r.fields(t)["parallel_tool_calls"]); got != "true" {
		t.Errorf("parallel_tool_calls %q", got)
	}
	req.Extra = json.RawMessage(`{"parallel_tool_calls":false,"top_k":3}`)
	if f := send(t, "", "", req).fields(t); string(f["parallel_tool_calls"]) != "false" || string(f["top_k"]) != "3" {
		t.Errorf("fields %s", f)
	}
}

func TestH13_NamedTool(t *testing.T) {
	req := withTools()
	req.ToolChoice = toolcrib.ToolChoice{Mode: toolcrib.ChoiceName, Name: "g"}
	f := send(t, "", "", req).fields(t)
	if strings.Contains(string(f["tools"]), `"f"`) || !strings.Contains(string(f["tools"]), `"g"`) ||
		string(f["tool_choice"]) != `"required"` {
		t.Errorf("tools %s, choice %s", f["tools"], f["tool_choice"])
	}
}

// After the request with the tool choice, the conversation has all
// its tools again.
func TestH13_ChoiceLeavesNoTrace(t *testing.T) {
	r := &recorder{}
	m, err := llamacpp.New(llamacpp.Options{Transport: r})
	if err != nil {
		t.Fatal(err)
	}
	conversation := m.Conversation()
	var bodies []string
	for _, mode := range []string{"", "name", ""} {
		req := withTools()
		req.ToolsHash, req.ToolChoice = "1", toolcrib.ToolChoice{Mode: mode, Name: "f"}
		if _, err := modeltest.Collect(t.Context(), conversation, req); err != nil {
			t.Fatal(err)
		}
		bodies = append(bodies, string(r.body))
	}
	if bodies[0] != bodies[2] || bodies[0] == bodies[1] {
		t.Errorf("first and last differ:\n%s\n%s", bodies[0], bodies[2])
	}
}

func TestReasoning(t *testing.T) {
	for level, want := range map[string][2]string{
		"":     {"", ""},
		"off":  {`"none"`, `{"enable_thinking":false}`},
		"high": {`"high"`, `{"enable_thinking":true,"reasoning_effort":"high"}`},
	} {
		req := modeltest.Request("q")
		req.Reasoning = level
		f := send(t, "", "", req).fields(t)
		if got := [2]string{string(f["reasoning_effort"]), string(f["chat_template_kwargs"])}; got != want {
			t.Errorf("%q: %s, want %s", level, got, want)
		}
		req.Extra = json.RawMessage(` {"chat_template_kwargs": {"a":1}} `)
		if got := string(send(t, "", "", req).fields(t)["chat_template_kwargs"]); got != `{"a":1}` {
			t.Errorf("%q: chat_template_kwargs %s", level, got)
		}
	}
}

func TestOutputSchema(t *testing.T) {
	req := withTools()
	req.System, req.OutputSchema = "Be kind.", json.RawMessage(`{"type":"object","properties":{"a":{"type":"string","pattern":"x"}}}`)
	r := send(t, "", "", req)
	if _, ok := r.fields(t)["response_format"]; ok || !strings.Contains(string(r.body), `Be kind.\n\n`) ||
		!strings.Contains(string(r.body), "JSON Schema") {
		t.Errorf("beside tools: %s", r.body)
	}
	req.Tools = nil
	if f := send(t, "", "", req).fields(t); !strings.Contains(string(f["response_format"]), `"json_schema"`) ||
		strings.Contains(string(f["response_format"]), "pattern") {
		t.Errorf("response_format %s", f["response_format"])
	}
}

func TestExtra_Errors(t *testing.T) {
	for _, bad := range []string{`[1]`, `{"a":`, `"x"`} {
		req := withTools()
		req.Extra = json.RawMessage(bad)
		m, err := llamacpp.New(llamacpp.Options{Transport: &recorder{}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := modeltest.Collect(t.Context(), m, req); err == nil || !strings.Contains(err.Error(), "extra") {
			t.Errorf("extra %s: error %v", bad, err)
		}
	}
}

func TestTemplateWithoutTools(t *testing.T) {
	r := &recorder{props: modeltest.LlamaCppProps(false)}
	model := open(t, modeltest.Target{Transport: r})
	var e *toolcrib.ModelError
	if _, err := modeltest.Collect(t.Context(), model, withTools()); !errors.As(err, &e) || !e.NoTools || !e.Unsent ||
		r.body != nil {
		t.Errorf("error %v", err)
	}
	if _, err := modeltest.Collect(t.Context(), model, modeltest.Request("q")); err != nil {
		t.Errorf("without tools: %v", err)
	}
}

func TestErrors(t *testing.T) {
	tests := []struct {
		name, body string
		status     int
		class      toolcrib.ErrorClass
		noTools    bool
		says       string
	}{
		{"jinja", `{"error":{"code":500,"message":"tools param requires --jinja flag","type":"server_error"}}`, 500, toolcrib.ErrBadRequest, true, "--jinja"},
		{"old", `{"error":{"code":500,"message":"Unsupported param: tools","type":"server_error"}}`, 500, toolcrib.ErrBadRequest, true, "Unsupported param"},
		{"old stream", `{"error":{"code":500,"message":"Cannot use tools with stream","type":"server_error"}}`, 500, toolcrib.ErrBadRequest, true, "newer version"},
		{"schema", `{"error":{"code":400,"message":"Unable to generate parser for this template. Automatic parser generation failed: JSON schema conversion failed","type":"invalid_request_error"}}`, 400, toolcrib.ErrBadRequest, true, "schemas"},
		{"grammar", `{"error":{"code":400,"message":"Failed to initialize samplers: failed to parse grammar","type":"invalid_request_error"}}`, 400, toolcrib.ErrBadRequest, true, "grammar"},
		{"context", `{"error":{"code":400,"message":"the request exceeds the available context size","type":"exceed_context_size_error","n_prompt_tokens":9412,"n_ctx":8192}}`, 400, toolcrib.ErrContextLength, false, "9412 tokens of 8192"},
		{"loading", `{"error":{"code":503,"message":"Loading model","type":"unavailable_error"}}`, 503, toolcrib.ErrOverloaded, false, "still loading"},
		{"key", `{"error":{"code":401,"message":"Invalid API Key","type":"authentication_error"}}`, 401, toolcrib.ErrAuth, false, "api_key"},
		{"crash", `{"error":{"code":500,"message":"decode failed","type":"server_error"}}`, 500, toolcrib.ErrOverloaded, false, "decode"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "application/json; charset=utf-8")
				w.WriteHeader(tt.status)
				_, _ = io.WriteString(w, tt.body)
			}))
			t.Cleanup(s.Close)
			_, err := modeltest.Collect(t.Context(), open(t, modeltest.Target{BaseURL: s.URL}), withTools())
			var e *toolcrib.ModelError
			if !errors.As(err, &e) {
				t.Fatal(err)
			}
			if e.Class != tt.class || e.NoTools != tt.noTools || !strings.Contains(e.Message, tt.says) || len(e.Message) > 500 ||
				e.Status != tt.status {
				t.Errorf("class %s, no tools %t, status %d: %s", e.Class, e.NoTools, e.Status, e.Message)
			}
		})
	}
}

func TestCheck(t *testing.T) {
	server := modeltest.NewServer(modeltest.LlamaCpp, modeltest.ServerOptions{APIKey: "right"})
	url := server.Start(t)
	m := open(t, modeltest.Target{BaseURL: url, APIKey: "right"})
	if err := m.Check(t.Context()); err != nil {
		t.Error(err)
	}
	names, err := m.ListModels(t.Context())
	if err != nil || len(names) != 2 {
		t.Errorf("models %v, error %v", names, err)
	}
	if err := open(t, modeltest.Target{BaseURL: url, APIKey: "wrong"}).Check(t.Context()); err == nil ||
		!strings.Contains(err.Error(), "api_key") {
		t.Errorf("wrong key: error %v", err)
	}
	loading := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/health" {
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = io.WriteString(w, `{"error":{"code":503,"message":"Loading model","type":"unavailable_error"}}`)
			return
		}
		_, _ = io.WriteString(w, `{"data":[]}`)
	}))
	url = loading.URL
	if err := open(t, modeltest.Target{BaseURL: url}).Check(t.Context()); err == nil ||
		!strings.Contains(err.Error(), "still loading") {
		t.Errorf("loading: error %v", err)
	}
	loading.Close()
	if err := open(t, modeltest.Target{BaseURL: url}).Check(t.Context()); err == nil ||
		!strings.Contains(err.Error(), "is llama-server running?") {
		t.Errorf("not there: error %v", err)
	}
}
