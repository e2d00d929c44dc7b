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
	if m, ok := c.Models[ref]; ok {
		return c.configured(ref, m)
	}
	provider, id, ok := strings.Cut(ref, "/")
	if !ok || provider == "" || id == "" {
		if ref == TypeOffline {
			return c.direct(ref, TypeOffline, TypeOffline)
		}
		return ResolvedModel{}, errors.New(unknown("model", ref, c.ModelNames()) + "; or name it PROVIDER/MODEL")
	}
	return c.direct(ref, provider, id)
}

func (c *Config) configured(ref string, m Model) (ResolvedModel, error) {
	p, ok := c.provider(m.Provider)
	if !ok {
		return ResolvedModel{}, errors.New(c.unknownProvider(m.Provider))
	}
	out := ResolvedModel{
		Ref: ref, ProviderName: m.Provider, Provider: p, ID: m.Model, Price: m.Price.known(),
		Tools: m.Tools, Context: m.Context, Reasoning: m.Reasoning, Extra: json.RawMessage(m.Extra),
	}
	return out, nil
}

func (c *Config) direct(ref, provider, id string) (ResolvedModel, error) {
	p, ok := c.provider(provider)
	if !ok {
		return ResolvedModel{}, errors.New(c.unknownProvider(provider))
	}
	out := ResolvedModel{Ref: ref, ProviderName: provider, Provider: p, ID: id, Tools: "native"}
	for _, name := range c.ModelNames() {
		if m := c.Models[name]; m.Provider == provider && m.Model == id {
			out.Price, out.Tools, out.Context = m.Price.known(), m.Tools, m.Context
			break
		}
	}
	return out, nil
}

// known turns a configured price into the root's; nil is unknown.
func (p *Price) known() toolcrib.Price {
	if p == nil {
		return toolcrib.Price{}
	}
	return toolcrib.Price{
		Input: p.Input, CachedInput: p.CachedInput, CacheWrite: p.CacheWrite, Output: p.Output,
		Known: true,
	}
}

// provider returns a configured provider, or one that is known by its type alone.
func (c *Config) provider(name string) (Provider, bool) {
	if p, ok := c.Providers[name]; ok {
		return p, true
	}
	return builtInProvider(name)
}

// builtInProvider returns the provider that a type stands for without an entry:
// its key comes from the usual variable of the environment.
func builtInProvider(name string) (Provider, bool) {
	t, ok := providers.Of(name)
	if !ok || t.NeedsEntry {
		return Provider{}, false
	}
	return Provider{
		Type: name, ConnectTimeout: Duration(10 * time.Second),
		FirstTokenTimeout: Duration(120 * time.Second), IdleTimeout: Duration(60 * time.Second),
		APIKey: usualKey(t, "providers."+name),
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
