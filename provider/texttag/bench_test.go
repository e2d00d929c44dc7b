package texttag_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/provider/openai"
	"github.com/toolcrib/toolcrib/provider/texttag"
	"github.com/toolcrib/toolcrib/toolcribtest/modeltest"
)

// The benchmark compares replies of 4 KiB of text and one call by the text protocol
// with the same replies by native calls, over the same adapter and
// server. CPU time on a shared machine of two cores, the server's included: 1.13 times
// the native one for one reply, 1.18 over 20 rounds.
func BenchmarkStreaming(b *testing.B) {
	prose := strings.Repeat("I will look at that file, because it may say why. ", 8)
	said := strings.Repeat(prose+"See `notes.txt`, for 3 < 4. ", 9)
	arguments := `{"limit":200,"path":"notes/today.txt"}`
	native := toolcrib.Reply{Message: toolcrib.Message{Role: toolcrib.RoleAssistant, Parts: []toolcrib.Part{
		{Text: said}, {ToolCall: &toolcrib.ToolCall{ID: "call_1", Name: "read_file", Arguments: json.RawMessage(arguments)}},
	}}, Finish: toolcrib.Finish{Reason: toolcrib.FinishToolCalls}}
	tagged := toolcrib.Reply{Message: toolcrib.TextMessage(toolcrib.RoleAssistant, said+`<tool_call>{"name": "read_file", "args": `+arguments+`}</tool_call>`), Finish: toolcrib.Finish{Reason: toolcrib.FinishStop}}
	for _, kind := range []struct {
		name  string
		reply toolcrib.Reply
		wrap  func(toolcrib.Model) toolcrib.Model
	}{
		{"native", native, func(m toolcrib.Model) toolcrib.Model { return m }},
		{"text", tagged, texttag.New},
	} {
		for _, rounds := range []int{1, 20} {
			b.Run(fmt.Sprintf("rounds=%d/%s", rounds, kind.name), func(b *testing.B) { stream(b, kind.reply, kind.wrap, rounds) })
		}
	}
}

func stream(b *testing.B, reply toolcrib.Reply, wrap func(toolcrib.Model) toolcrib.Model, rounds int) {
	body := bytes.Join(modeltest.OpenAI.Frames(reply, 8), nil)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = w.Write(body)
	}))
	b.Cleanup(s.Close)
	inner, err := openai.New(openai.Options{BaseURL: s.URL})
	if err != nil {
		b.Fatal(err)
	}
	m := wrap(inner)
	b.ReportAllocs()
	for b.Loop() {
		converse(b, m.(toolcrib.Conversational).Conversation(), rounds)
	}
}

func converse(b *testing.B, m toolcrib.Model, rounds int) {
	req := &toolcrib.Request{Model: "m", System: "You are careful.", Tools: specs(), ToolsHash: "1", Messages: []toolcrib.Message{user("go")}}
	for i := range rounds {
		var r toolcrib.ReplyBuilder
		for d, err := range m.Stream(b.Context(), req) {
			if err != nil {
				b.Fatal(err)
			}
			r.Add(d)
		}
		reply := r.Reply().Message
		calls := reply.ToolCalls()
		if len(calls) != 1 || calls[0].Name != "read_file" {
			b.Fatalf("reply %+v", reply)
		}
		calls[0].ID = fmt.Sprintf("call_%d", i)
		answer := results(calls[0].Name, strings.Repeat("a line of the file\n", 50))
		answer.Parts[0].ToolResult.CallID = calls[0].ID
		req.Messages = append(req.Messages, reply, answer)
	}
}
