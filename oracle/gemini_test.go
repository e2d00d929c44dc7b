package oracle

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"google.golang.org/genai"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/provider/gemini"
	"github.com/toolcrib/toolcrib/provider/wire"
	"github.com/toolcrib/toolcrib/toolcribtest/modeltest"
)

func geminiModel(t *testing.T, o wire.Options) toolcrib.Model {
	t.Helper()
	m, err := gemini.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func geminiClient(t *testing.T, rt http.RoundTripper, url string) *genai.Client {
	t.Helper()
	client, err := genai.NewClient(t.Context(), &genai.ClientConfig{
		APIKey: "key", Backend: genai.BackendGeminiAPI, HTTPClient: &http.Client{Transport: rt}, HTTPOptions: genai.HTTPOptions{BaseURL: url},
	})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// readGemini asks with Google's own library and joins what it reads: texts of one
// kind in a row, but a signed one starts over.
func readGemini(t *testing.T, c canned, stream bool) (got modeltest.Want, err error) {
	t.Helper()
	client := geminiClient(t, c, "http://model.test")
	question := genai.Text("hi")
	calls := 0
	add := func(r *genai.GenerateContentResponse) {
		got.Model = r.ModelVersion
		if u := r.UsageMetadata; u != nil {
			got.Usage = toolcrib.TokenUsage{
				InputTokens: int64(u.PromptTokenCount + u.ToolUsePromptTokenCount), CachedInputTokens: int64(u.CachedContentTokenCount),
				OutputTokens: int64(u.CandidatesTokenCount + u.ThoughtsTokenCount), ReasoningTokens: int64(u.ThoughtsTokenCount), Reported: true,
			}
		}
		if f := r.PromptFeedback; f != nil && f.BlockReason != "" {
			got.Reason = toolcrib.FinishFiltered
		}
		if len(r.Candidates) == 0 {
			return
		}
		if content := r.Candidates[0].Content; content != nil {
			for _, p := range content.Parts {
				addPart(&got, p)
				if p.FunctionCall != nil {
					calls++
				}
			}
		}
		switch r.Candidates[0].FinishReason {
		case "":
		case genai.FinishReasonStop:
			got.Reason = toolcrib.FinishStop
			if calls > 0 {
				got.Reason = toolcrib.FinishToolCalls
			}
		case genai.FinishReasonMaxTokens:
			got.Reason = toolcrib.FinishLength
		case genai.FinishReasonSafety, genai.FinishReasonRecitation:
			got.Reason = toolcrib.FinishFiltered
		default:
			got.Reason = toolcrib.FinishOther
		}
	}
	if !stream {
		r, err := client.Models.GenerateContent(t.Context(), "model-a", question, nil)
		if err != nil {
			return got, err
		}
		add(r)
		return got, nil
	}
	for r, err := range client.Models.GenerateContentStream(t.Context(), "model-a", question, nil) {
		if err != nil {
			return got, err
		}
		add(r)
	}
	return got, nil
}

func addPart(got *modeltest.Want, p *genai.Part) {
	signature := base64.StdEncoding.EncodeToString(p.ThoughtSignature)
	last := &modeltest.WantPart{}
	if n := len(got.Parts); n > 0 {
		last = &got.Parts[n-1]
	}
	switch {
	case p.FunctionCall != nil:
		args, err := json.Marshal(p.FunctionCall.Args)
		if err != nil || p.FunctionCall.Args == nil {
			args = []byte("{}")
		}
		got.Parts = append(got.Parts, modeltest.WantPart{Call: &modeltest.WantCall{ID: p.FunctionCall.ID, Name: p.FunctionCall.Name, Arguments: string(args)}})
	case p.Thought && last.Thinking != "" && last.Signature == "":
		last.Thinking += p.Text
		last.Signature = signature
	case p.Thought:
		got.Parts = append(got.Parts, modeltest.WantPart{Thinking: p.Text, Signature: signature})
	case signature != "":
		got.Parts = append(got.Parts, modeltest.WantPart{Redacted: fmt.Sprintf("%d|%s", len(p.Text), signature)})
		if p.Text != "" {
			got.Parts = append(got.Parts, modeltest.WantPart{Text: p.Text})
		}
	case last.Text != "":
		last.Text += p.Text
	case p.Text != "":
		got.Parts = append(got.Parts, modeltest.WantPart{Text: p.Text})
	}
}

// The fixtures say what Google's own library makes of the recorded replies, and
// so does the adapter.
func TestGemini_FixturesAsTheLibraryReadsThem(t *testing.T) {
	fixtures, err := modeltest.Fixtures(modeltest.Gemini)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range fixtures {
		if f.Want.Lenient {
			continue
		}
		for kind, body := range map[string][]byte{sse: f.Stream, plainJSON: f.Whole} {
			if body == nil || f.Want.Error != "" && kind == plainJSON {
				continue
			}
			t.Run(f.Name+"/"+kind, func(t *testing.T) {
				c := canned{kind, body}
				theirs, err := readGemini(t, c, kind == sse)
				ours, ourErr := modeltest.Collect(t.Context(), geminiModel(t, wire.Options{BaseURL: "http://model.test", Transport: c}), modeltest.Request("hi"))
				if (err == nil) != (ourErr == nil) {
					t.Fatalf("the library says %v, we say %v", err, ourErr)
				}
				if err != nil {
					return
				}
				if theirs.Parts == nil {
					theirs.Parts = []modeltest.WantPart{}
				}
				theirs.JSONArguments = true
				modeltest.CompareReply(t, theirs, ours)
			})
		}
	}
}

// The library talks to the server of package modeltest: what it sends passes the
// checker, and it understands the answers.
func TestGemini_ServerAndLibrary(t *testing.T) {
	calls := modeltest.Calls(toolcrib.ToolCall{ID: "id1", Name: "f", Arguments: json.RawMessage(`{"x":1}`), Signature: "c2lnbmF0dXJlLW9uZQ=="})
	s, url := modeltest.Start(t, modeltest.Gemini, calls, modeltest.Text("done ✓"), calls, modeltest.Text("done ✓"))
	client := geminiClient(t, http.DefaultTransport, strings.TrimSuffix(url, "/v1"))
	t.Cleanup(http.DefaultTransport.(*http.Transport).CloseIdleConnections)
	config := &genai.GenerateContentConfig{Tools: []*genai.Tool{{FunctionDeclarations: []*genai.FunctionDeclaration{{
		Name: "f", Description: "d", ParametersJsonSchema: map[string]any{"type": "object", "properties": map[string]any{"x": map[string]any{"type": "number"}}},
	}}}}}
	for _, streaming := range []bool{false, true} {
		contents := genai.Text("q")
		ask := func() *genai.Content {
			all := &genai.Content{Role: genai.RoleModel}
			if !streaming {
				r, err := client.Models.GenerateContent(t.Context(), "gemini-3.5-flash", contents, config)
				if err != nil {
					t.Fatal(err)
				}
				return r.Candidates[0].Content
			}
			for r, err := range client.Models.GenerateContentStream(t.Context(), "gemini-3.5-flash", contents, config) {
				if err != nil {
					t.Fatal(err)
				}
				for _, p := range r.Candidates[0].Content.Parts {
					if p.Text != "" || p.FunctionCall != nil {
						all.Parts = append(all.Parts, p)
					}
				}
			}
			return all
		}
		first := ask()
		if len(first.Parts) != 1 || first.Parts[0].FunctionCall.Name != "f" || string(first.Parts[0].ThoughtSignature) != "signature-one" {
			t.Fatalf("streaming %t: %+v", streaming, first.Parts)
		}
		contents = append(contents, first, &genai.Content{Role: genai.RoleUser, Parts: []*genai.Part{{FunctionResponse: &genai.FunctionResponse{ID: "id1", Name: "f", Response: map[string]any{"result": "ok"}}}}})
		text := ""
		for _, p := range ask().Parts {
			text += p.Text
		}
		if text != "done ✓" {
			t.Errorf("streaming %t: answer %q", streaming, text)
		}
	}
	if s.Count() != 4 {
		t.Errorf("%d requests", s.Count())
	}
}

func TestLive_Gemini(t *testing.T) {
	live(t, modeltest.Gemini, "GEMINI_API_KEY", "TOOLCRIB_LIVE_GEMINI_URL", "TOOLCRIB_LIVE_GEMINI_MODEL", "gemini-flash-latest")
}
