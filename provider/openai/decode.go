package openai

import (
	"net/http"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/provider/wire"
)

// decoder reads one reply. It is lenient where compatible servers differ: see
// the comments.
type decoder struct {
	provider string
	notices  []toolcrib.Notice

	calls    []callState
	finish   toolcrib.Finish
	reason   string // finish_reason as sent
	refused  bool
	over     bool // [DONE] was sent
	whole    bool // the reply comes in one piece
	details  details
	failed   []byte // an error object inside a choice
	text     wire.Runes
	thinking wire.Runes
}

// piece is what one choice of one frame says.
type piece struct {
	text, thinking, refusal string
	detailed                string // reasoning that only stands in the details
	calls                   []callPiece
}

func (d *decoder) Begin(h http.Header) {
	d.finish.RequestID = h.Get("X-Request-Id")
}

func (d *decoder) Frame(f wire.Frame, emit wire.Emit) (alive, done bool, err error) {
	if len(f.Data) == 0 {
		return false, false, nil
	}
	if string(f.Data) == "[DONE]" {
		// A server that says so has sent all, even if it gave no reason.
		d.over = true
		return true, true, nil
	}
	return true, false, d.read(f.Data, emit)
}

func (d *decoder) Whole(body []byte, emit wire.Emit) error {
	d.whole = true
	return d.read(body, emit)
}

func (d *decoder) Complete() bool { return d.over || d.reason != "" }

func (d *decoder) read(data []byte, emit wire.Emit) error {
	var p piece
	c := wire.NewCursor(data)
	if c.Peek() != '{' {
		c.Skip()
		return c.End() // a JSON value that is no object says nothing
	}
	choices := false
	c.Enter('{')
	for {
		key, ok := c.Key()
		if !ok {
			break
		}
		switch string(key) {
		case "choices":
			choices = true
			d.readChoices(&c, &p)
		case "usage":
			d.readUsage(&c)
		case "x_groq":
			d.readGroq(&c)
		case "model":
			if d.finish.Model == "" {
				d.finish.Model = c.String()
			} else {
				c.Skip()
			}
		case "error":
			d.setFailed(c.Raw(), data)
		case "object":
			if textIs(&c, "error") {
				d.failed = data // vLLM
			}
		default:
			c.Skip()
		}
	}
	if err := c.End(); err != nil {
		return err
	}
	if d.failed != nil {
		return wire.EventError(d.provider, d.failed)
	}
	if d.whole && !choices {
		return &toolcrib.ModelError{Class: toolcrib.ErrOther, Provider: d.provider, Message: "answered with JSON that is no chat completion: check base_url", Detail: wire.Clip(string(data), 8<<10)}
	}
	if d.reason == "error" {
		return wire.EventError(d.provider, data)
	}
	if p.thinking == "" {
		p.thinking = p.detailed
	}
	if len(d.calls)+len(p.calls) > maxCalls {
		return &toolcrib.ModelError{Class: toolcrib.ErrOther, Provider: d.provider, Message: "the reply asks for too many tool calls"}
	}
	d.emit(&p, emit)
	return nil
}

// setFailed keeps what an error is told in: the object that holds it.
func (d *decoder) setFailed(raw, holder []byte) {
	if len(raw) > 0 && string(raw) != "null" {
		d.failed = holder
	}
}

// emit hands on what a frame said, in the order in which a model works.
func (d *decoder) emit(p *piece, emit wire.Emit) {
	if p.thinking != "" {
		if s := d.thinking.Add(p.thinking); s != "" && !emit(toolcrib.Delta{Thinking: s}) {
			return
		}
	}
	// The details end the block of their text: what is masked there takes them away.
	if p.text+p.refusal != "" || len(p.calls) > 0 || d.reason != "" {
		if s := d.details.take(); s != "" && !emit(toolcrib.Delta{Signature: s}) {
			return
		}
	}
	// A refusal is what the model says; that it is one stands in the reason.
	if said := p.text + p.refusal; said != "" {
		d.refused = d.refused || p.refusal != ""
		if s := d.text.Add(said); s != "" && !emit(toolcrib.Delta{Text: s}) {
			return
		}
	}
	for i := range p.calls {
		if delta := d.addCall(&p.calls[i]); delta != nil && !emit(toolcrib.Delta{ToolCall: delta}) {
			return
		}
	}
}

func (d *decoder) readChoices(c *wire.Cursor, p *piece) {
	if !c.Enter('[') {
		return
	}
	for n := 0; c.Next(); n++ {
		if n > 0 {
			c.Skip() // only one was asked for
			continue
		}
		d.readChoice(c, p)
	}
}

func (d *decoder) readChoice(c *wire.Cursor, p *piece) {
	if !c.Enter('{') {
		return
	}
	for {
		key, ok := c.Key()
		if !ok {
			return
		}
		switch string(key) {
		case "delta":
			d.readMessage(c, p)
		case "message":
			if d.whole {
				d.readMessage(c, p)
			} else {
				c.Skip()
			}
		case "error":
			raw := c.Raw() // OpenRouter tells it inside the choice too
			d.setFailed(raw, append(append([]byte(`{"error":`), raw...), '}'))
		case "finish_reason":
			if reason := c.Text(); reason != "" {
				d.reason = reason
			}
		default:
			c.Skip()
		}
	}
}

func (d *decoder) readMessage(c *wire.Cursor, p *piece) {
	if !c.Enter('{') {
		return
	}
	var reasoning, reasoningContent string
	for {
		key, ok := c.Key()
		if !ok {
			break
		}
		switch string(key) {
		case "content":
			readContent(c, p)
		case "reasoning_content":
			reasoningContent = readText(c)
		case "reasoning":
			reasoning = readText(c)
		case "reasoning_details":
			p.detailed += d.details.read(c)
		case "refusal":
			p.refusal = readText(c)
		case "tool_calls":
			p.calls = readCalls(c)
		case "function_call":
			if piece, ok := readFunction(c, callPiece{index: -1}); ok {
				p.calls = append(p.calls, piece)
			}
		default:
			c.Skip()
		}
	}
	// Some servers send the same text under both names.
	if reasoningContent == "" {
		reasoningContent = reasoning
	}
	p.thinking += reasoningContent
}

// textIs compares a string without a copy of it.
func textIs(c *wire.Cursor, want string) bool {
	if c.Peek() != '"' {
		c.Skip()
		return false
	}
	return string(c.Bytes()) == want
}

func readText(c *wire.Cursor) string {
	if c.Peek() != '"' {
		c.Skip()
		return ""
	}
	return c.String()
}

// readContent reads a string, null, or a list of parts as Mistral sends it.
func readContent(c *wire.Cursor, p *piece) {
	if c.Peek() != '[' {
		p.text += readText(c)
		return
	}
	text, thinking := readParts(c)
	p.text += string(text)
	p.thinking += string(thinking)
}

func readParts(c *wire.Cursor) (text, thinking []byte) {
	if !c.Enter('[') {
		return nil, nil
	}
	for c.Next() {
		if !c.Enter('{') {
			continue
		}
		for {
			key, ok := c.Key()
			if !ok {
				break
			}
			switch string(key) {
			case "text":
				text = append(text, readText(c)...)
			case "thinking":
				inner, _ := readParts(c)
				thinking = append(thinking, inner...)
			default:
				c.Skip()
			}
		}
	}
	return text, thinking
}

func (d *decoder) readGroq(c *wire.Cursor) {
	if !c.Enter('{') {
		return
	}
	for {
		key, ok := c.Key()
		if !ok {
			return
		}
		if string(key) == "usage" {
			d.readUsage(c)
			continue
		}
		c.Skip()
	}
}

// readUsage reads the tokens; the last report of a stream is the whole.
func (d *decoder) readUsage(c *wire.Cursor) {
	if !c.Enter('{') {
		return
	}
	u := toolcrib.TokenUsage{Reported: true}
	for {
		key, ok := c.Key()
		if !ok {
			break
		}
		switch string(key) {
		case "prompt_tokens":
			u.InputTokens = c.Int()
		case "completion_tokens":
			u.OutputTokens = c.Int()
		case "prompt_tokens_details":
			u.CachedInputTokens = max(u.CachedInputTokens, readCount(c, "cached_tokens"))
		case "completion_tokens_details":
			u.ReasoningTokens = readCount(c, "reasoning_tokens")
		case "prompt_cache_hit_tokens":
			u.CachedInputTokens = max(u.CachedInputTokens, c.Int())
		case "cost":
			if cost, ok := c.Float(); ok && cost >= 0 {
				u.CostUSD = &cost
			}
		default:
			c.Skip()
		}
	}
	u.InputTokens, u.OutputTokens = max(u.InputTokens, 0), max(u.OutputTokens, 0)
	u.CachedInputTokens = min(max(u.CachedInputTokens, 0), u.InputTokens)
	u.ReasoningTokens = min(max(u.ReasoningTokens, 0), u.OutputTokens)
	d.finish.Usage = u
}

func readCount(c *wire.Cursor, name string) (n int64) {
	if !c.Enter('{') {
		return 0
	}
	for {
		key, ok := c.Key()
		if !ok {
			return n
		}
		if string(key) == name {
			n = c.Int()
			continue
		}
		c.Skip()
	}
}

// Finish maps the reason. Some servers say stop, or nothing, where the model
// waits for results: what it asked for counts.
func (d *decoder) Finish() toolcrib.Finish {
	f := d.finish
	f.Notices = d.notices
	switch d.reason {
	case "length", "max_tokens", "model_length":
		f.Reason = toolcrib.FinishLength
	case "content_filter":
		f.Reason = toolcrib.FinishFiltered
	case "stop", "tool_calls", "tool_call", "function_call", "eos", "eos_token", "end_turn", "stop_sequence", "":
		f.Reason = toolcrib.FinishStop
		if len(d.calls) > 0 {
			f.Reason = toolcrib.FinishToolCalls
		}
	default:
		f.Reason = toolcrib.FinishOther
	}
	if d.refused && len(d.calls) == 0 {
		f.Reason = toolcrib.FinishFiltered
	}
	return f
}
