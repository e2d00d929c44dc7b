package cli

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"net"
	"net/url"
	"os"
	"strings"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/internal/config"
	"github.com/toolcrib/toolcrib/provider/anthropic"
	"github.com/toolcrib/toolcrib/provider/gemini"
	"github.com/toolcrib/toolcrib/provider/limit"
	"github.com/toolcrib/toolcrib/provider/llamacpp"
	"github.com/toolcrib/toolcrib/provider/offline"
	"github.com/toolcrib/toolcrib/provider/ollama"
	"github.com/toolcrib/toolcrib/provider/openai"
	"github.com/toolcrib/toolcrib/provider/script"
	"github.com/toolcrib/toolcrib/provider/wire"
)

// provider makes the adapter of a configured provider. Errors are wrong
// configuration.
func (a *app) provider(name string, p config.Provider) (toolcrib.Model, error) {
	model, err := a.adapter(name, p)
	if err != nil {
		var exit *exitError
		var value config.Error
		if errors.As(err, &exit) || errors.As(err, &value) {
			return nil, err
		}
		return nil, usagef("providers.%s: %v", name, err)
	}
	return limited(name, p, model), nil
}

// limited puts what a provider serves under its limits, once for all its models.
// What runs in this process has none unless they are set.
func limited(name string, p config.Provider, model toolcrib.Model) toolcrib.Model {
	local := p.Type == config.TypeScript || p.Type == config.TypeOffline
	if local && p.MaxConcurrent == 0 && p.RequestsPerMinute == 0 {
		return model
	}
	return limit.New(model, limit.Options{Name: name, MaxConcurrent: p.MaxConcurrent, RequestsPerMinute: p.RequestsPerMinute})
}

func (a *app) adapter(name string, p config.Provider) (toolcrib.Model, error) {
	switch p.Type {
	case config.TypeScript:
		file, err := p.File.Resolve(a.resolver())
		if err != nil {
			return nil, err
		}
		m, err := script.New(script.Options{Name: name, File: file})
		if err != nil {
			return nil, err
		}
		return m, m.Check()
	case config.TypeOffline:
		return offline.New(), nil
	}
	if !supportedType(p.Type) {
		return nil, unsupportedType(name, p.Type)
	}
	o, err := a.wire(name, p)
	if err != nil {
		return nil, err
	}
	switch p.Type {
	case config.TypeOpenAI:
		return openai.New(openai.Options{Options: o, API: p.API})
	case config.TypeAnthropic:
		return anthropic.New(anthropic.Options{Options: o})
	case config.TypeGemini:
		return gemini.New(gemini.Options{Options: o})
	case config.TypeOllama:
		return ollama.New(ollama.Options{Options: o})
	case config.TypeLlamaCPP:
		return llamacpp.New(llamacpp.Options{Options: o})
	}
	return nil, unsupportedType(name, p.Type)
}

// wire fills in what the adapters of HTTP APIs have in common.
func (a *app) wire(name string, p config.Provider) (wire.Options, error) {
	o := wire.Options{
		Name: name, ConnectTimeout: p.ConnectTimeout.Std(),
		FirstTokenTimeout: p.FirstTokenTimeout.Std(), IdleTimeout: p.IdleTimeout.Std(),
	}
	r := a.resolver()
	for _, f := range []struct {
		value config.Value
		to    *string
	}{{p.APIKey, &o.APIKey}, {p.BaseURL, &o.BaseURL}, {p.Proxy, &o.Proxy}, {p.CAFile, &o.CAFile}} {
		text, err := f.value.Resolve(r)
		if err != nil {
			return o, err
		}
		*f.to = text
	}
	if o.BaseURL == "" {
		o.BaseURL, _ = addressFromEnv(p.Type)
		if p.Type == config.TypeOllama || p.Type == config.TypeLlamaCPP {
			o.Admit = admitListener // nobody said whose server is meant
		}
	}
	if len(p.Headers) > 0 {
		o.Headers = make(map[string]string, len(p.Headers))
		for header, value := range p.Headers {
			text, err := value.Resolve(r)
			if err != nil {
				return o, err
			}
			o.Headers[header] = text
		}
	}
	return o, nil
}

// addressFromEnv is the address that the environment names for a type of provider, as
// the vendors' own programs read it, and the variable; "" = none.
func addressFromEnv(providerType string) (address, variable string) {
	switch providerType {
	case config.TypeOpenAI, config.TypeAnthropic, config.TypeGemini:
		variable = strings.ToUpper(providerType) + "_BASE_URL"
		address = os.Getenv(variable)
	case config.TypeOllama:
		variable = "OLLAMA_HOST"
		address = ollamaHost(os.Getenv(variable))
	}
	if address == "" {
		return "", ""
	}
	return address, variable
}

// placeOf is an address as it may be shown: without what may be a secret in it.
func placeOf(address string) string {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" {
		return "an address that is no URL"
	}
	return u.Scheme + "://" + u.Host
}

// ollamaHost is the URL that Ollama's variable stands for: [SCHEME://][HOST][:PORT]. The
// address on which a server listens everywhere leads to this machine.
func ollamaHost(text string) string {
	if text = strings.TrimSpace(text); text == "" {
		return ""
	}
	scheme, rest, given := strings.Cut(text, "://")
	port := "11434"
	switch {
	case !given:
		scheme, rest = "http", text
	case scheme == "https":
		port = "443"
	case scheme == "http":
		port = "80"
	}
	hostport, path, _ := strings.Cut(rest, "/")
	host, ownPort, err := net.SplitHostPort(hostport)
	if err != nil {
		host, ownPort = strings.Trim(hostport, "[]"), ""
	}
	switch host {
	case "", "0.0.0.0":
		host = "127.0.0.1"
	case "::":
		host = "::1"
	}
	address := scheme + "://" + net.JoinHostPort(host, cmp.Or(ownPort, port))
	if path != "" {
		address += "/" + path
	}
	return address
}

// broken stands for a fallback that could not be opened.
type broken struct {
	provider string
	err      error
}

// Stream fails like a request that never left.
func (b broken) Stream(context.Context, *toolcrib.Request) iter.Seq2[toolcrib.Delta, error] {
	return func(yield func(toolcrib.Delta, error) bool) {
		yield(toolcrib.Delta{}, &toolcrib.ModelError{
			Class: toolcrib.ErrAuth, Provider: b.provider, Message: b.err.Error(), Unsent: true, Err: b.err,
		})
	}
}
