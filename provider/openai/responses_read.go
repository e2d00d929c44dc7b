package openai

import (
	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/provider/wire"
)

// responsesItem is one item of the output.
type responsesItem struct {
	kind      string
	id        string
	callID    string
	name      string
	arguments string
	text      string // of a message, refusals too
	refused   bool
	thoughts  []string // texts of the summary, or of the content of reasoning

	summary, content, encrypted []byte // of reasoning, as they stand
}

// back is an item of reasoning as the API wants it back; "" = it does not:
// without encrypted content it is only known to a server that stores it. Servers
// of open models give the content itself, and take it back.
func (i *responsesItem) back() string {
	open := len(i.encrypted) == 0 || string(i.encrypted) == "null" || string(i.encrypted) == `""`
	bare := len(i.content) == 0 || i.content[0] != '[' || string(i.content) == "[]"
	if open && bare {
		return ""
	}
	b := append([]byte(reasoningOpen), `"id":`...)
	b = wire.AppendString(b, i.id)
	b = append(b, `,"summary":`...)
	if len(i.summary) == 0 || i.summary[0] != '[' {
		b = append(b, `[]`...)
	} else {
		b = append(b, i.summary...)
	}
	if open {
		b = append(append(b, `,"content":`...), i.content...)
	} else {
		b = append(append(b, `,"encrypted_content":`...), i.encrypted...)
	}
	return string(append(b, '}'))
}

// responsesKinds are the events and items whose names need no copy.
var responsesKinds = [...]string{
	"response.output_text.delta", "response.function_call_arguments.delta", "response.reasoning_summary_text.delta",
	"response.output_item.added", "response.output_item.done", "response.function_call_arguments.done",
	"response.reasoning_text.delta", "response.refusal.delta", "response.content_part.added", "response.content_part.done",
	"response.output_text.done", "response.created", "response.in_progress", "response.completed",
	"message", "function_call", "reasoning", "output_text", "summary_text", "reasoning_text",
}

func responsesKind(name []byte) string {
	for _, known := range responsesKinds {
		if string(name) == known {
			return known
		}
	}
	return string(name)
}

func (d *responsesDecoder) readEvent(c *wire.Cursor) (e responsesEvent) {
	if !c.Enter('{') {
		return e
	}
	for {
		key, ok := c.Key()
		if !ok {
			return e
		}
		switch string(key) {
		case "type":
			e.kind = readKind(c)
		case "output_index":
			e.index = int(c.Int())
		case "summary_index", "content_index":
			e.part = int(c.Int())
		case "delta":
			e.text = readText(c)
		case "arguments":
			e.arguments = c.Text()
		case "item":
			e.item = readItem(c)
		case "response":
			e.response = d.readReply(c)
		case "error":
			raw := c.Raw()
			e.failed = len(raw) > 0 && string(raw) != "null"
		default:
			c.Skip()
		}
	}
}

func readKind(c *wire.Cursor) string {
	if c.Peek() != '"' {
		c.Skip()
		return ""
	}
	return responsesKind(c.Bytes())
}

// readReply reads the response object, as it stands at its start and at its end.
func (d *responsesDecoder) readReply(c *wire.Cursor) (r responsesReply) {
	if !c.Enter('{') {
		return r
	}
	for {
		key, ok := c.Key()
		if !ok {
			return r
		}
		switch string(key) {
		case "object":
			r.object = readText(c)
		case "status":
			r.status = readText(c)
		case "model":
			if model := readText(c); model != "" {
				d.finish.Model = model
			}
		case "output":
			if !c.Enter('[') {
				continue
			}
			for c.Next() {
				r.output = append(r.output, readItem(c))
			}
		case "usage":
			d.readUsage(c)
		case "incomplete_details":
			d.readIncomplete(c)
		case "error":
			raw := c.Raw()
			r.failed = len(raw) > 0 && string(raw) != "null"
		default:
			c.Skip()
		}
	}
}

func (d *responsesDecoder) readIncomplete(c *wire.Cursor) {
	if !c.Enter('{') {
		return
	}
	for {
		key, ok := c.Key()
		if !ok {
			return
		}
		if string(key) == "reason" {
			d.reason = readText(c)
			continue
		}
		c.Skip()
	}
}

func (d *responsesDecoder) readUsage(c *wire.Cursor) {
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
		case "input_tokens":
			u.InputTokens = max(c.Int(), 0)
		case "output_tokens":
			u.OutputTokens = max(c.Int(), 0)
		case "input_tokens_details":
			u.CachedInputTokens = readCount(c, "cached_tokens")
		case "output_tokens_details":
			u.ReasoningTokens = readCount(c, "reasoning_tokens")
		case "cost":
			if cost, ok := c.Float(); ok && cost >= 0 {
				u.CostUSD = &cost
			}
		default:
			c.Skip()
		}
	}
	u.CachedInputTokens = min(max(u.CachedInputTokens, 0), u.InputTokens)
	u.ReasoningTokens = min(max(u.ReasoningTokens, 0), u.OutputTokens)
	d.finish.Usage = u
}

// readItem reads an item. What it keeps as it stands is only good as long as the
// text that the cursor walks over.
func readItem(c *wire.Cursor) (i responsesItem) {
	if !c.Enter('{') {
		return i
	}
	for {
		key, ok := c.Key()
		if !ok {
			break
		}
		switch string(key) {
		case "type":
			i.kind = readKind(c)
		case "id":
			i.id = readText(c)
		case "call_id":
			i.callID = readText(c)
		case "name":
			i.name = readText(c)
		case "arguments":
			i.arguments = c.Text()
		case "summary":
			i.summary = c.Raw()
		case "content":
			i.content = c.Raw()
		case "encrypted_content":
			i.encrypted = c.Raw()
		default:
			c.Skip()
		}
	}
	if c.Err() == nil {
		i.readContents()
	}
	return i
}

func (i *responsesItem) readContents() {
	switch i.kind {
	case "message":
		texts, refused := readTexts(i.content)
		for _, text := range texts {
			i.text += text
		}
		i.refused = refused
	case "reasoning":
		if i.thoughts, _ = readTexts(i.summary); len(i.thoughts) == 0 {
			i.thoughts, _ = readTexts(i.content)
		}
	}
}

// readTexts reads the texts of a list of parts, refusals too, or a plain string.
func readTexts(raw []byte) (texts []string, refused bool) {
	if len(raw) == 0 {
		return nil, false
	}
	c := wire.NewCursor(raw)
	if c.Peek() == '"' {
		return []string{c.String()}, false
	}
	if !c.Enter('[') {
		return nil, false
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
				texts = append(texts, readText(&c))
			case "refusal":
				texts, refused = append(texts, readText(&c)), true
			default:
				c.Skip()
			}
		}
	}
	return texts, refused
}

// errorOf finds the error object of a failed response and wraps it as an error
// body has it: {"response": {"error": {…}}} or {"error": {…}}.
func errorOf(data []byte) []byte {
	c := wire.NewCursor(data)
	if !c.Enter('{') {
		return nil
	}
	for {
		key, ok := c.Key()
		if !ok {
			return nil
		}
		switch string(key) {
		case "response":
			return errorOf(c.Raw())
		case "error":
			if raw := c.Raw(); len(raw) > 0 && raw[0] == '{' {
				return append(append([]byte(`{"error":`), raw...), '}')
			}
		default:
			c.Skip()
		}
	}
}
