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

// maxName is the longest name of a tool that is sent. The API documents no limit, but the
// templates of models fail on long names.
const maxName = 64

// conversation has the encoded history of one run. It must be used by one goroutine at a time.
type conversation struct {
	model   *Model
	history wire.History
	system  []byte // separate from the history because a tool choice adds to it for one request
}

// Stream implements [toolcrib.Model].
func (c *conversation) Stream(ctx context.Context, req *toolcrib.Request) iter.Seq2[toolcrib.Delta, error] {
	return func(yield func(toolcrib.Delta, error) bool) {
		body, err := c.encode(ctx, req)
		if err != nil {
			yield(toolcrib.Delta{}, err)
			return
		}
		c.history.Exchange(ctx, "api/chat", body, &decoder{}, func(delta toolcrib.Delta, err error) bool {
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
	offer, demand, stray := choose(req)
	if len(offer.Tools) > 0 && c.model.refusesTools(req.Model) {
		e := noTools(toolcrib.ModelError{Provider: c.model.opts.Name, Unsent: true}, wire.Line(req.Model))
		return nil, &e
	}
	messages, _, err := h.Begin(ctx, req, "model", "messages", "tools")
	if err != nil {
		return nil, err
	}
	top, options, err := splitExtra(h.Extra)
	if err != nil {
		return nil, h.Unsent(err.Error())
	}
	if stray != "" {
		h.Ignored("tool_choice", "tool "+stray+" is not in the request")
	}
	c.encodeMessages(ctx, req, messages)
	if err := h.End(&offer, &c.model.tools); err != nil {
		return nil, err
	}
	withTools := len(offer.Tools) > 0 && len(h.Tools) > 0
	c.encodeSystem(req, withTools, demand)
	c.encodeHead(req, top, options, withTools)

	parts := [][]byte{h.Head}
	if withTools {
		parts = append(parts, toolsOpen, h.Tools, listEnd)
	}
	parts = append(parts, messagesOpen, c.system)
	if len(c.system) > 0 && len(h.Messages) > 0 {
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

// choose replaces a tool choice, which this API does not have: no
// tools for none, only one tool for a name, and an instruction in the system text
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
// calling tools, because it applies to the whole reply, so with tools the
// schema is put into the system text.
func (c *conversation) encodeSystem(req *toolcrib.Request, withTools bool, demand string) {
	text := req.System
	if withTools {
		text = wire.WithSchemaInstruction(text, req.OutputSchema)
		if demand != "" {
			text = strings.TrimPrefix(text+"\n\n"+demand, "\n\n")
		}
	}
	if c.system = c.system[:0]; text != "" {
		c.system = append(c.system, `{"role":"system","content":`...)
		c.system = append(wire.AppendString(c.system, text), '}')
	}
}

// encodeHead encodes everything except tools and messages. It is small, so it is
// encoded for each request.
func (c *conversation) encodeHead(req *toolcrib.Request, top, options wire.Extra, withTools bool) {
	var o wire.Object
	o.Begin(c.history.Head[:0], top)
	o.Always("model")
	o.Buf = wire.AppendString(o.Buf, req.Model)
	o.Always("stream") // the default is true
	o.Buf = strconv.AppendBool(o.Buf, c.history.Streams())
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

// think returns the JSON value of think, or "" to send none. Models that do not think reject
// a request with it, so it is sent only if it is configured.
// Only gpt-oss accepts levels on every version of Ollama; it cannot be turned off.
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

// encodeMessages appends the new messages to the encoded history. The images of results
// follow after all results of their turn, as a message of the user, because the
// templates of many models do not support images in the message of a tool.
func (c *conversation) encodeMessages(ctx context.Context, req *toolcrib.Request, messages []toolcrib.Message) {
	e := encoder{
		model: req.Model, own: c.model.opts.Name + "/" + req.Model, dst: c.history.Messages,
		drop: c.model.opts.Reasoning == wire.ReasoningDrop,
	}
	e.open = func(f *toolcrib.File) []byte { return c.open(ctx, req, f) }
	for i := range messages {
		m := &messages[i]
		if m.Role != toolcrib.RoleTool {
			e.flush()
		}
		switch m.Role {
		case toolcrib.RoleAssistant:
			e.assistant(m)
		case toolcrib.RoleTool:
			e.results(m)
		default:
			e.user(c.history.Files.Inline(m))
		}
	}
	e.flush()
	c.history.Messages = e.dst
}

type encoder struct {
	dst        []byte
	model, own string // the name of the model, and that name with the provider as a prefix
	drop       bool   // send no reasoning back
	// open returns the content of an image as base64, or nil for a file that is not sent.
	open func(f *toolcrib.File) []byte

	pending      [][]byte // images of results, encoded
	pendingNames []byte   // names of the tools of these images
}

func (e *encoder) begin(role string) {
	if len(e.dst) > 0 {
		e.dst = append(e.dst, ',')
	}
	e.dst = append(append(append(e.dst, `{"role":"`...), role...), `","content":"`...)
}

func (e *encoder) images(list [][]byte) {
	if len(list) == 0 {
		return
	}
	e.dst = append(e.dst, `,"images":[`...)
	for i, image := range list {
		if i > 0 {
			e.dst = append(e.dst, ',')
		}
		e.dst = append(append(append(e.dst, '"'), image...), '"')
	}
	e.dst = append(e.dst, ']')
}

func (e *encoder) user(m *toolcrib.Message) {
	e.begin("user")
	var images [][]byte
	for i := range m.Parts {
		f := m.Parts[i].File
		if f == nil {
			e.dst = wire.AppendEscaped(e.dst, m.Parts[i].Text)
			continue
		}
		if image := e.open(f); image != nil {
			images = append(images, image)
			continue
		}
		e.dst = wire.AppendEscaped(e.dst, wire.FileText(f))
	}
	e.dst = append(e.dst, '"')
	e.images(images)
	e.dst = append(e.dst, '}')
}

// assistant encodes a turn of the model. An empty turn is left out.
// Reasoning is sent back to the model that made it, because the templates of models that
// think between calls require it.
func (e *encoder) assistant(m *toolcrib.Message) {
	var said, calls bool
	for i := range m.Parts {
		said = said || m.Parts[i].Text != ""
		calls = calls || m.Parts[i].ToolCall != nil
	}
	if !said && !calls {
		return
	}
	e.begin("assistant")
	var thought bool
	for i := range m.Parts {
		e.dst = wire.AppendEscaped(e.dst, m.Parts[i].Text)
		thought = thought || e.replays(m.Parts[i].Thinking)
	}
	e.dst = append(e.dst, '"')
	if thought {
		e.dst = append(e.dst, `,"thinking":"`...)
		for i := range m.Parts {
			if t := m.Parts[i].Thinking; e.replays(t) {
				e.dst = wire.AppendEscaped(e.dst, t.Text)
			}
		}
		e.dst = append(e.dst, '"')
	}
	if calls {
		e.calls(m.Parts)
	}
	e.dst = append(e.dst, '}')
}

// replays reports whether a block of reasoning is from this model. A block with a
// signature is from another API.
func (e *encoder) replays(t *toolcrib.Thinking) bool {
	if t == nil || t.Text == "" || t.Signature != "" || e.drop {
		return false
	}
	return t.Model == "" || t.Model == e.own || t.Model == e.model
}

// calls encodes the calls of a turn. Their arguments are objects, {} if there are no arguments
// (N13, N14).
func (e *encoder) calls(parts []toolcrib.Part) {
	e.dst = append(e.dst, `,"tool_calls":[`...)
	first := true
	for i := range parts {
		call := parts[i].ToolCall
		if call == nil {
			continue
		}
		if !first {
			e.dst = append(e.dst, ',')
		}
		first = false
		e.dst = append(e.dst, `{"function":{"name":`...)
		e.dst = wire.AppendString(e.dst, wire.Token(call.Name, maxName))
		e.dst = append(e.dst, `,"arguments":`...)
		e.dst = append(append(e.dst, wire.Arguments(call)...), `}}`...)
	}
	e.dst = append(e.dst, ']')
}

// results encodes results in the order of their calls, by which the API
// matches them; each has the name of the tool.
func (e *encoder) results(m *toolcrib.Message) {
	for i := range m.Parts {
		r := m.Parts[i].ToolResult
		if r == nil {
			continue
		}
		e.begin("tool")
		e.dst = wire.AppendEscaped(e.dst, r.Content)
		sent := false
		for f := range r.Files {
			if image := e.open(&r.Files[f]); image != nil {
				e.pending, sent = append(e.pending, image), true
				continue
			}
			e.dst = wire.AppendEscaped(append(e.dst, `\n`...), wire.FileText(&r.Files[f]))
		}
		e.dst = append(e.dst, `","tool_name":`...)
		e.dst = append(wire.AppendString(e.dst, wire.Token(r.Name, maxName)), '}')
		if sent {
			e.pendingNames = wire.AppendEscaped(append(e.pendingNames, ' '), wire.Token(r.Name, maxName))
		}
	}
}

func (e *encoder) flush() {
	if len(e.pending) == 0 {
		return
	}
	e.begin("user")
	e.dst = append(append(append(e.dst, "Images from the results of:"...), e.pendingNames...), '"')
	e.images(e.pending)
	e.dst = append(e.dst, '}')
	e.pending, e.pendingNames = nil, nil
}

// open returns the content of an image as base64, or nil for a file that is not
// sent, with a notice about the reason.
func (c *conversation) open(ctx context.Context, req *toolcrib.Request, f *toolcrib.File) []byte {
	if req.Files != nil {
		if info := c.model.info(ctx, req.Model); info.Capabilities && !info.Vision {
			c.history.Files.Refuse(f, "model "+wire.Line(req.Model)+" takes no images")
			return nil
		}
	}
	image := c.history.Files.Open(f)
	if image == nil {
		return nil
	}
	return image.AppendBase64(nil)
}
