package cli

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/internal/config"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/provider/anthropic"
	"github.com/toolcrib/toolcrib/provider/offline"
	"github.com/toolcrib/toolcrib/provider/openai"
	"github.com/toolcrib/toolcrib/provider/script"
	"github.com/toolcrib/toolcrib/provider/wire"
)

// supportedTypes are the types of providers that this version has adapters for.
func supportedTypes() []string {
	return []string{config.TypeOpenAI, config.TypeAnthropic, config.TypeScript, config.TypeOffline}
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

// Open is the loop's way to a model.
func (m *models) Open(_ context.Context, info journal.ModelInfo) (toolcrib.Model, error) {
	model, ok := m.open[info.Provider]
	if !ok {
		return nil, fmt.Errorf("provider %s is not open", info.Provider)
	}
	return model, nil
}

// openModels resolves and opens the models of an agent. An agent without one gets
// the first that is found, and standard error says which.
func (a *app) openModels(c *config.Config, agent *toolcrib.Agent) (*models, error) {
	m := &models{open: map[string]toolcrib.Model{}}
	var all []config.ResolvedModel
	if agent.Model == "" {
		found := c.DetectModel(config.Surroundings{LookupEnv: os.LookupEnv}, supportedType)
		a.notice("no model is configured: using %s (%s)", found.Model.Name(), a.why(found))
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
		m.infos = append(m.infos, infoOf(r))
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

// why tells why a model was found, and what else is there that this version cannot
// use.
func (a *app) why(found config.Detected) string {
	why := found.Why
	if found.Model.Provider.Type == config.TypeOffline && !supportedType(config.TypeOllama) && ollamaAnswers() {
		why += fmt.Sprintf(", an Ollama answers at %s, but this version cannot use %s", config.OllamaAddress, config.TypeOllama)
	}
	return why
}

// ollamaAnswers looks whether something listens where an Ollama would. It takes no
// time where nothing does.
func ollamaAnswers() bool {
	const patience = 300 * time.Millisecond
	conn, err := net.DialTimeout("tcp", strings.TrimPrefix(config.OllamaAddress, "http://"), patience)
	if err != nil {
		return false
	}
	return conn.Close() == nil
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

func infoOf(r config.ResolvedModel) journal.ModelInfo {
	info := journal.ModelInfo{
		Ref: r.Ref, Provider: r.ProviderName, ID: r.ID, Price: r.Price, Context: r.Context,
		Tools: r.Tools, Reasoning: r.Reasoning, Extra: r.Extra,
	}
	// What runs in this process costs nothing.
	if r.Provider.Type == config.TypeOffline {
		info.Price.Known = true
	}
	return info
}

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
	if p.RequestsPerMinute > 0 {
		model = &paced{model: model, pace: &pace{most: p.RequestsPerMinute}}
	}
	return model, nil
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
	case config.TypeOpenAI:
		o, err := a.wire(name, p)
		if err != nil {
			return nil, err
		}
		return openai.New(openai.Options{Options: o})
	case config.TypeAnthropic:
		o, err := a.wire(name, p)
		if err != nil {
			return nil, err
		}
		return anthropic.New(anthropic.Options{Options: o})
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

// pace bounds the requests of a minute (providers.X.requests_per_minute).
type pace struct {
	most int

	mu   sync.Mutex
	sent []time.Time // within the last minute
}

// wait waits until another request may be sent.
func (p *pace) wait(ctx context.Context) error {
	for {
		delay := p.take(time.Now())
		if delay <= 0 {
			return nil
		}
		timer := time.NewTimer(delay)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return context.Cause(ctx)
		}
	}
}

func (p *pace) take(now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.sent) > 0 && now.Sub(p.sent[0]) >= time.Minute {
		p.sent = p.sent[1:]
	}
	if len(p.sent) >= p.most {
		return time.Minute - now.Sub(p.sent[0])
	}
	p.sent = append(p.sent, now)
	return 0
}

// paced holds requests back as its pace says.
type paced struct {
	model toolcrib.Model
	pace  *pace
}

// Conversation keeps the model's own conversations under the same pace.
func (p *paced) Conversation() toolcrib.Model {
	if c, ok := p.model.(toolcrib.Conversational); ok {
		return &paced{model: c.Conversation(), pace: p.pace}
	}
	return p
}

// Stream waits for its turn, then sends the request.
func (p *paced) Stream(ctx context.Context, req *toolcrib.Request) iter.Seq2[toolcrib.Delta, error] {
	return func(yield func(toolcrib.Delta, error) bool) {
		if err := p.pace.wait(ctx); err != nil {
			yield(toolcrib.Delta{}, err)
			return
		}
		for d, err := range p.model.Stream(ctx, req) {
			if !yield(d, err) {
				return
			}
		}
	}
}
