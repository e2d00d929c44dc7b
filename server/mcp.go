package server

import (
	"net/http"
	"slices"
	"strings"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/mcp/serve"
)

// metadataPath is the prefix of protected resource metadata (RFC 9728).
const metadataPath = "/.well-known/oauth-protected-resource"

// mcpRoutes are the routes of toolcrib as an MCP server, for the default agent and for others.
func mcpRoutes() (list []route) {
	for _, path := range []string{"/mcp", "/mcp/{agent}"} {
		for _, one := range [][2]string{
			{http.MethodPost, "Messages of the Model Context Protocol (streamable HTTP)"},
			{http.MethodGet, "Messages that the MCP server sends on its own, in a session"},
			{http.MethodDelete, "End a session of the MCP server"},
		} {
			r := route{method: one[0], path: path, summary: one[1], mcp: true, events: true, do: (*call).speakMCP}
			if r.method == http.MethodDelete {
				r.status = http.StatusNoContent
			}
			list = append(list, r)
		}
		about := get(metadataPath+path, "How a client of the MCP server is authorized (RFC 9728)", (*call).resource)
		about.open = true
		list = append(list, about)
	}
	return list
}

// speakMCP serves a request of an MCP client.
func (c *call) speakMCP() (any, error) {
	agent := c.r.PathValue("agent")
	if agent != "" && !slices.Contains(c.Service.Env.Config.AgentNames(), agent) {
		return nil, toolcrib.Errorf(toolcrib.CodeNotFound, "there is no agent %q", agent)
	}
	body, err := c.readBody()
	if err != nil {
		return nil, err
	}
	q := &serve.Request{
		Who: c.who, Agent: agent, Body: body,
		Fail: func(status int, text string) { c.failAs(c.w, status, bad("%s", text)) },
	}
	if q.Workspace, err = c.Service.Policy.OwnWorkspace(c.who); err != nil {
		return nil, err
	}
	if err := c.mcp.Serve(c.w, c.r.WithContext(c), q); err != nil {
		return nil, err
	}
	c.wrote = true
	return nil, nil
}

// Resource is protected resource metadata of the MCP server.
type Resource struct {
	Resource string   `json:"resource" jsonschema:"the URL of the MCP server"`
	Name     string   `json:"resource_name"`
	Methods  []string `json:"bearer_methods_supported"`
}

// resource returns the metadata. Tokens are made by toolcrib, so it names no authorization server.
func (c *call) resource() (Resource, error) {
	at := c.origin() + strings.TrimPrefix(c.r.URL.Path, metadataPath)
	return Resource{Resource: at, Name: "toolcrib", Methods: []string{"header"}}, nil
}

// origin returns the origin under which the client reached this server.
func (c *call) origin() string {
	for _, origin := range c.allowed.Load().origins { // perhaps that of a proxy
		if _, host, _ := strings.Cut(origin, "://"); strings.EqualFold(host, c.r.Host) {
			return origin
		}
	}
	if c.r.TLS != nil {
		return "https://" + c.r.Host
	}
	return "http://" + c.r.Host
}

// challenge adds the URL of the metadata to the 401 of a client without a valid token, as the protocol requires.
func (c *call) challenge(err error) error {
	why := ""
	switch toolcrib.CodeOf(err) {
	case toolcrib.CodeUnauthorized:
	case toolcrib.CodeTokenInvalid, toolcrib.CodeTokenRevoked, toolcrib.CodeTokenExpired:
		why = `error="invalid_token", `
	default:
		return err
	}
	c.w.Header().Set("WWW-Authenticate", `Bearer realm="toolcrib", `+why+
		`resource_metadata="`+c.origin()+metadataPath+c.r.URL.EscapedPath()+`"`)
	c.wrote = true
	c.failAs(c.w, http.StatusUnauthorized, err)
	return err
}
