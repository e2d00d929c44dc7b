package service

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/url"
	"os"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/internal/config"
	"github.com/toolcrib/toolcrib/internal/providers"
	"github.com/toolcrib/toolcrib/provider/limit"
	"github.com/toolcrib/toolcrib/provider/wire"
)

// provider makes the adapter of a configured provider. Errors are wrong
// configuration.
func (s *Service) provider(name string, p config.Provider) (toolcrib.Model, error) {
	model, err := s.Adapter(name, p)
	if err != nil {
		var value config.Error
		if toolcrib.CodeOf(err) == toolcrib.CodeBadRequest || errors.As(err, &value) {
			return nil, err
		}
		return nil, badRequestf("providers.%s: %v", name, err)
	}
	return limited(name, p, model), nil
}

// limited puts what a provider serves under its limits, once for all its models.
// What runs in this process has none unless they are set.
func limited(name string, p config.Provider, model toolcrib.Model) toolcrib.Model {
	if t, _ := providers.Of(p.Type); t.InProcess && p.MaxConcurrent == 0 && p.RequestsPerMinute == 0 {
		return model
	}
	return limit.New(model, limit.Options{
		Name: name, MaxConcurrent: p.MaxConcurrent,
		RequestsPerMinute: p.RequestsPerMinute,
	})
}

// Adapter makes the bare adapter of a provider.
func (s *Service) Adapter(name string, p config.Provider) (toolcrib.Model, error) {
	t, _ := providers.Of(p.Type)
	if !t.Usable() {
		return nil, unsupportedType(name, p.Type)
	}
	set := providers.Settings{API: p.API}
	var err error
	if t.InProcess {
		set.Name = name
	} else if set.Options, err = s.wire(name, p); err != nil {
		return nil, err
	}
	if set.File, err = p.File.Resolve(s.Resolver()); err != nil {
		return nil, err
	}
	return t.New(set)
}

// wire fills in what the adapters of HTTP APIs have in common.
func (s *Service) wire(name string, p config.Provider) (wire.Options, error) {
	o := wire.Options{
		Name: name, ConnectTimeout: p.ConnectTimeout.Std(),
		FirstTokenTimeout: p.FirstTokenTimeout.Std(), IdleTimeout: p.IdleTimeout.Std(),
	}
	r := s.Resolver()
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
	o.KeyAdvice = keyAdvice(name, p.APIKey, o.APIKey != "")
	if o.BaseURL == "" {
		o.BaseURL, _ = addressFromEnv(p.Type)
		if t, _ := providers.Of(p.Type); t.OwnMachine {
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

// keyAdvice says where the key of a provider comes from, and how to change it.
func keyAdvice(provider string, key config.Value, sent bool) string {
	at := "providers." + provider + ".api_key"
	if !sent {
		return fmt.Sprintf("%s was sent no key; set %s", provider, at)
	}
	switch kind, name := key.Source(); kind {
	case "env":
		return fmt.Sprintf("%s was sent the key in $%s; set that variable to another one, or name another source in %s",
			provider, name, at)
	case "secret":
		return fmt.Sprintf("%s was sent the secret %s; to change it: toolcrib secret set %s", provider, name, name)
	case "file":
		return fmt.Sprintf("%s was sent the key in the file %s; change it there", provider, name)
	default:
		return fmt.Sprintf("%s was sent the key of %s (%s); change it there", provider, at, name)
	}
}

// addressFromEnv returns the address that the environment names for a type of provider,
// as the vendors' own programs read it, and the variable; "" if none.
func addressFromEnv(providerType string) (address, variable string) {
	t, _ := providers.Of(providerType)
	if address = t.Address(os.Getenv); address == "" {
		return "", ""
	}
	return address, t.AddressVariable
}

// placeOf is an address as it may be shown: without what may be a secret in it.
func placeOf(address string) string {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" {
		return "an address that is not a URL"
	}
	return u.Scheme + "://" + u.Host
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
