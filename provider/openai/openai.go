// Package openai adapts the Chat Completions API of OpenAI, and of the many
// servers that are compatible with it, and OpenAI's Responses API to
// [toolcrib.Model].
//
// It is a thin layer over net/http. It streams, keeps the encoded history of a
// conversation, and sends requests whose bytes only grow at their end within a
// run, which pleases prompt caches. Wire format: OpenAI API reference, "Chat
// Completions", "Responses" and "Streaming".
//
// The Responses API is used without state on the server (store: false): the
// reasoning of earlier turns goes back encrypted, as it came. Images and PDFs of
// messages are sent where the API takes them. Results of tools are text in Chat
// Completions, so their files follow in a message of the user that says whose
// they are; the Responses API takes them in the result.
package openai

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/provider/wire"
)

// DefaultBaseURL is OpenAI's own API.
const DefaultBaseURL = "https://api.openai.com/v1"

// The APIs that [Options.API] may name.
const (
	APIChat      = "chat"      // Chat Completions
	APIResponses = "responses" // Responses
)

// Options say where the API is and how it differs from OpenAI's. The zero value
// of every field is good.
type Options struct {
	wire.Options

	// API names the API: APIChat or APIResponses. "" takes the Responses API on
	// OpenAI's own host and Azure's v1 (base_url ending in /openai/v1) for the
	// models that need it, by name, else Chat Completions. Azure's models must be
	// deployed under their own names for that.
	API string

	// MaxTokens has the bound of the output named max_tokens, whatever the model is called.
	MaxTokens bool
}

// Model is a [toolcrib.Model] over Chat Completions or Responses. It is safe for use by many
// runs at once and keeps no state of a run.
type Model struct {
	wire.Model
	client *wire.Client
	rules  rules

	chatTools, responsesTools wire.ToolForm
}

var _ toolcrib.Conversational = (*Model)(nil)

// New makes a model; it connects to nothing yet. Errors name the key of the
// configuration that is wrong.
func New(o Options) (*Model, error) {
	if o.Name == "" {
		o.Name = "openai"
	}
	switch o.API {
	case "", APIChat, APIResponses:
	default:
		return nil, fmt.Errorf("%s: api: %q is neither %s nor %s", o.Name, o.API, APIChat, APIResponses)
	}
	m := &Model{}
	client, err := wire.NewClient(o.Options, DefaultBaseURL, m.authorize)
	if err != nil {
		return nil, err
	}
	m.client = client
	path := ""
	if u, err := url.Parse(client.Options().BaseURL); err == nil {
		path = u.Path
	}
	m.rules = rulesOf(client.Host(), path, o)
	m.Model = wire.NewModel(client, "models", func() toolcrib.Model {
		return &conversation{model: m, history: client.History(m.rules.files)}
	}, nil)
	m.chatTools = wire.ToolForm{
		Open: `{"type":"function","function":{"name":`, Parameters: `,"parameters":`, Close: `}}`, Separator: `,`,
		Schemas: &wire.Schemas{},
	}
	if m.rules.vendor {
		m.chatTools.Max = maxTools
		m.chatTools.Description = func(spec *toolcrib.Spec) string { return wire.Clip(spec.Description, maxDescription) }
	}
	m.responsesTools = m.chatTools // that API would make a tool strict by itself
	m.responsesTools.Open, m.responsesTools.Close = `{"type":"function","strict":false,"name":`, `}`
	return m, nil
}

// authorize puts the key where the API wants it: Azure has a header of its own,
// and takes only tokens of Entra (JWTs) as a bearer.
func (m *Model) authorize(h http.Header, key string) {
	if m.rules.azure && key != "" && !strings.HasPrefix(key, "eyJ") {
		h.Set("Api-Key", key)
		return
	}
	wire.Bearer(h, key)
}
