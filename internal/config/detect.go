package config

import (
	"cmp"
	"strings"
)

// The models that are used where nothing is configured: small, current, able to
// call tools. They are stated here and nowhere else.
const (
	defaultAnthropicModel = "claude-haiku-4-5"
	defaultOpenAIModel    = "gpt-5-mini"
	defaultGeminiModel    = "gemini-2.5-flash"
)

// OllamaAddress is where an Ollama is looked for.
const OllamaAddress = "http://localhost:11434"

// Surroundings is what the search for a model may look at.
type Surroundings struct {
	LookupEnv func(name string) (string, bool)
	// OllamaModels asks an Ollama for its models, within a second; nil = there is none.
	// An error says why one that is there is not used.
	OllamaModels func() ([]string, error)
	OllamaAt     string // where it is asked; "" = OllamaAddress
}

// Detected is a model that was found without a configuration.
type Detected struct {
	Model ResolvedModel
	Why   string // "ANTHROPIC_API_KEY is set", for standard error
}

// DetectModel finds a model as contract §4 says: the first of ANTHROPIC_API_KEY,
// OPENAI_API_KEY, GEMINI_API_KEY, an Ollama at localhost:11434, and the built-in
// offline model. usable, if not nil, reports which types of providers there are
// adapters for; others are passed over. A provider that is configured under the
// name of its type counts with its settings.
func (c *Config) DetectModel(s Surroundings, usable func(providerType string) bool) Detected {
	can := func(t string) bool { return usable == nil || usable(t) }
	var why []string // what was looked for, and why it is not taken
	for _, d := range []struct{ provider, model string }{
		{TypeAnthropic, defaultAnthropicModel}, {TypeOpenAI, defaultOpenAIModel}, {TypeGemini, defaultGeminiModel},
	} {
		variable := keyVariable(d.provider)
		switch {
		case s.LookupEnv == nil || !isSet(s.LookupEnv, variable):
			why = append(why, variable+" is not set")
		case !can(d.provider):
			why = append(why, variable+" is set, but this version cannot use "+d.provider)
		default:
			return c.detected(d.provider, d.model, variable+" is set")
		}
	}
	at := cmp.Or(s.OllamaAt, OllamaAddress)
	if can(TypeOllama) && s.OllamaModels != nil {
		models, err := s.OllamaModels()
		switch {
		case err != nil:
			why = append(why, err.Error())
		case len(models) > 0:
			return c.detected(TypeOllama, models[0], "an Ollama answers at "+at)
		default:
			why = append(why, "no Ollama with a model answers at "+at)
		}
	}
	return c.detected(TypeOffline, TypeOffline, strings.Join(why, ", "))
}

func isSet(lookup func(string) (string, bool), variable string) bool {
	text, ok := lookup(variable)
	return ok && text != ""
}

func (c *Config) detected(provider, id, why string) Detected {
	ref := provider + "/" + id
	if p, ok := c.Providers[provider]; !ok || p.Type != provider {
		// Another type under that name is not what was looked for.
		p, _ = builtInProvider(provider)
		return Detected{Model: ResolvedModel{Ref: ref, ProviderName: provider, Provider: p, ID: id, Tools: "native"}, Why: why}
	}
	m, _ := c.direct(ref, provider, id) // the provider was just found
	return Detected{Model: m, Why: why}
}
