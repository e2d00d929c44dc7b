package config

import (
	"reflect"

	"github.com/toolcrib/toolcrib/internal/yamltree"
)

// Unsupported is a key that is set and checked, but that this version does not
// act upon.
type Unsupported struct {
	Key      string // key path
	Position string // toolcrib.yaml:31
	Message  string // what that means and what to do
	// Safety is set where passing over the key would allow more than its author
	// meant: whatever would run under it must be refused.
	Safety bool
	// Runs is set where a run may be another than its author meant, so that each run
	// says it too, and not only `config check`.
	Runs bool
}

// Error returns "toolcrib.yaml:31: rules: …".
func (u Unsupported) Error() string { return u.Position + ": " + u.Key + ": " + u.Message }

// Unsupported returns the keys that are set to more than their default and not yet
// acted upon, in the order of the contract's sample.
func (c *Config) Unsupported() []Unsupported {
	var out []Unsupported
	add := func(set bool, u Unsupported) {
		if set {
			u.Position = c.Position(u.Key)
			out = append(out, u)
		}
	}
	def := Default()
	const not = " not supported by this version; "
	add(!c.Database.IsEmpty(), Unsupported{Key: "database", Message: "PostgreSQL is" + not + "remove the key to use SQLite", Safety: true})
	add(c.Listen.Raw() != def.Listen.Raw(), Unsupported{Key: "listen", Message: "a server is" + not + "nothing listens"})
	add(!c.Bus.URL.IsEmpty(), Unsupported{Key: "bus.url", Message: "a bus of your own is" + not + "remove the key", Safety: true})
	add(!c.Telemetry.OTLP.IsEmpty() || c.Telemetry.Content, Unsupported{Key: "telemetry", Message: "OpenTelemetry is" + not + "no traces are sent"})
	for _, name := range c.AgentNames() {
		at := yamltree.JoinKey("agents", name)
		add(c.Agents[name].MaxConcurrent > 0, Unsupported{Key: at + ".max_concurrent", Message: "a server is" + not + "runs of the command line are not counted"})
		add(c.Agents[name].FindTools != def.Agents[DefaultAgent].FindTools, Unsupported{Key: at + ".find_tools", Message: "find_tools is" + not + "every offer is given whole"})
	}
	add(len(c.Tools.Bound) > 0, Unsupported{Key: "tools.bound", Message: "capabilities of a bus are" + not + "these tools are missing", Runs: true})
	c.unsupportedShell(add)
	add(changed(c.Tools.Web, def.Tools.Web), Unsupported{Key: "tools.web", Message: "web_fetch and web_search are" + not + "these tools are missing", Runs: true})
	add(changed(c.Team, def.Team), Unsupported{Key: "team", Message: "confer, coordinate and assess are" + not + "nothing uses the key"})
	add(len(c.Channels) > 0, Unsupported{Key: "channels", Message: "channels are" + not + "the tool message is missing, and no message starts a run", Runs: true})
	add(changed(c.Notes, def.Notes), Unsupported{Key: "notes", Message: "notes of a project are" + not + "none are read", Runs: len(c.Notes.Files) > 0})
	add(len(c.MCPServers) > 0, Unsupported{Key: "mcpServers", Message: "MCP servers are" + not + "their tools are missing", Runs: true})
	add(changed(c.Server, def.Server), Unsupported{Key: "server", Message: "a server is" + not + "nothing uses the key"})
	return out
}

// changed reports whether a section says anything else than its default.
func changed(section, def any) bool {
	return string(yamltree.AppendJSON(nil, shown(reflect.ValueOf(section)))) != string(yamltree.AppendJSON(nil, shown(reflect.ValueOf(def))))
}

// unsupportedShell adds what exec_shell does not act upon.
func (c *Config) unsupportedShell(add func(bool, Unsupported)) {
	const not = " not supported by this version; "
	set := c.Tools.Shell
	add(set.Mode == ShellAsk, Unsupported{Key: "tools.shell.mode", Message: "ask is" + not + "a program that is not listed is refused, as in mode allowlist", Runs: true})
	add(len(set.Path) > 0, Unsupported{Key: "tools.shell.path", Message: "folders of programs are" + not + "remove the key to use the PATH", Safety: true})
	add(len(set.Env) > 0, Unsupported{Key: "tools.shell.env", Message: "variables for programs are" + not + "programs do not get them", Runs: true})
	add(!set.Caches, Unsupported{Key: "tools.shell.caches", Message: "build caches are" + not + "there are none"})
}

// ShellAsk is the mode of exec_shell in which a person is asked about programs that are
// not listed.
const ShellAsk = "ask"
