package openai

import (
	"cmp"
	"encoding/json"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/provider/wire"
)

// decoder decodes one reply. It is lenient where compatible servers differ: see
// the comments.
type decoder struct {
	calls    []callState
	finish   toolcrib.Finish
	reason   string // finish_reason as sent
	refused  bool
	over     bool // [DONE] was sent
	whole    bool // the reply is not a stream
	details  details
	reasoned bool     // as reasoning_content, in the open block of reasoning
	tools    []string // names of the offered tools
	frame    *frame   // the current one
	text     wire.Runes
	thinking wire.Runes
}

// frame is one frame of a stream, or a whole reply. It is decoded by hand, because a stream
// consists of nothing else.
type frame struct {
	model   wire.Word
	chosen  bool // there is a list of choices
	empty   bool // there is no choice
	choice  choice
	usage   usage
	failure json.RawMessage
}

// choice is the first choice of a frame; only one was requested.
type choice struct {
	message message
	reason  string
	failure json.RawMessage // OpenRouter also reports it here
}

type message struct {
	text, thinking   string
	reasoningContent string
	reasoning        string // some servers send the same text under both names
	details          []detail
	refusal          string
	calls            []callPiece
	call             function
}

// read decodes a frame into f, which keeps the memory of its lists.
func (f *frame) read(c *wire.Cursor) {
	m := &f.choice.message
	*f = frame{empty: true, choice: choice{message: message{details: m.details[:0], calls: m.calls[:0]}}}
	for key, ok := c.EnterObject(); ok; key, ok = c.Key() {
		switch string(key) {
		case "model":
			f.model = c.Word()
		case "choices":
			f.chosen = c.Peek() == '['
			n := 0
			for more := c.EnterList(); more; more = c.Next() {
				if n++; n == 1 {
					f.empty = false
					f.choice.read(c)
				} else {
					c.Skip()
				}
			}
		case "usage":
			c.Into(&f.usage)
		case "x_groq":
			for key, ok := c.EnterObject(); ok; key, ok = c.Key() {
				if string(key) == "usage" {
					c.Into(&f.usage)
				} else {
					c.Skip()
				}
			}
		case "error":
			f.failure = c.Raw()
		default:
			c.Skip()
		}
	}
}

func (h *choice) read(c *wire.Cursor) {
	for key, ok := c.EnterObject(); ok; key, ok = c.Key() {
		switch string(key) {
		case "delta", "message": // message in a whole reply
			h.message.read(c)
		case "finish_reason":
			h.reason = c.Text()
		case "error":
			h.failure = c.Raw()
		default:
			c.Skip()
		}
	}
}

func (m *message) read(c *wire.Cursor) {
	for key, ok := c.EnterObject(); ok; key, ok = c.Key() {
		switch string(key) {
		case "content":
			m.readContent(c)
		case "reasoning_content":
			m.reasoningContent = c.Plain()
		case "reasoning":
			m.reasoning = c.Plain()
		case "reasoning_details":
			for more := c.EnterList(); more; more = c.Next() {
				m.details = append(m.details, detail{})
				c.Into(&m.details[len(m.details)-1])
			}
		case "refusal":
			m.refusal = c.Plain()
		case "tool_calls":
			for more := c.EnterList(); more; more = c.Next() {
				if c.Peek() != '{' {
					c.Skip()
					continue
				}
				m.calls = append(m.calls, callPiece{})
				m.calls[len(m.calls)-1].read(c)
			}
		case "function_call":
			m.call.read(c)
		default:
			c.Skip()
		}
	}
}

// readContent decodes a string, null, or a list of parts as sent by Mistral.
func (m *message) readContent(c *wire.Cursor) {
	if c.Peek() != '[' {
		m.text = c.Plain()
		return
	}
	for more := c.EnterList(); more; more = c.Next() {
		for key, ok := c.EnterObject(); ok; key, ok = c.Key() {
			switch string(key) {
			case "text":
				m.text += c.Plain()
			case "thinking":
				var inner message
				inner.readContent(c)
				m.thinking += inner.text
			default:
				c.Skip()
			}
		}
	}
}

// usage is the usage of both APIs, which have different names for it.
type usage struct {
	wire.Found
	Prompt        int64        `json:"prompt_tokens"`
	Completion    int64        `json:"completion_tokens"`
	Total         int64        `json:"total_tokens"`
	PromptDetails usageDetails `json:"prompt_tokens_details"`
	Details       usageDetails `json:"completion_tokens_details"`
	CacheHits     int64        `json:"prompt_cache_hit_tokens"`
	Input         int64        `json:"input_tokens"`
	Output        int64        `json:"output_tokens"`
	InputDetails  usageDetails `json:"input_tokens_details"`
	OutputDetails usageDetails `json:"output_tokens_details"`
	Cost          *float64     `json:"cost"`
}

type usageDetails struct {
	Cached    int64 `json:"cached_tokens"`
	Reasoning int64 `json:"reasoning_tokens"`
}

func (u *usage) tokens() toolcrib.TokenUsage {
	t := toolcrib.TokenUsage{
		Reported: true, InputTokens: max(u.Prompt, u.Input, 0), OutputTokens: max(u.Completion, u.Output, 0),
	}
	t.CachedInputTokens = min(max(u.PromptDetails.Cached, u.InputDetails.Cached, u.CacheHits, 0), t.InputTokens)
	// Some servers count reasoning in addition to the output, which only the total reveals.
	reasoning := max(u.Details.Reasoning, u.OutputDetails.Reasoning, 0)
	t.OutputTokens += min(reasoning, max(u.Total-t.InputTokens-t.OutputTokens, 0))
	t.ReasoningTokens = min(reasoning, t.OutputTokens)
	if u.Cost != nil && *u.Cost >= 0 {
		t.CostUSD = u.Cost
	}
	return t
}

// given reports whether a member is there and not null.
func given(raw json.RawMessage) bool { return len(raw) > 0 && string(raw) != "null" }

func (d *decoder) Frame(f wire.Frame, emit wire.Emit) (alive, done bool, err error) {
	if string(f.Data) == "[DONE]" {
		// The server has sent everything, even without a reason.
		d.over = true
		d.settle(emit)
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
	cursor := wire.NewCursor(data)
	object := cursor.Peek() == '{'
	f := d.frame
	f.read(&cursor)
	if err := cursor.End(); err != nil || !object {
		return err
	}
	if d.finish.Model == "" {
		d.finish.Model = string(f.model)
	}
	if f.usage.Present {
		d.finish.Usage = f.usage.tokens() // the last report of a stream has the totals
	}
	c := &f.choice
	if c.reason != "" {
		d.reason = c.reason
	}
	if f.empty {
		if err := wire.Failure(data); err != nil {
			return err
		}
	}
	switch {
	case given(f.failure), d.reason == "error" && !given(c.failure):
		return wire.EventError(data)
	case given(c.failure):
		return wire.EventError(append(append([]byte(`{"error":`), c.failure...), '}'))
	case d.whole && !f.chosen:
		return wire.NotAReply("chat completion", data)
	}
	return d.say(&c.message, emit)
}

// say passes on a message in the order in which a model works.
func (d *decoder) say(m *message, emit wire.Emit) error {
	if m.call.Present {
		m.calls = append(m.calls, callPiece{Function: m.call})
	}
	if len(d.calls)+len(m.calls) > wire.MaxCalls {
		return wire.TooManyCalls()
	}
	detailed := d.details.addAll(m.details)
	if thinking := cmp.Or(m.thinking+cmp.Or(m.reasoningContent, m.reasoning), detailed); thinking != "" {
		if s := d.thinking.Add(thinking); s != "" {
			emit(toolcrib.Delta{Thinking: s})
			d.reasoned = d.reasoned || m.reasoningContent != ""
		}
	}
	// A refusal is shown as text; the reason reports that it is one.
	said := m.text + m.refusal
	d.refused = d.refused || m.refusal != ""
	// The details end the block of their text; masking in that block removes them.
	if said != "" || len(m.calls) > 0 || d.reason != "" {
		s := d.details.take()
		if s == "" && d.reasoned {
			s = wire.ReasoningContent
		}
		if d.reasoned = false; s != "" {
			emit(toolcrib.Delta{Signature: s})
		}
	}
	if s := d.text.Add(said); said != "" && s != "" {
		emit(toolcrib.Delta{Text: s})
	}
	d.addCalls(m.calls, emit)
	return nil
}

// Finish maps the reason to a toolcrib.Finish. If the model has called tools, stop or an
// absent reason, as sent by some servers, means that it waits for results.
func (d *decoder) Finish() toolcrib.Finish {
	f := d.finish
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
