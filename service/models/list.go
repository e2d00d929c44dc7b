package models

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
	"strings"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent/core"
	"github.com/toolcrib/toolcrib/api"
	"github.com/toolcrib/toolcrib/guard"
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

func (s *Models) modelOf(r config.ResolvedModel, from string) api.Model {
	info := s.infoOf(r)
	v := api.Model{
		Name: r.Ref, Provider: r.ProviderName, Type: r.Provider.Type, Model: r.ID, Context: info.Context,
		MaxOutput: info.MaxOutput,
		Tools:     r.Tools, Reasoning: r.Reasoning, From: from,
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

// ModelNames returns the names of configured models, and of the default models of vendors whose API keys are set.
// It does not ask providers.
func (s *Models) ModelNames() []string {
	names := env.ModelRefs(s.env.Config, s.env.Config.ModelNames()...)
	for _, t := range providers.ByKey() {
		if key, ok := os.LookupEnv(t.KeyVariable); ok && key != "" {
			names = append(names, t.Name+"/"+t.DefaultModel)
		}
	}
	return append(names, config.TypeOffline+"/"+config.TypeOffline)
}

// List returns the configured models, those that agents name, and the detected one; also the known models of their
// providers unless configured is set. If provider is not empty, only models of that provider are returned.
func (s *Models) List(who toolcrib.Principal, provider string, configured bool) ([]api.Model, error) {
	if err := env.RequireUser(who); err != nil {
		return nil, err
	}
	c := s.env.Config
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

// knownOf returns the models in the catalog of the configured providers, of those whose key is in the environment, of
// those in views, and of the one asked for.
func (s *Models) knownOf(views []api.Model, seen map[string]bool, asked string) ([]api.Model, error) {
	c := s.env.Config
	names := c.ProviderNames()
	for _, v := range views {
		names = append(names, v.Provider)
	}
	if asked != "" {
		names = append(names, asked)
	}
	for _, t := range providers.ByKey() {
		if os.Getenv(t.KeyVariable) != "" {
			names = append(names, t.Name)
		}
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

// Near returns the known model whose name is nearest to that of an unknown one, as PROVIDER/MODEL, or "". The unknown
// one is PROVIDER/MODEL, or MODEL of any provider with a key.
func (s *Models) Near(ref string) string {
	var names []string
	provider, id, ok := strings.Cut(ref, "/")
	if ok {
		names = append(names, provider)
	} else {
		id = ref
		for _, t := range providers.ByKey() {
			names = append(names, t.Name)
		}
	}
	var ids []string
	whole := map[string]string{}
	for _, name := range names {
		r, err := s.env.Config.ResolveModel(name + "/" + id)
		if err != nil {
			continue
		}
		base, found := s.addressOf(r.Provider)
		if _, known := s.Lookup(r.Provider, id); known && ok || !found {
			return ""
		} else if known {
			return name + "/" + id
		}
		for _, m := range s.KnownModels().List(r.Provider.Type, base) {
			ids, whole[m.ID] = append(ids, m.ID), name+"/"+m.ID
		}
	}
	return whole[guard.Nearest(id, ids)]
}

// RefreshModels stores a list of prices and context sizes, for administrators. It is used until a later version has
// a newer one.
func (s *Models) RefreshModels(who toolcrib.Principal, in io.Reader) (info catalog.Info, err error) {
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

// catalogName is the file of stored prices in the data folder.
const catalogName = "models.json"

// KnownModels returns the catalog of models: the newer of the embedded and the stored one. If the stored one cannot
// be read, there is a notice.
func (s *Models) KnownModels() *catalog.Catalog {
	s.catalogRead.Do(func() { s.catalog = s.readCatalog() })
	return s.catalog
}

func (s *Models) readCatalog() *catalog.Catalog {
	brought := catalog.Embedded()
	path := s.CatalogPath()
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return brought
	}
	if err != nil {
		s.env.Notice(fmt.Sprintf("%s cannot be read, so the built-in prices are used: %v", path, err))
		return brought
	}
	defer f.Close()
	kept, err := catalog.Parse(f)
	switch {
	case err != nil:
		s.env.Notice(fmt.Sprintf("%s is skipped and the built-in prices are used: %v; refresh it with: toolcrib models refresh FILE", path, err))
		return brought
	case kept.Info().Date < brought.Info().Date:
		return kept.Merge(brought)
	}
	return brought.Merge(kept)
}

// CatalogPath returns the path of the stored catalog.
func (s *Models) CatalogPath() string { return filepath.Join(s.env.DataDir, catalogName) }

// toldFolder is the folder with one file for each notice that a person has seen and needs only once.
const toldFolder = "told"

// Known reports whether a notice was shown before and need not be repeated: that a price is unknown, unless a cost
// is limited.
func (s *Models) Known(n toolcrib.Notice) bool {
	c := s.env.Config
	if n.Code != core.NoticePriceUnknown || len(c.Budgets) > 0 {
		return false
	}
	for _, name := range c.AgentNames() {
		if c.Agents[name].Budget.MaxCostUSD > 0 {
			return false
		}
	}
	known, err := s.env.Mark(toldFolder, n.Message)
	return err == nil && known
}

// infoOf returns what a run records of a model: its configuration, completed from the catalog. Nothing is known of
// a script.
func (s *Models) infoOf(r config.ResolvedModel) journal.ModelInfo {
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
	switch {
	case known.Attachments, r.Provider.Type == config.TypeOllama: // whose adapter asks whether the model sees
		info.Files = journal.FilesImages
	case !known.Local:
		info.Files = journal.FilesNone
	}
	return info
}

// Lookup finds a model of a provider in the catalog.
func (s *Models) Lookup(p config.Provider, model string) (catalog.Model, bool) {
	base, ok := s.addressOf(p)
	if !ok {
		return catalog.Model{}, false
	}
	return s.KnownModels().Lookup(p.Type, base, model)
}

// addressOf returns the address of a provider, or "" for the default of its type. It returns false if the address
// cannot be resolved.
func (s *Models) addressOf(p config.Provider) (base string, ok bool) {
	base, err := p.BaseURL.Resolve(s.env.Resolver())
	if base == "" && err == nil {
		base, _ = addressFromEnv(p.Type)
	}
	return base, err == nil
}

// numCtx returns the context size that the extra fields of a request ask of an Ollama, or 0.
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
