package openai

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/provider/wire"
)

// responsesDecoder reads one reply of the Responses API. The API reports everything
// twice: in deltas, and whole when an item is done; and once more when the
// response is. Servers that are compatible with it leave some of that out, so
// what was not reported before is taken from what is reported later.
type responsesDecoder struct {
	event    responsesEvent // the one at hand
	items    []itemState
	calls    int
	finish   toolcrib.Finish
	status   string // completed, incomplete, failed, …
	reason   string // incomplete_details.reason
	refused  bool
	text     wire.Runes
	thinking wire.Runes
}

// itemState is what has been emitted of one item of the output so far.
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
	Kind      wire.Word       `json:"type"`
	Index     int             `json:"output_index"`
	Summary   int             `json:"summary_index"` // of reasoning; or
	Content   int             `json:"content_index"`
	Delta     string          `json:"delta"`
	Arguments wire.Loose      `json:"arguments"`
	Item      responsesItem   `json:"item"`
	Response  responsesReply  `json:"response"`
	Error     json.RawMessage `json:"error"`
}

// responsesReply is the response object, as it is at its start and at its end.
type responsesReply struct {
	Object     wire.Word       `json:"object"`
	Status     string          `json:"status"`
	Model      wire.Word       `json:"model"`
	Output     []responsesItem `json:"output"`
	Usage      usage           `json:"usage"`
	Incomplete struct {
		Reason string `json:"reason"`
	} `json:"incomplete_details"`
	Error json.RawMessage `json:"error"`
}

// responsesItem is one item of the output.
type responsesItem struct {
	Kind      wire.Word       `json:"type"`
	ID        string          `json:"id"`
	CallID    string          `json:"call_id"`
	Name      string          `json:"name"`
	Arguments wire.Loose      `json:"arguments"`
	Summary   json.RawMessage `json:"summary"`
	Content   json.RawMessage `json:"content"`
	Encrypted json.RawMessage `json:"encrypted_content"`
}

// back is an item of reasoning as the API wants it back; "" = it does not:
// without encrypted content it is only known to a server that stores it. Servers
// of open models give the content itself, and take it back.
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

// readTexts reads the texts of a list of parts, refusals too, or a plain string.
func readTexts(raw json.RawMessage) (texts []string, refused bool) {
	c := wire.NewCursor(raw)
	switch c.Peek() {
	case '"':
		return []string{c.String()}, false
	case '[':
		c.Enter('[')
		for c.Next() {
			var part struct {
				Text    string `json:"text"`
				Refusal string `json:"refusal"`
			}
			c.Into(&part)
			if part.Text != "" {
				texts = append(texts, part.Text)
			}
			if part.Refusal != "" {
				texts, refused = append(texts, part.Refusal), true
			}
		}
	}
	return texts, refused
}

func (d *responsesDecoder) Complete() bool { return d.status != "" }

func (d *responsesDecoder) Frame(f wire.Frame, emit wire.Emit) (alive, done bool, err error) {
	e := &d.event
	if _, err := wire.Read(f.Data, e); err != nil {
		return false, false, err
	}
	if len(e.Kind) == 0 {
		e.Kind = f.Event
	}
	d.note(&e.Response)
	return d.take(e, f.Data, emit)
}

// note takes what any event may say about the response.
func (d *responsesDecoder) note(r *responsesReply) {
	if len(r.Model) > 0 && string(r.Model) != d.finish.Model {
		d.finish.Model = string(r.Model)
	}
	if r.Usage.Present {
		d.finish.Usage = r.Usage.tokens()
	}
	d.reason = cmp.Or(r.Incomplete.Reason, d.reason)
}

func (d *responsesDecoder) take(e *responsesEvent, data []byte, emit wire.Emit) (alive, done bool, err error) {
	switch string(e.Kind) {
	case "response.output_text.delta":
		d.say(d.item(e.Index), e.Delta, emit)
	case "response.refusal.delta":
		d.refused = true
		d.say(d.item(e.Index), e.Delta, emit)
	case "response.function_call_arguments.delta":
		d.argue(d.item(e.Index), e.Delta, emit)
	case "response.function_call_arguments.done":
		if k := d.item(e.Index); !k.spoken {
			d.argue(k, string(e.Arguments), emit)
		}
	case "response.reasoning_summary_text.delta", "response.reasoning_text.delta":
		d.think(d.item(e.Index), e.Summary+e.Content, e.Delta, emit)
	case "response.created", "response.in_progress", "response.queued", "keepalive":
		return false, false, nil // the model has not spoken: it may think for minutes
	case "response.output_item.added":
		k := d.itemOf(e.Index, e.Item.ID)
		if string(e.Item.Kind) == "function_call" {
			return true, false, d.startCall(k, &e.Item, emit)
		}
		return string(e.Item.Kind) != "reasoning", false, nil
	case "response.output_item.done":
		return true, false, d.end(d.itemOf(e.Index, e.Item.ID), &e.Item, emit)
	case "response.completed", "response.incomplete", "response.failed", "response.cancelled", "response.done":
		return true, true, d.over(e, data, emit)
	case "error":
		return true, true, wire.EventError(data)
	case "":
		return true, false, wire.Failure(data)
	}
	return true, false, nil // others tell nothing new, or are of a later version
}

// over takes the end of the response, with what was not told before.
func (d *responsesDecoder) over(e *responsesEvent, data []byte, emit wire.Emit) error {
	r := &e.Response
	d.status = r.Status
	switch {
	case given(r.Error), r.Status == "failed", string(e.Kind) == "response.failed":
		return d.failure(cmp.Or(string(r.Error), string(e.Error)), data)
	case string(e.Kind) == "response.cancelled" || r.Status == "cancelled":
		return &toolcrib.ModelError{Class: toolcrib.ErrOther, Message: "the API cancelled the response"}
	case d.status == "" && string(e.Kind) == "response.incomplete":
		d.status = "incomplete"
	case d.status == "":
		d.status = "completed"
	}
	for i := range d.items {
		if d.items[i].done {
			return nil // what was done was told, item by item
		}
	}
	for i := range r.Output {
		if err := d.end(d.itemOf(i, r.Output[i].ID), &r.Output[i], emit); err != nil {
			return err
		}
	}
	return nil
}

// failure makes the error of a response that failed: its error object is inside the
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

// Whole reads a reply in one piece, by the same steps as a stream.
func (d *responsesDecoder) Whole(body []byte, emit wire.Emit) error {
	var r responsesReply
	if _, err := wire.Read(body, &r); err != nil {
		return err
	}
	d.note(&r)
	if string(r.Object) != "response" && len(r.Output) == 0 {
		if err := wire.Failure(body); err != nil {
			return err
		}
		return wire.NotAReply("response (api)", body)
	}
	return d.over(&responsesEvent{Response: r}, body, emit)
}

// Finish maps the status.
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

// end takes an item that is done: what its deltas did not tell, and reasoning as
// it is to be sent back.
func (d *responsesDecoder) end(k *itemState, item *responsesItem, emit wire.Emit) error {
	if k.done {
		return nil
	}
	switch string(item.Kind) {
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
			d.say(k, strings.Join(texts, ""), emit)
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
