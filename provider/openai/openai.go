// Package openai adapts the Chat Completions API of OpenAI, and of the many
// servers that are compatible with it, and OpenAI's Responses API to
// [toolcrib.Model].
//
// It is a thin layer over net/http. It streams, keeps the encoded history of a
// conversation, and sends requests whose bytes only grow at their end within a
// run, which suits prompt caches. Wire format: OpenAI API reference, "Chat
// Completions", "Responses" and "Streaming".
//
// The Responses API is used without state on the server (store: false): the
// reasoning of earlier turns is sent back encrypted. Images and PDFs of
// messages are sent if the API accepts them. Results of tools are text in Chat
// Completions, so their files follow in a message of the user that attributes
// them to the tools; the Responses API accepts them in the result.
package openai

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/provider/wire"
)

// DefaultBaseURL is the base URL of OpenAI's API.
const DefaultBaseURL = "https://api.openai.com/v1"

// Values of API in [Options]. If it is "", it is the Responses API on OpenAI's own host and Azure's v1
// (base_url ending in /openai/v1) for the models that need it, by name, else Chat Completions. Azure's models
// must be deployed under their own names for that.
const (
	APIChat      = "chat"      // Chat Completions
	APIResponses = "responses" // Responses
)

// Options are the options of [New], the same for all providers: [wire.Options]. The zero value is useful.
type Options = wire.Options

// Model is a [toolcrib.Model] over Chat Completions or Responses. It is safe for concurrent
// use and has no state of a run.
type Model struct {
	wire.Model
	client *wire.Client
	rules  rules

	chatTools, responsesTools wire.ToolForm
}

var _ toolcrib.Conversational = (*Model)(nil)

// New returns a model without connecting to the API. Errors name the configuration key
// with the invalid value.
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
	client, err := wire.NewClient(o, DefaultBaseURL, m.authorize)
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
	m.responsesTools = m.chatTools // the Responses API makes tools strict by default
	m.responsesTools.Open, m.responsesTools.Close = `{"type":"function","strict":false,"name":`, `}`
	return m, nil
}

// authorize puts the key into the header that the API expects: Azure has its own,
// and accepts only tokens of Entra (JWTs) as a bearer.
func (m *Model) authorize(h http.Header, key string) {
	if m.rules.azure && key != "" && !strings.HasPrefix(key, "eyJ") {
		h.Set("Api-Key", key)
		return
	}
	wire.Bearer(h, key)
}
