package oracle

import (
	"cmp"
	"encoding/json"
	"os"
	"testing"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/provider/wire"
	"github.com/toolcrib/toolcrib/toolcribtest/modeltest"
)

func live(t *testing.T, d modeltest.Dialect, keyName, urlName, modelName, defaultModel string) {
	key, url := os.Getenv(keyName), os.Getenv(urlName)
	if key == "" && url == "" {
		t.Skipf("SKIPPED: NOT TRIED AGAINST THE REAL API: set %s (or %s)", keyName, urlName)
	}
	model := cmp.Or(os.Getenv(modelName), defaultModel)
	for _, noStream := range []bool{false, true} {
		m := ourModel(t, d, wire.Options{BaseURL: url, APIKey: key, NoStream: noStream, FirstTokenTimeout: 2 * time.Minute})
		conversation := m.(toolcrib.Conversational).Conversation()
		req := modeltest.Request("Use the tool to look up the word for today, then answer with that word only.")
		req.Model, req.System, req.MaxOutputTokens = model, "You are brief.", 2000
		req.Tools, req.ToolsHash = []toolcrib.Spec{{Name: "word_of_today", Description: "Returns the word for today."}}, "1"
		first, err := modeltest.Collect(t.Context(), conversation, req)
		if err != nil {
			t.Fatal(err)
		}
		calls := first.Message.ToolCalls()
		if len(calls) != 1 || first.Finish.Reason != toolcrib.FinishToolCalls || !first.Finish.Usage.Reported {
			t.Fatalf("first reply %+v", first)
		}
		if len(calls[0].Arguments) > 0 && !json.Valid(calls[0].Arguments) {
			t.Errorf("arguments %s", calls[0].Arguments)
		}
		req.Messages = append(req.Messages, first.Message, toolcrib.Message{Role: toolcrib.RoleTool, Parts: []toolcrib.Part{
			{ToolResult: &toolcrib.ToolResult{CallID: calls[0].ID, Name: calls[0].Name, Content: "marmalade"}},
		}})
		second, err := modeltest.Collect(t.Context(), conversation, req)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("answer %q, usage %+v", second.Message.Text(), second.Finish.Usage)
	}
}

func TestLive_OpenAI(t *testing.T) {
	live(t, modeltest.OpenAI, "OPENAI_API_KEY", "TOOLCRIB_LIVE_OPENAI_URL", "TOOLCRIB_LIVE_OPENAI_MODEL", "gpt-5-mini")
}

func TestLive_Anthropic(t *testing.T) {
	live(t, modeltest.Anthropic, "ANTHROPIC_API_KEY", "TOOLCRIB_LIVE_ANTHROPIC_URL", "TOOLCRIB_LIVE_ANTHROPIC_MODEL", "claude-haiku-4-5")
}
