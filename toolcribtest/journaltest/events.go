package journaltest

import (
	"encoding/json"
	"reflect"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/journal"
)

// At returns the time of the first event of the suite. It has microseconds that are easily lost.
func At() time.Time { return time.Date(2026, 2, 28, 23, 59, 59, 999_999_000, time.UTC) }

// Bodies returns a body of every kind with every field set, in an order that is possible in a run.
// Fields of the same name have the same text, so that bodies refer to each other.
func Bodies() []toolcrib.Body {
	start, reply := new(journal.RunStarted), new(journal.Message)
	paused, parked, child, failed := new(journal.Paused), new(journal.ChildParked), new(journal.ChildStarted),
		new(journal.Error)
	all := []toolcrib.Body{
		start, new(journal.TakenUp), new(journal.Offered), new(journal.ModelRequest), new(journal.ModelFailed), reply,
		new(journal.ToolCall), new(journal.Usage), new(journal.Verdicts), new(journal.ConfirmationRequired), paused,
		new(journal.ConfirmationResolved), new(journal.ToolStarted), new(journal.Reconciled), new(journal.ToolResult),
		new(journal.Notice), new(journal.Granted), new(journal.Said), new(journal.Stopping), new(journal.Done), failed,
		new(journal.Condensed), new(journal.Released), new(journal.Worked), new(journal.ModelChosen),
		new(journal.AnswerChecked),
		child, parked, new(journal.ChildResumed), new(journal.ChildEnded), new(journal.Forgotten),
		new(journal.Resumed),
	}
	n := 0
	for _, body := range all {
		fill(reflect.ValueOf(body).Elem(), "", &n)
	}
	start.Format, start.RunTools, start.SkillTools = journal.Format, nil, []string{}      // nil and empty lists differ
	start.Parent, start.Depth, child.Agent, paused.Pending.Run = "run_0", 1, "helper", "" // the run itself waits
	// its calls would have to be counted
	start.Principal.Token = ""
	paused.Status, parked.Status, failed.Status = toolcrib.StatusWaitingForApproval, toolcrib.StatusWaitingForApproval,
		toolcrib.StatusFailed
	p := reply.Parts[0]
	reply.Parts = []toolcrib.Part{
		{Thinking: p.Thinking},
		{Text: p.Text},
		{ToolCall: &toolcrib.ToolCall{ID: p.ToolCall.ID, Name: p.ToolCall.Name}},
		{ToolResult: p.ToolResult},
		{File: p.File},
	}
	return all
}

// fill sets a value, which is a field with this name; numbers are counted up.
func fill(v reflect.Value, name string, n *int) {
	*n++
	switch v.Interface().(type) {
	case json.RawMessage:
		v.SetBytes([]byte(`{"<b>&é":"\u0000"}`))
		return
	case time.Time:
		v.Set(reflect.ValueOf(At()))
		return
	case toolcrib.RunID:
		v.SetString("run_b")
		return
	case toolcrib.Status:
		v.SetString(string(toolcrib.StatusCompleted))
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(name + " <&é🙂\u2028")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64, reflect.Int32:
		v.SetInt(int64(*n))
	case reflect.Uint8:
		v.SetUint(1)
	case reflect.Float64:
		v.SetFloat(float64(*n) / 8)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), name, n)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0), name, n)
	case reflect.Map:
		value := reflect.New(v.Type().Elem()).Elem()
		fill(value, name, n)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(reflect.ValueOf("ID <&é🙂\u2028"), value)
	case reflect.Struct:
		for i := range v.NumField() {
			if f := v.Type().Field(i); f.IsExported() && f.Tag.Get("json") != "-" {
				fill(v.Field(i), f.Name, n)
			}
		}
	}
}

// Events returns events with bodies, a millisecond and a microsecond apart.
func Events(bodies ...toolcrib.Body) []toolcrib.Event {
	events := make([]toolcrib.Event, len(bodies))
	for i, b := range bodies {
		events[i] = toolcrib.Event{Time: At().Add(time.Duration(i) * 1001 * time.Microsecond), Body: b}
	}
	return events
}

// notices returns n small events.
func notices(n int) []toolcrib.Event {
	bodies := make([]toolcrib.Body, n)
	for i := range bodies {
		bodies[i] = &journal.Notice{Notice: toolcrib.Notice{Code: "n"}}
	}
	return Events(bodies...)
}
