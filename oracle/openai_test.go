package oracle

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"
	sdk "github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/shared"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/provider/openai"
	"github.com/toolcrib/toolcrib/provider/wire"
	"github.com/toolcrib/toolcrib/toolcribtest/modeltest"
)

func openAIClient(opts ...option.RequestOption) sdk.Client {
	return sdk.NewClient(append([]option.RequestOption{option.WithAPIKey("key"), option.WithMaxRetries(0)}, opts...)...)
}

func ours(t *testing.T, d modeltest.Dialect, c canned) (toolcrib.Reply, error) {
	t.Helper()
	m := ourModel(t, d, wire.Options{BaseURL: "http://model.test/v1", Transport: c})
	return modeltest.Collect(t.Context(), m, modeltest.Request("hi"))
}

func question() sdk.ChatCompletionNewParams {
	return sdk.ChatCompletionNewParams{Model: "model-a", Messages: []sdk.ChatCompletionMessageParamUnion{sdk.UserMessage("hi")}}
}

// theirs brings what the library read into the form of the fixtures. It has no
// reasoning: that is no field of the API.
func theirs(m sdk.ChatCompletionMessage) []modeltest.WantPart {
	list := []modeltest.WantPart{}
	if text := m.Content + m.Refusal; text != "" {
		list = append(list, modeltest.WantPart{Text: text})
	}
	for _, c := range m.ToolCalls {
		list = append(list, modeltest.WantPart{Call: &modeltest.WantCall{ID: c.ID, Name: c.Function.Name, Arguments: c.Function.Arguments}})
	}
	return list
}

func withoutThinking(parts []modeltest.WantPart) []modeltest.WantPart {
	list := []modeltest.WantPart{}
	for _, p := range parts {
		if p.Thinking == "" {
			list = append(list, p)
		}
	}
	return list
}

func TestOpenAI_FixturesAsTheLibraryReadsThem(t *testing.T) {
	fixtures, err := modeltest.Fixtures(modeltest.OpenAI)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range fixtures {
		if f.Want.Lenient {
			continue
		}
		if f.Stream != nil {
			t.Run(f.Name+"/stream", func(t *testing.T) {
				c := canned{sse, f.Stream}
				client := openAIClient(option.WithHTTPClient(&http.Client{Transport: c}))
				stream := client.Chat.Completions.NewStreaming(t.Context(), question())
				var all sdk.ChatCompletionAccumulator
				for stream.Next() {
					all.AddChunk(stream.Current())
				}
				reply, ourErr := ours(t, modeltest.OpenAI, c)
				compareOpenAI(t, &all.ChatCompletion, stream.Err(), reply, ourErr)
			})
		}
		if f.Whole != nil && f.Want.Error == "" {
			t.Run(f.Name+"/whole", func(t *testing.T) {
				c := canned{plainJSON, f.Whole}
				client := openAIClient(option.WithHTTPClient(&http.Client{Transport: c}))
				whole, err := client.Chat.Completions.New(t.Context(), question())
				reply, ourErr := ours(t, modeltest.OpenAI, c)
				compareOpenAI(t, whole, err, reply, ourErr)
			})
		}
	}
}

func compareOpenAI(t *testing.T, c *sdk.ChatCompletion, err error, reply toolcrib.Reply, ourErr error) {
	t.Helper()
	if err != nil || ourErr != nil {
		if err == nil || ourErr == nil {
			t.Errorf("the library says %v, we say %v", err, ourErr)
		}
		return
	}
	if diff := cmp.Diff(theirs(c.Choices[0].Message), withoutThinking(modeltest.Parts(reply.Message))); diff != "" {
		t.Errorf("parts differ (-library +ours):\n%s", diff)
	}
	u := c.Usage
	want := toolcrib.TokenUsage{InputTokens: u.PromptTokens, CachedInputTokens: u.PromptTokensDetails.CachedTokens, OutputTokens: u.CompletionTokens, ReasoningTokens: u.CompletionTokensDetails.ReasoningTokens, Reported: true}
	if diff := cmp.Diff(want, reply.Finish.Usage); diff != "" {
		t.Errorf("usage differs (-library +ours):\n%s", diff)
	}
	if c.Model != reply.Finish.Model {
		t.Errorf("model %q, ours %q", c.Model, reply.Finish.Model)
	}
}

// The library talks to the server of package modeltest: what it sends passes the
// checker, and it understands the answers.
func TestOpenAI_ServerAndLibrary(t *testing.T) {
	calls := modeltest.Calls(toolcrib.ToolCall{ID: "call_1", Name: "f", Arguments: json.RawMessage(`{"x":1}`)})
	s, url := modeltest.Start(t, modeltest.OpenAI, calls, modeltest.Text("done ✓"), calls, modeltest.Text("done ✓"))
	client := openAIClient(option.WithBaseURL(url))
	for _, streaming := range []bool{false, true} {
		params := question()
		params.Tools = []sdk.ChatCompletionToolUnionParam{sdk.ChatCompletionFunctionTool(shared.FunctionDefinitionParam{
			Name: "f", Parameters: shared.FunctionParameters{"type": "object", "properties": map[string]any{}},
		})}
		ask := func() sdk.ChatCompletionMessage {
			if !streaming {
				c, err := client.Chat.Completions.New(t.Context(), params)
				if err != nil {
					t.Fatal(err)
				}
				return c.Choices[0].Message
			}
			stream := client.Chat.Completions.NewStreaming(t.Context(), params)
			var all sdk.ChatCompletionAccumulator
			for stream.Next() {
				if !all.AddChunk(stream.Current()) {
					t.Fatal("the chunks do not go together")
				}
			}
			if stream.Err() != nil {
				t.Fatal(stream.Err())
			}
			return all.Choices[0].Message
		}
		first := ask()
		if diff := cmp.Diff(modeltest.Parts(calls.Message), theirs(first)); diff != "" {
			t.Errorf("streaming %t: calls differ:\n%s", streaming, diff)
		}
		params.Messages = append(params.Messages, first.ToParam(), sdk.ToolMessage("ok", "call_1"))
		if second := ask(); second.Content != "done ✓" {
			t.Errorf("streaming %t: answer %q", streaming, second.Content)
		}
	}
	if s.Count() != 4 {
		t.Errorf("%d requests", s.Count())
	}
}

func ourModel(t *testing.T, d modeltest.Dialect, o wire.Options) toolcrib.Model {
	t.Helper()
	if d == modeltest.Anthropic {
		return anthropicModel(t, o)
	}
	if d == modeltest.Gemini {
		return geminiModel(t, o)
	}
	m, err := openai.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return m
}
