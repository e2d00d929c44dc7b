package openai

import (
	"cmp"
	"context"
	"encoding/json"
	"strconv"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/provider/wire"
)

// minOutputTokens is the smallest bound of the output that the Responses API accepts.
const minOutputTokens = 16

// includeReasoning requests reasoning in a form that can be sent back, since
// nothing is stored on the server.
const includeReasoning = `["reasoning.encrypted_content"]`

var inputOpen = []byte(`,"input":[`)

func (c *conversation) encodeResponses(ctx context.Context, req *toolcrib.Request) (*wire.Body, error) {
	messages, _, err := c.begin(ctx, req, "model", "input", "tools", "instructions")
	if err != nil {
		return nil, err
	}
	h := &c.history
	w := responsesWriter{conversation: c, asked: req.Model, phases: c.model.rules.vendor && hasPhases(req.Model)}
	for i := range messages {
		h.Messages = w.appendMessage(h.Messages, &messages[i])
	}
	return c.finish(req, true, inputOpen)
}

// encodeResponsesHead encodes the fields that only the Responses API has.
func (c *conversation) encodeResponsesHead(o *wire.Object, req *toolcrib.Request) {
	vendor := c.model.rules.vendor
	if o.Member("store") {
		o.Buf = append(o.Buf, "false"...)
	}
	if reasons(req.Model) && o.Member("include") {
		o.Buf = append(o.Buf, includeReasoning...)
	}
	if c.plain.System != "" {
		o.Always("instructions")
		o.Buf = wire.AppendString(o.Buf, c.plain.System)
	}
	word := req.Reasoning
	if reasons(req.Model) {
		word = c.effort(req)
	} else if word == "off" {
		word = "none"
	}
	c.encodeTemperature(o, req, word)
	switch {
	case word == "":
	case vendor && !reasons(req.Model):
		c.history.Ignored("reasoning", req.Model+" does not take it")
	case o.Member("reasoning"):
		o.Buf = append(o.Buf, `{"effort":`...)
		o.Buf = append(wire.AppendString(o.Buf, word), '}')
	}
	if n := req.MaxOutputTokens; n > 0 && o.Member("max_output_tokens") {
		if vendor {
			n = max(n, minOutputTokens)
		}
		o.Buf = strconv.AppendInt(o.Buf, int64(n), 10)
	}
}

// hasPhases reports whether a model distinguishes commentary from the answer,
// also in earlier turns: GPT-5.3 codex, and GPT-5.4 and later.
func hasPhases(model string) bool {
	return sinceGPT(model, 5, 4) || sinceGPT(model, 5, 3) && needsResponses(model)
}

// responsesWriter encodes the new messages of one request as items.
type responsesWriter struct {
	*conversation
	asked  string // name of the model
	phases bool
}

func (w *responsesWriter) appendMessage(dst []byte, m *toolcrib.Message) []byte {
	switch m.Role {
	case toolcrib.RoleAssistant:
		return w.appendAssistant(dst, m)
	case toolcrib.RoleTool:
		for i := range m.Parts {
			if r := m.Parts[i].ToolResult; r != nil {
				dst = w.appendOutput(dst, r)
			}
		}
		return dst
	}
	return w.appendUser(dst, m)
}

func (w *responsesWriter) appendUser(dst []byte, m *toolcrib.Message) []byte {
	dst = append(separator(dst), `{"type":"message","role":"user","content":`...)
	dst, _ = w.appendParts(dst, w.history.Files.Inline(m), `{"type":"input_text","text":"`, appendResponsesFile)
	return append(dst, '}')
}

func appendResponsesFile(dst []byte, a *wire.Attachment) []byte {
	if a.Image() {
		dst = append(dst, `{"type":"input_image","detail":"auto","image_url":"`...)
		return append(a.AppendDataURL(dst), `"}`...)
	}
	dst = append(dst, `{"type":"input_file","filename":`...)
	dst = wire.AppendString(dst, a.Name)
	dst = append(dst, `,"file_data":"`...)
	return append(a.AppendDataURL(dst), `"}`...)
}

// appendOutput encodes a result: a text, or a list if it has files.
func (w *responsesWriter) appendOutput(dst []byte, r *toolcrib.ToolResult) []byte {
	dst = append(separator(dst), `{"type":"function_call_output","call_id":`...)
	dst = wire.AppendString(dst, responsesCallID(r.CallID))
	dst = append(dst, `,"output":`...)
	text := r.Content
	var found []*wire.Attachment
	for i := range r.Files {
		if a := w.history.Files.Open(&r.Files[i]); a != nil {
			found = append(found, a)
			continue
		}
		if text != "" {
			text += "\n"
		}
		text += wire.FileText(&r.Files[i])
	}
	if len(found) == 0 {
		return append(wire.AppendString(dst, text), '}')
	}
	dst = append(dst, '[')
	if text != "" {
		dst = append(dst, `{"type":"input_text","text":`...)
		dst = append(wire.AppendString(dst, text), `},`...)
	}
	for _, a := range found {
		dst = append(appendResponsesFile(dst, a), ',')
	}
	return append(dst[:len(dst)-1], `]}`...)
}

// appendAssistant encodes a turn of the model in the order of its parts. Reasoning
// is only sent before the text or call that it led to: alone it is rejected.
func (w *responsesWriter) appendAssistant(dst []byte, m *toolcrib.Message) []byte {
	last, calls := -1, false
	for i := range m.Parts {
		p := &m.Parts[i]
		if p.Text != "" || p.ToolCall != nil {
			last = i
		}
		calls = calls || p.ToolCall != nil
	}
	open := false // whether a message is open
	for i := 0; i <= last; i++ {
		p := &m.Parts[i]
		if p.Text != "" && open {
			dst = wire.AppendEscaped(dst, p.Text)
			continue
		}
		if open {
			dst, open = append(dst, `"}`...), false
		}
		switch {
		case p.Text != "":
			dst, open = w.openMessage(dst, calls), true
			dst = wire.AppendEscaped(dst, p.Text)
		case p.Thinking != nil:
			dst = w.appendReasoning(dst, p.Thinking)
		case p.ToolCall != nil:
			dst = appendFunctionCall(dst, p.ToolCall)
		}
	}
	if open {
		dst = append(dst, `"}`...)
	}
	return dst
}

func (w *responsesWriter) openMessage(dst []byte, calls bool) []byte {
	dst = append(separator(dst), `{"type":"message","role":"assistant",`...)
	switch {
	case !w.phases:
	case calls:
		dst = append(dst, `"phase":"commentary",`...)
	default:
		dst = append(dst, `"phase":"final_answer",`...)
	}
	return append(dst, `"content":"`...)
}

func appendFunctionCall(dst []byte, call *toolcrib.ToolCall) []byte {
	dst = append(separator(dst), `{"type":"function_call","call_id":`...)
	dst = wire.AppendString(dst, responsesCallID(call.ID))
	dst = append(dst, `,"name":`...)
	dst = wire.AppendString(dst, wire.Token(call.Name, maxName))
	dst = append(dst, `,"arguments":`...)
	return append(wire.AppendString(dst, wire.Arguments(call)), '}')
}

// appendReasoning sends an item of reasoning back unchanged, if it is of this
// API and of the same model.
func (w *responsesWriter) appendReasoning(dst []byte, t *toolcrib.Thinking) []byte {
	raw := cmp.Or(t.Redacted, t.Signature)
	if !isReasoningItem(raw) || !wire.Own(t, w.asked) {
		return dst
	}
	return append(separator(dst), raw...)
}

const reasoningOpen = `{"type":"reasoning",`

func isReasoningItem(raw string) bool {
	return len(raw) > len(reasoningOpen) && raw[:len(reasoningOpen)] == reasoningOpen && json.Valid([]byte(raw))
}

// maxResponsesID is the most bytes of a call ID that the Responses API accepts.
const maxResponsesID = 64

func responsesCallID(id string) string {
	if id != "" && len(id) <= maxResponsesID {
		return id
	}
	return wire.Token(id, maxResponsesID)
}
