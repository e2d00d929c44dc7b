package catalog

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/toolcrib/toolcrib"
)

// The bounds of a catalog's file.
const (
	MaxBytes     = 16 << 20
	MaxProviders = 500
	MaxModels    = 50_000
	maxText      = 256     // bytes of an ID or a name
	maxPrice     = 100_000 // US dollars per 1M tokens
	maxTokens    = 1 << 30
)

// formatV1 marks a file as one of this package.
const formatV1 = 1

// file is a catalog as it is stored.
type file struct {
	Format    int            `json:"format"`
	Source    string         `json:"source"`
	Version   string         `json:"version,omitempty"`
	Date      string         `json:"date,omitempty"`
	License   string         `json:"license,omitempty"`
	Providers []fileProvider `json:"providers"`
}

type fileProvider struct {
	ID      string          `json:"id"`
	BaseURL string          `json:"base_url,omitempty"` // "" = the type's own, or unknown
	Models  json.RawMessage `json:"models"`             // []entry
}

// entry is a model as it is stored. Prices are left out where they are unknown.
type entry struct {
	ID          string   `json:"id"`
	Name        string   `json:"name,omitempty"`
	Input       *float64 `json:"input,omitempty"`
	CachedInput float64  `json:"cached_input,omitempty"`
	CacheWrite  float64  `json:"cache_write,omitempty"` // 0 = as input
	Output      float64  `json:"output,omitempty"`
	Context     int      `json:"context,omitempty"`
	MaxOutput   int      `json:"max_output,omitempty"`
	Reasoning   bool     `json:"reasoning,omitempty"`
	Attachments bool     `json:"attachments,omitempty"`
}

func entryOf(m Model) entry {
	e := entry{
		ID: m.ID, Name: m.Name, Context: m.Context, MaxOutput: m.MaxOutput, Reasoning: m.Reasoning,
		Attachments: m.Attachments,
	}
	if m.Price.Known {
		e.Input, e.CachedInput, e.CacheWrite, e.Output = &m.Price.Input, m.Price.CachedInput, m.Price.CacheWrite,
			m.Price.Output
	}
	return e
}

func (e entry) model(provider string) Model {
	m := Model{
		Provider: provider, ID: e.ID, Name: e.Name, Context: e.Context, MaxOutput: e.MaxOutput, Reasoning: e.Reasoning,
		Attachments: e.Attachments,
	}
	if e.Input != nil {
		m.Price = toolcrib.Price{
			Input: *e.Input, CachedInput: e.CachedInput, CacheWrite: e.CacheWrite, Output: e.Output, Known: true,
		}
	}
	return m
}

// Parse reads a catalog: the form that [Catalog.MarshalJSON] gives, or catwalk's
// own, which is an array of its providers, or one of them. At most MaxBytes are
// read. Everything in it is checked; an error names the place.
func Parse(r io.Reader) (*Catalog, error) {
	text, err := io.ReadAll(io.LimitReader(r, MaxBytes+1))
	if err != nil {
		return nil, fmt.Errorf("catalog: %w", err)
	}
	if len(text) > MaxBytes {
		return nil, fmt.Errorf("catalog: the file has more than %d bytes", MaxBytes)
	}
	c, err := parse(bytes.TrimSpace(text))
	if err != nil {
		return nil, fmt.Errorf("catalog: %w", err)
	}
	if err := c.check(); err != nil {
		return nil, err
	}
	return c, nil
}

func parse(text []byte) (*Catalog, error) {
	if len(text) == 0 {
		return nil, errors.New("the file is empty")
	}
	if text[0] == '[' {
		return parseCatwalk(text)
	}
	var head struct {
		Format *int            `json:"format"`
		ID     json.RawMessage `json:"id"`
	}
	switch err := json.Unmarshal(text, &head); {
	case err != nil:
		return nil, fmt.Errorf("the file cannot be read: %w", err)
	case head.Format == nil && head.ID != nil:
		return parseCatwalk(append(append([]byte{'['}, text...), ']'))
	case head.Format == nil:
		return nil, errors.New(`the file is neither a catalog ("format": 1) nor a list of catwalk`)
	case *head.Format != formatV1:
		return nil, fmt.Errorf("the file has format %d, this version knows %d: use a later toolcrib", *head.Format, formatV1)
	}
	return decode(text)
}

// decode reads a file of this package.
func decode(text []byte) (*Catalog, error) {
	var f file
	if err := json.Unmarshal(text, &f); err != nil {
		return nil, fmt.Errorf("the file cannot be read: %w", err)
	}
	c := &Catalog{info: f.info()}
	for _, p := range f.Providers {
		models, err := p.decode()
		if err != nil {
			return nil, err
		}
		c.providers = append(c.providers, fixed(p.ID, p.BaseURL, models))
	}
	return c, nil
}

func (f *file) info() Info {
	return Info{Source: f.Source, Version: f.Version, Date: f.Date, License: f.License}
}

func (p *fileProvider) decode() ([]Model, error) {
	var list []entry
	if err := json.Unmarshal(p.Models, &list); err != nil {
		return nil, fmt.Errorf("provider %.40q: %w", p.ID, err)
	}
	models := make([]Model, len(list))
	for i, e := range list {
		models[i] = e.model(p.ID)
	}
	return models, nil
}

// check reports what is wrong with a catalog; nil = nothing.
func (c *Catalog) check() error {
	if len(c.providers) == 0 || len(c.providers) > MaxProviders {
		return fmt.Errorf("catalog: %d providers; there must be 1 to %d", len(c.providers), MaxProviders)
	}
	for _, s := range []string{c.info.Source, c.info.Version, c.info.Date, c.info.License} {
		if s != "" && !goodText(s) {
			return errors.New("catalog: its description has a text that is too long or not printable")
		}
	}
	all, seen := 0, make(map[string]bool)
	for _, p := range c.providers {
		host, _ := place(p.baseURL)
		switch {
		case !goodText(p.id):
			return fmt.Errorf("catalog: a provider has the ID %.40q: it must have 1 to %d bytes, all printable", p.id, maxText)
		case seen[p.id]:
			return fmt.Errorf("catalog: provider %q is listed twice", p.id)
		case p.baseURL != "" && (host == "" || len(p.baseURL) > maxText):
			return fmt.Errorf("catalog: provider %q: its address is not HTTP", p.id)
		}
		seen[p.id] = true
		if all += len(p.models()); all > MaxModels {
			return fmt.Errorf("catalog: more than %d models", MaxModels)
		}
		if err := checkModels(p); err != nil {
			return err
		}
	}
	return nil
}

func checkModels(p provider) error {
	seen := make(map[string]bool)
	for i, m := range p.models() {
		what := m.problem()
		if seen[m.ID] {
			what = "it is listed twice"
		}
		if what != "" {
			return fmt.Errorf("catalog: provider %q, model %d (%.80q): %s", p.id, i+1, m.ID, what)
		}
		seen[m.ID] = true
	}
	return nil
}

// problem reports what is wrong with a model; "" = nothing.
func (m *Model) problem() string {
	switch {
	case !goodText(m.ID):
		return fmt.Sprintf("its ID must have 1 to %d bytes, all printable", maxText)
	case m.Name != "" && !goodText(m.Name):
		return fmt.Sprintf("its name may have %d bytes, all printable", maxText)
	case m.Context < 0 || m.Context > maxTokens || m.MaxOutput < 0 || m.MaxOutput > maxTokens:
		return fmt.Sprintf("its numbers of tokens must be 0 to %d", maxTokens)
	}
	for _, usd := range []float64{m.Price.Input, m.Price.CachedInput, m.Price.CacheWrite, m.Price.Output} {
		if math.IsNaN(usd) || usd < 0 || usd > maxPrice {
			return fmt.Sprintf("its prices must be 0 to %d US dollars per 1M tokens", maxPrice)
		}
	}
	if m.Price.CachedInput > m.Price.Input {
		return "its cached input is dearer than its input"
	}
	return ""
}

func goodText(s string) bool {
	if s == "" || len(s) > maxText || !utf8.ValidString(s) {
		return false
	}
	for _, r := range s {
		if !unicode.IsPrint(r) {
			return false
		}
	}
	return true
}

// catwalkProvider and catwalkModel are what is read of catwalk's JSON.
type catwalkProvider struct {
	ID          string         `json:"id"`
	Type        string         `json:"type"`
	APIEndpoint string         `json:"api_endpoint"` // an address, or $NAME of the environment
	Models      []catwalkModel `json:"models"`
}

type catwalkModel struct {
	ID          string  `json:"id"`
	Name        string  `json:"name"`
	In          float64 `json:"cost_per_1m_in"`
	Out         float64 `json:"cost_per_1m_out"`
	InCached    float64 `json:"cost_per_1m_in_cached"`
	OutCached   float64 `json:"cost_per_1m_out_cached"`
	Context     float64 `json:"context_window"`
	MaxTokens   float64 `json:"default_max_tokens"`
	CanReason   bool    `json:"can_reason"`
	Attachments bool    `json:"supports_attachments"`
}

// passedOver are vendors whose list does not say what a request costs here:
// subscriptions at a flat rate, and APIs that need a signature of their own.
func passedOver(p catwalkProvider) bool {
	switch p.ID {
	case "copilot", "kimi-coding", "opencode-go", "zai", "zhipu-coding":
		return true
	}
	return p.Type == "bedrock" || p.Type == "google-vertex"
}

func parseCatwalk(text []byte) (*Catalog, error) {
	var list []catwalkProvider
	if err := json.Unmarshal(text, &list); err != nil {
		return nil, fmt.Errorf("the list of catwalk cannot be read: %w", err)
	}
	c := &Catalog{info: Info{Source: "charm.land/catwalk", License: "MIT"}}
	for _, p := range list {
		if passedOver(p) {
			continue
		}
		models := make([]Model, len(p.Models))
		for i, m := range p.Models {
			models[i] = m.model(p.ID)
		}
		if strings.HasPrefix(p.APIEndpoint, "$") {
			p.APIEndpoint = ""
		}
		c.providers = append(c.providers, fixed(p.ID, p.APIEndpoint, models))
	}
	return c, nil
}

func (m *catwalkModel) model(vendor string) Model {
	out := Model{
		Provider: vendor, ID: m.ID, Name: m.Name, Context: int(m.Context), MaxOutput: int(m.MaxTokens),
		Reasoning: m.CanReason, Attachments: m.Attachments,
	}
	if m.In != 0 || m.Out != 0 || strings.HasSuffix(m.ID, ":free") || strings.HasSuffix(m.ID, "-free") {
		read, write := m.cached()
		out.Price = toolcrib.Price{
			Input: cents(m.In), CachedInput: cents(read), CacheWrite: cents(write), Output: cents(m.Out), Known: true,
		}
	}
	return out
}

// cached returns the prices of tokens that are read from a cache and written to
// one; write 0 = as input. The lists disagree which of their two fields is which,
// but reading is never dearer than plain input, and writing dearer by up to
// double. Without a price of reading, it is that of input: too high rather
// than too low.
func (m *catwalkModel) cached() (read, write float64) {
	read = m.In
	for _, usd := range []float64{m.InCached, m.OutCached} {
		if usd > 0 && usd <= read {
			read = usd
		}
		if usd > m.In && usd <= 2*m.In {
			write = usd
		}
	}
	return read, write
}

// cents takes the noise off a price that was computed in binary.
func cents(usd float64) float64 { return math.Round(usd*1e6) / 1e6 }
