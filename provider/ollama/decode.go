package ollama

import (
	"cmp"
	"encoding/json"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/provider/wire"
)

type decoder struct {
	finish   toolcrib.Finish
	calls    int
	said     wire.Said
	done     bool
	reason   string // done_reason as sent
	text     wire.Runes
	thinking wire.Runes
}

// line is one object of the stream, or a whole reply.
type line struct {
	Message    wire.Optional[message] `json:"message"`
	Done       json.RawMessage        `json:"done"`
	Reason     string                 `json:"done_reason"`
	Model      string                 `json:"model"`
	Prompt     wire.Optional[float64] `json:"prompt_eval_count"`
	Output     float64                `json:"eval_count"`
	Error      json.RawMessage        `json:"error"`
	StatusCode float64                `json:"StatusCode"`
	Status     float64                `json:"status"`
}

type message struct {
	Content  wire.Text             `json:"content"`
	Thinking wire.Text             `json:"thinking"`
	Calls    []wire.Optional[call] `json:"tool_calls"`
}

// call is a complete call; Ollama does not stream calls. By the API's definition its arguments
// are an object. A string, or any other value, is passed on unchanged, because
// arguments are checked elsewhere.
type call struct {
	ID       string `json:"id"`
	Function struct {
		Name      string     `json:"name"`
		Arguments wire.Loose `json:"arguments"`
	} `json:"function"`
}

// NDJSON marks the API as one that streams lines.
func (d *decoder) NDJSON() {}

func (d *decoder) Complete() bool { return d.done }

func (d *decoder) Frame(f wire.Frame, emit wire.Emit) (alive, done bool, err error) {
	err = d.read(f.Data, emit)
	return true, d.done, err
}

// Whole decodes a reply that is not a stream; it has the form of one line.
func (d *decoder) Whole(body []byte, emit wire.Emit) error { return d.read(body, emit) }

func (d *decoder) read(data []byte, emit wire.Emit) error {
	var value wire.Optional[line]
	if err := wire.Read(data, &value); err != nil || !value.Present {
		return err
	}
	l, m := &value.Value, &value.Value.Message.Value
	if l.Prompt.Present {
		// Without it the prompt was not counted, and no usage is reported.
		d.finish.Usage.InputTokens, d.finish.Usage.Reported = wire.Int(max(l.Prompt.Value, 0)), true
	}
	d.finish.Usage.OutputTokens = max(wire.Int(l.Output), d.finish.Usage.OutputTokens)
	d.reason = cmp.Or(l.Reason, d.reason)
	d.finish.Model = cmp.Or(d.finish.Model, l.Model)
	switch {
	case len(l.Error) > 0 && string(l.Error) != "null":
		return streamError(data, int(wire.Int(cmp.Or(l.StatusCode, l.Status))))
	case !l.Message.Present && l.Done == nil:
		if err := wire.Failure(data); err != nil {
			return err
		}
		return wire.NotAReply("chat reply of Ollama", data)
	}
	d.done = d.done || string(l.Done) == "true"
	if d.calls+len(m.Calls) > wire.MaxCalls {
		return wire.TooManyCalls()
	}
	// The order in which a model works.
	if s := d.thinking.Add(m.Thinking); s != "" {
		emit(toolcrib.Delta{Thinking: s})
	}
	if s := d.text.Add(m.Content); s != "" {
		emit(toolcrib.Delta{Text: s})
	}
	for i := range m.Calls {
		k := &m.Calls[i].Value
		if !m.Calls[i].Present || d.said.Again(d.done, k.ID, k.Function.Name, string(k.Function.Arguments)) {
			continue
		}
		emit(toolcrib.Delta{ToolCall: &toolcrib.ToolCallDelta{
			Index: d.calls, ID: k.ID, Name: k.Function.Name, Arguments: string(k.Function.Arguments),
		}})
		d.calls++
	}
	return nil
}

// Finish maps the reason to a toolcrib.Finish. Ollama reports stop even if the model waits for results.
func (d *decoder) Finish() toolcrib.Finish {
	f := d.finish
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
