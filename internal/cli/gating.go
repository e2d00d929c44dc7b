package cli

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/internal/config"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/store/sqlite"
	"github.com/toolcrib/toolcrib/tool/shell"
)

// gate makes the gate: the tools there are, and today's policy.
func (a *app) gate(ctx context.Context, s *sqlite.Store, workspace string) (*gate.Gate, error) {
	people := a.service.Standing()
	people.Renew()
	return a.gateWith(ctx, s, workspace, &availability{store: s}, people)
}

// gateWith makes it with another look at what is switched off and at people.
func (a *app) gateWith(ctx context.Context, s *sqlite.Store, workspace string, switches gate.Availability, people gate.People) (*gate.Gate, error) {
	c, err := a.configuration()
	if err != nil {
		return nil, err
	}
	a.service.LearnSecrets()
	protected, err := a.protection(workspace)
	if err != nil {
		return nil, err
	}
	// The file tools ask once more about what is really open: the gate asks about
	// what a call names, a search also meets what lies below that.
	paths, err := protected.Rules()
	if err != nil {
		return nil, err
	}
	command, err := a.execShell(c, protected)
	if err != nil {
		return nil, err
	}
	tools := a.builtIn(ctx, c, s, protected, paths, command)
	if !c.Tools.Enabled {
		switches = gate.Overrides{Off: true}
	}
	options := gate.Options{
		Tools:        tools,
		Availability: switches,
		People:       people,
		Confirm:      gate.ConfirmMode(c.Tools.Confirm),
		Settings:     toolSettings(c),
		Protected:    protected,
		Positions:    positions(c),

		SkillArguments: skillArguments(),
	}
	set, err := rules(c, tools)
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
	tell := a.once(func(text string) { a.notice("%s", text) })
	for _, w := range set.Warnings() {
		if strings.HasPrefix(w.Field, "tools") { // the rule does not hold for what it names
			tell(w.Error())
		}
	}
	if set := c.Tools.Shell; command != nil && set.Sandbox != string(shell.SandboxRequired) {
		if problem := a.noSandbox(); problem != "" {
			tell("exec_shell has no sandbox (" + problem + "), so each of its calls asks; toolcrib doctor tells more")
		} else if why := shell.Unprotected(command); why != "" {
			tell("exec_shell: " + why + ", so each such call asks; toolcrib doctor tells more")
		}
	}
	for _, name := range g.UnknownSettings() {
		tell(fmt.Sprintf("%s: tools.settings.%s: there is no such tool", c.Position("tools.settings."+name), name))
	}
	return g, nil
}

// positions tells where the configuration says something; a default stands
// nowhere.
func positions(c *config.Config) func(string) string {
	return func(key string) string {
		if !c.IsSet(key) {
			return ""
		}
		return c.Position(key)
	}
}

func toolSettings(c *config.Config) map[string]gate.ToolSettings {
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

// execShell makes exec_shell as the configuration says; nil in mode off.
func (a *app) execShell(c *config.Config, p gate.Protected) (toolcrib.Tool, error) {
	set := c.Tools.Shell
	mode := shell.Mode(set.Mode)
	if set.Mode == config.ShellAsk {
		mode = shell.ModeAllowlist // config.Unsupported says so
	}
	tool, err := shell.New(shell.Options{
		Mode: mode, Allow: set.Allow, Sandbox: shell.Sandbox(set.Sandbox), Network: set.Network,
		Protected: p.Write, ProtectedNames: p.Names, Hidden: p.Touch, Except: p.Except,
		OnProtectedChange: func(_ toolcrib.Call, changed, aside []string) { a.protectedChanged(changed, aside) },
	})
	if err != nil {
		return nil, usagef("tools.%v", err)
	}
	return tool, nil
}

// storeFacts is what get_runtime_info tells of the store.
func storeFacts(s *sqlite.Store) func(context.Context) map[string]string {
	return func(ctx context.Context) map[string]string {
		facts := map[string]string{"store": "sqlite"}
		if v, err := s.OverridesVersion(ctx); err == nil {
			facts["overrides_version"] = strconv.FormatUint(v, 10)
		}
		return facts
	}
}

// untrustedResult tells from the journal whether a kept result is data of
// strangers; what cannot be told is.
func untrustedResult(ctx context.Context, s *sqlite.Store) func(toolcrib.RunID, string) (string, bool) {
	return func(run toolcrib.RunID, ref string) (string, bool) {
		for e, err := range s.Read(ctx, run, 0) {
			if err != nil {
				break
			}
			if r, ok := e.Body.(*journal.ToolResult); ok && r.Ref == ref {
				return r.Source, r.Untrusted
			}
		}
		return "unknown", true
	}
}
