package service

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/internal/config"
	"github.com/toolcrib/toolcrib/internal/providers"
)

// checkTimeout bounds the test of one provider.
const checkTimeout = 10 * time.Second

// ExamineProviders tests each configured provider, those that agents name by their type
// alone, and the one that is used where none is configured; for administrators.
func (s *Service) ExamineProviders(ctx context.Context, who toolcrib.Principal) (out []Finding, err error) {
	if _, err := Administrator(who); err != nil {
		return nil, err
	}
	c, seen := s.Config, map[string]bool{}
	for _, name := range c.ProviderNames() {
		seen[name] = true
		if t := c.Providers[name].Type; !SupportedType(t) {
			out = append(out, Finding{
				Check: name, Detail: "type " + t + ": this version cannot use it",
				Fix: "use a provider of type " + strings.Join(SupportedTypes(), ", "),
			})
			continue
		}
		out = append(out, s.checkProvider(ctx, name, c.Providers[name], usedModels(c, name)))
	}
	for _, ref := range modelRefs(c) {
		r, err := c.ResolveModel(ref)
		switch {
		case err != nil:
			out = append(out, Finding{Check: ref, Detail: err.Error(), Fix: "correct the agent's model"})
		case !seen[r.ProviderName] && SupportedType(r.Provider.Type):
			seen[r.ProviderName] = true
			out = append(out, s.checkProvider(ctx, r.ProviderName, r.Provider, usedModels(c, r.ProviderName)))
		}
	}
	if agent := c.Agents[config.DefaultAgent]; agent.Model == "" {
		found := s.Detect(false)
		if _, ok := c.Providers[found.Model.ProviderName]; !ok {
			f := s.checkProvider(ctx, found.Model.ProviderName, found.Model.Provider, []string{found.Model.ID})
			f.Detail += fmt.Sprintf(" (used because no model is configured: %s)", found.Why)
			out = append(out, f)
		}
	}
	return out, nil
}

// usedModels are the provider's own names of the models of it that agents or the
// configuration name.
func usedModels(c *config.Config, provider string) []string {
	var ids []string
	for _, ref := range modelRefs(c, c.ModelNames()...) {
		if r, err := c.ResolveModel(ref); err == nil && r.ProviderName == provider && !slices.Contains(ids, r.ID) {
			ids = append(ids, r.ID)
		}
	}
	return ids
}

// checkProvider asks a provider whether it is there, takes the key, and, where it
// can tell, has the models that are named.
func (s *Service) checkProvider(ctx context.Context, name string, p config.Provider, models []string) Finding {
	f := Finding{Check: name, Fix: fmt.Sprintf("correct providers.%s", name)}
	model, err := s.Adapter(name, p)
	if err != nil {
		f.Detail = err.Error()
		var value config.Error
		if errors.As(err, &value) {
			f.Fix = fixValue(value)
		}
		return f
	}
	remote, ok := model.(interface{ Check(context.Context) error })
	if !ok {
		f.OK, f.Detail = true, p.Type+": ready"
		return f
	}
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	err = remote.Check(ctx)
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() != nil {
		err = &toolcrib.ModelError{Class: toolcrib.ErrTimeout, Provider: name, Message: fmt.Sprintf("no answer within %s",
			checkTimeout), Err: err}
	}
	if err != nil {
		f.Detail = s.Mask.Mask(err.Error())
		f.Fix = fixProvider(name, p.Type, err)
		return f
	}
	f.OK, f.Detail = true, p.Type+": answers, and takes the key"
	if t, _ := providers.Of(p.Type); p.APIKey.IsEmpty() || t.OwnMachine { // which may ask nobody for it
		f.Detail = p.Type + ": answers"
	}
	if served, ok := model.(interface {
		ListModels(context.Context) ([]string, error)
	}); ok && p.Type == config.TypeOllama {
		pulled(ctx, served, models, &f)
	}
	return f
}

// fixValue says what to do about a value that cannot be filled in, by where it comes
// from.
func fixValue(value config.Error) string {
	kind, name, _ := strings.Cut(strings.Trim(value.Ref, "${}"), ":")
	switch kind {
	case "env":
		return fmt.Sprintf("set %s in the environment, or correct %s", name, value.Key)
	case "file":
		return fmt.Sprintf("write it into the file %s, or correct %s", name, value.Key)
	case "secret":
		return fmt.Sprintf("store it: toolcrib secret set %s; or correct %s", name, value.Key)
	}
	return "correct " + value.Key
}

// pulled looks whether an Ollama has the models that are named.
func pulled(ctx context.Context, served interface {
	ListModels(context.Context) ([]string, error)
}, models []string, f *Finding,
) {
	names, err := served.ListModels(ctx)
	if err != nil {
		return // it answered a moment ago
	}
	f.Detail += fmt.Sprintf("; it has %d models", len(names))
	if len(names) == 1 {
		f.Detail = strings.TrimSuffix(f.Detail, "s")
	}
	var missing []string
	for _, id := range models {
		if !slices.Contains(names, id) && !slices.Contains(names, id+":latest") {
			missing = append(missing, id)
		}
	}
	switch {
	case len(missing) > 0:
		f.OK, f.Detail = false, f.Detail+", but not "+strings.Join(missing, ", ")
		f.Fix = "ollama pull " + strings.Join(missing, " && ollama pull ")
	case len(names) == 0:
		f.OK, f.Fix = false, "pull one that takes tools: ollama pull qwen3"
	}
}

// fixProvider says what to do about a provider that does not answer as it should.
func fixProvider(name, providerType string, err error) string {
	var failed *toolcrib.ModelError
	if !errors.As(err, &failed) {
		return "check the key, the address and the network"
	}
	key := "providers." + name
	switch failed.Class {
	case toolcrib.ErrAuth:
		return "check the key: " + key + ".api_key, and what it may be used for"
	case toolcrib.ErrNetwork, toolcrib.ErrTimeout:
		if t, _ := providers.Of(providerType); t.Start != "" {
			return "start it: " + t.Start + "; or correct " + key + ".base_url"
		}
		return "check the network, " + key + ".base_url, and the proxy"
	case toolcrib.ErrRateLimit, toolcrib.ErrOverloaded:
		return "wait a little: it answers, but takes no requests now"
	}
	return "check " + key + ".base_url: something else answers there"
}
