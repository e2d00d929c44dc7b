// Package models finds and opens the models of runs: those of the configuration, those that are detected where none is
// configured, and what is known of their prices and limits.
package models

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"strings"
	"sync"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/bus"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/internal/config"
	"github.com/toolcrib/toolcrib/internal/providers"
	"github.com/toolcrib/toolcrib/internal/safefile"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/provider/catalog"
	"github.com/toolcrib/toolcrib/provider/limit"
	"github.com/toolcrib/toolcrib/provider/offline"
	"github.com/toolcrib/toolcrib/provider/texttag"
	"github.com/toolcrib/toolcrib/provider/wire"
	"github.com/toolcrib/toolcrib/service/env"
)

// Models are the models of a data folder under a configuration. They are safe for use by several goroutines.
type Models struct {
	env *env.Env
	*shared
}

// shared is used under all configurations of a data folder.
type shared struct {
	// adapters are the adapters that runs share, by the names of their providers.
	adapters adapters
	// Bus starts calls of other nodes. It is set before the models are used.
	Bus         func(ctx context.Context, run toolcrib.RunID, r bus.Request) (*bus.Exchange, error)
	catalogRead sync.Once
	catalog     *catalog.Catalog
}

// New returns the models of a data folder.
func New(e *env.Env) *Models { return &Models{e, &shared{}} }

// Under returns the models under another configuration.
func (s *Models) Under(e *env.Env) *Models { return &Models{e, s.shared} }

// Close closes connections that no run uses.
func (s *Models) Close() { s.adapters.close() }

// Choice is the choice of models for a run and the runs that it starts.
type Choice struct {
	mu    sync.Mutex
	found *config.Detected // the model to use if none is configured; nil until it is looked for
	alone bool             // no person can be asked while a run is driven
}

// DetectFor detects a model where none is configured, and may ask a person to confirm it.
func (s *Models) DetectFor(m *Choice) {
	found := s.Detect(true)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.found = &found
}

// Alone sets whether no person can be asked while a run is driven.
func (m *Choice) Alone(alone bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.alone = alone
}

// toolsByText is the value of journal.ModelInfo.Tools for a model that calls tools by the text protocol.
const toolsByText = "text"

// Opening returns the function that opens models for the loop, by the current configuration of their providers.
func (s *Models) Opening(m *Choice) func(context.Context, journal.ModelInfo) (toolcrib.Model, error) {
	return func(_ context.Context, info journal.ModelInfo) (toolcrib.Model, error) {
		r, err := s.resolveModel(info.Provider + "/" + info.ID)
		var model toolcrib.Model
		if err == nil {
			model, err = s.provider(info.Provider, r.Provider)
		}
		switch standIn, ok := model.(offline.Model); {
		case err != nil:
			return nil, unopened(info.Provider, err)
		case ok:
			m.mu.Lock()
			defer m.mu.Unlock()
			standIn.Alone, standIn.Command = m.alone, s.env.Self
			return standIn, nil
		case info.Tools == toolsByText:
			return texttag.New(model), nil
		}
		return model, nil
	}
}

// unopened returns the error of a request to a model that cannot be opened. The request was not sent. The cause may
// name files, which only operators may read.
func unopened(provider string, err error) error {
	wrong := config.Error{Key: config.JoinKey("providers", provider), Message: err.Error()}
	_ = errors.As(err, &wrong) // which knows the key
	return &toolcrib.ModelError{
		Class: toolcrib.ErrAuth, Provider: provider, Detail: err.Error(), Unsent: true, Err: err,
		Message: wrong.WithoutFiles() + "; `toolcrib doctor` says more",
	}
}

// Resolve resolves the models of an agent. If the agent has none, one is detected and reported to tell. An error of
// the first model is an error of the request; one of a fallback is reported when it is needed.
func (s *Models) Resolve(m *Choice, agent *toolcrib.Agent, tell func(string)) ([]journal.ModelInfo, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	all, err := s.modelsOf(m, agent, tell)
	if err != nil {
		return nil, err
	}
	infos := make([]journal.ModelInfo, len(all))
	for i, r := range all {
		if address, variable := addressFromEnv(r.Provider.Type); address != "" && r.Provider.BaseURL.IsEmpty() {
			tell(fmt.Sprintf("%s is set: %s is asked at %s", variable, r.ProviderName, env.PlaceOf(address)))
		}
		infos[i] = s.infoOf(r)
	}
	_, err = s.provider(all[0].ProviderName, all[0].Provider)
	return infos, err
}

// modelsOf resolves the model of an agent and its fallbacks.
func (s *Models) modelsOf(m *Choice, agent *toolcrib.Agent, tell func(string)) ([]config.ResolvedModel, error) {
	var all []config.ResolvedModel
	if agent.Model == "" {
		if m.found == nil {
			found := s.Detect(false)
			m.found = &found
		}
		text := fmt.Sprintf("no model is configured: using %s (%s)", m.found.Model.Name(), m.found.Why)
		if names := s.env.Config.ModelNames(); len(names) > 0 {
			text = fmt.Sprintf("no model is configured for the agent %s: using %s (%s); name one of %s in agents.%s.model, or with --model",
				agent.Name, m.found.Model.Name(), m.found.Why, strings.Join(names, ", "), agent.Name)
		}
		tell(text)
		agent.Model = m.found.Model.Ref
		all = append(all, m.found.Model)
	} else {
		first, err := s.resolveModel(agent.Model)
		if err != nil {
			return nil, err
		}
		all = append(all, first)
	}
	for _, ref := range agent.Fallback {
		next, err := s.resolveModel(ref)
		if err != nil {
			return nil, err
		}
		all = append(all, next)
	}
	return all, nil
}

// resolveModel resolves a model by its name. The error names a similar model, or lists the supported types of
// providers.
func (s *Models) resolveModel(ref string) (config.ResolvedModel, error) {
	c := s.env.Config
	r, err := c.ResolveModel(ref)
	if err == nil {
		return r, nil
	}
	if !strings.Contains(ref, "/") && guard.Nearest(ref, c.ModelNames()) == "" {
		near := s.Near(ref)
		if _, isProvider := c.ResolveModel(ref + "/x"); isProvider == nil {
			near = ref + "/MODEL"
		}
		if near != "" {
			return r, env.BadRequestf("%v; did you mean %q?", err, near)
		}
	}
	return r, env.BadRequestf("%v; the types of providers are %s", err, strings.Join(providers.Names(nil), ", "))
}

// Reopens returns an error unless the model of a run can be opened under the current configuration.
func (s *Models) Reopens(info journal.ModelInfo) error {
	r, err := s.env.Config.ResolveModel(info.Provider + "/" + info.ID)
	if err == nil {
		_, err = s.provider(info.Provider, r.Provider)
	}
	if err != nil && !OfConfig(err) {
		err = env.BadRequestf("the run's model %s: %v", info.Ref, err)
	}
	return err
}

// provider returns the adapter of a configured provider. Runs share the adapter of an HTTP API with its
// connections, limits and breaker, until something that it was made of changes.
func (s *Models) provider(name string, p config.Provider) (toolcrib.Model, error) {
	t, set, err := s.settings(name, p)
	var model toolcrib.Model
	if err == nil {
		model, err = s.adapters.open(t, set, p, s.env.Share)
	}
	if err == nil || OfConfig(err) {
		return model, err
	}
	return nil, config.Error{Key: config.JoinKey("providers", name), Message: err.Error()}
}

// adapters are those that runs share, by the names of their providers.
type adapters struct {
	mu    sync.Mutex
	known map[string]adapter
}

type adapter struct {
	madeOf adapterOf
	model  toolcrib.Model
	idle   io.Closer // of its idle connections; nil = it has none
}

// adapterOf is everything that an adapter was made of.
type adapterOf struct {
	kind string
	// settings returns the settings of a provider's adapter.
	settings                 providers.Settings // without Admit, which cannot be compared
	admits                   bool
	roots                    string // the content of the file of certificates
	maxConcurrent, perMinute int
}

// open returns the known adapter if it was made of the same, or else a new one. share is that of [env.Options].
func (a *adapters) open(
	t providers.Type, set providers.Settings, p config.Provider, share func(string, int, int, limit.Local) limit.Share,
) (toolcrib.Model, error) {
	of := adapterOf{
		kind: t.Name, settings: set, admits: set.Admit != nil, maxConcurrent: p.MaxConcurrent, perMinute: p.RequestsPerMinute,
	}
	of.settings.Admit, of.settings.Open = nil, nil // which is always the same
	if set.CAFile != "" {
		text, _ := safefile.Read(set.CAFile, wire.MaxCAFile) // an error is New's to report
		of.roots = string(text)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	known, ok := a.known[set.Name]
	if ok && reflect.DeepEqual(known.madeOf, of) {
		return known.model, nil
	}
	model, err := t.New(set)
	if err != nil || t.InProcess && p.MaxConcurrent == 0 && p.RequestsPerMinute == 0 {
		return model, err
	}
	idle, _ := model.(io.Closer)
	o := limit.Options{Name: set.Name, MaxConcurrent: p.MaxConcurrent, RequestsPerMinute: p.RequestsPerMinute}
	if share != nil {
		o.Share = func(of limit.Local) limit.Share { return share(set.Name, p.MaxConcurrent, p.RequestsPerMinute, of) }
	}
	model = limit.New(model, o)
	if known.idle != nil {
		_ = known.idle.Close()
	}
	if a.known == nil {
		a.known = map[string]adapter{}
	}
	a.known[set.Name] = adapter{of, model, idle}
	return model, nil
}

// close closes idle connections.
func (a *adapters) close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, known := range a.known {
		if known.idle != nil {
			_ = known.idle.Close()
		}
	}
}

// Adapter returns an adapter for a provider, without limits.
func (s *Models) Adapter(name string, p config.Provider) (toolcrib.Model, error) {
	t, set, err := s.settings(name, p)
	if err != nil {
		return nil, err
	}
	return t.New(set)
}

// settings are what the adapter of a provider is made with.
func (s *Models) settings(name string, p config.Provider) (t providers.Type, set providers.Settings, err error) {
	t, ok := providers.Of(p.Type)
	if !ok {
		return t, set, env.BadRequestf("providers.%s: there is no type %q of providers; there are %s", name, p.Type,
			strings.Join(providers.Names(nil), ", "))
	}
	if t.InProcess {
		set.Name = name
	} else if set.Options, err = s.wire(name, p); err != nil {
		return t, set, err
	}
	if set.File, err = p.File.Resolve(s.env.Resolver()); err == nil && t.OnBus {
		set.Open, set.Node = s.Bus, p.Node
		set.Token, err = p.Token.Resolve(s.env.Resolver())
	}
	return t, set, err
}

// wire returns the settings that adapters of HTTP APIs have in common.
func (s *Models) wire(name string, p config.Provider) (wire.Options, error) {
	o := wire.Options{
		Name: name, API: p.API, Reasoning: p.Reasoning, ConnectTimeout: p.ConnectTimeout.Std(),
		FirstTokenTimeout: p.FirstTokenTimeout.Std(), IdleTimeout: p.IdleTimeout.Std(),
	}
	r := s.env.Resolver()
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
	}
	for header, value := range p.Headers {
		text, err := value.Resolve(r)
		if err != nil {
			return o, err
		}
		o.Headers[header] = text
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

// addressFromEnv returns the address that the environment names for a type of provider, as for the vendor's own
// programs, and the name of the variable.
func addressFromEnv(providerType string) (address, variable string) {
	t, _ := providers.Of(providerType)
	if address = t.Address(os.Getenv); address == "" {
		return "", ""
	}
	return address, t.AddressVariable
}

// OfConfig reports whether an error is about the configuration or the request.
func OfConfig(err error) bool {
	var value config.Error
	return toolcrib.CodeOf(err) == toolcrib.CodeBadRequest || errors.As(err, &value)
}
