package crash

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/mcp"
)

// serverEnv makes a program play an MCP server on its standard input: the folder of the
// scenario.
const serverEnv = "TOOLCRIB_CRASH_MCP"

// playServer plays an MCP server, if the program was started as one; then it does not return.
// Its effects are lines of effectsFile, like those of functions. It ends with the process that
// started it, wherever that is killed.
func playServer() {
	dir := os.Getenv(serverEnv)
	if dir == "" {
		return
	}
	s := sdk.NewServer(&sdk.Implementation{Name: "crash", Version: "1"}, nil)
	for _, name := range []string{"append", "append_and_die"} {
		schema := `{"type":"object","properties":{"key":{"type":"string"}},"required":["key"]}`
		s.AddTool(&sdk.Tool{Name: name, InputSchema: json.RawMessage(schema)},
			func(_ context.Context, q *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
				var in keyed
				err := json.Unmarshal(q.Params.Arguments, &in)
				if err == nil {
					err = appendLine(filepath.Join(dir, effectsFile), strings.TrimPrefix(in.Key, "key-")+" "+in.Key)
				}
				if name == "append_and_die" {
					os.Exit(1)
				}
				return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: in.Key}}}, err
			})
	}
	if err := s.Run(context.Background(), &sdk.StdioTransport{}); err != nil {
		os.Exit(1)
	}
	os.Exit(0)
}

// mcpTools are the tools of the MCP server, which is started. It ends with this process.
func mcpTools(dir string) ([]toolcrib.Tool, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c, err := mcp.New(mcp.Server{Name: "srv", Command: self, Env: map[string]string{serverEnv: dir}}, mcp.Options{})
	if err != nil {
		return nil, err
	}
	c.Start()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	if c.Wait(ctx); !c.State().Running {
		return nil, fmt.Errorf("the MCP server does not run: %+v", c.State())
	}
	var tools []toolcrib.Tool
	for _, d := range c.Definitions() {
		tools = append(tools, c.Tool(d))
	}
	return tools, nil
}
