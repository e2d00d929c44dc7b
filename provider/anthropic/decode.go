package anthropic

import (
	"cmp"
	"encoding/json"
	"strings"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/provider/wire"
)

type decoder struct {
	calls    []callState
	finish   toolcrib.Finish
	usage    wire.Optional[usage]
	reason   string // stop_reason as sent
	over     bool   // message_stop, or the whole reply
	text     wire.Runes
	thinking wire.Runes
}

type callState struct {
	block  int    // index of the content block
	input  string // from the start of the block; deltas replace it
	spoken bool
}

// event is an event; which fields are set depends on its type.
type event struct {
	Kind    string               `json:"type"`
	Index   float64              `json:"index"`
	Message reply                `json:"message"`
	Block   block                `json:"content_block"`
	Delta   block                `json:"delta"`
	Usage   wire.Optional[usage] `json:"usage"`
}

// reply is the message of message_start, or a whole reply.
type reply struct {
	Kind    string               `json:"type"`
	Model   string               `json:"model"`
	Reason  string               `json:"stop_reason"`
	Content []block              `json:"content"`
	Usage   wire.Optional[usage] `json:"usage"`
}

// block is a content block or a delta of one.
type block struct {
	Kind      string          `json:"type"`
	ID        string          `json:"id"`
	Name      string          `json:"name"`
	Text      wire.Text       `json:"text"`
	Thinking  wire.Text       `json:"thinking"`
	Signature string          `json:"signature"`
	Data      string          `json:"data"`
	Partial   wire.Text       `json:"partial_json"`
	Input     json.RawMessage `json:"input"`
	Reason    string          `json:"stop_reason"` // of message_delta
}

// usage has the numbers of tokens: message_start has the input, message_delta the sums so far.
type usage struct {
	Input      float64 `json:"input_tokens"`
	CacheRead  float64 `json:"cache_read_input_tokens"`
	CacheWrite float64 `json:"cache_creation_input_tokens"`
	Output     float64 `json:"output_tokens"`
	Details    struct {
		Thinking float64 `json:"thinking_tokens"`
	} `json:"output_tokens_details"`
}

func (d *decoder) Complete() bool { return d.over || d.reason != "" }

func (d *decoder) Frame(f wire.Frame, emit wire.Emit) (alive, done bool, err error) {
	var e event
	if err := wire.Read(f.Data, &e); err != nil {
		return false, false, err
	}
	d.note(&e.Message)
	d.add(e.Usage)
	if d.reason = cmp.Or(e.Delta.Reason, e.Block.Reason, d.reason); d.reason != "" {
		for i := range d.calls {
			d.stop(d.calls[i].block, emit) // some servers do not end blocks
		}
	}
	switch e.Kind {
	case "ping":
		return false, false, nil
	case "error":
		return false, false, wire.EventError(f.Data)
	case "content_block_start":
		return true, false, d.start(int(wire.Int(e.Index)), &e.Block, emit)
	case "content_block_delta":
		d.delta(int(wire.Int(e.Index)), &e.Delta, emit)
	case "content_block_stop":
		d.stop(int(wire.Int(e.Index)), emit)
	case "message_stop":
		d.over = true
		return true, true, nil
	case "":
		return true, false, wire.Failure(f.Data)
	}
	return true, false, nil // events of a later version are ignored
}

// note records the fields other than the content.
func (d *decoder) note(r *reply) {
	d.finish.Model = cmp.Or(r.Model, d.finish.Model)
	d.reason = cmp.Or(r.Reason, d.reason)
	d.add(r.Usage)
}

func (d *decoder) start(index int, b *block, emit wire.Emit) error {
	switch b.Kind {
	case "tool_use":
		if len(d.calls) == wire.MaxCalls {
			return wire.TooManyCalls()
		}
		k := callState{block: index, input: "{}"} // without arguments they are {} (N13)
		if input := string(b.Input); input != "" && input != "null" && strings.Trim(input, "{} \t\r\n") != "" {
			k.input = input // some compatible servers send the whole input here
		}
		emit(toolcrib.Delta{ToolCall: &toolcrib.ToolCallDelta{Index: len(d.calls), ID: b.ID, Name: b.Name}})
		d.calls = append(d.calls, k)
	case "redacted_thinking":
		if b.Data != "" {
			emit(toolcrib.Delta{Redacted: b.Data})
		}
	case "text", "thinking":
		d.say(b, emit)
	}
	return nil
}

// say passes on the text, reasoning and signature of a block.
func (d *decoder) say(b *block, emit wire.Emit) {
	if s := d.text.Add(b.Text); s != "" {
		emit(toolcrib.Delta{Text: s})
	}
	if s := d.thinking.Add(b.Thinking); s != "" {
		emit(toolcrib.Delta{Thinking: s})
	}
	if b.Signature != "" {
		emit(toolcrib.Delta{Signature: b.Signature})
	}
}

func (d *decoder) delta(index int, b *block, emit wire.Emit) {
	switch b.Kind {
	case "text_delta", "thinking_delta", "signature_delta":
		d.say(b, emit)
	case "input_json_delta":
		if n := d.call(index); n >= 0 && b.Partial != "" {
			d.calls[n].spoken = true
			emit(toolcrib.Delta{ToolCall: &toolcrib.ToolCallDelta{Index: n, Arguments: string(b.Partial)}})
		}
	}
}

// stop ends a block.
func (d *decoder) stop(index int, emit wire.Emit) {
	if n := d.call(index); n >= 0 && !d.calls[n].spoken {
		d.calls[n].spoken = true
		emit(toolcrib.Delta{ToolCall: &toolcrib.ToolCallDelta{Index: n, Arguments: d.calls[n].input}})
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

// Whole decodes a reply that is not a stream, with the same steps.
func (d *decoder) Whole(body []byte, emit wire.Emit) error {
	var r reply
	if err := wire.Read(body, &r); err != nil {
		return err
	}
	d.note(&r)
	switch r.Kind {
	case "message":
	case "error":
		return wire.EventError(body)
	default:
		if err := wire.Failure(body); err != nil {
			return err
		}
		return wire.NotAReply("message", body)
	}
	for i := range r.Content {
		if err := d.start(i, &r.Content[i], emit); err != nil {
			return err
		}
		d.stop(i, emit)
	}
	return nil
}

// Finish maps the reason to a toolcrib.Finish.
func (d *decoder) Finish() toolcrib.Finish {
	f := d.finish
	f.Usage = d.tokens()
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

func (d *decoder) add(more wire.Optional[usage]) {
	u, m := &d.usage.Value, more.Value
	d.usage.Present = d.usage.Present || more.Present
	u.Input, u.Output = max(u.Input, m.Input), max(u.Output, m.Output)
	u.CacheRead, u.CacheWrite = max(u.CacheRead, m.CacheRead), max(u.CacheWrite, m.CacheWrite)
	u.Details.Thinking = max(u.Details.Thinking, m.Details.Thinking)
}

// tokens returns the usage with the sum of the input: the API reports tokens read from the
// cache and written to it separately.
func (d *decoder) tokens() toolcrib.TokenUsage {
	u := d.usage.Value
	return toolcrib.TokenUsage{
		InputTokens:       wire.Int(u.Input) + wire.Int(u.CacheRead) + wire.Int(u.CacheWrite),
		CachedInputTokens: wire.Int(u.CacheRead),
		CacheWriteTokens:  wire.Int(u.CacheWrite),
		OutputTokens:      wire.Int(u.Output),
		ReasoningTokens:   wire.Int(min(u.Details.Thinking, u.Output)),
		Reported:          d.usage.Present,
	}
}
