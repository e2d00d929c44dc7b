package anthropic_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/toolcrib/toolcrib/toolcribtest/modeltest"
)

// sentRequest has the fields of a request that the API's rules apply to.
type sentRequest struct {
	MaxTokens   int      `json:"max_tokens"`
	Temperature *float64 `json:"temperature"`
	Thinking    struct {
		Type   string `json:"type"`
		Budget int    `json:"budget_tokens"`
	} `json:"thinking"`
	ToolChoice struct{ Type string } `json:"tool_choice"`
	System     []sentBlock           `json:"system"`
	Messages   []struct {
		Role    string      `json:"role"`
		Content []sentBlock `json:"content"`
	} `json:"messages"`
}

type sentBlock struct {
	Type      string          `json:"type"`
	Text      string          `json:"text"`
	Thinking  *string         `json:"thinking"`
	Signature string          `json:"signature"`
	Data      string          `json:"data"`
	IsError   bool            `json:"is_error"`
	Cache     json.RawMessage `json:"cache_control"`
	Content   json.RawMessage `json:"content"`
	Source    struct {
		Type      string `json:"type"`
		MediaType string `json:"media_type"`
		Data      string `json:"data"`
	} `json:"source"`
}

// refuses returns errors that the API reports although its own types accept the request; nil if none.
func refuses(_ string, body []byte) error {
	var doc sentRequest
	if err := json.Unmarshal(body, &doc); err != nil {
		return err
	}
	var errs []error
	wrong := func(is bool, format string, args ...any) {
		if is {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	wrong(doc.MaxTokens < 1, "max_tokens: must be at least 1")
	if t := doc.Temperature; t != nil {
		wrong(*t < 0 || *t > 1, "temperature: must be 0 to 1")
		wrong(doc.thinks() && *t != 1, "temperature: does not go with thinking")
	}
	kind, budget := doc.Thinking.Type, doc.Thinking.Budget
	wrong(!slices.Contains([]string{"", "enabled", "adaptive", "disabled"}, kind), "thinking.type: %q", kind)
	wrong(kind != "enabled" && budget != 0, "thinking.budget_tokens: only with type enabled")
	wrong(kind == "enabled" && (budget < 1024 || budget >= doc.MaxTokens),
		"thinking.budget_tokens: must be at least 1024 and less than max_tokens")
	choice := doc.ToolChoice.Type
	wrong(!slices.Contains([]string{"", "auto", "none", "any", "tool"}, choice), "tool_choice.type: %q", choice)
	wrong((choice == "any" || choice == "tool") && doc.thinks(), "tool_choice: a forced tool does not go with thinking")
	for _, b := range doc.System {
		wrong(b.Type != "text", "system: must be text")
		errs = append(errs, b.refused()...)
	}
	for i, m := range doc.Messages {
		calls := false
		for _, b := range m.Content {
			errs = append(errs, b.refused()...)
			calls = calls || b.Type == "tool_use"
			ofAssistant := b.Type == "tool_use" || b.Type == "thinking" || b.Type == "redacted_thinking"
			wrong(ofAssistant && m.Role == "user", "messages[%d]: %s in a turn of the user", i, b.Type)
			wrong(b.Type == "tool_result" && m.Role != "user", "messages[%d]: tool_result in a turn of the assistant", i)
		}
		wrong(doc.Thinking.Type == "enabled" && calls && i == len(doc.Messages)-2 && !m.Content[0].reasons(),
			"messages[%d]: with thinking on, the turn must begin with thinking", i)
	}
	wrong(strings.Count(string(body), `"cache_control":{`) > 4, "cache_control: at most 4 marks")
	return errors.Join(errs...)
}

func (r *sentRequest) thinks() bool {
	return r.Thinking.Type == "enabled" || r.Thinking.Type == "adaptive"
}

func (b *sentBlock) reasons() bool { return b.Type == "thinking" || b.Type == "redacted_thinking" }

func (b *sentBlock) refused() (errs []error) {
	wrong := func(is bool, text string) {
		if is {
			errs = append(errs, fmt.Errorf("block of type %s: %s", b.Type, text))
		}
	}
	wrong(b.Cache != nil && string(b.Cache) != `{"type":"ephemeral"}`, "cache_control is "+string(b.Cache))
	wrong(b.reasons() && b.Cache != nil, "takes no cache_control")
	switch b.Type {
	case "text":
		wrong(strings.TrimSpace(b.Text) == "", "must hold more than white space")
	case "thinking":
		wrong(b.Thinking == nil || b.Signature == "", "needs thinking and signature")
	case "redacted_thinking":
		wrong(b.Data == "", "needs data")
	case "image", "document":
		wrong(b.Source.Data == "", "is empty")
		is := b.Type + " " + b.Source.Type + " " + b.Source.MediaType
		wrong(!slices.Contains([]string{
			"image base64 image/png", "image base64 image/jpeg", "image base64 image/gif", "image base64 image/webp",
			"document base64 application/pdf", "document text text/plain",
		}, is), is)
	case "tool_result":
		wrong(b.IsError && b.Content == nil, "content must not be empty with is_error")
		var said string
		var inner []sentBlock
		if json.Unmarshal(b.Content, &said) == nil {
			wrong(strings.TrimSpace(said) == "", "content is blank; leave it out")
		} else if b.Content != nil && json.Unmarshal(b.Content, &inner) != nil {
			wrong(true, "content is neither text nor blocks")
		}
		for _, one := range inner {
			wrong(b.IsError && one.Type != "text", "content must be text with is_error")
			errs = append(errs, one.refused()...)
		}
	case "tool_use":
	default:
		wrong(true, "unknown")
	}
	return errs
}

// check reports errors that the API would return for a request.
func check(body []byte) error {
	return errors.Join(modeltest.Anthropic.Check(body), refuses("", body))
}

const goodAnthropic = `{"model":"m","max_tokens":4096,"system":[{"type":"text","text":"s","cache_control":{"type":"ephemeral"}}],
"thinking":{"type":"enabled","budget_tokens":1024},
"tools":[{"name":"f","description":"d","input_schema":{"type":"object","properties":{}}},{"name":"g","input_schema":{"type":"object","properties":{}}}],"tool_choice":{"type":"auto"},
"messages":[{"role":"user","content":[{"type":"text","text":"q"}]},
{"role":"assistant","content":[{"type":"thinking","thinking":"hm","signature":"s"},{"type":"text","text":"t"},{"type":"tool_use","id":"a","name":"f","input":{}},{"type":"tool_use","id":"b","name":"g","input":{"x":1}}]},
{"role":"user","content":[{"type":"tool_result","tool_use_id":"a","content":"ok"},{"type":"tool_result","tool_use_id":"b","content":"no","is_error":true},{"type":"text","text":"note"}]}]}`

// Each case breaks one part of a valid request.
func TestRefuses(t *testing.T) {
	if err := refuses("", []byte(goodAnthropic)); err != nil {
		t.Fatalf("the good request is refused: %v", err)
	}
	mark := `,"cache_control":{"type":"ephemeral"}`
	for _, b := range []struct{ name, old, new, want string }{
		{"no bound", `"max_tokens":4096,`, ``, "max_tokens"},
		{"budget", `"max_tokens":4096`, `"max_tokens":1024`, "budget"},
		{"temperature", `"max_tokens":4096`, `"temperature":0.5,"max_tokens":4096`, "temperature"},
		{"hot", `"max_tokens":4096`, `"temperature":1.5,"max_tokens":4096`, "temperature"},
		{"forced", `{"type":"auto"}`, `{"type":"any"}`, "forced"},
		{"choice", `{"type":"auto"}`, `{"type":"required"}`, "tool_choice"},
		{"blank text", `"text":"t"`, `"text":"\n"`, "white space"},
		{"error without text", `"content":"no",`, ``, "is_error"},
		{"blank result", `"content":"ok"`, `"content":" "`, "blank"},
		{"thinking last", `{"type":"thinking","thinking":"hm","signature":"s"},`, ``, "begin with thinking"},
		{"unsigned thinking", `"signature":"s"`, `"signature":""`, "signature"},
		{"five marks", `"text":"note"}`, `"text":"note"` + mark + `},{"type":"text","text":"1"` + mark + `},{"type":"text","text":"2"` + mark + `},{"type":"text","text":"3"` + mark + `}`, "marks"},
		{"mark on thinking", `"signature":"s"`, `"signature":"s"` + mark, "cache_control"},
	} {
		if !strings.Contains(goodAnthropic, b.old) {
			t.Fatalf("%s: the good request does not hold %s", b.name, b.old)
		}
		err := refuses("", []byte(strings.Replace(goodAnthropic, b.old, b.new, 1)))
		if err == nil || !strings.Contains(err.Error(), b.want) {
			t.Errorf("%s: error %v, want one with %q", b.name, err, b.want)
		}
	}
}
