package ollama_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/provider/ollama"
	"github.com/toolcrib/toolcrib/provider/wire"
	"github.com/toolcrib/toolcrib/toolcribtest/modeltest"
)

// recorder records requests to /api/chat and answers with one reply; show
// answers /api/show, unless it is "": then there is no such route.
type recorder struct {
	body   []byte
	header http.Header
	url    string
	show   string
	shown  int
}

func (r *recorder) RoundTrip(req *http.Request) (*http.Response, error) {
	body, _ := io.ReadAll(req.Body)
	if err := req.Body.Close(); err != nil {
		return nil, err
	}
	answer := func(status int, text []byte) (*http.Response, error) {
		return &http.Response{
			StatusCode: status, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(text)),
		}, nil
	}
	if strings.HasSuffix(req.URL.Path, "/api/show") {
		r.shown++
		if r.show == "" {
			return answer(http.StatusNotFound, []byte("404 page not found"))
		}
		return answer(http.StatusOK, []byte(r.show))
	}
	r.body, r.header, r.url = body, req.Header.Clone(), req.URL.String()
	return answer(http.StatusOK, modeltest.Ollama.JSON(modeltest.Text("ok")))
}

func (r *recorder) fields(t *testing.T) map[string]json.RawMessage {
	t.Helper()
	var doc map[string]json.RawMessage
	if err := json.Unmarshal(r.body, &doc); err != nil {
		t.Fatalf("%v: %s", err, r.body)
	}
	return doc
}

func send(t *testing.T, o wire.Options, show string, req *toolcrib.Request) (*recorder, toolcrib.Reply) {
	t.Helper()
	r := &recorder{show: show}
	o.Transport = r
	m, err := ollama.New(o)
	if err != nil {
		t.Fatal(err)
	}
	reply, err := modeltest.Collect(t.Context(), m, req)
	if err != nil {
		t.Fatal(err)
	}
	if err := check(r.body); err != nil {
		t.Errorf("%v: %s", err, r.body)
	}
	return r, reply
}

func ptr[T any](v T) *T { return &v }

func notices(r toolcrib.Reply) (codes []string) {
	for _, n := range r.Finish.Notices {
		codes = append(codes, n.Code)
	}
	return codes
}

func TestN5_ConfigurationReachesTheAPI(t *testing.T) {
	req := modeltest.Request("question")
	req.Model, req.System, req.Temperature, req.MaxOutputTokens, req.Reasoning = "qwen3:8b", "You are careful.", ptr(0.25), 99, "high"
	req.Extra = json.RawMessage(`{"num_ctx":16384,"keep_alive":"10m","seed":7}`)
	for base, url := range map[string]string{
		"": "http://localhost:11434/api/chat", "http://box:11434/": "http://box:11434/api/chat",
		"http://box:11434/v1": "http://box:11434/api/chat", "https://gate.example/ollama/api": "https://gate.example/ollama/api/chat",
	} {
		r, _ := send(t, wire.Options{BaseURL: base, APIKey: "key-1"}, "", req)
		if r.url != url {
			t.Errorf("base %q: url %s, want %s", base, r.url, url)
		}
		if r.header.Get("Authorization") != "Bearer key-1" {
			t.Errorf("headers %v", r.header)
		}
		want := `{"model":"qwen3:8b","stream":true,"think":true,"truncate":false,"options":{"temperature":0.25,"num_predict":99,"num_ctx":16384,"seed":7},"keep_alive":"10m",` +
			`"messages":[{"role":"system","content":"You are careful."},{"role":"user","content":"question"}]}`
		if string(r.body) != want {
			t.Errorf("body\n%s\nwant\n%s", r.body, want)
		}
	}
}

func TestN8_NothingOptionalIsSentUnasked(t *testing.T) {
	r, _ := send(t, wire.Options{NoStream: true}, "", modeltest.Request("q"))
	if want := `{"model":"model-a","stream":false,"truncate":false,"messages":[{"role":"user","content":"q"}]}`; string(r.body) != want {
		t.Errorf("body %s, want %s", r.body, want)
	}
	if _, ok := r.header["Authorization"]; ok {
		t.Error("a header for a key that there is not")
	}
	if r.shown != 0 {
		t.Error("the model was looked up for nothing")
	}
}

func TestN14_ToolTurns(t *testing.T) {
	req := modeltest.Request("q")
	req.Tools = []toolcrib.Spec{{Name: "f"}}
	req.Messages = append(req.Messages,
		toolcrib.Message{Role: toolcrib.RoleAssistant, Parts: []toolcrib.Part{
			{Thinking: &toolcrib.Thinking{Text: "hm", Model: "ollama/model-a"}},
			{ToolCall: &toolcrib.ToolCall{ID: "call_0", Name: "f", Arguments: json.RawMessage(`{"a":"é\n"}`)}},
			{ToolCall: &toolcrib.ToolCall{ID: "call_1", Name: "f", Broken: "{nope", Arguments: json.RawMessage(`{}`)}},
		}},
		toolcrib.Message{Role: toolcrib.RoleTool, Parts: []toolcrib.Part{
			{ToolResult: &toolcrib.ToolResult{CallID: "call_0", Name: "f", Content: "one"}},
			{ToolResult: &toolcrib.ToolResult{CallID: "call_1", Name: "f", Content: "two", IsError: true}},
		}})
	r, _ := send(t, wire.Options{}, "", req)
	want := `[{"role":"user","content":"q"},{"role":"assistant","content":"","thinking":"hm","tool_calls":[` +
		`{"function":{"name":"f","arguments":{"a":"é\n"}}},{"function":{"name":"f","arguments":{}}}]},` +
		`{"role":"tool","content":"one","tool_name":"f"},{"role":"tool","content":"two","tool_name":"f"}]`
	if got := string(r.fields(t)["messages"]); got != want {
		t.Errorf("messages\n%s\nwant\n%s", got, want)
	}
	if got, want := string(r.fields(t)["tools"]), `[{"type":"function","function":{"name":"f","description":"","parameters":{"type":"object","properties":{}}}}]`; got != want {
		t.Errorf("tools %s, want %s", got, want)
	}
}

func TestH13_ToolChoice(t *testing.T) {
	tests := map[string]struct {
		tools  string // names in the request
		system string // contained in it
		notice bool
	}{
		"": {tools: "f g"}, "auto": {tools: "f g"}, "none": {}, "required": {tools: "f g", system: "one of the tools"},
		"name": {tools: "g", system: "the tool g"}, "stray": {tools: "f g", notice: true},
	}
	for mode, tt := range tests {
		req := modeltest.Request("q")
		req.Tools, req.ToolsHash = []toolcrib.Spec{{Name: "f"}, {Name: "g"}}, "1"
		req.ToolChoice = toolcrib.ToolChoice{Mode: mode, Name: "g"}
		if mode == "stray" {
			req.ToolChoice = toolcrib.ToolChoice{Mode: "name", Name: "nobody"}
		}
		r, reply := send(t, wire.Options{}, "", req)
		var doc struct {
			Tools []struct {
				Function struct{ Name string }
			}
			Messages []struct{ Role, Content string }
		}
		if err := json.Unmarshal(r.body, &doc); err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, s := range doc.Tools {
			names = append(names, s.Function.Name)
		}
		if got := strings.Join(names, " "); got != tt.tools {
			t.Errorf("mode %q: tools %q, want %q", mode, got, tt.tools)
		}
		if system := doc.Messages[0].Role == "system"; system != (tt.system != "") ||
			!strings.Contains(doc.Messages[0].Content, tt.system) {
			t.Errorf("mode %q: first message %+v", mode, doc.Messages[0])
		}
		if got := len(reply.Finish.Notices) > 0; got != tt.notice {
			t.Errorf("mode %q: notices %v", mode, reply.Finish.Notices)
		}
	}
}

// A choice applies to the first request only: the tools and the system text after
// it are those of a request without one.
func TestH13_ChoiceLeavesNoTrace(t *testing.T) {
	r := &recorder{}
	m, err := ollama.New(ollama.Options{Transport: r})
	if err != nil {
		t.Fatal(err)
	}
	conversation := m.Conversation()
	var bodies []string
	for _, mode := range []string{"auto", "name", "none", "required", "auto"} {
		req := modeltest.Request("q")
		req.System, req.Tools, req.ToolsHash = "Be kind.", []toolcrib.Spec{{Name: "f"}, {Name: "g"}}, "1"
		req.ToolChoice = toolcrib.ToolChoice{Mode: mode, Name: "f"}
		if _, err := modeltest.Collect(t.Context(), conversation, req); err != nil {
			t.Fatal(err)
		}
		bodies = append(bodies, string(r.body))
	}
	if bodies[0] != bodies[4] || bodies[0] == bodies[3] {
		t.Errorf("first and last differ:\n%s\n%s", bodies[0], bodies[4])
	}
}

func TestExtra(t *testing.T) {
	req := modeltest.Request("q")
	req.Temperature, req.MaxOutputTokens, req.Reasoning = ptr(0.5), 10, "high"
	tests := map[string]string{
		`{"options":{"num_ctx":1,"temperature":0.9},"num_ctx":2,"top_k":3}`: `"think":true,"truncate":false,"options":{"num_predict":10,"num_ctx":1,"temperature":0.9,"top_k":3}`,
		`{"think":"max","truncate":false,"shift":false,"options":null}`:     `"options":{"temperature":0.5,"num_predict":10},"think":"max","truncate":false,"shift":false`,
		`{"think":null,"temperature":null,"num_predict":null}`:              `"truncate":false`,
		`{"model":"evil","messages":[],"tools":[{}],"keep_alive":-1}`:       `"think":true,"truncate":false,"options":{"temperature":0.5,"num_predict":10},"keep_alive":-1`,
	}
	for extra, want := range tests {
		req.Extra = json.RawMessage(extra)
		r, _ := send(t, wire.Options{}, "", req)
		want = `{"model":"model-a","stream":true,` + want + `,"messages":[{"role":"user","content":"q"}]}`
		if string(r.body) != want {
			t.Errorf("extra %s: body\n%s\nwant\n%s", extra, r.body, want)
		}
	}
	req.Extra = json.RawMessage(`{"stream":false}`)
	if r, _ := send(t, wire.Options{}, "", req); string(r.fields(t)["stream"]) != "false" {
		t.Errorf("stream: %s", r.body)
	}
	for _, bad := range []string{`[1]`, `{"a":`, `{"options":[]}`} {
		req.Extra = json.RawMessage(bad)
		m, err := ollama.New(ollama.Options{})
		if err != nil {
			t.Fatal(err)
		}
		var e *toolcrib.ModelError
		if _, err := modeltest.Collect(t.Context(), m, req); !errors.As(err, &e) || !e.Unsent ||
			!strings.Contains(err.Error(), "extra") {
			t.Errorf("extra %s: error %v", bad, err)
		}
	}
}

func TestReasoning(t *testing.T) {
	for _, tt := range []struct{ model, reasoning, want string }{
		{"qwen3", "", ""},
		{"qwen3", "low", "true"},
		{"qwen3", "off", "false"},
		{"gpt-oss:20b", "medium", `"medium"`},
		{"user/GPT-OSS", "off", `"low"`},
		{"gpt-oss", "", ""},
	} {
		req := modeltest.Request("q")
		req.Model, req.Reasoning = tt.model, tt.reasoning
		r, _ := send(t, wire.Options{}, "", req)
		if got := string(r.fields(t)["think"]); got != tt.want {
			t.Errorf("%s %s: think %s, want %s", tt.model, tt.reasoning, got, tt.want)
		}
	}
}

func TestOutputSchema(t *testing.T) {
	req := modeltest.Request("q")
	req.OutputSchema = json.RawMessage(`{"type":"object"}`)
	r, _ := send(t, wire.Options{}, "", req)
	if got := string(r.fields(t)["format"]); got != `{"type":"object"}` {
		t.Errorf("format %s", got)
	}
	// With tools, it would keep the model from calling them.
	req.Tools = []toolcrib.Spec{{Name: "f"}}
	r, _ = send(t, wire.Options{}, "", req)
	if _, ok := r.fields(t)["format"]; ok || !strings.Contains(string(r.body), "JSON Schema") {
		t.Errorf("body %s", r.body)
	}
}

func TestToolUnusable(t *testing.T) {
	req := modeltest.Request("q")
	req.Tools = []toolcrib.Spec{
		{Name: "bad", Parameters: json.RawMessage(`"x"`)},
		{Name: "good"},
		{Name: "not good"},
		{Name: "odd", Parameters: json.RawMessage(`{"type":"object","properties":{"x":{"type":"string","required":true}}}`)},
		{Name: "pattern", Parameters: json.RawMessage(`{"type":"object","properties":{"x":{"type":"array","items":{"type":"string","pattern":"\\S"}}}}`)},
	}
	r, reply := send(t, wire.Options{}, "", req)
	tools := string(r.fields(t)["tools"])
	for name, want := range map[string]bool{`"bad"`: false, `"good"`: true, `"not good"`: false, `"odd"`: false, `"name":"pattern"`: true, `\\S`: false} {
		if strings.Contains(tools, name) != want {
			t.Errorf("%s: want %t in %s", name, want, tools)
		}
	}
	if n := reply.Finish.Notices; len(n) != 3 || n[0].Code != "tool_unusable" || !strings.Contains(n[0].Message, "bad") {
		t.Errorf("notices %+v", n)
	}
	req.Tools = req.Tools[:1]
	r, _ = send(t, wire.Options{}, "", req)
	if _, ok := r.fields(t)["tools"]; ok {
		t.Error("N8: an empty list of tools was sent")
	}
}

var png = []byte("\x89PNG\r\n\x1a\n0000")

func files(_ context.Context, ref string) ([]byte, error) {
	switch ref {
	case "png":
		return png, nil
	case "html":
		return []byte("<html>"), nil
	}
	return nil, toolcrib.ErrNotFound
}

func withFiles() *toolcrib.Request {
	file := func(ref, kind string) toolcrib.File {
		return toolcrib.File{Ref: ref, MediaType: kind, Name: ref + ".x"}
	}
	part := func(f toolcrib.File) toolcrib.Part { return toolcrib.Part{File: &f} }
	return &toolcrib.Request{Model: "model-a", Files: files, Messages: []toolcrib.Message{
		{Role: toolcrib.RoleUser, Parts: []toolcrib.Part{{Text: "see"}, part(file("png", "image/png")), part(file("gone", "image/png")), part(file("html", "image/png")), part(file("pdf", "application/pdf"))}},
		{Role: toolcrib.RoleAssistant, Parts: []toolcrib.Part{{ToolCall: &toolcrib.ToolCall{ID: "a", Name: "f"}}, {ToolCall: &toolcrib.ToolCall{ID: "b", Name: "g"}}}},
		{Role: toolcrib.RoleTool, Parts: []toolcrib.Part{{ToolResult: &toolcrib.ToolResult{CallID: "a", Name: "f", Content: "1", Files: []toolcrib.File{file("png", "image/png"), file("gone", "image/jpeg")}}}}},
		{Role: toolcrib.RoleTool, Parts: []toolcrib.Part{{ToolResult: &toolcrib.ToolResult{CallID: "b", Name: "g", Content: "2"}}}},
		toolcrib.TextMessage(toolcrib.RoleUser, "so?"),
	}}
}

func TestFiles(t *testing.T) {
	image := base64.StdEncoding.EncodeToString(png)
	for name, show := range map[string]string{"vision": modeltest.OllamaShow("completion", "vision"), "unknown": "", "old": `{"parameters":""}`} {
		r, reply := send(t, wire.Options{}, show, withFiles())
		want := `[{"role":"user","content":"see[file gone.x, image/png][file html.x, image/png][file pdf.x, application/pdf]","images":["` + image + `"]},` +
			`{"role":"assistant","content":"","tool_calls":[{"function":{"name":"f","arguments":{}}},{"function":{"name":"g","arguments":{}}}]},` +
			`{"role":"tool","content":"1\n[file gone.x, image/jpeg]","tool_name":"f"},{"role":"tool","content":"2","tool_name":"g"},` +
			`{"role":"user","content":"Images from the results of: f","images":["` + image + `"]},{"role":"user","content":"so?"}]`
		if got := string(r.fields(t)["messages"]); got != want {
			t.Errorf("%s: messages\n%s\nwant\n%s", name, got, want)
		}
		if got := strings.Join(notices(reply), " "); got != "file_not_sent file_not_sent file_not_sent file_not_sent" {
			t.Errorf("%s: notices %v", name, reply.Finish.Notices)
		}
		if r.shown != 1 {
			t.Errorf("%s: %d look-ups of the model", name, r.shown)
		}
	}
}

func TestFiles_NotForThisModel(t *testing.T) {
	blind := withFiles()
	none := withFiles()
	none.Files = nil
	for name, req := range map[string]*toolcrib.Request{"no vision": blind, "no files": none} {
		r, reply := send(t, wire.Options{}, modeltest.OllamaShow("completion", "tools"), req)
		if strings.Contains(string(r.body), `"images"`) || len(reply.Finish.Notices) != 6 {
			t.Errorf("%s: notices %v, body %s", name, notices(reply), r.body)
		}
	}
}
