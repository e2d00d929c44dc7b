// Package ollama adapts Ollama's own API, POST /api/chat, to [toolcrib.Model].
//
// The arguments of calls are objects on the wire, in both directions, and the
// result of a call is known by its place and the name of its tool: there is no
// tool_call_id (N14). Replies stream as NDJSON. Wire format: Ollama's
// documentation, "API" and "Errors".
//
// A prompt that outgrows the context is refused and not cut: by default Ollama
// drops the oldest messages silently, so each request says truncate: false
// (servers before that field know no other way than to cut). How large the
// context is, the server decides (OLLAMA_CONTEXT_LENGTH, often 4096 tokens) unless
// extra.num_ctx says so.
package ollama

import (
	"context"
	"iter"
	"net/http"
	"strings"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/provider/wire"
)

// DefaultBaseURL is where Ollama listens if nobody says otherwise.
const DefaultBaseURL = "http://localhost:11434"

// Options say where Ollama is. The zero value of every field is good.
type Options struct {
	wire.Options
}

// Model is a [toolcrib.Model] over Ollama's chat API. It is safe for use by many
// runs at once and keeps no state of a run.
type Model struct {
	opts    Options
	client  *wire.Client
	schemas wire.Schemas
	known   shelf
}

var _ interface {
	toolcrib.Model
	toolcrib.Conversational
} = (*Model)(nil)

// New makes a model; it connects to nothing yet. Errors name the key of the
// configuration that is wrong. A base URL may end in /v1 or /api, as those of
// other clients of Ollama do.
func New(o Options) (*Model, error) {
	if o.Name == "" {
		o.Name = "ollama"
	}
	o.BaseURL = root(o.BaseURL)
	client, err := wire.NewClient(o.Options, DefaultBaseURL, func(h http.Header, key string) {
		h.Set("Accept", "application/x-ndjson, application/json")
		if key != "" {
			h.Set("Authorization", "Bearer "+key)
		}
	})
	if err != nil {
		return nil, err
	}
	m := &Model{opts: o, client: client}
	m.schemas.Fit, m.schemas.Check = wire.GrammarSchema, decodable
	return m, nil
}

func root(base string) string {
	base = strings.TrimRight(strings.TrimSpace(base), "/")
	for _, end := range [...]string{"/v1", "/api"} {
		if rest, ok := strings.CutSuffix(base, end); ok {
			return rest
		}
	}
	return base
}

// Stream implements [toolcrib.Model].
func (m *Model) Stream(ctx context.Context, req *toolcrib.Request) iter.Seq2[toolcrib.Delta, error] {
	return (&conversation{model: m}).Stream(ctx, req)
}

// Conversation implements [toolcrib.Conversational].
func (m *Model) Conversation() toolcrib.Model { return &conversation{model: m} }

// Close closes idle connections. The model can still be used.
func (m *Model) Close() error {
	m.client.CloseIdle()
	return nil
}
