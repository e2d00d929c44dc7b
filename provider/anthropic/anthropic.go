// Package anthropic adapts the Messages API of Anthropic, and of the servers that
// are compatible with it, to [toolcrib.Model].
//
// It is a thin layer over net/http. It streams, keeps the encoded history of a
// conversation, marks the stable prefix for the prompt cache, and sends the
// reasoning of earlier turns back byte for byte. Wire format: Anthropic API
// reference, "Messages" and "Streaming messages", version 2023-06-01.
package anthropic

import (
	"context"
	"iter"
	"net/http"
	"strings"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/provider/wire"
)

// DefaultBaseURL is Anthropic's own API.
const DefaultBaseURL = "https://api.anthropic.com"

// Version is the version of the API that this package speaks.
const Version = "2023-06-01"

// DefaultMaxTokens bounds the output where neither the request nor the options
// do; the API wants a bound in each request. Models that reason by themselves
// get twice as much, since their reasoning counts.
const DefaultMaxTokens = 8192

// Options say where the API is and how to use it. The zero value is good.
type Options struct {
	wire.Options

	// MaxTokens is the default bound of the output; 0 = DefaultMaxTokens.
	MaxTokens int
	// NoCache leaves out the marks for the prompt cache.
	NoCache bool
}

// Model is a [toolcrib.Model] over the Messages API. It is safe for use by many
// runs at once and keeps no state of a run.
type Model struct {
	opts   Options
	client *wire.Client
	prefix string // v1/, unless the base URL has it
	vendor bool   // Anthropic itself: what its models refuse is known

	schemas wire.Schemas
}

var _ interface {
	toolcrib.Model
	toolcrib.Conversational
} = (*Model)(nil)

// New makes a model; it connects to nothing yet. Errors name the key of the
// configuration that is wrong.
func New(o Options) (*Model, error) {
	if o.Name == "" {
		o.Name = "anthropic"
	}
	client, err := wire.NewClient(o.Options, DefaultBaseURL, func(h http.Header, key string) {
		h.Set("Anthropic-Version", Version)
		if key != "" {
			h.Set("X-Api-Key", key)
		}
	})
	if err != nil {
		return nil, err
	}
	m := &Model{opts: o, client: client, prefix: "v1/", schemas: wire.Schemas{Check: checkNames}}
	if strings.HasSuffix(strings.TrimRight(client.Options().BaseURL, "/"), "/v1") {
		m.prefix = ""
	}
	m.vendor = client.Host() == "api.anthropic.com"
	return m, nil
}

// Stream implements [toolcrib.Model].
func (m *Model) Stream(ctx context.Context, req *toolcrib.Request) iter.Seq2[toolcrib.Delta, error] {
	return (&conversation{model: m}).Stream(ctx, req)
}

// Conversation implements [toolcrib.Conversational].
func (m *Model) Conversation() toolcrib.Model { return &conversation{model: m} }

// ListModels asks for the names of the models that the key may use.
func (m *Model) ListModels(ctx context.Context) ([]string, error) {
	return m.client.ListModels(ctx, m.prefix+"models")
}

// Check asks the API for its models: it reports whether host and key are good
// without spending a token.
func (m *Model) Check(ctx context.Context) error {
	_, err := m.ListModels(ctx)
	return err
}

// Close closes idle connections. The model can still be used.
func (m *Model) Close() error {
	m.client.CloseIdle()
	return nil
}
