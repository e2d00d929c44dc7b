package service

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/api"
	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/internal/trust"
	"github.com/toolcrib/toolcrib/mcp"
	"github.com/toolcrib/toolcrib/service/env"
)

// MCPPrompts returns the prompts of the MCP servers, as they were reviewed. Nothing is started.
func (s *Service) MCPPrompts(who toolcrib.Principal) ([]api.MCPPrompt, error) {
	if err := env.RequireUser(who); err != nil {
		return nil, err
	}
	var out []api.MCPPrompt
	for _, m := range s.knowMCP() {
		if m.client == nil {
			continue
		}
		for _, p := range m.offers().Prompts {
			out = append(out, api.MCPPrompt{Prompt: p, Server: m.Name})
		}
	}
	return out, nil
}

// MCPRead is what an MCP server gave for a prompt.
type MCPRead struct {
	Text  string
	Files []Attachment
	Taint []string // untrusted data that is in it; null = the server is trusted
}

// MCPPrompt returns what an MCP server makes of a prompt. Unless the server is trusted, a run that is
// given it has read untrusted data.
func (s *Service) MCPPrompt(
	ctx context.Context, who toolcrib.Principal, p api.MCPPrompt, arguments map[string]string,
) (out MCPRead, err error) {
	m, err := s.reviewedMCP(ctx, who, p.Server)
	if err != nil {
		return out, err
	}
	if !slices.ContainsFunc(m.offers().Prompts, func(now api.Prompt) bool { return reflect.DeepEqual(now, p.Prompt) }) {
		return out, env.BadRequestf("MCP server %s has changed what it offers since it was reviewed; to review it: %s mcp review %s",
			p.Server, s.Env.Self, trust.ShellWord(p.Server))
	}
	for _, a := range p.Arguments {
		if a.Required && arguments[a.Name] == "" {
			return out, env.BadRequestf("the prompt %s of MCP server %s needs %s", p.Name, p.Server, a.Name)
		}
	}
	got, err := m.client.Prompt(ctx, p.Name, arguments)
	if err != nil {
		return out, err
	}
	out = m.read(got)
	out.Text = strings.TrimSpace(guard.Fit(got, guard.FitOptions{Masker: s.Env.Mask}).Content)
	if out.Text == "" && len(out.Files) == 0 {
		return out, fmt.Errorf("the prompt %s of MCP server %s is empty", p.Name, p.Server)
	}
	return out, nil
}

// MCPResource returns a resource of an MCP server, as files that go with a prompt.
func (s *Service) MCPResource(
	ctx context.Context, who toolcrib.Principal, server, uri string,
) (out MCPRead, err error) {
	m, err := s.reviewedMCP(ctx, who, server)
	if err != nil {
		return out, err
	}
	if !m.offers().Resources {
		return out, env.BadRequestf("MCP server %s has no resources that were reviewed; to review them: %s mcp review %s", server,
			s.Env.Self, server)
	}
	got, err := m.client.Read(ctx, uri)
	if err != nil {
		return out, err
	}
	out = m.read(got)
	if got.Text != "" {
		fitted := guard.Fit(got, guard.FitOptions{MaxBytes: toolcrib.MaxFileBytes, Masker: s.Env.Mask})
		out.Files = append(out.Files, toolcrib.OutputFile{MediaType: "text/plain", Name: uri, Data: []byte(fitted.Content)})
	}
	if len(out.Files) == 0 {
		return out, toolcrib.Errorf(toolcrib.CodeNotFound, "the resource %s of MCP server %s is empty", uri, server)
	}
	return out, nil
}

// read are the files that a server sent, and whether they are trusted.
func (m *mcpServer) read(got toolcrib.Output) MCPRead {
	out := MCPRead{Files: got.Files}
	if !m.Trusted {
		out.Taint = []string{m.pin()}
	}
	return out
}

// MayReadMCP returns an error if who may not read what an MCP server has beside tools: its prompts are
// for those who may use the group of its tools, its resources for those who may use the tool by which models
// read them. Here it is not asked: whoever sits at the machine starts the servers themselves.
func (s *Service) MayReadMCP(ctx context.Context, who toolcrib.Principal, server string, resources bool) error {
	var switches gate.Availability = &availability{store: s.Env.Store}
	if !s.Env.Config.Tools.Enabled {
		switches = gate.Overrides{Off: true}
	}
	g, err := gate.New(gate.Options{Availability: switches, People: s.Standing()})
	if err != nil {
		return err
	}
	spec := toolcrib.Spec{Name: "mcp:" + server, Group: "mcp:" + server, EnabledByDefault: true}
	if resources {
		spec.Name, spec.Group = mcp.ReadResource, mcp.ResourceGroup
	}
	return g.MayUse(ctx, who, spec)
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
	if err := env.RequireUser(who); err != nil {
		return nil, err
	}
	m, err := mcpNamed(s.knowMCP(), name)
	switch {
	case err != nil:
		return nil, err
	case m.client == nil:
		return nil, s.notRunning(name, m.problem)
	case m.pinned() == nil:
		return nil, env.BadRequestf("MCP server %s was not reviewed yet; to review it: %s mcp review %s", name, s.Env.Self, name)
	}
	s.startMCP(ctx, []*mcpServer{m}, 0)
	if v := s.viewMCP(m); v.State != MCPRunning {
		return nil, s.notRunning(name, cmp.Or(v.Detail, "it has not started yet"))
	}
	return m, nil
}

// notRunning is the error of a server that does not run. Why may name paths, so it is not in the message.
func (s *Service) notRunning(name, why string) error {
	return &toolcrib.Error{
		Code:    toolcrib.CodeConflict,
		Message: fmt.Sprintf("MCP server %s does not run; to see why: %s mcp list", name, s.Env.Self), Err: errors.New(why),
	}
}
