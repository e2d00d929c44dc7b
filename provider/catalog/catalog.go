// Package catalog has prices, context sizes and abilities of the models of public APIs.
// The data are a trimmed snapshot of charm's catwalk
// (see NOTICE and [Catalog.Info]); a newer file can be read with [Parse] and merged into
// it with [Catalog.Merge]. `jq -s . internal/providers/configs/*.json | toolcrib models
// refresh -` in catwalk's module makes a newer snapshot of it in the data folder; its
// first line then gets the version and date of the module.
//
// A model that is not in the data is unknown: a price is never guessed from
// that of a similar model, or of another vendor. Prices are the list prices of
// the vendor for the smallest tier of context, in US dollars per 1M tokens.
package catalog

import (
	"bytes"
	"cmp"
	_ "embed"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"
	"sync"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/internal/lazyregexp"
)

// Model is the data about a model.
type Model struct {
	Provider string `json:"-"` // vendor of the list that it is in; "" if it is local
	// as in that list; it may be longer than the requested ID
	ID          string         `json:"id"`
	Price       toolcrib.Price `json:"price"`                 // Known is false if the list has no price
	Context     int            `json:"context,omitempty"`     // tokens; if 0, unknown
	MaxOutput   int            `json:"max_output,omitempty"`  // most tokens of a reply that the vendor or catwalk suggests
	Attachments bool           `json:"attachments,omitempty"` // it accepts images
	// Local reports whether the model runs on machines of the user and costs nothing.
	Local bool `json:"local,omitempty"`
}

// Info is the origin of the data.
type Info struct {
	Source  string `json:"source"`            // a Go module, or the source in the file that Parse read
	Version string `json:"version,omitempty"` // version of the source
	Date    string `json:"date,omitempty"`    // date of that version, YYYY-MM-DD
	License string `json:"license,omitempty"` // SPDX
	Models  int    `json:"models,omitempty"`
}

// Catalog is a set of lists, one for each vendor. It is immutable and safe for
// concurrent use.
type Catalog struct {
	info      Info
	providers []provider
}

// provider is the list of one vendor. The models of the embedded file are
// decoded on first use.
type provider struct {
	id, baseURL string
	models      func() []Model
}

// Info returns the origin of the data; after [Catalog.Merge], the origin of the catalog
// that was merged in.
func (c *Catalog) Info() Info {
	info := c.info
	info.Models = 0
	for _, p := range c.providers {
		info.Models += len(p.models())
	}
	return info
}

// List returns the list that applies to a configured provider, as for [Catalog.Lookup],
// or nil.
func (c *Catalog) List(providerType, baseURL string) []Model {
	if !slices.Contains(vendors[:], providerType) {
		return nil
	}
	if p := c.at(baseURL, providerType); p != nil {
		return p.models()
	}
	return nil
}

// Lookup returns the data about a model of a configured provider. providerType
// is the type in the configuration; baseURL is the configured one, "" for the type's own.
// For types that can use any compatible server, the address selects the
// list. A model that is not in the list of that address has the price of its vendor,
// because a gateway charges no less. If it returns false, the model is unknown, and so is
// its price.
//
// The ID is looked up unchanged first. Then, if the vendor's list has exactly that:
// without a date at its end (-2025-08-07, -20250807) or -latest; the newest of the
// dated versions of an ID without a date; for gemini without the prefix models/.
// Any other difference makes it another model.
func (c *Catalog) Lookup(providerType, baseURL, model string) (Model, bool) {
	if model == "" {
		return Model{}, false
	}
	switch providerType {
	case "script", "offline", "llamacpp":
		return local(model), true
	case "ollama":
		if hosted(baseURL, model) {
			return Model{}, false
		}
		return local(model), true
	}
	if !slices.Contains(vendors[:], providerType) {
		return Model{}, false
	}
	lists := []*provider{
		c.at(baseURL, providerType), c.named(providerType), c.named("openai"), c.named("anthropic"), c.named("gemini"),
	}
	if baseURL == "" {
		lists = lists[:1]
	}
	for _, p := range lists {
		if p == nil {
			continue
		}
		if m, ok := find(p.models(), p.id, model); ok {
			return m, true
		}
	}
	return Model{}, false
}

func local(model string) Model {
	return Model{ID: model, Price: toolcrib.Price{Known: true}, Local: true}
}

// hosted reports whether a model of Ollama runs in Ollama's cloud, at an unknown price: by
// the address, or by the suffix of such models.
func hosted(baseURL, model string) bool {
	host, _ := hostAndPath(baseURL)
	return host == "ollama.com" || strings.HasSuffix(host, ".ollama.com") ||
		strings.HasSuffix(model, "-cloud") || strings.HasSuffix(model, ":cloud")
}

// Merge returns a catalog with the models of over added to those of c. A model of over
// replaces the one of the same vendor and ID.
func (c *Catalog) Merge(over *Catalog) *Catalog {
	merged := &Catalog{info: over.info, providers: slices.Clone(c.providers)}
	for _, p := range over.providers {
		old := merged.named(p.id)
		if old == nil {
			merged.providers = append(merged.providers, p)
			continue
		}
		models := slices.Clone(p.models())
		for _, m := range old.models() {
			if _, replaced := exact(p.models(), m.ID); !replaced {
				models = append(models, m)
			}
		}
		*old = fixed(p.id, cmp.Or(p.baseURL, old.baseURL), models)
	}
	return merged
}

// Write writes the catalog in the form that [Parse] reads, one line for each vendor.
func (c *Catalog) Write(w io.Writer) error {
	head, err := json.Marshal(file{Format: format, Info: c.info, Providers: []fileProvider{}})
	text := bytes.TrimSuffix(head, []byte("]}"))
	for i, p := range c.providers {
		if i > 0 {
			text = append(text, ',')
		}
		list, failed := json.Marshal(fileProvider{p.id, p.baseURL, p.models()})
		text, err = append(append(text, '\n'), list...), cmp.Or(err, failed)
	}
	if err == nil {
		_, err = w.Write(append(text, "\n]}\n"...))
	}
	if err != nil {
		return fmt.Errorf("catalog: %w", err)
	}
	return nil
}

func fixed(id, baseURL string, models []Model) provider {
	return provider{id: id, baseURL: baseURL, models: func() []Model { return models }}
}

//go:embed models.json
var embeddedFile []byte

var embedded = sync.OnceValue(loadEmbedded)

// Embedded returns the catalog that is part of this version of toolcrib. The list of a
// vendor is decoded on first use.
func Embedded() *Catalog { return embedded() }

// loadEmbedded reads the lines of the file as written by [Catalog.Write], and only
// the vendor of each: that takes a tenth of the time of decoding everything
// at the start of the program. It returns no error, because a test reads the whole file
// with [Parse].
func loadEmbedded() *Catalog {
	head, rest, _ := bytes.Cut(embeddedFile, []byte("[\n"))
	var f file
	if err := json.Unmarshal(append(bytes.Clone(head), "null}"...), &f); err != nil {
		return new(Catalog)
	}
	c := &Catalog{info: f.Info}
	for line := range bytes.Lines(rest) {
		text := bytes.TrimRight(line, ",\n")
		vendor, _, ok := bytes.Cut(text, []byte(`,"models":`))
		var p fileProvider
		if !ok || json.Unmarshal(append(bytes.Clone(vendor), '}'), &p) != nil {
			continue // the end
		}
		c.providers = append(c.providers, provider{id: p.ID, baseURL: p.BaseURL, models: sync.OnceValue(func() []Model {
			if json.Unmarshal(text, &p) != nil {
				return nil
			}
			return p.list()
		})})
	}
	return c
}

// vendors are the types of providers that have an address without a base_url, for which
// the list of that name applies.
var vendors = [...]string{"openai", "anthropic", "gemini"}

// vendorHosts are the addresses of vendors whose lists have none. A host that
// begins with a dot matches its subdomains.
var vendorHosts = [...]struct{ host, vendor string }{
	{"api.openai.com", "openai"},
	{".api.openai.com", "openai"}, // regions, such as eu.api.openai.com
	{"api.anthropic.com", "anthropic"},
	{"generativelanguage.googleapis.com", "gemini"},
	{".openai.azure.com", "azure"},
	{".cognitiveservices.azure.com", "azure"},
	{".services.ai.azure.com", "azure"},
}

// at returns the list that applies to an address ("" for the vendor's own), or nil.
func (c *Catalog) at(baseURL, vendor string) *provider {
	if baseURL == "" {
		return c.named(vendor)
	}
	host, path := hostAndPath(baseURL)
	if host == "" {
		return nil
	}
	for _, v := range vendorHosts {
		if host == v.host || v.host[0] == '.' && strings.HasSuffix(host, v.host) {
			return c.named(v.vendor)
		}
	}
	var found *provider
	longest := -1
	for i := range c.providers {
		p := &c.providers[i]
		if !strings.Contains(strings.ToLower(p.baseURL), host) { // quick check, because every run calls this
			continue
		}
		ownHost, ownPath := hostAndPath(p.baseURL)
		if ownHost != host || !samePath(path, ownPath) {
			continue
		}
		if len(ownPath) > longest {
			found, longest = p, len(ownPath)
		}
	}
	return found
}

func (c *Catalog) named(id string) *provider {
	for i := range c.providers {
		if c.providers[i].id == id {
			return &c.providers[i]
		}
	}
	return nil
}

// hostAndPath returns the host of an HTTP address, without its port and in lower case, and its
// path, without a slash at its end. If the address is of another kind, host is "".
func hostAndPath(address string) (host, path string) {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" {
		return "", ""
	}
	return strings.ToLower(strings.TrimSuffix(u.Hostname(), ".")), strings.TrimRight(u.Path, "/")
}

// samePath reports whether one path is a prefix of the other: a base_url may leave out
// the end of the vendor's own (/v1), or extend it.
func samePath(a, b string) bool {
	return a == b || strings.HasPrefix(a, b+"/") || strings.HasPrefix(b, a+"/")
}

var (
	dated   = lazyregexp.New(`-(20[0-9]{2})-?(0[1-9]|1[0-2])-?(0[1-9]|[12][0-9]|3[01])$`)
	version = lazyregexp.New(`-0[0-9]{2}$`) // version of Gemini: gemini-2.5-flash-001
)

// ownPrice is a version whose price differs from that of its name without the date.
const ownPrice = "gpt-4o-2024-05-13"

func find(models []Model, vendor, model string) (Model, bool) {
	if m, ok := exact(models, model); ok {
		return m, true
	}
	if strings.TrimPrefix(model, "openai/") == ownPrice {
		return Model{}, false
	}
	if vendor == "gemini" {
		if m, ok := exact(models, version.ReplaceAllString(strings.TrimPrefix(model, "models/"), "")); ok {
			return m, true
		}
		model = strings.TrimPrefix(model, "models/")
	}
	if short := dated.ReplaceAllString(model, ""); short != model {
		return exact(models, short)
	}
	short := strings.TrimSuffix(model, "-latest")
	if m, ok := exact(models, short); ok {
		return m, true
	}
	return newest(models, short)
}

func exact(models []Model, id string) (Model, bool) {
	for i := range models {
		if models[i].ID == id {
			return models[i], true
		}
	}
	return Model{}, false
}

// newest returns the newest of the dated versions of a model.
func newest(models []Model, name string) (found Model, ok bool) {
	last := ""
	for i := range models {
		date, named := strings.CutPrefix(models[i].ID, name)
		if !named {
			continue
		}
		day := strings.ReplaceAll(date, "-", "")
		if len(day) == len("20060102") && day > last && dated.MatchString(date) {
			found, ok, last = models[i], true, day
		}
	}
	return found, ok
}
