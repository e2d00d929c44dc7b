package modeltest_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/toolcrib/toolcrib/toolcribtest/modeltest"
)

const goodResponses = `{"model":"m","stream":true,"store":false,"include":["reasoning.encrypted_content"],"instructions":"s","max_output_tokens":16,
"reasoning":{"effort":"high"},"text":{"format":{"type":"json_schema","name":"answer","strict":false,"schema":{"type":"object"}}},
"tools":[{"type":"function","strict":false,"name":"f","description":"","parameters":{"type":"object","properties":{"l":{"type":"array","items":{}}}}},{"type":"function","strict":false,"name":"g","parameters":{"type":"object","properties":{}}}],
"tool_choice":{"type":"function","name":"g"},
"input":[{"type":"message","role":"user","content":[{"type":"input_text","text":"q"},{"type":"input_image","image_url":"data:image/png;base64,aa=="}]},
{"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":"x"},{"type":"message","role":"assistant","phase":"commentary","content":"on it"},
{"type":"function_call","call_id":"c1","name":"f","arguments":"{}"},{"type":"function_call","call_id":"c2","name":"g","arguments":"{\"x\":1}"},
{"type":"function_call_output","call_id":"c1","output":"a"},{"type":"function_call_output","call_id":"c2","output":[{"type":"input_text","text":""}]},
{"type":"message","role":"assistant","content":"done"},{"type":"message","role":"user","content":"more"}]}`

func TestCheckResponsesRequest(t *testing.T) {
	checkBreakages(t, modeltest.Responses, "", goodResponses, []breakage{
		{"unknown field", `"model":"m"`, `"model":"m","messages":[]`, "unknown field"},
		{"no model", `"model":"m"`, `"model":""`, "model"},
		{"stored", `"store":false`, `"store":true`, "store"},
		{"include", `"reasoning.encrypted_content"`, `"everything"`, "include"},
		{"effort", `"effort":"high"`, `"effort":"off"`, "effort"},
		{"format", `"type":"json_schema"`, `"type":"xml"`, "text.format"},
		{"tool type", `{"type":"function","strict":false,"name":"f"`, `{"type":"custom","strict":false,"name":"f"`, "type"},
		{"strict by default", `"strict":false,"name":"f"`, `"name":"f"`, "strict"},
		{"tool twice", `"name":"f","description"`, `"name":"g","description"`, "twice"},
		{"C5 sorted", `"name":"f","description"`, `"name":"z","description"`, "sorted"},
		{"1c.4 properties", `"properties":{}`, `"properties":[]`, "properties"},
		{"choice of nobody", `"name":"g"},`, `"name":"x"},`, "tool_choice"},
		{"N13 list", `"arguments":"{}"`, `"arguments":"[]"`, "N13"},
		{"N12 unanswered", `{"type":"function_call_output","call_id":"c1","output":"a"},`, ``, "N12"},
		{"N12 order", `{"type":"function_call_output","call_id":"c1","output":"a"}`, `{"type":"function_call_output","call_id":"c2","output":"a"}`, "N12"},
		{"call twice", `"call_id":"c2","name":"g"`, `"call_id":"c1","name":"g"`, "used before"},
		{"reasoning not sealed", `"encrypted_content":"x"`, `"encrypted_content":""`, "encrypted_content"},
		{"reasoning of nobody", `"id":"rs_1"`, `"id":""`, "reasoning"},
		{"reasoning alone", `"type":"message","role":"assistant","content":"done"`, `"type":"reasoning","id":"rs_2","summary":[],"encrypted_content":"y"`, "follows"},
		{"phase", `"commentary"`, `"thinking"`, "phase"},
		{"empty assistant", `"content":"done"`, `"content":""`, "assistant"},
		{"image by address", `"data:image/png;base64,aa=="`, `"https://x.example/a.png"`, "input_image"},
		{"role", `"role":"user","content":"more"`, `"role":"tool","content":"more"`, "role"},
		{"item", `{"type":"function_call_output","call_id":"c1"`, `{"type":"tool_result","call_id":"c1"`, "type"},
	})
}

func TestResponsesServer_RefusesWhatTheAPIRefuses(t *testing.T) {
	s := modeltest.NewServer(modeltest.Responses, modeltest.ServerOptions{Steps: modeltest.Steps(modeltest.Text("hi"))})
	for body, want := range map[string]int{`{"model":"m","input":[]}`: http.StatusBadRequest, goodResponses: http.StatusOK} {
		r := httptest.NewRequest(http.MethodPost, "/v1/responses", strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		s.Handler().ServeHTTP(w, r)
		if w.Code != want {
			t.Errorf("status %d, want %d: %s", w.Code, want, body)
		}
	}
	if s.Errors() == nil || s.Count() != 2 {
		t.Errorf("errors %v, %d requests", s.Errors(), s.Count())
	}
}
