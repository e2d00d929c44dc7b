package gemini_test

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"testing"
	"unicode/utf8"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/provider/gemini"
	"github.com/toolcrib/toolcrib/toolcribtest/modeltest"
)

// FuzzReply: for any reply there is one end or one error, the text
// is valid UTF-8, and the reply can be sent back in the next request.
func FuzzReply(f *testing.F) {
	fixtures, err := modeltest.Fixtures(modeltest.Gemini)
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
	f.Fuzz(func(t *testing.T, body []byte, stream bool) {
		kind := "application/json"
		if stream {
			kind = "text/event-stream"
		}
		o := gemini.Options{}
		r := &reply{kind: kind, body: body}
		o.Transport = r
		m, err := gemini.New(o)
		if err != nil {
			t.Fatal(err)
		}
		req := modeltest.Request("q")
		req.Model = "gemini-3.5-flash"
		req.Tools = []toolcrib.Spec{{Name: "f"}}
		got, err := modeltest.Collect(t.Context(), m, req)
		if errors.Is(err, modeltest.ErrNoFinish) {
			t.Fatal(err)
		}
		var known *toolcrib.ModelError
		if err != nil {
			if !errors.As(err, &known) || known.Message == "" {
				t.Fatalf("error %v", err)
			}
			return
		}
		for _, p := range got.Message.Parts {
			if !utf8.ValidString(p.Text) || p.Thinking != nil && !utf8.ValidString(p.Thinking.Text) {
				t.Errorf("part %+v", p)
			}
		}
		if u := got.Finish.Usage; u.InputTokens < u.CachedInputTokens || u.OutputTokens < u.ReasoningTokens || u.CachedInputTokens < 0 || u.ReasoningTokens < 0 {
			t.Errorf("usage %+v", u)
		}
		goBack(t, m, r, req, got)
	})
}

// goBack sends a reply back, with a result for each of its calls.
func goBack(t *testing.T, m *gemini.Model, r *reply, req *toolcrib.Request, got toolcrib.Reply) {
	t.Helper()
	results := toolcrib.Message{Role: toolcrib.RoleTool}
	for _, c := range got.Message.ToolCalls() {
		c.Arguments = []byte(`{}`) // the loop reads them strictly
		results.Parts = append(results.Parts, toolcrib.Part{ToolResult: &toolcrib.ToolResult{CallID: c.ID, Name: c.Name, Content: string(r.body)}})
	}
	if len(results.Parts) == 0 || len(results.Parts) > 20 {
		return
	}
	for i, c := range got.Message.ToolCalls() { // the loop makes IDs unique
		c.ID = "id" + string(rune('a'+i))
		results.Parts[i].ToolResult.CallID = c.ID
	}
	req.Messages = append(req.Messages, got.Message, results)
	_, _ = modeltest.Collect(t.Context(), m, req) // the same reply again: only the request is checked
	if err := check(req.Model, r.sent); err != nil {
		t.Errorf("%v\n%s", err, r.sent)
	}
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
	return &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {r.kind}}, Body: io.NopCloser(bytes.NewReader(r.body)), ContentLength: -1}, nil
}
