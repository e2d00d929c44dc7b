// Package catalog knows models of public APIs: what they cost, how much context
// they have, what they can do. The data are a trimmed snapshot of charm's catwalk
// (see NOTICE and [Catalog.Info]); a newer file can be read with [Parse] and laid over
// it with [Catalog.Merge]. `jq -s . internal/providers/configs/*.json | toolcrib models
// refresh -` in catwalk's module makes a newer snapshot of it in the data folder; its
// first line then gets the version and date of the module.
//
// A model that is not in the data stays unknown: a price is never guessed from
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

// Model is what is known of a model.
type Model struct {
	Provider string `json:"-"` // the vendor whose list it is in; "" = local
	// as that list has it, which may be longer than what was asked for
	ID          string         `json:"id"`
	Price       toolcrib.Price `json:"price"`                 // Known is false where the list has no price
	Context     int            `json:"context,omitempty"`     // tokens; 0 = unknown
	MaxOutput   int            `json:"max_output,omitempty"`  // tokens of a reply, as the vendor or catwalk suggests
	Attachments bool           `json:"attachments,omitempty"` // it takes images
	// Local says that the model runs on machines of the user: it costs nothing.
	Local bool `json:"local,omitempty"`
}

// Info reports where the data come from.
type Info struct {
	Source  string `json:"source"`            // a Go module, or what Parse was told
	Version string `json:"version,omitempty"` // of the source
	Date    string `json:"date,omitempty"`    // of that version, YYYY-MM-DD
	License string `json:"license,omitempty"` // SPDX
	Models  int    `json:"models,omitempty"`
}

// Catalog is a set of lists, one a vendor. It does not change and is safe for
// use by many goroutines.
type Catalog struct {
	info      Info
	providers []provider
}

// provider is the list of one vendor. What the embedded file says of its models is
// decoded when it is first asked for.
type provider struct {
	id, baseURL string
	models      func() []Model
}

// Info reports where the data come from. After [Catalog.Merge] it is that of the
// catalog which was laid over.
func (c *Catalog) Info() Info {
	info := c.info
	info.Models = 0
	for _, p := range c.providers {
		info.Models += len(p.models())
	}
	return info
}

// List is the list that counts for a configured provider, as [Catalog.Lookup] finds it;
// none where no list does.
func (c *Catalog) List(providerType, baseURL string) []Model {
	if !slices.Contains(vendors[:], providerType) {
		return nil
	}
	if p := c.at(baseURL, providerType); p != nil {
		return p.models()
	}
	return nil
}

// Lookup returns what is known of a model of a configured provider. providerType
// is one of contract §4; baseURL is that of the configuration, "" = the type's own.
// For types that speak to any compatible server the address decides whose list
// counts. A model that no list of that address has keeps the price of its vendor, for a
// gateway bills no less. False means that nothing is known: the price is unknown then,
// not 0.
//
// The ID counts as it is first. Then, where the vendor's list has exactly that:
// without a date at its end (-2025-08-07, -20250807) or -latest; the newest of the
// dated versions of an ID without a date; for gemini without models/ before it.
// Any other difference is another model.
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

// hosted reports whether a model of Ollama runs on the machines of its makers, at a
// price that nobody here knows: by the address, or by the mark of such models.
func hosted(baseURL, model string) bool {
	host, _ := place(baseURL)
	return host == "ollama.com" || strings.HasSuffix(host, ".ollama.com") ||
		strings.HasSuffix(model, "-cloud") || strings.HasSuffix(model, ":cloud")
}

// Merge returns a catalog with over laid over c: a model of over replaces the one
// of the same vendor and ID, the others stay.
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

// Write gives the catalog in the form that [Parse] reads, one line a vendor.
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

// fixed is a list that was read.
func fixed(id, baseURL string, models []Model) provider {
	return provider{id: id, baseURL: baseURL, models: func() []Model { return models }}
}

//go:embed models.json
var embeddedFile []byte

var embedded = sync.OnceValue(loadEmbedded)

// Embedded is the catalog that this version of toolcrib came with. The list of a
// vendor is decoded when it is first asked for.
func Embedded() *Catalog { return embedded() }

// loadEmbedded reads the lines of the file as [Catalog.Write] makes them, and of
// each no more than the vendor: that takes a tenth of the time of reading it all,
// at the start of a program. It has no errors: a test reads the whole file as
// [Parse] does.
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

// vendors are the types of providers that have an address without a base_url. The list of
// that name counts there.
var vendors = [...]string{"openai", "anthropic", "gemini"}

// vendorHosts are the addresses of vendors whose lists name none. A host that
// begins with a dot means what is below it.
var vendorHosts = [...]struct{ host, vendor string }{
	{"api.openai.com", "openai"},
	{".api.openai.com", "openai"}, // regions, such as eu.api.openai.com
	{"api.anthropic.com", "anthropic"},
	{"generativelanguage.googleapis.com", "gemini"},
	{".openai.azure.com", "azure"},
	{".cognitiveservices.azure.com", "azure"},
	{".services.ai.azure.com", "azure"},
}

// at returns the list that counts at an address, "" = the vendor's own; nil = none does.
func (c *Catalog) at(baseURL, vendor string) *provider {
	if baseURL == "" {
		return c.named(vendor)
	}
	host, path := place(baseURL)
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
		if !strings.Contains(strings.ToLower(p.baseURL), host) { // most of them, and each run asks
			continue
		}
		ownHost, ownPath := place(p.baseURL)
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

// place is the host of an address, without its port and in small letters, and the
// path, without a slash at its end; "" = it is no address of HTTP.
func place(address string) (host, path string) {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" {
		return "", ""
	}
	return strings.ToLower(strings.TrimSuffix(u.Hostname(), ".")), strings.TrimRight(u.Path, "/")
}

// samePath reports whether one path leads to the other: a base_url may leave out
// the end of the vendor's own (/v1), or have more than it.
func samePath(a, b string) bool {
	return a == b || strings.HasPrefix(a, b+"/") || strings.HasPrefix(b, a+"/")
}

var (
	dated   = lazyregexp.New(`-(20[0-9]{2})-?(0[1-9]|1[0-2])-?(0[1-9]|[12][0-9]|3[01])$`)
	version = lazyregexp.New(`-0[0-9]{2}$`) // of Gemini: gemini-2.5-flash-001
)

// ownPrice is a version whose price is not that of its name without the date.
const ownPrice = "gpt-4o-2024-05-13"

// find finds a model in a list.
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
