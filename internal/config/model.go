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

// Types of providers that need special treatment. Package providers has all types.
const (
	TypeOllama  = "ollama"
	TypeScript  = "script"
	TypeOffline = "offline"
)

// ResolvedModel is the configuration of a model and its provider.
type ResolvedModel struct {
	Ref          string // name by which the model was requested
	ProviderName string
	Provider     Provider // Type is set; Values are not resolved yet
	ID           string   // name of the model at the provider
	Price        toolcrib.Price
	Tools        string          // native | text | none
	Context      int             // tokens; 0 if not configured
	Reasoning    string          // low | medium | high | off; not sent if ""
	Extra        json.RawMessage // JSON object, or nil
}

// Name returns PROVIDER/MODEL, the name of the model in events and usage.
func (m ResolvedModel) Name() string { return m.ProviderName + "/" + m.ID }

// ModelNames returns the names of the section models, sorted.
func (c *Config) ModelNames() []string { return slices.Sorted(maps.Keys(c.Models)) }

// AgentNames returns the names of the agents, sorted.
func (c *Config) AgentNames() []string { return slices.Sorted(maps.Keys(c.Agents)) }

// ProviderNames returns the names of the section providers, sorted.
func (c *Config) ProviderNames() []string { return slices.Sorted(maps.Keys(c.Providers)) }

// ResolveModel returns a model by its name in the configuration, or by PROVIDER/MODEL. For
// PROVIDER/MODEL, price, context and tools are those of the first entry of models for the same
// model, since they are properties of the model; reasoning and extra apply only to the entry.
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

// known converts a configured price; nil gives an unknown one.
func (p *Price) known() toolcrib.Price {
	if p == nil {
		return toolcrib.Price{}
	}
	return toolcrib.Price{
		Input: p.Input, CachedInput: p.CachedInput, CacheWrite: p.CacheWrite, Output: p.Output, Known: true,
	}
}

// provider returns a configured provider, or one whose type needs no configuration.
func (c *Config) provider(name string) (Provider, bool) {
	if p, ok := c.Providers[name]; ok {
		return p, true
	}
	// Without an entry the key comes from the usual environment variable.
	t, ok := providers.Of(name)
	if !ok || t.NeedsEntry {
		return Provider{}, false
	}
	return Provider{
		Type: name, ConnectTimeout: Duration(10 * time.Second), FirstTokenTimeout: Duration(120 * time.Second),
		IdleTimeout: Duration(60 * time.Second), APIKey: usualKey(t, "providers."+name),
	}, true
}

// usualKey returns the default key of the provider at a key path: a reference to the usual
// environment variable of its type.
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

// Agent returns a configured agent, with references in its system prompt resolved. If name is "",
// it returns the agent default. If the Model of the result is empty, [Config.DetectModel] finds
// one. The error for an unknown name lists the valid ones.
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

// modelOf returns the model and the fallback of an agent. An agent without a model has those of the
// agent default, but keeps its own fallback.
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

// OllamaAddress is the default address of Ollama.
const OllamaAddress = "http://localhost:11434"

// Detected is a model that was found without a configuration.
type Detected struct {
	Model ResolvedModel
	Why   string // reason, such as "ANTHROPIC_API_KEY is set", for standard error
}

// DetectModel returns a model for the first of ANTHROPIC_API_KEY, OPENAI_API_KEY and
// GEMINI_API_KEY that is set, or else one of the Ollama at the address at, or else the built-in
// offline model. The settings of a provider configured under the name of its type apply. ollama
// returns the models of that Ollama; its error says why an Ollama that answers is not used.
func (c *Config) DetectModel(getenv func(string) string, at string, ollama func() ([]string, error)) Detected {
	var why []string // reasons against the earlier choices
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
		c = &Config{} // ignore an entry of another type with that name
	}
	m, _ := c.ResolveModel(provider + "/" + id) // the provider needs no entry
	return Detected{Model: m, Why: why}
}
