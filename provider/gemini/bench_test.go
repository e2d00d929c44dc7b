package gemini_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/provider/gemini"
	"github.com/toolcrib/toolcrib/toolcribtest/modeltest"
)

// benchTokens is the number of tokens in the stream of the benchmark, one per frame.
const benchTokens = 2000

// benchStream is a reply of 2000 tokens with reasoning and calls.
func benchStream() []byte {
	var parts []toolcrib.Part
	parts = append(parts, toolcrib.Part{Thinking: &toolcrib.Thinking{Text: strings.Repeat("hmm ", 480)}}, toolcrib.Part{Text: strings.Repeat("word", 1480)})
	for i := range 40 {
		parts = append(parts, toolcrib.Part{ToolCall: &toolcrib.ToolCall{
			ID: fmt.Sprintf("id%d", i), Name: "read_file", Arguments: json.RawMessage(`{"path":"notes/today.txt","limit":200}`), Signature: "c2lnbmF0dXJlLW9uZQ==",
		}})
	}
	reply := toolcrib.Reply{Message: toolcrib.Message{Role: toolcrib.RoleAssistant, Parts: parts}, Finish: toolcrib.Finish{Usage: toolcrib.TokenUsage{InputTokens: 1000, OutputTokens: benchTokens, ReasoningTokens: 480, Reported: true}}}
	return bytes.Join(modeltest.Gemini.Frames(reply, 4), nil)
}

// stored answers every request with the same stream.
type stored struct{ body []byte }

func (s stored) RoundTrip(req *http.Request) (*http.Response, error) {
	if err := req.Body.Close(); err != nil {
		return nil, err
	}
	return &http.Response{
		StatusCode: 200, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: req,
		Header: http.Header{"Content-Type": {"text/event-stream"}}, Body: io.NopCloser(bytes.NewReader(s.body)),
	}, nil
}

// BenchmarkStream compares reading a stream with a hand-written reader
// over net/http and encoding/json.
func BenchmarkStream(b *testing.B) {
	body := benchStream()
	perToken := func(b *testing.B) {
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/benchTokens, "ns/token")
	}
	b.Run("toolcrib", func(b *testing.B) {
		m, err := gemini.New(gemini.Options{Transport: stored{body}})
		if err != nil {
			b.Fatal(err)
		}
		req := modeltest.Request("go")
		b.ReportAllocs()
		b.SetBytes(int64(len(body)))
		for b.Loop() {
			var r toolcrib.ReplyBuilder
			for d, err := range m.Stream(b.Context(), req) {
				if err != nil {
					b.Fatal(err)
				}
				r.Add(d)
			}
			if calls := r.Reply().Message.ToolCalls(); len(calls) != 40 {
				b.Fatal(len(calls))
			}
		}
		perToken(b)
	})
	b.Run("byhand", func(b *testing.B) {
		b.ReportAllocs()
		b.SetBytes(int64(len(body)))
		for b.Loop() {
			if n := handRead(b, body); n != 40 {
				b.Fatal(n)
			}
		}
		perToken(b)
	})
}

type handReply struct {
	Candidates []struct {
		Content struct {
			Parts []struct {
				Text             string `json:"text"`
				Thought          bool   `json:"thought"`
				ThoughtSignature string `json:"thoughtSignature"`
				FunctionCall     *struct {
					ID   string          `json:"id"`
					Name string          `json:"name"`
					Args json.RawMessage `json:"args"`
				} `json:"functionCall"`
			} `json:"parts"`
		} `json:"content"`
		FinishReason string `json:"finishReason"`
	} `json:"candidates"`
	Usage struct {
		Prompt     int64 `json:"promptTokenCount"`
		Cached     int64 `json:"cachedContentTokenCount"`
		Candidates int64 `json:"candidatesTokenCount"`
		Thoughts   int64 `json:"thoughtsTokenCount"`
	} `json:"usageMetadata"`
	Model string `json:"modelVersion"`
}

func handRead(b *testing.B, body []byte) (calls int) {
	req, err := http.NewRequestWithContext(b.Context(), http.MethodPost, "https://x.example/v1beta/models/m:streamGenerateContent?alt=sse", strings.NewReader(`{"contents":[{"role":"user","parts":[{"text":"go"}]}]}`))
	if err != nil {
		b.Fatal(err)
	}
	resp, err := (&http.Client{Transport: stored{body}}).Do(req)
	if err != nil {
		b.Fatal(err)
	}
	var text, thinking strings.Builder
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		data, ok := bytes.CutPrefix(lines.Bytes(), []byte("data: "))
		if !ok {
			continue
		}
		var r handReply
		if err := json.Unmarshal(data, &r); err != nil {
			b.Fatal(err)
		}
		for _, c := range r.Candidates {
			for _, p := range c.Content.Parts {
				switch {
				case p.FunctionCall != nil:
					calls++
				case p.Thought:
					thinking.WriteString(p.Text)
				default:
					text.WriteString(p.Text)
				}
			}
		}
	}
	if err := resp.Body.Close(); err != nil {
		b.Fatal(err)
	}
	return calls
}

// The memory for each token stays small, which matters most in a stream of many
// chunks.
func TestAllocationsPerToken(t *testing.T) {
	m, err := gemini.New(gemini.Options{Transport: stored{benchStream()}})
	if err != nil {
		t.Fatal(err)
	}
	req := modeltest.Request("go")
	got := testing.AllocsPerRun(5, func() {
		for _, err := range m.Stream(t.Context(), req) {
			if err != nil {
				t.Error(err)
			}
		}
	})
	if per := got / benchTokens; per > 10 { // the race detector adds one
		t.Errorf("%.1f allocations a token", per)
	}
}
