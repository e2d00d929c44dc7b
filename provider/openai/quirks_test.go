package openai_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/provider/openai"
	"github.com/toolcrib/toolcrib/provider/wire"
	"github.com/toolcrib/toolcrib/toolcribtest/modeltest"
)

// answering answers every request with the same reply.
type answering struct {
	status     int
	kind, body string
}

func (a answering) RoundTrip(req *http.Request) (*http.Response, error) {
	_, _ = io.Copy(io.Discard, req.Body)
	_ = req.Body.Close()
	return &http.Response{StatusCode: a.status, Header: http.Header{"Content-Type": {a.kind}}, Body: io.NopCloser(strings.NewReader(a.body))}, nil
}

func replyTo(t *testing.T, a answering) (toolcrib.Reply, error) {
	t.Helper()
	m, err := openai.New(openai.Options{BaseURL: "http://model.test/v1", Transport: a})
	if err != nil {
		t.Fatal(err)
	}
	return modeltest.Collect(t.Context(), m, modeltest.Request("q"))
}

// toolRun is a request after a tool call and another message of the user.
func toolRun(ids ...string) *toolcrib.Request {
	req := modeltest.Request("q")
	for _, id := range ids {
		req.Messages = append(req.Messages,
			toolcrib.Message{Role: toolcrib.RoleAssistant, Parts: []toolcrib.Part{{ToolCall: &toolcrib.ToolCall{ID: id, Name: "f"}}}},
			toolcrib.Message{Role: toolcrib.RoleTool, Parts: []toolcrib.Part{{ToolResult: &toolcrib.ToolResult{CallID: id, Name: "f", Content: "ok"}}}})
	}
	req.Messages = append(req.Messages, toolcrib.TextMessage(toolcrib.RoleUser, "more"))
	return req
}

func TestMistral_IDsOrderAndFields(t *testing.T) {
	nine := regexp.MustCompile(`"(?:id|tool_call_id)":"([^"]*)"`)
	for _, tt := range []struct{ host, model string }{
		{"https://api.mistral.ai/v1", "some-model"}, {"http://localhost:8000/v1", "mistralai/Devstral-Small-2507"}, {"https://openrouter.ai/api/v1", "mistralai/mistral-medium-3"},
	} {
		req := toolRun("call_0", "D681PevKs", "functions.f:1", "call_0_again")
		req.Model = tt.model
		r, _ := send(t, openai.Options{BaseURL: tt.host}, req)
		var ids []string
		for _, m := range nine.FindAllStringSubmatch(string(r.body), -1) {
			if !regexp.MustCompile(`^[a-zA-Z0-9]{9}$`).MatchString(m[1]) {
				t.Errorf("%s: ID %q", tt.model, m[1])
			}
			ids = append(ids, m[1])
		}
		if len(ids) != 8 || ids[0] != ids[1] || ids[2] != "D681PevKs" || ids[3] != "D681PevKs" || ids[4] != ids[5] || ids[0] == ids[4] || ids[0] == ids[6] {
			t.Errorf("%s: IDs %q", tt.model, ids)
		}
		again, _ := send(t, openai.Options{BaseURL: tt.host}, req)
		if string(again.body) != string(r.body) {
			t.Error("the IDs are not the same each time")
		}
		want := `,{"role":"assistant","content":"I have read the results."},{"role":"user","content":"more"}]`
		if got := string(r.fields(t)["messages"]); !strings.HasSuffix(got, want) || strings.Count(got, "I have read") != 1 {
			t.Errorf("%s: messages %s", tt.model, got)
		}
		if _, ok := r.fields(t)["stream_options"]; ok != !strings.Contains(tt.host, "mistral.ai") {
			t.Errorf("%s at %s: stream_options %t", tt.model, tt.host, ok)
		}
		if err := modeltest.OpenAI.Check(r.body); err != nil {
			t.Error(err)
		}
	}
	r, _ := send(t, openai.Options{}, toolRun("call_0"))
	if got := string(r.body); strings.Contains(got, "I have read") || !strings.Contains(got, `"tool_call_id":"call_0"`) {
		t.Errorf("elsewhere: %s", got)
	}
}

func TestAzure(t *testing.T) {
	for _, tt := range []struct{ base, url string }{
		{"https://team.openai.azure.com/openai/deployments/gpt4?api-version=2024-10-21", "https://team.openai.azure.com/openai/deployments/gpt4/chat/completions?api-version=2024-10-21"},
		{"https://team.openai.azure.com/openai/v1/", "https://team.openai.azure.com/openai/v1/chat/completions"},
		{"https://team.cognitiveservices.azure.com/openai/v1", "https://team.cognitiveservices.azure.com/openai/v1/chat/completions"},
	} {
		r, _ := send(t, openai.Options{BaseURL: tt.base, APIKey: "0123456789abcdef"}, modeltest.Request("q"))
		if r.url != tt.url || r.header.Get("Api-Key") != "0123456789abcdef" || r.header.Get("Authorization") != "" {
			t.Errorf("%s: url %s, headers %v", tt.base, r.url, r.header)
		}
		r, _ = send(t, openai.Options{BaseURL: tt.base, APIKey: "eyJhbGciOi.x.y"}, modeltest.Request("q"))
		if r.header.Get("Authorization") != "Bearer eyJhbGciOi.x.y" || r.header.Get("Api-Key") != "" {
			t.Errorf("%s: a token: headers %v", tt.base, r.header)
		}
	}
	_, err := replyTo(t, answering{400, "application/json", `{"error":{"message":"The response was filtered due to the prompt triggering Azure OpenAI's content management policy.","type":null,"param":"prompt","code":"content_filter","status":400,"innererror":{"code":"ResponsibleAIPolicyViolation"}}}`})
	wantError(t, err, toolcrib.ErrRefused, "content management", false)
}

func wantError(t *testing.T, err error, class toolcrib.ErrorClass, text string, noTools bool) {
	t.Helper()
	e, ok := err.(*toolcrib.ModelError)
	if !ok || e.Class != class || !strings.Contains(e.Message, text) || e.NoTools != noTools {
		t.Errorf("error %+v, want class %s with %q, no tools %t", err, class, text, noTools)
	}
}

func TestModelsWithoutTools(t *testing.T) {
	for name, a := range map[string]answering{
		"OpenRouter": {404, "application/json", `{"error":{"message":"No endpoints found that support tool use. Try disabling \"f\".","code":404}}`},
		"Ollama":     {400, "application/json", `{"error":{"message":"registry.ollama.ai/library/gemma3 does not support tools","type":"api_error","param":null,"code":null}}`},
		"vLLM":       {400, "application/json", `{"object":"error","message":"\"auto\" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set","type":"BadRequestError","param":null,"code":400}`},
		"in stream":  {200, "text/event-stream", "data: {\"error\":{\"message\":\"Tool use is not supported by this model\",\"code\":400}}\n\n"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := replyTo(t, a)
			wantError(t, err, toolcrib.ErrBadRequest, "ool", true)
		})
	}
	_, err := replyTo(t, answering{404, "application/json", `{"error":{"message":"model not found"}}`})
	wantError(t, err, toolcrib.ErrBadRequest, "not found", false)
}

// A call that the server could not read is returned as a call, so that the model can
// fix it.
func TestGroq_ToolUseFailed(t *testing.T) {
	failed := func(generation string) string {
		b, err := json.Marshal(generation)
		if err != nil {
			t.Fatal(err)
		}
		return `{"error":{"message":"Failed to call a function.","type":"invalid_request_error","code":"tool_use_failed","failed_generation":` + string(b) + `}}`
	}
	for generation, want := range map[string][2]string{
		`{"name": "f", "arguments": {"x": "1"}}`:        {"f", `{"x": "1"}`},
		`[{"name":"f","parameters":{"x":1}}]`:           {"f", `{"x":1}`},
		`{"name":"f","arguments":"{\"x\":"}`:            {"f", `{"x":`},
		"<function=f>{\"x\": 1}</function>":             {"f", `{"x": 1}`},
		`<function=get_x{"x": 1}</function>`:            {"get_x", `{"x": 1}`},
		`I would say: the answer is 7.`:                 {},
		`[{"name":"f"},{"name":"g"}]`:                   {},
		`<function=>{}</function>`:                      {},
		`{"arguments":{}}`:                              {},
		`{"name":"` + strings.Repeat("x", 500) + `"}`:   {},
		`{"name": "f", "arguments": null, "other": [1]`: {},
	} {
		reply, err := replyTo(t, answering{400, "application/json", failed(generation)})
		if want[0] == "" {
			wantError(t, err, toolcrib.ErrBadRequest, "Failed to call", false)
			continue
		}
		if err != nil {
			t.Errorf("%s: error %v", generation, err)
			continue
		}
		calls := reply.Message.ToolCalls()
		if len(calls) != 1 || calls[0].Name != want[0] || string(calls[0].Arguments) != want[1] ||
			reply.Finish.Reason != toolcrib.FinishToolCalls {
			t.Errorf("%s: reply %+v", generation, modeltest.Parts(reply.Message))
		}
		if n := reply.Finish.Notices; len(n) != 1 || n[0].Code != toolcrib.NoticeToolCallRepaired {
			t.Errorf("%s: notices %v", generation, n)
		}
	}
}

func TestHint_OtherAPI(t *testing.T) {
	_, err := replyTo(t, answering{404, "application/json", `{"error":{"message":"This model is only supported in v1/responses and not in v1/chat/completions.","type":"invalid_request_error","param":"model","code":null}}`})
	wantError(t, err, toolcrib.ErrBadRequest, "set api: responses", false)
}

const openRouterDetails = `[{"type":"reasoning.text","text":"hm","signature":"sig==","index":0}]`

func TestOpenRouter_DetailsGoBack(t *testing.T) {
	req := toolRun("c1")
	req.Model = "anthropic/claude-sonnet-4.5"
	call := &req.Messages[1]
	call.Parts = append([]toolcrib.Part{{Thinking: &toolcrib.Thinking{Text: "hm", Model: "router/" + req.Model}}}, call.Parts...)
	call.Parts = append(call.Parts, toolcrib.Part{Thinking: &toolcrib.Thinking{Signature: openRouterDetails, Model: "router/" + req.Model}})
	for _, tt := range []struct {
		host, reasoning string
		want            bool
	}{
		{"https://openrouter.ai/api/v1", "", true},
		{"https://openrouter.ai/api/v1", wire.ReasoningDrop, false},
		{"https://gateway.example/v1", "", false},
	} {
		r, _ := send(t, openai.Options{BaseURL: tt.host, Reasoning: tt.reasoning}, req)
		if got := strings.Contains(string(r.body), `"content":null,"reasoning_details":`+openRouterDetails+`,"tool_calls"`); got != tt.want || strings.Contains(string(r.body), "reasoning") != tt.want {
			t.Errorf("%s %q: %s", tt.host, tt.reasoning, r.body)
		}
	}
	call.Parts[0].Thinking.Signature = `[{"type":"reasoning.summary","summary":"s"}]`
	if r, _ := send(t, openai.Options{BaseURL: "https://openrouter.ai/api/v1"}, req); !strings.Contains(string(r.body), `"reasoning_details":[{"type":"reasoning.summary","summary":"s"},`+openRouterDetails[1:]) {
		t.Errorf("details in two blocks: %s", r.body)
	}
	call.Parts[0].Thinking.Signature, call.Parts[2].Thinking.Model = "", "router/other"
	if r, _ := send(t, openai.Options{BaseURL: "https://openrouter.ai/api/v1"}, req); strings.Contains(string(r.body), "reasoning") {
		t.Errorf("details of another model: %s", r.body)
	}
}

func TestGemini_SignaturesOfCallsGoBack(t *testing.T) {
	req := toolRun("c1")
	req.Messages[1].Parts[0].ToolCall.Signature = `{"google":{"thought_signature":"abc=="}}`
	for host, want := range map[string]bool{"https://generativelanguage.googleapis.com/v1beta/openai": true, "https://api.openai.com/v1": false} {
		r, _ := send(t, openai.Options{BaseURL: host}, req)
		if got := strings.Contains(string(r.body), `"extra_content":{"google":{"thought_signature":"abc=="}}`); got != want {
			t.Errorf("%s: %s", host, r.body)
		}
	}
}

func TestOutputSchema_Hosts(t *testing.T) {
	const (
		schema = `{"type":"object","properties":{"a":{"type":"string"}},"required":["a"],"additionalProperties":false}`
		strict = `{"type":"json_schema","json_schema":{"name":"answer","strict":true,"schema":` + schema + `}}`
	)
	tests := []struct {
		host         string
		tools, words bool
		format       string
	}{
		{"https://api.openai.com/v1", true, false, strict},
		{"http://localhost:1234/v1", true, false, strict},
		{"https://api.deepseek.com", true, true, `{"type":"json_object"}`},
		{"https://api.groq.com/openai/v1", true, true, ""},
		{"https://api.groq.com/openai/v1", false, true, strict},
		{"https://api.cerebras.ai/v1", true, true, ""},
	}
	for _, tt := range tests {
		req := modeltest.Request("q")
		req.OutputSchema = json.RawMessage(schema)
		if tt.tools {
			req.Tools = []toolcrib.Spec{{Name: "f"}}
		}
		r, _ := send(t, openai.Options{BaseURL: tt.host}, req)
		if got := string(r.fields(t)["response_format"]); got != tt.format {
			t.Errorf("%s, tools %t: response_format %s, want %s", tt.host, tt.tools, got, tt.format)
		}
		if got := strings.Contains(string(r.fields(t)["messages"]), "JSON Schema"); got != tt.words {
			t.Errorf("%s, tools %t: in words %t, want %t", tt.host, tt.tools, got, tt.words)
		}
	}
}

func TestOutputSchema_Strict(t *testing.T) {
	object := func(inner string) string {
		return `{"type":"object","properties":{"a":` + inner + `},"required":["a"],"additionalProperties":false}`
	}
	deep := `{"type":"string"}`
	for range 12 {
		deep = object(deep)
	}
	strict := []string{
		object(`{"type":"string"}`),
		object(`{"type":["string","null"],"enum":["x",null]}`),
		object(`{"type":"array","items":{"anyOf":[{"type":"string"},{"$ref":"#"}]}}`),
		object(object(`{"type":"integer","minimum":1}`)),
		`{"type":"object","additionalProperties":false,"properties":{},"required":[]}`,
	}
	loose := []string{
		object(`{"type":"string","minLength":2}`),
		object(`{"type":"string","format":"uri"}`),
		object(`{"oneOf":[{"type":"string"}]}`),
		object(`{"type":"object"}`),
		object(`{"type":"array","items":true}`),
		object(`{"anyOf":[true]}`),
		object(`true`),
		deep,
		`{"type":"object","properties":{"a":{}},"additionalProperties":false}`,
		`{"type":"object","properties":{"a":{}},"required":["a"]}`,
		`{"type":"object","properties":{},"required":["b"],"additionalProperties":false}`,
		`{"type":"object","allOf":[]}`,
	}
	for i, schema := range append(strict, loose...) {
		want := i < len(strict)
		req := modeltest.Request("q")
		req.OutputSchema = json.RawMessage(schema)
		r, _ := send(t, openai.Options{}, req)
		if got := strings.Contains(string(r.fields(t)["response_format"]), `"strict":true`); got != want {
			t.Errorf("%s: strict %t, want %t", schema, got, want)
		}
	}
}

func TestTemperature_OfReasoningModels(t *testing.T) {
	for _, tt := range []struct {
		model, level string
		want         bool
	}{
		{"gpt-4.1", "", true},
		{"gpt-5", "", false},
		{"gpt-5.1", "", true},
		{"gpt-5.1", "high", false},
		{"gpt-5.2", "off", true},
		{"gpt-5.5", "", false},
		{"gpt-5.5", "off", true},
		{"gpt-5.1-codex", "", false},
		{"gpt-5-pro", "", false},
		{"o3", "off", false},
	} {
		req := modeltest.Request("q")
		req.Model, req.Reasoning, req.Temperature = tt.model, tt.level, ptr(0.5)
		r, reply := send(t, openai.Options{API: openai.APIChat}, req)
		if _, got := r.fields(t)["temperature"]; got != tt.want || got == strings.Contains(noticeText(reply), "temperature") {
			t.Errorf("%s %q: temperature sent %t, notices %v", tt.model, tt.level, got, reply.Finish.Notices)
		}
	}
}

func noticeText(r toolcrib.Reply) (text string) {
	for _, n := range r.Finish.Notices {
		text += n.Message + "\n"
	}
	return text
}

// A conversation decodes its replies one after another into the same memory: one without
// choices is not a reply, whatever came before.
func TestReplyWithoutChoices_AfterOthers(t *testing.T) {
	bodies := []string{`{"choices":[{"message":{"content":"yes"},"finish_reason":"stop"}]}`, `{"id":"x"}`, `{"choices":[]}`}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, bodies[0])
		bodies = bodies[1:]
	}))
	t.Cleanup(s.Close)
	m, err := openai.New(openai.Options{BaseURL: s.URL, NoStream: true})
	if err != nil {
		t.Fatal(err)
	}
	c := m.Conversation()
	for _, want := range []string{"", "chat completion", "cut"} {
		var got error
		for _, err := range c.Stream(t.Context(), modeltest.Request("q")) {
			got = cmp.Or(err, got)
		}
		if text := fmt.Sprint(got); (got == nil) != (want == "") || !strings.Contains(text, want) {
			t.Errorf("%v, want %q", got, want)
		}
	}
}
