package mcpset

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
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/internal/trust"
	"github.com/toolcrib/toolcrib/service/env"
)

// MCPPrompts returns the prompts of the MCP servers, as they were reviewed. It does not start any.
func (s *Set) MCPPrompts(who toolcrib.Principal) ([]api.MCPPrompt, error) {
	if err := env.RequireUser(who); err != nil {
		return nil, err
	}
	var out []api.MCPPrompt
	for _, m := range s.know() {
		if m.client == nil {
			continue
		}
		for _, p := range m.offers().Prompts {
			out = append(out, api.MCPPrompt{Prompt: p, Server: m.Name})
		}
	}
	return out, nil
}

// Read is the content of a prompt or a resource of an MCP server.
type Read struct {
	Text  string
	Files []toolcrib.OutputFile
	Taint []string // untrusted data that is in it; null = the server is trusted
}

// MCPPrompt expands a prompt of an MCP server. Unless the server is trusted, the result is untrusted data.
func (s *Set) MCPPrompt(
	ctx context.Context, who toolcrib.Principal, p api.MCPPrompt, arguments map[string]string,
) (out Read, err error) {
	m, err := s.reviewedServer(ctx, who, p.Server)
	if err != nil {
		return out, err
	}
	if !slices.ContainsFunc(m.offers().Prompts, func(now api.Prompt) bool { return reflect.DeepEqual(now, p.Prompt) }) {
		return out, env.BadRequestf("MCP server %s has changed what it offers since it was reviewed; to review it: %s mcp review %s",
			p.Server, s.env.Self, trust.ShellWord(p.Server))
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
	out.Text = strings.TrimSpace(guard.Fit(got, guard.FitOptions{Masker: s.env.Mask}).Content)
	if out.Text == "" && len(out.Files) == 0 {
		return out, fmt.Errorf("the prompt %s of MCP server %s is empty", p.Name, p.Server)
	}
	return out, nil
}

// MCPResource returns a resource of an MCP server, as files to attach to a prompt.
func (s *Set) MCPResource(
	ctx context.Context, who toolcrib.Principal, server, uri string,
) (out Read, err error) {
	m, err := s.reviewedServer(ctx, who, server)
	if err != nil {
		return out, err
	}
	if !m.offers().Resources {
		return out, env.BadRequestf("MCP server %s has no resources that were reviewed; to review them: %s mcp review %s", server,
			s.env.Self, server)
	}
	got, err := m.client.Read(ctx, uri)
	if err != nil {
		return out, err
	}
	out = m.read(got)
	if got.Text != "" {
		fitted := guard.Fit(got, guard.FitOptions{MaxBytes: toolcrib.MaxFileBytes, Masker: s.env.Mask})
		out.Files = append(out.Files, toolcrib.OutputFile{MediaType: "text/plain", Name: uri, Data: []byte(fitted.Content)})
	}
	if len(out.Files) == 0 {
		return out, toolcrib.Errorf(toolcrib.CodeNotFound, "the resource %s of MCP server %s is empty", uri, server)
	}
	return out, nil
}

// read returns the files of an answer, and their taint unless the server is trusted.
func (m *server) read(got toolcrib.Output) Read {
	out := Read{Files: got.Files}
	if !m.Trusted {
		out.Taint = []string{m.pin()}
	}
	return out
}

// named returns the server of that name.
func named(list []*server, name string) (*server, error) {
	if i := slices.IndexFunc(list, func(m *server) bool { return m.Name == name }); i >= 0 {
		return list[i], nil
	}
	return nil, toolcrib.Errorf(toolcrib.CodeNotFound, "there is no MCP server %q", name)
}

// reviewedServer starts a server that was reviewed.
func (s *Set) reviewedServer(ctx context.Context, who toolcrib.Principal, name string) (*server, error) {
	if err := env.RequireUser(who); err != nil {
		return nil, err
	}
	m, err := named(s.know(), name)
	switch {
	case err != nil:
		return nil, err
	case m.client == nil:
		return nil, s.notRunning(name, m.problem)
	case m.pinned() == nil:
		return nil, env.BadRequestf("MCP server %s was not reviewed yet; to review it: %s mcp review %s", name, s.env.Self, name)
	}
	s.start(ctx, []*server{m}, 0)
	if v := s.view(m); v.State != StateRunning {
		return nil, s.notRunning(name, cmp.Or(v.Detail, "it has not started yet"))
	}
	return m, nil
}

// notRunning returns the error for a server that does not run. why may contain paths, so it is not in the message.
func (s *Set) notRunning(name, why string) error {
	return &toolcrib.Error{
		Code:    toolcrib.CodeConflict,
		Message: fmt.Sprintf("MCP server %s does not run; to see why: %s mcp list", name, s.env.Self), Err: errors.New(why),
	}
}
