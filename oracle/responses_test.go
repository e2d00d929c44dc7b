package oracle

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/packages/param"
	"github.com/openai/openai-go/v3/responses"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/provider/openai"
	"github.com/toolcrib/toolcrib/provider/wire"
	"github.com/toolcrib/toolcrib/toolcribtest/modeltest"
)

func responsesModel(t *testing.T, o wire.Options) toolcrib.Model {
	t.Helper()
	o.API = openai.APIResponses
	m, err := openai.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func responsesQuestion() responses.ResponseNewParams {
	return responses.ResponseNewParams{Model: "model-a", Input: responses.ResponseNewParamsInputUnion{OfString: param.NewOpt("hi")}}
}

// theirItems brings what the library read into the form of the fixtures, without
// what is opaque in reasoning.
func theirItems(r *responses.Response) []modeltest.WantPart {
	list := []modeltest.WantPart{}
	for _, item := range r.Output {
		switch item.Type {
		case "reasoning":
			text := ""
			for i, s := range item.Summary {
				if i > 0 {
					text += "\n\n"
				}
				text += s.Text
			}
			list = append(list, modeltest.WantPart{Thinking: text})
		case "function_call":
			list = append(list, modeltest.WantPart{Call: &modeltest.WantCall{ID: item.CallID, Name: item.Name, Arguments: item.AsFunctionCall().Arguments}})
		case "message":
			text := ""
			for _, c := range item.Content {
				text += c.Text + c.Refusal
			}
			list = append(list, modeltest.WantPart{Text: text})
		}
	}
	return list
}

func withoutSeals(parts []modeltest.WantPart) []modeltest.WantPart {
	list := []modeltest.WantPart{}
	for _, p := range parts {
		p.Signature, p.Redacted = "", ""
		list = append(list, p)
	}
	return list
}

func TestResponses_FixturesAsTheLibraryReadsThem(t *testing.T) {
	fixtures, err := modeltest.Fixtures(modeltest.Responses)
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
				stream := client.Responses.NewStreaming(t.Context(), responsesQuestion())
				var last responses.Response
				failed := false
				for stream.Next() {
					switch e := stream.Current(); e.Type {
					case "response.completed", "response.incomplete":
						last = e.Response
					case "response.failed", "error":
						failed = true
					}
				}
				compareResponses(t, c, &last, failed || stream.Err() != nil)
			})
		}
		if f.Whole != nil {
			t.Run(f.Name+"/whole", func(t *testing.T) {
				c := canned{plainJSON, f.Whole}
				client := openAIClient(option.WithHTTPClient(&http.Client{Transport: c}))
				whole, err := client.Responses.New(t.Context(), responsesQuestion())
				if err != nil {
					t.Fatal(err)
				}
				compareResponses(t, c, whole, whole.Status == "failed")
			})
		}
	}
}

func compareResponses(t *testing.T, c canned, r *responses.Response, failed bool) {
	t.Helper()
	reply, err := modeltest.Collect(t.Context(), responsesModel(t, wire.Options{BaseURL: "http://model.test/v1", Transport: c}), modeltest.Request("hi"))
	if failed || err != nil {
		if !failed || err == nil {
			t.Errorf("the library sees a failure: %t; we say %v", failed, err)
		}
		return
	}
	if diff := cmp.Diff(theirItems(r), withoutSeals(modeltest.Parts(reply.Message))); diff != "" {
		t.Errorf("items differ (-library +ours):\n%s", diff)
	}
	u := r.Usage
	want := toolcrib.TokenUsage{InputTokens: u.InputTokens, CachedInputTokens: u.InputTokensDetails.CachedTokens, OutputTokens: u.OutputTokens, ReasoningTokens: u.OutputTokensDetails.ReasoningTokens, Reported: true}
	if diff := cmp.Diff(want, reply.Finish.Usage); diff != "" {
		t.Errorf("usage differs (-library +ours):\n%s", diff)
	}
	if r.Model != reply.Finish.Model {
		t.Errorf("model %q, ours %q", r.Model, reply.Finish.Model)
	}
}

// What the adapter sends back of reasoning is what the library would send.
func TestResponses_ReasoningAsTheLibrarySendsIt(t *testing.T) {
	fixtures, err := modeltest.Fixtures(modeltest.Responses)
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, f := range fixtures {
		for _, p := range f.Want.Parts {
			raw := p.Signature + p.Redacted
			if raw == "" || f.Want.Lenient {
				continue
			}
			seen++
			var item responses.ResponseReasoningItemParam
			if err := json.Unmarshal([]byte(raw), &item); err != nil {
				t.Fatal(err)
			}
			theirs, err := json.Marshal(item)
			if err != nil {
				t.Fatal(err)
			}
			var a, b any
			if json.Unmarshal(theirs, &a) != nil || json.Unmarshal([]byte(raw), &b) != nil || !cmp.Equal(a, b) {
				t.Errorf("%s: the library sends %s, we send %s", f.Name, theirs, raw)
			}
		}
	}
	if seen == 0 {
		t.Error("no fixture holds reasoning")
	}
}

// The library talks to the server of package modeltest: what it sends passes the
// checker, and it understands the answers.
func TestResponses_ServerAndLibrary(t *testing.T) {
	calls := modeltest.Calls(toolcrib.ToolCall{ID: "call_1", Name: "f", Arguments: json.RawMessage(`{"x":1}`)})
	calls.Message.Parts = append([]toolcrib.Part{{Thinking: &toolcrib.Thinking{Text: "hm"}}}, calls.Message.Parts...)
	s, url := modeltest.Start(t, modeltest.Responses, calls, modeltest.Text("done ✓"))
	client := openAIClient(option.WithBaseURL(url))
	params := responses.ResponseNewParams{
		Model: "model-a", Store: param.NewOpt(false), Include: []responses.ResponseIncludable{responses.ResponseIncludableReasoningEncryptedContent},
		Input: responses.ResponseNewParamsInputUnion{OfInputItemList: responses.ResponseInputParam{
			{OfInputMessage: &responses.ResponseInputItemMessageParam{Role: "user", Content: responses.ResponseInputMessageContentListParam{{OfInputText: &responses.ResponseInputTextParam{Text: "hi"}}}}},
		}},
		Tools: []responses.ToolUnionParam{{OfFunction: &responses.FunctionToolParam{Name: "f", Strict: param.NewOpt(false), Parameters: map[string]any{"type": "object", "properties": map[string]any{}}}}},
	}
	first, err := client.Responses.New(t.Context(), params)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(modeltest.Parts(calls.Message), theirItems(first)); diff != "" {
		t.Errorf("items differ:\n%s", diff)
	}
	input := params.Input.OfInputItemList
	for _, item := range first.Output {
		switch item.Type {
		case "reasoning":
			reasoning := item.AsReasoning().ToParam()
			input = append(input, responses.ResponseInputItemUnionParam{OfReasoning: &reasoning})
		case "function_call":
			call := item.AsFunctionCall()
			output := responses.ResponseInputItemParamOfFunctionCallOutput("ok")
			output.OfFunctionCallOutput.CallID = param.NewOpt(call.CallID)
			input = append(input, responses.ResponseInputItemParamOfFunctionCall(call.Arguments, call.CallID, call.Name), output)
		}
	}
	params.Input.OfInputItemList = input
	second, err := client.Responses.New(t.Context(), params)
	if err != nil {
		t.Fatal(err)
	}
	if second.OutputText() != "done ✓" || s.Count() != 2 {
		t.Errorf("answer %q after %d requests", second.OutputText(), s.Count())
	}
}
