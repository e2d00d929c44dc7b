package oracle

import (
	"encoding/json"
	"net/http"
	"testing"

	sdk "github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/option"
	"github.com/google/go-cmp/cmp"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/provider/anthropic"
	"github.com/toolcrib/toolcrib/provider/wire"
	"github.com/toolcrib/toolcrib/toolcribtest/modeltest"
)

func anthropicModel(t *testing.T, o wire.Options) toolcrib.Model {
	t.Helper()
	m, err := anthropic.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func anthropicClient(opts ...option.RequestOption) sdk.Client {
	return sdk.NewClient(append([]option.RequestOption{option.WithAPIKey("key"), option.WithMaxRetries(0)}, opts...)...)
}

func message() sdk.MessageNewParams {
	return sdk.MessageNewParams{Model: "model-a", MaxTokens: 100, Messages: []sdk.MessageParam{sdk.NewUserMessage(sdk.NewTextBlock("hi"))}}
}

func blocks(m *sdk.Message) []modeltest.WantPart {
	list := []modeltest.WantPart{}
	for _, b := range m.Content {
		switch b.Type {
		case "text":
			list = append(list, modeltest.WantPart{Text: b.Text})
		case "thinking":
			list = append(list, modeltest.WantPart{Thinking: b.Thinking, Signature: b.Signature})
		case "redacted_thinking":
			list = append(list, modeltest.WantPart{Redacted: b.Data})
		case "tool_use":
			list = append(list, modeltest.WantPart{Call: &modeltest.WantCall{ID: b.ID, Name: b.Name, Arguments: string(b.Input)}})
		}
	}
	return list
}

func TestAnthropic_FixturesAsTheLibraryReadsThem(t *testing.T) {
	fixtures, err := modeltest.Fixtures(modeltest.Anthropic)
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
				client := anthropicClient(option.WithHTTPClient(&http.Client{Transport: c}))
				stream := client.Messages.NewStreaming(t.Context(), message())
				var all sdk.Message
				var err error
				for stream.Next() && err == nil {
					err = all.Accumulate(stream.Current())
				}
				if err == nil {
					err = stream.Err()
				}
				reply, ourErr := ours(t, modeltest.Anthropic, c)
				if f.Name == "length_in_call" {
					// The library refuses arguments that were cut; ours hands them
					// on, for the loop to judge.
					if ourErr != nil || reply.Finish.Reason != toolcrib.FinishLength {
						t.Errorf("reason %q, error %v", reply.Finish.Reason, ourErr)
					}
					return
				}
				compareAnthropic(t, &all, err, reply, ourErr)
			})
		}
		if f.Whole != nil && f.Want.Error == "" {
			t.Run(f.Name+"/whole", func(t *testing.T) {
				c := canned{plainJSON, f.Whole}
				client := anthropicClient(option.WithHTTPClient(&http.Client{Transport: c}))
				whole, err := client.Messages.New(t.Context(), message())
				reply, ourErr := ours(t, modeltest.Anthropic, c)
				compareAnthropic(t, whole, err, reply, ourErr)
			})
		}
	}
}

func compareAnthropic(t *testing.T, m *sdk.Message, err error, reply toolcrib.Reply, ourErr error) {
	t.Helper()
	if err != nil || ourErr != nil {
		if err == nil || ourErr == nil {
			t.Errorf("the library says %v, we say %v", err, ourErr)
		}
		return
	}
	if diff := cmp.Diff(blocks(m), modeltest.Parts(reply.Message), modeltest.JSONArguments); diff != "" {
		t.Errorf("parts differ (-library +ours):\n%s", diff)
	}
	u := m.Usage
	want := toolcrib.TokenUsage{
		InputTokens:       u.InputTokens + u.CacheReadInputTokens + u.CacheCreationInputTokens,
		CachedInputTokens: u.CacheReadInputTokens, CacheWriteTokens: u.CacheCreationInputTokens,
		OutputTokens: u.OutputTokens, ReasoningTokens: u.OutputTokensDetails.ThinkingTokens, Reported: true,
	}
	if diff := cmp.Diff(want, reply.Finish.Usage); diff != "" {
		t.Errorf("usage differs (-library +ours):\n%s", diff)
	}
	if string(m.Model) != reply.Finish.Model {
		t.Errorf("model %q, ours %q", m.Model, reply.Finish.Model)
	}
}

func TestAnthropic_ServerAndLibrary(t *testing.T) {
	calls := modeltest.Calls(toolcrib.ToolCall{ID: "toolu_1", Name: "f", Arguments: json.RawMessage(`{"x":1}`)})
	calls.Message.Parts = append([]toolcrib.Part{{Thinking: &toolcrib.Thinking{Text: "hm", Signature: "sig"}}}, calls.Message.Parts...)
	s, url := modeltest.Start(t, modeltest.Anthropic, calls, modeltest.Text("done ✓"), calls, modeltest.Text("done ✓"))
	client := anthropicClient(option.WithBaseURL(url[:len(url)-len("/v1")]))
	for _, streaming := range []bool{false, true} {
		params := message()
		params.Tools = []sdk.ToolUnionParam{{OfTool: &sdk.ToolParam{Name: "f", InputSchema: sdk.ToolInputSchemaParam{Properties: map[string]any{}}}}}
		ask := func() *sdk.Message {
			if !streaming {
				m, err := client.Messages.New(t.Context(), params)
				if err != nil {
					t.Fatal(err)
				}
				return m
			}
			stream := client.Messages.NewStreaming(t.Context(), params)
			var all sdk.Message
			for stream.Next() {
				if err := all.Accumulate(stream.Current()); err != nil {
					t.Fatal(err)
				}
			}
			if stream.Err() != nil {
				t.Fatal(stream.Err())
			}
			return &all
		}
		first := ask()
		if diff := cmp.Diff(modeltest.Parts(calls.Message), blocks(first), modeltest.JSONArguments); diff != "" {
			t.Errorf("streaming %t: blocks differ:\n%s", streaming, diff)
		}
		params.Messages = append(params.Messages, first.ToParam(), sdk.NewUserMessage(sdk.NewToolResultBlock("toolu_1", "ok", false)))
		if second := ask(); len(second.Content) != 1 || second.Content[0].Text != "done ✓" {
			t.Errorf("streaming %t: answer %+v", streaming, second.Content)
		}
	}
	if s.Count() != 4 {
		t.Errorf("%d requests", s.Count())
	}
}
