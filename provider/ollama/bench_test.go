package ollama_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"testing"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/toolcribtest/modeltest"
)

const benchTokens = 2000

// benchStream is a reply of 2,000 tokens, the last of them calls.
func benchStream() []byte {
	var b bytes.Buffer
	for i := range benchTokens - 4 {
		_, _ = b.WriteString(`{"model":"llama3.2","created_at":"2026-03-04T08:52:19.385406455-07:00","message":{"role":"assistant","content":"` + []string{" and", "\\n", " 日本", " word"}[i%4] + `"},"done":false}` + "\n")
	}
	reply := modeltest.Calls(
		toolcrib.ToolCall{Name: "read_file", Arguments: json.RawMessage(`{"path":"notes/today.txt","limit":200}`)},
		toolcrib.ToolCall{Name: "read_file", Arguments: json.RawMessage(`{"path":"notes/yesterday.txt","limit":200}`)},
		toolcrib.ToolCall{Name: "list_users", Arguments: json.RawMessage(`{}`)},
	)
	_, _ = b.Write(bytes.Join(modeltest.Ollama.Frames(reply, 16), nil))
	return b.Bytes()
}

// BenchmarkParse compares reading a streamed reply with a hand-written parser
// over encoding/json. Both start from bytes in memory
// and end with the whole reply.
func BenchmarkParse(b *testing.B) {
	body := benchStream()
	b.Run("toolcrib", func(b *testing.B) {
		m := open(b, modeltest.Target{Transport: answer{"application/x-ndjson", body}})
		req := modeltest.Request("go")
		b.ReportAllocs()
		for b.Loop() {
			var r toolcrib.ReplyBuilder
			for d, err := range m.Stream(b.Context(), req) {
				if err != nil {
					b.Fatal(err)
				}
				r.Add(d)
			}
			if n := len(r.Reply().Message.ToolCalls()); n != 3 {
				b.Fatalf("%d calls", n)
			}
		}
		perToken(b)
	})
	b.Run("byhand", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, calls := byHand(b, body); calls != 3 {
				b.Fatalf("%d calls", calls)
			}
		}
		perToken(b)
	})
}

func perToken(b *testing.B) {
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/benchTokens, "ns/token")
}

type handLine struct {
	Model   string `json:"model"`
	Message struct {
		Content   string `json:"content"`
		Thinking  string `json:"thinking"`
		ToolCalls []struct {
			ID       string `json:"id"`
			Function struct {
				Name      string          `json:"name"`
				Arguments json.RawMessage `json:"arguments"`
			} `json:"function"`
		} `json:"tool_calls"`
	} `json:"message"`
	Done       bool   `json:"done"`
	DoneReason string `json:"done_reason"`
	Prompt     int    `json:"prompt_eval_count"`
	Eval       int    `json:"eval_count"`
}

func byHand(b *testing.B, body []byte) (text string, calls int) {
	var out bytes.Buffer
	lines := bufio.NewScanner(bytes.NewReader(body))
	for lines.Scan() {
		var l handLine
		if err := json.Unmarshal(lines.Bytes(), &l); err != nil {
			b.Fatal(err)
		}
		_, _ = out.WriteString(l.Message.Content)
		calls += len(l.Message.ToolCalls)
		if l.Done {
			break
		}
	}
	return out.String(), calls
}

// The allocations for each token are bounded: its text, and the growth of the reply.
func TestAllocationsOfAToken(t *testing.T) {
	body := benchStream()
	m := open(t, modeltest.Target{Transport: answer{"application/x-ndjson", body}})
	req := modeltest.Request("go")
	allocs := testing.AllocsPerRun(5, func() {
		for _, err := range m.Stream(t.Context(), req) {
			if err != nil {
				t.Fatal(err)
			}
		}
	})
	if perToken := allocs / benchTokens; perToken > 10 {
		t.Errorf("%.1f allocations a token, want at most 10", perToken)
	}
}
