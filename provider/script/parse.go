package script

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/internal/deltas"
	"github.com/toolcrib/toolcrib/internal/yamltree"
)

const maxBytes = 1 << 20 // of a script

// limits of a script.
var limits = yamltree.Limits{Bytes: maxBytes, Tokens: 200_000, Depth: 64}

// reply is one entry of a script.
type reply struct {
	number     int // from 1
	message    toolcrib.Message
	finish     toolcrib.Finish
	delay      time.Duration
	failure    toolcrib.ErrorClass // "" = none
	retryAfter time.Duration
}

// written is a reply as the file has it. A key without a value counts as not given.
type written struct {
	Text       string            `yaml:"text" null:"true"`
	Thinking   string            `yaml:"thinking" null:"true"`
	ToolCalls  []call            `yaml:"tool_calls" null:"true"`
	Usage      *usage            `yaml:"usage"`
	Delay      yamltree.Duration `yaml:"delay" null:"true" max:"1h"`
	RetryAfter yamltree.Duration `yaml:"retry_after" null:"true" max:"1h"`
	Error      string            `yaml:"error" null:"true" enum:"auth|rate_limit|overloaded|context_length|bad_request|timeout|network|refused|other"`
	Finish     string            `yaml:"finish" null:"true" enum:"stop|tool_calls|length|filtered|other"`
}

type call struct {
	Name      string    `yaml:"name" required:"true" format:"name"`
	ID        string    `yaml:"id" null:"true"`
	Arguments arguments `yaml:"arguments" null:"true"`
}

type usage struct {
	Input       int64 `yaml:"input" default:"0" min:"0"`
	CachedInput int64 `yaml:"cached_input" default:"0" min:"0"`
	Output      int64 `yaml:"output" default:"0" min:"0"`
}

// arguments are an object, as JSON, or a string as it is.
type arguments []byte

// DecodeYAML reads arguments.
func (a *arguments) DecodeYAML(d *yamltree.Decoder, n *yamltree.Node, f yamltree.Field) {
	switch n.Kind {
	case yamltree.Text:
		*a = arguments(n.Text)
	case yamltree.Map:
		(*yamltree.JSON)(a).DecodeYAML(d, n, f)
	default:
		d.Errorf(n, "must be a mapping, or a text that is sent as it is, not %s", n.Kind)
	}
}

// check says what is wrong with a text.
func check(f yamltree.Field, text string) string {
	if f.Format == "name" && text == "" {
		return "must not be empty"
	}
	return ""
}

// parse reads a script. file is the name that its errors use.
func parse(file string, source []byte) ([]reply, error) {
	root, errs := yamltree.Parse(source, limits)
	d := yamltree.Decoder{Check: check, Errors: errs}
	var replies []reply
	switch {
	case root == nil:
	case root.Kind == yamltree.Null:
		return nil, fmt.Errorf("%s: a script is a list of replies; this one is empty", file)
	case root.Kind != yamltree.List:
		d.Errorf(root, "a script is a list of replies, not %s", root.Kind)
	default:
		for i, n := range root.Items {
			r := read(&d, n)
			r.number = i + 1
			replies = append(replies, r)
		}
	}
	if len(d.Errors) == 0 {
		return replies, nil
	}
	first := d.Errors[0]
	_, key, _ := strings.Cut(first.Key, "]") // its line says which reply
	if key = strings.TrimPrefix(key, "."); key != "" {
		key += ": "
	}
	return nil, fmt.Errorf("%s:%d: %s%s", file, first.Line, key, first.Message)
}

// read reads one entry of the list.
func read(d *yamltree.Decoder, n *yamltree.Node) reply {
	var w written
	if d.Decode(n, &w); len(d.Errors) > 0 {
		return reply{}
	}
	r := reply{
		delay: w.Delay.Std(), failure: toolcrib.ErrorClass(w.Error), retryAfter: w.RetryAfter.Std(),
		finish: toolcrib.Finish{Reason: toolcrib.FinishReason(w.Finish)},
	}
	switch {
	case w.Error != "" && w.Finish != "":
		d.Errorf(n, "a reply ends with finish or with error, not with both")
	case w.RetryAfter != 0 && w.Error == "":
		d.Errorf(n, "retry_after goes with error only")
	case w.Usage != nil && w.Usage.CachedInput > w.Usage.Input:
		d.Errorf(n, "usage.cached_input: %d is more than input (%d), of which it is a part", w.Usage.CachedInput,
			w.Usage.Input)
	case w.Usage != nil:
		r.finish.Usage = toolcrib.TokenUsage{
			InputTokens: w.Usage.Input, CachedInputTokens: w.Usage.CachedInput, OutputTokens: w.Usage.Output, Reported: true,
		}
	}
	r.message.Role = toolcrib.RoleAssistant
	if w.Thinking != "" {
		r.message.Parts = append(r.message.Parts, toolcrib.Part{Thinking: &toolcrib.Thinking{Text: w.Thinking}})
	}
	if w.Text != "" {
		r.message.Parts = append(r.message.Parts, toolcrib.Part{Text: w.Text})
	}
	for _, c := range w.ToolCalls {
		made := &toolcrib.ToolCall{ID: c.ID, Name: c.Name, Arguments: []byte("{}")}
		if c.Arguments != nil {
			made.Arguments = json.RawMessage(c.Arguments)
		}
		r.message.Parts = append(r.message.Parts, toolcrib.Part{ToolCall: made})
	}
	if r.finish.Reason == "" {
		r.finish.Reason = deltas.Reason(r.message)
	}
	return r
}
