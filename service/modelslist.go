package service

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/internal/config"
	"github.com/toolcrib/toolcrib/internal/providers"
	"github.com/toolcrib/toolcrib/internal/safefile"
	"github.com/toolcrib/toolcrib/provider/catalog"
)

// Model is a model that a run may name.
type Model struct {
	Name      string      `json:"name"` // as agents and --model name it
	Provider  string      `json:"provider"`
	Type      string      `json:"type"`
	Model     string      `json:"model"`
	Price     *ModelPrice `json:"price"`      // in US dollars per 1M tokens; null = unknown
	Context   int         `json:"context"`    // tokens; 0 = unknown
	MaxOutput int         `json:"max_output"` // tokens of a reply; 0 = unknown
	Tools     string      `json:"tools"`
	Files     *bool       `json:"files"` // whether it takes images; null = unknown
	Reasoning string      `json:"reasoning"`
	Supported bool        `json:"supported"` // this version can speak to it
	Detected  string      `json:"detected"`  // why it is used where none is configured
	From      string      `json:"from"`      // configured | detected | known: the list of prices has it
}

// ModelPrice is in US dollars per 1M tokens.
type ModelPrice struct {
	Input       float64 `json:"input"`
	CachedInput float64 `json:"cached_input"`
	CacheWrite  float64 `json:"cache_write"`
	Output      float64 `json:"output"`
}

// Where a model of a list comes from.
const (
	fromConfig   = "configured"
	fromDetected = "detected"
	fromKnown    = "known"
)

func (s *Service) modelOf(r config.ResolvedModel, from string) Model {
	info := s.InfoOf(r)
	v := Model{
		Name: r.Ref, Provider: r.ProviderName, Type: r.Provider.Type, Model: r.ID, Context: info.Context,
		MaxOutput: info.MaxOutput,
		Tools:     r.Tools, Reasoning: r.Reasoning, Supported: SupportedType(r.Provider.Type), From: from,
	}
	if known, ok := s.Lookup(r.Provider, r.ID); ok && !known.Local {
		v.Files = &known.Attachments
	}
	if info.Price.Known {
		v.Price = &ModelPrice{
			Input: info.Price.Input, CachedInput: info.Price.CachedInput,
			CacheWrite: info.Price.CacheWrite, Output: info.Price.Output,
		}
	}
	return v
}

// ModelNames returns names of models that a run may ask for, without asking a provider: those
// of the configuration, and the usual ones of the vendors whose keys are set.
func (s *Service) ModelNames() []string {
	names := modelRefs(s.Config, s.Config.ModelNames()...)
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
func (s *Service) Models(who toolcrib.Principal, provider string, configured bool) ([]Model, error) {
	if err := somebody(who); err != nil {
		return nil, err
	}
	c := s.Config
	seen := map[string]bool{} // by name, and by PROVIDER/MODEL
	views := []Model{}
	for _, ref := range modelRefs(c, c.ModelNames()...) {
		r, err := c.ResolveModel(ref)
		if err != nil {
			return nil, badRequestf("%v", err)
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
	return slices.DeleteFunc(views, func(v Model) bool { return provider != "" && v.Provider != provider }), nil
}

// knownOf are the models that the catalog has of the configured providers, of
// those that views name, and of the one that is asked for.
func (s *Service) knownOf(views []Model, seen map[string]bool, asked string) ([]Model, error) {
	c := s.Config
	names := c.ProviderNames()
	for _, v := range views {
		names = append(names, v.Provider)
	}
	if asked != "" {
		names = append(names, asked)
	}
	slices.Sort(names)
	var out []Model
	for _, name := range slices.Compact(names) {
		any, err := c.ResolveModel(name + "/x")
		if err != nil {
			return nil, badRequestf("%v", err)
		}
		for known := range s.KnownModels().All() {
			found, ok := s.Lookup(any.Provider, known.ID)
			if !ok || found.Local || found.Assumed || found.Provider != known.Provider || found.ID != known.ID ||
				seen[name+"/"+known.ID] {
				continue
			}
			r, err := c.ResolveModel(name + "/" + known.ID)
			if err != nil {
				return nil, badRequestf("%v", err)
			}
			seen[r.Name()] = true
			out = append(out, s.modelOf(r, fromKnown))
		}
	}
	return out, nil
}

// RefreshModels takes the prices and context sizes of models from a list, for
// administrators; they count until a later version brings newer ones.
func (s *Service) RefreshModels(who toolcrib.Principal, in io.Reader) (info catalog.Info, err error) {
	if _, err := Administrator(who); err != nil {
		return info, err
	}
	read, err := catalog.Parse(in)
	if err != nil {
		return info, badRequestf("%v", err)
	}
	if read.Info().Date == "" {
		read = read.Dated(read.Info().Version, time.Now().UTC().Format(time.DateOnly))
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
