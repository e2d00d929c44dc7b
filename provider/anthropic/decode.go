package anthropic

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

	calls    []callState
	finish   toolcrib.Finish
	usage    usage
	reason   string // stop_reason as sent
	over     bool   // message_stop, or the whole reply
	text     wire.Runes
	thinking wire.Runes
}

type callState struct {
	block  int // index of the content block
	spoken bool
}

// event is what one event says; which fields count depends on its type.
type event struct {
	kind  string
	index int
	block block // content_block, or delta
}

// block is a content block or a delta of one.
type block struct {
	kind      string
	id, name  string
	text      string
	thinking  string
	signature string
	data      string
	partial   string
	input     string // the JSON text of an object
}

func (d *decoder) Begin(h http.Header) {
	d.finish.RequestID = h.Get("Request-Id")
}

func (d *decoder) Complete() bool { return d.over || d.reason != "" }

func (d *decoder) Frame(f wire.Frame, emit wire.Emit) (alive, done bool, err error) {
	if len(f.Data) == 0 {
		return false, false, nil
	}
	if string(f.Data) == "[DONE]" {
		return false, d.Complete(), nil // some compatible servers end so
	}
	c := wire.NewCursor(f.Data)
	e, err := d.read(&c)
	if err != nil {
		return false, false, err
	}
	switch e.kind {
	case "ping":
		return false, false, nil
	case "error":
		return false, false, wire.EventError(d.provider, f.Data)
	case "content_block_start":
		return true, false, d.start(&e, emit)
	case "content_block_delta":
		d.delta(&e, emit)
	case "content_block_stop":
		d.stop(e.index, emit)
	case "message_stop":
		d.over = true
		return true, true, nil
	}
	return true, false, nil // others are of a later version: passed over
}

// read decodes one event, or a whole message.
func (d *decoder) read(c *wire.Cursor) (event, error) {
	var e event
	if !c.Enter('{') {
		return e, c.End()
	}
	for {
		key, ok := c.Key()
		if !ok {
			break
		}
		switch string(key) {
		case "type":
			e.kind = kindOf(c.Bytes())
		case "index":
			e.index = int(c.Int())
		case "message":
			d.readMessage(c, nil)
		case "content_block", "delta":
			e.block = d.readBlock(c)
		case "usage":
			d.usage.read(c)
		default:
			c.Skip()
		}
	}
	return e, c.End()
}

// kindOf returns the name without an allocation where it is a known one.
func kindOf(name []byte) string {
	for _, known := range [...]string{
		"content_block_delta", "text_delta", "input_json_delta", "thinking_delta", "signature_delta",
		"content_block_start", "content_block_stop", "text", "tool_use", "thinking", "redacted_thinking",
		"message_start", "message_delta", "message_stop", "message", "ping", "error",
	} {
		if string(name) == known {
			return known
		}
	}
	return string(name)
}

// readMessage reads the message of message_start, or a whole reply: then each
// block goes to add.
func (d *decoder) readMessage(c *wire.Cursor, add func(block)) {
	if !c.Enter('{') {
		return
	}
	for {
		key, ok := c.Key()
		if !ok {
			return
		}
		d.readMember(c, string(key), add)
	}
}

func (d *decoder) readMember(c *wire.Cursor, key string, add func(block)) {
	switch key {
	case "model":
		d.finish.Model = readText(c)
	case "usage":
		d.usage.read(c)
	case "stop_reason":
		d.setReason(readText(c))
	case "content":
		if add == nil || !c.Enter('[') {
			if add == nil {
				c.Skip()
			}
			return
		}
		for c.Next() {
			add(d.readBlock(c))
		}
	default:
		c.Skip()
	}
}

func (d *decoder) setReason(reason string) {
	if reason != "" {
		d.reason = reason
	}
}

func (d *decoder) readBlock(c *wire.Cursor) block {
	var b block
	if !c.Enter('{') {
		return b
	}
	for {
		key, ok := c.Key()
		if !ok {
			return b
		}
		switch string(key) {
		case "type":
			b.kind = kindOf(c.Bytes())
		case "text":
			b.text = readText(c)
		case "partial_json":
			b.partial = readText(c)
		case "thinking":
			b.thinking = readText(c)
		case "signature":
			b.signature = readText(c)
		case "data":
			b.data = readText(c)
		case "id":
			b.id = readText(c)
		case "name":
			b.name = readText(c)
		case "input":
			b.input = string(c.Raw())
		case "stop_reason":
			d.setReason(readText(c))
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

func (d *decoder) start(e *event, emit wire.Emit) error {
	b := &e.block
	switch b.kind {
	case "tool_use":
		if len(d.calls) == maxCalls {
			return &toolcrib.ModelError{Class: toolcrib.ErrOther, Provider: d.provider, Message: "the reply asks for too many tool calls"}
		}
		k := callState{block: e.index}
		delta := &toolcrib.ToolCallDelta{Index: len(d.calls), ID: b.id, Name: b.name}
		if b.input != "" && b.input != "null" && !emptyObject(b.input) {
			delta.Arguments = b.input // some compatible servers send it at once
			k.spoken = true
		}
		d.calls = append(d.calls, k)
		emit(toolcrib.Delta{ToolCall: delta})
	case "redacted_thinking":
		if b.data != "" {
			emit(toolcrib.Delta{Redacted: b.data})
		}
	case "text", "thinking":
		e.block.kind += "_delta"
		d.delta(e, emit)
		if b.signature != "" {
			emit(toolcrib.Delta{Signature: b.signature})
		}
	}
	return nil
}

func emptyObject(s string) bool {
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case '{', '}', ' ', '\n', '\t', '\r':
		default:
			return false
		}
	}
	return true
}

func (d *decoder) delta(e *event, emit wire.Emit) {
	b := &e.block
	switch b.kind {
	case "text_delta":
		if s := d.text.Add(b.text); s != "" {
			emit(toolcrib.Delta{Text: s})
		}
	case "thinking_delta":
		if s := d.thinking.Add(b.thinking); s != "" {
			emit(toolcrib.Delta{Thinking: s})
		}
	case "signature_delta":
		if b.signature != "" {
			emit(toolcrib.Delta{Signature: b.signature})
		}
	case "input_json_delta":
		if n := d.call(e.index); n >= 0 && b.partial != "" {
			d.calls[n].spoken = true
			emit(toolcrib.Delta{ToolCall: &toolcrib.ToolCallDelta{Index: n, Arguments: b.partial}})
		}
	}
}

// stop ends a block; a call that got no arguments has none: {} (N13).
func (d *decoder) stop(index int, emit wire.Emit) {
	if n := d.call(index); n >= 0 && !d.calls[n].spoken {
		d.calls[n].spoken = true
		emit(toolcrib.Delta{ToolCall: &toolcrib.ToolCallDelta{Index: n, Arguments: "{}"}})
	}
}

func (d *decoder) call(block int) int {
	for i := len(d.calls) - 1; i >= 0; i-- {
		if d.calls[i].block == block {
			return i
		}
	}
	return -1
}

// Whole reads a reply in one piece, by the same steps as a stream.
func (d *decoder) Whole(body []byte, emit wire.Emit) error {
	c := wire.NewCursor(body)
	var blocks []block
	kind := ""
	if c.Enter('{') {
		for {
			key, ok := c.Key()
			if !ok {
				break
			}
			if string(key) == "type" {
				kind = kindOf(c.Bytes())
				continue
			}
			d.readMember(&c, string(key), func(b block) { blocks = append(blocks, b) })
		}
	}
	if err := c.End(); err != nil {
		return err
	}
	switch kind {
	case "message":
	case "error":
		return wire.EventError(d.provider, body)
	default:
		if _, ok := wire.ParseAPIError(body); ok {
			return wire.EventError(d.provider, body)
		}
		return &toolcrib.ModelError{Class: toolcrib.ErrOther, Provider: d.provider, Message: "answered with JSON that is no message: check base_url", Detail: wire.Clip(string(body), 8<<10)}
	}
	for i := range blocks {
		e := event{index: i, block: blocks[i]}
		if err := d.start(&e, emit); err != nil {
			return err
		}
		d.stop(i, emit)
	}
	return nil
}

// Finish maps the reason.
func (d *decoder) Finish() toolcrib.Finish {
	f := d.finish
	f.Notices = d.notices
	f.Usage = d.usage.tokens()
	switch d.reason {
	case "end_turn", "stop_sequence", "tool_use", "":
		f.Reason = toolcrib.FinishStop
		if len(d.calls) > 0 {
			f.Reason = toolcrib.FinishToolCalls
		}
	case "max_tokens", "model_context_window_exceeded":
		f.Reason = toolcrib.FinishLength
	case "refusal":
		f.Reason = toolcrib.FinishFiltered
	default:
		f.Reason = toolcrib.FinishOther
	}
	return f
}

// usage collects the tokens: message_start tells the input, message_delta the
// sums so far.
type usage struct {
	input, cacheRead, cacheWrite int64
	output, reasoning            int64
	reported                     bool
}

func (u *usage) read(c *wire.Cursor) {
	if !c.Enter('{') {
		return
	}
	u.reported = true
	for {
		key, ok := c.Key()
		if !ok {
			return
		}
		switch string(key) {
		case "input_tokens":
			u.input = max(u.input, c.Int())
		case "cache_read_input_tokens":
			u.cacheRead = max(u.cacheRead, c.Int())
		case "cache_creation_input_tokens":
			u.cacheWrite = max(u.cacheWrite, c.Int())
		case "output_tokens":
			u.output = max(u.output, c.Int())
		case "output_tokens_details":
			u.reasoning = max(u.reasoning, readCount(c, "thinking_tokens"))
		default:
			c.Skip()
		}
	}
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

// tokens sums the input: the API reports what came from the cache and what was
// written to it beside the rest.
func (u *usage) tokens() toolcrib.TokenUsage {
	return toolcrib.TokenUsage{
		InputTokens:       u.input + u.cacheRead + u.cacheWrite,
		CachedInputTokens: u.cacheRead,
		CacheWriteTokens:  u.cacheWrite,
		OutputTokens:      u.output,
		ReasoningTokens:   min(u.reasoning, u.output),
		Reported:          u.reported,
	}
}
