package ollama

import (
	"context"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/provider/wire"
)

// encodeMessages adds to the encoded history what is new. The images of results
// follow when all results of their turn are there, as a message of the user: the
// templates of many models know no images in the message of a tool.
func (c *conversation) encodeMessages(ctx context.Context, req *toolcrib.Request, messages []toolcrib.Message) {
	e := encoder{model: req.Model, own: c.model.opts.Name + "/" + req.Model, dst: c.history.Messages}
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
			e.user(c.files.Inline(ctx, req, m))
		}
	}
	e.flush()
	c.history.Messages = e.dst
}

type encoder struct {
	dst        []byte
	model, own string // the name of the model, and that with the provider's before it
	// open returns the content of an image as base64, nil for a file that is not sent.
	open func(f *toolcrib.File) []byte

	pending      [][]byte // images of results, encoded
	pendingNames []byte   // of the tools that they came from
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

// assistant encodes a turn of the model. A turn that says nothing is left out.
// Reasoning goes back to the model that made it: the templates of those that
// think between calls want it.
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

// replays reports whether a block of reasoning is this model's own. One with a
// signature is of another API.
func (e *encoder) replays(t *toolcrib.Thinking) bool {
	if t == nil || t.Text == "" || t.Signature != "" {
		return false
	}
	return t.Model == "" || t.Model == e.own || t.Model == e.model
}

// calls encodes the calls of a turn: their arguments are objects, {} for none
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

// results encodes results in the order of their calls, which is how the API
// matches them; the name of the tool stands with each.
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

// fileRules are the images that every version of Ollama can decode: one that it
// cannot makes the whole request fail.
func fileRules() wire.FileRules {
	return wire.FileRules{Types: []string{"image/png", "image/jpeg", "image/webp"}}
}

// open returns the content of an image as base64, or nil for a file that is not
// sent, with a notice that says why.
func (c *conversation) open(ctx context.Context, req *toolcrib.Request, f *toolcrib.File) []byte {
	if req.Files != nil {
		if info := c.model.info(ctx, req.Model); info.Capabilities && !info.Vision {
			c.files.Refuse(f, "model "+wire.Line(req.Model)+" takes no images")
			return nil
		}
	}
	image := c.files.Open(ctx, req, f)
	if image == nil {
		return nil
	}
	return image.AppendBase64(nil)
}
