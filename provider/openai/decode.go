package openai

import (
	"cmp"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/provider/wire"
)

// decoder decodes one reply. It is lenient where compatible servers differ: see
// the comments.
type decoder struct {
	frame    frame // the current one
	calls    []callState
	finish   toolcrib.Finish
	reason   string // finish_reason as sent
	refused  bool
	over     bool // [DONE] was sent
	whole    bool // the reply is not a stream
	details  details
	reasoned bool     // as reasoning_content, in the open block of reasoning
	tools    []string // names of the offered tools
	text     wire.Runes
	thinking wire.Runes
}

// frame is one frame of a stream, or a whole reply.
type frame struct {
	Model   string               `json:"model"`
	Choices choices              `json:"choices"`
	Usage   wire.Optional[usage] `json:"usage"`
	Groq    struct {
		Usage wire.Optional[usage] `json:"usage"`
	} `json:"x_groq"`
	Failure jsontext.Value `json:"error"`
}

// choices are the choices of a frame. Only the first is read, because only one was requested.
type choices struct {
	Message *message       `json:"message"` // in a whole reply
	Delta   *message       `json:"delta"`
	Reason  wire.Loose     `json:"finish_reason"`
	Failure jsontext.Value `json:"error"` // OpenRouter also reports it here

	said  message // Message and Delta, because some servers send both
	list  bool    // there was a list
	empty bool
}

func (c *choices) UnmarshalJSONFrom(in *jsontext.Decoder) error {
	type first choices
	if in.PeekKind() != jsontext.KindBeginArray {
		return in.SkipValue()
	}
	*c = choices{list: true, empty: true}
	c.Message, c.Delta = &c.said, &c.said
	_, err := in.ReadToken()
	for err == nil && in.PeekKind() != jsontext.KindEndArray {
		if c.empty {
			c.empty = false
			err = json.UnmarshalDecode(in, (*first)(c))
		} else {
			err = in.SkipValue()
		}
	}
	if err == nil {
		_, err = in.ReadToken()
	}
	return err
}

type message struct {
	Content          content                    `json:"content"`
	ReasoningContent wire.Text                  `json:"reasoning_content"`
	Reasoning        wire.Text                  `json:"reasoning"` // some servers send the same text under both names
	Details          []detail                   `json:"reasoning_details"`
	Refusal          wire.Text                  `json:"refusal"`
	Calls            []wire.Optional[callPiece] `json:"tool_calls"`
	Call             wire.Optional[function]    `json:"function_call"`
}

// content is a string, null, or a list of parts as sent by Mistral.
type content struct{ text, thinking wire.Text }

func (c *content) UnmarshalJSONFrom(in *jsontext.Decoder) error {
	value, err := in.ReadValue()
	if *c = (content{text: wire.TextOf(value)}); value.Kind() == jsontext.KindBeginArray {
		c.addParts(value)
	}
	return err
}

func (c *content) addParts(list []byte) {
	var parts []struct {
		Text     wire.Text      `json:"text"`
		Thinking jsontext.Value `json:"thinking"`
	}
	_ = wire.Read(list, &parts)
	for i := range parts {
		c.text += parts[i].Text
		texts, _ := readTexts(parts[i].Thinking)
		for _, text := range texts {
			c.thinking += text
		}
	}
}

// usage is the usage of both APIs, which have different names for it.
type usage struct {
	Prompt        float64                `json:"prompt_tokens"`
	Completion    float64                `json:"completion_tokens"`
	Total         float64                `json:"total_tokens"`
	PromptDetails usageDetails           `json:"prompt_tokens_details"`
	Details       usageDetails           `json:"completion_tokens_details"`
	CacheHits     float64                `json:"prompt_cache_hit_tokens"`
	Input         float64                `json:"input_tokens"`
	Output        float64                `json:"output_tokens"`
	InputDetails  usageDetails           `json:"input_tokens_details"`
	OutputDetails usageDetails           `json:"output_tokens_details"`
	Cost          wire.Optional[float64] `json:"cost"`
}

type usageDetails struct {
	Cached    float64 `json:"cached_tokens"`
	Reasoning float64 `json:"reasoning_tokens"`
}

func (u *usage) tokens() toolcrib.TokenUsage {
	t := toolcrib.TokenUsage{
		Reported: true, InputTokens: wire.Int(max(u.Prompt, u.Input, 0)),
		OutputTokens: wire.Int(max(u.Completion, u.Output, 0)),
	}
	t.CachedInputTokens = min(wire.Int(max(u.PromptDetails.Cached, u.InputDetails.Cached, u.CacheHits, 0)), t.InputTokens)
	// Some servers count reasoning in addition to the output, which only the total reveals.
	reasoning := wire.Int(max(u.Details.Reasoning, u.OutputDetails.Reasoning, 0))
	t.OutputTokens += min(reasoning, max(wire.Int(u.Total)-t.InputTokens-t.OutputTokens, 0))
	t.ReasoningTokens = min(reasoning, t.OutputTokens)
	if u.Cost.Present && u.Cost.Value >= 0 {
		t.CostUSD = &u.Cost.Value
	}
	return t
}

// given reports whether a member is there and not null.
func given(raw []byte) bool { return len(raw) > 0 && string(raw) != "null" }

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
	f := &d.frame
	*f = frame{}
	if err := wire.Read(data, f); err != nil {
		return err
	}
	d.finish.Model = cmp.Or(d.finish.Model, f.Model)
	for _, u := range [...]*wire.Optional[usage]{&f.Groq.Usage, &f.Usage} {
		if u.Present {
			d.finish.Usage = u.Value.tokens() // the last report of a stream has the totals
		}
	}
	c := &f.Choices
	if !c.list || c.empty {
		if err := wire.Failure(data); err != nil {
			return err
		}
	}
	d.reason = cmp.Or(string(c.Reason), d.reason)
	switch {
	case given(f.Failure), d.reason == "error" && !given(c.Failure):
		return wire.EventError(data)
	case given(c.Failure):
		return wire.EventError(append(append([]byte(`{"error":`), c.Failure...), '}'))
	case d.whole && !c.list:
		return wire.NotAReply("chat completion", data)
	}
	return d.say(&c.said, emit)
}

// say passes on a message in the order in which a model works.
func (d *decoder) say(m *message, emit wire.Emit) error {
	if m.Call.Present {
		m.Calls = append(m.Calls, wire.Optional[callPiece]{Value: callPiece{Function: m.Call}, Present: true})
	}
	if len(d.calls)+len(m.Calls) > wire.MaxCalls {
		return wire.TooManyCalls()
	}
	detailed := d.details.addAll(m.Details)
	if thinking := cmp.Or(m.Content.thinking+cmp.Or(m.ReasoningContent, m.Reasoning), detailed); thinking != "" {
		if s := d.thinking.Add(thinking); s != "" {
			emit(toolcrib.Delta{Thinking: s})
			d.reasoned = d.reasoned || m.ReasoningContent != ""
		}
	}
	// A refusal is shown as text; the reason reports that it is one.
	said := m.Content.text + m.Refusal
	d.refused = d.refused || m.Refusal != ""
	// The details end the block of their text; masking in that block removes them.
	if said != "" || len(m.Calls) > 0 || d.reason != "" {
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
	d.addCalls(m.Calls, emit)
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
