package modeltest_test

import (
	"strings"
	"testing"

	"github.com/toolcrib/toolcrib/toolcribtest/modeltest"
)

// Each case takes a good request and breaks one thing.
type breakage struct{ name, old, new, want string }

func checkBreakages(t *testing.T, d modeltest.Dialect, good string, list []breakage) {
	t.Helper()
	if err := d.Check([]byte(good)); err != nil {
		t.Fatalf("the good request is refused: %v", err)
	}
	for _, b := range list {
		t.Run(b.name, func(t *testing.T) {
			if !strings.Contains(good, b.old) {
				t.Fatalf("the good request does not hold %s", b.old)
			}
			err := d.Check([]byte(strings.Replace(good, b.old, b.new, 1)))
			if err == nil || !strings.Contains(err.Error(), b.want) {
				t.Errorf("error %v, want one with %q", err, b.want)
			}
		})
	}
}

const goodOpenAI = `{"model":"m","stream":true,"stream_options":{"include_usage":true},
"tools":[{"type":"function","function":{"name":"f","description":"","parameters":{"type":"object","properties":{"l":{"type":"array","items":{}}}}}},{"type":"function","function":{"name":"g","parameters":{"type":"object","properties":{}}}}],
"tool_choice":{"type":"function","function":{"name":"g"}},
"messages":[{"role":"system","content":"s"},{"role":"user","content":"q"},
{"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function","function":{"name":"f","arguments":"{}"}},{"id":"c2","type":"function","function":{"name":"g","arguments":"{\"x\":1}"}}]},
{"role":"tool","tool_call_id":"c1","content":"a"},{"role":"tool","tool_call_id":"c2","content":""},
{"role":"assistant","content":"done"},{"role":"user","content":"more"}]}`

func TestCheckOpenAIRequest(t *testing.T) {
	checkBreakages(t, modeltest.OpenAI, goodOpenAI, []breakage{
		{"no JSON", `{"model"`, `{model`, "JSON"},
		{"trailing", `"more"}]}`, `"more"}]} {}`, "after top-level value"},
		{"twice", `"model":"m"`, `"model":"m","model":"m"`, "duplicate"},
		{"no model", `"model":"m"`, `"model":""`, "model"},
		{"no messages", goodOpenAI[strings.Index(goodOpenAI, `[{"role":"system"`):], `[]}`, "messages"},
		{"N8 empty tools", goodOpenAI[strings.Index(goodOpenAI, `[{"type"`):strings.Index(goodOpenAI, `,
"tool_choice"`)], `[]`, "tools"},
		{"tool name", `"name":"f","description"`, `"name":"f.x","description"`, "match"},
		{"tool twice", `"name":"f","description"`, `"name":"g","description"`, "twice"},
		{"C5 sorted", `"name":"f","description"`, `"name":"z","description"`, "sorted"},
		{"1c.4 properties list", `"properties":{}`, `"properties":[]`, "properties"},
		{"no properties", `"type":"object","properties":{}`, `"type":"object"`, "properties"},
		{"schema type", `"type":"object","properties":{}`, `"type":"string","properties":{}`, "type"},
		{"union", `"type":"object","properties":{}`, `"type":"object","oneOf":[],"properties":{}`, "oneOf"},
		{"array without items", `"type":"array","items":{}`, `"type":"array"`, "items"},
		{"choice of nobody", `{"name":"g"}},`, `{"name":"x"}},`, "tool_choice"},
		{"4c.2 content", `"content":null`, `"content":""`, "4c.2"},
		{"1c.4 empty calls", `"content":"done"`, `"content":"done","tool_calls":[]`, "1c.4"},
		{"null content", `"content":"done"`, `"content":null`, "null"},
		{"N12 unanswered", `{"role":"tool","tool_call_id":"c2","content":""},`, ``, "N12"},
		{"N12 orphan", `"tool_call_id":"c2"`, `"tool_call_id":"c9"`, "waiting for"},
		{"N12 answered twice", `"tool_call_id":"c2"`, `"tool_call_id":"c1"`, "waiting for"},
		{
			"N12 order", `"c1","content":"a"},{"role":"tool","tool_call_id":"c2"`,
			`"c2","content":"a"},{"role":"tool","tool_call_id":"c1"`, "waiting for",
		},
		{"result without text", `"content":"a"`, `"content":null`, "string"},
		{"empty ID", `"id":"c1"`, `"id":""`, "match"},
		{"same ID", `"id":"c1"`, `"id":"c2"`, "twice"},
		{"N13 list", `"arguments":"{}"`, `"arguments":"[]"`, "N13"},
		{"N13 object", `"arguments":"{}"`, `"arguments":{}`, "arguments"},
		{"N13 broken", `"arguments":"{}"`, `"arguments":"{"`, "N13"},
		{"call's name", `"name":"f","arguments"`, `"name":"f()","arguments"`, "match"},
	})
}

const goodAnthropic = `{"model":"m","max_tokens":4096,"system":[{"type":"text","text":"s","cache_control":{"type":"ephemeral"}}],
"thinking":{"type":"enabled","budget_tokens":1024},
"tools":[{"name":"f","description":"d","input_schema":{"type":"object","properties":{}}},{"name":"g","input_schema":{"type":"object","properties":{}}}],"tool_choice":{"type":"auto"},
"messages":[{"role":"user","content":"q"},
{"role":"assistant","content":[{"type":"thinking","thinking":"hm","signature":"s"},{"type":"text","text":"t"},{"type":"tool_use","id":"a","name":"f","input":{}},{"type":"tool_use","id":"b","name":"g","input":{"x":1}}]},
{"role":"user","content":[{"type":"tool_result","tool_use_id":"a","content":"ok"},{"type":"tool_result","tool_use_id":"b","content":"no","is_error":true},{"type":"text","text":"note"}]}]}`

func TestCheckAnthropicRequest(t *testing.T) {
	checkBreakages(t, modeltest.Anthropic, goodAnthropic, []breakage{
		{"choice without tools", goodAnthropic[strings.Index(goodAnthropic, `"tools"`):strings.Index(goodAnthropic,
			`"tool_choice"`)], ``, "tool_choice"},
		{"tool name", `"name":"f","description"`, `"name":"f.x","description"`, "match"},
		{"1c.4 properties", `"properties":{}`, `"properties":[]`, "properties"},
		{"assistant first", `{"role":"user","content":"q"},`, ``, "in a row"},
		{
			"two users", `{"role":"user","content":"q"},`, `{"role":"user","content":"q"},{"role":"user","content":"q"},`,
			"in a row",
		},
		{"empty content", `"content":"q"`, `"content":[]`, "empty"},
		{"ID", `"id":"a"`, `"id":"a:0"`, "match"},
		{"same ID", `"id":"a"`, `"id":"b"`, "twice"},
		{"N13 list", `"input":{}`, `"input":[]`, "N13"},
		{"N12 unanswered", `{"type":"tool_result","tool_use_id":"b","content":"no","is_error":true},`, ``, "N12"},
		{"N12 orphan", `"tool_use_id":"b"`, `"tool_use_id":"c"`, "N12"},
		{
			"text before result", `{"type":"tool_result","tool_use_id":"a"`,
			`{"type":"text","text":"x"},{"type":"tool_result","tool_use_id":"a"`, "right after",
		},
		{
			"results split", `,{"type":"tool_result","tool_use_id":"b"`,
			`]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"b"`, "N12",
		},
		{"ends with assistant", `,{"type":"text","text":"note"}]}`, `]},{"role":"assistant","content":"x"}`, "last"},
	})
}

const goodGemini = `{"generationConfig":{"temperature":1,"maxOutputTokens":100,"thinkingConfig":{"thinkingLevel":"LOW","includeThoughts":true}},
"toolConfig":{"functionCallingConfig":{"mode":"ANY","allowedFunctionNames":["g"]}},
"systemInstruction":{"parts":[{"text":"s"}]},
"tools":[{"functionDeclarations":[{"name":"f","description":"d","parametersJsonSchema":{"type":"object","properties":{"l":{"type":"array","items":{}}},"required":["l"]}},{"name":"g","description":"e"}]}],
"contents":[{"role":"user","parts":[{"text":"q"}]},
{"role":"model","parts":[{"text":"hm","thought":true,"thoughtSignature":"YWJj"},{"functionCall":{"id":"1","name":"f","args":{}},"thoughtSignature":"YWJj"},{"functionCall":{"name":"g","args":{"x":1}}}]},
{"role":"user","parts":[{"functionResponse":{"id":"1","name":"f","response":{"result":"a"}}},{"functionResponse":{"name":"g","response":{"b":[{}]},"parts":[{"inlineData":{"mimeType":"image/png","data":"AAAA"}}]}},{"text":"note"}]}]}`

func TestCheckGeminiRequest(t *testing.T) {
	checkBreakages(t, modeltest.Gemini, goodGemini, []breakage{
		{"twice", `"temperature":1`, `"temperature":1,"temperature":1`, "duplicate"},
		{"N8 empty tools", goodGemini[strings.Index(goodGemini, `[{"functionDeclarations"`):strings.Index(goodGemini, `,
"contents"`)], `[]`, "N8"},
		{"tool name", `"name":"f","description"`, `"name":"3f","description"`, "match"},
		{"tool twice", `"name":"f","description"`, `"name":"g","description"`, "twice"},
		{"C5 sorted", `"name":"f","description"`, `"name":"z","description"`, "sorted"},
		{"choice of nobody", `["g"]`, `["h"]`, "not in tools"},
		{"no contents", goodGemini[strings.Index(goodGemini, `[{"role":"user"`):], `[]}`, "contents"},
		{"model first", `{"role":"user","parts":[{"text":"q"}]},`, ``, "in a row"},
		{
			"two users", `{"role":"user","parts":[{"text":"q"}]}`,
			`{"role":"user","parts":[{"text":"q"}]},{"role":"user","parts":[{"text":"q"}]}`, "in a row",
		},
		{"ends with the model", `{"text":"note"}]}`, `{"text":"note"}]},{"role":"model","parts":[{"text":"x"}]}`, "last"},
		{"no parts", `"parts":[{"text":"q"}]`, `"parts":[]`, "parts"},
		{"N13 list", `"args":{}`, `"args":[]`, "N13"},
		{"N13 none", `,"args":{}`, ``, "N13"},
		{"N12 unanswered", `,{"functionResponse":{"name":"g","response":{"b":[{}]},"parts":[{"inlineData":{"mimeType":"image/png","data":"AAAA"}}]}}`, ``, "N12"},
		{"N12 one too many", `{"text":"note"}`, `{"functionResponse":{"name":"g","response":{}}}`, "N12"},
		{"N12 name", `{"functionResponse":{"name":"g"`, `{"functionResponse":{"name":"f"`, "N12"},
		{"ID", `{"functionResponse":{"id":"1"`, `{"functionResponse":{"id":"2"`, "waiting for"},
		{"text before result", `{"functionResponse":{"id":"1"`, `{"text":"x"},{"functionResponse":{"id":"1"`, "right after"},
	})
}

const goodOllama = `{"model":"m","stream":true,"think":true,"truncate":false,"options":{"num_ctx":8192,"temperature":0.5},"keep_alive":"5m",
"tools":[{"type":"function","function":{"name":"f","description":"","parameters":{"type":"object","properties":{"l":{"type":"array","items":{}}}}}},{"type":"function","function":{"name":"g","parameters":{"type":"object","properties":{}}}}],
"messages":[{"role":"system","content":"s"},{"role":"user","content":"q","images":["iVBORw0KGgo="]},
{"role":"assistant","content":"","thinking":"hm","tool_calls":[{"function":{"name":"f","arguments":{}}},{"function":{"name":"g","arguments":{"x":1}}}]},
{"role":"tool","content":"a","tool_name":"f"},{"role":"tool","content":"","tool_name":"g"},
{"role":"assistant","content":"done"},{"role":"user","content":"more"}]}`

func TestCheckOllamaRequest(t *testing.T) {
	checkBreakages(t, modeltest.Ollama, goodOllama, []breakage{
		{"twice", `"model":"m"`, `"model":"m","model":"m"`, "duplicate"},
		{"N8 empty tools", goodOllama[strings.Index(goodOllama, `[{"type"`):strings.Index(goodOllama, `,
"messages"`)], `[]`, "tools"},
		{"C5 sorted", `"name":"f","description"`, `"name":"z","description"`, "sorted"},
		{"no content", `{"role":"user","content":"more"}`, `{"role":"user"}`, "content"},
		{"1c.4 empty calls", `"content":"done"`, `"content":"done","tool_calls":[]`, "1c.4"},
		{"N14 text", `"arguments":{}`, `"arguments":"{}"`, "N14"},
		{"N13 list", `"arguments":{}`, `"arguments":[]`, "N13"},
		{
			"N14 call's ID", `{"function":{"name":"f","arguments"`, `{"id":"c","function":{"name":"f","arguments"`,
			"waiting for",
		},
		{"N12 unanswered", `,{"role":"tool","content":"","tool_name":"g"}`, ``, "N12"},
		{
			"N12 orphan", `{"role":"assistant","content":"done"}`, `{"role":"tool","content":"","tool_name":"g"}`,
			"answers no call",
		},
		{"N12 at the end", goodOllama[strings.Index(goodOllama, `,
{"role":"tool","content":"a"`):], `]}`, "not answered"},
	})
}

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
	checkBreakages(t, modeltest.Responses, goodResponses, []breakage{
		{"no model", `"model":"m"`, `"model":""`, "model"},
		{"tool twice", `"name":"f","description"`, `"name":"g","description"`, "twice"},
		{"C5 sorted", `"name":"f","description"`, `"name":"z","description"`, "sorted"},
		{"1c.4 properties", `"properties":{}`, `"properties":[]`, "properties"},
		{"choice of nobody", `"name":"g"},`, `"name":"x"},`, "tool_choice"},
		{"N13 list", `"arguments":"{}"`, `"arguments":"[]"`, "N13"},
		{"N12 unanswered", `{"type":"function_call_output","call_id":"c1","output":"a"},`, ``, "N12"},
		{
			"N12 order", `{"type":"function_call_output","call_id":"c1","output":"a"}`,
			`{"type":"function_call_output","call_id":"c2","output":"a"}`, "N12",
		},
		{"call twice", `"call_id":"c2","name":"g"`, `"call_id":"c1","name":"g"`, "used before"},
	})
}

func TestServers_RefuseWhatTheAPIRefuses(t *testing.T) {
	for _, d := range []modeltest.Dialect{modeltest.OpenAI, modeltest.Anthropic} {
		s := modeltest.NewServer(d, modeltest.ServerOptions{Steps: modeltest.Steps(modeltest.Text("hi"))})
		if err := s.Errors(); err != nil {
			t.Errorf("errors before any request: %v", err)
		}
		status := post(t, s, d, `{"model":""}`)
		if status != 400 || s.Errors() == nil || s.Count() != 1 || len(s.Requests()) != 1 {
			t.Errorf("%s: status %d, errors %v, %d requests", d, status, s.Errors(), s.Count())
		}
	}
}
