package config

import (
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/internal/providers"
	"github.com/toolcrib/toolcrib/internal/yamltree"
)

// Types of providers that are treated in their own way where models are used. The
// table of all is in package providers.
const (
	TypeOllama  = "ollama"
	TypeScript  = "script"
	TypeOffline = "offline"
)

// ResolvedModel is all that is needed to make a model.
type ResolvedModel struct {
	Ref          string // as it was asked for
	ProviderName string
	Provider     Provider // Type is set; its Values are not filled in yet
	ID           string   // the provider's own name of the model
	Price        toolcrib.Price
	Tools        string          // native | text | none
	Context      int             // tokens; 0 = not configured
	Reasoning    string          // low | medium | high | off; "" = not sent
	Extra        json.RawMessage // JSON object; nil = nothing
}

// Name returns PROVIDER/MODEL, which is what events and usage call the model.
func (m ResolvedModel) Name() string { return m.ProviderName + "/" + m.ID }

// ModelNames returns the names of the section models, sorted.
func (c *Config) ModelNames() []string { return slices.Sorted(maps.Keys(c.Models)) }

// AgentNames returns the names of the agents, sorted.
func (c *Config) AgentNames() []string { return slices.Sorted(maps.Keys(c.Agents)) }

// ProviderNames returns the names of the section providers, sorted.
func (c *Config) ProviderNames() []string { return slices.Sorted(maps.Keys(c.Providers)) }

// ResolveModel finds a model by its name in the configuration, or as
// PROVIDER/MODEL. A PROVIDER/MODEL that an entry of models describes too has that
// entry's price, context and tools: these are facts of the model, while reasoning
// and extra are that entry's own.
func (c *Config) ResolveModel(ref string) (ResolvedModel, error) {
	entry, named := c.Models[ref]
	provider, id, ok := entry.Provider, entry.Model, named
	switch {
	case named:
	case ref == TypeOffline:
		provider, id, ok = TypeOffline, TypeOffline, true
	default:
		provider, id, ok = strings.Cut(ref, "/")
	}
	if !ok || provider == "" || id == "" {
		return ResolvedModel{}, errors.New(unknown("model", ref, c.ModelNames()) + "; or name it PROVIDER/MODEL")
	}
	p, ok := c.provider(provider)
	if !ok {
		return ResolvedModel{}, errors.New(c.unknownProvider(provider))
	}
	if !named {
		entry.Tools = "native"
		for _, name := range c.ModelNames() {
			if m := c.Models[name]; m.Provider == provider && m.Model == id {
				entry, entry.Reasoning, entry.Extra = m, "", nil
				break
			}
		}
	}
	return ResolvedModel{
		Ref: ref, ProviderName: provider, Provider: p, ID: id, Price: entry.Price.known(), Tools: entry.Tools,
		Context: entry.Context, Reasoning: entry.Reasoning, Extra: json.RawMessage(entry.Extra),
	}, nil
}

// known turns a configured price into the root's; nil is unknown.
func (p *Price) known() toolcrib.Price {
	if p == nil {
		return toolcrib.Price{}
	}
	return toolcrib.Price{
		Input: p.Input, CachedInput: p.CachedInput, CacheWrite: p.CacheWrite, Output: p.Output, Known: true,
	}
}

// provider returns a configured provider, or one that is known by its type alone.
func (c *Config) provider(name string) (Provider, bool) {
	if p, ok := c.Providers[name]; ok {
		return p, true
	}
	// A type that needs no entry has its key from the usual variable of the environment.
	t, ok := providers.Of(name)
	if !ok || t.NeedsEntry {
		return Provider{}, false
	}
	return Provider{
		Type: name, ConnectTimeout: Duration(10 * time.Second), FirstTokenTimeout: Duration(120 * time.Second),
		IdleTimeout: Duration(60 * time.Second), APIKey: usualKey(t, "providers."+name),
	}, true
}

// usualKey returns the key of a provider at a path of the configuration that names none:
// that of the usual variable of its type.
func usualKey(t providers.Type, path string) Value {
	if t.KeyVariable == "" {
		return Value{}
	}
	return Value{raw: "${env:" + t.KeyVariable + "}", secret: "all", at: Error{Key: yamltree.JoinKey(path, "api_key")}}
}

func (c *Config) unknownProvider(name string) string {
	names := c.ProviderNames()
	for _, known := range providers.Names(providers.Type.WithoutEntry) {
		if _, ok := c.Providers[known]; !ok {
			names = append(names, known)
		}
	}
	return unknown("provider", name, names)
}

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
		OutputSchema: json.RawMessage(a.OutputSchema), OnDenial: a.OnDenial, Arguments: a.Arguments,
		Limits: a.Limits.root(), TaintWrites: a.Taint.Writes, ReadOnly: a.ReadOnly,
		Budget: toolcrib.Budget{
			MaxCostUSD: a.Budget.MaxCostUSD, MaxTokens: a.Budget.MaxTokens,
			MaxRequests: a.Budget.MaxRequests, Mode: a.Budget.Mode,
		},
		Session: toolcrib.SessionLimits{
			MaxCostUSD: a.Session.MaxCostUSD, MaxTokens: a.Session.MaxTokens, WallTime: a.Session.WallTime.Std(),
		},
		ContextStrategy: a.Context.Strategy, KeepRecent: a.Context.KeepRecent, FindAbove: a.FindTools.AboveBytes,
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
		MaxIterations: l.MaxIterations, OnLimit: l.OnLimit, MaxParallel: l.MaxParallel, MaxCallsPerTurn: l.MaxCallsPerTurn,
		MaxIdenticalCalls: l.MaxIdenticalCalls, ToolTimeout: l.ToolTimeout.Std(), MaxResultBytes: l.MaxResultBytes,
		MaxDepth: l.MaxDepth, WallTime: l.WallTime.Std(), MaxTreeRuns: l.MaxTreeRuns, MaxTreeRequests: l.MaxTreeRequests,
		MaxTreeBytes: l.MaxTreeBytes,
	}
}

// OllamaAddress is where an Ollama is looked for.
const OllamaAddress = "http://localhost:11434"

// Detected is a model that was found without a configuration.
type Detected struct {
	Model ResolvedModel
	Why   string // "ANTHROPIC_API_KEY is set", for standard error
}

// DetectModel finds a model as contract §4 says: the first of ANTHROPIC_API_KEY,
// OPENAI_API_KEY, GEMINI_API_KEY, an Ollama at localhost:11434, and the built-in
// offline model. A provider that is configured under the name of its type counts
// with its settings. ollama asks the Ollama at an address for its models; an error says why
// one that answers is not used.
func (c *Config) DetectModel(getenv func(string) string, at string, ollama func() ([]string, error)) Detected {
	var why []string // what was looked for, and is not there
	for _, t := range providers.ByKey() {
		if getenv(t.KeyVariable) != "" {
			return c.detected(t.Name, t.DefaultModel, t.KeyVariable+" is set")
		}
		why = append(why, "no "+t.KeyVariable)
	}
	models, err := ollama()
	switch {
	case err != nil:
		why = append(why, err.Error())
	case len(models) > 0:
		return c.detected(TypeOllama, models[0], "an Ollama answers at "+at)
	case at == OllamaAddress:
		why = append(why, "no Ollama with a model answers")
	default:
		why = append(why, "no Ollama with a model answers at "+at)
	}
	return c.detected(TypeOffline, TypeOffline, strings.Join(why, ", "))
}

func (c *Config) detected(provider, id, why string) Detected {
	if c.Providers[provider].Type != provider {
		c = &Config{} // another type under that name is not what was looked for
	}
	m, _ := c.ResolveModel(provider + "/" + id) // the provider needs no entry
	return Detected{Model: m, Why: why}
}
