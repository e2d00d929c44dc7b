package modeltest_test

import (
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/toolcrib/toolcrib/toolcribtest/modeltest"
)

const goodGemini = `{"generationConfig":{"temperature":1,"maxOutputTokens":100,"thinkingConfig":{"thinkingLevel":"LOW","includeThoughts":true}},
"toolConfig":{"functionCallingConfig":{"mode":"ANY","allowedFunctionNames":["g"]}},
"systemInstruction":{"parts":[{"text":"s"}]},
"tools":[{"functionDeclarations":[{"name":"f","description":"d","parametersJsonSchema":{"type":"object","properties":{"l":{"type":"array","items":{}}},"required":["l"]}},{"name":"g","description":"e"}]}],
"contents":[{"role":"user","parts":[{"text":"q"}]},
{"role":"model","parts":[{"text":"hm","thought":true,"thoughtSignature":"YWJj"},{"functionCall":{"id":"1","name":"f","args":{}},"thoughtSignature":"YWJj"},{"functionCall":{"name":"g","args":{"x":1}}}]},
{"role":"user","parts":[{"functionResponse":{"id":"1","name":"f","response":{"result":"a"}}},{"functionResponse":{"name":"g","response":{"b":[{}]},"parts":[{"inlineData":{"mimeType":"image/png","data":"AAAA"}}]}},{"text":"note"}]}]}`

func TestCheckGeminiRequest(t *testing.T) {
	checkBreakages(t, modeltest.Gemini, "gemini-3.5-flash", goodGemini, []breakage{
		{"unknown field", `"toolConfig"`, `"stream":true,"toolConfig"`, "unknown field"},
		{"unknown inner field", `"temperature":1`, `"top_k":1,"temperature":1`, "unknown field"},
		{"twice", `"temperature":1`, `"temperature":1,"temperature":1`, "twice"},
		{"hot", `"temperature":1`, `"temperature":2.5`, "temperature"},
		{"output", `"maxOutputTokens":100`, `"maxOutputTokens":0`, "maxOutputTokens"},
		{"level", `"LOW"`, `"OFF"`, "thinkingLevel"},
		{"level and budget", `"thinkingLevel":"LOW"`, `"thinkingBudget":1,"thinkingLevel":"LOW"`, "exclude"},
		{"schema without type", `"temperature":1`, `"responseJsonSchema":{"type":"object"}`, "responseMimeType"},
		{"two schemas", `"temperature":1`, `"responseSchema":{},"responseJsonSchema":{}`, "exclude"},
		{"N8 empty tools", goodGemini[strings.Index(goodGemini, `[{"functionDeclarations"`):strings.Index(goodGemini, `,
"contents"`)], `[]`, "N8"},
		{"tool name", `"name":"f","description"`, `"name":"3f","description"`, "match"},
		{"tool twice", `"name":"f","description"`, `"name":"g","description"`, "twice"},
		{"C5 sorted", `"name":"f","description"`, `"name":"z","description"`, "sorted"},
		{"no description", `"description":"d",`, ``, "description"},
		{"schema type", `{"type":"object","properties":{"l"`, `{"type":"string","properties":{"l"`, "object"},
		{"empty schema", `,"parametersJsonSchema":{"type":"object","properties":{"l":{"type":"array","items":{}}},"required":["l"]}`, `,"parametersJsonSchema":{"type":"object","properties":{}}`, "non-empty"},
		{"keyword", `"items":{}`, `"items":{},"uniqueItems":true`, "subset"},
		{"reference", `"items":{}`, `"items":{"$ref":"#"}`, "subset"},
		{"enum", `"items":{}`, `"items":{"enum":[true]}`, "strings and numbers"},
		{"required", `"required":["l"]`, `"required":["m"]`, "not defined"},
		{"type list", `"type":"array"`, `"type":["array","any"]`, "no type"},
		{"mode", `"mode":"ANY"`, `"mode":"any"`, "mode"},
		{"names with auto", `"mode":"ANY"`, `"mode":"AUTO"`, "allowedFunctionNames"},
		{"choice of nobody", `["g"]`, `["h"]`, "not in tools"},
		{"blank system", `{"text":"s"}`, `{"text":" "}`, "systemInstruction"},
		{"no contents", goodGemini[strings.Index(goodGemini, `[{"role":"user"`):], `[]}`, "contents"},
		{"role", `{"role":"model"`, `{"role":"assistant"`, "role"},
		{"model first", `{"role":"user","parts":[{"text":"q"}]},`, ``, "in a row"},
		{"two users", `{"role":"user","parts":[{"text":"q"}]}`, `{"role":"user","parts":[{"text":"q"}]},{"role":"user","parts":[{"text":"q"}]}`, "in a row"},
		{"ends with the model", `{"text":"note"}]}`, `{"text":"note"}]},{"role":"model","parts":[{"text":"x"}]}`, "last"},
		{"no parts", `"parts":[{"text":"q"}]`, `"parts":[]`, "parts"},
		{"blank text", `{"text":"q"}`, `{"text":"\n"}`, "blank"},
		{"nothing in a part", `{"text":"q"}`, `{}`, "one kind"},
		{"two things in a part", `"args":{}}`, `"args":{}},"text":"x"`, "one kind"},
		{"N13 list", `"args":{}`, `"args":[]`, "N13"},
		{"N13 none", `,"args":{}`, ``, "N13"},
		{"unsigned call", `"args":{}},"thoughtSignature":"YWJj"`, `"args":{}}`, "thought_signature"},
		{"bad signature", `"thought":true,"thoughtSignature":"YWJj"`, `"thought":true,"thoughtSignature":"a|b"`, "Base64"},
		{"stand-in on a thought", `"thought":true,"thoughtSignature":"YWJj"`, `"thought":true,"thoughtSignature":"skip_thought_signature_validator"`, "real"},
		{"user signs", `{"text":"note"}`, `{"text":"note","thoughtSignature":"YWJj"}`, "user"},
		{"N12 unanswered", `,{"functionResponse":{"name":"g","response":{"b":[{}]},"parts":[{"inlineData":{"mimeType":"image/png","data":"AAAA"}}]}}`, ``, "N12"},
		{"N12 one too many", `{"text":"note"}`, `{"functionResponse":{"name":"g","response":{}}}`, "N12"},
		{"N12 name", `{"functionResponse":{"name":"g"`, `{"functionResponse":{"name":"f"`, "N12"},
		{"ID", `{"functionResponse":{"id":"1"`, `{"functionResponse":{"id":"2"`, "waiting for"},
		{"text before result", `{"functionResponse":{"id":"1"`, `{"text":"x"},{"functionResponse":{"id":"1"`, "right after"},
		{"response no object", `"response":{"result":"a"}`, `"response":"a"`, "object"},
		{"response with reference", `"response":{"result":"a"}`, `"response":{"a":[{"$ref":"#/x"}]}`, "reference"},
		{"model answers itself", `{"text":"hm","thought":true,"thoughtSignature":"YWJj"}`, `{"functionResponse":{"name":"f","response":{}}}`, "turn of the model"},
		{"user calls", `{"text":"note"}`, `{"functionCall":{"name":"f","args":{}}}`, "user"},
		{"file without type", `"mimeType":"image/png",`, ``, "must hold files"},
	})
}

func TestCheckGeminiRequest_Generations(t *testing.T) {
	body := func(config, parts string) string {
		return `{"generationConfig":` + config + `,"tools":[{"functionDeclarations":[{"name":"f","description":"d"}]}],"contents":[{"role":"user","parts":[{"text":"q"}]},` +
			`{"role":"model","parts":[{"functionCall":{"name":"f","args":{}}}]},{"role":"user","parts":[{"functionResponse":{"name":"f","response":{}` + parts + `}}]}]}`
	}
	const file = `,"parts":[{"inlineData":{"mimeType":"image/png","data":"AAAA"}}]`
	for _, tt := range []struct{ model, body, want string }{
		{"gemini-2.5-pro", body(`{"thinkingConfig":{"thinkingBudget":128}}`, ``), ""},
		{"", body(`{}`, ``), ""},
		{"gemini-2.5-pro", body(`{"thinkingConfig":{"thinkingBudget":0}}`, ``), "at least"},
		{"gemini-2.5-flash", body(`{"thinkingConfig":{"thinkingBudget":32768}}`, ``), "range"},
		{"gemini-2.5-flash", body(`{"thinkingConfig":{"thinkingLevel":"LOW"}}`, ``), "generation 3"},
		{"gemini-2.0-flash", body(`{"thinkingConfig":{"thinkingBudget":1024}}`, ``), "no reasoning"},
		{"gemini-2.5-flash", body(`{"responseMimeType":"application/json"}`, ``), "unsupported"},
		{"gemini-2.5-flash", body(`{}`, file), "generation 3"},
		{"gemini-3-pro-preview", body(`{}`, ``), "thought_signature"},
		{"gemini-flash-latest", body(`{}`, ``), "thought_signature"},
		{"gemini-3-pro-preview", body(`{"thinkingConfig":{"thinkingLevel":"MEDIUM"}}`, ``), "not supported"},
		{"gemini-3.1-pro", body(`{"thinkingConfig":{"thinkingLevel":"MINIMAL"}}`, ``), "not supported"},
		{"gemma-3-27b-it", body(`{}`, ``), "not enabled"},
		{"gemma-3-27b-it", `{"systemInstruction":{"parts":[{"text":"s"}]},"contents":[{"role":"user","parts":[{"text":"q"}]}]}`, "not enabled"},
	} {
		err := modeltest.Gemini.Check(tt.model, []byte(tt.body))
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: error %v, want one with %q", tt.model, err, tt.want)
		}
	}
}

func TestGeminiServer(t *testing.T) {
	s := modeltest.NewServer(modeltest.Gemini, modeltest.ServerOptions{Steps: modeltest.Steps(modeltest.Text("hi"), modeltest.Text("ho")), APIKey: "right", ByTurn: true})
	ask := func(path, key, body string) (int, string) {
		r := httptest.NewRequest("POST", path, strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("X-Goog-Api-Key", key)
		w := httptest.NewRecorder()
		s.Handler().ServeHTTP(w, r)
		return w.Code, w.Body.String()
	}
	const question = `{"contents":[{"role":"user","parts":[{"text":"q"}]}]}`
	for _, tt := range []struct {
		path, key, body string
		status          int
		want            string
	}{
		{"/v1beta/models/m:generateContent", "right", question, 200, `"text":"hi"`},
		{"/v1beta/models/m:streamGenerateContent?alt=sse", "right", question, 200, "data: {"},
		{"/v1beta/models/m:generateContent", "right", `{"contents":[{"role":"user","parts":[{"text":"q"}]},{"role":"model","parts":[{"text":"a"}]},{"role":"user","parts":[{"text":"q"}]}]}`, 200, `"text":"ho"`},
		{"/v1beta/models/m:generateContent", "wrong", question, 401, "UNAUTHENTICATED"},
		{"/v1beta/models/m:streamGenerateContent", "right", question, 404, "NOT_FOUND"},
		{"/v1beta/models/m:generateContent?alt=sse", "right", question, 404, "NOT_FOUND"},
		{"/v1beta/models/m:embedContent", "right", question, 404, "NOT_FOUND"},
		{"/v1beta/models/m", "right", question, 404, "NOT_FOUND"},
		{"/v1beta/models/m:generateContent", "right", `{"contents":[]}`, 400, "INVALID_ARGUMENT"},
	} {
		status, body := ask(tt.path, tt.key, tt.body)
		if status != tt.status || !strings.Contains(body, tt.want) {
			t.Errorf("%s: status %d, want %d; body %s", tt.path, status, tt.status, body)
		}
	}
	if s.Errors() == nil {
		t.Error("the bad request is not kept")
	}
	list, err := modeltest.Fixtures(modeltest.Gemini)
	if err != nil || len(list) < 20 {
		t.Errorf("%d recorded replies, error %v", len(list), err)
	}
}
