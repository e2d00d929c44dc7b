package modeltest_test

import (
	"strings"
	"testing"

	"github.com/toolcrib/toolcrib/toolcribtest/modeltest"
)

// Each case takes a good request and breaks one thing.
type breakage struct{ name, old, new, want string }

func checkBreakages(t *testing.T, d modeltest.Dialect, model, good string, list []breakage) {
	t.Helper()
	if err := d.Check(model, []byte(good)); err != nil {
		t.Fatalf("the good request is refused: %v", err)
	}
	for _, b := range list {
		t.Run(b.name, func(t *testing.T) {
			if !strings.Contains(good, b.old) {
				t.Fatalf("the good request does not hold %s", b.old)
			}
			err := d.Check(model, []byte(strings.Replace(good, b.old, b.new, 1)))
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
	checkBreakages(t, modeltest.OpenAI, "", goodOpenAI, []breakage{
		{"no JSON", `{"model"`, `{model`, "JSON"},
		{"trailing", `"more"}]}`, `"more"}]} {}`, "follows"},
		{"unknown field", `"model":"m"`, `"model":"m","num_ctx":1`, "unknown field"},
		{"twice", `"model":"m"`, `"model":"m","model":"m"`, "twice"},
		{"no model", `"model":"m"`, `"model":""`, "model"},
		{"stream options", `"stream":true`, `"stream":false`, "stream_options"},
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
		{"role", `"role":"system"`, `"role":"sys"`, "role"},
		{"N12 unanswered", `{"role":"tool","tool_call_id":"c2","content":""},`, ``, "N12"},
		{"N12 orphan", `"tool_call_id":"c2"`, `"tool_call_id":"c9"`, "waiting for"},
		{"N12 answered twice", `"tool_call_id":"c2"`, `"tool_call_id":"c1"`, "waiting for"},
		{"N12 order", `"c1","content":"a"},{"role":"tool","tool_call_id":"c2"`, `"c2","content":"a"},{"role":"tool","tool_call_id":"c1"`, "waiting for"},
		{"result without text", `"content":"a"`, `"content":null`, "string"},
		{"empty ID", `"id":"c1"`, `"id":""`, "match"},
		{"same ID", `"id":"c1"`, `"id":"c2"`, "twice"},
		{"N13 list", `"arguments":"{}"`, `"arguments":"[]"`, "N13"},
		{"N13 object", `"arguments":"{}"`, `"arguments":{}`, "arguments"},
		{"N13 broken", `"arguments":"{}"`, `"arguments":"{"`, "N13"},
		{"call's name", `"name":"f","arguments"`, `"name":"f()","arguments"`, "match"},
		{"two limits", `"stream":true`, `"max_tokens":1,"max_completion_tokens":1,"stream":true`, "exclude"},
		{"effort", `"stream":true`, `"reasoning_effort":"off","stream":true`, "reasoning_effort"},
	})
}

const goodAnthropic = `{"model":"m","max_tokens":4096,"system":[{"type":"text","text":"s","cache_control":{"type":"ephemeral"}}],
"thinking":{"type":"enabled","budget_tokens":1024},
"tools":[{"name":"f","description":"d","input_schema":{"type":"object","properties":{}}},{"name":"g","input_schema":{"type":"object","properties":{}}}],"tool_choice":{"type":"auto"},
"messages":[{"role":"user","content":"q"},
{"role":"assistant","content":[{"type":"thinking","thinking":"hm","signature":"s"},{"type":"text","text":"t"},{"type":"tool_use","id":"a","name":"f","input":{}},{"type":"tool_use","id":"b","name":"g","input":{"x":1}}]},
{"role":"user","content":[{"type":"tool_result","tool_use_id":"a","content":"ok"},{"type":"tool_result","tool_use_id":"b","content":"no","is_error":true},{"type":"text","text":"note"}]}]}`

func TestCheckAnthropicRequest(t *testing.T) {
	mark := `,"cache_control":{"type":"ephemeral"}`
	checkBreakages(t, modeltest.Anthropic, "", goodAnthropic, []breakage{
		{"unknown field", `"model":"m"`, `"model":"m","stop":1`, "unknown field"},
		{"no bound", `"max_tokens":4096,`, ``, "max_tokens"},
		{"budget", `"max_tokens":4096`, `"max_tokens":1024`, "budget"},
		{"temperature", `"max_tokens":4096`, `"temperature":0.5,"max_tokens":4096`, "temperature"},
		{"hot", `"max_tokens":4096`, `"temperature":1.5,"max_tokens":4096`, "temperature"},
		{"forced", `{"type":"auto"}`, `{"type":"any"}`, "forced"},
		{"choice", `{"type":"auto"}`, `{"type":"required"}`, "tool_choice"},
		{"choice without tools", goodAnthropic[strings.Index(goodAnthropic, `"tools"`):strings.Index(goodAnthropic, `"tool_choice"`)], ``, "tool_choice"},
		{"tool name", `"name":"f","description"`, `"name":"f.x","description"`, "match"},
		{"blank description", `"description":"d"`, `"description":" "`, "description"},
		{"1c.4 properties", `"properties":{}`, `"properties":[]`, "properties"},
		{"assistant first", `{"role":"user","content":"q"},`, ``, "in a row"},
		{"two users", `{"role":"user","content":"q"},`, `{"role":"user","content":"q"},{"role":"user","content":"q"},`, "in a row"},
		{"system role", `{"role":"user","content":"q"}`, `{"role":"system","content":"q"}`, "role"},
		{"blank text", `"text":"t"`, `"text":"\n"`, "white space"},
		{"blank content", `"content":"q"`, `"content":""`, "blank"},
		{"empty content", `"content":"q"`, `"content":[]`, "empty"},
		{"ID", `"id":"a"`, `"id":"a:0"`, "match"},
		{"same ID", `"id":"a"`, `"id":"b"`, "twice"},
		{"N13 list", `"input":{}`, `"input":[]`, "N13"},
		{"N12 unanswered", `{"type":"tool_result","tool_use_id":"b","content":"no","is_error":true},`, ``, "N12"},
		{"N12 orphan", `"tool_use_id":"b"`, `"tool_use_id":"c"`, "N12"},
		{"text before result", `{"type":"tool_result","tool_use_id":"a"`, `{"type":"text","text":"x"},{"type":"tool_result","tool_use_id":"a"`, "right after"},
		{"error without text", `"content":"no",`, ``, "is_error"},
		{"blank result", `"content":"ok"`, `"content":" "`, "blank"},
		{"thinking last", `{"type":"thinking","thinking":"hm","signature":"s"},`, ``, "begin with thinking"},
		{"unsigned thinking", `"signature":"s"`, `"signature":""`, "signature"},
		{"results split", `,{"type":"tool_result","tool_use_id":"b"`, `]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"b"`, "N12"},
		{"ends with assistant", `,{"type":"text","text":"note"}]}`, `]},{"role":"assistant","content":"x"}`, "last"},
		{"five marks", `"text":"note"}`, `"text":"note"` + mark + `},{"type":"text","text":"1"` + mark + `},{"type":"text","text":"2"` + mark + `},{"type":"text","text":"3"` + mark + `}`, "marks"},
		{"mark on thinking", `"signature":"s"`, `"signature":"s"` + mark, "cache_control"},
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
