package openai

import (
	"cmp"
	"encoding/json"
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
	frame    *frame // the one at hand
	text     wire.Runes
	thinking wire.Runes
}

// frame is one frame of a stream, or a whole reply.
type frame struct {
	Object  wire.Word       `json:"object"` // "error" of vLLM
	Model   wire.Word       `json:"model"`
	Choices []choice        `json:"choices"`
	Usage   usage           `json:"usage"`
	Error   json.RawMessage `json:"error"`
	Groq    struct {
		wire.Found
		Usage usage `json:"usage"`
	} `json:"x_groq"`
}

type choice struct {
	Message message         `json:"delta|message"` // message in a whole reply
	Reason  wire.Loose      `json:"finish_reason"`
	Error   json.RawMessage `json:"error"` // OpenRouter tells it here too
}

type message struct {
	Content          wire.Content `json:"content"`
	ReasoningContent string       `json:"reasoning_content"`
	Reasoning        string       `json:"reasoning"` // some servers send the same under both names
	Details          []detail     `json:"reasoning_details"`
	Refusal          string       `json:"refusal"`
	Calls            []callPiece  `json:"tool_calls"`
	Call             function     `json:"function_call"`
}

// usage is what both APIs report, under names of their own.
type usage struct {
	wire.Found
	Prompt        int64        `json:"prompt_tokens"`
	Completion    int64        `json:"completion_tokens"`
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
		Reported: true, InputTokens: max(u.Prompt, u.Input, 0),
		OutputTokens: max(u.Completion, u.Output, 0),
	}
	t.CachedInputTokens = min(max(u.PromptDetails.Cached, u.InputDetails.Cached, u.CacheHits, 0), t.InputTokens)
	t.ReasoningTokens = min(max(u.Details.Reasoning, u.OutputDetails.Reasoning, 0), t.OutputTokens)
	if u.Cost != nil && *u.Cost >= 0 {
		t.CostUSD = u.Cost
	}
	return t
}

// given reports whether a member is there and not null.
func given(raw json.RawMessage) bool { return len(raw) > 0 && string(raw) != "null" }

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
	d.frame.Choices = nil // a reply without any is none
	return d.read(body, emit)
}

func (d *decoder) Complete() bool { return d.over || d.reason != "" }

func (d *decoder) read(data []byte, emit wire.Emit) error {
	f := d.frame
	object, err := wire.Read(data, f)
	if err != nil || !object {
		return err
	}
	if d.finish.Model == "" {
		d.finish.Model = string(f.Model)
	}
	for _, u := range [...]*usage{&f.Usage, &f.Groq.Usage} {
		if u.Present {
			d.finish.Usage = u.tokens() // the last report of a stream is the whole
		}
	}
	c := &choice{}
	if len(f.Choices) > 0 {
		c = &f.Choices[0] // only one was asked for
	}
	if c.Reason != "" {
		d.reason = string(c.Reason)
	}
	switch {
	case given(f.Error), string(f.Object) == "error", d.reason == "error" && !given(c.Error):
		return wire.EventError(d.provider, data)
	case given(c.Error):
		return wire.EventError(d.provider, append(append([]byte(`{"error":`), c.Error...), '}'))
	case d.whole && f.Choices == nil:
		return wire.NotAReply(d.provider, "chat completion", data)
	}
	return d.say(&c.Message, emit)
}

// say hands on what a message says, in the order in which a model works.
func (d *decoder) say(m *message, emit wire.Emit) error {
	if m.Call.Present {
		m.Calls = append(m.Calls, callPiece{Function: m.Call})
	}
	if len(d.calls)+len(m.Calls) > wire.MaxCalls {
		return wire.TooManyCalls(d.provider)
	}
	detailed := d.details.addAll(m.Details)
	if thinking := cmp.Or(m.Content.Thinking+cmp.Or(m.ReasoningContent, m.Reasoning), detailed); thinking != "" {
		if s := d.thinking.Add(thinking); s != "" && !emit(toolcrib.Delta{Thinking: s}) {
			return nil
		}
	}
	// A refusal is what the model says; that it is one is in the reason.
	said := m.Content.Text + m.Refusal
	d.refused = d.refused || m.Refusal != ""
	// The details end the block of their text: what is masked there takes them away.
	if said != "" || len(m.Calls) > 0 || d.reason != "" {
		if s := d.details.take(); s != "" && !emit(toolcrib.Delta{Signature: s}) {
			return nil
		}
	}
	if s := d.text.Add(said); said != "" && s != "" && !emit(toolcrib.Delta{Text: s}) {
		return nil
	}
	for i := range m.Calls {
		if delta := d.addCall(&m.Calls[i]); delta != nil && !emit(toolcrib.Delta{ToolCall: delta}) {
			return nil
		}
	}
	return nil
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
