package service

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent/core"
	"github.com/toolcrib/toolcrib/api"
	"github.com/toolcrib/toolcrib/internal/config"
	"github.com/toolcrib/toolcrib/internal/providers"
	"github.com/toolcrib/toolcrib/internal/safefile"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/provider/catalog"
	"github.com/toolcrib/toolcrib/service/env"
)

// Where a model of a list comes from.
const (
	fromConfig   = "configured"
	fromDetected = "detected"
	fromKnown    = "known"
)

func (s *Service) modelOf(r config.ResolvedModel, from string) api.Model {
	info := s.InfoOf(r)
	v := api.Model{
		Name: r.Ref, Provider: r.ProviderName, Type: r.Provider.Type, Model: r.ID, Context: info.Context,
		MaxOutput: info.MaxOutput,
		Tools:     r.Tools, Reasoning: r.Reasoning, Supported: SupportedType(r.Provider.Type), From: from,
	}
	if known, ok := s.Lookup(r.Provider, r.ID); ok && !known.Local {
		v.Files = &known.Attachments
	}
	if info.Price.Known {
		v.Price = &api.ModelPrice{
			Input: info.Price.Input, CachedInput: info.Price.CachedInput,
			CacheWrite: info.Price.CacheWrite, Output: info.Price.Output,
		}
	}
	return v
}

// ModelNames returns names of models that a run may ask for, without asking a provider: those
// of the configuration, and the usual ones of the vendors whose keys are set.
func (s *Service) ModelNames() []string {
	names := env.ModelRefs(s.Env.Config, s.Env.Config.ModelNames()...)
	for _, t := range providers.ByKey() {
		if key, ok := os.LookupEnv(t.KeyVariable); ok && key != "" {
			names = append(names, t.Name+"/"+t.DefaultModel)
		}
	}
	return append(names, config.TypeOffline+"/"+config.TypeOffline)
}

// Models returns the configured models, those that only agents name, the one that
// is found, and unless configured those that are known of the providers among these. If
// provider is not empty, they are those of that one.
func (s *Service) Models(who toolcrib.Principal, provider string, configured bool) ([]api.Model, error) {
	if err := env.RequireUser(who); err != nil {
		return nil, err
	}
	c := s.Env.Config
	seen := map[string]bool{} // by name, and by PROVIDER/MODEL
	views := []api.Model{}
	for _, ref := range env.ModelRefs(c, c.ModelNames()...) {
		r, err := c.ResolveModel(ref)
		if err != nil {
			return nil, env.BadRequestf("%v", err)
		}
		seen[ref], seen[r.Name()] = true, true
		views = append(views, s.modelOf(r, fromConfig))
	}
	found := s.Detect(false)
	if !seen[found.Model.Ref] {
		seen[found.Model.Name()] = true
		v := s.modelOf(found.Model, fromDetected)
		v.Detected = found.Why
		views = append(views, v)
	}
	if !configured {
		known, err := s.knownOf(views, seen, provider)
		if err != nil {
			return nil, err
		}
		views = append(views, known...)
	}
	return slices.DeleteFunc(views, func(v api.Model) bool { return provider != "" && v.Provider != provider }), nil
}

// knownOf are the models that the catalog has of the configured providers, of
// those that views name, and of the one that is asked for.
func (s *Service) knownOf(views []api.Model, seen map[string]bool, asked string) ([]api.Model, error) {
	c := s.Env.Config
	names := c.ProviderNames()
	for _, v := range views {
		names = append(names, v.Provider)
	}
	if asked != "" {
		names = append(names, asked)
	}
	slices.Sort(names)
	var out []api.Model
	for _, name := range slices.Compact(names) {
		any, err := c.ResolveModel(name + "/x")
		if err != nil {
			return nil, env.BadRequestf("%v", err)
		}
		base, ok := s.addressOf(any.Provider)
		if !ok {
			continue
		}
		for _, known := range s.KnownModels().List(any.Provider.Type, base) {
			if seen[name+"/"+known.ID] {
				continue
			}
			r, err := c.ResolveModel(name + "/" + known.ID)
			if err != nil {
				return nil, env.BadRequestf("%v", err)
			}
			out = append(out, s.modelOf(r, fromKnown))
		}
	}
	return out, nil
}

// RefreshModels takes the prices and context sizes of models from a list, for
// administrators; they count until a later version brings newer ones.
func (s *Service) RefreshModels(who toolcrib.Principal, in io.Reader) (info catalog.Info, err error) {
	if _, err := env.Administrator(who); err != nil {
		return info, err
	}
	read, err := catalog.Parse(in)
	if err != nil {
		return info, env.BadRequestf("%v", err)
	}
	var text bytes.Buffer
	if err := read.Write(&text); err != nil {
		return info, err
	}
	path := s.CatalogPath()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return info, err
	}
	return read.Info(), safefile.Replace(path, ".toolcrib-", text.Bytes())
}

// catalogName is the file in the data folder that holds newer prices than those
// that toolcrib brings.
const catalogName = "models.json"

// KnownModels is what is known of models: what toolcrib brings, and what `models
// refresh` has kept; the newer of the two counts. A notice says why that cannot be read.
func (s *Service) KnownModels() *catalog.Catalog {
	s.catalogRead.Do(func() { s.catalog = s.readCatalog() })
	return s.catalog
}

func (s *Service) readCatalog() *catalog.Catalog {
	brought := catalog.Embedded()
	path := s.CatalogPath()
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return brought
	}
	if err != nil {
		s.Env.Notice(fmt.Sprintf("%s cannot be read, so the built-in prices are used: %v", path, err))
		return brought
	}
	defer f.Close()
	kept, err := catalog.Parse(f)
	switch {
	case err != nil:
		s.Env.Notice(fmt.Sprintf("%s is skipped and the built-in prices are used: %v; refresh it with: toolcrib models refresh FILE", path, err))
		return brought
	case kept.Info().Date < brought.Info().Date:
		return kept.Merge(brought)
	}
	return brought.Merge(kept)
}

// CatalogPath is the file that `models refresh` keeps.
func (s *Service) CatalogPath() string { return filepath.Join(s.Env.DataDir, catalogName) }

// toldFolder is the folder of the data folder that holds one file for each notice that
// people need only once.
const toldFolder = "told"

// Known reports whether people have read a notice before, and need it only once: that no
// price is known for a model. Where a cost is capped they read it with each run.
func (s *Service) Known(n toolcrib.Notice) bool {
	c := s.Env.Config
	if n.Code != core.NoticePriceUnknown || len(c.Budgets) > 0 {
		return false
	}
	for _, name := range c.AgentNames() {
		if c.Agents[name].Budget.MaxCostUSD > 0 {
			return false
		}
	}
	known, err := s.Env.Mark(toldFolder, n.Message)
	return err == nil && known
}

// filesNone is what journal.ModelInfo.Files says of a model that takes no files.
const filesNone = "none"

// InfoOf is what a run keeps of a model: what the configuration says, and for the
// rest what is known. A script plays any model: nothing is known of it.
func (s *Service) InfoOf(r config.ResolvedModel) journal.ModelInfo {
	info := journal.ModelInfo{
		Ref: r.Ref, Provider: r.ProviderName, ID: r.ID, Price: r.Price, Context: r.Context,
		Tools: r.Tools, Reasoning: r.Reasoning, Extra: r.Extra,
	}
	if r.Provider.Type == config.TypeScript {
		return info
	}
	if info.Context == 0 && r.Provider.Type == config.TypeOllama {
		info.Context = numCtx(r.Extra)
	}
	known, ok := s.Lookup(r.Provider, r.ID)
	if !ok {
		return info
	}
	if !info.Price.Known {
		info.Price = known.Price
	}
	if info.Context == 0 {
		info.Context = known.Context
	}
	info.MaxOutput = known.MaxOutput
	if !known.Local && !known.Attachments {
		info.Files = filesNone
	}
	return info
}

// Lookup finds what is known of a model of a provider.
func (s *Service) Lookup(p config.Provider, model string) (catalog.Model, bool) {
	base, ok := s.addressOf(p)
	if !ok {
		return catalog.Model{}, false
	}
	return s.KnownModels().Lookup(p.Type, base, model)
}

// addressOf is where a provider is asked, "" = its type's own; false = opening it says why that is unknown.
func (s *Service) addressOf(p config.Provider) (base string, ok bool) {
	base, err := p.BaseURL.Resolve(s.Env.Resolver())
	if base == "" && err == nil {
		base, _ = addressFromEnv(p.Type)
	}
	return base, err == nil
}

// numCtx is the context that the extra fields of a request ask an Ollama for; 0 =
// they say nothing.
func numCtx(extra json.RawMessage) int {
	var fields struct {
		NumCtx  int `json:"num_ctx"`
		Options struct {
			NumCtx int `json:"num_ctx"`
		} `json:"options"`
	}
	if len(extra) == 0 || json.Unmarshal(extra, &fields) != nil {
		return 0
	}
	return max(cmp.Or(fields.Options.NumCtx, fields.NumCtx), 0)
}
