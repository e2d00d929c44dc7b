package oracle

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/anthropics/anthropic-sdk-go"
	"github.com/google/go-cmp/cmp"
	"github.com/ollama/ollama/api"
	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/responses"
	"google.golang.org/genai"

	"github.com/toolcrib/toolcrib"
	ouranthropic "github.com/toolcrib/toolcrib/provider/anthropic"
	ourgemini "github.com/toolcrib/toolcrib/provider/gemini"
	"github.com/toolcrib/toolcrib/provider/llamacpp"
	ourollama "github.com/toolcrib/toolcrib/provider/ollama"
	ouropenai "github.com/toolcrib/toolcrib/provider/openai"
	"github.com/toolcrib/toolcrib/provider/wire"
	"github.com/toolcrib/toolcrib/toolcribtest/modeltest"
)

// geminiRequest is a request as Google's library has it: its parts, for it has no type
// for the whole.
type geminiRequest struct {
	Contents          []*genai.Content        `json:"contents"`
	SystemInstruction *genai.Content          `json:"systemInstruction,omitempty"`
	Tools             []*genai.Tool           `json:"tools,omitempty"`
	ToolConfig        *genai.ToolConfig       `json:"toolConfig,omitempty"`
	GenerationConfig  *genai.GenerationConfig `json:"generationConfig,omitempty"`
}

// keeper keeps what is sent and answers with one text.
type keeper struct {
	dialect modeltest.Dialect
	stream  bool
	sent    []byte
}

func (k *keeper) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Body == nil { // llama-server is asked what its model can do
		return canned{plainJSON, []byte(modeltest.LlamaCppProps(true))}.RoundTrip(req)
	}
	k.sent, _ = io.ReadAll(req.Body)
	req.Body = io.NopCloser(bytes.NewReader(nil))
	answer := canned{plainJSON, k.dialect.JSON(modeltest.Text("ok"))}
	if k.stream {
		answer = canned{sse, bytes.Join(k.dialect.Frames(modeltest.Text("ok"), 16), nil)}
		if k.dialect == modeltest.Ollama {
			answer.kind = "application/x-ndjson"
		}
	}
	return answer.RoundTrip(req)
}

// What the adapters send, whatever the transcript and the tools are, the vendors' own
// types decode, and encode again to the same: a field that they do not know, or whose
// type or place is another, is a difference.
func TestRequests_AsTheLibrariesReadThem(t *testing.T) {
	for _, s := range []struct {
		dialect modeltest.Dialect
		open    func(o wire.Options) (toolcrib.Model, error)
		theirs  func() any
		own     []string // fields that the type does not have: stream, and those of other servers
		models  []string
	}{
		{
			modeltest.OpenAI,
			func(o wire.Options) (toolcrib.Model, error) {
				o.API = ouropenai.APIChat
				return ouropenai.New(o)
			},
			func() any { return new(openai.ChatCompletionNewParams) },
			[]string{"stream"},
			[]string{"model-a", "gpt-5-mini", "o3"},
		},
		{
			modeltest.LlamaCpp,
			func(o wire.Options) (toolcrib.Model, error) { return llamacpp.New(o) },
			func() any { return new(openai.ChatCompletionNewParams) },
			[]string{"stream", "chat_template_kwargs", "cache_prompt", "top_k", "min_p"},
			[]string{"model-a"},
		},
		{
			modeltest.Responses,
			func(o wire.Options) (toolcrib.Model, error) {
				o.API = ouropenai.APIResponses
				return ouropenai.New(o)
			},
			func() any { return new(responses.ResponseNewParams) },
			[]string{"stream"},
			[]string{"model-a", "gpt-5-mini", "o3"},
		},
		{
			modeltest.Anthropic,
			func(o wire.Options) (toolcrib.Model, error) {
				return ouranthropic.New(o)
			},
			func() any { return new(anthropic.MessageNewParams) },
			[]string{"stream"},
			[]string{"claude-haiku-4-5", "claude-opus-5", "claude-fable-5-1", "claude-3-haiku-20240307"},
		},
		{
			modeltest.Gemini,
			func(o wire.Options) (toolcrib.Model, error) { return ourgemini.New(o) },
			func() any { return new(geminiRequest) }, nil,
			[]string{"gemini-3.5-flash", "gemini-2.5-pro", "gemini-2.0-flash"},
		},
		{
			modeltest.Ollama,
			func(o wire.Options) (toolcrib.Model, error) { return ourollama.New(o) },
			func() any { return new(api.ChatRequest) }, nil,
			[]string{"model-a"},
		},
	} {
		for name, base := range modeltest.HostileHistories() {
			for _, model := range s.models {
				t.Run(string(s.dialect)+"/"+name+"/"+model, func(t *testing.T) {
					for _, stream := range []bool{false, true} {
						k := &keeper{dialect: s.dialect, stream: stream}
						m, err := s.open(wire.Options{BaseURL: "http://model.test", Transport: k, NoStream: !stream})
						if err != nil {
							t.Fatal(err)
						}
						req := *base
						req.Model = model
						if _, err := modeltest.Collect(t.Context(), m, &req); err != nil {
							t.Fatal(err)
						}
						sameForThem(t, k.sent, s.theirs(), s.own)
					}
				})
			}
		}
	}
}

// sameForThem decodes and encodes what was sent with their type.
func sameForThem(t *testing.T, sent []byte, theirs any, own []string) {
	t.Helper()
	// Gemini's stand-in for a signature is no plain base64, which the library's type wants.
	sent = bytes.ReplaceAll(sent, []byte("skip_thought_signature_validator"), []byte("c2tpcA=="))
	var doc map[string]any
	if err := json.Unmarshal(sent, &doc); err != nil {
		t.Fatal(err)
	}
	for _, name := range own {
		delete(doc, name)
	}
	if choice, _ := doc["tool_choice"].(map[string]any); choice["type"] == "function" {
		delete(doc, "tool_choice") // OpenAI's own types lose the name that they decode
	}
	ours, err := json.Marshal(doc)
	if err != nil {
		t.Fatal(err)
	}
	dec := json.NewDecoder(bytes.NewReader(ours))
	dec.DisallowUnknownFields()
	if err := dec.Decode(theirs); err != nil {
		t.Fatalf("%v\n%s", err, ours)
	}
	again, err := json.Marshal(theirs)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(values(t, ours), values(t, again)); diff != "" {
		t.Errorf("the library reads other values (-sent +read):\n%s", diff)
	}
}

// values reads JSON and leaves out what the library leaves out: empty texts, and
// zero values that mean the same. Signatures are compared without padding.
func values(t *testing.T, raw []byte) any {
	t.Helper()
	var v any
	if err := json.Unmarshal(raw, &v); err != nil {
		t.Fatal(err)
	}
	return trim(v)
}

func trim(v any) any {
	switch v := v.(type) {
	case map[string]any:
		if said, ok := v["content"].(string); ok && v["type"] == "tool_result" {
			v["content"] = []any{map[string]any{"type": "text", "text": said}} // as Anthropic's library writes it
		}
		if _, ok := v["arguments"]; ok && v["index"] == 0.0 {
			delete(v, "index") // Ollama's library numbers calls
		}
		for name, inner := range v {
			inner = trim(inner)
			v[name] = inner
			if m, ok := inner.(map[string]any); inner == nil || inner == "" || ok && len(m) == 0 {
				delete(v, name)
			}
			if s, ok := inner.(string); ok && name == "thoughtSignature" {
				v[name] = strings.NewReplacer("-", "+", "_", "/").Replace(strings.TrimRight(s, "="))
			}
		}
	case []any:
		for i := range v {
			v[i] = trim(v[i])
		}
	}
	return v
}
