package service_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolcrib/toolcrib/internal/config"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/service"
	"github.com/toolcrib/toolcrib/service/env"
	"github.com/toolcrib/toolcrib/service/mcpset"
)

// manyTools is an MCP server with n tools.
func manyTools(b *testing.B, n int) string {
	b.Helper()
	server := sdk.NewServer(&sdk.Implementation{Name: "many", Version: "1"}, nil)
	for i := range n {
		schema := `{"type":"object","properties":{"path":{"type":"string","description":"where"},` +
			`"limit":{"type":"integer","minimum":1,"maximum":100},"kind":{"enum":["a","b","c"]}},"required":["path"]}`
		server.AddTool(&sdk.Tool{
			Name: fmt.Sprintf("tool_%d", i), Description: strings.Repeat("does a thing ", 10),
			InputSchema: json.RawMessage(schema),
		}, func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
			return &sdk.CallToolResult{}, nil
		})
	}
	h := httptest.NewServer(sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return server }, nil))
	b.Cleanup(h.Close)
	return h.URL
}

// The time until the first request to the model is sent, with 50 running MCP servers and 1,000 tools (at most 150 ms),
// in a process that has not used them yet.
func BenchmarkMCP_FirstRequest(b *testing.B) {
	b.Setenv("HOME", b.TempDir())
	b.Setenv("XDG_CONFIG_HOME", "")
	arrived := make(chan time.Time, 1)
	model := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		select {
		case arrived <- time.Now():
		default:
		}
		_, _ = io.Copy(io.Discard, q.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, "data: {\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"done\"},\"finish_reason\":\"stop\"}]}\n\n"+
			"data: [DONE]\n\n")
	}))
	b.Cleanup(model.Close)
	text := "providers: {demo: {type: openai, api_key: none, base_url: '" + model.URL + "'}}\n" +
		"agents: {default: {model: demo/x}}\nmcpServers:\n"
	const servers, tools = 50, 20
	for i := range servers {
		text += fmt.Sprintf("  s%d: {url: '%s'}\n", i, manyTools(b, tools))
	}
	dir := b.TempDir()
	path := filepath.Join(dir, "toolcrib.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		b.Fatal(err)
	}
	c, err := config.Load(config.Source{Path: path, Origin: config.OriginFlag}, nil)
	if err != nil {
		b.Fatal(err)
	}
	fresh := func() *service.Service {
		s := service.New(env.Options{
			Config: c, DataDir: filepath.Join(dir, "data"), Driver: "test", NoSandbox: func() string { return "" },
			Notice: func(text string) { b.Log(text) },
		})
		if err := s.Env.Open(b.Context()); err != nil {
			b.Fatal(err)
		}
		list, err := s.MCP.Servers(b.Context(), root, mcpset.LookTime)
		if err != nil || len(list) != servers {
			b.Fatal(len(list), err)
		}
		return s
	}
	s := fresh()
	for i := range servers {
		r, err := s.MCP.Review(b.Context(), root, fmt.Sprintf("s%d", i))
		if err == nil {
			err = s.MCP.Accept(b.Context(), root, r, r.Digest)
		}
		if err != nil {
			b.Fatal(err)
		}
	}
	_ = s.Close()
	var sum time.Duration
	for b.Loop() {
		b.StopTimer()
		s := fresh()
		b.StartTimer()
		began := time.Now()
		offered := 0
		run, err := s.Start(b.Context(), root, service.StartRequest{Prompt: "hello", Workspace: dir},
			service.Front{Watch: func(f journal.Frame) {
				if started, ok := f.Data.(journal.StartedView); ok {
					offered = len(started.Offered)
				}
			}})
		b.StopTimer()
		if err != nil || offered < servers*tools {
			b.Fatalf("%+v, %v", run, err)
		}
		sum += (<-arrived).Sub(began)
		_ = s.Close()
		b.StartTimer()
	}
	b.ReportMetric(float64(sum.Milliseconds())/float64(b.N), "ms/first-request")
}
