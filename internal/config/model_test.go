package config_test

import (
	"errors"
	"strconv"
	"strings"
	"testing"

	"github.com/toolcrib/toolcrib/internal/config"
)

func TestN5_ModelsByReference(t *testing.T) {
	c := mustParse(t, `
providers:
  mine: {type: openai, base_url: "http://localhost:9/v1"}
  openai: {api_key: other}
models:
  small: {provider: mine, model: org/m, price: {input: 1, output: 2}, reasoning: low, context: 1000}
`)
	for ref, want := range map[string]string{
		"small": "mine/org/m openai low 1 1000", "mine/org/m": "mine/org/m openai  1 1000", "mine/x": "mine/x openai  0 0", "openai/gpt-5-mini": "openai/gpt-5-mini openai  0 0",
		"anthropic/x": "anthropic/x anthropic  0 0", "ollama/gemma3": "ollama/gemma3 ollama  0 0", "offline": "offline/offline offline  0 0",
		"script/x": `!unknown provider "script" (valid: mine, openai, anthropic, gemini, ollama, llamacpp, offline)`,
		"smal":     `!unknown model "smal"; did you mean "small"? (valid: small); or name it PROVIDER/MODEL`,
		"/x":       `!unknown model "/x" (valid: small); or name it PROVIDER/MODEL`,
		"mine/":    `!unknown model "mine/" (valid: small); or name it PROVIDER/MODEL`,
	} {
		m, err := c.ResolveModel(ref)
		got := strings.Join([]string{m.Name(), m.Provider.Type, m.Reasoning, itoa(m.Price.Input), itoa(float64(m.Context))}, " ")
		if err != nil {
			got = "!" + err.Error()
		}
		if got != want {
			t.Errorf("%s = %s, want %s", ref, got, want)
		}
	}
	configured, _ := c.ResolveModel("openai/x")
	if key, err := configured.Provider.APIKey.Resolve(config.Resolver{}); key != "other" || err != nil {
		t.Errorf("key = %s, %v", key, err)
	}
	built, _ := c.ResolveModel("anthropic/x")
	_, err := built.Provider.APIKey.Resolve(config.Resolver{LookupEnv: environment(nil)})
	if err == nil || err.Error() != "providers.anthropic.api_key: the environment variable ANTHROPIC_API_KEY is not set; set it, or store the key with `toolcrib secret set ANTHROPIC_API_KEY` and write ${secret:ANTHROPIC_API_KEY} there" {
		t.Errorf("err = %v", err)
	}
}

func itoa(f float64) string { return strconv.FormatFloat(f, 'f', -1, 64) }

func TestN5_BuiltInProviderHasTheDefaultsOfAConfiguredOne(t *testing.T) {
	built, err := config.Default().ResolveModel("ollama/x")
	if err != nil {
		t.Fatal(err)
	}
	written := mustParse(t, "providers: {ollama: {}}").Providers["ollama"]
	b := built.Provider
	if b.ConnectTimeout != written.ConnectTimeout || b.FirstTokenTimeout != written.FirstTokenTimeout || b.IdleTimeout != written.IdleTimeout || b.Type != written.Type {
		t.Errorf("%+v\n%+v", b, written)
	}
}

func TestN5_DetectedModel(t *testing.T) {
	c := config.Default()
	ollama := func(models ...string) func() ([]string, error) {
		return func() ([]string, error) { return models, nil }
	}
	notThere := func() ([]string, error) { return []string{"x"}, errors.New("connection refused") }
	for _, k := range []struct {
		env    map[string]string
		ollama func() ([]string, error)
		want   string
		why    string
	}{
		{map[string]string{"ANTHROPIC_API_KEY": "a", "OPENAI_API_KEY": "b", "GEMINI_API_KEY": "c"}, ollama("g"), "anthropic/claude-haiku-4-5", "ANTHROPIC_API_KEY is set"},
		{map[string]string{"OPENAI_API_KEY": "b", "GEMINI_API_KEY": "c"}, ollama("g"), "openai/gpt-5-mini", "OPENAI_API_KEY is set"},
		{map[string]string{"ANTHROPIC_API_KEY": "", "GEMINI_API_KEY": "c"}, ollama("g"), "gemini/gemini-2.5-flash", "GEMINI_API_KEY is set"},
		{nil, ollama("gemma3:4b", "other"), "ollama/gemma3:4b", "an Ollama answers"},
		{nil, ollama(), "offline/offline", "no ANTHROPIC_API_KEY, no OPENAI_API_KEY, "},
		{nil, notThere, "offline/offline", "no ANTHROPIC_API_KEY, no OPENAI_API_KEY, "},
	} {
		got := c.DetectModel(func(name string) string { return k.env[name] }, config.OllamaAddress, k.ollama)
		if got.Model.Name() != k.want || !strings.HasPrefix(got.Why, k.why) ||
			got.Model.Provider.Type != got.Model.ProviderName {
			t.Errorf("%v: %+v", k.env, got)
		}
	}
}

func TestN5_DetectedModelHasTheProvidersSettings(t *testing.T) {
	env := func(name string) string { return map[string]string{"OPENAI_API_KEY": "x"}[name] }
	own := mustParse(t, "providers: {openai: {max_concurrent: 7}}").DetectModel(env, "", nil)
	if own.Model.Provider.MaxConcurrent != 7 {
		t.Errorf("%+v", own)
	}
	other := mustParse(t, "providers: {openai: {type: script, file: x}}").DetectModel(env, "", nil)
	if other.Model.Provider.Type != "openai" {
		t.Errorf("%+v", other)
	}
}

// A provider of a vendor has the vendor's usual key; another server never gets it.
func TestN5_UsualKey(t *testing.T) {
	for text, want := range map[string]string{
		"providers: {openai: {max_concurrent: 7}}":                              "${env:OPENAI_API_KEY}",
		"providers: {p: {type: anthropic}}":                                     "${env:ANTHROPIC_API_KEY}",
		"providers: {p: {type: gemini, api_key: own}}":                          "own",
		`providers: {p: {type: openai, api_key: ""}}`:                           "",
		`providers: {p: {type: openai, base_url: "https://models.example/v1"}}`: "",
		`providers: {p: {type: openai, headers: {Authorization: "Bearer x"}}}`:  "",
		"providers: {p: {type: ollama}}":                                        "",
	} {
		for _, p := range mustParse(t, text).Providers {
			if got := p.APIKey.Raw(); got != want {
				t.Errorf("%s: %q, want %q", text, got, want)
			}
		}
	}
}
