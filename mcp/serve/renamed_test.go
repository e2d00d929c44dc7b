package serve_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolcrib/toolcrib/service"
)

// A tool of an MCP server that its server renames, defines in another way or takes away after a person
// has approved a call of it does not run (issue 14, "Bad input").
func TestServe_RenamedAfterTheApproval(t *testing.T) {
	for name, change := range map[string]func(*sdk.Server, func(name, about string)){
		"renamed":     func(s *sdk.Server, add func(string, string)) { add("put_more", "puts"); s.RemoveTools("put") },
		"redefined":   func(_ *sdk.Server, add func(string, string)) { add("put", "puts everything") },
		"taken away":  func(s *sdk.Server, _ func(string, string)) { s.RemoveTools("put") },
		"not changed": func(*sdk.Server, func(string, string)) {},
	} {
		t.Run(name, func(t *testing.T) {
			var effects atomic.Int64
			server := sdk.NewServer(&sdk.Implementation{Name: "up", Version: "1"}, nil)
			add := func(name, about string) {
				server.AddTool(&sdk.Tool{Name: name, Description: about, InputSchema: json.RawMessage(`{"type":"object"}`)},
					func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
						effects.Add(1)
						return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: "put"}}}, nil
					})
			}
			add("put", "puts")
			add("other", "does something else")
			h := httptest.NewServer(sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return server }, nil))
			t.Cleanup(h.Close)
			c := stock(t, "mcpServers: {up: {url: '"+h.URL+"'}}\n")
			review, err := c.s.ReviewMCP(t.Context(), c.who, "up")
			if err == nil {
				err = c.s.AcceptMCP(t.Context(), c.who, review, review.Digest)
			}
			if err != nil {
				t.Fatal(err)
			}
			client := c.client(service.StartRequest{}, nil, nil)
			id := approvalOf(t, call(t, client, "up__put", map[string]any{}))
			c.decide(id, "approve")
			change(server, add)
			if name != "not changed" {
				until(t, "toolcrib has heard of it", func() bool {
					r, err := c.s.ReviewMCP(t.Context(), c.who, "up")
					return err == nil && r.Digest != review.Digest
				})
			}
			r := call(t, client, "collect_result", map[string]any{"approval_id": id})
			if name == "not changed" {
				if r.IsError || effects.Load() != 1 {
					t.Errorf("%s, %d effects", textOf(r), effects.Load())
				}
				return
			}
			if !r.IsError || effects.Load() != 0 {
				t.Errorf("%d effects: %s", effects.Load(), textOf(r))
			}
			if r, err := client.CallTool(t.Context(), &sdk.CallToolParams{Name: "up__put_more"}); err == nil && !r.IsError {
				t.Errorf("the new name is offered: %s", textOf(r))
			}
			if strings.Contains(textOf(r), "untrusted_input") {
				t.Errorf("the server was asked: %s", textOf(r))
			}
		})
	}
}
