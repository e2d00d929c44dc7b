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

// upstream has an MCP server behind toolcrib, which was reviewed.
func upstream(t *testing.T, server *sdk.Server, yaml string) (*crib, *service.MCPReview) {
	t.Helper()
	h := httptest.NewServer(sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return server }, nil))
	t.Cleanup(h.Close)
	c := stock(t, yaml+"mcpServers: {up: {url: '"+h.URL+"'}}\n")
	review, err := c.s.ReviewMCP(t.Context(), c.who, "up")
	if err == nil {
		err = c.s.AcceptMCP(t.Context(), c.who, review, review.Digest)
	}
	if err != nil {
		t.Fatal(err)
	}
	return c, review
}

// If a server behind toolcrib asks something in the middle of a call, the client is asked, where the protocol has that.
// Elsewhere the server is told at once that nobody is there.
func TestServe_AskedByAServerBehind(t *testing.T) {
	for name, tt := range map[string]struct {
		version string
		answers []any // of the client; it declines after the last
		want    string
		asked   int
	}{
		"answered":    {"2025-11-25", []any{"Ann", "7"}, `accept {"age":7,"name":"Ann"}`, 2},
		"left out":    {"2025-11-25", []any{"Ann", "-"}, `accept {"name":"Ann"}`, 2},
		"asked again": {"2025-11-25", []any{"Ann", "seven", "7"}, `accept {"age":7,"name":"Ann"}`, 3},
		"declined":    {"2025-11-25", nil, "decline null", 1},
		"never fits":  {"2025-11-25", []any{"Ann", "x", "y", "z", "7"}, "cancel null", 4},
		"nobody":      {"2026-07-28", []any{"Ann", "7"}, "cancel null", 0},
	} {
		t.Run(name, func(t *testing.T) {
			server := sdk.NewServer(&sdk.Implementation{Name: "up", Version: "1"}, nil)
			form := json.RawMessage(`{"type":"object","required":["name"],"properties":{` +
				`"name":{"type":"string"},"age":{"type":"integer"}}}`)
			server.AddTool(&sdk.Tool{Name: "ask", InputSchema: json.RawMessage(`{"type":"object"}`)},
				func(ctx context.Context, q *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
					said, ok := q.Params.InputResponses["who"].(*sdk.ElicitResult)
					if !ok {
						return &sdk.CallToolResult{InputRequests: sdk.InputRequestMap{
							"who": &sdk.ElicitParams{Message: "Who are you?", RequestedSchema: form},
						}}, nil
					}
					content, err := json.Marshal(said.Content)
					text := said.Action + " " + string(content)
					return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: text}}}, err
				})
			c, _ := upstream(t, server, "rules: [{name: runs, tools: [\"up__*\"], then: allow}]\n")
			asked := 0
			client := c.client(service.StartRequest{}, func(p *sdk.ElicitParams) *sdk.ElicitResult {
				asked++
				if !strings.Contains(p.Message, "The MCP server up asks: Who are you?") || asked > len(tt.answers) {
					return &sdk.ElicitResult{Action: "decline"}
				}
				return &sdk.ElicitResult{Action: "accept", Content: map[string]any{"answer": tt.answers[asked-1]}}
			}, versions[tt.version])
			r := call(t, client, "up__ask", map[string]any{})
			if !strings.Contains(textOf(r), tt.want) || asked != tt.asked {
				t.Errorf("asked %d times, want %d: %s, want %s", asked, tt.asked, textOf(r), tt.want)
			}
			if tt.asked == 0 {
				return
			}
			runs, _, err := c.s.Runs(t.Context(), c.who, service.RunsQuery{})
			if err != nil {
				t.Fatal(err)
			}
			one, err := c.s.Run(t.Context(), c.who, string(runs[0].ID))
			if err != nil || len(one.Trace) != 1 || one.Trace[0].Name != "ask_user" {
				t.Errorf("%+v, %v", one, err)
			}
		})
	}
}

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
			c, review := upstream(t, server, "")
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
