package mcp_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/mcp"
)

// Texts of a server other than its tools are cleaned when they are read: its name, prompts and
// questions.
func TestServer_SaysWhatIsNotSeen_C14(t *testing.T) {
	const hidden = "\x1b[2J\u009b\u202e\U000e0041"
	s := sdk.NewServer(&sdk.Implementation{Name: "evil" + hidden, Version: "1" + hidden}, nil)
	prompt := func(name, argument string) {
		s.AddPrompt(&sdk.Prompt{
			Name: name, Title: "T" + hidden, Description: "D" + hidden,
			Arguments: []*sdk.PromptArgument{{Name: argument, Description: "A" + hidden}},
		}, func(context.Context, *sdk.GetPromptRequest) (*sdk.GetPromptResult, error) {
			return &sdk.GetPromptResult{}, nil
		})
	}
	prompt("shown", "a")
	prompt("b"+hidden, "a")
	prompt("c", "a"+hidden)
	s.AddTool(&sdk.Tool{Name: "asks", InputSchema: json.RawMessage(`{"type":"object"}`)},
		func(_ context.Context, q *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
			return &sdk.CallToolResult{InputRequests: sdk.InputRequestMap{"who": &sdk.ElicitParams{
				Message: "Who?" + hidden, RequestedSchema: map[string]any{"type": "object", "properties": map[string]any{
					"p" + hidden: map[string]any{"type": "string", "title": "t" + hidden, "enum": []string{"e" + hidden}},
				}},
			}}}, nil
		})
	h := httptest.NewServer(sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return s }, nil))
	t.Cleanup(h.Close)
	t.Cleanup(h.CloseClientConnections)
	c := start(t, mcp.Server{Name: "srv", URL: h.URL}, mcp.Options{})

	state, offers := c.State(), c.Offers()
	if len(offers.Prompts) != 1 || len(state.Problems) != 2 {
		t.Errorf("offers = %+v, problems = %q", offers, state.Problems)
	}
	tool, err := toolOf(c, "srv__asks")
	if err != nil {
		t.Fatal(err)
	}
	p := &person{t: t}
	_, err = tool.Call(t.Context(), toolcrib.Call{Arguments: json.RawMessage(`{}`), Run: "run_1", Invoke: p.invoke})
	if err != nil || len(p.asked) == 0 {
		t.Errorf("asked %q, %v", p.asked, err)
	}
	for _, text := range append(append(p.asked, state.Server, string(offers.Text())), state.Problems...) {
		if guard.Clean(text) != text || strings.HasPrefix(text, "{") && strings.Contains(text, `\u`) {
			t.Errorf("%q came in", text)
		}
	}
}

func TestServer_OfANameThatIsNotSeen_C14(t *testing.T) {
	for _, name := range []string{"evil\u202e", "evil\x1b[2J", "evil\U000e0041"} {
		if c, err := mcp.New(mcp.Server{Name: name, Command: "x"}, mcp.Options{}); err == nil {
			c.Close()
			t.Errorf("%q is the name of a server", name)
		}
	}
}
