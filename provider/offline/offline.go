// Package offline is the model that needs no network: a few rules over the last
// prompt of a person, so that a newcomer sees a real run within a minute
// (contract §4). It is no language model, and says so.
//
// It drives whatever tools are offered to it, reads their real results in the
// messages of the request, and keeps nothing between two requests: the same
// messages always get the same reply. Questions about the files of the workspace
// in English, and simple ones in German, are answered; anything else gets a text
// that says what can be asked and how a real model is set up.
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
type Model struct{}

// New returns the offline model.
func New() Model { return Model{} }

// Stream answers the last user message of req, or asks for the tools that the
// answer needs. It fails only if ctx ends.
func (Model) Stream(ctx context.Context, req *toolcrib.Request) iter.Seq2[toolcrib.Delta, error] {
	return func(yield func(toolcrib.Delta, error) bool) {
		if err := ctx.Err(); err != nil {
			yield(toolcrib.Delta{}, err)
			return
		}
		message := reply(req)
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

// reply makes the whole reply. The tasks of the prompt are carried out from their
// beginning each time: what they ask a tool for is either answered by the messages
// already, or becomes a call of this reply.
func reply(req *toolcrib.Request) toolcrib.Message {
	t := newTurn(req)
	answer := t.answer()
	t.choose(req)
	if len(t.wanted) == 0 {
		return toolcrib.TextMessage(toolcrib.RoleAssistant, answer)
	}
	m := toolcrib.Message{Role: toolcrib.RoleAssistant}
	for _, call := range t.wanted[:min(len(t.wanted), maxCalls)] {
		m.Parts = append(m.Parts, toolcrib.Part{ToolCall: &call})
	}
	return m
}

// choose bends the calls to the tool choice of the request (H13), as far as rules
// can: a tool whose arguments cannot be made up is not called.
func (t *turn) choose(req *toolcrib.Request) {
	switch req.ToolChoice.Mode {
	case toolcrib.ChoiceNone:
		t.wanted = nil
	case toolcrib.ChoiceRequired:
		if len(t.wanted) > 0 {
			return
		}
		for _, name := range []string{listDirectory, "get_tree", searchFiles} {
			if spec, ok := t.offered[name]; ok {
				t.want(name, t.makeUp(spec))
				return
			}
		}
		if len(req.Tools) > 0 {
			t.want(req.Tools[0].Name, t.makeUp(req.Tools[0]))
		}
	case toolcrib.ChoiceName:
		var named []toolcrib.ToolCall
		for _, call := range t.wanted {
			if call.Name == req.ToolChoice.Name {
				named = append(named, call)
			}
		}
		t.wanted = named
		if spec, ok := t.offered[req.ToolChoice.Name]; ok && len(named) == 0 {
			t.want(spec.Name, t.makeUp(spec))
		}
	}
}

// makeUp fills the required parameters of a tool from the prompt.
func (t *turn) makeUp(spec toolcrib.Spec) arguments {
	var schema struct {
		Required   []string `json:"required"`
		Properties map[string]struct {
			Type    any      `json:"type"`
			Enum    []any    `json:"enum"`
			Minimum *float64 `json:"minimum"`
		} `json:"properties"`
	}
	if json.Unmarshal(spec.Parameters, &schema) != nil {
		return arguments{}
	}
	if len(schema.Required) == 0 && spec.Name == searchFiles {
		return arguments{"glob": "*"}
	}
	made := arguments{}
	for _, name := range schema.Required {
		p := schema.Properties[name]
		switch {
		case len(p.Enum) > 0:
			made[name] = p.Enum[0]
		case p.Type == "integer", p.Type == "number":
			made[name] = 1
			if p.Minimum != nil {
				made[name] = *p.Minimum
			}
		case p.Type == "boolean":
			made[name] = false
		case p.Type == "array":
			made[name] = []any{}
		case p.Type == "object":
			made[name] = map[string]any{}
		case name == "path" || strings.Contains(name, "file"):
			made[name] = t.firstFile(spec.Name)
		default:
			made[name] = t.prompt
		}
	}
	return made
}

// firstFile is a file that the prompt names, or else a likely one.
func (t *turn) firstFile(tool string) string {
	for _, c := range t.clauses {
		if len(c.files) > 0 {
			return c.files[0]
		}
	}
	if tool == readFile {
		return "README.md"
	}
	return "."
}

// usage estimates the tokens as a quarter of the bytes, for there is no tokenizer;
// it costs nothing.
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
