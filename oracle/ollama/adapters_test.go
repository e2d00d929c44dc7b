package ollama

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/provider/anthropic"
	"github.com/toolcrib/toolcrib/provider/llamacpp"
	"github.com/toolcrib/toolcrib/provider/ollama"
	"github.com/toolcrib/toolcrib/provider/openai"
	"github.com/toolcrib/toolcrib/provider/wire"
	"github.com/toolcrib/toolcrib/toolcribtest/modeltest"
)

// An adapter and the API of Ollama that it speaks.
var adapters = map[string]func(wire.Options) (toolcrib.Model, error){
	"api/chat": func(o wire.Options) (toolcrib.Model, error) {
		return ollama.New(o)
	},
	"v1/chat/completions": func(o wire.Options) (toolcrib.Model, error) {
		o.BaseURL += "/v1"
		o.API = openai.APIChat
		return openai.New(o)
	},
	"v1/responses": func(o wire.Options) (toolcrib.Model, error) {
		o.BaseURL += "/v1"
		o.API = openai.APIResponses
		return openai.New(o)
	},
	"v1/messages": func(o wire.Options) (toolcrib.Model, error) {
		return anthropic.New(o)
	},
	"v1/chat/completions, as llama.cpp": func(o wire.Options) (toolcrib.Model, error) {
		return llamacpp.New(o)
	},
}

// each runs a test for each adapter, streamed and in one piece.
func each(t *testing.T, test func(t *testing.T, api string, m toolcrib.Model)) {
	base := real(t)
	for api, open := range adapters {
		for _, noStream := range []bool{false, true} {
			t.Run(api+map[bool]string{false: ", streamed", true: ", in one piece"}[noStream], func(t *testing.T) {
				m, err := open(wire.Options{BaseURL: base, APIKey: "any", NoStream: noStream, FirstTokenTimeout: 2 * time.Minute})
				if err != nil {
					t.Fatal(err)
				}
				test(t, api, m)
			})
		}
	}
}

func ask(t *testing.T, m toolcrib.Model, r *toolcrib.Request) toolcrib.Reply {
	t.Helper()
	reply, err := modeltest.Collect(t.Context(), m, r)
	if err != nil {
		t.Fatal(err)
	}
	return reply
}

func request(text string) *toolcrib.Request {
	r := modeltest.Request(text)
	r.Model, r.System, r.MaxOutputTokens = modelName, "You play a script.", 200
	return r
}

func TestAnswer(t *testing.T) {
	each(t, func(t *testing.T, _ string, m toolcrib.Model) {
		reply := ask(t, m, request("What is the word?<|answer|>"))
		if got := reply.Message.Text(); got != "The word is marmalade. 日本 🎈" {
			t.Errorf("text %q", got)
		}
		if u := reply.Finish.Usage; reply.Finish.Reason != toolcrib.FinishStop || !u.Reported || u.InputTokens < 20 || u.OutputTokens < 5 {
			t.Errorf("finish %+v", reply.Finish)
		}
	})
}

func TestToolCallAndItsResult(t *testing.T) {
	each(t, func(t *testing.T, _ string, m toolcrib.Model) {
		conversation := m.(toolcrib.Conversational).Conversation()
		r := request("What is the word?<|call|>")
		r.Tools, r.ToolsHash = []toolcrib.Spec{{
			Name: "word_of_today", Description: "Returns the word for today.",
			Parameters: json.RawMessage(`{"type":"object","properties":{"language":{"type":"string"}},"required":["language"]}`),
		}}, "1"
		first := ask(t, conversation, r)
		calls := first.Message.ToolCalls()
		if len(calls) != 1 || calls[0].Name != "word_of_today" || first.Finish.Reason != toolcrib.FinishToolCalls {
			t.Fatalf("reply %+v", first)
		}
		var args map[string]string
		if err := json.Unmarshal(calls[0].Arguments, &args); err != nil || len(args) != 1 || args["language"] != "en" {
			t.Errorf("arguments %s: %v", calls[0].Arguments, err)
		}
		if calls[0].ID == "" {
			calls[0].ID = "call_1"
		}
		r.Messages = append(r.Messages, first.Message, toolcrib.Message{Role: toolcrib.RoleTool, Parts: []toolcrib.Part{
			{ToolResult: &toolcrib.ToolResult{CallID: calls[0].ID, Name: calls[0].Name, Content: "marmalade"}},
		}})
		second := ask(t, conversation, r)
		if got := second.Message.Text(); got != "The word is marmalade. 日本 🎈" || second.Finish.Reason != toolcrib.FinishStop {
			t.Errorf("answer %q, %+v", got, second.Finish)
		}
	})
}

func TestTwoCalls(t *testing.T) {
	each(t, func(t *testing.T, _ string, m toolcrib.Model) {
		r := request("Twice, please.")
		r.Messages = append(r.Messages, toolcrib.Message{Role: toolcrib.RoleAssistant, Parts: []toolcrib.Part{{Text: "Both?"}}},
			toolcrib.Message{Role: toolcrib.RoleUser, Parts: []toolcrib.Part{{Text: "Both.<|two|>"}}})
		r.Tools, r.ToolsHash = []toolcrib.Spec{{Name: "first"}, {Name: "second"}}, "2"
		calls := ask(t, m, r).Message.ToolCalls()
		if len(calls) != 2 || calls[0].Name != "first" || calls[1].Name != "second" || calls[0].ID != "" && calls[0].ID == calls[1].ID {
			t.Fatalf("calls %+v", calls)
		}
		if string(calls[0].Arguments) != "{}" && len(calls[0].Arguments) != 0 || string(calls[1].Arguments) != `{"n":2}` {
			t.Errorf("arguments %s, %s", calls[0].Arguments, calls[1].Arguments)
		}
	})
}

func TestAnswerCutByItsLength(t *testing.T) {
	each(t, func(t *testing.T, api string, m toolcrib.Model) {
		r := request("On and on.<|long|>")
		r.MaxOutputTokens = 3
		want := toolcrib.FinishLength
		if api == "v1/responses" {
			want = toolcrib.FinishStop // this version of Ollama calls every response completed
		}
		reply := ask(t, m, r)
		if got := strings.TrimSpace(reply.Message.Text()); got != "a b c" || reply.Finish.Reason != want {
			t.Errorf("text %q, %+v", got, reply.Finish)
		}
	})
}

func TestOutputSchema(t *testing.T) {
	each(t, func(t *testing.T, _ string, m toolcrib.Model) {
		r := request("As JSON.<|json|>")
		r.OutputSchema = json.RawMessage(`{"type":"object","properties":{"word":{"type":"string"}},"required":["word"],"additionalProperties":false}`)
		var got struct{ Word string }
		reply := ask(t, m, r)
		if err := json.Unmarshal([]byte(reply.Message.Text()), &got); err != nil || got.Word != "marmalade" {
			t.Errorf("text %q: %v", reply.Message.Text(), err)
		}
	})
}

func TestUnknownModel(t *testing.T) {
	each(t, func(t *testing.T, _ string, m toolcrib.Model) {
		r := request("Hello?")
		r.Model = "no-such-model"
		_, err := modeltest.Collect(t.Context(), m, r)
		var failed *toolcrib.ModelError
		if !errors.As(err, &failed) || failed.Class != toolcrib.ErrBadRequest || !strings.Contains(err.Error(), "no-such-model") {
			t.Errorf("error %v", err)
		}
	})
}

func TestThinking(t *testing.T) {
	each(t, func(t *testing.T, api string, m toolcrib.Model) {
		r := request("What do you think?<|think|>")
		if !strings.HasPrefix(api, "v1/chat") { // there this model is refused any word but its default
			r.Reasoning = "low"
		}
		parts := ask(t, m, r).Message.Parts
		if len(parts) != 2 || parts[0].Thinking == nil || strings.TrimSpace(parts[0].Thinking.Text) != "The tool said so." ||
			strings.TrimSpace(parts[1].Text) != "Marmalade!!" {
			t.Errorf("parts %+v", parts)
		}
	})
}

// A request that is longer than the context of 4,096 tokens, of a byte each: on its own
// API Ollama says so when it is asked to; on the others it drops what is oldest.
func TestContextTooSmall(t *testing.T) {
	each(t, func(t *testing.T, api string, m toolcrib.Model) {
		many := request(strings.Repeat("word ", 2000))
		many.Messages = append(many.Messages, toolcrib.TextMessage(toolcrib.RoleAssistant, "Yes?"),
			toolcrib.TextMessage(toolcrib.RoleUser, "What is the word?<|answer|>"))
		for name, r := range map[string]*toolcrib.Request{"many": many, "one": request(strings.Repeat("word ", 2000) + "<|answer|>")} {
			reply, err := modeltest.Collect(t.Context(), m, r)
			if api != "api/chat" {
				if err != nil || !strings.HasPrefix(reply.Message.Text(), "The word is") {
					t.Errorf("%s: %+v, %v", name, reply, err)
				}
				continue
			}
			var failed *toolcrib.ModelError
			if !errors.As(err, &failed) || failed.Class != toolcrib.ErrContextLength {
				t.Errorf("%s: %+v, %v", name, reply, err)
			}
		}
	})
}
