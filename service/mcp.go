package service

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
	"github.com/toolcrib/toolcrib/store"
)

// How long is waited for MCP servers that start.
const (
	mcpPatience = 15 * time.Second // by a run, unless start_timeout says otherwise
	mcpFirst    = 5 * time.Minute  // at most: a first start may install the server
	mcpAnswer   = 30 * time.Second // for one at an address
	mcpQuiet    = 3 * time.Second  // before it is said that something is waited for
	// MCPLook and MCPInstall are how long a person who looks at servers, or reviews one, waits.
	MCPLook    = time.Minute
	MCPInstall = mcpFirst
)

// mcpState are the MCP servers of a data folder that this process runs, and the gates that
// have their tools.
type mcpState struct {
	mu      sync.Mutex
	servers []*mcpServer // sorted by name
	gates   []mcpGate
	closed  bool
	swap    sync.Mutex     // one at a time, so that the last has the tools of now
	soon    bool           // a swap is to come
	swaps   sync.WaitGroup // of them
}

// mcpServer is a configured MCP server.
type mcpServer struct {
	mcp.Server
	from     string                        // the configuration or .mcp.json
	pins     string                        // the folder that its pins are kept under
	confirm  string                        // as the configuration has it
	oauth    func() (signin.Server, error) // how one signs in, but for the url
	problem  string                        // why it cannot be started
	patience time.Duration                 // of a run that needs it
	client   *mcp.Client
	kept     *mcpKept
}

// mcpKept is what is kept of a server, so that it is not made again for each look.
type mcpKept struct {
	mu     sync.Mutex
	start  time.Time          // when it was started
	read   time.Time          // when pinned was read
	pinned map[string][]byte  //
	tools  map[string]mcpTool // by their names
}

// mcpTool is a tool that was made of a definition.
type mcpTool struct {
	text []byte
	tool toolcrib.Tool
}

// mcpGate is a gate that is in use, with its tools that are no server's.
type mcpGate struct {
	gate  weak.Pointer[gate.Gate]
	tools []toolcrib.Tool
}

// MCPServer is an MCP server as listings show it.
type MCPServer struct {
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

// MCPTool is a tool of an MCP server.
type MCPTool struct {
	Name        string          `json:"name"`
	State       string          `json:"state"` // reviewed | new | changed
	Description string          `json:"description"`
	Definition  json.RawMessage `json:"definition"`
	// Unchecked are the parts of its schema that arguments are not checked against, as JSON Pointers.
	Unchecked []string `json:"unchecked,omitempty"`
}

// The states of [MCPServer] and [MCPTool].
const (
	MCPRunning  = "running"
	MCPFailed   = "failed"
	MCPStopped  = "stopped" // nothing has needed it yet
	MCPReviewed = "reviewed"
	MCPNew      = "new"
	MCPChanged  = "changed"
)

// configuredMCP reads the servers of the configuration.
func (s *Service) configuredMCP() []*mcpServer {
	var list []*mcpServer
	for _, name := range slices.Sorted(maps.Keys(s.Env.Config.MCPServers)) {
		c := s.Env.Config.MCPServers[name]
		if c.Disabled {
			continue
		}
		m := &mcpServer{
			Server: mcp.Server{
				Name: name, Trusted: c.Trusted, Confirm: c.Confirm == string(gate.ConfirmAlways), Tools: c.Tools,
				SSE: c.Type == "sse",
			},
			from: s.Env.Config.Position(config.JoinKey("mcpServers", name)), pins: s.Env.DataDir, confirm: c.Confirm,
		}
		m.oauth = func() (signin.Server, error) { return s.fillOAuth(&c.OAuth) }
		if c.Timeout != nil {
			m.Timeout = c.Timeout.Std()
		}
		m.patience = c.Start.Std()
		if err := s.fillMCP(&m.Server, &c); err != nil {
			m.problem = err.Error()
		}
		list = append(list, m)
	}
	return list
}

// fillMCP fills in the references of a server.
func (s *Service) fillMCP(to *mcp.Server, c *config.MCPServer) (err error) {
	r := s.Env.Resolver()
	fill := func(v config.Value) (text string) {
		if err == nil {
			text, err = v.Resolve(r)
		}
		return text
	}
	to.Command, to.URL, to.Dir = fill(c.Command), fill(c.URL), fill(c.Cwd)
	for _, arg := range c.Args {
		to.Args = append(to.Args, fill(arg))
	}
	to.Env, to.Headers = filled(c.Env, fill), filled(c.Headers, fill)
	return err
}

// filled are values with their references filled in.
func filled[V any](values map[string]V, fill func(V) string) map[string]string {
	out := make(map[string]string, len(values))
	for name, v := range values {
		out[name] = fill(v)
	}
	return out
}

// wantedMCP returns the servers of the configuration, and of the .mcp.json of the current
// folder if that is trusted. Of servers whose tools could be confused, the first counts;
// those of the configuration come first.
func (s *Service) wantedMCP() []*mcpServer {
	list := append(s.configuredMCP(), s.projectMCP()...)
	taken := map[string]*mcpServer{}
	for i, m := range list {
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

// knowMCP reads which servers are wanted now, and returns them. Those that run already keep
// running; those that are no longer wanted are ended. Nothing is started. A service under a
// configuration that is no longer in effect wants none: it has those that there are.
func (s *Service) knowMCP() []*mcpServer {
	if now := s.inEffect.Load(); now != nil && now != s {
		return s.mcp.all()
	}
	wanted := s.wantedMCP()
	for _, m := range wanted { // before they are compared
		m.patience = cmp.Or(m.patience, mcpPatience)
		m.Start = max(m.patience, mcpFirst)
		if m.Command == "" {
			m.Start = max(m.patience, mcpAnswer)
		}
	}
	s.mcp.mu.Lock()
	if s.mcp.closed || len(wanted)+len(s.mcp.servers) == 0 {
		defer s.mcp.mu.Unlock()
		return s.mcp.servers
	}
	var old []*mcp.Client
	for _, known := range s.mcp.servers {
		i := slices.IndexFunc(wanted, func(m *mcpServer) bool {
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
			Version: version.Version(), Changed: s.changedMCP, Log: s.logMCP, SignIn: s.mcpSession(m),
		})
		if err != nil {
			m.problem = err.Error()
			continue
		}
		m.client, m.kept = client, &mcpKept{tools: map[string]mcpTool{}}
	}
	s.mcp.servers = wanted
	s.mcp.mu.Unlock()
	closeMCP(old)
	return wanted
}

// startMCP starts those of the servers that are not running yet, side by side, and waits until each has started or
// failed: of a run (0) as long as it says after its start, else for patience.
func (s *Service) startMCP(ctx context.Context, servers []*mcpServer, patience time.Duration) {
	servers = slices.DeleteFunc(slices.Clone(servers), func(m *mcpServer) bool { return m.client == nil })
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
		s.waitMCP(ctx, m, bound)
	}
}

// waitMCP waits for a server, and says so where it takes long.
func (s *Service) waitMCP(ctx context.Context, m *mcpServer, until time.Time) {
	ctx, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	quiet, stop := context.WithTimeout(ctx, mcpQuiet)
	defer stop()
	if !m.client.Wait(quiet) && ctx.Err() == nil {
		s.Env.Serial(s.Env.Notice)(fmt.Sprintf("MCP server %s is starting, which may take long if it installs itself first; waiting up to %s",
			m.Name, time.Until(until).Round(time.Second)))
		m.client.Wait(ctx)
	}
}

// needMCP starts the servers that a run may use, by the tools of its offer, waits for them,
// and gives the gates in use their tools. Of those that are not there then, the notices say so;
// their tools are used as soon as they come.
func (s *Service) needMCP(ctx context.Context, tools []string, g *gate.Gate) (notices []toolcrib.Notice) {
	var needed []*mcpServer
	reads := slices.Contains(tools, mcp.ListResources) || slices.Contains(tools, mcp.ReadResource)
	for _, m := range s.mcp.all() {
		if m.client != nil && (slices.ContainsFunc(tools, m.client.Has) || reads && m.reviewedOffers().Resources) {
			needed = append(needed, m)
		}
	}
	// Of those that run, what they offer is in the gates as it changes.
	if slices.ContainsFunc(needed, func(m *mcpServer) bool { return !m.client.State().Running }) {
		s.startMCP(ctx, needed, 0)
		s.swapMCP()
	}
	for _, m := range s.mcp.all() {
		if slices.Contains(needed, m) || m.client == nil && slices.ContainsFunc(tools, m.has) {
			notices = append(notices, s.lacks(m, g)...)
		}
	}
	return notices
}

// The codes of notices about what is missing of MCP servers.
const (
	mcpServerMissing = "mcp_server_missing"
	mcpToolsMissing  = "mcp_tools_missing"
)

// maxUnusable bounds the notice about tools that cannot be used, in bytes.
const maxUnusable = 1000

// lacks says what is missing of a server that was started, or cannot be, also in a gate, if it is not nil.
func (s *Service) lacks(m *mcpServer, g *gate.Gate) (notices []toolcrib.Notice) {
	v := s.viewMCP(m)
	if g != nil {
		if list := g.Unusable("mcp:" + m.Name); len(list) > 0 {
			v.Problems = append(v.Problems, fmt.Sprintf("%s cannot be used: %s", guard.Count(len(list), "tool"),
				guard.Clip(strings.Join(list, "; "), maxUnusable)))
		}
	}
	if v.State != MCPRunning {
		notices = append(notices, toolcrib.Notice{
			Code: mcpServerMissing, Message: v.missing(), Public: v.missingWithoutWhy(), Tool: m.glob(),
		})
	}
	for _, problem := range v.Problems {
		notices = append(notices, toolcrib.Notice{
			Code: mcpToolsMissing, Message: fmt.Sprintf("MCP server %s: %s", m.Name, problem),
			Public: fmt.Sprintf("not all tools of the MCP server %s are used", m.Name), Tool: m.glob(),
		})
	}
	return notices
}

// glob matches the tools of a server.
func (m *mcpServer) glob() string {
	name, _ := mcp.CleanName(m.Name) // of a name that is no server's, as it is cleaned
	return name + "__*"
}

// has reports whether a tool of that name would be one of the server's.
func (m *mcpServer) has(tool string) bool {
	ok, _ := path.Match(strings.ToLower(m.glob()), strings.ToLower(tool))
	return ok
}

// missing says that a server does not run.
func (v *MCPServer) missing() string {
	return v.missingWithoutWhy() + ": " + v.Detail
}

func (v *MCPServer) missingWithoutWhy() string {
	return fmt.Sprintf("MCP server %s does not run, so its tools are missing", v.Name)
}

func closeMCP(clients []*mcp.Client) {
	var all sync.WaitGroup
	for _, c := range clients {
		all.Go(c.Close)
	}
	all.Wait()
}

// all are the servers of now.
func (m *mcpState) all() []*mcpServer {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.servers
}

// close ends all servers.
func (m *mcpState) close() {
	m.mu.Lock()
	m.closed = true
	var clients []*mcp.Client
	for _, one := range m.servers {
		if one.client != nil {
			clients = append(clients, one.client)
		}
	}
	m.mu.Unlock()
	closeMCP(clients)
	m.swaps.Wait()
}

// swapDelay is how long a swap waits for more changes.
const swapDelay = 10 * time.Millisecond

// changedMCP has the gates in use get the tools of now, soon.
func (s *Service) changedMCP() {
	s.mcp.mu.Lock()
	defer s.mcp.mu.Unlock()
	if s.mcp.soon || s.mcp.closed || len(s.mcp.gates) == 0 {
		return
	}
	s.mcp.soon = true
	s.mcp.swaps.Go(func() {
		time.Sleep(swapDelay)
		s.mcp.mu.Lock()
		s.mcp.soon = false
		s.mcp.mu.Unlock()
		s.swapMCP()
	})
}

// logMCP writes what a server says on standard error to the log.
func (s *Service) logMCP(server, line string) {
	s.Env.LogLine(slog.LevelInfo, "MCP server", "server", server, "stderr", s.Env.Mask.Mask(line))
}

// tellMCP says which servers cannot be started and which tools are missing, and what to do
// about it. Of a server that has failed, the runs that need it say so.
func (s *Service) tellMCP(list []*mcpServer, to func(string)) {
	tell := s.Env.Once(s.Env.Serial(to))
	for _, m := range list {
		v := s.viewMCP(m)
		review := fmt.Sprintf("to review them: %s mcp review %s", s.Env.Self, trust.ShellWord(m.Name))
		switch {
		case m.client == nil:
			tell(v.missing())
		case v.Unlooked > 0:
			tell(fmt.Sprintf("MCP server %s: %s new or changed since the last review, so not offered; %s", m.Name,
				guard.Count(v.Unlooked, "tool"), review))
		case v.State == MCPStopped && m.pinned() == nil:
			tell(fmt.Sprintf("MCP server %s: its tools were not reviewed yet, so they are not offered; %s", m.Name, review))
		}
		for _, p := range v.Problems {
			tell(fmt.Sprintf("MCP server %s: %s", m.Name, p))
		}
	}
}

func (s *Service) viewMCP(m *mcpServer) MCPServer {
	v := MCPServer{
		Name: m.Name, State: MCPFailed, Detail: m.problem, From: m.from, Where: m.Command, Trusted: m.Trusted,
		Problems: []string{},
	}
	if m.Command == "" {
		v.Where = env.PlaceOf(m.URL)
	}
	if m.client == nil {
		return v
	}
	state := m.client.State()
	v.Detail, v.Server, v.Protocol = s.Env.Mask.Mask(state.Error), state.Server, state.Protocol
	v.Problems = append(v.Problems, state.Problems...)
	switch {
	case state.Running:
		v.State = MCPRunning
	case state.Starts == 0:
		v.State = MCPStopped
	case v.Detail == "":
		m.kept.mu.Lock()
		v.Detail = fmt.Sprintf("it has not started after %s; if it installs itself first, %s mcp review %s waits for %s, and a run "+
			"for its start_timeout", time.Since(m.kept.start).Round(time.Second), s.Env.Self, trust.ShellWord(m.Name), mcpFirst)
		m.kept.mu.Unlock()
	}
	for _, t := range m.tools() {
		if t.State == MCPReviewed {
			v.Tools++
		} else {
			v.Unlooked++
		}
	}
	return v
}

// pinned returns the definitions of a server that were reviewed, by the names of the tools;
// nil if it was never reviewed, or if the record cannot be read. A review by another process
// counts within [overrideAge].
func (m *mcpServer) pinned() map[string][]byte {
	if m.kept == nil {
		return nil
	}
	m.kept.mu.Lock()
	defer m.kept.mu.Unlock()
	if time.Since(m.kept.read) > env.OverrideAge {
		m.kept.pinned, m.kept.read = m.readPins(), time.Now()
	}
	return m.kept.pinned
}

func (m *mcpServer) readPins() map[string][]byte {
	kept, ok := env.TrustStore().Skills().LastTrusted(m.pins, m.pin())
	if !ok || kept.Hash != pinHash(kept.Files) {
		return nil
	}
	return kept.Files
}

// pin is the name that the definitions of a server are kept under.
func (m *mcpServer) pin() string { return "mcp:" + m.Name }

// pinHash is a hash over definitions, by the names of their tools.
func pinHash(definitions map[string][]byte) string {
	text, err := json.Marshal(definitions)
	if err != nil {
		return ""
	}
	return trust.Hash(text)
}

// tools are the tools that the server lists, and whether they were reviewed. What it offers
// beside them is reviewed as one, under the name that those of its tools begin with.
func (m *mcpServer) tools() []MCPTool {
	pinned := m.pinned()
	var out []MCPTool
	add := func(name, description string, text []byte) {
		state := MCPChanged
		switch before, known := pinned[name]; {
		case !known:
			state = MCPNew
		case bytes.Equal(before, text):
			state = MCPReviewed
		}
		out = append(out, MCPTool{Name: name, State: state, Description: description, Definition: text})
	}
	offers := m.client.Offers()
	if text := offers.Text(); text != nil {
		add(m.client.Prefix(), "resources and prompts", text)
	}
	for _, d := range m.client.Definitions() {
		add(d.Name, d.Description, d.Text)
	}
	return out
}

// mcpTools are the tools of the servers that were reviewed as they are now. Of a server that
// nothing has needed yet they are as they were then.
func (s *Service) mcpTools(servers []*mcpServer) (tools []toolcrib.Tool, confirm map[string]string) {
	confirm = map[string]string{}
	readable := func(m *mcpServer) bool { return m.client != nil && m.offers().Resources }
	if slices.ContainsFunc(servers, readable) {
		tools = mcp.ResourceTools(func() map[string]*mcp.Client {
			clients := map[string]*mcp.Client{}
			for _, m := range s.mcp.all() {
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

// reviewedOffers is what a server offered beside tools when it was reviewed.
func (m *mcpServer) reviewedOffers() (o mcp.Offers) {
	if text := m.pinned()[m.client.Prefix()]; json.Unmarshal(text, &o) != nil || !bytes.Equal(o.Text(), text) {
		return mcp.Offers{}
	}
	return o
}

// offers is what a server offers beside tools, if that was reviewed as it is now.
func (m *mcpServer) offers() mcp.Offers {
	reviewed := m.reviewedOffers()
	tried := m.client.Tried()
	if now := m.client.Offers(); tried && !bytes.Equal(now.Text(), reviewed.Text()) {
		return mcp.Offers{}
	}
	return reviewed
}

// reviewed are the definitions of a server as they were reviewed.
func (m *mcpServer) reviewed(pinned map[string][]byte) (defs []mcp.Definition) {
	for _, name := range slices.Sorted(maps.Keys(pinned)) {
		if d, err := m.ReadDefinition(pinned[name]); err == nil && d.Name == name {
			defs = append(defs, d)
		}
	}
	return defs
}

// tool returns the tool of a definition; always the same, so that a gate knows it again.
func (m *mcpServer) tool(d mcp.Definition) toolcrib.Tool {
	m.kept.mu.Lock()
	defer m.kept.mu.Unlock()
	made, ok := m.kept.tools[d.Name]
	if !ok || !bytes.Equal(made.text, d.Text) {
		made = mcpTool{d.Text, m.client.Tool(d)}
		m.kept.tools[d.Name] = made
	}
	return made.tool
}

// unstarted are the tools of a server that cannot be started: those that were reviewed, else any.
func (m *mcpServer) unstarted() (tools []toolcrib.Tool) {
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

// follow gives a gate the tools of MCP servers whenever they change, as long as it is used.
func (s *Service) follow(g *gate.Gate, tools []toolcrib.Tool) {
	s.mcp.mu.Lock()
	defer s.mcp.mu.Unlock()
	s.mcp.gates = slices.DeleteFunc(s.mcp.gates, func(l mcpGate) bool { return l.gate.Value() == nil })
	s.mcp.gates = append(s.mcp.gates, mcpGate{weak.Make(g), tools})
}

// swapMCP gives the gates in use the tools of now. Where that fails they keep what they have:
// a tool that is defined in another way now refuses its calls by itself.
func (s *Service) swapMCP() {
	s.mcp.swap.Lock()
	defer s.mcp.swap.Unlock()
	tools, _ := s.mcpTools(s.mcp.all())
	s.mcp.mu.Lock()
	gates, servers := slices.Clone(s.mcp.gates), s.mcp.servers
	s.mcp.mu.Unlock()
	for _, l := range gates {
		if g := l.gate.Value(); g != nil {
			if err := g.SetTools(append(slices.Clip(l.tools), tools...)); err != nil {
				s.Env.Notice(err.Error())
			}
		}
	}
	started := slices.DeleteFunc(slices.Clone(servers), func(m *mcpServer) bool {
		return m.client == nil || !m.client.State().Running
	})
	if len(gates) > 0 {
		s.tellMCP(started, s.Env.Notice)
	}
}

// MCPServers returns the MCP servers, started. Each has as long as patience for it.
func (s *Service) MCPServers(
	ctx context.Context, who toolcrib.Principal, patience time.Duration,
) ([]MCPServer, error) {
	if err := env.RequireUser(who); err != nil {
		return nil, err
	}
	list := s.knowMCP()
	s.startMCP(ctx, list, patience)
	out := make([]MCPServer, len(list))
	for i, m := range list {
		out[i] = s.viewMCP(m)
	}
	return out, nil
}

// MCPReview is what a server offers, as a person looks at it.
type MCPReview struct {
	Server MCPServer  `json:"server"`
	Digest string     `json:"digest"` // of all definitions
	Tools  []MCPTool  `json:"tools"`
	File   trust.File `json:"-"` // the definitions by tool, with those that were reviewed last

	of *mcpServer
}

// ReviewMCP returns what an MCP server offers now.
func (s *Service) ReviewMCP(ctx context.Context, who toolcrib.Principal, name string) (*MCPReview, error) {
	if err := env.RequireUser(who); err != nil {
		return nil, err
	}
	m, err := mcpNamed(s.knowMCP(), name)
	if err != nil {
		return nil, err
	}
	s.startMCP(ctx, []*mcpServer{m}, MCPInstall)
	v := s.viewMCP(m)
	if v.State != MCPRunning {
		return nil, fmt.Errorf("MCP server %s does not run: %s", name, v.Detail)
	}
	r := &MCPReview{Server: v, Tools: m.tools(), of: m}
	content := map[string][]byte{}
	for i, t := range r.Tools {
		content[t.Name] = t.Definition
		if d, err := m.ReadDefinition(t.Definition); err == nil { // else it is not a tool
			r.Tools[i].Unchecked = gate.Unchecked(d.Schema)
		}
	}
	r.Digest = pinHash(content)
	r.File = trust.File{Path: m.from, Name: m.pin(), Hash: r.Digest, Content: content, Before: m.pinned()}
	switch {
	case v.Unlooked == 0:
		r.File.State = trust.Trusted
	case r.File.Before != nil:
		r.File.State = trust.Changed
	}
	return r, nil
}

// AcceptMCP notes that an administrator has looked at the tools of a server, so that they
// are offered as they were then. digest is that of what was looked at.
func (s *Service) AcceptMCP(ctx context.Context, who toolcrib.Principal, r *MCPReview, digest string) error {
	if _, err := env.Administrator(who); err != nil {
		return err
	}
	if digest != r.Digest {
		return toolcrib.Errorf(toolcrib.CodeConflict, "the tools of MCP server %s have the digest %s now, not %s; "+
			"look at them again", r.Server.Name, r.Digest, digest)
	}
	if err := s.Env.OpenFor(ctx, who); err != nil {
		return err
	}
	changed := store.FileChanged{Path: r.of.pins, Name: r.of.pin(), Hash: digest}
	if err := s.Env.RecordChanged(ctx, who, store.SystemTrustGiven, changed); err != nil {
		return err
	}
	if err := env.TrustStore().Skills().TrustFiles(r.of.pins, []trust.File{r.File}); err != nil {
		return err
	}
	r.of.kept.mu.Lock()
	r.of.kept.read = time.Time{}
	r.of.kept.mu.Unlock()
	r.Tools = r.of.tools()
	if slices.ContainsFunc(r.Tools, func(t MCPTool) bool { return t.State != MCPReviewed }) {
		return fmt.Errorf("MCP server %s: not all of its tools could be kept as reviewed; look at them again", r.Server.Name)
	}
	r.Server = s.viewMCP(r.of)
	s.swapMCP()
	return nil
}
