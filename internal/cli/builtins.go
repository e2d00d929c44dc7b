package cli

import (
	"context"
	"maps"
	"path/filepath"
	"slices"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/internal/config"
	"github.com/toolcrib/toolcrib/internal/version"
	"github.com/toolcrib/toolcrib/store/sqlite"
	"github.com/toolcrib/toolcrib/tool/builtin"
	"github.com/toolcrib/toolcrib/tool/memory"
	"github.com/toolcrib/toolcrib/tool/spawn"
	"github.com/toolcrib/toolcrib/tool/system"
)

// memoryFolder holds the notes of all users, in the data folder.
const memoryFolder = "memory"

// builtIn are the tools that toolcrib comes with; command nil = no exec_shell.
// Without a store they are only looked at, never called.
func (a *app) builtIn(
	ctx context.Context, c *config.Config, s *sqlite.Store, p gate.Protected, paths gate.PathRules, command toolcrib.Tool,
) []toolcrib.Tool {
	skillsOf := a.skillsOfRun(ctx, s)
	// Who calls tools has opened the store in the data folder, so it is known there.
	data, _ := a.dataDir()
	tools := builtin.New(builtin.Options{
		Protected: paths.NeverWritten, Hidden: paths.NeverTouched, Own: p.Touch, OwnExcept: p.Except,
		Version: version.Version(), Started: a.started, Data: storeFacts(s), Details: a.details(c, s),
		Logs: a.logs(c), Mask: func(text string) string { return a.mask().Mask(text) },
		Memory:    memory.NewFiles(filepath.Join(data, memoryFolder), memory.Limits{}),
		Databases: a.sqlDatabases(c), Directory: a.service.Directory(),
		Agents: callableAgents(c), Shell: command != nil, Results: s, Untrusted: untrustedResult(ctx, s),
		Skills: skillsOf.set, SkillVariables: skillsOf.vars,
	})
	if command != nil {
		tools = append(tools, command)
	}
	return tools
}

// callableAgents are those that a model may be told of: all that are configured.
// Whom a run may really use is the gate's to say, at each call.
func callableAgents(c *config.Config) []spawn.Agent {
	names := c.AgentNames()
	agents := make([]spawn.Agent, len(names))
	for i, name := range names {
		agents[i] = spawn.Agent{Name: name, Description: c.Agents[name].Description}
	}
	return agents
}

// logs is where fetch_logs reads: the file of the log, else what this process has
// logged.
func (a *app) logs(c *config.Config) system.Logs {
	if file, err := c.Log.File.Resolve(a.resolver()); err == nil && file != "" {
		return system.LogFile{Path: file}
	}
	if a.ring == nil {
		a.ring = system.NewLogRing(0, func(text string) string { return a.mask().Mask(text) })
	}
	return a.ring
}

// details are the places that get_runtime_info_raw tells of.
func (a *app) details(c *config.Config, s *sqlite.Store) func(context.Context) map[string]string {
	return func(context.Context) map[string]string {
		facts := map[string]string{"database": s.Path()}
		if data, err := a.dataDir(); err == nil {
			facts["data_dir"] = data
		}
		if file, err := filepath.Abs(c.File()); err == nil && c.File() != "" {
			facts["configuration"] = file
		}
		if file, err := c.Log.File.Resolve(a.resolver()); err == nil && file != "" {
			facts["log_file"] = file
		}
		return facts
	}
}

// sqlDatabases are what describe_tables shows. Addresses are filled in at each use.
func (a *app) sqlDatabases(c *config.Config) []builtin.Database {
	var found []builtin.Database
	for _, name := range slices.Sorted(maps.Keys(c.SQL)) {
		address := c.SQL[name].URL
		found = append(found, builtin.Database{Name: name, URL: func(context.Context) (string, error) {
			return address.Resolve(a.resolver())
		}})
	}
	return found
}
