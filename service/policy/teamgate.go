package policy

import (
	"slices"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/team"
	"github.com/toolcrib/toolcrib/tool/spawn"
	"github.com/toolcrib/toolcrib/tool/verify"
	"github.com/toolcrib/toolcrib/tool/web"
)

// TeamGate returns the gate of a team's runs. Its tools are spawn, for the conductor, and those that workers may be
// given.
func (p *Policy) TeamGate(workspace string) (*gate.Gate, error) {
	people := p.people.Standing()
	people.Renew()
	return p.gateOf(workspace, &availability{store: p.env.Store}, people, p.ofWorkers)
}

// ofWorkers returns the tools of a team's gate.
func (p *Policy) ofWorkers(builtIn []toolcrib.Tool) []toolcrib.Tool {
	o := p.web()
	o.Worker = true
	tools := append(web.New(o), verify.New(verify.Options{Fetch: web.WorkerFetch})...)
	for _, t := range builtIn {
		if t.Spec().Name == spawn.Name {
			tools = append(tools, t)
		}
	}
	return tools
}

// GateFor returns the gate of a run that has begun.
func (p *Policy) GateFor(workspace string, start *journal.RunStarted) (*gate.Gate, error) {
	if ofTeam(start) {
		return p.TeamGate(workspace)
	}
	return p.Gate(workspace, Paths{})
}

// AnyHost reports whether fetch may reach hosts that are not configured by name.
func (p *Policy) AnyHost() bool { return slices.Contains(p.env.Config.Tools.Web.Allow, "*") }

// ofTeam reports whether a run is that of a conductor or of a worker with tools.
func ofTeam(start *journal.RunStarted) bool {
	return team.PlanOf(start) != nil || start != nil && start.Worker != nil
}
