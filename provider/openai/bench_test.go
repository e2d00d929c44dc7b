package openai_test

import (
	"bufio"
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
	"github.com/toolcrib/toolcrib/toolcribtest/modeltest"
)

// The benchmarks compare one conversation of many rounds with a hand-written loop
// over net/http and encoding/json. The server sends
// prepared bytes.

func benchServer(b *testing.B, stream bool) string {
	reply := modeltest.Calls(toolcrib.ToolCall{ID: "call_1", Name: "read_file", Arguments: json.RawMessage(`{"path":"notes/today.txt","limit":200}`)})
	reply.Message.Parts = append([]toolcrib.Part{{Text: strings.Repeat("Let me look at that file. ", 10)}}, reply.Message.Parts...)
	body, kind := modeltest.OpenAI.JSON(reply), "application/json"
	if stream {
		body, kind = bytes.Join(modeltest.OpenAI.Frames(reply, 8), nil), "text/event-stream"
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", kind)
		_, _ = w.Write(body)
	}))
	b.Cleanup(s.Close)
	return s.URL
}

func benchTools() []toolcrib.Spec {
	var tools []toolcrib.Spec
	for i := range 10 {
		tools = append(tools, toolcrib.Spec{Name: fmt.Sprintf("tool_%d", i), Description: "does something useful with a file", Parameters: json.RawMessage(`{"type":"object","properties":{"path":{"type":"string","description":"where"},"limit":{"type":"integer"}},"required":["path"]}`)})
	}
	return tools
}

var benchResult = strings.Repeat("a line of the file\n", 50)

func BenchmarkConversation(b *testing.B) {
	for _, stream := range []bool{false, true} {
		for _, rounds := range []int{5, 50} {
			b.Run(fmt.Sprintf("stream=%t/rounds=%d/toolcrib", stream, rounds), func(b *testing.B) {
				m, err := openai.New(openai.Options{BaseURL: benchServer(b, stream), NoStream: !stream})
				if err != nil {
					b.Fatal(err)
				}
				b.ReportAllocs()
				for b.Loop() {
					converse(b, m.Conversation(), rounds)
				}
			})
			b.Run(fmt.Sprintf("stream=%t/rounds=%d/byhand", stream, rounds), func(b *testing.B) {
				url := benchServer(b, stream)
				b.ReportAllocs()
				for b.Loop() {
					byHand(b, url, rounds, stream)
				}
			})
		}
	}
}

func converse(b *testing.B, m toolcrib.Model, rounds int) {
	req := &toolcrib.Request{
		Model: "m", System: "You are careful.", Tools: benchTools(), ToolsHash: "1",
		Messages: []toolcrib.Message{toolcrib.TextMessage(toolcrib.RoleUser, "go")},
	}
	for i := range rounds {
		var r toolcrib.ReplyBuilder
		for d, err := range m.Stream(b.Context(), req) {
			if err != nil {
				b.Fatal(err)
			}
			r.Add(d)
		}
		reply := r.Reply()
		call := reply.Message.ToolCalls()[0]
		call.ID = fmt.Sprintf("call_%d", i)
		req.Messages = append(req.Messages, reply.Message, toolcrib.Message{Role: toolcrib.RoleTool, Parts: []toolcrib.Part{
			{ToolResult: &toolcrib.ToolResult{CallID: call.ID, Name: call.Name, Content: benchResult}},
		}})
	}
}

type handCall struct {
	Index    int    `json:"index,omitempty"`
	ID       string `json:"id,omitempty"`
	Type     string `json:"type,omitempty"`
	Function struct {
		Name      string `json:"name,omitempty"`
		Arguments string `json:"arguments"`
	} `json:"function"`
}

type handMessage struct {
	Role       string     `json:"role,omitempty"`
	Content    *string    `json:"content"`
	ToolCalls  []handCall `json:"tool_calls,omitempty"`
	ToolCallID string     `json:"tool_call_id,omitempty"`
}

type handReply struct {
	Choices []struct {
		Message      handMessage `json:"message"`
		Delta        handMessage `json:"delta"`
		FinishReason string      `json:"finish_reason"`
	} `json:"choices"`
}

type handRequest struct {
	Model    string        `json:"model"`
	Stream   bool          `json:"stream,omitempty"`
	Messages []handMessage `json:"messages"`
	Tools    []any         `json:"tools"`
}

func byHand(b *testing.B, url string, rounds int, stream bool) {
	req := handRequest{Model: "m", Stream: stream}
	for _, s := range benchTools() {
		req.Tools = append(req.Tools, map[string]any{"type": "function", "function": map[string]any{"name": s.Name, "description": s.Description, "parameters": s.Parameters}})
	}
	text := func(s string) *string { return &s }
	req.Messages = []handMessage{{Role: "system", Content: text("You are careful.")}, {Role: "user", Content: text("go")}}
	for i := range rounds {
		body, err := json.Marshal(req)
		if err != nil {
			b.Fatal(err)
		}
		resp, err := http.Post(url+"/chat/completions", "application/json", bytes.NewReader(body))
		if err != nil {
			b.Fatal(err)
		}
		m := handRead(b, resp.Body, stream)
		_ = resp.Body.Close()
		m.ToolCalls[0].ID = fmt.Sprintf("call_%d", i)
		req.Messages = append(req.Messages, m, handMessage{Role: "tool", ToolCallID: m.ToolCalls[0].ID, Content: text(benchResult)})
	}
}

func handRead(b *testing.B, body io.Reader, stream bool) handMessage {
	if !stream {
		var r handReply
		if err := json.NewDecoder(body).Decode(&r); err != nil {
			b.Fatal(err)
		}
		return r.Choices[0].Message
	}
	m := handMessage{Role: "assistant"}
	var text, arguments strings.Builder
	lines := bufio.NewScanner(body)
	for lines.Scan() {
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		if !ok || data == "[DONE]" {
			continue
		}
		var r handReply
		if err := json.Unmarshal([]byte(data), &r); err != nil {
			b.Fatal(err)
		}
		for _, c := range r.Choices {
			if c.Delta.Content != nil {
				text.WriteString(*c.Delta.Content)
			}
			for _, call := range c.Delta.ToolCalls {
				if call.ID != "" {
					m.ToolCalls = append(m.ToolCalls, call)
				}
				arguments.WriteString(call.Function.Arguments)
			}
		}
	}
	s := text.String()
	m.Content = &s
	m.ToolCalls[0].Function.Arguments = arguments.String()
	return m
}
