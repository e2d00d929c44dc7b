package catalog

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"

	"github.com/toolcrib/toolcrib"
)

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

// passedOver are vendors whose list says nothing of what a request costs here:
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
		models := make([]Model, 0, len(p.Models))
		for i, m := range p.Models {
			if what := m.problem(); what != "" {
				return nil, fmt.Errorf("provider %q, model %d (%.80q): %s", p.ID, i+1, m.ID, what)
			}
			models = append(models, m.model(p.ID))
		}
		address := p.APIEndpoint
		if strings.HasPrefix(address, "$") {
			address = ""
		}
		c.providers = append(c.providers, fixed(p.ID, address, models))
	}
	return c, nil
}

// problem reports what would be lost on the way to a [Model]; "" = nothing.
func (m *catwalkModel) problem() string {
	for _, usd := range []float64{m.In, m.Out, m.InCached, m.OutCached} {
		if math.IsNaN(usd) || usd < 0 || usd > maxPrice {
			return fmt.Sprintf("its prices must be 0 to %d US dollars per 1M tokens", maxPrice)
		}
	}
	for _, tokens := range []float64{m.Context, m.MaxTokens} {
		if tokens < 0 || tokens > maxTokens {
			return fmt.Sprintf("its numbers of tokens must be 0 to %d", maxTokens)
		}
	}
	return ""
}

func (m *catwalkModel) model(vendor string) Model {
	out := Model{
		Provider: vendor, ID: m.ID, Name: m.Name, Context: int(m.Context), MaxOutput: int(m.MaxTokens),
		Reasoning: m.CanReason, Attachments: m.Attachments,
	}
	if m.In > 0 || m.Out > 0 || strings.HasSuffix(m.ID, ":free") || strings.HasSuffix(m.ID, "-free") {
		read, write := m.cached()
		out.Price = toolcrib.Price{
			Input: cents(m.In), CachedInput: cents(read), CacheWrite: cents(write),
			Output: cents(m.Out), Known: true,
		}
	}
	return out
}

// cached tells the prices of tokens that are read from a cache and written to
// one; write 0 = as input. The lists disagree which of their two fields is which,
// but reading is never dearer than plain input, and writing dearer by up to
// double. Where no price of reading stands, it is that of input: too high rather
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
