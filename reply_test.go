package toolcrib_test

import (
	"testing"

	"github.com/toolcrib/toolcrib"
)

// Pieces of several calls may come in any order: every adapter
// streams, and a turn has several calls.
func TestReplyBuilder_InterleavedCalls(t *testing.T) {
	var b toolcrib.ReplyBuilder
	piece := func(index int, id, arguments string) {
		b.Add(toolcrib.Delta{ToolCall: &toolcrib.ToolCallDelta{Index: index, ID: id, Name: id, Arguments: arguments}})
	}
	b.Add(toolcrib.Delta{Thinking: "hm"})
	b.Add(toolcrib.Delta{Signature: "sig"})
	b.Add(toolcrib.Delta{Text: "one "})
	piece(0, "a", `{"pa`)
	piece(1, "b", `{"q`)
	piece(2, "c", "")
	piece(0, "", `th":1}`)
	piece(1, "", `":2}`)
	b.Add(toolcrib.Delta{Text: "two"})
	b.Add(toolcrib.Delta{Redacted: "xx"})
	b.Add(toolcrib.Delta{Finish: &toolcrib.Finish{Reason: toolcrib.FinishToolCalls}})
	m := b.Reply().Message
	calls := m.ToolCalls()
	if len(calls) != 3 || string(calls[0].Arguments) != `{"path":1}` || string(calls[1].Arguments) != `{"q":2}` || len(calls[2].Arguments) != 0 {
		t.Errorf("calls: %+v", calls)
	}
	if m.Text() != "one two" || m.Parts[0].Thinking.Text != "hm" || m.Parts[0].Thinking.Signature != "sig" {
		t.Errorf("message: %+v", m)
	}
	if !b.Finished() || b.Bytes() == 0 {
		t.Error("the end was not noticed")
	}
}
