package deltas_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/internal/deltas"
)

func TestH11_DeltasJoinedAreTheMessage(t *testing.T) {
	m := toolcrib.Message{Role: toolcrib.RoleAssistant, Parts: []toolcrib.Part{
		{Thinking: &toolcrib.Thinking{Text: "let me  see\n", Signature: "sig"}},
		{Thinking: &toolcrib.Thinking{Redacted: "xxxx"}},
		{Text: "Grüße aus  der\tWerkstatt. "},
		{ToolCall: &toolcrib.ToolCall{ID: "a", Name: "read_file", Arguments: []byte(`{"path":"größe.txt"}`)}},
		{ToolCall: &toolcrib.ToolCall{ID: "b", Name: "list_directory", Arguments: []byte(`{}`)}},
		{ToolCall: &toolcrib.ToolCall{Name: "broken", Arguments: []byte(`{"path": `)}},
	}}
	var b toolcrib.ReplyBuilder
	pieces := map[int]int{}
	for d := range deltas.Of(m) {
		if d.ToolCall != nil {
			pieces[d.ToolCall.Index]++
		}
		b.Add(d)
	}
	if diff := cmp.Diff(m, b.Reply().Message); diff != "" {
		t.Errorf("joined deltas differ from the message (-sent +joined):\n%s", diff)
	}
	for index, n := range pieces {
		if n < 2 {
			t.Errorf("call %d came in %d pieces, want at least 2", index, n)
		}
	}
}

func TestH11_AnyTextIsCutIntoBoundedPieces(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := strings.Repeat(rapid.String().Draw(t, "text"), rapid.IntRange(1, 40).Draw(t, "times"))
		m := toolcrib.Message{Parts: []toolcrib.Part{{Text: text}, {ToolCall: &toolcrib.ToolCall{Name: "x", Arguments: []byte(text)}}}}
		var joined, arguments strings.Builder
		n := 0
		for d := range deltas.Of(m) {
			n++
			joined.WriteString(d.Text)
			if d.ToolCall != nil {
				arguments.WriteString(d.ToolCall.Arguments)
			}
		}
		if joined.String() != text || arguments.String() != text {
			t.Fatalf("joined %q and %q, want %q", joined.String(), arguments.String(), text)
		}
		if n > 1100 {
			t.Fatalf("%d deltas for %d bytes", n, len(text))
		}
	})
}

func TestDeltas_StopWhenNobodyListens(t *testing.T) {
	m := toolcrib.TextMessage(toolcrib.RoleAssistant, "one two three")
	n := 0
	for range deltas.Of(m) {
		if n++; n == 2 {
			break
		}
	}
	if n != 2 {
		t.Errorf("got %d deltas, want to stop after 2", n)
	}
	if got := deltas.Reason(m); got != toolcrib.FinishStop {
		t.Errorf("reason %q, want stop", got)
	}
}
