package server

import (
	"errors"
	"net/http"
	"slices"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/api"
	"github.com/toolcrib/toolcrib/service"
	"github.com/toolcrib/toolcrib/service/mcpset"
)

// The routes that a conversation needs in addition to those of its runs.

func conversationRoutes() []route {
	return []route{
		ofRun("/api/runs/{id}/written", "The files that a run wrote, with what they were before", (*call).written),
		send(http.MethodPost, "/api/runs/{id}/written", "Remove a file that the run made, after another run has emptied it",
			(*call).removeMade),
		get("/api/mcp/prompts", "The prompts of MCP servers", (*call).mcpPrompts),
		send(http.MethodPost, "/api/mcp/prompts", "What an MCP server makes of a prompt", (*call).mcpPrompt),
		send(http.MethodPost, "/api/mcp/resources", "A resource of an MCP server", (*call).mcpResource),
	}
}

func (c *call) written(run toolcrib.RunID) (out api.WrittenList, err error) {
	own, err := c.Service.Policy.OwnWorkspace(c.who)
	if err == nil {
		out.Files, err = c.Service.Undoable(c, c.who, run, own)
	}
	return out, err
}

func (c *call) removeMade(b api.RemoveMadeRequest) (service.Run, error) {
	run, err := c.run()
	if err == nil {
		err = c.Service.RemoveMade(c, c.who, run.ID, b.Path, b.By)
	}
	return run, err
}

func (c *call) mcpPrompts() (out api.MCPPromptList, err error) {
	if err = c.readsMCP(); err != nil {
		return out, err
	}
	out.Prompts, err = c.Service.MCP.MCPPrompts(c.who)
	may := map[string]bool{}
	for _, p := range out.Prompts {
		if _, known := may[p.Server]; !known {
			may[p.Server] = c.Service.Policy.MayReadMCP(c, c.who, p.Server, false) == nil
		}
	}
	refused := func(p api.MCPPrompt) bool { return !may[p.Server] }
	out.Prompts = append([]api.MCPPrompt{}, slices.DeleteFunc(out.Prompts, refused)...)
	return out, err
}

func (c *call) mcpPrompt(b api.MCPPromptRequest) (api.MCPContent, error) {
	return c.ofMCP(b.Prompt.Server, false, func() (mcpset.Read, error) {
		return c.Service.MCP.MCPPrompt(c, c.who, b.Prompt, b.Arguments)
	})
}

func (c *call) mcpResource(b api.MCPResourceRequest) (api.MCPContent, error) {
	return c.ofMCP(b.Server, true, func() (mcpset.Read, error) {
		return c.Service.MCP.MCPResource(c, c.who, b.Server, b.URI)
	})
}

func (c *call) ofMCP(
	server string, resources bool, read func() (mcpset.Read, error),
) (out api.MCPContent, err error) {
	if err = c.readsMCP(); err == nil {
		err = c.Service.Policy.MayReadMCP(c, c.who, server, resources)
	}
	if err != nil {
		return out, err
	}
	got, err := read()
	if failed := (*toolcrib.ToolError)(nil); errors.As(err, &failed) { // the text for a model
		err = toolcrib.Errorf(toolcrib.CodeConflict, "%s", c.Service.Env.Mask.Clean(failed.Error()))
	}
	out.Text, out.Taint = got.Text, got.Taint
	for _, f := range got.Files {
		out.Files = append(out.Files, api.File{Name: f.Name, Data: f.Data})
	}
	return out, err
}

// readsMCP returns an error if the principal is limited to the scope of an access token.
func (c *call) readsMCP() error {
	if c.who.Token != "" {
		return toolcrib.Errorf(toolcrib.CodeScopeInsufficient,
			"an access token that proves no sign-in reaches MCP servers by their tools only, in its scope")
	}
	return nil
}
