package openai

import (
	"net/http"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/provider/wire"
)

// responsesDecoder reads one reply of the Responses API. The API tells everything
// twice: in deltas, and whole when an item is done; and once more when the
// response is. Servers that are compatible with it leave some of that out, so
// what was not told before is taken from what is told later.
type responsesDecoder struct {
	provider string
	notices  []toolcrib.Notice

	items    []itemState
	calls    int
	finish   toolcrib.Finish
	status   string // completed, incomplete, failed, …
	reason   string // incomplete_details.reason
	refused  bool
	text     wire.Runes
	thinking wire.Runes
}

// itemState is what was told of one item of the output so far.
type itemState struct {
	index   int
	id      string
	call    int  // number of the call; -1 = none
	spoken  bool // text or arguments
	thought bool // reasoning text
	part    int  // of the reasoning: summary_index or content_index
	done    bool
}

// responsesEvent is what one event says; which fields count depends on its type.
type responsesEvent struct {
	kind      string
	index     int    // output_index
	part      int    // summary_index or content_index
	text      string // delta, or text
	arguments string
	item      responsesItem
	response  responsesReply
	failed    bool // an error object
}

// responsesReply is the response object.
type responsesReply struct {
	object string
	status string
	output []responsesItem
	failed bool // an error object
}

func (d *responsesDecoder) Begin(h http.Header) { d.finish.RequestID = h.Get("X-Request-Id") }

func (d *responsesDecoder) Complete() bool { return d.status != "" }

func (d *responsesDecoder) Frame(f wire.Frame, emit wire.Emit) (alive, done bool, err error) {
	if len(f.Data) == 0 {
		return false, false, nil
	}
	if string(f.Data) == "[DONE]" {
		return false, d.Complete(), nil // some compatible servers end so
	}
	c := wire.NewCursor(f.Data)
	e := d.readEvent(&c)
	if err := c.End(); err != nil {
		return false, false, err
	}
	if e.kind == "" {
		e.kind = string(f.Event)
	}
	return d.take(&e, f.Data, emit)
}

func (d *responsesDecoder) take(e *responsesEvent, data []byte, emit wire.Emit) (alive, done bool, err error) {
	switch e.kind {
	case "response.output_text.delta":
		d.say(d.item(e.index), e.text, emit)
	case "response.refusal.delta":
		d.refused = true
		d.say(d.item(e.index), e.text, emit)
	case "response.function_call_arguments.delta":
		d.argue(d.item(e.index), e.text, emit)
	case "response.function_call_arguments.done":
		if k := d.item(e.index); !k.spoken {
			d.argue(k, e.arguments, emit)
		}
	case "response.reasoning_summary_text.delta", "response.reasoning_text.delta":
		d.think(d.item(e.index), e.part, e.text, emit)
	case "response.created", "response.in_progress", "response.queued", "keepalive":
		return false, false, nil // the model has not spoken: it may think for minutes
	case "response.output_item.added":
		k := d.itemOf(e.index, e.item.id)
		if e.item.kind == "function_call" {
			return true, false, d.startCall(k, &e.item, emit)
		}
		return e.item.kind != "reasoning", false, nil
	case "response.output_item.done":
		return true, false, d.end(d.itemOf(e.index, e.item.id), &e.item, emit)
	case "response.completed", "response.incomplete", "response.failed", "response.cancelled", "response.done":
		return true, true, d.over(e, data, emit)
	case "error":
		return true, true, wire.EventError(d.provider, data)
	case "":
		if e.failed {
			return true, true, wire.EventError(d.provider, data)
		}
	}
	return true, false, nil // others tell nothing new, or are of a later version
}

// over takes the end of the response, with what was not told before.
func (d *responsesDecoder) over(e *responsesEvent, data []byte, emit wire.Emit) error {
	r := &e.response
	d.status = r.status
	switch {
	case r.failed, r.status == "failed", e.kind == "response.failed":
		return d.failure(data)
	case e.kind == "response.cancelled" || r.status == "cancelled":
		return &toolcrib.ModelError{Class: toolcrib.ErrOther, Provider: d.provider, Message: "the API cancelled the response"}
	case d.status == "" && e.kind == "response.incomplete":
		d.status = "incomplete"
	case d.status == "":
		d.status = "completed"
	}
	for i := range d.items {
		if d.items[i].done {
			return nil // what was done was told, item by item
		}
	}
	for i := range r.output {
		if err := d.end(d.itemOf(i, r.output[i].id), &r.output[i], emit); err != nil {
			return err
		}
	}
	return nil
}

// failure makes the error of a response that failed: its error object stands
// inside the response.
func (d *responsesDecoder) failure(data []byte) error {
	inner := errorOf(data)
	if inner == nil {
		inner = data
	}
	e := wire.EventError(d.provider, inner)
	e.Detail = wire.Clip(string(data), 8<<10)
	return e
}

// Whole reads a reply in one piece, by the same steps as a stream.
func (d *responsesDecoder) Whole(body []byte, emit wire.Emit) error {
	c := wire.NewCursor(body)
	var r responsesReply
	if c.Peek() == '{' {
		r = d.readReply(&c)
	}
	if err := c.End(); err != nil {
		return err
	}
	if r.object != "response" && len(r.output) == 0 {
		if e, ok := wire.ParseAPIError(body); ok && e.Message != "" {
			return wire.EventError(d.provider, body)
		}
		return &toolcrib.ModelError{Class: toolcrib.ErrOther, Provider: d.provider, Message: "answered with JSON that is no response: check base_url and api", Detail: wire.Clip(string(body), 8<<10)}
	}
	return d.over(&responsesEvent{response: r}, body, emit)
}

// Finish maps the status.
func (d *responsesDecoder) Finish() toolcrib.Finish {
	f := d.finish
	f.Notices = d.notices
	switch {
	case d.status == "incomplete" && d.reason == "content_filter":
		f.Reason = toolcrib.FinishFiltered
	case d.status == "incomplete" && (d.reason == "max_output_tokens" || d.reason == "max_tokens"):
		f.Reason = toolcrib.FinishLength
	case d.status != "completed":
		f.Reason = toolcrib.FinishOther
	case d.calls > 0:
		f.Reason = toolcrib.FinishToolCalls
	case d.refused:
		f.Reason = toolcrib.FinishFiltered
	default:
		f.Reason = toolcrib.FinishStop
	}
	return f
}

// item finds what is known of an item by its place in the output.
func (d *responsesDecoder) item(index int) *itemState {
	for i := len(d.items) - 1; i >= 0; i-- {
		if d.items[i].index == index {
			return &d.items[i]
		}
	}
	d.items = append(d.items, itemState{index: index, call: -1, part: -1})
	return &d.items[len(d.items)-1]
}

// itemOf finds an item by its place and ID. There are servers that give every
// item the same place, and gateways that give an item another ID in each event:
// it is another item if the one before is done.
func (d *responsesDecoder) itemOf(index int, id string) *itemState {
	k := d.item(index)
	switch {
	case id == "" || k.id == id:
	case !k.done:
		k.id = id
	default:
		d.items = append(d.items, itemState{index: index, id: id, call: -1, part: -1})
		k = &d.items[len(d.items)-1]
	}
	return k
}

func (d *responsesDecoder) say(k *itemState, text string, emit wire.Emit) {
	if s := d.text.Add(text); s != "" {
		k.spoken = true
		emit(toolcrib.Delta{Text: s})
	}
}

// think hands on reasoning; its parts are paragraphs.
func (d *responsesDecoder) think(k *itemState, part int, text string, emit wire.Emit) {
	s := d.thinking.Add(text)
	if s == "" {
		return
	}
	if k.thought && part != k.part {
		s = "\n\n" + s
	}
	k.thought, k.part = true, part
	emit(toolcrib.Delta{Thinking: s})
}

func (d *responsesDecoder) startCall(k *itemState, item *responsesItem, emit wire.Emit) error {
	if k.call >= 0 {
		return nil
	}
	if d.calls == maxCalls {
		return &toolcrib.ModelError{Class: toolcrib.ErrOther, Provider: d.provider, Message: "the reply asks for too many tool calls"}
	}
	id := item.callID
	if id == "" {
		id = item.id
	}
	k.call = d.calls
	d.calls++
	emit(toolcrib.Delta{ToolCall: &toolcrib.ToolCallDelta{Index: k.call, ID: id, Name: item.name}})
	return nil
}

func (d *responsesDecoder) argue(k *itemState, arguments string, emit wire.Emit) {
	if arguments == "" || k.call < 0 {
		return
	}
	k.spoken = true
	emit(toolcrib.Delta{ToolCall: &toolcrib.ToolCallDelta{Index: k.call, Arguments: arguments}})
}

// end takes an item that is done: what its deltas did not tell, and reasoning as
// it is to be sent back.
func (d *responsesDecoder) end(k *itemState, item *responsesItem, emit wire.Emit) error {
	if k.done {
		return nil
	}
	switch item.kind {
	case "function_call":
		k.done = true
		if err := d.startCall(k, item, emit); err != nil {
			return err
		}
		if !k.spoken {
			d.argue(k, item.arguments, emit)
		}
	case "message":
		k.done = true
		d.refused = d.refused || item.refused
		if !k.spoken {
			d.say(k, item.text, emit)
		}
	case "reasoning":
		k.done = true
		if !k.thought {
			for n, text := range item.thoughts {
				d.think(k, n, text, emit)
			}
		}
		back := item.back()
		switch {
		case back == "":
		case k.thought:
			emit(toolcrib.Delta{Signature: back})
		default:
			emit(toolcrib.Delta{Redacted: back})
		}
	}
	return nil
}
