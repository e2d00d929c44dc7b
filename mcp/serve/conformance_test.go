package serve_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolcrib/toolcrib/mcp/serve"
	"github.com/toolcrib/toolcrib/service"
)

// The official conformance suite, through the whole of toolcrib: its fixtures are the official
// Go SDK's server for the suite, whose tools pass the gate. The suite knows servers by HTTP and
// the tools by their own names, so the test has the SDK's transport in front, and takes the
// server's name off. What does not pass is listed with reasons in testdata/conformance.yml; one
// that passes unexpectedly fails the test, too. With -short it is one scenario of some forty.
func TestConformance(t *testing.T) {
	suite := npm(t, "@modelcontextprotocol/conformance@0.2.0-alpha.12")
	node, err := filepath.Glob(filepath.Join(npmAt, "node-*_22.23.3", "node_modules", "node-*", "bin", "node"))
	if err != nil || len(node) == 0 {
		t.Skip("SKIP: node 22, which the suite needs, is not installed; run scripts/npm")
	}
	fixtures := filepath.Join(t.TempDir(), "everything-server")
	build := exec.Command("go", "build", "-o", fixtures, "github.com/modelcontextprotocol/go-sdk/conformance/everything-server")
	if out, err := build.CombinedOutput(); err != nil {
		t.Skipf("SKIP: the suite's fixtures cannot be built: %v\n%s", err, out)
	}
	expected, err := filepath.Abs("testdata/conformance.yml")
	if err != nil {
		t.Fatal(err)
	}
	for _, version := range []string{"2025-11-25", "2026-07-28"} {
		t.Run(version, func(t *testing.T) {
			c := stock(t, fmt.Sprintf("tools: {confirm: never}\nmcpServers: {fix: {command: %s, trusted: true}}\n", fixtures))
			review, err := c.s.ReviewMCP(t.Context(), c.who, "fix")
			if err == nil {
				err = c.s.AcceptMCP(t.Context(), c.who, review, review.Digest)
			}
			if err != nil {
				t.Fatal(err)
			}
			scenarios := []string{"--suite", "all", "--expected-failures", expected}
			if testing.Short() {
				scenarios = []string{"--scenario", "tools-call-with-progress"}
			}
			server := httptest.NewServer(c.overHTTP(version >= "2026-07-28"))
			defer server.Close()
			command := exec.Command(node[0], append([]string{
				filepath.Join(suite, "node_modules/@modelcontextprotocol/conformance/dist/index.js"), "server", "--url", server.URL,
				"--spec-version", version,
			}, scenarios...)...)
			command.Dir = c.work
			out, err := command.CombinedOutput()
			if _, summary, ok := strings.Cut(string(out), "SUMMARY"); ok {
				t.Logf("%s", summary)
			}
			if err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

// overHTTP serves over HTTP, with the tools of the server fix under their own names. Without
// state each request has a server of its own.
func (c *crib) overHTTP(stateless bool) http.Handler {
	const prefix = "fix__"
	ctx, cancel := context.WithCancel(context.Background())
	c.t.Cleanup(cancel)
	return sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server {
		serving, err := c.s.Serve(ctx, c.who, service.StartRequest{})
		if err != nil {
			c.t.Error(err)
			return nil
		}
		context.AfterFunc(ctx, serving.Close)
		server, err := serve.New(serve.Options{Serving: serving, Version: "1", Self: "toolcrib", Mask: strings.TrimSpace}).Over(ctx)
		if err != nil {
			c.t.Error(err)
			return nil
		}
		server.AddReceivingMiddleware(func(next sdk.MethodHandler) sdk.MethodHandler {
			return func(ctx context.Context, method string, req sdk.Request) (sdk.Result, error) {
				if call, ok := req.GetParams().(*sdk.CallToolParamsRaw); ok && strings.HasPrefix(call.Name, "test_") ||
					ok && strings.HasPrefix(call.Name, "json_") {
					call.Name = prefix + call.Name
				}
				result, err := next(ctx, method, req)
				if list, ok := result.(*sdk.ListToolsResult); ok {
					own := *list
					own.Tools = nil
					for _, tool := range list.Tools {
						named := *tool
						named.Name = strings.TrimPrefix(named.Name, prefix)
						own.Tools = append(own.Tools, &named)
					}
					result = &own
				}
				return result, err
			}
		})
		return server
	}, &sdk.StreamableHTTPOptions{Stateless: stateless, SessionTimeout: time.Minute})
}
