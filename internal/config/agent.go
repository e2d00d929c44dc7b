package config

import (
	"encoding/json"
	"errors"

	"github.com/toolcrib/toolcrib"
)

// Agent returns a configured agent as the loop wants it; "" is the agent default.
// References in its system prompt are filled in. Model may be empty: then the
// model is found by [Config.DetectModel]. An unknown name is an error that lists
// the known ones.
func (c *Config) Agent(name string, r Resolver) (toolcrib.Agent, error) {
	if name == "" {
		name = DefaultAgent
	}
	a, ok := c.Agents[name]
	if !ok {
		return toolcrib.Agent{}, errors.New(unknown("agent", name, c.AgentNames()))
	}
	system, err := a.System.Resolve(r)
	if err != nil {
		return toolcrib.Agent{}, err
	}
	model, fallback := c.modelOf(a)
	out := toolcrib.Agent{
		Name: name, Model: model, Fallback: fallback, System: system,
		Temperature: a.Temperature, Tools: a.Tools, Skills: a.Skills, ToolChoice: toolcrib.ToolChoice(a.ToolChoice),
		OutputSchema: json.RawMessage(a.OutputSchema), OnDenial: a.OnDenial,
		Limits: a.Limits.root(), TaintWrites: a.Taint.Writes, ReadOnly: a.ReadOnly,
		Budget: toolcrib.Budget{
			MaxCostUSD: a.Budget.MaxCostUSD, MaxTokens: a.Budget.MaxTokens,
			MaxRequests: a.Budget.MaxRequests, Mode: a.Budget.Mode,
		},
		ContextStrategy: a.Context.Strategy, KeepRecent: a.Context.KeepRecent,
	}
	out.Limits.ToolTimeoutSet = c.IsSet("agents." + name + ".limits.tool_timeout")
	if a.MaxOutputTokens != nil {
		out.MaxOutputTokens = *a.MaxOutputTokens
	}
	return out, nil
}

// modelOf returns model and fallback of an agent: its own, or those of the agent
// default. They go together, since a fallback is chosen for its model.
func (c *Config) modelOf(a Agent) (model string, fallback []string) {
	if a.Model != "" {
		return a.Model, a.Fallback
	}
	d := c.Agents[DefaultAgent]
	if len(a.Fallback) > 0 {
		return d.Model, a.Fallback
	}
	return d.Model, d.Fallback
}

func (l Limits) root() toolcrib.Limits {
	return toolcrib.Limits{
		MaxIterations: l.MaxIterations, OnLimit: l.OnLimit, MaxParallel: l.MaxParallel,
		MaxCallsPerTurn: l.MaxCallsPerTurn, MaxIdenticalCalls: l.MaxIdenticalCalls,
		ToolTimeout: l.ToolTimeout.Std(), MaxResultBytes: l.MaxResultBytes,
		MaxDepth: l.MaxDepth, WallTime: l.WallTime.Std(),
		MaxTreeRuns: l.MaxTreeRuns, MaxTreeRequests: l.MaxTreeRequests, MaxTreeBytes: l.MaxTreeBytes,
	}
}
