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

// The same comparison as BenchmarkConversation, over the Responses API.

func benchResponsesServer(b *testing.B) string {
	reply := modeltest.Calls(toolcrib.ToolCall{ID: "call_1", Name: "read_file", Arguments: json.RawMessage(`{"path":"notes/today.txt","limit":200}`)})
	reply.Message.Parts = append([]toolcrib.Part{{Thinking: &toolcrib.Thinking{}}, {Text: strings.Repeat("Let me look at that file. ", 10)}}, reply.Message.Parts...)
	body := bytes.Join(modeltest.Responses.Frames(reply, 8), nil)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = w.Write(body)
	}))
	b.Cleanup(s.Close)
	return s.URL
}

func BenchmarkResponses(b *testing.B) {
	for _, rounds := range []int{5, 50} {
		b.Run(fmt.Sprintf("rounds=%d/toolcrib", rounds), func(b *testing.B) {
			m, err := openai.New(openai.Options{API: openai.APIResponses, BaseURL: benchResponsesServer(b)})
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				converse(b, m.Conversation(), rounds)
			}
		})
		b.Run(fmt.Sprintf("rounds=%d/byhand", rounds), func(b *testing.B) {
			url := benchResponsesServer(b)
			b.ReportAllocs()
			for b.Loop() {
				responsesByHand(b, url, rounds)
			}
		})
	}
}

type handItem struct {
	Type      string          `json:"type"`
	Role      string          `json:"role,omitempty"`
	Content   any             `json:"content,omitempty"`
	ID        string          `json:"id,omitempty"`
	Summary   json.RawMessage `json:"summary,omitempty"`
	Encrypted string          `json:"encrypted_content,omitempty"`
	CallID    string          `json:"call_id,omitempty"`
	Name      string          `json:"name,omitempty"`
	Arguments string          `json:"arguments,omitempty"`
	Output    string          `json:"output,omitempty"`
}

type handEvent struct {
	Type  string   `json:"type"`
	Delta string   `json:"delta"`
	Item  handItem `json:"item"`
}

func responsesByHand(b *testing.B, url string, rounds int) {
	var tools []any
	for _, s := range benchTools() {
		tools = append(tools, map[string]any{"type": "function", "strict": false, "name": s.Name, "description": s.Description, "parameters": s.Parameters})
	}
	input := []handItem{{Type: "message", Role: "user", Content: "go"}}
	for i := range rounds {
		body, err := json.Marshal(map[string]any{"model": "m", "stream": true, "store": false, "instructions": "You are careful.", "tools": tools, "input": input})
		if err != nil {
			b.Fatal(err)
		}
		resp, err := http.Post(url+"/responses", "application/json", bytes.NewReader(body))
		if err != nil {
			b.Fatal(err)
		}
		items := handItems(b, resp.Body)
		_ = resp.Body.Close()
		id := fmt.Sprintf("call_%d", i)
		items[len(items)-1].CallID = id
		input = append(append(input, items...), handItem{Type: "function_call_output", CallID: id, Output: benchResult})
	}
}

func handItems(b *testing.B, body io.Reader) (items []handItem) {
	var text strings.Builder
	lines := bufio.NewScanner(body)
	for lines.Scan() {
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		if !ok {
			continue
		}
		var e handEvent
		if err := json.Unmarshal([]byte(data), &e); err != nil {
			b.Fatal(err)
		}
		switch e.Type {
		case "response.output_text.delta":
			text.WriteString(e.Delta)
		case "response.output_item.done":
			items = append(items, e.Item)
		}
	}
	return items
}
