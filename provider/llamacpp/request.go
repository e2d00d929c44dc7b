package llamacpp

import (
	"bytes"
	"context"
	"encoding/json"
	"iter"
	"slices"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/provider/wire"
)

// conversation changes the requests of one run for the adapter below it. It
// serves one goroutine.
type conversation struct {
	model *Model
	chat  toolcrib.Model

	hash  string // of the tools that were fitted last; "" = unknown
	tools []toolcrib.Spec
	extra extraKey
	raw   json.RawMessage
}

// extraKey is what the extra fields of a request follow from.
type extraKey struct {
	given     string
	reasoning string
	tools     bool
	made      bool
}

// Stream implements [toolcrib.Model].
func (c *conversation) Stream(ctx context.Context, req *toolcrib.Request) iter.Seq2[toolcrib.Delta, error] {
	return func(yield func(toolcrib.Delta, error) bool) {
		withTools := len(req.Tools) > 0
		if withTools && c.model.refusesTools(ctx) {
			yield(toolcrib.Delta{}, &toolcrib.ModelError{
				Class: toolcrib.ErrBadRequest, Provider: c.model.opts.Name, Unsent: true, NoTools: true,
				Message: "the chat template of the model knows no tools: start llama-server with --chat-template-file for one that does, or set tools: text for the model",
			})
			return
		}
		fitted := c.fit(req)
		for d, err := range c.chat.Stream(ctx, &fitted) {
			if err != nil {
				err = c.model.explain(err, withTools)
			}
			if !yield(d, err) {
				return
			}
		}
	}
}

// fit makes the request that llama-server takes. The one given stays as it is.
func (c *conversation) fit(req *toolcrib.Request) toolcrib.Request {
	r := *req
	c.fitTools(req)
	r.Tools = c.tools
	// The server reads a tool choice as a word and takes an object for auto: a
	// named tool is the only one of its request, and required.
	if name := req.ToolChoice.Name; req.ToolChoice.Mode == toolcrib.ChoiceName {
		if at := slices.IndexFunc(c.tools, func(s toolcrib.Spec) bool { return s.Name == name }); at >= 0 {
			r.Tools, r.ToolsHash = c.tools[at:at+1], ""
			r.ToolChoice = toolcrib.ToolChoice{Mode: toolcrib.ChoiceRequired}
		}
	}
	// One grammar cannot hold both the calls and the answer.
	if len(r.OutputSchema) > 0 && len(r.Tools) > 0 {
		r.System, r.OutputSchema = wire.WithSchemaInstruction(r.System, r.OutputSchema), nil
	} else if schema, err := wire.GrammarSchema(r.OutputSchema); err == nil {
		r.OutputSchema = schema
	}
	r.Extra = c.extraOf(req)
	return r
}

func (c *conversation) fitTools(req *toolcrib.Request) {
	if c.hash != "" && c.hash == req.ToolsHash {
		return
	}
	c.hash, c.tools = req.ToolsHash, slices.Clone(req.Tools)
	for i := range c.tools {
		// A schema that is no schema is told by the adapter below.
		if schema, err := c.model.schemas.Of(&c.tools[i]); err == nil {
			c.tools[i].Parameters = schema
		}
	}
}

// extraOf adds the fields that only llama-server has; those of the configuration
// win.
func (c *conversation) extraOf(req *toolcrib.Request) json.RawMessage {
	key := extraKey{given: string(req.Extra), reasoning: req.Reasoning, tools: len(req.Tools) > 0, made: true}
	if key == c.extra {
		return c.raw
	}
	c.extra, c.raw = key, withFields(req)
	return c.raw
}

func withFields(req *toolcrib.Request) json.RawMessage {
	given, err := wire.ParseExtra(req.Extra)
	if err != nil {
		return req.Extra // the adapter below says what is wrong
	}
	raw := bytes.TrimSpace(req.Extra)
	if len(given.Fields) == 0 {
		raw = []byte("{}")
	}
	out := append([]byte{}, raw[:len(raw)-1]...)
	add := func(name, value string) {
		if given.Get(name) != nil {
			return
		}
		if len(bytes.TrimSpace(out)) > 1 {
			out = append(out, ',')
		}
		out = append(append(wire.AppendString(out, name), ':'), value...)
	}
	if len(req.Tools) > 0 {
		add("parallel_tool_calls", "true")
	}
	// Which of the two a template reads differs; the server passes both on.
	switch req.Reasoning {
	case "":
	case "off":
		add("chat_template_kwargs", `{"enable_thinking":false}`)
	default:
		add("chat_template_kwargs", `{"enable_thinking":true,"reasoning_effort":`+string(wire.AppendString(nil,
			req.Reasoning))+`}`)
	}
	if len(out) == 1 {
		return req.Extra
	}
	return append(out, '}')
}
