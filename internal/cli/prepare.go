package cli

import (
	"errors"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/internal/config"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/service"
)

// change is what somebody asks of a configured agent for the runs at hand; nil says
// nothing.
type change struct {
	model, toolChoice *string
	maxIterations     *int
	readOnly          bool
	skills            []string // beside the agent's own
}

// preparation is an agent of the configuration on its way to runs: there is no other
// way from one to the other. It asks nobody and starts nothing; what it has to tell
// goes to a function that its caller gives. Several may be made at the same time, each
// belongs to one goroutine.
type preparation struct {
	a      *app
	config *config.Config
	who    toolcrib.Principal // whom its runs act for
	agent  toolcrib.Agent     // as the configuration has it, with the change
	models *service.Models    // never nil; may be those of several agents
	infos  []journal.ModelInfo

	workspace string        // absolute
	approve   agent.Approve // "" = a run parks
	runTools  []string      // null = no restriction
}

// prepare finds an agent of the configuration by its name; "" is the agent default. A
// name that no agent has is an error that says which there are.
func (a *app) prepare(c *config.Config, who toolcrib.Principal, name string, ch change, tell func(string)) (*preparation, error) {
	def, err := a.configured(c, name, ch)
	if err != nil {
		return nil, err
	}
	if err := supported(c, def.Name, a.service.Once(tell)); err != nil {
		return nil, err
	}
	return &preparation{a: a, config: c, who: who, agent: def, models: &service.Models{}}, nil
}

// configured is an agent as the configuration has it, with a change.
func (a *app) configured(c *config.Config, name string, ch change) (toolcrib.Agent, error) {
	def, err := c.Agent(name, a.resolver())
	if err != nil {
		var value config.Error
		if errors.As(err, &value) {
			return def, err
		}
		return def, usagef("%v", err)
	}
	err = ch.apply(&def)
	return def, err
}

// apply changes an agent.
func (ch *change) apply(def *toolcrib.Agent) (err error) {
	if ch.model != nil {
		if *ch.model == "" {
			return usagef("--model: must name a model")
		}
		def.Model, def.Fallback = *ch.model, nil
	}
	if n := ch.maxIterations; n != nil {
		if *n < 1 || *n > toolcrib.MaxIterationsCeiling {
			return usagef("--max-iterations: must be 1 to %d, not %d", toolcrib.MaxIterationsCeiling, *n)
		}
		def.Limits.MaxIterations = *n
	}
	if ch.toolChoice != nil {
		if def.ToolChoice, err = toolChoice(*ch.toolChoice); err != nil {
			return err
		}
	}
	def.ReadOnly, def.ToldReadOnly = def.ReadOnly || ch.readOnly, ch.readOnly
	def.ToldSkills = ch.skills
	def.Skills, err = service.WithSkills(def.Skills, ch.skills)
	return err
}

// open resolves and opens the models of the agent. One without a model gets the first
// that is found, and tell hears which.
func (p *preparation) open(tell func(string)) (err error) {
	p.infos, err = p.a.service.OpenModels(p.models, &p.agent, p.a.service.Once(tell))
	return err
}

// fill gives a task the agent with its models, and the skills as they are now: what
// they allow, and their text at the end of the history. What else the task is to be
// stands in it before. A run of one given call has no model.
func (p *preparation) fill(task *agent.Task, tell func(string)) error {
	task.Agent, task.Models, task.Principal = p.agent, p.infos, p.who
	if task.Given != nil {
		task.Agent.Model, task.Agent.Fallback, task.Models = "", nil, nil
	}
	task.Workspace, task.Driver, task.Approve, task.RunTools = p.workspace, driverName, p.approve, p.runTools
	return p.a.service.GiveSkills(task, tell)
}

// setup is what the drive of a task is made from.
func (p *preparation) setup(task *agent.Task) setup {
	return setup{
		who: p.who, approve: p.approve, models: p.models, workspace: p.workspace, agent: task.Agent, runTools: p.runTools,
	}
}
