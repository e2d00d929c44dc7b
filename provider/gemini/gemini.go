// Package gemini adapts Google's Generative Language API, models.generateContent
// and models.streamGenerateContent of v1beta, to [toolcrib.Model].
//
// It is a thin layer over net/http. It streams, keeps the encoded history of a
// conversation, brings the schemas of tools into what the API takes, and sends
// the thought signatures of earlier turns back byte for byte, to the model that
// made them. Wire format: Gemini API reference, "Generating content", "Function
// calling", "Thinking" and "Thought signatures".
package gemini

import (
	"context"
	"iter"
	"net/http"
	"regexp"
	"strings"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/provider/wire"
)

// DefaultBaseURL is Google's own API.
const DefaultBaseURL = "https://generativelanguage.googleapis.com"

// Version is the version of the API that this package speaks, unless the base
// URL names one.
const Version = "v1beta"

// Options say where the API is. The zero value is good.
type Options struct {
	wire.Options
}

// Model is a [toolcrib.Model] over generateContent. It is safe for use by many
// runs at once and keeps no state of a run.
type Model struct {
	opts   Options
	client *wire.Client
	prefix string // v1beta/, unless the base URL names a version

	schemas wire.Schemas
}

var _ interface {
	toolcrib.Model
	toolcrib.Conversational
} = (*Model)(nil)

var versioned = regexp.MustCompile(`/v[0-9]+((alpha|beta)[0-9]*)?$`)

// New makes a model; it connects to nothing yet. Errors name the key of the
// configuration that is wrong.
func New(o Options) (*Model, error) {
	if o.Name == "" {
		o.Name = "gemini"
	}
	client, err := wire.NewClient(o.Options, DefaultBaseURL, func(h http.Header, key string) {
		if key != "" {
			h.Set("X-Goog-Api-Key", key)
		}
	})
	if err != nil {
		return nil, err
	}
	m := &Model{opts: o, client: client, prefix: Version + "/", schemas: wire.Schemas{Make: parameters}}
	base, _, _ := strings.Cut(client.Options().BaseURL, "?")
	if versioned.MatchString(strings.TrimRight(strings.TrimSpace(base), "/")) {
		m.prefix = ""
	}
	return m, nil
}

// Stream implements [toolcrib.Model].
func (m *Model) Stream(ctx context.Context, req *toolcrib.Request) iter.Seq2[toolcrib.Delta, error] {
	return (&conversation{model: m}).Stream(ctx, req)
}

// Conversation implements [toolcrib.Conversational].
func (m *Model) Conversation() toolcrib.Model { return &conversation{model: m} }

// ListModels asks for the names of the models that can generate content, at most
// 1000 of them, without "models/" before them.
func (m *Model) ListModels(ctx context.Context) ([]string, error) {
	names, err := m.client.ListModels(ctx, m.prefix+"models?pageSize=1000")
	if err != nil {
		return nil, refine(err, m.opts.KeyAdvice)
	}
	return names, nil
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

// modelName is what may be in a path: no query, no escape, no step upwards.
var modelName = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.:@+-]*(/[A-Za-z0-9_][A-Za-z0-9_.:@+-]*)*$`)

// path is where a model answers; ok is false for a name that no model has.
func (m *Model) path(model string, stream bool) (path string, ok bool) {
	if !modelName.MatchString(model) {
		return "", false
	}
	if !strings.HasPrefix(model, "models/") && !strings.HasPrefix(model, "tunedModels/") {
		model = "models/" + model
	}
	if stream {
		return m.prefix + model + ":streamGenerateContent?alt=sse", true
	}
	return m.prefix + model + ":generateContent", true
}
