package texttag_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/provider/texttag"
)

// played is a model that streams these deltas.
type played []toolcrib.Delta

func (p played) Stream(context.Context, *toolcrib.Request) iter.Seq2[toolcrib.Delta, error] {
	return func(yield func(toolcrib.Delta, error) bool) {
		for _, d := range p {
			if !yield(d, nil) {
				return
			}
		}
	}
}

func text(s string) toolcrib.Delta { return toolcrib.Delta{Text: s} }

func end(r toolcrib.FinishReason) toolcrib.Delta {
	return toolcrib.Delta{Finish: &toolcrib.Finish{Reason: r, Model: "m", Usage: toolcrib.TokenUsage{InputTokens: 3, Reported: true}}}
}

// story formats deltas, one per line.
func story(t *testing.T, m toolcrib.Model) []string {
	t.Helper()
	var all []string
	for d, err := range m.Stream(t.Context(), &toolcrib.Request{Tools: specs(), Messages: []toolcrib.Message{user("go")}}) {
		switch {
		case err != nil:
			all = append(all, "error "+err.Error())
		case d.ToolCall != nil:
			all = append(all, strings.TrimSpace(fmt.Sprintf("call %d %s %s %s", d.ToolCall.Index, d.ToolCall.Name, d.ToolCall.Arguments, d.ToolCall.Problem)))
		case d.Finish != nil:
			line := fmt.Sprintf("end %s %s %d", d.Finish.Reason, d.Finish.Model, d.Finish.Usage.InputTokens)
			for _, n := range d.Finish.Notices {
				line += " " + n.Code
			}
			all = append(all, line)
		case d.Thinking != "":
			all = append(all, "thinking "+d.Thinking)
		default:
			all = append(all, "text "+d.Text+d.Signature+d.Redacted)
		}
	}
	return all
}

func TestStream_Deltas(t *testing.T) {
	native := toolcrib.Delta{ToolCall: &toolcrib.ToolCallDelta{Index: 0, ID: "n1", Name: "now", Arguments: "{}"}}
	call := text(`<tool_call>{"name":"now","args":{}}</tool_call>`)
	for _, tt := range []struct {
		name string
		in   played
		want []string
	}{
		{"plain", played{text("a"), text("b"), end("stop")}, []string{"text a", "text b", "end stop m 3"}},
		{"thinking and a call", played{{Thinking: "hm"}, {Signature: "s"}, text("see "), call, end("stop")}, []string{"thinking hm", "text s", "text see ", "call 0 now {}", "end tool_calls m 3"}},
		{"the call comes before the end", played{call, text("more"), end("stop")}, []string{"call 0 now {}", "end tool_calls m 3 tool_call_repaired"}},
		{"whole call, cut behind it", played{call, text("and"), end("length")}, []string{"call 0 now {}", "end tool_calls m 3 tool_call_repaired"}},
		{"cut inside a call", played{text(`<tool_call>{"name":"now","ar`), end("length")}, []string{`call 0 now {"name":"now","ar the reply was cut inside the call`, "end length m 3"}},
		{"cut text", played{text("abc <tool"), end("length")}, []string{"text abc ", "end length m 3 tag_markup_removed"}},
		{"filtered inside a call", played{text(`a <tool_call>{"name":"now"`), end("filtered")}, []string{"text a ", "end filtered m 3"}},
		{"filtered behind a call", played{call, end("filtered")}, []string{"call 0 now {}", "end filtered m 3"}},
		{"calls of the API itself", played{text("a `b"), native, text("<tool_call>"), end("tool_calls")}, []string{"text a ", "text `b", "call 0 now {}", "end tool_calls m 3 tool_call_repaired"}},
		{"a call of the API behind a tag", played{call, native, end("stop")}, []string{"call 0 now {}", "end tool_calls m 3"}},
		{"no end", played{text("a <")}, []string{"text a "}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, story(t, texttag.New(tt.in))); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestStream_ErrorsAndReadersThatLeave(t *testing.T) {
	broken := errors.New("broken")
	m := texttag.New(fails{broken})
	var got error
	for _, err := range m.Stream(t.Context(), &toolcrib.Request{}) {
		got = err
	}
	if !errors.Is(got, broken) {
		t.Errorf("got %v", got)
	}
	all := played{text("a "), text("b <"), text(`tool_call>{"name":"now"}</tool_call>`), text("c"), end("stop")}
	for most := 1; most <= 4; most++ {
		n := 0
		for range texttag.New(all).Stream(t.Context(), &toolcrib.Request{}) {
			if n++; n == most {
				break
			}
		}
		if n != most {
			t.Errorf("%d deltas, want to stop after %d", n, most)
		}
	}
}

type fails struct{ err error }

func (f fails) Stream(context.Context, *toolcrib.Request) iter.Seq2[toolcrib.Delta, error] {
	return func(yield func(toolcrib.Delta, error) bool) { yield(toolcrib.Delta{}, f.err) }
}
