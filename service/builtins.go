package service

import (
	"context"
	"maps"
	"path/filepath"
	"slices"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/internal/config"
	"github.com/toolcrib/toolcrib/internal/version"
	"github.com/toolcrib/toolcrib/tool/builtin"
	"github.com/toolcrib/toolcrib/tool/shell"
	"github.com/toolcrib/toolcrib/tool/spawn"
	"github.com/toolcrib/toolcrib/tool/system"
	"github.com/toolcrib/toolcrib/tool/web"
)

// builtIn are the tools that toolcrib comes with; command nil = no exec_shell. Without a
// store they are only looked at, never called.
func (s *Service) builtIn(p gate.Protected, paths gate.PathRules, command toolcrib.Tool) []toolcrib.Tool {
	c := s.Config
	tools := builtin.New(builtin.Options{
		Protected: paths.NeverWritten, Hidden: paths.NeverTouched, Own: p.Touch, OwnExcept: p.Except,
		Version: version.Version(), Started: s.Started, Data: s.storeFacts, Details: s.details,
		Logs: s.logs(), Mask: func(text string) string { return s.Mask.Mask(text) },
		Memory:    s.notes(),
		Web:       s.web(),
		Databases: s.sqlDatabases(), Directory: s.Directory(),
		Agents: callableAgents(c), Shell: command != nil, Results: s.store, Untrusted: s.untrustedResult,
		Skills: s.skillSet, SkillVariables: s.skillVars,
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

// logFile is the file of the log; "" = none.
func (s *Service) logFile() string {
	file, err := s.Config.Log.File.Resolve(s.Resolver())
	if err != nil {
		return ""
	}
	return file
}

// logs is where fetch_logs reads: the file of the log, else what this process has
// logged.
func (s *Service) logs() system.Logs {
	if file := s.logFile(); file != "" {
		return system.LogFile{Path: file}
	}
	return s.Ring()
}

// Ring keeps what this process has logged.
func (s *Service) Ring() *system.LogRing {
	s.ring.Do(func() { s.logged = system.NewLogRing(0, func(text string) string { return s.Mask.Mask(text) }) })
	return s.logged
}

// details are the places that get_runtime_info_raw tells about.
func (s *Service) details(context.Context) map[string]string {
	facts := map[string]string{"database": s.store.Path(), "data_dir": s.DataDir}
	if file, err := filepath.Abs(s.Config.File()); err == nil && s.Config.File() != "" {
		facts["configuration"] = file
	}
	if file := s.logFile(); file != "" {
		facts["log_file"] = file
	}
	return facts
}

// web is what web_fetch may reach, and where web_search asks.
func (s *Service) web() web.Options {
	c := &s.Config.Tools.Web
	o := web.Options{
		Version: version.Version(), Allow: c.Allow, Deny: c.Deny, AllowPrivate: c.AllowPrivate, MaxBytes: c.MaxBytes,
		SessionBytes: c.MaxBytesPerSession, SessionHosts: c.MaxHostsPerSession,
		Ledger: &web.Ledger{Dir: filepath.Join(s.DataDir, "web")}, Cache: &s.pages,
		CountedFor: func(call toolcrib.Call) (string, error) {
			rec, err := s.store.Run(context.Background(), call.Run)
			if err == nil {
				rec, err = s.top(context.Background(), rec)
			}
			return string(rec.ID), err
		},
	}
	if !c.Search.Endpoint.IsEmpty() {
		o.SearchEndpoint = func() (string, error) { return c.Search.Endpoint.Resolve(s.Resolver()) }
		o.SearchKey = func() (string, error) { return c.Search.APIKey.Resolve(s.Resolver()) }
	}
	return o
}

// sqlDatabases are what describe_tables shows. Addresses are filled in at each use.
func (s *Service) sqlDatabases() []builtin.Database {
	var found []builtin.Database
	for _, name := range slices.Sorted(maps.Keys(s.Config.SQL)) {
		address := s.Config.SQL[name].URL
		found = append(found, builtin.Database{Name: name, URL: func(context.Context) (string, error) {
			return address.Resolve(s.Resolver())
		}})
	}
	return found
}
