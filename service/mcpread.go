package service

import (
	"cmp"
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/internal/trust"
	"github.com/toolcrib/toolcrib/mcp"
)

// MCPPrompt is a prompt of an MCP server.
type MCPPrompt struct {
	mcp.Prompt
	Server string `json:"server"`
}

// MCPPrompts returns the prompts of the MCP servers, as they were reviewed. Nothing is started.
func (s *Service) MCPPrompts(who toolcrib.Principal) ([]MCPPrompt, error) {
	if err := somebody(who); err != nil {
		return nil, err
	}
	var out []MCPPrompt
	for _, m := range s.knowMCP() {
		if m.client == nil {
			continue
		}
		for _, p := range m.offers().Prompts {
			out = append(out, MCPPrompt{p, m.Name})
		}
	}
	return out, nil
}

// AddPrompt adds to a task what an MCP server makes of a prompt: its text, and files. Unless
// the server is trusted the run has read untrusted data then.
func (s *Service) AddPrompt(ctx context.Context, who toolcrib.Principal, task *agent.Task, p MCPPrompt,
	arguments map[string]string,
) error {
	m, err := s.reviewedMCP(ctx, who, p.Server)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(m.offers().Prompts, func(now mcp.Prompt) bool { return reflect.DeepEqual(now, p.Prompt) }) {
		return badRequestf("MCP server %s has changed what it offers since it was reviewed; to review it: %s mcp review %s",
			p.Server, s.Self, trust.ShellWord(p.Server))
	}
	for _, a := range p.Arguments {
		if a.Required && arguments[a.Name] == "" {
			return badRequestf("the prompt %s of MCP server %s needs %s", p.Name, p.Server, a.Name)
		}
	}
	out, err := m.client.Prompt(ctx, p.Name, arguments)
	if err != nil {
		return err
	}
	text := guard.Fit(out, guard.FitOptions{Masker: s.Mask}).Content
	if strings.TrimSpace(text) == "" && len(out.Files) == 0 {
		return fmt.Errorf("the prompt %s of MCP server %s is empty", p.Name, p.Server)
	}
	task.Prompt = strings.TrimSpace(task.Prompt + "\n\n" + text)
	task.Files = append(task.Files, out.Files...)
	m.taints(task)
	return nil
}

// AddResource adds a resource of an MCP server to a task, as a file.
func (s *Service) AddResource(ctx context.Context, who toolcrib.Principal, task *agent.Task, server, uri string) error {
	m, err := s.reviewedMCP(ctx, who, server)
	if err != nil {
		return err
	}
	if !m.offers().Resources {
		return badRequestf("MCP server %s has no resources that were reviewed; to review them: %s mcp review %s", server,
			s.Self, server)
	}
	out, err := m.client.Read(ctx, uri)
	if err != nil {
		return err
	}
	if out.Text != "" {
		fitted := guard.Fit(out, guard.FitOptions{MaxBytes: toolcrib.MaxFileBytes, Masker: s.Mask})
		out.Files = append(out.Files, toolcrib.OutputFile{MediaType: "text/plain", Name: uri, Data: []byte(fitted.Content)})
	}
	if len(out.Files) == 0 {
		return fmt.Errorf("the resource %s of MCP server %s is empty", uri, server)
	}
	task.Files = append(task.Files, out.Files...)
	m.taints(task)
	return nil
}

// taints notes in a task that it has what a server sent.
func (m *mcpServer) taints(task *agent.Task) {
	if source := m.pin(); !m.Trusted && !slices.Contains(task.Taint, source) {
		task.Taint = append(task.Taint, source)
	}
}

// HasMCP reports whether there is an MCP server of that name.
func (s *Service) HasMCP(name string) bool {
	_, err := mcpNamed(s.knowMCP(), name)
	return err == nil
}

// mcpNamed finds a server by its name.
func mcpNamed(list []*mcpServer, name string) (*mcpServer, error) {
	if i := slices.IndexFunc(list, func(m *mcpServer) bool { return m.Name == name }); i >= 0 {
		return list[i], nil
	}
	return nil, toolcrib.Errorf(toolcrib.CodeNotFound, "there is no MCP server %q", name)
}

// reviewedMCP returns a server that was reviewed, started.
func (s *Service) reviewedMCP(ctx context.Context, who toolcrib.Principal, name string) (*mcpServer, error) {
	if err := somebody(who); err != nil {
		return nil, err
	}
	m, err := mcpNamed(s.knowMCP(), name)
	switch {
	case err != nil:
		return nil, err
	case m.client == nil:
		return nil, fmt.Errorf("MCP server %s does not run: %s", name, m.problem)
	case m.pinned() == nil:
		return nil, badRequestf("MCP server %s was not reviewed yet; to review it: %s mcp review %s", name, s.Self, name)
	}
	s.startMCP(ctx, []*mcpServer{m})
	if v := s.viewMCP(m); v.State != MCPRunning {
		return nil, fmt.Errorf("MCP server %s does not run: %s", name, cmp.Or(v.Detail, "it has not started yet"))
	}
	return m, nil
}
