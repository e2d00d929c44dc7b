package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/internal/config"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/provider/texttag"
)

// supportedTypes are the types of providers that this version has adapters for.
func supportedTypes() []string {
	return []string{
		config.TypeOpenAI, config.TypeAnthropic, config.TypeGemini, config.TypeOllama, config.TypeLlamaCPP,
		config.TypeScript, config.TypeOffline,
	}
}

func supportedType(t string) bool { return slices.Contains(supportedTypes(), t) }

// unsupportedType is the error of a provider that this version cannot speak to.
func unsupportedType(provider, t string) error {
	return usagef("providers.%s: provider type %s is not supported by this version; there are %s",
		provider, t, strings.Join(supportedTypes(), ", "))
}

// models are the models of one run, opened before it starts: what is wrong with
// the first is wrong usage, what is wrong with a fallback is told when it is
// needed.
type models struct {
	infos []journal.ModelInfo
	open  map[string]toolcrib.Model // by name of the provider
}

// Open is the loop's way to a model. A provider serves models that call tools by
// its API, and others that do so by text.
func (m *models) Open(_ context.Context, info journal.ModelInfo) (toolcrib.Model, error) {
	model, ok := m.open[info.Provider]
	if !ok {
		return nil, fmt.Errorf("provider %s is not open", info.Provider)
	}
	if info.Tools == toolsByText {
		return texttag.New(model), nil
	}
	return model, nil
}

// toolsByText is what journal.ModelInfo.Tools says of a model that calls tools by
// the text protocol of contract §4.
const toolsByText = "text"

// openModels resolves and opens the models of an agent. An agent without one gets
// the first that is found, and standard error says which.
func (a *app) openModels(c *config.Config, agent *toolcrib.Agent) (*models, error) {
	m := &models{open: map[string]toolcrib.Model{}}
	var all []config.ResolvedModel
	if agent.Model == "" {
		found := a.detect(c)
		if names := c.ModelNames(); len(names) > 0 {
			a.notice("no model is configured for the agent %s: using %s (%s); name one of %s in agents.%s.model, or with --model",
				agent.Name, found.Model.Name(), found.Why, strings.Join(names, ", "), agent.Name)
		} else {
			a.notice("no model is configured: using %s (%s)", found.Model.Name(), found.Why)
		}
		agent.Model = found.Model.Ref
		all = append(all, found.Model)
	} else {
		first, err := resolveModel(c, agent.Model)
		if err != nil {
			return nil, err
		}
		all = append(all, first)
	}
	for _, ref := range agent.Fallback {
		next, err := resolveModel(c, ref)
		if err != nil {
			return nil, err
		}
		all = append(all, next)
	}
	for i, r := range all {
		m.infos = append(m.infos, a.infoOf(r))
		if m.open[r.ProviderName] != nil {
			continue
		}
		model, err := a.provider(r.ProviderName, r.Provider)
		if err != nil && i == 0 {
			return nil, err
		}
		if err != nil {
			model = broken{provider: r.ProviderName, err: err}
		}
		m.open[r.ProviderName] = model
	}
	return m, nil
}

// unusable are the configured providers that this version cannot speak to.
func unusable(c *config.Config) []string {
	var out []string
	for _, name := range c.ProviderNames() {
		if t := c.Providers[name].Type; !supportedType(t) {
			key := "providers." + name
			out = append(out, fmt.Sprintf("%s: %s: this version cannot use type %s; it can use %s",
				c.Position(key), key, t, strings.Join(supportedTypes(), ", ")))
		}
	}
	return out
}

// resolveModel finds a model by its name; an error also tells which types of providers
// this version can use.
func resolveModel(c *config.Config, ref string) (config.ResolvedModel, error) {
	r, err := c.ResolveModel(ref)
	if err != nil {
		return r, usagef("%v; this version can use providers of type %s", err, strings.Join(supportedTypes(), ", "))
	}
	return r, nil
}
