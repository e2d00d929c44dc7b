package gemini_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/provider/gemini"
	"github.com/toolcrib/toolcrib/toolcribtest/modeltest"
)

// recorder records requests and answers with reply, or with a fixed text.
type recorder struct {
	reply  []byte
	status int
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
	reply, status := r.reply, r.status
	if reply == nil {
		reply = modeltest.Gemini.JSON(modeltest.Text("ok"))
	}
	if status == 0 {
		status = 200
	}
	return &http.Response{
		StatusCode: status, Header: http.Header{"Content-Type": {"application/json"}},
		Body: io.NopCloser(bytes.NewReader(reply)),
	}, nil
}

func (r *recorder) fields(t *testing.T) map[string]json.RawMessage {
	t.Helper()
	return object(t, r.body)
}

func object(t *testing.T, raw []byte) map[string]json.RawMessage {
	t.Helper()
	var doc map[string]json.RawMessage
	if err := json.Unmarshal(raw, &doc); err != nil {
		t.Fatalf("%v: %s", err, raw)
	}
	return doc
}

func send(t *testing.T, o gemini.Options, req *toolcrib.Request) (*recorder, toolcrib.Reply) {
	t.Helper()
	r := &recorder{}
	o.Transport = r
	m, err := gemini.New(o)
	if err != nil {
		t.Fatal(err)
	}
	reply, err := modeltest.Collect(t.Context(), m, req)
	if err != nil {
		t.Fatal(err)
	}
	if err := check(req.Model, r.body); err != nil && len(req.Extra) == 0 {
		t.Errorf("the API would refuse this: %v\n%s", err, r.body)
	}
	return r, reply
}

func ptr[T any](v T) *T { return &v }

func codes(r toolcrib.Reply) (list []string) {
	for _, n := range r.Finish.Notices {
		list = append(list, n.Code)
	}
	return list
}

func TestN5_ConfigurationReachesTheAPI(t *testing.T) {
	req := modeltest.Request("question")
	req.Model, req.System, req.Temperature, req.MaxOutputTokens = "gemini-2.5-flash", "You are careful.", ptr(0.25), 99
	r, reply := send(t, gemini.Options{APIKey: "key-1", Headers: map[string]string{"x-team": "blue"}}, req)
	if want := "https://generativelanguage.googleapis.com/v1beta/models/gemini-2.5-flash:streamGenerateContent?alt=sse"; r.url != want {
		t.Errorf("url %s, want %s", r.url, want)
	}
	if r.header.Get("X-Goog-Api-Key") != "key-1" || r.header.Get("X-Team") != "blue" ||
		r.header.Get("Authorization") != "" {
		t.Errorf("headers %v", r.header)
	}
	want := `{"generationConfig":{"temperature":0.25,"maxOutputTokens":99},"systemInstruction":{"parts":[{"text":"You are careful."}]},` +
		`"contents":[{"role":"user","parts":[{"text":"question"}]}]}`
	if string(r.body) != want {
		t.Errorf("body\n%s\nwant\n%s", r.body, want)
	}
	if reply.Finish.RequestID != "resp_test" || reply.Finish.Model != "model-a" {
		t.Errorf("request ID %q, model %q", reply.Finish.RequestID, reply.Finish.Model)
	}
	for base, want := range map[string]string{
		"https://x.example":              "https://x.example/v1beta/models/m:generateContent",
		"https://x.example/":             "https://x.example/v1beta/models/m:generateContent",
		"https://x.example/v1":           "https://x.example/v1/models/m:generateContent",
		"https://x.example/g/v1beta/":    "https://x.example/g/v1beta/models/m:generateContent",
		"https://x.example/v1alpha?k=v1": "https://x.example/v1alpha/models/m:generateContent?k=v1",
	} {
		req.Model = "m"
		if r, _ := send(t, gemini.Options{BaseURL: base, NoStream: true}, req); r.url != want {
			t.Errorf("%s: url %s", base, r.url)
		}
	}
}

func TestModelNames(t *testing.T) {
	m, err := gemini.New(gemini.Options{Transport: &recorder{}})
	if err != nil {
		t.Fatal(err)
	}
	for model, ok := range map[string]bool{
		"gemini-3-pro": true, "models/gemini-3-pro": true, "tunedModels/mine-1": true, "google/gemini-3": true,
		"": false, "../x": false, "a/../b": false, "a?key=1": false, "a b": false, "a#b": false, "a%2f": false, "/a": false, "a/": false,
	} {
		req := modeltest.Request("q")
		req.Model = model
		if _, err := modeltest.Collect(t.Context(), m, req); (err == nil) != ok {
			t.Errorf("%q: error %v", model, err)
		}
	}
}

func TestN8_NothingOptionalIsSentUnasked(t *testing.T) {
	r, _ := send(t, gemini.Options{}, modeltest.Request("q"))
	if want := `{"contents":[{"role":"user","parts":[{"text":"q"}]}]}`; string(r.body) != want {
		t.Errorf("body %s, want %s", r.body, want)
	}
	if _, ok := r.header["X-Goog-Api-Key"]; ok {
		t.Error("a header for a key that there is not")
	}
}

func TestN12_ToolTurns(t *testing.T) {
	req := modeltest.Request("q")
	req.Tools = []toolcrib.Spec{{Name: "f"}, {Name: "g"}}
	req.Messages = append(
		req.Messages,
		toolcrib.Message{Role: toolcrib.RoleAssistant, Parts: []toolcrib.Part{
			{Thinking: &toolcrib.Thinking{Text: "a summary"}},
			{Text: "\n"},
			{ToolCall: &toolcrib.ToolCall{ID: "given", Name: "f", Arguments: json.RawMessage(`{"a":1}`)}},
			{ToolCall: &toolcrib.ToolCall{ID: "call_7", Name: "g"}},
			{ToolCall: &toolcrib.ToolCall{ID: "call_8", ProviderID: "given", Name: toolcrib.InvalidName, Broken: "{nope", Arguments: json.RawMessage(`{}`)}},
		}},
		toolcrib.Message{Role: toolcrib.RoleTool, Parts: []toolcrib.Part{{ToolResult: &toolcrib.ToolResult{CallID: "given", Name: "f", Content: `{"b":[1,2]}`}}}},
		toolcrib.Message{Role: toolcrib.RoleTool, Parts: []toolcrib.Part{
			{ToolResult: &toolcrib.ToolResult{CallID: "call_7", Name: "g", Content: "two"}},
			{ToolResult: &toolcrib.ToolResult{CallID: "call_8", Name: "x", Content: `{"error":"no"}`, IsError: true}},
		}},
		toolcrib.TextMessage(toolcrib.RoleUser, "note"),
		toolcrib.TextMessage(toolcrib.RoleAssistant, "answer"),
	)
	r, _ := send(t, gemini.Options{}, req)
	want := `[{"role":"user","parts":[{"text":"q"}]},{"role":"model","parts":[` +
		`{"functionCall":{"id":"given","name":"f","args":{"a":1}}},{"functionCall":{"name":"g","args":{}}},{"functionCall":{"name":"invalid_tool_name","args":{}}}]},` +
		`{"role":"user","parts":[{"functionResponse":{"id":"given","name":"f","response":{"b":[1,2]}}},{"functionResponse":{"name":"g","response":{"result":"two"}}},` +
		`{"functionResponse":{"name":"invalid_tool_name","response":{"error":"no"}}},{"text":"note"}]},` +
		`{"role":"model","parts":[{"text":"answer"}]},{"role":"user","parts":[{"text":"Continue."}]}]`
	if got := string(r.fields(t)["contents"]); got != want {
		t.Errorf("contents\n%s\nwant\n%s", got, want)
	}
	if got, want := string(r.fields(t)["tools"]), `[{"functionDeclarations":[{"name":"f","description":"f"},{"name":"g","description":"g"}]}]`; got != want {
		t.Errorf("tools %s, want %s", got, want)
	}
}

func TestResults_AreObjects(t *testing.T) {
	for _, tt := range []struct {
		content string
		failed  bool
		want    string
	}{
		{content: "", want: `{"result":""}`},
		{content: " text\n", want: `{"result":" text\n"}`},
		{content: "12", want: `{"result":"12"}`},
		{content: ` {"a":1} `, want: `{"a":1}`},
		{content: `[1,{"a":"b"}]`, want: `{"result":[1,{"a":"b"}]}`},
		{content: `{"a":1} and more`, want: `{"result":"{\"a\":1} and more"}`},
		{content: `{"a":1,"a":2}`, want: `{"result":"{\"a\":1,\"a\":2}"}`},
		{content: `{"a":{"$ref":"#/x"}}`, want: `{"result":"{\"a\":{\"$ref\":\"#/x\"}}"}`},
		{content: `{"a":1e999}`, want: `{"result":"{\"a\":1e999}"}`},
		{content: `{"a":"\ud800"}`, want: `{"result":"{\"a\":\"\\ud800\"}"}`},
		{content: "{\"a\":\"\xff\"}", want: `{"result":"{\"a\":\"` + "\uFFFD" + `\"}"}`},
		{content: strings.Repeat(`{"a":`, 60) + "1" + strings.Repeat("}", 60), want: `{"result":"` + strings.Repeat(`{\"a\":`, 60) + "1" + strings.Repeat("}", 60) + `"}`},
		{content: "boom", failed: true, want: `{"error":"boom"}`},
		{content: `{"error":"boom","ref":"r"}`, failed: true, want: `{"error":"boom","ref":"r"}`},
		{content: `{"refused":true}`, failed: true, want: `{"error":{"refused":true}}`},
		{content: `[1]`, failed: true, want: `{"error":[1]}`},
		{content: "", failed: true, want: `{"error":""}`},
	} {
		req := modeltest.Request("q")
		req.Messages = append(
			req.Messages,
			toolcrib.Message{Role: toolcrib.RoleAssistant, Parts: []toolcrib.Part{{ToolCall: &toolcrib.ToolCall{ID: "call_1", Name: "f"}}}},
			toolcrib.Message{Role: toolcrib.RoleTool, Parts: []toolcrib.Part{{ToolResult: &toolcrib.ToolResult{CallID: "call_1", Name: "f", Content: tt.content, IsError: tt.failed}}}},
		)
		r, _ := send(t, gemini.Options{}, req)
		if want := `"response":` + tt.want + `}}]}]}`; !strings.HasSuffix(string(r.body), want) {
			t.Errorf("%q: body\n%s\nwant\n%s", tt.content, r.body, want)
		}
	}
}

func TestH13_ToolChoice(t *testing.T) {
	for mode, want := range map[string]string{
		"": "", "auto": `{"functionCallingConfig":{"mode":"AUTO"}}`, "none": `{"functionCallingConfig":{"mode":"NONE"}}`,
		"required": `{"functionCallingConfig":{"mode":"ANY"}}`, "name": `{"functionCallingConfig":{"mode":"ANY","allowedFunctionNames":["f"]}}`,
	} {
		req := modeltest.Request("q")
		req.Tools = []toolcrib.Spec{{Name: "f"}, {Name: "g"}}
		req.ToolChoice = toolcrib.ToolChoice{Mode: mode, Name: "f"}
		r, _ := send(t, gemini.Options{}, req)
		if got := string(r.fields(t)["toolConfig"]); got != want {
			t.Errorf("mode %q: %s, want %s", mode, got, want)
		}
	}
	req := modeltest.Request("q")
	req.Tools, req.ToolChoice = []toolcrib.Spec{{Name: "f"}}, toolcrib.ToolChoice{Mode: toolcrib.ChoiceName, Name: "nobody"}
	if r, reply := send(t, gemini.Options{}, req); r.fields(t)["toolConfig"] != nil || len(codes(reply)) != 1 {
		t.Errorf("a tool that is not there: body %s, notices %v", r.body, reply.Finish.Notices)
	}
}

func TestReasoning(t *testing.T) {
	for _, tt := range []struct {
		model, level string
		max          int
		want         string
		noticed      bool
	}{
		{model: "gemini-3-pro-preview", level: "low", want: `{"thinkingLevel":"LOW","includeThoughts":true}`},
		{model: "gemini-3-pro-preview", level: "medium", want: `{"thinkingLevel":"HIGH","includeThoughts":true}`, noticed: true},
		{model: "gemini-3.1-pro-preview", level: "medium", want: `{"thinkingLevel":"MEDIUM","includeThoughts":true}`},
		{model: "models/gemini-3.1-pro-preview", level: "off", want: `{"thinkingLevel":"LOW"}`, noticed: true},
		{model: "gemini-3.5-flash", level: "high", want: `{"thinkingLevel":"HIGH","includeThoughts":true}`},
		{model: "gemini-3.1-flash-lite", level: "off", want: `{"thinkingLevel":"MINIMAL"}`, noticed: true},
		{model: "gemini-flash-latest", level: "medium", want: `{"thinkingLevel":"MEDIUM","includeThoughts":true}`},
		{model: "gemini-2.5-pro", level: "low", want: `{"thinkingBudget":1024,"includeThoughts":true}`},
		{model: "gemini-2.5-pro", level: "off", want: `{"thinkingBudget":128}`, noticed: true},
		{model: "gemini-2.5-pro", level: "high", max: 100, noticed: true},
		{model: "gemini-2.5-flash", level: "high", want: `{"thinkingBudget":24576,"includeThoughts":true}`},
		{model: "gemini-2.5-flash-preview-09-2025", level: "high", max: 4000, want: `{"thinkingBudget":2000,"includeThoughts":true}`},
		{model: "gemini-2.5-flash", level: "off", want: `{"thinkingBudget":0}`},
		{model: "gemini-2.5-flash-lite", level: "medium", max: 600, noticed: true},
		{model: "gemini-2.0-flash", level: "high", noticed: true},
		{model: "gemini-2.0-flash", level: "off"},
		{model: "gemma-3-27b-it", level: "high", noticed: true},
		{model: "some-model", level: "medium", want: `{"thinkingBudget":8192,"includeThoughts":true}`},
		{model: "gemini-3.5-flash"},
	} {
		req := modeltest.Request("q")
		req.Model, req.Reasoning, req.MaxOutputTokens = tt.model, tt.level, tt.max
		r, reply := send(t, gemini.Options{}, req)
		config := map[string]json.RawMessage{}
		if raw := r.fields(t)["generationConfig"]; raw != nil {
			config = object(t, raw)
		}
		if got := string(config["thinkingConfig"]); got != tt.want {
			t.Errorf("%s %q: %s, want %s", tt.model, tt.level, got, tt.want)
		}
		if got := len(codes(reply)) > 0; got != tt.noticed {
			t.Errorf("%s %q: notices %v", tt.model, tt.level, reply.Finish.Notices)
		}
	}
}

func TestOutputSchema(t *testing.T) {
	const schema = `{"type":"object","properties":{"why":{"type":"string","minLength":3},"a":{"const":1}},"required":["why"]}`
	for _, tt := range []struct {
		model  string
		schema string
		tools  bool
		want   string // "" if by instruction
	}{
		{model: "gemini-2.5-flash", schema: schema, want: `{"type":"object","properties":{"why":{"type":"string","description":"(minLength: 3)"},"a":{"enum":[1]}},"required":["why"]}`},
		{model: "gemini-2.5-flash", schema: schema, tools: true},
		{model: "gemini-3.5-flash", schema: schema, tools: true, want: `{"type":"object","properties":{"why":{"type":"string","description":"(minLength: 3)"},"a":{"enum":[1]}},"required":["why"]}`},
		{model: "gemini-3.5-flash", schema: `{"type":"array","items":{"type":"string"}}`, want: `{"type":"array","items":{"type":"string"}}`},
		{model: "gemini-3.5-flash", schema: `{"type":"object","patternProperties":{"^a":{}}}`},
		{model: "gemini-3.5-flash", schema: `{"$ref":"#/$defs/n","$defs":{"n":{"type":"object","properties":{"next":{"$ref":"#/$defs/n"}}}}}`},
		{model: "gemini-3.5-flash", schema: `{"$ref":"https://elsewhere.example/x"}`},
		{model: "gemini-3.5-flash", schema: `true`},
		{model: "gemma-3-27b-it", schema: schema},
	} {
		req := modeltest.Request("q")
		req.Model, req.OutputSchema, req.System = tt.model, json.RawMessage(tt.schema), "Be brief."
		if tt.tools {
			req.Tools = []toolcrib.Spec{{Name: "f"}}
		}
		r, _ := send(t, gemini.Options{}, req)
		config := map[string]json.RawMessage{}
		if raw := r.fields(t)["generationConfig"]; raw != nil {
			config = object(t, raw)
		}
		if got := string(config["responseJsonSchema"]); got != tt.want ||
			(tt.want != "") != (string(config["responseMimeType"]) == `"application/json"`) {
			t.Errorf("%s %s: schema %s, want %s", tt.model, tt.schema, got, tt.want)
		}
		if told := bytes.Contains(r.body, []byte("JSON Schema below")); told != (tt.want == "") {
			t.Errorf("%s %s: told in words %t: %s", tt.model, tt.schema, told, r.body)
		}
	}
}

func TestExtra_MergedLast(t *testing.T) {
	req := modeltest.Request("q")
	req.System, req.Temperature, req.MaxOutputTokens, req.Reasoning = "s", ptr(0.5), 10, "high"
	req.Extra = json.RawMessage(`{"safetySettings": [{"category": "c"}], "contents": [], "model": "evil", "tools": [{}], "systemInstruction": {}, "system_instruction": {}, "stream": false,
		"generationConfig": {"topK": 5, "temperature": 0.9, "thinkingConfig": null, "maxOutputTokens": null}}`)
	r, _ := send(t, gemini.Options{}, req)
	want := `{"generationConfig":{"topK":5,"temperature":0.9},"safetySettings":[{"category":"c"}],"systemInstruction":{"parts":[{"text":"s"}]},"contents":[{"role":"user","parts":[{"text":"q"}]}]}`
	if string(r.body) != want {
		t.Errorf("body\n%s\nwant\n%s", r.body, want)
	}
	if !strings.HasSuffix(r.url, ":generateContent") {
		t.Errorf("stream false: %s", r.url)
	}
	for _, bad := range []string{`[1]`, `{"a":`, `"x"`, `{"generationConfig":[1]}`} {
		req.Extra = json.RawMessage(bad)
		m, err := gemini.New(gemini.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := modeltest.Collect(t.Context(), m, req); err == nil || !strings.Contains(err.Error(), "extra") {
			t.Errorf("extra %s: error %v", bad, err)
		}
	}
}

func TestSystemWhereThereIsNone(t *testing.T) {
	req := modeltest.Request("q")
	req.Model, req.System = "gemma-3-27b-it", "Be brief."
	r, _ := send(t, gemini.Options{}, req)
	if want := `{"contents":[{"role":"user","parts":[{"text":"Be brief."},{"text":"q"}]}]}`; string(r.body) != want {
		t.Errorf("body %s, want %s", r.body, want)
	}
}

func TestNoMessages(t *testing.T) {
	m, err := gemini.New(gemini.Options{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = modeltest.Collect(t.Context(), m, &toolcrib.Request{Model: "m"})
	if err == nil || !strings.Contains(err.Error(), "no message") {
		t.Errorf("error %v", err)
	}
}

func TestCheck(t *testing.T) {
	s := modeltest.NewServer(modeltest.Gemini, modeltest.ServerOptions{APIKey: "right"})
	url := s.Start(t)
	names, err := open(t, modeltest.Target{BaseURL: url, APIKey: "right"}).ListModels(t.Context())
	if err != nil || len(names) != 2 || names[0] != "model-a" {
		t.Errorf("models %v, error %v", names, err)
	}
	if err := open(t, modeltest.Target{BaseURL: url, APIKey: "wrong"}).Check(t.Context()); err == nil ||
		!strings.Contains(err.Error(), "api_key") {
		t.Errorf("wrong key: error %v", err)
	}
}
