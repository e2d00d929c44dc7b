package openai_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"testing"
	"unicode/utf8"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/provider/openai"
	"github.com/toolcrib/toolcrib/toolcribtest/modeltest"
)

// served answers every request with the same bytes.
type served struct {
	kind string
	body []byte
}

func (s served) RoundTrip(req *http.Request) (*http.Response, error) {
	_, _ = io.Copy(io.Discard, req.Body)
	_ = req.Body.Close()
	return &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {s.kind}}, Body: io.NopCloser(bytes.NewReader(s.body))}, nil
}

// fuzzReplies feeds bytes to a decoder as a stream and as a whole reply. Every
// result must follow the rules of a model, and make a next request that the API
// accepts.
func fuzzReplies(f *testing.F, api string, dialect modeltest.Dialect, check func([]byte) error) {
	fixtures, err := modeltest.Fixtures(dialect)
	if err != nil {
		f.Fatal(err)
	}
	for _, one := range fixtures {
		f.Add(one.Stream)
		f.Add(one.Whole)
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, kind := range []string{"text/event-stream", "application/json"} {
			m, err := openai.New(openai.Options{API: api, BaseURL: "http://model.test/v1", MaxReplyBytes: 1 << 20, Transport: served{kind, body}})
			if err != nil {
				t.Fatal(err)
			}
			reply, err := modeltest.Collect(t.Context(), m, modeltest.Request("hi"))
			if err != nil {
				if _, ok := err.(*toolcrib.ModelError); !ok {
					t.Fatalf("error %v", err)
				}
				continue
			}
			if text := reply.Message.Text(); !utf8.ValidString(text) {
				t.Fatalf("text %q", text)
			}
			next(t, api, reply, check)
		}
	})
}

// next sends the reply back as history.
func next(t *testing.T, api string, reply toolcrib.Reply, check func([]byte) error) {
	t.Helper()
	req := modeltest.Request("hi")
	results := toolcrib.Message{Role: toolcrib.RoleTool}
	for i, call := range reply.Message.ToolCalls() {
		call.ID = "call_" + string(rune('a'+i%26)) + string(rune('a'+i/26%26))
		if !json.Valid(call.Arguments) {
			call.Arguments = nil // the loop stores broken arguments separately
		}
		results.Parts = append(results.Parts, toolcrib.Part{ToolResult: &toolcrib.ToolResult{CallID: call.ID, Name: call.Name, Content: "ok"}})
	}
	if len(results.Parts) > 26*26 {
		return
	}
	req.Messages = append(req.Messages, reply.Message, results, toolcrib.TextMessage(toolcrib.RoleUser, "go on"))
	r := &either{}
	m, err := openai.New(openai.Options{API: api, BaseURL: "http://model.test/v1", Transport: r})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := modeltest.Collect(t.Context(), m, req); err != nil {
		t.Fatal(err)
	}
	if err := check(r.body); err != nil {
		t.Fatalf("%v: %s", err, r.body)
	}
}

func FuzzResponses(f *testing.F) {
	fuzzReplies(f, openai.APIResponses, modeltest.Responses, func(body []byte) error {
		if !json.Valid(body) {
			return io.ErrUnexpectedEOF // reasoning items belong to the server, whatever their content
		}
		return nil
	})
}

func FuzzChat(f *testing.F) {
	fuzzReplies(f, openai.APIChat, modeltest.OpenAI, modeltest.OpenAI.Check)
}
