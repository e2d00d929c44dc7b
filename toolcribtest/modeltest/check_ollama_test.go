package modeltest_test

import (
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/toolcrib/toolcrib/toolcribtest/modeltest"
)

const goodOllama = `{"model":"m","stream":true,"think":true,"truncate":false,"options":{"num_ctx":8192,"temperature":0.5},"keep_alive":"5m",
"tools":[{"type":"function","function":{"name":"f","description":"","parameters":{"type":"object","properties":{"l":{"type":"array","items":{}}}}}},{"type":"function","function":{"name":"g","parameters":{"type":"object","properties":{}}}}],
"messages":[{"role":"system","content":"s"},{"role":"user","content":"q","images":["iVBORw0KGgo="]},
{"role":"assistant","content":"","thinking":"hm","tool_calls":[{"function":{"name":"f","arguments":{}}},{"function":{"name":"g","arguments":{"x":1}}}]},
{"role":"tool","content":"a","tool_name":"f"},{"role":"tool","content":"","tool_name":"g"},
{"role":"assistant","content":"done"},{"role":"user","content":"more"}]}`

func TestCheckOllamaRequest(t *testing.T) {
	checkBreakages(t, modeltest.Ollama, "", goodOllama, []breakage{
		{"no JSON", `{"model"`, `{model`, "JSON"},
		{"unknown field", `"model":"m"`, `"model":"m","num_ctx":1`, "unknown field"},
		{"twice", `"model":"m"`, `"model":"m","model":"m"`, "twice"},
		{"no model", `"model":"m"`, `"model":""`, "model"},
		{"cut silently", `"truncate":false`, `"truncate":true`, "truncate"},
		{"cut by default", `"truncate":false,`, ``, "truncate"},
		{"unknown option", `"num_ctx":8192`, `"max_tokens":1`, "options"},
		{"type of option", `"num_ctx":8192`, `"num_ctx":"8192"`, "options"},
		{"no options", `"options":{"num_ctx":8192,"temperature":0.5}`, `"options":{}`, "options"},
		{"think", `"think":true`, `"think":"on"`, "think"},
		{"format beside tools", `"think":true`, `"format":{"type":"object"}`, "format"},
		{"N8 empty tools", goodOllama[strings.Index(goodOllama, `[{"type"`):strings.Index(goodOllama, `,
"messages"`)], `[]`, "tools"},
		{"tool name", `"name":"f","description"`, `"name":"f.x","description"`, "match"},
		{"C5 sorted", `"name":"f","description"`, `"name":"z","description"`, "sorted"},
		{"array without items", `"type":"array","items":{}`, `"type":"array"`, "items"},
		{"role", `"role":"system"`, `"role":"sys"`, "role"},
		{"system later", `{"role":"user","content":"more"}`, `{"role":"system","content":"more"}`, "beginning"},
		{"no content", `{"role":"user","content":"more"}`, `{"role":"user"}`, "content"},
		{"content parts", `"content":"done"`, `"content":[]`, "string"},
		{"says nothing", `"content":"done"`, `"content":""`, "nothing"},
		{"1c.4 empty calls", `"content":"done"`, `"content":"done","tool_calls":[]`, "1c.4"},
		{"no base64", `iVBORw0KGgo=`, `data:image/png;base64,`, "base64"},
		{"no images", `["iVBORw0KGgo="]`, `[]`, "images"},
		{"N14 text", `"arguments":{}`, `"arguments":"{}"`, "N14"},
		{"N13 list", `"arguments":{}`, `"arguments":[]`, "N13"},
		{"N14 call's ID", `{"function":{"name":"f","arguments"`, `{"id":"c","function":{"name":"f","arguments"`, "unknown field"},
		{"N14 result's ID", `"tool_name":"f"`, `"tool_name":"f","tool_call_id":"c"`, "unknown field"},
		{"result without name", `,"tool_name":"f"`, ``, "tool_name"},
		{"N12 unanswered", `,{"role":"tool","content":"","tool_name":"g"}`, ``, "N12"},
		{"N12 orphan", `{"role":"assistant","content":"done"}`, `{"role":"tool","content":"","tool_name":"g"}`, "answers no call"},
		{"N12 at the end", goodOllama[strings.Index(goodOllama, `,
{"role":"tool","content":"a"`):], `]}`, "not answered"},
	})
}

const goodLlamaCpp = `{"model":"m","chat_template_kwargs":{"enable_thinking":false},"parallel_tool_calls":true,"tool_choice":"required",
"tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object","properties":{"a":{"type":"string","pattern":"^a$","maxLength":10}}}}}],
"messages":[{"role":"user","content":"q"}]}`

func TestCheckLlamaCppRequest(t *testing.T) {
	checkBreakages(t, modeltest.LlamaCpp, "", goodLlamaCpp, []breakage{
		{"no JSON", `{"model"`, `{model`, "JSON"},
		{"twice", `"model":"m"`, `"model":"m","model":"m"`, "twice"},
		{"unknown field", `"model":"m"`, `"model":"m","num_ctx":1`, "unknown field"},
		{"named tool", `"required"`, `{"type":"function","function":{"name":"f"}}`, "named"},
		{"two grammars", `"model":"m"`, `"model":"m","response_format":{"type":"json_object"}`, "grammar"},
		{"own grammar", `"model":"m"`, `"model":"m","grammar":"root ::= x"`, "grammar"},
		{"parallel without tools", goodLlamaCpp[strings.Index(goodLlamaCpp, `"tool_choice"`):strings.Index(goodLlamaCpp, `"messages"`)], ``, "parallel"},
		{"pattern", `"^a$"`, `"a"`, "pattern"},
		{"repetitions", `"maxLength":10`, `"maxLength":65536`, "maxLength"},
		{"as OpenAI's", `"model":"m"`, `"model":""`, "model"},
	})
}

func TestServers_LocalRoutes(t *testing.T) {
	for path, d := range map[string]modeltest.Dialect{"GET /api/tags": modeltest.Ollama, "POST /api/show": modeltest.Ollama, "GET /props": modeltest.LlamaCpp, "GET /health": modeltest.LlamaCpp} {
		method, path, _ := strings.Cut(path, " ")
		for key, want := range map[string]int{"right": 200, "wrong": 401} {
			s := modeltest.NewServer(d, modeltest.ServerOptions{APIKey: "right"})
			r := httptest.NewRequest(method, path, strings.NewReader("{}"))
			r.Header.Set("Authorization", "Bearer "+key)
			w := httptest.NewRecorder()
			s.Handler().ServeHTTP(w, r)
			if w.Code != want {
				t.Errorf("%s %s with the %s key: status %d, want %d", method, path, key, w.Code, want)
			}
		}
	}
}

func TestFixtures_OfLocalServers(t *testing.T) {
	for d, least := range map[modeltest.Dialect]int{modeltest.Ollama: 20, modeltest.LlamaCpp: 5} {
		list, err := modeltest.Fixtures(d)
		if err != nil || len(list) < least {
			t.Errorf("%s: %d recorded replies, error %v", d, len(list), err)
		}
	}
}
