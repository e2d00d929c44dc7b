package gemini

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
		path, body, err := c.encode(ctx, req)
		if err != nil {
			yield(toolcrib.Delta{}, err)
			return
		}
		d := &decoder{model: c.script.model, tools: c.history.ToolNames}
		c.history.Exchange(ctx, path, body, d, func(delta toolcrib.Delta, err error) bool {
			if err != nil {
				err = c.model.refine(err)
			}
			return yield(delta, err)
		})
	}
}

func (c *conversation) encode(ctx context.Context, req *toolcrib.Request) (path string, body *wire.Body, err error) {
	h := &c.history
	messages, fresh, err := h.Begin(ctx, req, "model", "contents", "tools", "systemInstruction", "system_instruction")
	if err != nil {
		return "", nil, err
	}
	if fresh {
		c.traits = traitsOf(req.Model)
		c.script = script{model: wire.BareModel(req.Model), traits: c.traits, files: &h.Files}
		if c.traits.noSystem {
			h.Messages = c.script.text(h.Messages, toolcrib.RoleUser, wire.WithSchemaInstruction(req.System, req.OutputSchema))
		}
	}
	for i := range messages {
		h.Messages = c.script.add(h.Messages, &messages[i])
	}
	if err := h.End(req, &c.model.tools); err != nil {
		return "", nil, err
	}
	inner, err := wire.ParseExtra(h.Extra.Get("generationConfig"))
	path, ok := c.model.path(req.Model, h.Streams())
	switch {
	case !ok:
		return "", nil, h.Unsent("model: " + strconv.Quote(wire.Line(req.Model)) + " is not the name of a model")
	case err != nil:
		return "", nil, h.Unsent("extra: generationConfig: must be an object")
	case len(h.Messages) == 0:
		return "", nil, h.Unsent("the request has no message with content")
	}
	format := c.format(req, inner)
	c.encodeHead(req, inner, format)
	c.encodeSystem(req, format != nil)
	parts := make([][]byte, 0, 10)
	parts = append(parts, h.Head, c.system)
	if len(h.Tools) > 0 {
		parts = append(parts, toolsOpen, h.Tools, toolsEnd)
	}
	parts = append(parts, contentsOpen, h.Messages)
	if c.script.role != toolcrib.RoleUser {
		parts = append(parts, continueTurn)
	}
	return path, wire.NewBody(append(parts, bodyEnd)...), nil
}

var (
	toolsOpen    = []byte(`"tools":[{"functionDeclarations":[`)
	toolsEnd     = []byte(`]}],`)
	contentsOpen = []byte(`"contents":[`)
	continueTurn = []byte(`]},{"role":"user","parts":[` + continueText)
	bodyEnd      = []byte(`]}]}`)
)

// encodeHead encodes everything except system text, tools and contents. It is
// small, so it is encoded for each request. The next part begins with a name, so the
// head ends with a comma unless it is empty.
func (c *conversation) encodeHead(req *toolcrib.Request, inner wire.Extra, format []byte) {
	h := &c.history
	var o wire.Object
	o.Begin(h.Head[:0], h.Extra.Without("stream", "generationConfig"))
	start := len(o.Buf)
	if config := c.generationConfig(req, inner, format); len(config) > len(`{}`) {
		o.Always("generationConfig")
		o.Buf = append(o.Buf, config...)
	}
	c.encodeToolChoice(&o, req.ToolChoice)
	o.End()
	if len(o.Buf) > start {
		o.Buf = append(o.Buf, ',')
	}
	h.Head = o.Buf
}

// generationConfig returns the object of parameters, with the members of the same object
// in extra.
func (c *conversation) generationConfig(req *toolcrib.Request, inner wire.Extra, format []byte) []byte {
	var o wire.Object
	o.Begin(nil, inner)
	if t := req.Temperature; t != nil && !math.IsNaN(*t) && o.Member("temperature") {
		o.Buf = wire.AppendFloat(o.Buf, min(max(*t, 0), 2))
	}
	if req.MaxOutputTokens > 0 && o.Member("maxOutputTokens") {
		o.Buf = strconv.AppendInt(o.Buf, int64(min(req.MaxOutputTokens, math.MaxInt32)), 10)
	}
	if req.Reasoning != "" && inner.Get("thinkingConfig") == nil {
		if config := c.thinking(req); config != "" {
			o.Always("thinkingConfig")
			o.Buf = append(o.Buf, config...)
		}
	}
	if format != nil {
		o.Always("responseMimeType")
		o.Buf = append(o.Buf, `"application/json"`...)
		o.Always("responseJsonSchema")
		o.Buf = append(o.Buf, format...)
	}
	o.End()
	return append(o.Buf, '}')
}

// thinking maps the level of reasoning to thinkingConfig; "" sends none.
func (c *conversation) thinking(req *toolcrib.Request) string {
	switch {
	case !c.traits.thinks():
		if req.Reasoning != "off" {
			c.history.Ignored("reasoning", req.Model+" has none")
		}
		return ""
	case c.traits.levels():
		return c.thinkingLevel(req)
	}
	return c.thinkingBudget(req)
}

func (c *conversation) thinkingLevel(req *toolcrib.Request) string {
	level := strings.ToUpper(req.Reasoning)
	switch {
	case req.Reasoning == "off":
		level = "LOW"
		if c.traits.flash {
			level = "MINIMAL"
		}
		c.history.Ignored("reasoning off", req.Model+" always reasons; it does so at the level "+level)
		return `{"thinkingLevel":"` + level + `"}`
	case req.Reasoning == "medium" && c.traits.pro && c.traits.generation == 300:
		level = "HIGH"
		c.history.Ignored("reasoning medium", req.Model+" knows low and high only; it reasons at high")
	case level != "LOW" && level != "MEDIUM" && level != "HIGH":
		c.history.Ignored("reasoning", "it must be low, medium, high or off")
		return ""
	}
	return `{"thinkingLevel":"` + level + `","includeThoughts":true}`
}

// thinkingBudget gives reasoning at most half of the output, because it counts as
// output.
func (c *conversation) thinkingBudget(req *toolcrib.Request) string {
	tokens, least := c.traits.budget(req.Reasoning)
	if req.Reasoning == "off" {
		if c.traits.pro {
			c.history.Ignored("reasoning off", req.Model+" always reasons; it does so with the least budget")
			return `{"thinkingBudget":` + strconv.Itoa(least) + `}`
		}
		return `{"thinkingBudget":0}`
	}
	if req.MaxOutputTokens > 0 {
		tokens = min(tokens, req.MaxOutputTokens/2)
	}
	if tokens < max(least, 1) {
		c.history.Ignored("reasoning", "max_output_tokens leaves no room for it")
		return ""
	}
	return `{"thinkingBudget":` + strconv.Itoa(tokens) + `,"includeThoughts":true}`
}

// format returns the schema of the answer in the API's form, or nil if it is put into the
// system text instead. Generations before 3 reject it in combination with tools.
func (c *conversation) format(req *toolcrib.Request, inner wire.Extra) []byte {
	switch {
	case len(req.OutputSchema) == 0, !c.traits.takesSchema():
		return nil
	case len(c.history.Tools) > 0 && !c.traits.levels():
		return nil
	}
	for _, name := range [...]string{"responseMimeType", "responseSchema", "responseJsonSchema"} {
		if inner.Get(name) != nil {
			return nil
		}
	}
	return answerSchema(req.OutputSchema)
}

func (c *conversation) encodeSystem(req *toolcrib.Request, formatted bool) {
	c.system = c.system[:0]
	text := req.System
	if !formatted {
		text = wire.WithSchemaInstruction(text, req.OutputSchema)
	}
	if c.traits.noSystem || wire.Blank(text) {
		return
	}
	c.system = append(c.system, `"systemInstruction":{"parts":[{"text":`...)
	c.system = append(wire.AppendString(c.system, text), `}]},`...)
}

// encodeToolChoice encodes the tool choice; without one, the API uses auto.
func (c *conversation) encodeToolChoice(o *wire.Object, choice toolcrib.ToolChoice) {
	mode := strings.ToUpper(c.history.Choice(choice))
	if mode == "" || !o.Member("toolConfig") {
		return
	}
	if choice.Mode == toolcrib.ChoiceRequired || choice.Mode == toolcrib.ChoiceName {
		mode = "ANY"
	}
	o.Buf = append(append(append(o.Buf, `{"functionCallingConfig":{"mode":"`...), mode...), '"')
	if choice.Mode == toolcrib.ChoiceName {
		o.Buf = append(o.Buf, `,"allowedFunctionNames":[`...)
		o.Buf = append(wire.AppendString(o.Buf, choice.Name), ']')
	}
	o.Buf = append(o.Buf, `}}`...)
}

// Limits of the API.
const (
	maxName         = 64
	maxDeclarations = 512
)

var functionName = lazyregexp.New(`^[A-Za-z_][A-Za-z0-9_-]{0,63}$`)

// sentName returns a valid name for a call in the history, whose name may be invalid.
func sentName(name string) string {
	name = wire.Token(name, maxName)
	if !functionName.MatchString(name) {
		name = wire.Token("_"+name, maxName)
	}
	return name
}
