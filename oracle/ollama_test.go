package oracle

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/ollama/ollama/api"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/provider/ollama"
	"github.com/toolcrib/toolcrib/provider/wire"
	"github.com/toolcrib/toolcrib/toolcribtest/modeltest"
)

// readOllama asks with Ollama's own client and joins what it reads.
func readOllama(t *testing.T, c canned, stream bool) (got modeltest.Want, err error) {
	t.Helper()
	client := api.NewClient(&url.URL{Scheme: "http", Host: "model.test"}, &http.Client{Transport: c})
	var text, thinking string
	calls := []modeltest.WantPart{}
	err = client.Chat(t.Context(), &api.ChatRequest{Model: "model-a", Stream: &stream}, func(r api.ChatResponse) error {
		got.Model = r.Model
		text += r.Message.Content
		thinking += r.Message.Thinking
		for _, k := range r.Message.ToolCalls {
			args := strings.TrimPrefix(k.Function.Arguments.String(), "null")
			calls = append(calls, modeltest.WantPart{Call: &modeltest.WantCall{ID: k.ID, Name: k.Function.Name, Arguments: args}})
		}
		if r.Done {
			got.Reason = toolcrib.FinishStop
			switch {
			case r.DoneReason == "length":
				got.Reason = toolcrib.FinishLength
			case r.DoneReason == "load":
				got.Reason = toolcrib.FinishOther
			case len(calls) > 0:
				got.Reason = toolcrib.FinishToolCalls
			}
			got.Usage = toolcrib.TokenUsage{InputTokens: int64(r.PromptEvalCount), OutputTokens: int64(r.EvalCount)}
		}
		return nil
	})
	if thinking != "" {
		got.Parts = append(got.Parts, modeltest.WantPart{Thinking: thinking})
	}
	if text != "" {
		got.Parts = append(got.Parts, modeltest.WantPart{Text: text})
	}
	got.Parts = append(got.Parts, calls...)
	return got, err
}

// The fixtures say what Ollama's own client makes of the recorded replies.
func TestOllama_FixturesAsTheLibraryReadsThem(t *testing.T) {
	fixtures, err := modeltest.Fixtures(modeltest.Ollama)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range fixtures {
		if f.Want.Lenient || f.Name == "pretty" { // the client reads lines only
			continue
		}
		for kind, body := range map[string][]byte{"application/x-ndjson": f.Stream, plainJSON: f.Whole} {
			if body == nil {
				continue
			}
			t.Run(f.Name+"/"+kind, func(t *testing.T) {
				// The client wants an object on every line.
				body := []byte(strings.ReplaceAll(strings.TrimLeft(string(body), "\r\n"), "\r\n\r\n", "\n"))
				got, err := readOllama(t, canned{kind, body}, kind != plainJSON)
				if f.Want.Error != "" {
					if err == nil {
						t.Errorf("no error, want one of class %s", f.Want.Error)
					}
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(f.Want.Parts, got.Parts, modeltest.JSONArguments, cmp.Transformer("parts", func(p []modeltest.WantPart) []modeltest.WantPart {
					return append([]modeltest.WantPart{}, p...)
				})); diff != "" {
					t.Errorf("parts differ (-fixture +library):\n%s", diff)
				}
				if got.Reason != f.Want.Reason || got.Model != f.Want.Model {
					t.Errorf("reason %s, model %s", got.Reason, got.Model)
				}
				if u := f.Want.Usage; u.Reported && (u.InputTokens != got.Usage.InputTokens || u.OutputTokens != got.Usage.OutputTokens) {
					t.Errorf("usage %+v, want %+v", got.Usage, u)
				}
			})
		}
	}
}

// What our adapter sends, Ollama's own types decode, whatever the transcript and
// the tools are; and nothing of it is lost.
func TestOllama_RequestsAsTheLibraryReadsThem(t *testing.T) {
	for name, base := range modeltest.HostileHistories() {
		t.Run(name, func(t *testing.T) {
			server := modeltest.NewServer(modeltest.Ollama, modeltest.ServerOptions{Steps: modeltest.Steps(modeltest.Text("ok"))})
			m, err := ollama.New(ollama.Options{Options: wire.Options{BaseURL: server.Start(t), Proxy: wire.ProxyNone}})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := modeltest.Collect(t.Context(), m, base); err != nil {
				t.Fatal(err)
			}
			if err := m.Close(); err != nil {
				t.Error(err)
			}
			body := server.Requests()[0]
			var theirs api.ChatRequest
			if err := json.Unmarshal(body, &theirs); err != nil {
				t.Fatalf("%v: %s", err, body)
			}
			if theirs.Truncate == nil || *theirs.Truncate {
				t.Errorf("truncate: %v", theirs.Truncate)
			}
			again, err := json.Marshal(theirs.Messages)
			if err != nil {
				t.Fatal(err)
			}
			var ours struct {
				Messages json.RawMessage `json:"messages"`
			}
			if err := json.Unmarshal(body, &ours); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(plain(t, ours.Messages), plain(t, again)); diff != "" {
				t.Errorf("messages differ (-sent +read):\n%s", diff)
			}
		})
	}
}

// plain decodes JSON without the index that the library gives each call.
func plain(t *testing.T, data []byte) any {
	t.Helper()
	var v any
	if err := json.Unmarshal([]byte(strings.ReplaceAll(string(data), `"index":0,`, "")), &v); err != nil {
		t.Fatal(err)
	}
	return v
}
