package openai

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/provider/wire"
)

// responsesDecoder decodes one reply of the Responses API. The API reports everything
// three times: in deltas, with each completed item, and with the completed
// response. Compatible servers omit some of that, so
// missing parts are taken from later reports.
type responsesDecoder struct {
	items    []itemState
	calls    int
	finish   toolcrib.Finish
	status   string // completed, incomplete, failed, …
	reason   string // incomplete_details.reason
	refused  bool
	text     wire.Runes
	thinking wire.Runes
}

// itemState is the part of an output item that was emitted.
type itemState struct {
	index   int
	id      string
	call    int  // number of the call, or -1
	spoken  bool // text or arguments were emitted
	thought bool // reasoning text was emitted
	part    int  // of the reasoning: summary_index or content_index
	done    bool
}

// responsesEvent is an event; which fields are set depends on its type.
type responsesEvent struct {
	Kind      string          `json:"type"`
	Index     float64         `json:"output_index"`
	Summary   float64         `json:"summary_index"` // of reasoning; or
	Content   float64         `json:"content_index"`
	Delta     wire.Text       `json:"delta"`
	Arguments wire.Loose      `json:"arguments"`
	Item      responsesItem   `json:"item"`
	Response  responsesReply  `json:"response"`
	Error     json.RawMessage `json:"error"`
}

// responsesReply is the response object, both at its start and at its end.
type responsesReply struct {
	Object     string               `json:"object"`
	Status     string               `json:"status"`
	Model      string               `json:"model"`
	Output     []responsesItem      `json:"output"`
	Usage      wire.Optional[usage] `json:"usage"`
	Incomplete struct {
		Reason string `json:"reason"`
	} `json:"incomplete_details"`
	Error json.RawMessage `json:"error"`
}

// responsesItem is one item of the output.
type responsesItem struct {
	Kind      string          `json:"type"`
	ID        string          `json:"id"`
	CallID    string          `json:"call_id"`
	Name      string          `json:"name"`
	Arguments wire.Loose      `json:"arguments"`
	Summary   json.RawMessage `json:"summary"`
	Content   json.RawMessage `json:"content"`
	Encrypted json.RawMessage `json:"encrypted_content"`
}

// back returns an item of reasoning in the form that is sent back, or "" if it cannot be:
// without encrypted content, only a server that stored it knows it. Servers
// of open models send the content itself, and accept it.
func (i *responsesItem) back() string {
	open := !given(i.Encrypted) || string(i.Encrypted) == `""`
	bare := len(i.Content) == 0 || i.Content[0] != '[' || string(i.Content) == "[]"
	if open && bare {
		return ""
	}
	summary, name, value := i.Summary, "encrypted_content", i.Encrypted
	if len(summary) == 0 || summary[0] != '[' {
		summary = json.RawMessage(`[]`)
	}
	if open {
		name, value = "content", i.Content
	}
	return fmt.Sprintf(reasoningOpen+`"id":%s,"summary":%s,"%s":%s}`, wire.AppendString(nil, i.ID), summary, name, value)
}

// readTexts decodes the texts, including refusals, of a list of parts, or a plain string.
func readTexts(raw []byte) (texts []wire.Text, refused bool) {
	if len(raw) == 0 {
		return nil, false
	}
	var parts []struct {
		Text    wire.Text `json:"text"`
		Refusal wire.Text `json:"refusal"`
	}
	if raw[0] == '"' {
		return []wire.Text{wire.TextOf(raw)}, false
	}
	_ = wire.Read(raw, &parts)
	for _, part := range parts {
		if part.Text != "" {
			texts = append(texts, part.Text)
		}
		if part.Refusal != "" {
			texts, refused = append(texts, part.Refusal), true
		}
	}
	return texts, refused
}

func (d *responsesDecoder) Complete() bool { return d.status != "" }

func (d *responsesDecoder) Frame(f wire.Frame, emit wire.Emit) (alive, done bool, err error) {
	var e responsesEvent
	if err := wire.Read(f.Data, &e); err != nil {
		return false, false, err
	}
	e.Kind = cmp.Or(e.Kind, string(f.Event))
	d.note(&e.Response)
	return d.take(&e, f.Data, emit)
}

// note records the fields of the response that any event may have.
func (d *responsesDecoder) note(r *responsesReply) {
	d.finish.Model = cmp.Or(r.Model, d.finish.Model)
	if r.Usage.Present {
		d.finish.Usage = r.Usage.Value.tokens()
	}
	d.reason = cmp.Or(r.Incomplete.Reason, d.reason)
}

func (d *responsesDecoder) take(e *responsesEvent, data []byte, emit wire.Emit) (alive, done bool, err error) {
	switch e.Kind {
	case "response.output_text.delta":
		d.say(d.item(int(wire.Int(e.Index))), e.Delta, emit)
	case "response.refusal.delta":
		d.refused = true
		d.say(d.item(int(wire.Int(e.Index))), e.Delta, emit)
	case "response.function_call_arguments.delta":
		d.argue(d.item(int(wire.Int(e.Index))), string(e.Delta), emit)
	case "response.function_call_arguments.done":
		if k := d.item(int(wire.Int(e.Index))); !k.spoken {
			d.argue(k, string(e.Arguments), emit)
		}
	case "response.reasoning_summary_text.delta", "response.reasoning_text.delta":
		d.think(d.item(int(wire.Int(e.Index))), int(wire.Int(e.Summary+e.Content)), e.Delta, emit)
	case "response.created", "response.in_progress", "response.queued", "keepalive":
		return false, false, nil // no output yet: the model may reason for minutes
	case "response.output_item.added":
		k := d.itemOf(int(wire.Int(e.Index)), e.Item.ID)
		if e.Item.Kind == "function_call" {
			return true, false, d.startCall(k, &e.Item, emit)
		}
		return e.Item.Kind != "reasoning", false, nil
	case "response.output_item.done":
		return true, false, d.end(d.itemOf(int(wire.Int(e.Index)), e.Item.ID), &e.Item, emit)
	case "response.completed", "response.incomplete", "response.failed", "response.cancelled", "response.done":
		return true, true, d.over(e, data, emit)
	case "error":
		return true, true, wire.EventError(data)
	case "":
		return true, false, wire.Failure(data)
	}
	return true, false, nil // redundant events, or those of a later version
}

// over processes the end of the response, and emits parts that were not emitted before.
func (d *responsesDecoder) over(e *responsesEvent, data []byte, emit wire.Emit) error {
	r := &e.Response
	d.status = r.Status
	switch {
	case given(r.Error), r.Status == "failed", e.Kind == "response.failed":
		return d.failure(cmp.Or(string(r.Error), string(e.Error)), data)
	case e.Kind == "response.cancelled" || r.Status == "cancelled":
		return &toolcrib.ModelError{Class: toolcrib.ErrOther, Message: "the API cancelled the response"}
	case d.status == "" && e.Kind == "response.incomplete":
		d.status = "incomplete"
	case d.status == "":
		d.status = "completed"
	}
	for i := range d.items {
		if d.items[i].done {
			return nil // complete items were emitted one by one
		}
	}
	for i := range r.Output {
		if err := d.end(d.itemOf(i, r.Output[i].ID), &r.Output[i], emit); err != nil {
			return err
		}
	}
	return nil
}

// failure returns the error of a failed response, whose error object is inside the
// response.
func (d *responsesDecoder) failure(inner string, data []byte) error {
	body := data
	if strings.HasPrefix(inner, "{") {
		body = []byte(`{"error":` + inner + `}`)
	}
	e := wire.EventError(body)
	e.Detail = wire.Clip(string(data), 8<<10)
	return e
}

// Whole decodes a reply that is not a stream, with the same steps.
func (d *responsesDecoder) Whole(body []byte, emit wire.Emit) error {
	var r responsesReply
	if err := wire.Read(body, &r); err != nil {
		return err
	}
	d.note(&r)
	if r.Object != "response" && len(r.Output) == 0 {
		if err := wire.Failure(body); err != nil {
			return err
		}
		return wire.NotAReply("response (api)", body)
	}
	return d.over(&responsesEvent{Response: r}, body, emit)
}

// Finish maps the status to a toolcrib.Finish.
func (d *responsesDecoder) Finish() toolcrib.Finish {
	f := d.finish
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

// item returns the state of an item by its index in the output.
func (d *responsesDecoder) item(index int) *itemState {
	for i := len(d.items) - 1; i >= 0; i-- {
		if d.items[i].index == index {
			return &d.items[i]
		}
	}
	d.items = append(d.items, itemState{index: index, call: -1, part: -1})
	return &d.items[len(d.items)-1]
}

// itemOf returns the state of an item by its index and ID. Some servers give every
// item the same index, and some gateways give an item another ID in each event:
// another ID is a new item only if the one before is done.
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

func (d *responsesDecoder) say(k *itemState, text wire.Text, emit wire.Emit) {
	if s := d.text.Add(text); s != "" {
		k.spoken = true
		emit(toolcrib.Delta{Text: s})
	}
}

// think emits reasoning, with its parts as paragraphs.
func (d *responsesDecoder) think(k *itemState, part int, text wire.Text, emit wire.Emit) {
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
	if d.calls == wire.MaxCalls {
		return wire.TooManyCalls()
	}
	k.call = d.calls
	d.calls++
	emit(toolcrib.Delta{ToolCall: &toolcrib.ToolCallDelta{
		Index: k.call, ID: cmp.Or(item.CallID, item.ID), Name: item.Name,
	}})
	return nil
}

func (d *responsesDecoder) argue(k *itemState, arguments string, emit wire.Emit) {
	if arguments == "" || k.call < 0 {
		return
	}
	k.spoken = true
	emit(toolcrib.Delta{ToolCall: &toolcrib.ToolCallDelta{Index: k.call, Arguments: arguments}})
}

// end processes a completed item: it emits the parts that its deltas did not contain, and
// reasoning in the form that is sent back.
func (d *responsesDecoder) end(k *itemState, item *responsesItem, emit wire.Emit) error {
	if k.done {
		return nil
	}
	switch item.Kind {
	case "function_call":
		k.done = true
		if err := d.startCall(k, item, emit); err != nil {
			return err
		}
		if !k.spoken {
			d.argue(k, string(item.Arguments), emit)
		}
	case "message":
		k.done = true
		texts, refused := readTexts(item.Content)
		d.refused = d.refused || refused
		if !k.spoken {
			for _, text := range texts {
				d.say(k, text, emit)
			}
		}
	case "reasoning":
		k.done = true
		if !k.thought {
			texts, _ := readTexts(item.Summary)
			if len(texts) == 0 {
				texts, _ = readTexts(item.Content)
			}
			for n, text := range texts {
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
