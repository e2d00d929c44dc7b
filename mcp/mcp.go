// Package mcp makes the tools of MCP servers tools of toolcrib. It implements the protocol with the official SDK,
// and decides nothing: which tools of a server are offered, and to whom, is up to the service and the gate.
//
// A server is untrusted. Whatever it does (crash, hang, flood, send invalid answers) causes errors of its own calls,
// and nothing else.
package mcp

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/guard"
)

// Bounds of the data and the time of one server.
const (
	MaxServers       = 200
	maxTools         = 1000
	maxPages         = 1000
	maxDefinitions   = 4 << 20 // bytes of all definitions
	maxDefinition    = 256 << 10
	maxMessage       = 16 << 20
	maxCalls         = 64 // calls at a time, including those that are no longer waited for
	startTimeout     = 30 * time.Second
	discoverPatience = 5 * time.Second // for the answer to server/discover, before initialize is tried
	listTimeout      = 30 * time.Second
	minBackoff       = 200 * time.Millisecond
	maxBackoff       = time.Minute
	backAfter        = time.Minute // a server that ran this long is restarted soon
	relistEvery      = 200 * time.Millisecond
	callPatience     = 3 * time.Second // how long a call waits for a server that starts
	closePatience    = time.Second     // how long a program may take to end on its own
	separator        = "__"
	sourcePrefix     = "mcp:"
	oldProtocol      = "2025-11-25" // the last version that begins with initialize
	maxProblems      = 20
	maxProblemLength = 300
)

// Server is an MCP server as its user configured it: a program or an address. References in its values are already
// resolved.
type Server struct {
	Name string

	Command string
	Args    []string
	Env     map[string]string // in addition to the few variables that every server gets
	Dir     string            // "" means the current folder

	URL     string
	Headers map[string]string // sent to the origin of URL only
	SSE     bool              // the transport of 2024-11-05

	// Trusted means that the server's own claims may lift restrictions: a tool that says that it only reads is a
	// read, and results are not untrusted data. Only an administrator sets it.
	Trusted bool
	Confirm bool          // each call is shown to a person first
	Tools   []string      // globs of the tools that are used; nil means all
	Timeout time.Duration // timeout of a call; if 0, the run's
	Start   time.Duration // how long it may take to start, and to list its tools if more than 30 s; 0 means 30 s
}

// CleanName returns the name of a server as it is part of its tools' names: characters that a tool's name cannot
// have are replaced by _. It returns an error if the tools of a server of that name could not be distinguished from
// those of another server.
func CleanName(server string) (string, error) {
	name := clean(server)
	switch {
	case !toolcrib.ValidToolName(name), len(name) > 40:
		return "", fmt.Errorf("MCP server %.60q: the name must have 1 to 40 characters", server)
	case guard.Visible(server) != server:
		return "", fmt.Errorf("MCP server %.60q: the name must not hold characters that are not seen", server)
	case strings.Contains(name, separator), strings.HasPrefix(name, "_"), strings.HasSuffix(name, "_"):
		return "", fmt.Errorf("MCP server %.60q: the name must not hold %s, nor begin or end with _, so that its tools "+
			"cannot be taken for those of another server", server, separator)
	case strings.EqualFold(name, "agent"):
		return "", fmt.Errorf("MCP server %.60q: the name is that of agents, which `mcp serve` offers as agent%sNAME",
			server, separator)
	}
	return name, nil
}

func clean(name string) string {
	return strings.Map(func(r rune) rune {
		if r < 128 && toolcrib.ValidToolName("x"+string(r)) {
			return r
		}
		return '_'
	}, name)
}

// Definition is a tool as its server describes it.
type Definition struct {
	Name string // SERVER__TOOL
	Tool string // name that the server uses

	Title       string
	Description string
	Schema      json.RawMessage // JSON Schema of the arguments
	ReadOnly    bool            // the server says that the tool only reads
	Closed      bool            // the server says that the tool reaches nothing outside
	Text        []byte          // everything that is pinned, as JSON for people and for comparing
}

// define reads a definition of a server.
func define(server string, t *sdk.Tool) (Definition, error) {
	d := Definition{Name: server + separator + clean(t.Name), Tool: t.Name, Description: t.Description}
	if !toolcrib.ValidToolName(d.Name) {
		return d, fmt.Errorf("the tool %.60q is left out: with the server's name, its name must have "+
			"at most 64 characters", t.Name)
	}
	pinned := struct {
		Name         string               `json:"name"`
		Title        string               `json:"title,omitempty"`
		Description  string               `json:"description"`
		InputSchema  any                  `json:"inputSchema"`
		OutputSchema any                  `json:"outputSchema,omitempty"`
		Annotations  *sdk.ToolAnnotations `json:"annotations,omitempty"`
	}{t.Name, t.Title, t.Description, t.InputSchema, t.OutputSchema, t.Annotations}
	var err error
	if d.Schema, err = json.Marshal(t.InputSchema); err == nil {
		d.Text, err = json.MarshalIndent(pinned, "", "  ")
	}
	switch {
	case err != nil:
		return d, fmt.Errorf("the tool %.60q is left out: its definition is not JSON", t.Name)
	case len(d.Text) > maxDefinition:
		return d, fmt.Errorf("the tool %.60q is left out: its definition has more than %d KiB", t.Name, maxDefinition>>10)
	}
	d.Title = t.Title
	if a := t.Annotations; a != nil {
		d.Title = cmp.Or(d.Title, a.Title)
		d.ReadOnly = a.ReadOnlyHint
		d.Closed = a.OpenWorldHint != nil && !*a.OpenWorldHint
	}
	return d, nil
}

// ReadDefinition returns the definition of a tool that is used, given its Text.
func (s *Server) ReadDefinition(text []byte) (Definition, error) {
	var t sdk.Tool
	prefix, err := CleanName(s.Name)
	if err == nil {
		err = json.Unmarshal(text, &t)
	}
	if err != nil {
		return Definition{}, err
	}
	d, err := define(prefix, &t)
	if err == nil && (!bytes.Equal(d.Text, text) || !s.uses(t.Name)) {
		err = fmt.Errorf("the tool %.60q is not used", t.Name)
	}
	return d, err
}

// definitions returns the tools of a list with their names, and the problems of those that it leaves out. Names that
// differ only in letter case, or in characters that a name cannot have, belong to the tool that has exactly that
// name, or else to the first.
func (s *Server) definitions(server string, list []*sdk.Tool) (defs []Definition, problems []string) {
	problem := func(err error) {
		if text := err.Error(); len(problems) < maxProblems {
			problems = append(problems, text[:min(len(text), maxProblemLength)])
		}
	}
	list = slices.DeleteFunc(slices.Clone(list), func(t *sdk.Tool) bool { return t == nil || !s.uses(t.Name) })
	slices.SortStableFunc(list, func(a, b *sdk.Tool) int {
		other := func(t *sdk.Tool) int {
			if clean(t.Name) != t.Name {
				return 1
			}
			return 0
		}
		return other(a) - other(b)
	})
	defs = make([]Definition, 0, len(list))
	taken, size := map[string]string{}, 0
	for _, t := range list {
		d, err := define(server, t)
		if err != nil {
			problem(err)
			continue
		}
		key := strings.ToLower(d.Name)
		if first, ok := taken[key]; ok {
			problem(fmt.Errorf("the tool %.60q is left out: its name is too much like that of %.60q", t.Name, first))
			continue
		}
		if size += len(d.Text); size > maxDefinitions {
			problem(fmt.Errorf("the tool %.60q and those after it are left out: all definitions together have more "+
				"than %d MiB", t.Name, maxDefinitions>>20))
			break
		}
		taken[key] = t.Name
		defs = append(defs, d)
	}
	slices.SortFunc(defs, func(a, b Definition) int { return strings.Compare(a.Name, b.Name) })
	return defs, problems
}

// uses reports whether the configuration lets a tool of the server be used.
func (s *Server) uses(tool string) bool {
	return s.Tools == nil || slices.ContainsFunc(s.Tools, func(glob string) bool {
		ok, _ := path.Match(glob, tool)
		return ok
	})
}

func (s *Server) source() string { return sourcePrefix + s.Name }
