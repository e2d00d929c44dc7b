package ollama

import (
	"net/http"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/provider/wire"
)

// maxCalls bounds the calls of one reply; a turn may have 64 by default.
const maxCalls = 4096

// decoder reads one reply.
type decoder struct {
	provider string
	notices  []toolcrib.Notice

	finish   toolcrib.Finish
	calls    int
	done     bool
	reason   string // done_reason as sent
	text     wire.Runes
	thinking wire.Runes
}

var _ wire.LineDecoder = (*decoder)(nil)

// line is what one object of the stream says.
type line struct {
	text, thinking string
	calls          []call
	status         int
	failed         bool
	chat           bool // it is an object of the chat API
}

type call struct{ id, name, arguments string }

func (d *decoder) NDJSON() {}

func (d *decoder) Begin(h http.Header) { d.finish.RequestID = h.Get("X-Request-Id") }

func (d *decoder) Complete() bool { return d.done }

func (d *decoder) Frame(f wire.Frame, emit wire.Emit) (alive, done bool, err error) {
	err = d.read(f.Data, emit)
	return true, d.done, err
}

// Whole reads a reply in one piece, and a stream that came as plain JSON.
func (d *decoder) Whole(body []byte, emit wire.Emit) error {
	c := wire.NewCursor(body)
	for !d.done && c.Peek() != 0 {
		value := c.Raw()
		if c.Err() != nil {
			return c.Err()
		}
		if err := d.read(value, emit); err != nil {
			return err
		}
	}
	return c.Err()
}

func (d *decoder) read(data []byte, emit wire.Emit) error {
	c := wire.NewCursor(data)
	if c.Peek() != '{' {
		c.Skip()
		return c.End() // a JSON value that is no object says nothing
	}
	var l line
	c.Enter('{')
	for {
		key, ok := c.Key()
		if !ok {
			break
		}
		d.member(&c, key, &l)
	}
	if err := c.End(); err != nil {
		return err
	}
	switch {
	case l.failed:
		return streamError(d.provider, data, l.status)
	case !l.chat:
		return &toolcrib.ModelError{Class: toolcrib.ErrOther, Provider: d.provider, Message: "answered with JSON that is no chat reply of Ollama: check base_url", Detail: wire.Clip(string(data), 8<<10)}
	case d.calls+len(l.calls) > maxCalls:
		return &toolcrib.ModelError{Class: toolcrib.ErrOther, Provider: d.provider, Message: "the reply asks for too many tool calls"}
	}
	d.emit(&l, emit)
	return nil
}

func (d *decoder) member(c *wire.Cursor, key []byte, l *line) {
	switch string(key) {
	case "message":
		l.chat = true
		readMessage(c, l)
	case "done":
		l.chat = true
		d.done = d.done || c.Peek() == 't'
		c.Skip()
	case "done_reason":
		d.reason = readText(c)
	case "model":
		if d.finish.Model != "" {
			c.Skip()
			return
		}
		d.finish.Model = readText(c)
	case "prompt_eval_count":
		d.finish.Usage.InputTokens = max(c.Int(), 0)
		// Without it the prompt was not counted, and nothing counts as reported.
		d.finish.Usage.Reported = true
	case "eval_count":
		d.finish.Usage.OutputTokens = max(c.Int(), 0)
	case "error":
		l.failed = c.Peek() != 'n'
		c.Skip()
	case "StatusCode", "status":
		l.status = int(c.Int())
	default:
		c.Skip()
	}
}

// emit hands on what a line said, in the order in which a model works.
func (d *decoder) emit(l *line, emit wire.Emit) {
	if l.thinking != "" {
		if s := d.thinking.Add(l.thinking); s != "" && !emit(toolcrib.Delta{Thinking: s}) {
			return
		}
	}
	if l.text != "" {
		if s := d.text.Add(l.text); s != "" && !emit(toolcrib.Delta{Text: s}) {
			return
		}
	}
	for i := range l.calls {
		k := &l.calls[i]
		delta := &toolcrib.ToolCallDelta{Index: d.calls, ID: k.id, Name: k.name, Arguments: k.arguments}
		d.calls++
		if !emit(toolcrib.Delta{ToolCall: delta}) {
			return
		}
	}
}

func readMessage(c *wire.Cursor, l *line) {
	if !c.Enter('{') {
		return
	}
	for {
		key, ok := c.Key()
		if !ok {
			return
		}
		switch string(key) {
		case "content":
			l.text += readText(c)
		case "thinking":
			l.thinking += readText(c)
		case "tool_calls":
			readCalls(c, l)
		default:
			c.Skip()
		}
	}
}

func readText(c *wire.Cursor) string {
	if c.Peek() != '"' {
		c.Skip()
		return ""
	}
	return c.String()
}

// readCalls reads the calls of one message. Each is whole: Ollama streams no
// pieces of them.
func readCalls(c *wire.Cursor, l *line) {
	if !c.Enter('[') {
		return
	}
	for c.Next() {
		var k call
		if !c.Enter('{') {
			continue
		}
		for {
			key, ok := c.Key()
			if !ok {
				break
			}
			switch string(key) {
			case "id":
				k.id = readText(c)
			case "function":
				readFunction(c, &k)
			default:
				c.Skip()
			}
		}
		l.calls = append(l.calls, k)
	}
}

// readFunction reads name and arguments. By the API's word the arguments are an
// object; a server that sends its text, or anything else, is passed on as it is:
// whether it is an object is judged where all arguments are.
func readFunction(c *wire.Cursor, k *call) {
	if !c.Enter('{') {
		return
	}
	for {
		key, ok := c.Key()
		if !ok {
			return
		}
		switch string(key) {
		case "name":
			k.name = readText(c)
		case "arguments":
			k.arguments = c.Text()
		default:
			c.Skip()
		}
	}
}

// Finish maps the reason. Ollama says stop where the model waits for results.
func (d *decoder) Finish() toolcrib.Finish {
	f := d.finish
	f.Notices = d.notices
	if !f.Usage.Reported {
		f.Usage = toolcrib.TokenUsage{}
	}
	switch d.reason {
	case "length":
		f.Reason = toolcrib.FinishLength
	case "stop", "tool_calls", "":
		f.Reason = toolcrib.FinishStop
		if d.calls > 0 {
			f.Reason = toolcrib.FinishToolCalls
		}
	default: // load, unload: no reply at all
		f.Reason = toolcrib.FinishOther
	}
	return f
}
