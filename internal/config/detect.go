package config

import (
	"cmp"
	"strings"

	"github.com/toolcrib/toolcrib/internal/providers"
)

// OllamaAddress is where an Ollama is looked for.
const OllamaAddress = "http://localhost:11434"

// Surroundings is what the search for a model may look at.
type Surroundings struct {
	LookupEnv func(name string) (string, bool)
	// OllamaModels asks an Ollama for its models, within a second. If nil, none is
	// asked. An error says why an Ollama that answers is not used.
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
// offline model. A provider that is configured under the name of its type counts
// with its settings.
func (c *Config) DetectModel(s Surroundings) Detected {
	var why []string // what was looked for, and why it is not taken
	for _, t := range providers.ByKey() {
		if s.LookupEnv != nil && isSet(s.LookupEnv, t.KeyVariable) {
			return c.detected(t.Name, t.DefaultModel, t.KeyVariable+" is set")
		}
		why = append(why, t.KeyVariable+" is not set")
	}
	at := cmp.Or(s.OllamaAt, OllamaAddress)
	if s.OllamaModels != nil {
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
		return Detected{
			Model: ResolvedModel{Ref: ref, ProviderName: provider, Provider: p, ID: id, Tools: "native"},
			Why:   why,
		}
	}
	m, _ := c.direct(ref, provider, id) // the provider was just found
	return Detected{Model: m, Why: why}
}
