package openai

import (
	"context"
	"iter"
	"math"
	"slices"
	"strconv"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/provider/wire"
)

// Limits of OpenAI's own API.
const (
	maxCallID      = 40
	maxName        = 64
	maxTools       = 128
	maxDescription = 1024
)

// conversation keeps the encoded history of one run. It serves one goroutine.
type conversation struct {
	model   *Model
	history wire.History
	stream  bool
	notices []toolcrib.Notice // of the request at hand
}

// Stream implements [toolcrib.Model].
func (c *conversation) Stream(ctx context.Context, req *toolcrib.Request) iter.Seq2[toolcrib.Delta, error] {
	return func(yield func(toolcrib.Delta, error) bool) {
		body, err := c.encode(req)
		if err != nil {
			yield(toolcrib.Delta{}, err)
			return
		}
		d := &decoder{provider: c.model.opts.Name, notices: c.notices}
		c.model.client.Exchange(ctx, "chat/completions", body, d, yield)
	}
}

func (c *conversation) encode(req *toolcrib.Request) (*wire.Body, error) {
	h := &c.history
	if err := h.ReadExtra(req, "model", "messages", "tools"); err != nil {
		return nil, &toolcrib.ModelError{Class: toolcrib.ErrBadRequest, Provider: c.model.opts.Name, Unsent: true, Message: err.Error()}
	}
	messages, fresh := h.New(req)
	if fresh && req.System != "" {
		h.Messages = append(h.Messages, `{"role":"system","content":`...)
		h.Messages = append(wire.AppendString(h.Messages, req.System), '}')
	}
	for i := range messages {
		h.Messages = c.appendMessage(h.Messages, &messages[i])
	}
	if h.ToolsChanged(req) {
		c.encodeTools(req.Tools)
	}
	c.notices = slices.Clip(h.Notices)
	c.encodeHead(req)
	if len(h.Tools) == 0 {
		return h.Sent(h.Head, messagesOpen, h.Messages, bodyEnd), nil
	}
	return h.Sent(h.Head, toolsOpen, h.Tools, listEnd, messagesOpen, h.Messages, bodyEnd), nil
}

var (
	toolsOpen    = []byte(`,"tools":[`)
	listEnd      = []byte(`]`)
	messagesOpen = []byte(`,"messages":[`)
	bodyEnd      = []byte(`]}`)
)

// encodeHead encodes everything but tools and messages. It is small, so it is
// made anew each time.
func (c *conversation) encodeHead(req *toolcrib.Request) {
	h, r := &c.history, c.model.rules
	var o wire.Object
	extra := h.Extra
	c.stream = !c.model.opts.NoStream && string(extra.Get("stream")) != "false"
	o.Begin(h.Head[:0], without(extra, c.stream))
	o.Always("model")
	o.Buf = wire.AppendString(o.Buf, req.Model)
	if c.stream {
		o.Always("stream")
		o.Buf = append(o.Buf, "true"...)
		if o.Member("stream_options") {
			o.Buf = append(o.Buf, `{"include_usage":true}`...)
		}
	}
	c.encodeSampling(&o, req)
	if req.MaxOutputTokens > 0 {
		field := r.maxTokens(req.Model)
		if o.Extra.Get(FieldMaxTokens) == nil && o.Extra.Get(FieldMaxCompletionTokens) == nil && o.Member(field) {
			o.Buf = strconv.AppendInt(o.Buf, int64(req.MaxOutputTokens), 10)
		}
	}
	if len(req.OutputSchema) > 0 && o.Member("response_format") {
		o.Buf = append(o.Buf, `{"type":"json_schema","json_schema":{"name":"answer","schema":`...)
		o.Buf = append(append(o.Buf, req.OutputSchema...), `}}`...)
	}
	if len(h.Tools) > 0 {
		c.encodeToolChoice(&o, req.ToolChoice)
	}
	o.End()
	h.Head = o.Buf
}

// without leaves the fields of the stream to the adapter; stream_options is an
// error where nothing is streamed.
func without(extra wire.Extra, stream bool) wire.Extra {
	if extra.Get("stream") == nil && (stream || extra.Get("stream_options") == nil) {
		return extra
	}
	kept := slices.DeleteFunc(slices.Clone(extra.Fields), func(f wire.Field) bool {
		return f.Name == "stream" || !stream && f.Name == "stream_options"
	})
	return wire.Extra{Fields: kept}
}

func (c *conversation) encodeSampling(o *wire.Object, req *toolcrib.Request) {
	r := c.model.rules
	if t := req.Temperature; t != nil && !math.IsNaN(*t) && !math.IsInf(*t, 0) {
		switch {
		case r.vendor && refusesTemperature(req.Model):
			c.ignored("temperature", req.Model)
		case o.Member("temperature"):
			o.Buf = wire.AppendFloat(o.Buf, *t)
		}
	}
	effort := req.Reasoning
	if effort == "off" {
		effort = "none"
		if r.vendor && refusesTemperature(req.Model) {
			effort = "minimal" // these models always reason
			if bareModel(req.Model)[0] == 'o' {
				effort = "low"
			}
		}
	}
	if r.vendor && len(c.history.Tools) > 0 && toolsWithoutReasoning(req.Model) && effort != "none" {
		if effort != "" {
			c.ignored("reasoning", req.Model+" with tools on this API")
		}
		effort = "none"
	}
	if effort != "" && o.Member("reasoning_effort") {
		o.Buf = wire.AppendString(o.Buf, effort)
	}
}

func (c *conversation) ignored(parameter, where string) {
	c.notices = append(c.notices, wire.Notice(wire.NoticeParameterIgnored, "%s is not sent: %s does not take it", parameter, where))
}

func (c *conversation) encodeToolChoice(o *wire.Object, choice toolcrib.ToolChoice) {
	var value string
	switch choice.Mode {
	case toolcrib.ChoiceAuto, toolcrib.ChoiceNone, toolcrib.ChoiceRequired:
		value = choice.Mode
	case toolcrib.ChoiceName:
		if !slices.Contains(c.history.ToolNames, choice.Name) {
			c.ignored("tool_choice", "the request without tool "+choice.Name)
			return
		}
	default:
		return
	}
	if !o.Member("tool_choice") {
		return
	}
	if value != "" {
		o.Buf = wire.AppendString(o.Buf, value)
		return
	}
	o.Buf = append(o.Buf, `{"type":"function","function":{"name":`...)
	o.Buf = append(wire.AppendString(o.Buf, choice.Name), `}}`...)
}

func (c *conversation) encodeTools(specs []toolcrib.Spec) {
	h := &c.history
	for i := range specs {
		spec := &specs[i]
		schema, err := c.model.schemas.Object(spec.Parameters)
		switch {
		case err != nil:
			h.Notices = append(h.Notices, wire.Notice(wire.NoticeToolUnusable, "tool %s is left out: %s", spec.Name, err))
			continue
		case spec.Name != wire.Token(spec.Name, maxName):
			h.Notices = append(h.Notices, wire.Notice(wire.NoticeToolUnusable, "tool %q is left out: its name is not taken by this API", spec.Name))
			continue
		case c.model.rules.vendor && len(h.ToolNames) == maxTools:
			h.Notices = append(h.Notices, wire.Notice(wire.NoticeToolUnusable, "tool %s is left out: this API takes %d tools at most", spec.Name, maxTools))
			continue
		}
		description := spec.Description
		if c.model.rules.vendor {
			description = wire.Clip(description, maxDescription)
		}
		if len(h.Tools) > 0 {
			h.Tools = append(h.Tools, ',')
		}
		h.Tools = append(h.Tools, `{"type":"function","function":{"name":`...)
		h.Tools = wire.AppendString(h.Tools, spec.Name)
		h.Tools = append(h.Tools, `,"description":`...)
		h.Tools = wire.AppendString(h.Tools, description)
		h.Tools = append(h.Tools, `,"parameters":`...)
		h.Tools = append(append(h.Tools, schema...), `}}`...)
		h.ToolNames = append(h.ToolNames, spec.Name)
	}
}

func (c *conversation) appendMessage(dst []byte, m *toolcrib.Message) []byte {
	switch m.Role {
	case toolcrib.RoleAssistant:
		return c.appendAssistant(dst, m)
	case toolcrib.RoleTool:
		for i := range m.Parts {
			if r := m.Parts[i].ToolResult; r != nil {
				dst = append(separator(dst), `{"role":"tool","tool_call_id":`...)
				dst = wire.AppendString(dst, callID(r.CallID))
				dst = append(dst, `,"content":`...)
				dst = append(wire.AppendString(dst, r.Content), '}')
			}
		}
		return dst
	}
	dst = append(separator(dst), `{"role":"user","content":"`...)
	for i := range m.Parts {
		if f := m.Parts[i].File; f != nil {
			dst = wire.AppendEscaped(dst, wire.FileText(f))
			continue
		}
		dst = wire.AppendEscaped(dst, m.Parts[i].Text)
	}
	return append(dst, `"}`...)
}

// appendAssistant encodes a turn of the model. Its content is null, not "", if
// it only calls tools (4c.2). A turn that says nothing is left out.
func (c *conversation) appendAssistant(dst []byte, m *toolcrib.Message) []byte {
	var text, calls, thinking bool
	for i := range m.Parts {
		p := &m.Parts[i]
		text = text || p.Text != ""
		calls = calls || p.ToolCall != nil
		thinking = thinking || p.Thinking != nil && p.Thinking.Text != ""
	}
	if !text && !calls {
		return dst
	}
	dst = append(separator(dst), `{"role":"assistant","content":`...)
	if text {
		dst = append(dst, '"')
		for i := range m.Parts {
			dst = wire.AppendEscaped(dst, m.Parts[i].Text)
		}
		dst = append(dst, '"')
	} else {
		dst = append(dst, "null"...)
	}
	if field := c.model.rules.replayReasoning; field != "" && thinking {
		dst = append(dst, ',')
		dst = append(wire.AppendString(dst, field), ':', '"')
		for i := range m.Parts {
			if t := m.Parts[i].Thinking; t != nil {
				dst = wire.AppendEscaped(dst, t.Text)
			}
		}
		dst = append(dst, '"')
	}
	if calls {
		dst = appendCalls(dst, m.Parts)
	}
	return append(dst, '}')
}

func appendCalls(dst []byte, parts []toolcrib.Part) []byte {
	dst = append(dst, `,"tool_calls":[`...)
	first := true
	for i := range parts {
		call := parts[i].ToolCall
		if call == nil {
			continue
		}
		if !first {
			dst = append(dst, ',')
		}
		first = false
		dst = append(dst, `{"id":`...)
		dst = wire.AppendString(dst, callID(call.ID))
		dst = append(dst, `,"type":"function","function":{"name":`...)
		dst = wire.AppendString(dst, wire.Token(call.Name, maxName))
		dst = append(dst, `,"arguments":`...)
		dst = wire.AppendString(dst, string(wire.Arguments(call)))
		dst = append(dst, `}}`...)
	}
	return append(dst, ']')
}

// callID keeps an ID as it is, unless it is longer than the API takes.
func callID(id string) string {
	if len(id) <= maxCallID {
		return id
	}
	return wire.Token(id, maxCallID)
}

func separator(dst []byte) []byte {
	if len(dst) > 0 {
		return append(dst, ',')
	}
	return dst
}
