package remote

import (
	"cmp"
	"context"
	"net/http"
	"strings"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/api"
	"github.com/toolcrib/toolcrib/client"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/internal/config"
	"github.com/toolcrib/toolcrib/internal/media"
	"github.com/toolcrib/toolcrib/service"
	"github.com/toolcrib/toolcrib/service/mcpset"
	"github.com/toolcrib/toolcrib/store"
)

// agentOf has the fields of an agent that a conversation shows.
type agentOf struct {
	Name     string   `json:"name"`
	Model    string   `json:"model"`
	Fallback []string `json:"fallback"`
	ReadOnly bool     `json:"read_only"`
}

// Ready returns the agent of a request, with the fields that a conversation shows.
func (r *Service) Ready(ctx context.Context, _ toolcrib.Principal, q service.StartRequest) (toolcrib.Agent, error) {
	name := cmp.Or(q.Agent, config.DefaultAgent)
	agents, err := list[agentOf](ctx, r, nil, "agents")
	var names []string
	for _, a := range agents {
		if a.Name == name {
			def := toolcrib.Agent{Name: a.Name, Model: a.Model, Fallback: a.Fallback, ReadOnly: a.ReadOnly || q.ReadOnly}
			if q.Model != "" {
				def.Model, def.Fallback = q.Model, nil
			}
			return def, nil
		}
		names = append(names, a.Name)
	}
	if err == nil {
		text := "there is " + strings.Join(names, ", ")
		if near := guard.Nearest(name, names); near != "" {
			text = "did you mean " + near + "?"
		}
		err = toolcrib.Errorf(toolcrib.CodeBadRequest, "there is no agent %q; %s", name, text)
	}
	return toolcrib.Agent{}, err
}

// Undoable implements [service.Service.Undoable]. The workspace is that of the user on the server.
func (r *Service) Undoable(
	ctx context.Context, _ toolcrib.Principal, run toolcrib.RunID, _ string,
) ([]api.Undo, error) {
	out, err := get[api.WrittenList](ctx, r, nil, "runs", string(run), "written")
	return out.Files, err
}

// RemoveMade implements [service.Service.RemoveMade].
func (r *Service) RemoveMade(
	ctx context.Context, _ toolcrib.Principal, run toolcrib.RunID, path string, by toolcrib.RunID,
) error {
	b := api.RemoveMadeRequest{Path: path, By: by}
	return r.Send(ctx, http.MethodPost, client.Path("runs", string(run), "written"), b, nil)
}

// MCPPrompts returns the prompts of the server's MCP servers.
func (r *Service) MCPPrompts(toolcrib.Principal) ([]api.MCPPrompt, error) {
	return list[api.MCPPrompt](r.ctx, r, nil, "mcp", "prompts")
}

// MCPPrompt returns a prompt of an MCP server, filled in with arguments.
func (r *Service) MCPPrompt(
	ctx context.Context, _ toolcrib.Principal, p api.MCPPrompt, arguments map[string]string,
) (mcpset.Read, error) {
	return r.readMCP(ctx, "prompts", api.MCPPromptRequest{Prompt: p, Arguments: arguments})
}

// MCPResource returns a resource of an MCP server.
func (r *Service) MCPResource(
	ctx context.Context, _ toolcrib.Principal, name, uri string,
) (mcpset.Read, error) {
	return r.readMCP(ctx, "resources", api.MCPResourceRequest{Server: name, URI: uri})
}

func (r *Service) readMCP(ctx context.Context, what string, body any) (mcpset.Read, error) {
	out, err := send[api.MCPContent](ctx, r, http.MethodPost, body, "mcp", what)
	read := mcpset.Read{Text: out.Text, Taint: out.Taint}
	for _, f := range out.Files {
		read.Files = append(read.Files, service.Attachment{MediaType: media.Type(f.Data), Name: f.Name, Data: f.Data})
	}
	return read, err
}

// EnterSession returns the session with this name or ID. One that does not exist is created with its first run.
func (r *Service) EnterSession(ctx context.Context, who toolcrib.Principal, name string) (*service.Session, error) {
	info, err := r.Session(ctx, who, name)
	if toolcrib.CodeOf(err) == toolcrib.CodeNotFound && name != "last" {
		if strings.HasPrefix(name, store.SessionPrefix) {
			return nil, err
		}
		if err := store.CheckSessionName(name); err != nil {
			return nil, toolcrib.Errorf(toolcrib.CodeBadRequest, "session: %v", err)
		}
		return &service.Session{Name: name}, nil
	}
	return &service.Session{Name: name, Info: info}, err
}

// LastConversation returns the session of the newest run.
func (r *Service) LastConversation(ctx context.Context, who toolcrib.Principal) (*service.Session, error) {
	return service.LastConversation(ctx, who, r, func(run toolcrib.RunID) string {
		return service.ToContinue("", run, "toolcrib")
	})
}
