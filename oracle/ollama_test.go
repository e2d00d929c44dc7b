package oracle

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/ollama/ollama/api"

	"github.com/toolcrib/toolcrib"
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
