package anthropic

import (
	"context"
	"iter"
	"math"
	"strconv"
	"strings"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/internal/lazyregexp"
	"github.com/toolcrib/toolcrib/provider/wire"
)

// Limits of the API.
const (
	maxCallID = 64
	maxName   = 64
)

// conversation has the encoded history of one run. It must be used by one goroutine at a time.
type conversation struct {
	model   *Model
	history wire.History
	script  script
	traits  traits
	system  []byte
}

// Stream implements [toolcrib.Model].
func (c *conversation) Stream(ctx context.Context, req *toolcrib.Request) iter.Seq2[toolcrib.Delta, error] {
	return func(yield func(toolcrib.Delta, error) bool) {
		body, err := c.encode(ctx, req)
		if err != nil {
			yield(toolcrib.Delta{}, err)
			return
		}
		c.history.Exchange(ctx, c.model.prefix+"messages", body, &decoder{}, yield)
	}
}

func (c *conversation) encode(ctx context.Context, req *toolcrib.Request) (*wire.Body, error) {
	h := &c.history
	messages, fresh, err := h.Begin(ctx, req, "model", "messages", "tools", "system")
	if err != nil {
		return nil, err
	}
	if fresh {
		c.script = script{model: req.Model, files: &h.Files}
		c.traits = traitsOf(req.Model)
	}
	for i := range messages {
		h.Messages = c.script.add(h.Messages, &messages[i])
	}
	if err := h.End(req, &c.model.tools); err != nil {
		return nil, err
	}
	if len(h.Messages) == 0 {
		return nil, h.Unsent("the request has no message with content")
	}
	c.encodeHead(req)
	c.encodeSystem(req)
	parts := make([][]byte, 0, 12)
	parts = append(parts, h.Head)
	if len(h.Tools) > 0 {
		parts = append(parts, toolsOpen, h.Tools, cacheMark, listEnd)
	}
	if len(c.system) > 0 {
		parts = append(parts, c.system)
	}
	parts = append(parts, messagesOpen)
	parts = c.script.parts(parts, h.Messages)
	return wire.NewBody(append(parts, bodyEnd)...), nil
}

var (
	toolsOpen    = []byte(`,"tools":[`)
	listEnd      = []byte(`]`)
	messagesOpen = []byte(`,"messages":[`)
	bodyEnd      = []byte(`]}`)
	// cacheMark ends an object with a mark for the prompt cache.
	cacheMark = []byte(`,"cache_control":{"type":"ephemeral"}}`)
)

// encodeHead encodes everything except tools, system text and messages. It is
// small, so it is encoded for each request.
func (c *conversation) encodeHead(req *toolcrib.Request) {
	h := &c.history
	plan := c.plan(req)
	var o wire.Object
	o.Begin(h.Head[:0], h.Extra.Without("stream"))
	o.Always("model")
	o.Buf = wire.AppendString(o.Buf, req.Model)
	if o.Member("max_tokens") {
		o.Buf = strconv.AppendInt(o.Buf, int64(plan.maxTokens), 10)
	}
	if h.Streams() {
		o.Always("stream")
		o.Buf = append(o.Buf, "true"...)
	}
	if plan.thinking != "" && o.Member("thinking") {
		o.Buf = append(o.Buf, plan.thinking...)
		if plan.budget > 0 {
			o.Buf = append(strconv.AppendInt(o.Buf, int64(plan.budget), 10), '}')
		}
	}
	if plan.effort != "" || len(plan.format) > 0 {
		c.encodeOutput(&o, plan)
	}
	if plan.temperature != nil && o.Member("temperature") {
		o.Buf = wire.AppendFloat(o.Buf, *plan.temperature)
	}
	if plan.choice != "" && o.Member("tool_choice") {
		o.Buf = append(o.Buf, `{"type":`...)
		o.Buf = wire.AppendString(o.Buf, plan.choice)
		if plan.choice == "tool" {
			o.Buf = append(o.Buf, `,"name":`...)
			o.Buf = wire.AppendString(o.Buf, req.ToolChoice.Name)
		}
		o.Buf = append(o.Buf, '}')
	}
	o.End()
	h.Head = o.Buf
}

func (c *conversation) encodeOutput(o *wire.Object, plan plan) {
	if !o.Member("output_config") {
		return
	}
	o.Buf = append(o.Buf, '{')
	if plan.effort != "" {
		o.Buf = append(o.Buf, `"effort":`...)
		o.Buf = wire.AppendString(o.Buf, plan.effort)
	}
	if len(plan.format) > 0 {
		if plan.effort != "" {
			o.Buf = append(o.Buf, ',')
		}
		o.Buf = append(o.Buf, `"format":{"type":"json_schema","schema":`...)
		o.Buf = append(append(o.Buf, plan.format...), '}')
	}
	o.Buf = append(o.Buf, '}')
}

// encodeSystem encodes the system text, and the output schema if it cannot be sent
// as a parameter.
func (c *conversation) encodeSystem(req *toolcrib.Request) {
	c.system = nil
	text := req.System
	if len(req.OutputSchema) > 0 && c.format(req) == nil {
		text = wire.WithSchemaInstruction(text, req.OutputSchema)
	}
	if wire.Blank(text) {
		return
	}
	c.system = append(c.system, `,"system":[{"type":"text","text":`...)
	c.system = wire.AppendString(c.system, text)
	c.system = append(append(c.system, cacheMark...), ']')
}

type plan struct {
	maxTokens   int
	thinking    string // JSON; with a budget only its beginning
	budget      int
	effort      string
	format      []byte
	temperature *float64
	choice      string
}

func (c *conversation) plan(req *toolcrib.Request) plan {
	t := c.traits
	p := plan{maxTokens: req.MaxOutputTokens, format: c.format(req)}
	p.choice = c.choice(req)
	c.think(req, &p)
	if p.maxTokens <= 0 {
		p.maxTokens = c.defaultMaxTokens() + p.budget
	}
	if temp := req.Temperature; temp != nil && !math.IsNaN(*temp) {
		switch {
		case p.thinking != "" && !strings.Contains(p.thinking, "disabled"):
			c.history.Ignored("temperature", "it does not go with reasoning")
		case c.model.vendor && t.noSampling:
			c.history.Ignored("temperature", req.Model+" takes none")
		default:
			value := min(max(*temp, 0), 1)
			p.temperature = &value
		}
	}
	return p
}

func (c *conversation) defaultMaxTokens() int {
	switch {
	case c.traits.known && c.traits.small:
		return 4096
	case c.traits.adaptive:
		return 2 * DefaultMaxTokens
	}
	return DefaultMaxTokens
}

// choice returns the tool choice to send; "" sends none, which means auto.
func (c *conversation) choice(req *toolcrib.Request) string {
	forced := c.history.Choice(req.ToolChoice)
	switch forced {
	case toolcrib.ChoiceRequired:
		forced = "any"
	case toolcrib.ChoiceName:
		forced = "tool"
	default:
		return forced
	}
	if c.model.vendor && c.traits.noForce {
		c.history.Ignored("tool_choice", req.Model+" cannot be made to call a tool")
		return ""
	}
	return forced
}

// think sets the parameters of reasoning. The API rejects reasoning together with a forced tool,
// and a budget if the current turn did not begin with reasoning.
func (c *conversation) think(req *toolcrib.Request, p *plan) {
	t := c.traits
	forced := p.choice == "any" || p.choice == "tool"
	if forced && t.thinksDef && !t.alwaysOn {
		p.thinking = `{"type":"disabled"}`
	}
	switch {
	case req.Reasoning == "":
		return
	case req.Reasoning == "off":
		switch {
		case t.alwaysOn:
			p.effort = "low"
			c.history.Ignored("reasoning off", req.Model+" always reasons; it does so at the lowest effort")
		case t.thinksDef:
			p.thinking = `{"type":"disabled"}`
		}
		return
	case !t.thinks:
		c.history.Ignored("reasoning", req.Model+" has none")
		return
	case t.adaptive:
		p.effort = req.Reasoning
		if !forced {
			p.thinking = `{"type":"adaptive","display":"summarized"}`
		}
		return
	case forced:
		c.history.Ignored("reasoning", "it does not go with a forced tool")
		return
	case c.script.callsWithoutThinking:
		return
	}
	p.budget = budget(req.Reasoning)
	if p.maxTokens > 0 {
		p.budget = min(p.budget, p.maxTokens/2)
	}
	if p.budget < minBudget {
		p.budget = 0
		c.history.Ignored("reasoning", "max_output_tokens leaves no room for it")
		return
	}
	p.thinking = `{"type":"enabled","budget_tokens":`
}

func (c *conversation) format(req *toolcrib.Request) []byte {
	if len(req.OutputSchema) == 0 || !c.traits.structured {
		return nil
	}
	return strictSchema(req.OutputSchema)
}

var propertyName = lazyregexp.New(`^[a-zA-Z0-9_.-]{1,64}$`)
