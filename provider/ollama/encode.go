package ollama

import (
	"context"
	"errors"
	"iter"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/provider/wire"
)

// maxName is the longest name of a tool that is sent; the API names no limit, the
// templates of models do not like long ones.
const maxName = 64

// conversation keeps the encoded history of one run. It serves one goroutine.
type conversation struct {
	model   *Model
	history wire.History
	files   wire.Attachments
	system  encodedSystem
	notices []toolcrib.Notice // of the request at hand
}

// encodedSystem is the system message as it was encoded last. It stands apart
// from the history because a tool choice adds to it for one request.
type encodedSystem struct {
	text string
	json []byte
}

// Stream implements [toolcrib.Model].
func (c *conversation) Stream(ctx context.Context, req *toolcrib.Request) iter.Seq2[toolcrib.Delta, error] {
	return func(yield func(toolcrib.Delta, error) bool) {
		body, err := c.encode(ctx, req)
		if err != nil {
			yield(toolcrib.Delta{}, err)
			return
		}
		d := &decoder{provider: c.model.opts.Name, notices: c.notices}
		c.model.client.Exchange(ctx, "api/chat", body, d, func(delta toolcrib.Delta, err error) bool {
			if err != nil {
				err = c.model.explain(err, req.Model)
				var known *toolcrib.ModelError
				if errors.As(err, &known) && known.NoTools {
					c.model.rememberNoTools(req.Model)
				}
			}
			return yield(delta, err)
		})
	}
}

func (c *conversation) encode(ctx context.Context, req *toolcrib.Request) (*wire.Body, error) {
	h := &c.history
	refuse := func(e toolcrib.ModelError) (*wire.Body, error) {
		e.Class, e.Provider, e.Unsent = toolcrib.ErrBadRequest, c.model.opts.Name, true
		return nil, &e
	}
	if err := h.ReadExtra(req, "model", "messages", "tools"); err != nil {
		return refuse(toolcrib.ModelError{Message: err.Error()})
	}
	top, options, err := splitExtra(h.Extra)
	if err != nil {
		return refuse(toolcrib.ModelError{Message: err.Error()})
	}
	offer, demand, stray := choose(req)
	if len(offer.Tools) > 0 && c.model.refusesTools(req.Model) {
		return refuse(noTools(toolcrib.ModelError{}, wire.Line(req.Model)))
	}
	if h.ToolsChanged(&offer) {
		h.AddTools(offer.Tools, &wire.ToolForm{
			Open: `{"type":"function","function":{"name":`, Parameters: `,"parameters":`, Close: `}}`, Separator: `,`,
			Schema: c.model.schemas.Of,
		})
	}
	c.notices = slices.Clip(h.Notices)
	if stray != "" {
		c.notices = append(c.notices, wire.Notice(wire.NoticeParameterIgnored,
			"tool_choice is not sent: tool %s is not in the request", stray))
	}
	withTools := len(offer.Tools) > 0 && len(h.Tools) > 0
	messages, fresh := h.New(req)
	c.files.Rules = fileRules()
	c.files.Begin(fresh)
	c.encodeMessages(ctx, req, messages)
	if err := c.files.Err(); err != nil {
		*h = wire.History{} // what was encoded lacks files
		return nil, err
	}
	c.notices = append(c.notices, c.files.Notices...)
	c.encodeSystem(req, withTools, demand)
	c.encodeHead(req, top, options, withTools)

	parts := [][]byte{h.Head}
	if withTools {
		parts = append(parts, toolsOpen, h.Tools, listEnd)
	}
	parts = append(parts, messagesOpen, c.system.json)
	if len(c.system.json) > 0 && len(h.Messages) > 0 {
		parts = append(parts, comma)
	}
	return wire.NewBody(append(parts, h.Messages, bodyEnd)...), nil
}

var (
	toolsOpen    = []byte(`,"tools":[`)
	listEnd      = []byte(`]`)
	messagesOpen = []byte(`,"messages":[`)
	comma        = []byte(`,`)
	bodyEnd      = []byte(`]}`)
)

// choose turns a tool choice, which this API does not have, into what it has: no
// tools for none, one tool only for a name, and a sentence of the system text
// that demands a call (H13). stray is a name that is not offered.
func choose(req *toolcrib.Request) (offer toolcrib.Request, demand, stray string) {
	offer = toolcrib.Request{Tools: req.Tools, ToolsHash: req.ToolsHash}
	switch req.ToolChoice.Mode {
	case toolcrib.ChoiceNone:
		offer.Tools, offer.ToolsHash = nil, ""
	case toolcrib.ChoiceRequired:
		demand = "Answer this turn with a call of one of the tools, not with text."
	case toolcrib.ChoiceName:
		at := slices.IndexFunc(req.Tools, func(s toolcrib.Spec) bool { return s.Name == req.ToolChoice.Name })
		if at < 0 {
			return offer, "", req.ToolChoice.Name
		}
		offer.Tools, offer.ToolsHash = req.Tools[at:at+1], ""
		demand = "Answer this turn with a call of the tool " + req.ToolChoice.Name + ", not with text."
	}
	return offer, demand, ""
}

// encodeSystem encodes the system message. A format would keep the model from
// calling tools, since it holds the whole reply to the schema: beside tools the
// schema is asked for in words.
func (c *conversation) encodeSystem(req *toolcrib.Request, withTools bool, demand string) {
	text := req.System
	if withTools {
		text = wire.WithSchemaInstruction(text, req.OutputSchema)
		if demand != "" {
			text = strings.TrimPrefix(text+"\n\n"+demand, "\n\n")
		}
	}
	s := &c.system
	if s.text == text {
		return
	}
	s.text, s.json = text, s.json[:0]
	if text != "" {
		s.json = append(s.json, `{"role":"system","content":`...)
		s.json = append(wire.AppendString(s.json, text), '}')
	}
}

// encodeHead encodes everything but tools and messages. It is small, so it is
// made again each time.
func (c *conversation) encodeHead(req *toolcrib.Request, top, options wire.Extra, withTools bool) {
	stream := !c.model.opts.NoStream && string(c.history.Extra.Get("stream")) != "false"
	var o wire.Object
	o.Begin(c.history.Head[:0], top)
	o.Always("model")
	o.Buf = wire.AppendString(o.Buf, req.Model)
	o.Always("stream") // it is true where it is not sent
	o.Buf = strconv.AppendBool(o.Buf, stream)
	if value := think(req); value != "" && o.Member("think") {
		o.Buf = append(o.Buf, value...)
	}
	if len(req.OutputSchema) > 0 && !withTools && o.Member("format") {
		o.Buf = append(o.Buf, req.OutputSchema...)
	}
	if o.Member("truncate") {
		o.Buf = append(o.Buf, "false"...)
	}
	before := len(o.Buf)
	o.Always("options")
	inner := len(o.Buf)
	if o.Buf = appendOptions(o.Buf, req, options); len(o.Buf) == inner+len("{}") {
		o.Buf = o.Buf[:before]
	}
	o.End()
	c.history.Head = o.Buf
}

// think is the JSON value of think, "" for none. Models that do not think refuse
// a request that asks for it, so it is sent only where the configuration does.
// Only gpt-oss takes levels on every version of Ollama; it cannot be switched off.
func think(req *toolcrib.Request) string {
	levels := strings.Contains(strings.ToLower(req.Model), "gpt-oss")
	switch {
	case req.Reasoning == "":
		return ""
	case req.Reasoning == "off" && levels:
		return `"low"`
	case req.Reasoning == "off":
		return "false"
	case levels:
		return string(wire.AppendString(nil, req.Reasoning))
	}
	return "true"
}

func appendOptions(dst []byte, req *toolcrib.Request, extra wire.Extra) []byte {
	var o wire.Object
	o.Begin(dst, extra)
	if t := req.Temperature; t != nil && !math.IsNaN(*t) && !math.IsInf(*t, 0) && o.Member("temperature") {
		o.Buf = wire.AppendFloat(o.Buf, *t)
	}
	if req.MaxOutputTokens > 0 && o.Member("num_predict") {
		o.Buf = strconv.AppendInt(o.Buf, int64(req.MaxOutputTokens), 10)
	}
	o.End()
	return append(o.Buf, '}')
}
