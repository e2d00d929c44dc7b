package service

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/internal/config"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/provider/catalog"
)

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
		s.Notice(fmt.Sprintf("%s cannot be read, so the prices that toolcrib brings count: %v", path, err))
		return brought
	}
	defer f.Close()
	kept, err := catalog.Parse(f)
	switch {
	case err != nil:
		s.Notice(fmt.Sprintf("%s is passed over, so the prices that toolcrib brings count: %v; refresh it with: toolcrib models refresh FILE", path, err))
		return brought
	case kept.Info().Date < brought.Info().Date:
		return kept.Merge(brought)
	}
	return brought.Merge(kept)
}

// CatalogPath is the file that `models refresh` keeps.
func (s *Service) CatalogPath() string { return filepath.Join(s.DataDir, catalogName) }

// toldFolder is the folder of the data folder that holds one file for each notice that
// people need only once.
const toldFolder = "told"

// Known reports whether people have read a notice before, and need it only once: that no
// price is known for a model. Where a cost is capped they read it with each run.
func (s *Service) Known(n toolcrib.Notice) bool {
	c := s.Config
	if n.Code != agent.NoticePriceUnknown || len(c.Budgets) > 0 {
		return false
	}
	for _, name := range c.AgentNames() {
		if c.Agents[name].Budget.MaxCostUSD > 0 {
			return false
		}
	}
	sum := sha256.Sum256([]byte(n.Message))
	path := filepath.Join(s.DataDir, toldFolder, hex.EncodeToString(sum[:16]))
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return false
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err == nil {
		_ = file.Close() // it is empty
	}
	return errors.Is(err, fs.ErrExist)
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
	base, err := p.BaseURL.Resolve(s.Resolver())
	if err != nil {
		return catalog.Model{}, false // opening the provider says why
	}
	if base == "" {
		base, _ = addressFromEnv(p.Type)
	}
	return s.KnownModels().Lookup(p.Type, base, model)
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
