package gemini

import (
	"net/http"
	"strings"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/provider/wire"
)

// maxCalls bounds the calls of one reply; a turn may have 64 by default.
const maxCalls = 4096

// NoticeStopped is the code of the notice that tells in the API's words why a
// reply was stopped or a prompt blocked.
const NoticeStopped = "provider_stopped"

// decoder reads one reply.
type decoder struct {
	provider string
	model    string // bare name of the model that was asked
	tools    []string
	notices  []toolcrib.Notice

	parts    []part // of the frame at hand
	calls    int
	finish   toolcrib.Finish
	reason   string // finishReason as sent
	message  string // finishMessage
	blocked  string // promptFeedback.blockReason
	text     wire.Runes
	thinking wire.Runes
}

// part is one part of a content.
type part struct {
	text      string
	thought   bool
	signature string
	call      bool
	id, name  string
	args      string // JSON text
}

func (d *decoder) Begin(http.Header) {}

func (d *decoder) Complete() bool { return d.reason != "" || d.blocked != "" }

// Frame reads one chunk of a stream. The stream has no mark of its end: chunks
// may follow the one with the reason, so it is read to its end.
func (d *decoder) Frame(f wire.Frame, emit wire.Emit) (alive, done bool, err error) {
	if len(f.Data) == 0 {
		return false, false, nil
	}
	if string(f.Data) == "[DONE]" {
		return false, d.Complete(), nil // some gateways end so
	}
	_, err = d.read(f.Data, emit)
	return true, false, err
}

// Whole reads a reply in one piece: it has the form of one chunk.
func (d *decoder) Whole(body []byte, emit wire.Emit) error {
	known, err := d.read(body, emit)
	if err == nil && !known {
		return &toolcrib.ModelError{Class: toolcrib.ErrOther, Provider: d.provider, Message: "answered with JSON that is no content: check base_url", Detail: wire.Clip(string(body), 8<<10)}
	}
	return err
}

// read decodes one GenerateContentResponse. known reports whether it was one.
func (d *decoder) read(data []byte, emit wire.Emit) (known bool, err error) {
	c := wire.NewCursor(data)
	if c.Peek() != '{' {
		c.Skip()
		return false, c.End() // a JSON value that is no object says nothing
	}
	d.parts = d.parts[:0]
	failed := false
	before := d.reason
	c.Enter('{')
	for {
		key, ok := c.Key()
		if !ok {
			break
		}
		switch string(key) {
		case "candidates":
			known = true
			d.candidates(&c)
		case "usageMetadata":
			known = true
			d.usage(&c)
		case "promptFeedback":
			known = true
			d.feedback(&c)
		case "modelVersion":
			d.once(&c, &d.finish.Model)
		case "responseId":
			d.once(&c, &d.finish.RequestID)
		case "error":
			failed = c.Peek() != 'n'
			c.Skip()
		default:
			c.Skip()
		}
	}
	if err := c.End(); err != nil {
		return known, err
	}
	if failed {
		return known, wire.EventError(d.provider, data)
	}
	for i := range d.parts {
		if err := d.emit(&d.parts[i], emit); err != nil {
			return known, err
		}
	}
	if before == "" && d.reason == "MALFORMED_FUNCTION_CALL" {
		d.malformed(emit)
	}
	return known, nil
}

// once reads a text that stands in every chunk.
func (d *decoder) once(c *wire.Cursor, into *string) {
	if *into != "" {
		c.Skip()
		return
	}
	*into = text(c)
}

func text(c *wire.Cursor) string {
	if c.Peek() != '"' {
		c.Skip()
		return ""
	}
	return c.String()
}

func (d *decoder) candidates(c *wire.Cursor) {
	if !c.Enter('[') {
		return
	}
	for n := 0; c.Next(); n++ {
		if n > 0 || !c.Enter('{') {
			if n > 0 {
				c.Skip() // only one was asked for
			}
			continue
		}
		for {
			key, ok := c.Key()
			if !ok {
				break
			}
			switch string(key) {
			case "content":
				d.content(c)
			case "finishReason":
				if reason := text(c); reason != "" && reason != "FINISH_REASON_UNSPECIFIED" {
					d.reason = reason
				}
			case "finishMessage":
				d.message = text(c)
			default:
				c.Skip()
			}
		}
	}
}

func (d *decoder) content(c *wire.Cursor) {
	if !c.Enter('{') {
		return
	}
	for {
		key, ok := c.Key()
		if !ok {
			return
		}
		if string(key) != "parts" {
			c.Skip()
			continue
		}
		if !c.Enter('[') {
			continue
		}
		for c.Next() {
			d.parts = append(d.parts, readPart(c))
		}
	}
}

func readPart(c *wire.Cursor) part {
	var p part
	if !c.Enter('{') {
		return p
	}
	for {
		key, ok := c.Key()
		if !ok {
			return p
		}
		switch string(key) {
		case "text":
			p.text = text(c)
		case "thought":
			p.thought = c.Peek() == 't'
			c.Skip()
		case "thoughtSignature", "thought_signature":
			p.signature = text(c)
		case "functionCall":
			p.readCall(c)
		default:
			c.Skip() // code, images, what the API ran by itself
		}
	}
}

func (p *part) readCall(c *wire.Cursor) {
	if !c.Enter('{') {
		return
	}
	p.call = true
	for {
		key, ok := c.Key()
		if !ok {
			return
		}
		switch string(key) {
		case "id":
			p.id = text(c)
		case "name":
			p.name = text(c)
		case "args":
			if p.args = string(c.Raw()); p.args == "null" {
				p.args = ""
			}
		default:
			c.Skip()
		}
	}
}

// emit hands on what a part said. A signature of a text goes before its text,
// with the text's length: see signature.go.
func (d *decoder) emit(p *part, emit wire.Emit) error {
	switch {
	case p.call:
		if p.args == "" {
			p.args = "{}" // a call without arguments (N13)
		}
		return d.emitCall(&toolcrib.ToolCallDelta{ID: p.id, Name: p.name, Arguments: p.args, Signature: sealCall(d.model, p.signature)}, emit)
	case p.thought:
		if s := d.thinking.Add(p.text); s != "" {
			emit(toolcrib.Delta{Thinking: s})
		}
		if p.signature != "" {
			emit(toolcrib.Delta{Signature: p.signature})
		}
		return nil
	}
	s := d.text.Add(p.text)
	if p.signature != "" {
		emit(toolcrib.Delta{Redacted: sealText(len(s), p.signature)})
	}
	if s != "" {
		emit(toolcrib.Delta{Text: s})
	}
	return nil
}

func (d *decoder) emitCall(delta *toolcrib.ToolCallDelta, emit wire.Emit) error {
	if d.calls == maxCalls {
		return &toolcrib.ModelError{Class: toolcrib.ErrOther, Provider: d.provider, Message: "the reply asks for too many tool calls"}
	}
	delta.Index = d.calls
	d.calls++
	emit(toolcrib.Delta{ToolCall: delta})
	return nil
}

// malformed hands on a call that the model wrote and the API could not read: it
// comes with the API's words instead of arguments, so that the loop refuses it
// (parse_error) and the model can mend it. Without tools there is none to mend.
func (d *decoder) malformed(emit wire.Emit) {
	if len(d.tools) == 0 {
		return
	}
	said := d.message
	if said == "" {
		said = "malformed function call"
	}
	// Below maxCalls in any case: a whole reply has failed before.
	_ = d.emitCall(&toolcrib.ToolCallDelta{Name: meant(said, d.tools), Arguments: said}, emit)
}

// meant finds the tool that a text such as print(default_api.f(x=1)) is about.
func meant(said string, tools []string) string {
	words := strings.FieldsFunc(said, func(r rune) bool {
		return r != '_' && r != '-' && (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z')
	})
	for _, w := range words {
		for _, name := range tools {
			if w == name {
				return name
			}
		}
	}
	return ""
}

func (d *decoder) feedback(c *wire.Cursor) {
	if !c.Enter('{') {
		return
	}
	for {
		key, ok := c.Key()
		if !ok {
			return
		}
		switch string(key) {
		case "blockReason":
			if reason := text(c); reason != "" && !strings.HasSuffix(reason, "_UNSPECIFIED") {
				d.blocked = reason
			}
		case "blockReasonMessage":
			d.message = text(c)
		default:
			c.Skip()
		}
	}
}

// usage reads the tokens; each chunk tells the sums so far, but not all of them.
func (d *decoder) usage(c *wire.Cursor) {
	if !c.Enter('{') {
		return
	}
	var prompt, cached, tool, candidates, thoughts int64
	for {
		key, ok := c.Key()
		if !ok {
			break
		}
		switch string(key) {
		case "promptTokenCount":
			prompt = c.Int()
		case "cachedContentTokenCount":
			cached = c.Int()
		case "toolUsePromptTokenCount":
			tool = c.Int()
		case "candidatesTokenCount":
			candidates = c.Int()
		case "thoughtsTokenCount":
			thoughts = c.Int()
		default:
			c.Skip()
		}
	}
	u := &d.finish.Usage
	answer := max(u.OutputTokens-u.ReasoningTokens, candidates, 0)
	u.ReasoningTokens = max(u.ReasoningTokens, thoughts)
	u.OutputTokens = answer + u.ReasoningTokens
	u.InputTokens = max(u.InputTokens, max(prompt, 0)+max(tool, 0))
	u.CachedInputTokens = min(max(u.CachedInputTokens, cached), u.InputTokens)
	u.Reported = true
}

// Finish maps the reason.
func (d *decoder) Finish() toolcrib.Finish {
	f := d.finish
	f.Notices = d.notices
	reason := d.reason
	if reason == "" {
		reason = d.blocked
		f.Reason = toolcrib.FinishFiltered
	} else {
		f.Reason = d.mapped()
	}
	if f.Reason == toolcrib.FinishFiltered || f.Reason == toolcrib.FinishOther || reason == "MALFORMED_FUNCTION_CALL" {
		said := reason
		if d.message != "" {
			said += ": " + wire.Line(d.message)
		}
		f.Notices = append(f.Notices[:len(f.Notices):len(f.Notices)], wire.Notice(NoticeStopped, "the API ended the reply: %s", wire.Line(said)))
	}
	return f
}

func (d *decoder) mapped() toolcrib.FinishReason {
	switch d.reason {
	case "STOP":
		if d.calls > 0 {
			return toolcrib.FinishToolCalls
		}
		return toolcrib.FinishStop
	case "MALFORMED_FUNCTION_CALL":
		if d.calls > 0 {
			return toolcrib.FinishToolCalls
		}
		return toolcrib.FinishOther
	case "MAX_TOKENS":
		return toolcrib.FinishLength
	case "SAFETY", "RECITATION", "LANGUAGE", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "MODEL_ARMOR",
		"IMAGE_SAFETY", "IMAGE_PROHIBITED_CONTENT", "IMAGE_RECITATION":
		return toolcrib.FinishFiltered
	}
	return toolcrib.FinishOther
}
