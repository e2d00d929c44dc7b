package service

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/internal/config"
	"github.com/toolcrib/toolcrib/internal/lazyregexp"
	"github.com/toolcrib/toolcrib/internal/safefile"
	"github.com/toolcrib/toolcrib/internal/trust"
	"github.com/toolcrib/toolcrib/mcp"
	"github.com/toolcrib/toolcrib/mcp/signin"
	"github.com/toolcrib/toolcrib/service/env"
)

// projectMCPFile is the file in which a project names its MCP servers, as Claude Code has it.
const projectMCPFile = ".mcp.json"

// mcpFile is a .mcp.json. Other keys are those of other programs. What only an
// administrator may say (trusted, a confirm that asks less) is not read from it.
type mcpFile struct {
	Servers map[string]mcpRead
}

// mcpRead is an entry, or why it cannot be read.
type mcpRead struct {
	mcpEntry
	err error
}

type mcpEntry struct {
	Type     string            `json:"type"`
	Command  string            `json:"command"`
	Args     []string          `json:"args"`
	Env      map[string]string `json:"env"`
	Cwd      string            `json:"cwd"`
	URL      string            `json:"url"`
	Headers  map[string]string `json:"headers"`
	Disabled bool              `json:"disabled"`
	Confirm  string            `json:"confirm"`
	Tools    []string          `json:"tools"`
	Timeout  int               `json:"timeout"` // of a call, in milliseconds
	OAuth    struct {
		ClientID     string `json:"clientId"`
		CallbackPort int    `json:"callbackPort"`
		Scopes       string `json:"scopes"` // separated by spaces
	} `json:"oauth"`
}

// parseMCPFile reads a .mcp.json strictly: no key twice, none in another letter case, so
// that what was looked at is what counts. An entry that cannot be read costs the others nothing.
func parseMCPFile(content []byte) (f mcpFile, err error) {
	var raw struct {
		Servers map[string]jsontext.Value `json:"mcpServers"`
	}
	if err = json.Unmarshal(bytes.TrimPrefix(content, []byte("\ufeff")), &raw); err != nil {
		return f, err
	}
	f.Servers = map[string]mcpRead{}
	for name, text := range raw.Servers {
		var e mcpRead
		e.err = json.Unmarshal(text, &e.mcpEntry)
		f.Servers[name] = e
	}
	return f, nil
}

// maxMCPTimeout bounds a timeout, in milliseconds: a day, as in the configuration.
const maxMCPTimeout = 24 * 60 * 60 * 1000

// mcpVariable is a reference to a variable of the environment: ${NAME}, ${NAME:-default}.
var mcpVariable = lazyregexp.New(`\$\{([A-Za-z_][A-Za-z0-9_]*)(:-([^}]*))?\}`)

// projectMCP returns the servers of the .mcp.json of the current folder, if there is one
// and its user trusts it as it is.
func (s *Service) projectMCP() []*mcpServer {
	content, err := safefile.Read(projectMCPFile, trust.MaxFileBytes)
	if err != nil {
		return nil // one that cannot be read is not trusted either, and the front end says so
	}
	path, err := filepath.Abs(projectMCPFile)
	if err != nil {
		return nil
	}
	if own := config.UserFolder(os.Getenv); own == "" || filepath.Dir(path) != own {
		if state, err := env.TrustStore().State(path, trust.Hash(content)); err != nil || state != trust.Trusted {
			return nil
		}
	}
	f, err := parseMCPFile(content)
	if err != nil {
		s.Env.Once(s.Env.Notice)(fmt.Sprintf("%s is passed over: %v", projectMCPFile, err))
		return nil
	}
	var list []*mcpServer
	for _, name := range slices.Sorted(maps.Keys(f.Servers)) {
		switch e := f.Servers[name]; {
		case e.err != nil:
			list = append(list, &mcpServer{
				Server: mcp.Server{Name: name}, from: path, pins: filepath.Dir(path),
				problem: "its entry cannot be read: " + e.err.Error(),
			})
		case !e.Disabled:
			list = append(list, s.entryMCP(name, path, &e.mcpEntry))
		}
	}
	return list
}

// entryMCP makes a server of an entry.
func (s *Service) entryMCP(name, path string, e *mcpEntry) *mcpServer {
	m := &mcpServer{from: path, pins: filepath.Dir(path)}
	fill := func(text string) string {
		return mcpVariable.ReplaceAllStringFunc(text, func(ref string) string {
			part := mcpVariable.FindStringSubmatch(ref)
			value, ok := os.LookupEnv(part[1])
			switch {
			case ok && (value != "" || part[2] == ""):
				s.Env.Mask.Learn(guard.Secret{Name: part[1], Value: value})
				return value
			case part[2] != "":
				return part[3]
			}
			m.problem = fmt.Sprintf("it needs the environment variable %s, which is not set", part[1])
			return ""
		})
	}
	m.Server = mcp.Server{
		Name: name, Command: fill(e.Command), Env: filled(e.Env, fill), Dir: fill(e.Cwd), URL: fill(e.URL),
		Timeout: time.Duration(min(max(e.Timeout, 0), maxMCPTimeout)) * time.Millisecond,
		Headers: filled(e.Headers, fill), SSE: e.Type == "sse", Tools: e.Tools,
		Confirm: e.Confirm != "" && e.Confirm != "writes",
	}
	for _, arg := range e.Args {
		m.Args = append(m.Args, fill(arg))
	}
	m.oauth = func() (signin.Server, error) {
		server := signin.Server{ClientID: e.OAuth.ClientID, Port: e.OAuth.CallbackPort}
		if scopes := strings.Fields(e.OAuth.Scopes); len(scopes) > 0 {
			server.Scopes = scopes
		}
		return server, nil
	}
	if m.Dir = cmp.Or(m.Dir, m.pins); !filepath.IsAbs(m.Dir) {
		m.Dir = filepath.Join(m.pins, m.Dir)
	}
	if m.problem == "" && (m.Command == "") == (m.URL == "") {
		m.problem = "it needs either command (a program) or url (an address)"
	}
	return m
}

// MCPUses says for the question of trust what a .mcp.json would start and where it would
// connect to, and which variables of the environment go there.
func MCPUses(content []byte) []string {
	f, err := parseMCPFile(content)
	if err != nil {
		return []string{"it cannot be read, so nothing of it would be used: " + err.Error()}
	}
	var out []string
	for _, name := range slices.Sorted(maps.Keys(f.Servers)) {
		read := f.Servers[name]
		e := read.mcpEntry
		if read.err != nil {
			out = append(out, name+" cannot be read, so it is not used: "+read.err.Error())
			continue
		}
		what := "starts " + strings.Join(append([]string{e.Command}, e.Args...), " ")
		if e.Command == "" {
			host := e.URL
			if u, err := url.Parse(mcpVariable.ReplaceAllString(e.URL, "$3")); err == nil && u.Host != "" {
				host = u.Host
			}
			what = "connects to " + host
		}
		var variables []string
		text, _ := json.Marshal(e) // texts
		for _, m := range mcpVariable.FindAllSubmatch(text, -1) {
			variables = append(variables, "$"+string(m[1]))
		}
		slices.Sort(variables)
		if variables = slices.Compact(variables); len(variables) > 0 {
			what += ", which gets " + strings.Join(variables, ", ")
		}
		out = append(out, name+" "+what)
	}
	return out
}
