package openai

import (
	"context"
	"iter"
	"math"
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

// conversation has the encoded history of one run. It must be used by one goroutine at a time.
type conversation struct {
	model   *Model
	history wire.History
	plain   toolcrib.Request // the current request, with the system text that is sent
	answer  answerPlan
	api     string  // path of the last request
	decoder decoder // decodes one reply after another

	replays      bool   // reasoning is sent as reasoning_content, in every turn of the assistant
	afterResults bool   // the last message is a result of a tool
	late         []byte // encoded parts: files of the results that were encoded last
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
			c.history, c.api = c.model.client.History(c.model.rules.files), path // the forms of the APIs differ
		}
		body, err := encode(ctx, req)
		if err != nil {
			yield(toolcrib.Delta{}, err)
			return
		}
		if responses {
			c.history.Exchange(ctx, path, body, &responsesDecoder{}, yield)
			return
		}
		c.decoder = decoder{tools: c.history.ToolNames}
		c.history.Exchange(ctx, path, body, &c.decoder, c.repairing(yield))
	}
}

// begin starts a request. It returns the messages that are not encoded yet, and
// whether the history was started again.
func (c *conversation) begin(ctx context.Context, req *toolcrib.Request, reserved ...string) (
	messages []toolcrib.Message, fresh bool, err error,
) {
	c.plain, c.answer = *req, c.model.rules.answerOf(req.OutputSchema)
	if c.answer.words { // the server has no parameter for it
		c.plain.System = wire.WithSchemaInstruction(req.System, req.OutputSchema)
	}
	if messages, fresh, err = c.history.Begin(ctx, &c.plain, reserved...); fresh {
		c.afterResults, c.late = false, nil
	}
	return messages, fresh, err
}

func (c *conversation) encode(ctx context.Context, req *toolcrib.Request) (*wire.Body, error) {
	reserved := []string{"model", "messages", "tools"}
	messages, fresh, err := c.begin(ctx, req, reserved...)
	if err != nil {
		return nil, err
	}
	before := c.replays && !fresh
	if c.replays = before || c.model.rules.replays(req.Model, messages); c.replays && !before && !fresh {
		// Earlier turns must have it as well, so they are encoded again.
		c.history = c.model.client.History(c.model.rules.files)
		if messages, fresh, err = c.begin(ctx, req, reserved...); err != nil {
			return nil, err
		}
	}
	h := &c.history
	if fresh && c.plain.System != "" {
		h.Messages = append(h.Messages, `{"role":"system","content":`...)
		h.Messages = append(wire.AppendString(h.Messages, c.plain.System), '}')
	}
	w := writer{conversation: c, asked: req.Model, order: c.model.rules.mistralOrder(req.Model)}
	for i := range messages {
		h.Messages = w.appendMessage(h.Messages, &messages[i])
	}
	h.Messages = w.flush(h.Messages)
	return c.finish(req, false, messagesOpen)
}

// finish returns the body with the messages that were added.
func (c *conversation) finish(req *toolcrib.Request, responses bool, open []byte) (*wire.Body, error) {
	h, tools := &c.history, &c.model.chatTools
	if responses {
		tools = &c.model.responsesTools
	}
	if err := h.End(req, tools); err != nil {
		return nil, err
	}
	c.encodeHead(req, responses)
	if len(h.Tools) == 0 {
		return wire.NewBody(h.Head, open, h.Messages, bodyEnd), nil
	}
	return wire.NewBody(h.Head, toolsOpen, h.Tools, listEnd, open, h.Messages, bodyEnd), nil
}

var (
	toolsOpen    = []byte(`,"tools":[`)
	listEnd      = []byte(`]`)
	messagesOpen = []byte(`,"messages":[`)
	bodyEnd      = []byte(`]}`)
)

// encodeHead encodes everything except tools and messages. It is small, so it is
// encoded for each request.
func (c *conversation) encodeHead(req *toolcrib.Request, responses bool) {
	h, r := &c.history, c.model.rules
	extra := h.Extra.Without("stream")
	if !h.Streams() {
		extra = extra.Without("stream_options") // which would be an error
	}
	var o wire.Object
	o.Begin(h.Head[:0], extra)
	o.Always("model")
	o.Buf = wire.AppendString(o.Buf, req.Model)
	if h.Streams() {
		o.Always("stream")
		o.Buf = append(o.Buf, "true"...)
	}
	if responses {
		c.encodeResponsesHead(&o, req)
	} else {
		if h.Streams() && !r.mistral && o.Member("stream_options") {
			o.Buf = append(o.Buf, `{"include_usage":true}`...)
		}
		c.encodeSampling(&o, req)
		field := maxTokens
		if !r.maxTokens && (r.vendor || reasons(req.Model)) {
			field = maxCompletionTokens
		}
		given := o.Extra.Get(maxTokens) != nil || o.Extra.Get(maxCompletionTokens) != nil
		if req.MaxOutputTokens > 0 && !given && o.Member(field) {
			o.Buf = strconv.AppendInt(o.Buf, int64(req.MaxOutputTokens), 10)
		}
	}
	c.encodeFormat(&o, responses)
	c.encodeToolChoice(&o, req.ToolChoice, responses)
	o.End()
	h.Head = o.Buf
}

// encodeFormat requests an answer that matches the schema, in every request of a run unless
// the server does not permit that with tools.
func (c *conversation) encodeFormat(o *wire.Object, responses bool) {
	p := &c.answer
	member, open, inner, end := "response_format", `{"type":"`, `,"json_schema":{"name":"answer","strict":`, `}}`
	if responses {
		member, open, inner, end = "text", `{"format":{"type":"`, `,"name":"answer","strict":`, `}}`
	}
	format := c.model.rules.formatFor(*p, len(c.history.Tools) > 0)
	if format == "" || !o.Member(member) {
		return
	}
	o.Buf = append(append(append(o.Buf, open...), format...), '"')
	if format == "json_schema" {
		o.Buf = strconv.AppendBool(append(o.Buf, inner...), p.strict)
		o.Buf = append(append(o.Buf, `,"schema":`...), p.schema...)
	} else if !responses {
		end = `}`
	}
	o.Buf = append(o.Buf, end...)
}

func (c *conversation) encodeSampling(o *wire.Object, req *toolcrib.Request) {
	r := c.model.rules
	word := req.Reasoning
	if r.vendor && reasons(req.Model) {
		word = c.effort(req)
		if len(c.history.Tools) > 0 && toolsWithoutReasoning(req.Model) && word != "none" {
			if word != "" {
				c.history.Ignored("reasoning", req.Model+" with tools does not take it on this API")
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

// effort returns the API's name of the level of reasoning, and adds a notice if it
// differs from the requested level.
func (c *conversation) effort(req *toolcrib.Request) string {
	word, why := effort(req.Model, req.Reasoning)
	if why != "" {
		c.history.Ignored("reasoning "+req.Reasoning, req.Model+": "+why)
	}
	return word
}

func (c *conversation) encodeTemperature(o *wire.Object, req *toolcrib.Request, effort string) {
	t := req.Temperature
	if t == nil || math.IsNaN(*t) || math.IsInf(*t, 0) {
		return
	}
	if c.model.rules.vendor && !takesTemperature(req.Model, effort) {
		c.history.Ignored("temperature", req.Model+" does not take it")
		return
	}
	if o.Member("temperature") {
		o.Buf = wire.AppendFloat(o.Buf, *t)
	}
}

func (c *conversation) encodeToolChoice(o *wire.Object, choice toolcrib.ToolChoice, responses bool) {
	open, end := `{"type":"function","function":{"name":`, `}}`
	if responses {
		open, end = `{"type":"function","name":`, `}`
	}
	mode := c.history.Choice(choice)
	switch {
	case mode == "" || !o.Member("tool_choice"):
	case mode == toolcrib.ChoiceName:
		o.Buf = append(wire.AppendString(append(o.Buf, open...), choice.Name), end...)
	default:
		o.Buf = wire.AppendString(o.Buf, mode)
	}
}
