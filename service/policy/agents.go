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

// Change is a change of a configured agent for single runs. Zero fields change nothing.
type Change struct {
	Model         string // replaces the agent's own and its fallbacks
	ToolChoice    *toolcrib.ToolChoice
	MaxIterations int
	Limits        toolcrib.Limits // the smaller of these and the agent's apply; OnLimit replaces the agent's
	ReadOnly      bool
	Skills        []string // in addition to the agent's own
	Answering
}

// RunsAs returns the principal for whom the runs of who act.
func RunsAs(who toolcrib.Principal, admin bool) toolcrib.Principal {
	who.Admin = who.Admin && (admin || !standing.Local(who.User))
	return who
}

// Agent returns a configured agent with a change.
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

// maxAgentName is the most bytes of an unknown name that an error repeats.
const maxAgentName = 100

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

// lower lowers limits to those that were asked for.
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

// Scope returns the restrictions on the tools of a run of an agent, from the first event that its journal would have.
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

// Agent is an agent as it is configured, with defaults filled in and secrets masked. A user who may not read the
// configuration gets no position and only some of the keys.
type Agent struct {
	Name     string
	Position string // "" if the default applies
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

// Agents returns the configured agents, sorted by name. Administrators get them as they are configured; other users get
// the description, the model and the tools of those that they may use.
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

// Answering changes how the agent of a run answers.
type Answering struct {
	System          string   // added to the agent's own
	Temperature     *float64 // if nil, the agent's
	MaxOutputTokens int      // the smaller of this and the agent's applies; 0 means the agent's
	Reasoning       string   // low | medium | high | off; "" means that of the model
	// Schema is the schema of the answer, for an agent without one. If nil, the answer is any text.
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

// MayRun returns why who may not run an agent now, or "", like [gate.Gate.MayRun].
func (p *Policy) MayRun(ctx context.Context, who toolcrib.Principal, agent string) (refused string, err error) {
	g, err := gate.New(gate.Options{People: p.people.Standing(), Availability: gate.Overrides{Off: true}})
	if err != nil {
		return "", err
	}
	return g.MayRun(ctx, who, agent)
}

// RunnableAgents returns the names of the agents that who may run now.
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
