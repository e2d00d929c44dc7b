// Package mcpfiles reads the MCP servers in configuration files of other products: mcpServers in the
// form of Claude Code, Claude Desktop and Cursor, VS Code's servers and inputs, Zed's context_servers,
// Codex's mcp_servers. It opens no file.
package mcpfiles

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"
	"github.com/tailscale/hujson"

	"github.com/toolcrib/toolcrib/internal/config"
	"github.com/toolcrib/toolcrib/internal/lazyregexp"
)

// Server is a server of a file in the form of an entry of mcpServers.
type Server struct {
	Name    string
	Entry   config.MCPEntry
	Secrets []string // stored secrets that the entry refers to
	Notes   []string // parts of it that are ignored or interpreted differently
	Err     error    // why it cannot be read; if set, only Name is valid
}

// Conceal replaces values in the entry that look like secrets by references to stored secrets.
func (s *Server) Conceal() {
	hide := func(key, name string, value *string) {
		as := secretName.ReplaceAllString(s.Name+"."+name, "_")
		if hidden, found := config.HideSecret(key, *value, as); found {
			*value, s.Secrets = hidden, append(s.Secrets, as)
		}
	}
	for i := range s.Entry.Args {
		hide("", "arg", &s.Entry.Args[i])
	}
	if o := s.Entry.OAuth; o != nil {
		hide("client_secret", "client_secret", &o.ClientSecret)
	}
	for _, values := range []map[string]string{s.Entry.Env, s.Entry.Headers} {
		for key, value := range values {
			hide(key, key, &value)
			values[key] = value
		}
	}
	slices.Sort(s.Secrets)
	s.Secrets = slices.Compact(s.Secrets)
}

// entry has the keys of all products.
type entry struct {
	Type      string            `json:"type"`
	Command   json.RawMessage   `json:"command"` // a string; with Zed also an object
	Args      []string          `json:"args"`
	Env       map[string]any    `json:"env"`
	Cwd       string            `json:"cwd"`
	URL       string            `json:"url"`
	ServerURL string            `json:"serverUrl"`
	Headers   map[string]string `json:"headers"`
	Disabled  bool              `json:"disabled"`
	Enabled   *bool             `json:"enabled"`
	Source    string            `json:"source"`  // Zed: custom
	Timeout   float64           `json:"timeout"` // Claude Code: timeout of a call, in milliseconds
	OAuth     *struct {
		ClientID     string          `json:"clientId"`
		CallbackPort int             `json:"callbackPort"`
		Scopes       string          `json:"scopes"`
		Metadata     json.RawMessage `json:"authServerMetadataUrl"`
	} `json:"oauth"`
	Auth *struct { // Cursor
		ClientID     string   `json:"CLIENT_ID"`
		ClientSecret string   `json:"CLIENT_SECRET"`
		Scopes       []string `json:"scopes"`
	} `json:"auth"`

	EnvVars     []any             `json:"env_vars"` // names, or objects with a name
	Scopes      []string          `json:"scopes"`
	BearerVar   string            `json:"bearer_token_env_var"`
	HTTPHeaders map[string]string `json:"http_headers"`
	EnvHeaders  map[string]string `json:"env_http_headers"`
	ToolTimeout float64           `json:"tool_timeout_sec"`
	Start       float64           `json:"startup_timeout_sec"`
	Enable      []string          `json:"enabled_tools"`
	Disable     []string          `json:"disabled_tools"`
}

type file struct {
	MCPServers     map[string]json.RawMessage `json:"mcpServers"`
	Servers        map[string]json.RawMessage `json:"servers"`
	ContextServers map[string]json.RawMessage `json:"context_servers"`
	Codex          map[string]json.RawMessage `json:"mcp_servers"`
	MCP            *file                      `json:"mcp"` // in VS Code's settings
	Inputs         []struct {
		ID       string `json:"id"`
		Password bool   `json:"password"`
		Default  string `json:"default"`
	} `json:"inputs"`
}

// reading contains the values of references in a file.
type reading struct {
	path   string
	getenv func(string) string
	inputs map[string]string // values of inputs that are not secrets
	millis bool              // timeouts are in milliseconds (Claude Code)
	server *Server
}

// Read returns the servers of a file, sorted by name. path is its absolute path, which determines the
// folder. Secrets in it are replaced by references.
func Read(path string, data []byte, getenv func(string) string) ([]Server, error) {
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	text, err := hujson.Standardize(slices.Clone(data))
	if err != nil {
		var tables map[string]any
		if toml.Unmarshal(data, &tables) != nil {
			return nil, errors.New("is neither JSON nor TOML")
		}
		if text, err = json.Marshal(tables); err != nil {
			return nil, errors.New("cannot be read")
		}
	}
	var f file
	if err := json.Unmarshal(text, &f); err != nil {
		return nil, fmt.Errorf("cannot be read: %w", err)
	}
	if f.MCP != nil && f.Servers == nil {
		f.Servers, f.Inputs = f.MCP.Servers, f.MCP.Inputs
	}
	r := reading{path: path, getenv: getenv, inputs: map[string]string{}, millis: f.MCPServers != nil}
	for _, in := range f.Inputs {
		if !in.Password && in.Default != "" {
			r.inputs[in.ID] = in.Default
		}
	}
	all := map[string]json.RawMessage{}
	for _, servers := range []map[string]json.RawMessage{f.MCPServers, f.Servers, f.ContextServers, f.Codex} {
		maps.Copy(all, servers)
	}
	if len(all) == 0 {
		return nil, errors.New("has no servers: neither mcpServers, servers, context_servers nor mcp_servers")
	}
	var out []Server
	for _, name := range slices.Sorted(maps.Keys(all)) {
		s, err := r.read(name, all[name])
		s.Err = err
		out = append(out, s)
	}
	if !slices.ContainsFunc(out, func(s Server) bool { return s.Err == nil }) {
		return nil, fmt.Errorf("server %s: %w", out[0].Name, out[0].Err)
	}
	return out, nil
}

func (r *reading) read(name string, text json.RawMessage) (Server, error) {
	s := Server{Name: name}
	r.server = &s
	var e entry
	var keys map[string]json.RawMessage
	if err := errors.Join(json.Unmarshal(text, &e), json.Unmarshal(text, &keys)); err != nil {
		return s, errors.New("cannot be read")
	}
	var program struct {
		Path string         `json:"path"`
		Args []string       `json:"args"`
		Env  map[string]any `json:"env"`
	}
	if len(e.Command) > 0 && json.Unmarshal(e.Command, &s.Entry.Command) != nil {
		if json.Unmarshal(e.Command, &program) != nil {
			return s, errors.New("its command must be a text")
		}
		s.Entry.Command, e.Args, e.Env = program.Path, program.Args, program.Env
	}
	s.Entry.Command = r.fill(s.Entry.Command)
	s.Entry.URL = r.fill(cmp.Or(e.URL, e.ServerURL))
	switch {
	case (s.Entry.Command == "") == (s.Entry.URL == ""):
		return s, errors.New("it has neither a program (command) nor an address (url)")
	case e.Type == "sse":
		s.Entry.Type = e.Type
	}
	for _, arg := range e.Args {
		s.Entry.Args = append(s.Entry.Args, r.fill(arg))
	}
	s.Entry.Env, s.Entry.Headers = map[string]string{}, map[string]string{}
	for key, v := range e.Env {
		s.Entry.Env[key] = r.fill(fmt.Sprint(v))
	}
	for _, one := range e.EnvVars {
		if of, ok := one.(map[string]any); ok {
			one = of["name"]
		}
		if key, _ := one.(string); variable.MatchString(key) {
			s.Entry.Env[key] = "${env:" + key + "}"
		}
	}
	for _, headers := range []map[string]string{e.Headers, e.HTTPHeaders} {
		for key, v := range headers {
			s.Entry.Headers[key] = r.fill(v)
		}
	}
	for key, variable := range e.EnvHeaders {
		s.Entry.Headers[key] = "${env:" + variable + "}"
	}
	if e.BearerVar != "" {
		s.Entry.Headers["Authorization"] = "Bearer ${env:" + e.BearerVar + "}"
	}
	r.timeouts(&e)
	r.signIn(&e)
	s.Entry.Tools = slices.DeleteFunc(e.Enable, func(t string) bool { return slices.Contains(e.Disable, t) })
	if e.Enable == nil && e.Disable != nil {
		r.note("disabled_tools are not left out; name the others in tools")
	}
	none := e.Enable != nil && len(s.Entry.Tools) == 0
	s.Entry.Disabled = none || e.Disabled || e.Enabled != nil && !*e.Enabled
	if s.Entry.Command != "" {
		s.Entry.Cwd = r.fill(e.Cwd)
	}
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		if !slices.Contains(used, key) {
			r.note("%s is not used here", key)
		}
	}
	s.Conceal()
	return s, nil
}

func (r *reading) timeouts(e *entry) {
	to := &r.server.Entry
	switch {
	case e.ToolTimeout > 0:
		to.Timeout = fmt.Sprintf("%gs", e.ToolTimeout)
	case e.Timeout > 0 && r.millis:
		to.Timeout = fmt.Sprintf("%gs", e.Timeout/1000)
	case e.Timeout != 0:
		r.note("timeout is not used here")
	}
	if e.Start > 0 {
		to.Start = fmt.Sprintf("%gs", e.Start)
	}
}

// signIn sets the options for signing in.
func (r *reading) signIn(e *entry) {
	o := config.MCPEntryOAuth{Scopes: e.Scopes}
	if e.OAuth != nil {
		o.ClientID, o.CallbackPort, o.Scopes = r.fill(e.OAuth.ClientID), e.OAuth.CallbackPort, strings.Fields(e.OAuth.Scopes)
		if e.OAuth.Metadata != nil {
			r.note("oauth.authServerMetadataUrl is not used here")
		}
	}
	if e.Auth != nil {
		o.ClientID, o.ClientSecret, o.Scopes = r.fill(e.Auth.ClientID), r.fill(e.Auth.ClientSecret), e.Auth.Scopes
		if o.ClientSecret != "" {
			r.note("oauth.client_secret needs oauth.issuer, the authorization server that the secret is for")
		}
	}
	if o.ClientID+o.ClientSecret != "" || len(o.Scopes) > 0 || o.CallbackPort != 0 {
		r.server.Entry.OAuth = &o
	}
}

// used lists the keys that are read.
var used = []string{
	"type", "command", "args", "env", "cwd", "url", "serverUrl", "headers", "disabled", "enabled", "source", "env_vars",
	"bearer_token_env_var", "http_headers", "env_http_headers", "tool_timeout_sec", "enabled_tools",
	"disabled_tools", "startup_timeout_sec", "timeout", "oauth", "auth",
	"scopes",
}

func (r *reading) note(format string, args ...any) {
	if text := fmt.Sprintf(format, args...); !slices.Contains(r.server.Notes, text) {
		r.server.Notes = append(r.server.Notes, text)
	}
}

var (
	reference  = lazyregexp.New(`\$\{([^}]*)\}`)
	variable   = lazyregexp.New(`^[A-Za-z_][A-Za-z0-9_]*$`)
	secretName = lazyregexp.New(`[^A-Za-z0-9_.-]`)
)

// fill converts references to toolcrib's form.
func (r *reading) fill(text string) string {
	return reference.ReplaceAllStringFunc(text, func(ref string) string {
		inner := ref[2 : len(ref)-1]
		kind, name, parted := strings.Cut(inner, ":")
		switch {
		case kind == "env" && parted && variable.MatchString(name):
			return ref
		case kind == "input" && parted && r.inputs[name] != "":
			r.note("the input %s is its default, %s", name, r.inputs[name])
			return r.inputs[name]
		case kind == "input" && parted:
			as := secretName.ReplaceAllString(name, "_")
			r.server.Secrets = append(r.server.Secrets, as)
			return "${secret:" + as + "}"
		case variable.MatchString(inner) && inner == strings.ToUpper(inner):
			return "${env:" + inner + "}"
		case parted && variable.MatchString(kind) && strings.HasPrefix(name, "-"):
			if r.getenv(kind) != "" {
				return "${env:" + kind + "}"
			}
			r.note("%s is not set, so its default is used: %s", kind, name[1:])
			return name[1:]
		case inner == "workspaceFolder":
			return r.workspace()
		case inner == "workspaceFolderBasename":
			return filepath.Base(r.workspace())
		case inner == "userHome":
			return "${env:HOME}"
		case inner == "pathSeparator", inner == "/":
			return string(filepath.Separator)
		}
		r.note("%s is not filled in", ref)
		return "$" + ref
	})
}

// workspace returns the folder that a file is for.
func (r *reading) workspace() string {
	dir := filepath.Dir(r.path)
	if strings.HasPrefix(filepath.Base(dir), ".") { // .vscode, .cursor
		dir = filepath.Dir(dir)
	}
	return dir
}
