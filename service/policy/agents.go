package policy

import (
	"cmp"
	"context"
	"encoding/json"
	"math"
	"slices"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/access/standing"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/internal/config"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/service/env"
	"github.com/toolcrib/toolcrib/service/models"
)

// Change is what someone asks of a configured agent for the runs at hand. Fields that are zero say nothing.
type Change struct {
	Model         string // takes the place of the agent's own and of its fallbacks
	ToolChoice    *toolcrib.ToolChoice
	MaxIterations int
	Limits        toolcrib.Limits // of each and the agent's the smaller counts; OnLimit replaces the agent's
	ReadOnly      bool
	Skills        []string // beside the agent's own
	Answering
}

// forRuns is whom the runs of who act for.
func RunsAs(who toolcrib.Principal, admin bool) toolcrib.Principal {
	who.Admin = who.Admin && (admin || !standing.Local(who.User))
	return who
}

// Agent is an agent as the configuration has it, with a change.
func (p *Policy) Agent(name string, ch Change) (toolcrib.Agent, error) {
	def, err := p.env.Config.Agent(name, p.env.Resolver())
	switch {
	case err == nil:
		err = ch.apply(&def)
	case !models.OfConfig(err) && p.env.Driver == env.DriverServer: // the error lists agents that others may not know
		err = env.BadRequestf("there is no agent %q that you may use", guard.Cut(name, maxAgentName))
	case !models.OfConfig(err):
		err = env.BadRequestf("%v", err)
	}
	return def, err
}

// maxAgentName bounds how much of an unknown name is repeated.
const maxAgentName = 100

// apply changes an agent.
func (ch *Change) apply(def *toolcrib.Agent) (err error) {
	if ch.Model != "" {
		def.Model, def.Fallback = ch.Model, nil
	}
	for _, n := range []int{ch.MaxIterations, ch.Limits.MaxIterations} {
		if n < 0 || n > toolcrib.MaxIterationsCeiling {
			return env.BadRequestf("max_iterations: must be 1 to %d, not %d", toolcrib.MaxIterationsCeiling, n)
		}
	}
	def.Limits.MaxIterations = cmp.Or(ch.MaxIterations, def.Limits.MaxIterations)
	ch.lower(&def.Limits)
	if ch.ToolChoice != nil {
		def.ToolChoice = *ch.ToolChoice
	}
	def.ReadOnly, def.RunReadOnly = def.ReadOnly || ch.ReadOnly, ch.ReadOnly
	def.RunSkills = ch.Skills
	if def.Skills, err = withSkills(def.Skills, ch.Skills); err != nil {
		return err
	}
	return ch.Answering.apply(def)
}

// lower lowers limits.
func (ch *Change) lower(to *toolcrib.Limits) {
	asked := &ch.Limits
	if *asked == (toolcrib.Limits{}) {
		return
	}
	*to = to.WithDefaults()
	to.MaxIterations = smaller(to.MaxIterations, asked.MaxIterations)
	to.MaxParallel = smaller(to.MaxParallel, asked.MaxParallel)
	to.MaxCallsPerTurn = smaller(to.MaxCallsPerTurn, asked.MaxCallsPerTurn)
	if to.MaxIdenticalCalls = smaller(to.MaxIdenticalCalls, asked.MaxIdenticalCalls); to.MaxIdenticalCalls == 0 {
		to.MaxIdenticalCalls = asked.MaxIdenticalCalls // the agent has no bound
	}
	if asked.ToolTimeout > 0 {
		to.ToolTimeout, to.ToolTimeoutSet = smaller(to.ToolTimeout, asked.ToolTimeout), true
	}
	to.MaxResultBytes = smaller(to.MaxResultBytes, asked.MaxResultBytes)
	to.MaxDepth = smaller(to.MaxDepth, asked.MaxDepth)
	to.WallTime = smaller(to.WallTime, asked.WallTime)
	if asked.OnLimit != "" {
		to.OnLimit = asked.OnLimit
	}
}

// smaller returns the smaller of a limit and what is asked; 0 asks for nothing.
func smaller[T int | time.Duration](limit, asked T) T {
	if asked > 0 && asked < limit {
		return asked
	}
	return limit
}

// scope returns the restrictions on the tools of a run of an agent, from what its journal would begin with.
func (p *Policy) Scope(
	def *toolcrib.Agent, workspace string, approve agent.Approve, tools []string, tell func(string),
) (gate.Scope, error) {
	k, err := p.chooseSkills(def.Skills)
	if err != nil {
		return gate.Scope{}, err
	}
	k.Tell(p.env.Once(tell))
	if approve == agent.ApproveAll && p.env.Config.Approvals.FourEyes {
		approve = agent.ApproveNone // another person decides
	}
	start := journal.RunStarted{Agent: *def, Workspace: workspace, Approve: string(approve), RunTools: tools}
	start.Agent.Limits = def.Limits.WithDefaults()
	k.record(&start)
	return agent.Scope(&agent.State{Start: &start}), nil
}

// Agent is an agent in the words of the configuration, with defaults filled in and secrets
// masked. Who is not to read the configuration has no position and of the keys only some.
type Agent struct {
	Name     string
	Position string // where it is configured; default = nowhere
	config.Agent
}

// MarshalJSON writes the name and the position before the keys of the configuration.
func (a Agent) MarshalJSON() ([]byte, error) {
	if a.Position == "" {
		return json.Marshal(struct {
			Name        string   `json:"name"`
			Description string   `json:"description"`
			Model       string   `json:"model"`
			Tools       []string `json:"tools"`
		}{a.Name, a.Description, a.Model, a.Tools})
	}
	head, err := json.Marshal(map[string]string{"name": a.Name, "position": a.Position})
	if err != nil {
		return nil, err
	}
	return slices.Concat(head[:len(head)-1], []byte{','}, config.ShowJSON(a.Agent)[1:]), nil
}

// Agents returns the agents of the configuration, by their names, to administrators as they are
// configured. Others see of those that they may use what they are for, the model and the tools.
func (p *Policy) Agents(ctx context.Context, who toolcrib.Principal) (list []Agent, err error) {
	if err := env.RequireUser(who); err != nil {
		return nil, err
	}
	names := p.env.Config.AgentNames()
	if !env.ReadsConfig(who) {
		if names, err = p.RunnableAgents(ctx, who); err != nil {
			return nil, err
		}
	}
	list = make([]Agent, len(names))
	for i, name := range names {
		list[i] = Agent{Name: name, Agent: p.env.Config.Agents[name]}
		if env.ReadsConfig(who) {
			list[i].Position = p.env.Config.Position(config.JoinKey("agents", name))
		}
		if list[i].Model == "" {
			list[i].Model = p.env.Config.Agents[config.DefaultAgent].Model
		}
	}
	return list, nil
}

// Answering is how a run is to answer, as far as that differs from its agent.
type Answering struct {
	System          string   // is added to the agent's own
	Temperature     *float64 // nil = the agent's
	MaxOutputTokens int      // of the agent's and this the smaller counts; 0 = the agent's
	Reasoning       string   // low | medium | high | off; "" = as the model is configured
	// Schema of the answer, for an agent that has none; nil = any text.
	Schema json.RawMessage
}

func (a *Answering) apply(def *toolcrib.Agent) error {
	if def.System != "" && a.System != "" {
		def.System += "\n\n"
	}
	def.System += a.System
	if a.Temperature != nil {
		def.Temperature = a.Temperature
	}
	if n := a.MaxOutputTokens; n > 0 {
		def.MaxOutputTokens = min(cmp.Or(def.MaxOutputTokens, math.MaxInt), n)
	}
	if len(a.Schema) > 0 && len(def.OutputSchema) > 0 {
		return env.BadRequestf("the agent %s has a schema for its answers, and takes no other", def.Name)
	}
	if len(a.Schema) > 0 {
		def.OutputSchema = a.Schema
	}
	return nil
}

// mayRun reports whether who may have a run of an agent today, as [gate.Gate.MayRun].
func (p *Policy) MayRun(ctx context.Context, who toolcrib.Principal, agent string) (refused string, err error) {
	g, err := gate.New(gate.Options{People: p.people.Standing(), Availability: gate.Overrides{Off: true}})
	if err != nil {
		return "", err
	}
	return g.MayRun(ctx, who, agent)
}

// RunnableAgents returns the names of the agents of which who may have a run today.
func (p *Policy) RunnableAgents(ctx context.Context, who toolcrib.Principal) ([]string, error) {
	names := []string{}
	for _, name := range p.env.Config.AgentNames() {
		refused, err := p.MayRun(ctx, who, name)
		if err != nil {
			return nil, err
		}
		if refused == "" {
			names = append(names, name)
		}
	}
	return names, nil
}
