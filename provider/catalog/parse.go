package catalog

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/toolcrib/toolcrib"
)

// Bounds of a catalog's file.
const (
	MaxBytes  = 16 << 20
	maxText   = 256     // bytes of an ID or an address
	maxPrice  = 100_000 // US dollars per 1M tokens
	maxTokens = 1 << 30
)

const format = 2

type file struct {
	Format int `json:"format"`
	Info
	Providers []fileProvider `json:"providers"`
}

type fileProvider struct {
	ID      string  `json:"id"`
	BaseURL string  `json:"base_url,omitempty"` // "" if it is the type's own, or unknown
	Models  []Model `json:"models"`             // without Provider
}

// Parse reads a catalog in the form that [Catalog.Write] writes, or catwalk's
// own, which is an array of its providers, or one of them. At most MaxBytes are
// read. All values are checked; an error names the position.
func Parse(r io.Reader) (*Catalog, error) {
	text, err := io.ReadAll(io.LimitReader(r, MaxBytes+1))
	if err != nil {
		return nil, fmt.Errorf("catalog: %w", err)
	}
	if len(text) > MaxBytes {
		return nil, fmt.Errorf("catalog: the file has more than %d bytes", MaxBytes)
	}
	c, err := parse(bytes.TrimSpace(text))
	if err == nil {
		err = c.check()
	}
	if err != nil {
		return nil, fmt.Errorf("catalog: %w", err)
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
		return nil, errors.New(`the file is neither a catalog ("format": 2) nor a list of catwalk`)
	case *head.Format != format:
		return nil, fmt.Errorf("the file has format %d, and this version of toolcrib reads %d", *head.Format, format)
	}
	return decode(text)
}

func decode(text []byte) (*Catalog, error) {
	var f file
	if err := json.Unmarshal(text, &f); err != nil {
		return nil, fmt.Errorf("the file cannot be read: %w", err)
	}
	c := &Catalog{info: f.Info}
	for i := range f.Providers {
		c.providers = append(c.providers, fixed(f.Providers[i].ID, f.Providers[i].BaseURL, f.Providers[i].list()))
	}
	return c, nil
}

// list returns the models with their provider set.
func (p *fileProvider) list() []Model {
	for i := range p.Models {
		p.Models[i].Provider = p.ID
	}
	return p.Models
}

func (c *Catalog) check() error {
	if len(c.providers) == 0 {
		return errors.New("there are no providers")
	}
	seen := make(map[string]bool)
	once := func(name string) bool {
		known := seen[name]
		seen[name] = true
		return !known
	}
	for _, p := range c.providers {
		host, _ := hostAndPath(p.baseURL)
		switch {
		case !goodText(p.id):
			return fmt.Errorf("a provider has the ID %.40q: it must have 1 to %d bytes, all printable", p.id, maxText)
		case !once(p.id):
			return fmt.Errorf("provider %q is listed twice", p.id)
		case p.baseURL != "" && (host == "" || len(p.baseURL) > maxText):
			return fmt.Errorf("provider %q: its address is not HTTP", p.id)
		}
		for i, m := range p.models() {
			what := m.problem()
			if what == "" && !once(p.id+"\x00"+m.ID) {
				what = "it is listed twice"
			}
			if what != "" {
				return fmt.Errorf("provider %q, model %d (%.80q): %s", p.id, i+1, m.ID, what)
			}
		}
	}
	return nil
}

// problem returns the problem of an invalid model, or "".
func (m *Model) problem() string {
	switch {
	case !goodText(m.ID):
		return fmt.Sprintf("its ID must have 1 to %d bytes, all printable", maxText)
	case m.Context < 0 || m.Context > maxTokens || m.MaxOutput < 0 || m.MaxOutput > maxTokens:
		return fmt.Sprintf("its numbers of tokens must be 0 to %d", maxTokens)
	}
	for _, usd := range []float64{m.Price.Input, m.Price.CachedInput, m.Price.CacheWrite, m.Price.Output} {
		if math.IsNaN(usd) || usd < 0 || usd > maxPrice {
			return fmt.Sprintf("its prices must be 0 to %d US dollars per 1M tokens", maxPrice)
		}
	}
	return ""
}

func goodText(s string) bool {
	return s != "" && len(s) <= maxText && utf8.ValidString(s) &&
		!strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) })
}

// catwalkProvider and catwalkModel are the fields of catwalk's JSON that are used.
type catwalkProvider struct {
	ID          string         `json:"id"`
	Type        string         `json:"type"`
	APIEndpoint string         `json:"api_endpoint"` // an address, or $NAME of the environment
	Models      []catwalkModel `json:"models"`
}

type catwalkModel struct {
	ID          string  `json:"id"`
	In          float64 `json:"cost_per_1m_in"`
	Out         float64 `json:"cost_per_1m_out"`
	InCached    float64 `json:"cost_per_1m_in_cached"`
	OutCached   float64 `json:"cost_per_1m_out_cached"`
	Context     float64 `json:"context_window"`
	MaxTokens   float64 `json:"default_max_tokens"`
	Attachments bool    `json:"supports_attachments"`
}

// withoutPrices reports whether the list of a vendor does not contain the price of a request:
// subscriptions at a flat rate, and APIs that need a signature of their own.
func withoutPrices(p catwalkProvider) bool {
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
	today := time.Now().UTC().Format(time.DateOnly) // the list has no date
	c := &Catalog{info: Info{Source: "charm.land/catwalk", Date: today, License: "MIT"}}
	for _, p := range list {
		if withoutPrices(p) {
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
		Provider: vendor, ID: m.ID, Context: int(m.Context), MaxOutput: int(m.MaxTokens), Attachments: m.Attachments,
	}
	if m.In != 0 || m.Out != 0 || strings.HasSuffix(m.ID, ":free") || strings.HasSuffix(m.ID, "-free") {
		read, write := m.cached()
		out.Price = toolcrib.Price{
			Input: rounded(m.In), CachedInput: rounded(read), CacheWrite: rounded(write), Output: rounded(m.Out), Known: true,
		}
	}
	return out
}

// cached returns the prices of tokens that are read from a cache and written to
// it; if write is 0, it is that of input. The lists disagree which of their two fields is
// which, but reading is never dearer than plain input, and writing dearer by up to
// double. If there is no price of reading, it is that of input, which is rather too high
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

// rounded rounds off the binary noise of a price.
func rounded(usd float64) float64 { return math.Round(usd*1e6) / 1e6 }
