package openai

import (
	"bytes"
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
	files   wire.Attachments
	answer  answer
	api     string // of the request before
	stream  bool
	notices []toolcrib.Notice // of the request at hand

	afterResults bool   // the last message is a result of a tool
	late         []byte // encoded parts: files of the results before
}

// answer remembers what became of the output schema.
type answer struct {
	schema []byte // as the request has it
	plan   answerPlan
	system string // the system text with it
	plain  string // and without
	known  bool
}

// Stream implements [toolcrib.Model].
func (c *conversation) Stream(ctx context.Context, req *toolcrib.Request) iter.Seq2[toolcrib.Delta, error] {
	return func(yield func(toolcrib.Delta, error) bool) {
		path, encode := "chat/completions", c.encode
		responses := c.model.rules.responses(req.Model)
		if responses {
			path, encode = "responses", c.encodeResponses
		}
		if c.api != path {
			c.history, c.api = wire.History{}, path // nothing of the other form is of use
		}
		body, err := encode(ctx, req)
		if err != nil {
			yield(toolcrib.Delta{}, err)
			return
		}
		if responses {
			d := &responsesDecoder{provider: c.model.opts.Name, notices: c.notices}
			c.model.client.Exchange(ctx, path, body, d, yield)
			return
		}
		d := &decoder{provider: c.model.opts.Name, notices: c.notices}
		c.model.client.Exchange(ctx, path, body, d, d.mending(yield))
	}
}

// begin starts a request: it returns the messages that are not encoded yet, and
// whether the history begins anew.
func (c *conversation) begin(req *toolcrib.Request, reserved ...string) (messages []toolcrib.Message, fresh bool, err error) {
	h := &c.history
	if err := h.ReadExtra(req, reserved...); err != nil {
		return nil, false, &toolcrib.ModelError{Class: toolcrib.ErrBadRequest, Provider: c.model.opts.Name, Unsent: true, Message: err.Error()}
	}
	plain := *req
	plain.System = c.systemText(req)
	messages, fresh = h.New(&plain)
	if fresh {
		c.afterResults, c.late = false, nil
		c.files.Rules = c.model.rules.files
	}
	c.files.Begin(fresh)
	return messages, fresh, nil
}

// systemText is the system text with the schema of the answer where the server
// has no other means for it.
func (c *conversation) systemText(req *toolcrib.Request) string {
	a := &c.answer
	if !a.known || a.plain != req.System || !bytes.Equal(a.schema, req.OutputSchema) {
		*a = answer{known: true, plain: req.System, system: req.System, schema: bytes.Clone(req.OutputSchema), plan: c.model.rules.answerOf(req.OutputSchema)}
		if a.plan.words {
			a.system = wire.WithSchemaInstruction(req.System, req.OutputSchema)
		}
	}
	return a.system
}

// forget drops the history: a file could not be read because the request ended.
func (c *conversation) forget(err error) error {
	c.history = wire.History{}
	return err
}

func (c *conversation) encode(ctx context.Context, req *toolcrib.Request) (*wire.Body, error) {
	messages, fresh, err := c.begin(req, "model", "messages", "tools")
	if err != nil {
		return nil, err
	}
	h := &c.history
	if fresh && c.answer.system != "" {
		h.Messages = append(h.Messages, `{"role":"system","content":`...)
		h.Messages = append(wire.AppendString(h.Messages, c.answer.system), '}')
	}
	w := writer{conversation: c, ctx: ctx, req: req, order: c.model.rules.mistralOrder(req.Model)}
	for i := range messages {
		h.Messages = w.appendMessage(h.Messages, &messages[i])
	}
	h.Messages = w.flush(h.Messages)
	if err := c.files.Err(); err != nil {
		return nil, c.forget(err)
	}
	if h.ToolsChanged(req) {
		c.encodeTools(req.Tools, chatTool)
	}
	c.notices = append(slices.Clip(h.Notices), c.files.Notices...)
	c.encodeHead(req)
	if len(h.Tools) == 0 {
		return wire.NewBody(h.Head, messagesOpen, h.Messages, bodyEnd), nil
	}
	return wire.NewBody(h.Head, toolsOpen, h.Tools, listEnd, messagesOpen, h.Messages, bodyEnd), nil
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
		if !r.mistral && o.Member("stream_options") {
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
	c.encodeFormat(&o)
	if len(h.Tools) > 0 {
		c.encodeToolChoice(&o, req.ToolChoice, chatChoice)
	}
	o.End()
	h.Head = o.Buf
}

// encodeFormat asks for an answer that fits the schema. Without tools it is asked
// for all the same; so it is in every request of a run.
func (c *conversation) encodeFormat(o *wire.Object) {
	p := &c.answer.plan
	format := c.model.rules.formatFor(*p, len(c.history.Tools) > 0)
	if format == "" || !o.Member("response_format") {
		return
	}
	o.Buf = append(o.Buf, `{"type":"`...)
	o.Buf = append(append(o.Buf, format...), '"')
	if format == "json_schema" {
		o.Buf = append(o.Buf, `,"json_schema":{"name":"answer","strict":`...)
		o.Buf = strconv.AppendBool(o.Buf, p.strict)
		o.Buf = append(append(append(o.Buf, `,"schema":`...), p.schema...), '}')
	}
	o.Buf = append(o.Buf, '}')
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
	word := req.Reasoning
	if r.vendor && reasons(req.Model) {
		word = c.effort(req)
		if len(c.history.Tools) > 0 && toolsWithoutReasoning(req.Model) && word != "none" {
			if word != "" {
				c.ignored("reasoning", req.Model+" with tools on this API")
			}
			word = "none"
		}
	} else if word == "off" {
		word = "none"
	}
	c.encodeTemperature(o, req, word)
	if word != "" && o.Member("reasoning_effort") {
		o.Buf = wire.AppendString(o.Buf, word)
	}
}

// effort is the word for the level of reasoning, with a notice where it is
// another one than was asked for.
func (c *conversation) effort(req *toolcrib.Request) string {
	word, why := effort(req.Model, req.Reasoning)
	if why != "" {
		c.notices = append(c.notices, wire.Notice(wire.NoticeParameterIgnored, "reasoning %s is not sent to %s: %s", req.Reasoning, req.Model, why))
	}
	return word
}

func (c *conversation) encodeTemperature(o *wire.Object, req *toolcrib.Request, effort string) {
	t := req.Temperature
	if t == nil || math.IsNaN(*t) || math.IsInf(*t, 0) {
		return
	}
	if c.model.rules.vendor && !takesTemperature(req.Model, effort) {
		c.ignored("temperature", req.Model)
		return
	}
	if o.Member("temperature") {
		o.Buf = wire.AppendFloat(o.Buf, *t)
	}
}

func (c *conversation) ignored(parameter, where string) {
	c.notices = append(c.notices, wire.Notice(wire.NoticeParameterIgnored, "%s is not sent: %s does not take it", parameter, where))
}

func (c *conversation) encodeToolChoice(o *wire.Object, choice toolcrib.ToolChoice, form [2]string) {
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
	o.Buf = append(o.Buf, form[0]...)
	o.Buf = append(wire.AppendString(o.Buf, choice.Name), form[1]...)
}

// The two forms of the choice of one tool.
var (
	chatChoice      = [2]string{`{"type":"function","function":{"name":`, `}}`}
	responsesChoice = [2]string{`{"type":"function","name":`, `}`}
)

// The two forms of a tool: Chat Completions wraps it once more, and the Responses
// API would make it strict by itself.
var (
	chatTool      = [2]string{`{"type":"function","function":{"name":`, `}}`}
	responsesTool = [2]string{`{"type":"function","strict":false,"name":`, `}`}
)

func (c *conversation) encodeTools(specs []toolcrib.Spec, form [2]string) {
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
		h.Tools = append(h.Tools, form[0]...)
		h.Tools = wire.AppendString(h.Tools, spec.Name)
		h.Tools = append(h.Tools, `,"description":`...)
		h.Tools = wire.AppendString(h.Tools, description)
		h.Tools = append(h.Tools, `,"parameters":`...)
		h.Tools = append(append(h.Tools, schema...), form[1]...)
		h.ToolNames = append(h.ToolNames, spec.Name)
	}
}
