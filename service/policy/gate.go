package policy

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
	"github.com/toolcrib/toolcrib/internal/egress"
	"github.com/toolcrib/toolcrib/internal/version"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/service/env"
	"github.com/toolcrib/toolcrib/skill"
	"github.com/toolcrib/toolcrib/store"
	"github.com/toolcrib/toolcrib/tool/builtin"
	"github.com/toolcrib/toolcrib/tool/files"
	"github.com/toolcrib/toolcrib/tool/message"
	"github.com/toolcrib/toolcrib/tool/result"
	"github.com/toolcrib/toolcrib/tool/shell"
	"github.com/toolcrib/toolcrib/tool/skillread"
	"github.com/toolcrib/toolcrib/tool/spawn"
	"github.com/toolcrib/toolcrib/tool/system"
	"github.com/toolcrib/toolcrib/tool/tables"
	"github.com/toolcrib/toolcrib/tool/web"
)

// Gate returns the gate for calls in a workspace, with the current tools and policy. It starts no MCP server. If a new
// gate would be the same as the last one, it returns that.
func (p *Policy) Gate(workspace string, seen Paths) (*gate.Gate, error) {
	people := p.people.Standing()
	people.Renew()
	protected, err := p.Protection(workspace, seen)
	if err != nil {
		return nil, err
	}
	path, variables, err := p.Programs()
	if err != nil {
		return nil, err
	}
	made := madeGate{
		s: p, of: []any{protected, path, variables}, at: time.Now(), switches: &availability{store: p.env.Store},
	}
	linked := func(path string) bool { return !seen.free(path) }
	lasts := !p.mcp.Any() &&
		!slices.ContainsFunc(slices.Concat(protected.Write, protected.Touch, protected.Except), linked)
	p.gates.Lock()
	known := p.gates.all[workspace]
	p.gates.Unlock()
	if lasts && known.s == p && made.at.Sub(known.at) < gateAge && reflect.DeepEqual(known.of, made.of) {
		p.env.LearnSecrets()
		known.switches.renewed.Add(1)
		return known.gate, nil
	}
	made.gate, err = p.gateOf(workspace, made.switches, people, nil)
	if err == nil && lasts {
		p.gates.Lock()
		defer p.gates.Unlock()
		if p.gates.all == nil || len(p.gates.all) >= maxGates {
			p.gates.all = map[string]madeGate{}
		}
		p.gates.all[workspace] = made
	}
	return made.gate, err
}

// gates are the last gates, by workspace.
type gates struct {
	sync.Mutex
	all map[string]madeGate
}

// maxGates bounds the number of kept gates, and gateAge how long one is used for new runs: installed programs are
// looked up once per gate.
const (
	maxGates = 64
	gateAge  = 10 * time.Second
)

// madeGate is a gate and what it was made of in addition to the configuration. None of the paths was a symbolic link.
type madeGate struct {
	s        *Policy
	of       []any
	at       time.Time
	gate     *gate.Gate
	switches *availability
}

// gateOf makes a gate. If other is not nil, the gate judges calls of another agent, and its tools are those that other
// returns for the built-in ones.
func (p *Policy) gateOf(
	workspace string, switches gate.Availability, people gate.People, other func([]toolcrib.Tool) []toolcrib.Tool,
) (*gate.Gate, error) {
	c := p.env.Config
	p.env.LearnSecrets()
	protected, err := p.Protection(workspace, nil)
	if err != nil {
		return nil, err
	}
	// The file tools check the files that they open again: the gate checks the paths that a call names, and a search reads
	// files below them.
	paths, err := protected.Rules()
	if err != nil {
		return nil, err
	}
	command, err := p.execShell(protected, other != nil)
	if err != nil {
		return nil, err
	}
	if other == nil {
		shell.Tidy(workspace, protected.Write, protected.Names)
	}
	builtIn := p.builtIn(protected, paths, command)
	if other == nil {
		commands, err := p.commands(protected)
		if err != nil {
			return nil, err
		}
		builtIn = append(append(builtIn, commands...), p.env.Tools...)
	}
	tools, settings := builtIn, ToolSettings(c)
	if other != nil {
		tools = other(builtIn)
	} else {
		foreign, confirm := p.mcp.ReviewedTools()
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
		Before: p.lastGate.Load(), Panicked: p.env.LogPanic,
	}
	set, err := p.compile(tools, builtIn)
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
	p.lastGate.Store(g)
	p.mcp.Follow(g, builtIn)
	tell := p.env.Once(p.env.Notice)
	for _, w := range set.Warnings() {
		if strings.HasPrefix(w.Field, "tools") { // the rule does not apply to a tool that it names
			tell(w.Error())
		}
	}
	p.tellSandbox(command, workspace)
	for _, name := range g.UnknownSettings() {
		tell(fmt.Sprintf("%s: tools.settings.%s: there is no such tool", c.Position("tools.settings."+name), name))
	}
	return g, nil
}

// tellSandbox reports that command lines ask because there is no sandbox, or because it cannot protect the workspace.
func (p *Policy) tellSandbox(command toolcrib.Tool, workspace string) {
	if command == nil || p.env.Config.Tools.Shell.Sandbox == string(shell.SandboxRequired) {
		return
	}
	tell := p.env.Once(p.env.Notice)
	if p.TellNoSandbox(tell) {
		return
	}
	if why := shell.Unprotected(command, workspace); why != "" {
		tell("exec_shell: " + why + ", so each such call asks; see toolcrib doctor")
	}
}

// TellNoSandbox reports whether there is exec_shell but no sandbox. If so, it calls tell with what that means.
func (p *Policy) TellNoSandbox(tell func(string)) bool {
	problem := p.env.NoSandbox()
	if problem == "" || p.env.Config.Tools.Shell.Mode == string(shell.ModeOff) {
		return false
	}
	text := "so each of its calls asks"
	switch {
	case p.env.Config.Tools.Shell.Sandbox == string(shell.SandboxRequired):
		text = "so it refuses every call (tools.shell.sandbox is required)"
	case p.env.Driver == env.DriverServer:
		text = "so " + OnlyTable(p.env.Config.Tools.Shell)
	}
	tell("exec_shell has no sandbox (" + problem + "), " + text + "; see toolcrib doctor")
	return true
}

// positions returns a function that returns the position of a key in the configuration, or "" if the default applies.
func positions(c *config.Config) func(string) string {
	return func(key string) string {
		if !c.IsSet(key) {
			return ""
		}
		return c.Position(key)
	}
}

// ToolSettings returns the settings of single tools.
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

// execShell makes exec_shell as it is configured. It returns nil in mode off. If elsewhere is set, the tool only judges
// what another agent runs.
func (p *Policy) execShell(protected gate.Protected, elsewhere bool) (toolcrib.Tool, error) {
	options, err := p.shellOptions(protected, elsewhere)
	if err != nil {
		return nil, err
	}
	tool, err := shell.New(options)
	if err != nil {
		return nil, env.BadRequestf("tools.%v", err)
	}
	return tool, nil
}

func (p *Policy) shellOptions(protected gate.Protected, elsewhere bool) (options shell.Options, err error) {
	set := p.env.Config.Tools.Shell
	path, variables, err := p.Programs()
	if err != nil {
		return options, err
	}
	home, _ := os.UserHomeDir() // if unknown, the user has no toolchains
	caches := ""
	if set.Caches {
		caches = p.caches()
	}
	var report *shell.Report
	if problem := p.env.NoSandbox(); problem != "" && !elsewhere {
		report = &shell.Report{Problem: problem}
	}
	return shell.Options{
		Path: path, Env: variables, Home: home, Caches: caches, Elsewhere: elsewhere, Report: report,
		Unconfined: p.unconfined, Mode: shell.Mode(set.Mode), Allow: set.Allow, Sandbox: shell.Sandbox(set.Sandbox),
		Network: p.network(), Loopbacks: &p.loopbacks,
		Protected: protected.Write, ProtectedNames: protected.Names, Hidden: protected.Touch, Except: protected.Except,
		OnProtectedChange: func(call toolcrib.Call, changed, aside []string) {
			if call.Notice != nil {
				call.Notice(protectedNotice(&call, changed, aside))
			}
			p.protectedChanged(call.Principal, changed, aside)
		},
	}, nil
}

// unconfined reports whether a principal who is not an administrator may run programs without a sandbox: the user of
// the operating system who owns the data folder, and the users in the configuration. On a server, a run that was
// started with --as is not such a user's, because the user for whom it acts can continue it.
func (p *Policy) unconfined(who toolcrib.Principal) bool {
	named := p.env.Config.Tools.Shell.Unconfined
	inGroup := func(group string) bool { return slices.Contains(named, "group:"+group) }
	return standing.Local(who.User) && who.Token == "" ||
		standing.Local(who.Actor) && p.env.Driver != env.DriverServer ||
		slices.Contains(named, who.User) || slices.ContainsFunc(who.Groups, inGroup)
}

// caches returns the folder of the build caches of commands.
func (p *Policy) caches() string { return filepath.Join(p.env.DataDir, "caches") }

// Programs returns the folders of programs and the variables in the configuration.
func (p *Policy) Programs() (path []string, variables map[string]string, err error) {
	set := p.env.Config.Tools.Shell
	for _, dir := range set.Path {
		abs, err := dir.Resolve(p.env.Resolver())
		if err != nil {
			return nil, nil, err
		}
		path = append(path, abs)
	}
	variables = make(map[string]string, len(set.Env))
	for name, value := range set.Env {
		if variables[name], err = value.Resolve(p.env.Resolver()); err != nil {
			return nil, nil, err
		}
	}
	return path, variables, nil
}

// Unprotected returns why the sandbox cannot keep some command lines in a workspace from protected files, or "" if it
// can.
func (p *Policy) Unprotected(workspace string) string {
	protected, _ := p.Protection(workspace, nil)
	tool, _ := p.execShell(protected, false) // errors are reported where they matter
	return shell.Unprotected(tool, workspace)
}

// NotStrict returns why command lines in a workspace that are not listed ask, even if they only read, or "".
func (p *Policy) NotStrict(workspace string) string {
	protected, _ := p.Protection(workspace, nil)
	tool, _ := p.execShell(protected, false) // errors are reported where they matter
	return shell.NotStrict(tool, workspace)
}

// storeFacts returns the facts about the store for get_runtime_info.
func (p *Policy) storeFacts(ctx context.Context) map[string]string {
	facts := map[string]string{"store": "sqlite"}
	if v, err := p.env.Store.OverridesVersion(ctx); err == nil {
		facts["overrides_version"] = strconv.FormatUint(v, 10)
	}
	return facts
}

// untrustedResult reports from the journal whether a kept result is untrusted data. If that is unknown, it is. It reads
// what a call of the run may read at any time.
func (p *Policy) untrustedResult(run toolcrib.RunID, ref string) (string, bool) {
	for e, err := range p.env.Store.Read(context.Background(), run, 0) {
		if err != nil {
			break
		}
		if r, ok := e.Body.(*journal.ToolResult); ok && r.Ref == ref {
			return r.Source, r.Untrusted
		}
	}
	return "unknown", true
}

// availability reads the overrides of administrators (A9), at each offer and each turn. Each gate has its own. The
// first answer after it was made or renewed always comes from the store, so that a new run begins with the overrides of
// that time.
type availability struct {
	store         store.Store
	renewed, read atomic.Uint64 // number of renewals, and one more than that number when the overrides were last read
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

// set records an override of a tool or a group, and returns the map that has it.
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

// builtIn returns the built-in tools. If command is nil, there is no exec_shell. Without a store the tools must not be
// called.
func (p *Policy) builtIn(protected gate.Protected, paths gate.PathRules, command toolcrib.Tool) []toolcrib.Tool {
	c := p.env.Config
	tools := builtin.New(builtin.Options{
		Files: files.Options{
			Protected: paths.NeverWritten, Hidden: paths.NeverTouched, Own: protected.Touch,
			OwnExcept: append(protected.Except, p.caches()),
		},
		System: system.Options{
			Version: version.Version(), Started: p.env.Started, Data: p.storeFacts, Details: p.details, Logs: p.logs(),
			Mask: func(text string) string { return p.env.Mask.Mask(text) },
		},
		Memory: p.people.NoteFiles(), Web: p.web(), Databases: p.Databases(), Directory: p.people.Directory(),
		Agents:   CallableAgents(c),
		Messages: message.Options{Channels: slices.Sorted(maps.Keys(c.Channels)), Open: p.env.OpenChannel},
		Shell:    command != nil, Results: result.Options{Contents: p.env.Store, Untrusted: p.untrustedResult},
		Skills: skillread.Options{Skills: p.skillSet, Variables: p.skillVars},
	})
	if command != nil {
		tools = append(append(tools, command), shell.Companions(command)...)
	}
	return tools
}

// CallableAgents returns the agents that a model may know: all configured ones. The gate decides at each call which of
// them a run may use.
func CallableAgents(c *config.Config) []spawn.Agent {
	names := c.AgentNames()
	agents := make([]spawn.Agent, len(names))
	for i, name := range names {
		agents[i] = spawn.Agent{Name: name, Description: c.Agents[name].Description}
	}
	return agents
}

// spawnFor returns the spec of spawn with the agents that who may use.
func (p *Policy) spawnFor(ctx context.Context, who toolcrib.Principal) toolcrib.Spec {
	agents := CallableAgents(p.env.Config)
	if !env.ReadsConfig(who) {
		names, _ := p.RunnableAgents(ctx, who) // after an error it names none
		agents = slices.DeleteFunc(agents, func(a spawn.Agent) bool { return !slices.Contains(names, a.Name) })
	}
	return spawn.New(agents).Spec()
}

// logFile returns the path of the log file, or "" without one.
func (p *Policy) logFile() string {
	file, err := p.env.Config.Log.File.Resolve(p.env.Resolver())
	if err != nil {
		return ""
	}
	return file
}

// logs returns what fetch_logs reads: the log file, or else the log of this process.
func (p *Policy) logs() system.Logs {
	if file := p.logFile(); file != "" {
		return system.LogFile{Path: file}
	}
	return p.Ring()
}

// Ring returns the last lines that this process has logged.
func (p *Policy) Ring() *system.LogRing { return &p.logged }

// details returns the facts for get_runtime_info_raw.
func (p *Policy) details(context.Context) map[string]string {
	facts := map[string]string{"database": p.env.Store.Path(), "data_dir": p.env.DataDir}
	if file, err := filepath.Abs(p.env.Config.File()); err == nil && p.env.Config.File() != "" {
		facts["configuration"] = file
	}
	if file := p.logFile(); file != "" {
		facts["log_file"] = file
	}
	return facts
}

// network returns the network of commands. What they transfer counts as what web_fetch does.
func (p *Policy) network() shell.Network {
	set, c, o := p.env.Config.Tools.Shell.Network, &p.env.Config.Tools.Web, p.web()
	return shell.Network{
		Ask: set.Ask, Hosts: set.Hosts, Deny: c.Deny, AllowPrivate: c.AllowPrivate,
		Budget: egress.Budget{Bytes: o.SessionBytes, Hosts: o.SessionHosts, Files: o.Files, CountedFor: o.CountedFor},
	}
}

// web returns the options of web_fetch and web_search.
func (p *Policy) web() web.Options {
	c := &p.env.Config.Tools.Web
	o := web.Options{
		Version: version.Version(), Allow: c.Allow, Deny: c.Deny, AllowPrivate: c.AllowPrivate, MaxBytes: c.MaxBytes,
		SessionBytes: c.MaxBytesPerSession, SessionHosts: c.MaxHostsPerSession,
		Files: p.env.Files(), Cache: &p.pages,
		CountedFor: func(call toolcrib.Call) (string, error) {
			rec, err := p.env.Store.Run(context.Background(), call.Run)
			if err == nil {
				rec, err = p.env.Top(context.Background(), rec)
			}
			return string(rec.ID), err
		},
	}
	if !c.Search.Endpoint.IsEmpty() {
		o.SearchEndpoint = func() (string, error) { return c.Search.Endpoint.Resolve(p.env.Resolver()) }
		o.SearchKey = func() (string, error) { return c.Search.APIKey.Resolve(p.env.Resolver()) }
	}
	return o
}

// Databases returns the databases for describe_tables. Their addresses are resolved at each use.
func (p *Policy) Databases() []tables.Database {
	var found []tables.Database
	for _, name := range slices.Sorted(maps.Keys(p.env.Config.SQL)) {
		address := p.env.Config.SQL[name].URL
		found = append(found, builtin.Database(name, func(context.Context) (string, error) {
			return address.Resolve(p.env.Resolver())
		}))
	}
	return found
}

// MayReadMCP returns an error if who may not read the prompts or the resources of an MCP server. Prompts are for users
// who may use the group of its tools, resources for those who may use the tool that reads them for models. The command
// line does not ask it, because its user starts the servers.
func (p *Policy) MayReadMCP(ctx context.Context, who toolcrib.Principal, server string, resources bool) error {
	var switches gate.Availability = &availability{store: p.env.Store}
	if !p.env.Config.Tools.Enabled {
		switches = gate.Overrides{Off: true}
	}
	g, err := gate.New(gate.Options{Availability: switches, People: p.people.Standing()})
	if err != nil {
		return err
	}
	spec := toolcrib.Spec{Name: "mcp:" + server, Group: "mcp:" + server, EnabledByDefault: true}
	if resources {
		spec.Name, spec.Group = mcp.ReadResource, mcp.ResourceGroup
	}
	return g.MayUse(ctx, who, spec)
}

// OfferOf returns the names of those tools that a run would be offered if there were no others.
func (p *Policy) OfferOf(
	ctx context.Context, who toolcrib.Principal, tools []toolcrib.Tool, scope gate.Scope,
) []string {
	if !p.env.Config.Tools.Enabled {
		return nil
	}
	switches := &availability{store: p.env.Store}
	g, err := gate.New(gate.Options{Tools: tools, Availability: switches, People: p.people.Standing()})
	if err != nil {
		return nil
	}
	offer, err := g.Offer(ctx, who, scope)
	if err != nil {
		return nil
	}
	return offer.Record.Names()
}
