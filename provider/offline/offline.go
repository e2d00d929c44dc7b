// Package offline is the built-in model that needs no network: a few rules over the
// last prompt, so that a newcomer sees a real run within a minute (contract §4). It is
// no language model, and says so.
//
// It drives the tools that it is offered, reads their real results in the messages of
// the request, and keeps nothing between two requests: the same messages always get
// the same reply.
package offline

import (
	"context"
	"encoding/json"
	"iter"
	"strings"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/internal/deltas"
)

// Name is what the model calls itself in [toolcrib.Finish].
const Name = "offline"

// Model is the offline model. It has no state; the zero value is ready to use.
type Model struct {
	Alone   bool   // no person can be asked while the run goes: the tour writes nothing
	Command string // how toolcrib is called, in the commands that an answer names; "" = toolcrib
}

// New returns the offline model.
func New() Model { return Model{} }

// Stream answers the last user message of req, or asks for the tools that the
// answer needs. It fails only if ctx ends.
func (m Model) Stream(ctx context.Context, req *toolcrib.Request) iter.Seq2[toolcrib.Delta, error] {
	return func(yield func(toolcrib.Delta, error) bool) {
		if err := ctx.Err(); err != nil {
			yield(toolcrib.Delta{}, err)
			return
		}
		message := m.reply(req)
		for d := range deltas.Of(message) {
			if err := ctx.Err(); err != nil {
				yield(toolcrib.Delta{}, err)
				return
			}
			if !yield(d, nil) {
				return
			}
		}
		yield(toolcrib.Delta{Finish: &toolcrib.Finish{
			Reason: deltas.Reason(message), Model: Name, Usage: usage(req, message),
		}}, nil)
	}
}

// reply makes the whole reply: the calls that the next task needs, or the answer.
func (m Model) reply(req *toolcrib.Request) toolcrib.Message {
	t := newTurn(req)
	t.Model = m
	answer := t.answer()
	t.choose(req)
	if len(t.wanted) == 0 {
		return toolcrib.TextMessage(toolcrib.RoleAssistant, answer)
	}
	calls := toolcrib.Message{Role: toolcrib.RoleAssistant}
	for _, call := range t.wanted {
		calls.Parts = append(calls.Parts, toolcrib.Part{ToolCall: &call})
	}
	return calls
}

// choose bends the calls to the tool choice of the request (H13).
func (t *turn) choose(req *toolcrib.Request) {
	switch choice := req.ToolChoice; choice.Mode {
	case toolcrib.ChoiceNone:
		t.wanted = nil
	case toolcrib.ChoiceRequired:
		if len(t.wanted) == 0 && len(req.Tools) > 0 {
			spec, ok := t.offered[listDirectory]
			if !ok {
				spec = req.Tools[0]
			}
			t.want(spec.Name, t.makeUp(&spec))
		}
	case toolcrib.ChoiceName:
		wanted := t.wanted
		t.wanted = nil
		for _, call := range wanted {
			if call.Name == choice.Name {
				t.wanted = append(t.wanted, call)
			}
		}
		if spec, ok := t.offered[choice.Name]; ok && len(t.wanted) == 0 {
			t.want(spec.Name, t.makeUp(&spec))
		}
	}
}

// makeUp fills the required parameters of a tool, as well as a rule can.
func (t *turn) makeUp(spec *toolcrib.Spec) arguments {
	var schema struct {
		Required   []string `json:"required"`
		Properties map[string]struct {
			Type any   `json:"type"`
			Enum []any `json:"enum"`
		} `json:"properties"`
	}
	made := arguments{}
	if json.Unmarshal(spec.Parameters, &schema) != nil {
		return made
	}
	for _, name := range schema.Required {
		switch p := schema.Properties[name]; {
		case len(p.Enum) > 0:
			made[name] = p.Enum[0]
		case p.Type == "integer", p.Type == "number":
			made[name] = 1
		case p.Type == "boolean":
			made[name] = false
		case p.Type == "array":
			made[name] = []any{}
		case p.Type == "object":
			made[name] = map[string]any{}
		case name == "path":
			made[name] = "README.md"
			if file := fileIn(t.prompt); file != "" {
				made[name] = file
			}
		default:
			made[name] = t.prompt
		}
	}
	return made
}

// usage estimates a token as four bytes; nothing of it costs anything.
func usage(req *toolcrib.Request, reply toolcrib.Message) toolcrib.TokenUsage {
	in := len(req.System)
	for _, m := range req.Messages {
		in += size(m)
	}
	for _, spec := range req.Tools {
		in += len(spec.Name) + len(spec.Description) + len(spec.Parameters)
	}
	free := 0.0
	return toolcrib.TokenUsage{
		InputTokens: int64(in/4 + 1), OutputTokens: int64(size(reply)/4 + 1), CostUSD: &free, Reported: true,
	}
}

func size(m toolcrib.Message) (n int) {
	for _, p := range m.Parts {
		n += len(p.Text)
		if p.ToolCall != nil {
			n += len(p.ToolCall.Name) + len(p.ToolCall.Arguments)
		}
		if p.ToolResult != nil {
			n += len(p.ToolResult.Content)
		}
	}
	return n
}

const (
	signature = "offline model"
	footer    = "(This is toolcrib's offline model: a few rules, not a language model. " + howToConfigure + ")"

	howToConfigure = "For a real one set ANTHROPIC_API_KEY, OPENAI_API_KEY or GEMINI_API_KEY, or start Ollama."
	introduction   = "I am toolcrib's offline model: a few fixed rules, not a language model. " +
		"I cannot reason or write prose; I can drive the real tools for a few kinds of requests, " +
		"through the same loop, gate and journal that a real model gets."
)

// help says what this model is, what can be asked, and how to set up a real one.
func help(t *turn) string {
	var b strings.Builder
	b.WriteString(introduction + "\n\n")
	some := false
	for _, e := range []struct{ tool, prompt string }{
		{listDirectory, "Show me around and leave a note"},
		{listDirectory, "What files are here?"},
		{readFile, "Show me README.md"},
		{readFile, "How many lines has README.md?"},
		{searchFiles, `Which files mention "context"?`},
		{readFile, "What is this project about?"},
		{writeFile, `Write "hello" to notes.txt`},
		{editFile, `Replace "hello" with "good morning" in notes.txt`},
		{execShell, "Run `wc -l README.md`"},
	} {
		if _, ok := t.offered[e.tool]; ok {
			if !some {
				b.WriteString("Try:\n")
			}
			some = true
			b.WriteString("- " + e.prompt + "\n")
		}
	}
	if !some {
		b.WriteString("None of the tools that I know is offered to me in this request.\n")
	}
	b.WriteString("\n" + howToConfigure)
	return b.String()
}
