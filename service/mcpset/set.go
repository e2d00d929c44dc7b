// Package mcpset keeps the MCP servers of a data folder: which are configured, which of their tools were reviewed, the
// programs that run, and the sign-ins.
package mcpset

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"path"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"weak"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/internal/config"
	"github.com/toolcrib/toolcrib/internal/trust"
	"github.com/toolcrib/toolcrib/internal/version"
	"github.com/toolcrib/toolcrib/mcp"
	"github.com/toolcrib/toolcrib/mcp/signin"
	"github.com/toolcrib/toolcrib/service/env"
)

// How long is waited for MCP servers that start.
const (
	runPatience    = 15 * time.Second // by a run, unless start_timeout says otherwise
	firstPatience  = 5 * time.Minute  // at most: a first start may install the server
	answerPatience = 30 * time.Second // for one at an address
	quietPatience  = 3 * time.Second  // before it is said that something is waited for
	// MCPLook and MCPInstall are how long a person who looks at servers, or reviews one, waits.
	LookTime    = time.Minute
	InstallTime = firstPatience
)

// Set is the MCP servers of a data folder under a configuration. It is safe for use by several goroutines.
type Set struct {
	env *env.Env
	// state is shared under all configurations of a data folder: the servers that this process runs, and the gates
	// that have their tools.
	state *state
}

// New returns the MCP servers of a data folder. Nothing is started.
func New(e *env.Env) *Set { return &Set{e, &state{}} }

// Beside has the gates in use get further tools, which change when [Set.Renew] is called. It is called before the set
// is used.
func (s *Set) Beside(tools func() []toolcrib.Tool) { s.state.beside = tools }

// Renew gives the gates in use the tools of now.
func (s *Set) Renew() { s.swap() }

// Under returns the servers under another configuration, which is put into effect by [Set.Reload].
func (s *Set) Under(e *env.Env) *Set { return &Set{e, s.state} }

// Close ends all servers.
func (s *Set) Close() { s.state.close() }

// mcpState are the MCP servers of a data folder that this process runs, and the gates that have their tools.
type state struct {
	mu      sync.Mutex
	servers []*server // sorted by name
	gates   []usedGate
	closed  bool
	current atomic.Pointer[env.Env] // the configuration that was put into effect; nil until one was
	// swap updates the tools of the gates in use. On an error a gate keeps its tools: one whose definition has
	// changed refuses its calls.
	swap  sync.Mutex     // one at a time, so that the last has the tools of now
	soon  bool           // a swap is to come
	swaps sync.WaitGroup // of them
	// beside returns further tools that come and go. It may be nil.
	beside func() []toolcrib.Tool
}

// server is a configured MCP server.
type server struct {
	mcp.Server
	from     string                        // the configuration or .mcp.json
	pins     string                        // the folder that its pins are kept under
	trusted  trust.Store                   // has its pins
	confirm  string                        // as the configuration has it
	oauth    func() (signin.Server, error) // how one signs in, but for the url
	problem  string                        // why it cannot be started
	patience time.Duration                 // of a run that needs it
	client   *mcp.Client
	kept     *cache
}

// cache holds data of a server between operations.
type cache struct {
	mu     sync.Mutex
	start  time.Time           // when it was started
	read   time.Time           // when pinned was read
	pinned map[string][]byte   //
	tools  map[string]madeTool // by their names
}

// madeTool is a tool, and the definition that it was made of.
type madeTool struct {
	text []byte
	// tool returns the tool of a definition. It returns the same tool each time, so that a gate recognizes it.
	tool toolcrib.Tool
}

// usedGate is a gate in use, with its tools that do not come from MCP servers.
type usedGate struct {
	gate  weak.Pointer[gate.Gate]
	tools []toolcrib.Tool
}

// Info describes an MCP server in listings.
type Info struct {
	Name     string   `json:"name"`
	State    string   `json:"state"` // running | failed | stopped
	Detail   string   `json:"detail,omitempty"`
	From     string   `json:"from"`  // where it is configured
	Where    string   `json:"where"` // its program, or the host of its address
	Server   string   `json:"server,omitempty"`
	Protocol string   `json:"protocol,omitempty"`
	Trusted  bool     `json:"trusted"`
	Tools    int      `json:"tools"`    // that can be used
	Unlooked int      `json:"unlooked"` // that are new or have changed since they were reviewed
	Problems []string `json:"problems"`
}

// Tool describes a tool of an MCP server.
type Tool struct {
	Name        string          `json:"name"`
	State       string          `json:"state"` // reviewed | new | changed
	Description string          `json:"description"`
	Definition  json.RawMessage `json:"definition"`
	// Unchecked are the parts of its schema that arguments are not checked against, as JSON Pointers.
	Unchecked []string `json:"unchecked,omitempty"`
}

// The states of [MCPServer] and [MCPTool].
const (
	StateRunning = "running"
	stateFailed  = "failed"
	stateStopped = "stopped" // nothing has needed it yet
	toolReviewed = "reviewed"
	toolNew      = "new"
	toolChanged  = "changed"
)

// configured returns the servers of the configuration.
func (s *Set) configured() []*server {
	var list []*server
	for _, name := range slices.Sorted(maps.Keys(s.env.Config.MCPServers)) {
		c := s.env.Config.MCPServers[name]
		if c.Disabled {
			continue
		}
		m := &server{
			Server: mcp.Server{
				Name: name, Trusted: c.Trusted, Confirm: c.Confirm == string(gate.ConfirmAlways), Tools: c.Tools,
				SSE: c.Type == "sse",
			},
			from: s.env.Config.Position(config.JoinKey("mcpServers", name)), pins: s.env.Pins(), confirm: c.Confirm,
		}
		m.oauth = func() (signin.Server, error) { return s.fillOAuth(&c.OAuth) }
		if c.Timeout != nil {
			m.Timeout = c.Timeout.Std()
		}
		m.patience = c.Start.Std()
		if err := s.fill(&m.Server, &c); err != nil {
			m.problem = err.Error()
		}
		list = append(list, m)
	}
	return list
}

// fill resolves the references in the configuration of a server.
func (s *Set) fill(to *mcp.Server, c *config.MCPServer) (err error) {
	r := s.env.Resolver()
	fill := func(v config.Value) (text string) {
		if err == nil {
			text, err = v.Resolve(r)
		}
		return text
	}
	to.Command, to.URL, to.Dir = fill(c.Command), fill(c.URL), cmp.Or(fill(c.Cwd), s.env.Source.Folder)
	for _, arg := range c.Args {
		to.Args = append(to.Args, fill(arg))
	}
	to.Env, to.Headers = filled(c.Env, fill), filled(c.Headers, fill)
	return err
}

// filled returns values with their references resolved.
func filled[V any](values map[string]V, fill func(V) string) map[string]string {
	out := make(map[string]string, len(values))
	for name, v := range values {
		out[name] = fill(v)
	}
	return out
}

// Has reports whether a server of this name is configured with this program and its arguments, or at this address.
func (s *Set) Has(name, command string, args []string, url string) bool {
	return slices.ContainsFunc(s.wanted(), func(m *server) bool {
		return m.problem == "" && m.Name == name && m.Command == command && slices.Equal(m.Args, args) && m.URL == url
	})
}

// wanted returns the servers of the configuration, and those of the .mcp.json of the current folder if that is
// trusted. If the names of two servers could be confused, the first is used.
func (s *Set) wanted() []*server {
	list := append(s.configured(), s.project()...)
	taken := map[string]*server{}
	for i, m := range list {
		m.trusted = s.env.TrustStore()
		name, err := mcp.CleanName(m.Name)
		key := strings.ToLower(name)
		switch first := taken[key]; {
		case m.problem != "":
		case err != nil:
			m.problem = err.Error()
		case i >= mcp.MaxServers:
			m.problem = fmt.Sprintf("there are more than %d servers", mcp.MaxServers)
		case first != nil:
			m.problem = fmt.Sprintf("its name is too much like that of %s (%s), which counts", first.Name, first.from)
		default:
			taken[key] = m
		}
	}
	return list
}

// know reads which servers are configured now, and returns them. It ends running servers that are no longer
// configured, and starts none. Under a configuration that is no longer in effect it returns the servers as they
// are.
func (s *Set) know() []*server {
	if now := s.state.current.Load(); now != nil && now != s.env {
		return s.state.all()
	}
	wanted := s.wanted()
	for _, m := range wanted { // before they are compared
		m.patience = cmp.Or(m.patience, runPatience)
		m.Start = max(m.patience, firstPatience)
		if m.Command == "" {
			m.Start = max(m.patience, answerPatience)
		}
	}
	s.state.mu.Lock()
	if s.state.closed || len(wanted)+len(s.state.servers) == 0 {
		defer s.state.mu.Unlock()
		return s.state.servers
	}
	var old []*mcp.Client
	for _, known := range s.state.servers {
		i := slices.IndexFunc(wanted, func(m *server) bool {
			return m.client == nil && m.problem == "" && reflect.DeepEqual(m.Server, known.Server) && m.pins == known.pins
		})
		switch {
		case known.client == nil:
		case i < 0:
			old = append(old, known.client)
		default:
			wanted[i].client, wanted[i].kept = known.client, known.kept
		}
	}
	for _, m := range wanted {
		if m.client != nil || m.problem != "" {
			continue
		}
		client, err := mcp.New(m.Server, mcp.Options{
			Version: version.Version(), Changed: s.changed, Log: s.log, SignIn: s.session(m),
		})
		if err != nil {
			m.problem = err.Error()
			continue
		}
		m.client, m.kept = client, &cache{tools: map[string]madeTool{}}
	}
	s.state.servers = wanted
	s.state.mu.Unlock()
	closeAll(old)
	return wanted
}

// start starts the servers that are not running yet, in parallel, and waits until each has started or failed: for
// patience, or if that is 0 for the time that the server has in a run.
func (s *Set) start(ctx context.Context, servers []*server, patience time.Duration) {
	servers = slices.DeleteFunc(slices.Clone(servers), func(m *server) bool { return m.client == nil })
	for _, m := range servers {
		m.client.Start()
		m.kept.mu.Lock()
		if m.kept.start.IsZero() {
			m.kept.start = time.Now()
		}
		m.kept.mu.Unlock()
	}
	for _, m := range servers {
		bound := time.Now().Add(patience)
		if patience == 0 {
			m.kept.mu.Lock()
			bound = m.kept.start.Add(m.patience)
			m.kept.mu.Unlock()
		}
		s.wait(ctx, m, bound)
	}
}

// wait waits for a server, with a notice if that takes long.
func (s *Set) wait(ctx context.Context, m *server, until time.Time) {
	ctx, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	quiet, stop := context.WithTimeout(ctx, quietPatience)
	defer stop()
	if !m.client.Wait(quiet) && ctx.Err() == nil {
		s.env.Serial(s.env.Notice)(fmt.Sprintf("MCP server %s is starting, which may take long if it installs itself first; waiting up to %s",
			m.Name, time.Until(until).Round(time.Second)))
		m.client.Wait(ctx)
	}
}

// Need starts the servers whose tools a run may use, waits for them, and updates the gates in use. It returns
// notices about servers that did not start in time; their tools are used as soon as they do.
func (s *Set) Need(ctx context.Context, tools []string, g *gate.Gate) (notices []toolcrib.Notice) {
	var needed []*server
	reads := slices.Contains(tools, mcp.ListResources) || slices.Contains(tools, mcp.ReadResource)
	for _, m := range s.state.all() {
		if m.client != nil && (slices.ContainsFunc(tools, m.client.Has) || reads && m.reviewedOffers().Resources) {
			needed = append(needed, m)
		}
	}
	// Of those that run, what they offer is in the gates as it changes.
	if slices.ContainsFunc(needed, func(m *server) bool { return !m.client.State().Running }) {
		s.start(ctx, needed, 0)
		s.swap()
	}
	for _, m := range s.state.all() {
		if slices.Contains(needed, m) || m.client == nil && slices.ContainsFunc(tools, m.has) {
			notices = append(notices, s.lacks(m, g)...)
		}
	}
	return notices
}

// The codes of notices about what is missing of MCP servers.
const (
	NoticeServerMissing = "mcp_server_missing"
	NoticeToolsMissing  = "mcp_tools_missing"
)

// maxUnusable bounds the notice about tools that cannot be used, in bytes.
const maxUnusable = 1000

// lacks returns notices about what is missing of a server, and of its tools in a gate if g is not nil.
func (s *Set) lacks(m *server, g *gate.Gate) (notices []toolcrib.Notice) {
	v := s.view(m)
	if g != nil {
		if list := g.Unusable("mcp:" + m.Name); len(list) > 0 {
			v.Problems = append(v.Problems, fmt.Sprintf("%s cannot be used: %s", guard.Count(len(list), "tool"),
				guard.Clip(strings.Join(list, "; "), maxUnusable)))
		}
	}
	if v.State != StateRunning {
		notices = append(notices, toolcrib.Notice{
			Code: NoticeServerMissing, Message: v.missing(), Public: v.missingWithoutWhy(), Tool: m.glob(),
		})
	}
	for _, problem := range v.Problems {
		notices = append(notices, toolcrib.Notice{
			Code: NoticeToolsMissing, Message: fmt.Sprintf("MCP server %s: %s", m.Name, problem),
			Public: fmt.Sprintf("not all tools of the MCP server %s are used", m.Name), Tool: m.glob(),
		})
	}
	return notices
}

// Lack is what is missing of a server.
type Lack struct {
	Tools   string // a glob that matches the tools of the server
	Notices []toolcrib.Notice
}

// Lacking returns what is missing of each server that something has needed. untried reports whether there are other
// servers.
func (s *Set) Lacking(g *gate.Gate) (lacking []Lack, untried bool) {
	for _, m := range s.state.all() {
		if m.client != nil && !m.client.Tried() {
			untried = true
			continue
		}
		lacking = append(lacking, Lack{m.glob(), s.lacks(m, g)})
	}
	return lacking, untried
}

// glob returns a pattern that matches the names of a server's tools.
func (m *server) glob() string {
	name, _ := mcp.CleanName(m.Name) // of a name that is no server's, as it is cleaned
	return name + "__*"
}

// has reports whether a tool of that name would belong to the server.
func (m *server) has(tool string) bool {
	ok, _ := path.Match(strings.ToLower(m.glob()), strings.ToLower(tool))
	return ok
}

// missing returns the text that a server does not run.
func (v *Info) missing() string {
	return v.missingWithoutWhy() + ": " + v.Detail
}

func (v *Info) missingWithoutWhy() string {
	return fmt.Sprintf("MCP server %s does not run, so its tools are missing", v.Name)
}

func closeAll(clients []*mcp.Client) {
	var all sync.WaitGroup
	for _, c := range clients {
		all.Go(c.Close)
	}
	// all returns the current servers.
	all.Wait()
}

// all are the servers of now.
func (m *state) all() []*server {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.servers
}

// close ends all servers.
func (m *state) close() {
	m.mu.Lock()
	m.closed = true
	var clients []*mcp.Client
	for _, one := range m.servers {
		if one.client != nil {
			clients = append(clients, one.client)
		}
	}
	m.mu.Unlock()
	closeAll(clients)
	m.swaps.Wait()
}

// swapDelay is how long a swap waits for more changes.
const swapDelay = 10 * time.Millisecond

// Reload puts the configuration of s into effect.
func (s *Set) Reload() {
	s.state.current.Store(s.env)
	s.know()
}

// changed updates the tools of the gates in use after a short delay.
func (s *Set) changed() {
	s.state.mu.Lock()
	defer s.state.mu.Unlock()
	if s.state.soon || s.state.closed || len(s.state.gates) == 0 {
		return
	}
	s.state.soon = true
	s.state.swaps.Go(func() {
		time.Sleep(swapDelay)
		s.state.mu.Lock()
		s.state.soon = false
		s.state.mu.Unlock()
		s.swap()
	})
}

// log writes a line of a server's standard error to the log.
func (s *Set) log(server, line string) {
	s.env.LogLine(slog.LevelInfo, "MCP server", "server", server, "stderr", s.env.Mask.Mask(line))
}

// tell reports servers that cannot be started and tools that are not offered, with what to do about it. Servers
// that failed are reported by the runs that need them.
func (s *Set) tell(list []*server, to func(string)) {
	tell := s.env.Once(s.env.Serial(to))
	for _, m := range list {
		v := s.view(m)
		review := fmt.Sprintf("to review them: %s mcp review %s", s.env.Self, trust.ShellWord(m.Name))
		switch {
		case m.client == nil:
			tell(v.missing())
		case v.Unlooked > 0:
			tell(fmt.Sprintf("MCP server %s: %s new or changed since the last review, so not offered; %s", m.Name,
				guard.Count(v.Unlooked, "tool"), review))
		case v.State == stateStopped && m.pinned() == nil:
			tell(fmt.Sprintf("MCP server %s: its tools were not reviewed yet, so they are not offered; %s", m.Name, review))
		}
		for _, p := range v.Problems {
			tell(fmt.Sprintf("MCP server %s: %s", m.Name, p))
		}
	}
}

// TellAll reports servers that cannot be started, and tools that are not offered.
func (s *Set) TellAll(tell func(string)) { s.tell(s.state.all(), tell) }

// TellStartable is TellAll without servers that cannot be started, which runs report. It returns false if no server
// is configured.
func (s *Set) TellStartable(tell func(string)) bool {
	list := s.state.all()
	s.tell(slices.DeleteFunc(slices.Clone(list), func(m *server) bool { return m.client == nil }), tell)
	return len(list) > 0
}

// Any reports whether any server is configured now.
func (s *Set) Any() bool { return len(s.know()) > 0 }

func (s *Set) view(m *server) Info {
	v := Info{
		Name: m.Name, State: stateFailed, Detail: m.problem, From: m.from, Where: m.Command, Trusted: m.Trusted,
		Problems: []string{},
	}
	if m.Command == "" {
		v.Where = env.PlaceOf(m.URL)
	}
	if m.client == nil {
		return v
	}
	state := m.client.State()
	v.Detail, v.Server, v.Protocol = s.env.Mask.Mask(state.Error), state.Server, state.Protocol
	v.Problems = append(v.Problems, state.Problems...)
	switch {
	case state.Running:
		v.State = StateRunning
	case state.Starts == 0:
		v.State = stateStopped
	case v.Detail == "":
		m.kept.mu.Lock()
		v.Detail = fmt.Sprintf("it has not started after %s; if it installs itself first, %s mcp review %s waits for %s, "+
			"and a run for its start_timeout", time.Since(m.kept.start).Round(time.Second), s.env.Self,
			trust.ShellWord(m.Name), firstPatience)
		m.kept.mu.Unlock()
	}
	for _, t := range m.tools() {
		if t.State == toolReviewed {
			v.Tools++
		} else {
			v.Unlooked++
		}
	}
	return v
}

// ReviewedTools returns the tools that were reviewed in their current state, and their confirm settings. Of a
// server that nothing has needed yet, it returns them as they were reviewed.
func (s *Set) ReviewedTools() ([]toolcrib.Tool, map[string]string) {
	return s.offered(s.know())
}

func (s *Set) offered(servers []*server) (tools []toolcrib.Tool, confirm map[string]string) {
	confirm = map[string]string{}
	defer func() {
		if s.state.beside != nil {
			tools = append(tools, s.state.beside()...)
		}
	}()
	readable := func(m *server) bool { return m.client != nil && m.offers().Resources }
	if slices.ContainsFunc(servers, readable) {
		tools = mcp.ResourceTools(func() map[string]*mcp.Client {
			clients := map[string]*mcp.Client{}
			for _, m := range s.state.all() {
				if readable(m) {
					clients[m.Name] = m.client
				}
			}
			return clients
		})
	}
	for _, m := range servers {
		if m.client == nil {
			continue
		}
		pinned := m.pinned()
		if len(pinned) == 0 {
			continue
		}
		tried := m.client.Tried() // before its definitions are looked for: they come first
		defs := m.client.Definitions()
		if defs == nil && !tried {
			defs = m.reviewed(pinned) // a run that uses them waits for the server
		}
		for _, d := range defs {
			if bytes.Equal(pinned[d.Name], d.Text) {
				tools = append(tools, m.tool(d))
				confirm[d.Name] = m.confirm
			}
		}
	}
	return tools, confirm
}

// tool returns the tool of a definition; always the same, so that a gate knows it again.
func (m *server) tool(d mcp.Definition) toolcrib.Tool {
	m.kept.mu.Lock()
	defer m.kept.mu.Unlock()
	made, ok := m.kept.tools[d.Name]
	if !ok || !bytes.Equal(made.text, d.Text) {
		made = madeTool{d.Text, m.client.Tool(d)}
		m.kept.tools[d.Name] = made
	}
	return made.tool
}

// Missed returns the tools of servers that have failed or cannot be started, as they were reviewed.
func (s *Set) Missed() []toolcrib.Tool {
	var tools []toolcrib.Tool
	for _, m := range s.state.all() {
		if m.client == nil {
			tools = append(tools, m.unstarted()...)
			continue
		}
		if !m.client.Tried() || m.client.State().Running || m.client.Definitions() != nil {
			continue
		}
		for _, d := range m.reviewed(m.pinned()) {
			tools = append(tools, m.tool(d))
		}
	}
	names := map[string]bool{}
	return slices.DeleteFunc(tools, func(t toolcrib.Tool) bool {
		name := strings.ToLower(t.Spec().Name)
		defer func() { names[name] = true }()
		return names[name]
	})
}

// unstarted returns the reviewed tools of a server that cannot be started, or a placeholder if it was never
// reviewed.
func (m *server) unstarted() (tools []toolcrib.Tool) {
	client, err := mcp.New(mcp.Server{Name: m.Name}, mcp.Options{})
	if err != nil {
		return nil // no tool could have its name
	}
	defer client.Close()
	names := slices.Sorted(maps.Keys(m.readPins()))
	if len(names) == 0 {
		names = []string{client.Prefix() + "__x"}
	}
	for _, name := range names {
		if client.Has(name) {
			tools = append(tools, client.Tool(mcp.Definition{Name: name, Schema: json.RawMessage(`{"type":"object"}`)}))
		}
	}
	return tools
}

// Follow updates the tools of MCP servers in a gate whenever they change, as long as the gate is used.
func (s *Set) Follow(g *gate.Gate, tools []toolcrib.Tool) {
	s.state.mu.Lock()
	defer s.state.mu.Unlock()
	s.state.gates = slices.DeleteFunc(s.state.gates, func(l usedGate) bool { return l.gate.Value() == nil })
	s.state.gates = append(s.state.gates, usedGate{weak.Make(g), tools})
}

// swapMCP gives the gates in use the tools of now. Where that fails they keep what they have:
// a tool that is defined in another way now refuses its calls by itself.
func (s *Set) swap() {
	s.state.swap.Lock()
	defer s.state.swap.Unlock()
	tools, _ := s.offered(s.state.all())
	s.state.mu.Lock()
	gates, servers := slices.Clone(s.state.gates), s.state.servers
	s.state.mu.Unlock()
	for _, l := range gates {
		if g := l.gate.Value(); g != nil {
			if err := g.SetTools(append(slices.Clip(l.tools), tools...)); err != nil {
				s.env.Notice(err.Error())
			}
		}
	}
	started := slices.DeleteFunc(slices.Clone(servers), func(m *server) bool {
		return m.client == nil || !m.client.State().Running
	})
	if len(gates) > 0 {
		s.tell(started, s.env.Notice)
	}
}

// Servers starts all MCP servers, waits up to patience for each, and describes them.
func (s *Set) Servers(
	ctx context.Context, who toolcrib.Principal, patience time.Duration,
) ([]Info, error) {
	if err := env.RequireUser(who); err != nil {
		return nil, err
	}
	list := s.know()
	s.start(ctx, list, patience)
	out := make([]Info, len(list))
	for i, m := range list {
		out[i] = s.view(m)
	}
	return out, nil
}
