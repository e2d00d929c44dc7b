package service

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/toolcrib/toolcrib/mcp"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/access/standing"
	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/internal/config"
	"github.com/toolcrib/toolcrib/internal/version"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/service/env"
	"github.com/toolcrib/toolcrib/skill"
	"github.com/toolcrib/toolcrib/store"
	"github.com/toolcrib/toolcrib/tool/builtin"
	"github.com/toolcrib/toolcrib/tool/files"
	"github.com/toolcrib/toolcrib/tool/result"
	"github.com/toolcrib/toolcrib/tool/shell"
	"github.com/toolcrib/toolcrib/tool/skillread"
	"github.com/toolcrib/toolcrib/tool/spawn"
	"github.com/toolcrib/toolcrib/tool/system"
	"github.com/toolcrib/toolcrib/tool/tables"
	"github.com/toolcrib/toolcrib/tool/web"
)

// Gate returns the gate for calls in a workspace: the tools there are, and today's policy. It starts no MCP server:
// see [Service.needMCP]. It is the one that was made before if it would be made of the same again.
func (s *Service) Gate(workspace string) (*gate.Gate, error) { return s.gate(workspace, links{}) }

func (s *Service) gate(workspace string, looked links) (*gate.Gate, error) {
	people := s.People.Standing()
	people.Renew()
	protected, err := s.protection(workspace, looked)
	if err != nil {
		return nil, err
	}
	path, variables, err := s.programs()
	if err != nil {
		return nil, err
	}
	made := madeGate{
		s: s, of: []any{protected, path, variables}, at: time.Now(), switches: &availability{store: s.Env.Store},
	}
	linked := func(path string) bool { return !looked.free(path) }
	lasts := !s.MCP.Any() &&
		!slices.ContainsFunc(slices.Concat(protected.Write, protected.Touch, protected.Except), linked)
	s.gates.Lock()
	known := s.gates.all[workspace]
	s.gates.Unlock()
	if lasts && known.s == s && made.at.Sub(known.at) < gateAge && reflect.DeepEqual(known.of, made.of) {
		s.Env.LearnSecrets()
		known.switches.renewed.Add(1)
		return known.gate, nil
	}
	made.gate, err = s.gateOf(workspace, made.switches, people, nil)
	if err == nil && lasts {
		s.gates.Lock()
		defer s.gates.Unlock()
		if s.gates.all == nil || len(s.gates.all) >= maxGates {
			s.gates.all = map[string]madeGate{}
		}
		s.gates.all[workspace] = made
	}
	return made.gate, err
}

// gates are those that were made last, by their workspaces.
type gates struct {
	sync.Mutex
	all map[string]madeGate
}

// maxGates bounds them, and gateAge how long one is used for new runs: what programs are installed is
// looked up once for each gate.
const (
	maxGates = 64
	gateAge  = 10 * time.Second
)

// madeGate is a gate, with what it was made of beside the configuration. Nothing of that was a link.
type madeGate struct {
	s        *Service
	of       []any
	at       time.Time
	gate     *gate.Gate
	switches *availability
}

// gateOf makes it; with other, to judge calls that another agent makes, of the tools that it returns
// for the built-in ones.
func (s *Service) gateOf(
	workspace string, switches gate.Availability, people gate.People, other func([]toolcrib.Tool) []toolcrib.Tool,
) (*gate.Gate, error) {
	c := s.Env.Config
	s.Env.LearnSecrets()
	protected, err := s.Protection(workspace)
	if err != nil {
		return nil, err
	}
	// The file tools ask once more about what is really open: the gate asks about
	// what a call names, a search also meets what lies below that.
	paths, err := protected.Rules()
	if err != nil {
		return nil, err
	}
	command, err := s.execShell(protected, other != nil)
	if err != nil {
		return nil, err
	}
	if other == nil {
		shell.Tidy(workspace, protected.Write, protected.Names)
	}
	builtIn := s.builtIn(protected, paths, command)
	tools, settings := builtIn, ToolSettings(c)
	if other != nil {
		tools = other(builtIn)
	} else {
		foreign, confirm := s.MCP.ReviewedTools()
		tools = append(slices.Clip(builtIn), foreign...)
		for name, mode := range confirm {
			if set := settings[name]; set.Confirm == "" {
				set.Confirm = gate.ConfirmMode(mode)
				settings[name] = set
			}
		}
	}
	if !c.Tools.Enabled {
		switches = gate.Overrides{Off: true}
	}
	options := gate.Options{
		Tools: tools, Availability: switches, People: people, Settings: settings, Paths: &paths,
		Confirm: gate.ConfirmMode(c.Tools.Confirm), Positions: positions(c), SkillArguments: skill.Allowed,
		Before: s.lastGate.Load(), Panicked: s.Env.LogPanic,
	}
	set, err := s.rules(tools, builtIn)
	if err != nil {
		return nil, err
	}
	if set != nil {
		options.Rules = set
	}
	g, err := gate.New(options)
	if err != nil {
		return nil, err
	}
	if other != nil {
		return g, nil
	}
	s.lastGate.Store(g)
	s.MCP.Follow(g, builtIn)
	tell := s.Env.Once(s.Env.Notice)
	for _, w := range set.Warnings() {
		if strings.HasPrefix(w.Field, "tools") { // the rule does not hold for what it names
			tell(w.Error())
		}
	}
	s.tellSandbox(command, workspace)
	for _, name := range g.UnknownSettings() {
		tell(fmt.Sprintf("%s: tools.settings.%s: there is no such tool", c.Position("tools.settings."+name), name))
	}
	return g, nil
}

// tellSandbox says that command lines ask for lack of a sandbox, or of protection in a workspace.
func (s *Service) tellSandbox(command toolcrib.Tool, workspace string) {
	if command == nil || s.Env.Config.Tools.Shell.Sandbox == string(shell.SandboxRequired) {
		return
	}
	tell := s.Env.Once(s.Env.Notice)
	if s.TellNoSandbox(tell) {
		return
	}
	if why := shell.Unprotected(command, workspace); why != "" {
		tell("exec_shell: " + why + ", so each such call asks; see toolcrib doctor")
	}
}

// TellNoSandbox reports whether there is exec_shell but no sandbox, and says then what that means.
func (s *Service) TellNoSandbox(tell func(string)) bool {
	problem := s.Env.NoSandbox()
	if problem == "" || s.Env.Config.Tools.Shell.Mode == string(shell.ModeOff) {
		return false
	}
	text := "so each of its calls asks"
	switch {
	case s.Env.Config.Tools.Shell.Sandbox == string(shell.SandboxRequired):
		text = "so it refuses every call (tools.shell.sandbox is required)"
	case s.Env.Driver == env.DriverServer:
		text = "so " + onlyTable(s.Env.Config.Tools.Shell)
	}
	tell("exec_shell has no sandbox (" + problem + "), " + text + "; see toolcrib doctor")
	return true
}

// positions returns where the configuration says something; a default stands nowhere.
func positions(c *config.Config) func(string) string {
	return func(key string) string {
		if !c.IsSet(key) {
			return ""
		}
		return c.Position(key)
	}
}

// ToolSettings are what the configuration says of single tools.
func ToolSettings(c *config.Config) map[string]gate.ToolSettings {
	out := make(map[string]gate.ToolSettings, len(c.Tools.Settings))
	for name, s := range c.Tools.Settings {
		set := gate.ToolSettings{Confirm: gate.ConfirmMode(s.Confirm)}
		if s.Timeout != nil {
			set.Timeout = s.Timeout.Std()
		}
		if s.MaxResultBytes != nil {
			set.MaxResultBytes = *s.MaxResultBytes
		}
		if s.Untrusted != nil {
			set.Untrusted = *s.Untrusted
		}
		out[name] = set
	}
	return out
}

// execShell makes exec_shell as the configuration says; nil in mode off. elsewhere: it only judges
// what another agent runs.
func (s *Service) execShell(p gate.Protected, elsewhere bool) (toolcrib.Tool, error) {
	set := s.Env.Config.Tools.Shell
	path, variables, err := s.programs()
	if err != nil {
		return nil, err
	}
	home, _ := os.UserHomeDir() // without one there are no toolchains of the user's
	caches := ""
	if set.Caches {
		caches = s.caches()
	}
	var report *shell.Report
	if problem := s.Env.NoSandbox(); problem != "" && !elsewhere {
		report = &shell.Report{Problem: problem}
	}
	tool, err := shell.New(shell.Options{
		Path: path, Env: variables, Home: home, Caches: caches, Elsewhere: elsewhere, Report: report,
		Unconfined: s.unconfined, Mode: shell.Mode(set.Mode), Allow: set.Allow, Sandbox: shell.Sandbox(set.Sandbox),
		Network:   set.Network,
		Protected: p.Write, ProtectedNames: p.Names, Hidden: p.Touch, Except: p.Except,
		OnProtectedChange: func(call toolcrib.Call, changed, aside []string) {
			if call.Notice != nil {
				call.Notice(protectedNotice(&call, changed, aside))
			}
			s.protectedChanged(call.Principal, changed, aside)
		},
	})
	if err != nil {
		return nil, env.BadRequestf("tools.%v", err)
	}
	return tool, nil
}

// unconfined reports whether a principal who is no administrator may run programs without a sandbox: the user of
// the operating system to whom the data folder belongs, and whom the configuration names. On a server a run of --as
// does not count as that user's: whom it is for can continue it.
func (s *Service) unconfined(who toolcrib.Principal) bool {
	named := s.Env.Config.Tools.Shell.Unconfined
	inGroup := func(group string) bool { return slices.Contains(named, "group:"+group) }
	return standing.Local(who.User) && who.Token == "" ||
		standing.Local(who.Actor) && s.Env.Driver != env.DriverServer ||
		slices.Contains(named, who.User) || slices.ContainsFunc(who.Groups, inGroup)
}

// caches is the folder of the build caches that commands keep.
func (s *Service) caches() string { return filepath.Join(s.Env.DataDir, "caches") }

// programs are the folders of programs and the variables that the configuration sets.
func (s *Service) programs() (path []string, variables map[string]string, err error) {
	set := s.Env.Config.Tools.Shell
	for _, dir := range set.Path {
		abs, err := dir.Resolve(s.Env.Resolver())
		if err != nil {
			return nil, nil, err
		}
		path = append(path, abs)
	}
	variables = make(map[string]string, len(set.Env))
	for name, value := range set.Env {
		if variables[name], err = value.Resolve(s.Env.Resolver()); err != nil {
			return nil, nil, err
		}
	}
	return path, variables, nil
}

// Unprotected returns why there are command lines in a workspace from which protected files
// cannot be kept, although there is a sandbox; "" if there are none, or none are run.
func (s *Service) Unprotected(workspace string) string {
	p, _ := s.Protection(workspace)
	tool, _ := s.execShell(p, false) // what is wrong with either is told where it is used
	return shell.Unprotected(tool, workspace)
}

// storeFacts are what get_runtime_info tells about the store.
func (s *Service) storeFacts(ctx context.Context) map[string]string {
	facts := map[string]string{"store": "sqlite"}
	if v, err := s.Env.Store.OverridesVersion(ctx); err == nil {
		facts["overrides_version"] = strconv.FormatUint(v, 10)
	}
	return facts
}

// untrustedResult reports from the journal whether a kept result is untrusted data; what
// cannot be told is. It reads what a call of the run at hand may read, whenever that is.
func (s *Service) untrustedResult(run toolcrib.RunID, ref string) (string, bool) {
	for e, err := range s.Env.Store.Read(context.Background(), run, 0) {
		if err != nil {
			break
		}
		if r, ok := e.Body.(*journal.ToolResult); ok && r.Ref == ref {
			return r.Source, r.Untrusted
		}
	}
	return "unknown", true
}

// availability reads what administrators have switched on and off (A9), at each
// offer and each turn. There is one for each gate, and its first answer after it was made or
// renewed is always read from the store, so that a new run begins with what holds then.
type availability struct {
	store         store.Store
	renewed, read atomic.Uint64 // how often it was renewed, and one more than that when what holds was read
}

func (v *availability) Overrides(ctx context.Context) (over gate.Overrides, err error) {
	age, now := env.OverrideAge, v.renewed.Load()+1
	if v.read.Load() < now {
		age = 0
	}
	read, err := v.store.Overrides(ctx, age)
	if err != nil {
		return over, err
	}
	v.read.Store(now)
	for _, o := range read {
		set(&over, o.Kind, o.Name, o.Enabled)
	}
	return over, nil
}

// set notes in the map that it returns that a tool or a group is switched on or off.
func set(over *gate.Overrides, kind store.OverrideKind, name string, enabled bool) map[string]bool {
	of := &over.Tools
	if kind == store.OverrideGroup {
		of = &over.Groups
	}
	if *of == nil {
		*of = map[string]bool{}
	}
	(*of)[name] = enabled
	return *of
}

// builtIn are the tools that toolcrib comes with; command nil = no exec_shell. Without a
// store they are only looked at, never called.
func (s *Service) builtIn(p gate.Protected, paths gate.PathRules, command toolcrib.Tool) []toolcrib.Tool {
	c := s.Env.Config
	tools := builtin.New(builtin.Options{
		Files: files.Options{
			Protected: paths.NeverWritten, Hidden: paths.NeverTouched, Own: p.Touch, OwnExcept: append(p.Except, s.caches()),
		},
		System: system.Options{
			Version: version.Version(), Started: s.Env.Started, Data: s.storeFacts, Details: s.details, Logs: s.logs(),
			Mask: func(text string) string { return s.Env.Mask.Mask(text) },
		},
		Memory: s.notes(), Web: s.web(), Databases: s.sqlDatabases(), Directory: s.People.Directory(),
		Agents: callableAgents(c),
		Shell:  command != nil, Results: result.Options{Contents: s.Env.Store, Untrusted: s.untrustedResult},
		Skills: skillread.Options{Skills: s.skillSet, Variables: s.skillVars},
	})
	if command != nil {
		tools = append(append(tools, command), shell.Companions(command)...)
	}
	return tools
}

// callableAgents are those that a model may know: all that are configured.
// Whom a run may really use is the gate's to say, at each call.
func callableAgents(c *config.Config) []spawn.Agent {
	names := c.AgentNames()
	agents := make([]spawn.Agent, len(names))
	for i, name := range names {
		agents[i] = spawn.Agent{Name: name, Description: c.Agents[name].Description}
	}
	return agents
}

// spawnFor is spawn as who may read it: with the agents that they may use.
func (s *Service) spawnFor(ctx context.Context, who toolcrib.Principal) toolcrib.Spec {
	agents := callableAgents(s.Env.Config)
	if !env.ReadsConfig(who) {
		names, _ := s.RunnableAgents(ctx, who) // an error names none
		agents = slices.DeleteFunc(agents, func(a spawn.Agent) bool { return !slices.Contains(names, a.Name) })
	}
	return spawn.New(agents).Spec()
}

// logFile is the file of the log; "" = none.
func (s *Service) logFile() string {
	file, err := s.Env.Config.Log.File.Resolve(s.Env.Resolver())
	if err != nil {
		return ""
	}
	return file
}

// logs is where fetch_logs reads: the file of the log, else what this process has logged.
func (s *Service) logs() system.Logs {
	if file := s.logFile(); file != "" {
		return system.LogFile{Path: file}
	}
	return s.Ring()
}

// Ring keeps what this process has logged.
func (s *Service) Ring() *system.LogRing { return &s.logged }

// details are the places that get_runtime_info_raw tells about.
func (s *Service) details(context.Context) map[string]string {
	facts := map[string]string{"database": s.Env.Store.Path(), "data_dir": s.Env.DataDir}
	if file, err := filepath.Abs(s.Env.Config.File()); err == nil && s.Env.Config.File() != "" {
		facts["configuration"] = file
	}
	if file := s.logFile(); file != "" {
		facts["log_file"] = file
	}
	return facts
}

// web is what web_fetch may reach, and where web_search asks.
func (s *Service) web() web.Options {
	c := &s.Env.Config.Tools.Web
	o := web.Options{
		Version: version.Version(), Allow: c.Allow, Deny: c.Deny, AllowPrivate: c.AllowPrivate, MaxBytes: c.MaxBytes,
		SessionBytes: c.MaxBytesPerSession, SessionHosts: c.MaxHostsPerSession,
		Ledger: &web.Ledger{Dir: filepath.Join(s.Env.DataDir, "web")}, Cache: &s.pages,
		CountedFor: func(call toolcrib.Call) (string, error) {
			rec, err := s.Env.Store.Run(context.Background(), call.Run)
			if err == nil {
				rec, err = s.Env.Top(context.Background(), rec)
			}
			return string(rec.ID), err
		},
	}
	if !c.Search.Endpoint.IsEmpty() {
		o.SearchEndpoint = func() (string, error) { return c.Search.Endpoint.Resolve(s.Env.Resolver()) }
		o.SearchKey = func() (string, error) { return c.Search.APIKey.Resolve(s.Env.Resolver()) }
	}
	return o
}

// sqlDatabases are what describe_tables shows. Addresses are filled in at each use.
func (s *Service) sqlDatabases() []tables.Database {
	var found []tables.Database
	for _, name := range slices.Sorted(maps.Keys(s.Env.Config.SQL)) {
		address := s.Env.Config.SQL[name].URL
		found = append(found, builtin.Database(name, func(context.Context) (string, error) {
			return address.Resolve(s.Env.Resolver())
		}))
	}
	return found
}

// MayReadMCP returns an error if who may not read what an MCP server has beside tools: its prompts are
// for those who may use the group of its tools, its resources for those who may use the tool by which models
// read them. Here it is not asked: whoever sits at the machine starts the servers themselves.
func (s *Service) MayReadMCP(ctx context.Context, who toolcrib.Principal, server string, resources bool) error {
	var switches gate.Availability = &availability{store: s.Env.Store}
	if !s.Env.Config.Tools.Enabled {
		switches = gate.Overrides{Off: true}
	}
	g, err := gate.New(gate.Options{Availability: switches, People: s.People.Standing()})
	if err != nil {
		return err
	}
	spec := toolcrib.Spec{Name: "mcp:" + server, Group: "mcp:" + server, EnabledByDefault: true}
	if resources {
		spec.Name, spec.Group = mcp.ReadResource, mcp.ResourceGroup
	}
	return g.MayUse(ctx, who, spec)
}
