package anthropic_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"testing"
	"unicode/utf8"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/provider/anthropic"
	"github.com/toolcrib/toolcrib/toolcribtest/modeltest"
)

// FuzzReply: for any reply there is one end or one error, the text is
// valid UTF-8, the usage adds up, and the reply can be sent back in the next request.
func FuzzReply(f *testing.F) {
	fixtures, err := modeltest.Fixtures(modeltest.Anthropic)
	if err != nil {
		f.Fatal(err)
	}
	for _, one := range fixtures {
		if one.Stream != nil {
			f.Add(one.Stream, true)
		}
		if one.Whole != nil {
			f.Add(one.Whole, false)
		}
	}
	f.Add([]byte(`{"type":"message","content":[{"type":"text","text":"x"}],"stop_reason":"end_turn","usage":{"input_tokens":9223372036854775807,"cache_read_input_tokens":9223372036854775807,"output_tokens":1}}`), false)
	f.Add([]byte(`{"type":"message","content":[{"type":"text","text":"x"}],"stop_reason":"end_turn","usage":{"input_tokens":-5,"output_tokens":-1,"output_tokens_details":{"thinking_tokens":9}}}`), false)
	f.Fuzz(func(t *testing.T, body []byte, stream bool) {
		r := &reply{kind: "application/json", body: body}
		if stream {
			r.kind = "text/event-stream"
		}
		m, err := anthropic.New(anthropic.Options{Transport: r})
		if err != nil {
			t.Fatal(err)
		}
		req := modeltest.Request("q")
		req.Tools = []toolcrib.Spec{{Name: "f"}}
		got, err := modeltest.Collect(t.Context(), m, req)
		if err != nil {
			var known *toolcrib.ModelError
			if errors.Is(err, modeltest.ErrNoFinish) || !errors.As(err, &known) || known.Message == "" {
				t.Fatalf("error %v", err)
			}
			return
		}
		for _, p := range got.Message.Parts {
			if !utf8.ValidString(p.Text) || p.Thinking != nil && !utf8.ValidString(p.Thinking.Text) {
				t.Errorf("part %+v", p)
			}
		}
		if u := got.Finish.Usage; u.InputTokens < u.CachedInputTokens+u.CacheWriteTokens || u.OutputTokens < u.ReasoningTokens ||
			u.CachedInputTokens < 0 || u.CacheWriteTokens < 0 || u.ReasoningTokens < 0 {
			t.Errorf("usage %+v", u)
		}
		calls := got.Message.ToolCalls()
		if len(calls) > 20 {
			return
		}
		results := toolcrib.Message{Role: toolcrib.RoleTool}
		for i, c := range calls { // the loop makes IDs unique, and reads arguments strictly
			c.ID, c.Arguments = "id"+string(rune('a'+i)), json.RawMessage(`{}`)
			results.Parts = append(results.Parts,
				toolcrib.Part{ToolResult: &toolcrib.ToolResult{CallID: c.ID, Name: c.Name, Content: "ok"}})
		}
		if req.Messages = append(req.Messages, got.Message); len(calls) > 0 {
			req.Messages = append(req.Messages, results)
		}
		req.Messages = append(req.Messages, toolcrib.TextMessage(toolcrib.RoleUser, "go on"))
		_, _ = modeltest.Collect(t.Context(), m, req) // the same reply again: only the request is checked
		if err := check(r.sent); err != nil {
			t.Errorf("%v\n%s", err, r.sent)
		}
	})
}

type reply struct {
	kind string
	body []byte
	sent []byte
}

func (r *reply) RoundTrip(req *http.Request) (*http.Response, error) {
	r.sent, _ = io.ReadAll(req.Body)
	if err := req.Body.Close(); err != nil {
		return nil, err
	}
	return &http.Response{
		StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {r.kind}},
		Body: io.NopCloser(bytes.NewReader(r.body)), ContentLength: -1,
	}, nil
}
