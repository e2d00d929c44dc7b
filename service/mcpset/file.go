package mcpset

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

// fileName is the file in which a project names its MCP servers, as for Claude Code.
const fileName = ".mcp.json"

// projectFile is the content of a .mcp.json. Keys of other programs are ignored, and so is what only an
// administrator may set (trusted, a weaker confirm).
type projectFile struct {
	Servers map[string]fileEntry
}

// fileEntry is an entry, or the error that it cannot be read with.
type fileEntry struct {
	entry
	err error
}

type entry struct {
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

// parseFile decodes a .mcp.json strictly: duplicate keys and keys in another case are errors, so that what a person
// reviewed is what is used. An entry that cannot be decoded does not affect the others.
func parseFile(content []byte) (f projectFile, err error) {
	var raw struct {
		Servers map[string]jsontext.Value `json:"mcpServers"`
	}
	if err = json.Unmarshal(bytes.TrimPrefix(content, []byte("\ufeff")), &raw); err != nil {
		return f, err
	}
	f.Servers = map[string]fileEntry{}
	for name, text := range raw.Servers {
		var e fileEntry
		e.err = json.Unmarshal(text, &e.entry)
		f.Servers[name] = e
	}
	return f, nil
}

// maxTimeout bounds a timeout, in milliseconds: one day, as in the configuration.
const maxTimeout = 24 * 60 * 60 * 1000

// variable matches a reference to an environment variable: ${NAME}, ${NAME:-default}.
var variable = lazyregexp.New(`\$\{([A-Za-z_][A-Za-z0-9_]*)(:-([^}]*))?\}`)

// project returns the servers of the .mcp.json of the project's folder, if its user trusts its current content.
func (s *Set) project() []*server {
	name := filepath.Join(s.env.Source.Folder, fileName)
	content, err := safefile.Read(name, trust.MaxFileBytes)
	if err != nil {
		return nil // one that cannot be read is not trusted either, and the front end says so
	}
	path, err := filepath.Abs(name)
	if err != nil {
		return nil
	}
	if own := config.UserFolder(os.Getenv); own == "" || filepath.Dir(path) != own {
		if state, err := env.TrustStore().State(path, trust.Hash(content)); err != nil || state != trust.Trusted {
			return nil
		}
	}
	f, err := parseFile(content)
	if err != nil {
		s.env.Once(s.env.Notice)(fmt.Sprintf("%s is passed over: %v", name, err))
		return nil
	}
	var list []*server
	for _, name := range slices.Sorted(maps.Keys(f.Servers)) {
		switch e := f.Servers[name]; {
		case e.err != nil:
			list = append(list, &server{
				Server: mcp.Server{Name: name}, from: path, pins: filepath.Dir(path),
				problem: "its entry cannot be read: " + e.err.Error(),
			})
		case !e.Disabled:
			list = append(list, s.entry(name, path, &e.entry))
		}
	}
	return list
}

// entry returns the server of an entry.
func (s *Set) entry(name, path string, e *entry) *server {
	m := &server{from: path, pins: filepath.Dir(path)}
	fill := func(text string) string {
		return variable.ReplaceAllStringFunc(text, func(ref string) string {
			part := variable.FindStringSubmatch(ref)
			value, ok := os.LookupEnv(part[1])
			switch {
			case ok && (value != "" || part[2] == ""):
				s.env.Mask.Learn(guard.Secret{Name: part[1], Value: value})
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
		Timeout: time.Duration(min(max(e.Timeout, 0), maxTimeout)) * time.Millisecond,
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

// FileUses describes, for the question whether to trust a .mcp.json, which programs it starts, which hosts it
// connects to, and which environment variables they get.
func FileUses(content []byte) []string {
	f, err := parseFile(content)
	if err != nil {
		return []string{"it cannot be read, so nothing of it would be used: " + err.Error()}
	}
	var out []string
	for _, name := range slices.Sorted(maps.Keys(f.Servers)) {
		read := f.Servers[name]
		e := read.entry
		if read.err != nil {
			out = append(out, name+" cannot be read, so it is not used: "+read.err.Error())
			continue
		}
		what := "starts " + strings.Join(append([]string{e.Command}, e.Args...), " ")
		if e.Command == "" {
			host := e.URL
			if u, err := url.Parse(variable.ReplaceAllString(e.URL, "$3")); err == nil && u.Host != "" {
				host = u.Host
			}
			what = "connects to " + host
		}
		var variables []string
		text, _ := json.Marshal(e) // texts
		for _, m := range variable.FindAllSubmatch(text, -1) {
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
