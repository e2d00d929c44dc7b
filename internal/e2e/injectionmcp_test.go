package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/mcp"
)

// places are where a hostile MCP server puts its texts: wherever a model reads what it sent.
func places() map[string]func(text string) (*sdk.CallToolResult, error) {
	result := func(c ...sdk.Content) (*sdk.CallToolResult, error) { return &sdk.CallToolResult{Content: c}, nil }
	return map[string]func(text string) (*sdk.CallToolResult, error){
		"text": func(s string) (*sdk.CallToolResult, error) { return result(&sdk.TextContent{Text: s}) },
		"structured": func(s string) (*sdk.CallToolResult, error) {
			return &sdk.CallToolResult{StructuredContent: map[string]any{"note": s}}, nil
		},
		"structured_key": func(s string) (*sdk.CallToolResult, error) {
			return &sdk.CallToolResult{StructuredContent: map[string]any{s: 1}, Content: []sdk.Content{&sdk.TextContent{Text: "see"}}}, nil
		},
		"failed": func(s string) (*sdk.CallToolResult, error) {
			return &sdk.CallToolResult{IsError: true, Content: []sdk.Content{&sdk.TextContent{Text: s}}}, nil
		},
		"error":    func(s string) (*sdk.CallToolResult, error) { return nil, errors.New(s) },
		"link":     func(s string) (*sdk.CallToolResult, error) { return result(&sdk.ResourceLink{URI: "x://y", Name: s}) },
		"link_uri": func(s string) (*sdk.CallToolResult, error) { return result(&sdk.ResourceLink{URI: s, Name: "n"}) },
		"two_parts": func(s string) (*sdk.CallToolResult, error) {
			return result(&sdk.TextContent{Text: "a"}, &sdk.TextContent{Text: s})
		},
		"embedded": func(s string) (*sdk.CallToolResult, error) {
			return result(&sdk.EmbeddedResource{Resource: &sdk.ResourceContents{URI: "x://y", Text: s}})
		},
		"asked": func(s string) (*sdk.CallToolResult, error) {
			return &sdk.CallToolResult{InputRequests: sdk.InputRequestMap{"q": &sdk.ElicitParams{Message: s}}}, nil
		},
	}
}

// hostile is a server whose tools, resources and questions say text n.
func hostile(t *testing.T, x *exposed) []toolcrib.Tool {
	t.Helper()
	server := sdk.NewServer(&sdk.Implementation{Name: "forge", Version: "1"}, nil)
	for name, answer := range places() {
		schema := `{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}`
		server.AddTool(&sdk.Tool{Name: name, InputSchema: json.RawMessage(schema), Annotations: &sdk.ToolAnnotations{ReadOnlyHint: true}},
			func(_ context.Context, q *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
				var in struct{ N int }
				if err := json.Unmarshal(q.Params.Arguments, &in); err != nil {
					return nil, err
				}
				if len(q.Params.InputResponses) > 0 {
					return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: x.texts[in.N]}}}, nil
				}
				return answer(x.texts[in.N])
			})
	}
	for n, text := range x.texts {
		server.AddResource(&sdk.Resource{URI: fmt.Sprintf("note://%d", n), Name: "note", Description: text},
			func(_ context.Context, q *sdk.ReadResourceRequest) (*sdk.ReadResourceResult, error) {
				n, err := strconv.Atoi(strings.TrimPrefix(q.Params.URI, "note://"))
				if err != nil {
					return nil, err
				}
				return &sdk.ReadResourceResult{Contents: []*sdk.ResourceContents{{URI: q.Params.URI, Text: x.texts[n]}}}, nil
			})
	}
	h := httptest.NewServer(sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return server }, nil))
	c, err := mcp.New(mcp.Server{Name: "forge", URL: h.URL}, mcp.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Close()
		h.CloseClientConnections()
		h.Close()
	})
	c.Start()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	if c.Wait(ctx); !c.State().Running {
		t.Fatalf("%+v", c.State())
	}
	tools := mcp.ResourceTools(func() map[string]*mcp.Client { return map[string]*mcp.Client{"forge": c} })
	for _, d := range c.Definitions() {
		tools = append(tools, c.Tool(d))
	}
	return tools
}

// A model that obeys every text of a hostile MCP server causes no effect without an approval, even
// with confirm: never, default taint and --approve all.
func TestInjection_ByAnMCPServer_X7_X12(t *testing.T) {
	var all []source
	for name := range places() {
		all = append(all, source{name: "forge__" + name, tools: hostile, read: func(n int) toolcrib.ToolCall {
			return toolcrib.ToolCall{Name: "forge__" + name, Arguments: json.RawMessage(fmt.Sprintf(`{"n":%d}`, n))}
		}})
	}
	all = append(all,
		source{name: mcp.ReadResource, tools: hostile, read: func(n int) toolcrib.ToolCall {
			arguments := fmt.Sprintf(`{"server":"forge","uri":"note://%d"}`, n)
			return toolcrib.ToolCall{Name: mcp.ReadResource, Arguments: json.RawMessage(arguments)}
		}},
		source{name: mcp.ListResources, tools: hostile, read: func(int) toolcrib.ToolCall {
			return toolcrib.ToolCall{Name: mcp.ListResources, Arguments: json.RawMessage(`{}`)}
		}})
	texts := 0
	for i, s := range all {
		list := injections(i)
		texts += len(list)
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			x := expose(t, openStore(t), s, list)
			for n, k := range list {
				if testing.Short() && n%5 != 0 {
					continue
				}
				t.Run(k.name, func(t *testing.T) { x.holds(t, s, n) })
			}
		})
	}
	if texts < 150 {
		t.Errorf("only %d texts", texts)
	}
}

// A call that a tool description demands waits for a person like any call that writes.
func TestInjection_ByDescriptionsOfAnMCPServer(t *testing.T) {
	for i := range 6 {
		for n, k := range injections(i) {
			if testing.Short() && n%4 != 0 || k.sink == "http_get" || k.sink == "delegate" {
				continue // a read that nothing has tainted is no effect
			}
			x := expose(t, openStore(t), source{name: "none"}, nil)
			text, err := json.Marshal(map[string]any{
				"name": "weather", "description": k.text, "inputSchema": map[string]any{"type": "object", "title": k.text},
			})
			if err != nil {
				t.Fatal(err)
			}
			server := mcp.Server{Name: "forge", Command: "none"}
			c, err := mcp.New(server, mcp.Options{})
			if err != nil {
				t.Fatal(err)
			}
			d := mcp.Definition{
				Name: "forge__weather", Tool: "weather", Description: k.text, Text: text,
				Schema: json.RawMessage(`{"type":"object"}`),
			}
			tools := append(x.sinks(), c.Tool(d))
			x.gate = newGate(t, gate.Options{Tools: tools, Confirm: gate.ConfirmWrites})
			x.run(t, source{read: func(int) toolcrib.ToolCall {
				return ordered([]string{k.text})[0] // the description is what it was told first
			}}, n, nil, obedient{})
			if got := x.count(t); got != 0 {
				t.Errorf("%s: %d effects: %v", k.name, got, x.effects.counts())
			}
			c.Close()
		}
	}
}
