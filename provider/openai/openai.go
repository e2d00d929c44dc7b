// Package openai adapts the Chat Completions API of OpenAI, and of the many
// servers that are compatible with it, to [toolcrib.Model].
//
// It is a thin layer over net/http. It streams, keeps the encoded history of a
// conversation, and sends requests whose bytes only grow at their end within a
// run, which pleases prompt caches. Wire format: OpenAI API reference, "Chat
// Completions" and "Streaming".
package openai

import (
	"context"
	"iter"
	"net/http"
	"strings"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/provider/wire"
)

// DefaultBaseURL is OpenAI's own API.
const DefaultBaseURL = "https://api.openai.com/v1"

// The names of the field that bounds the output.
const (
	FieldMaxTokens           = "max_tokens"
	FieldMaxCompletionTokens = "max_completion_tokens"
)

// Options say where the API is and how it differs from OpenAI's. The zero value
// of every field is good.
type Options struct {
	wire.Options

	// MaxTokensField names the field that bounds the output. "" takes
	// max_completion_tokens for OpenAI, Azure and OpenAI's reasoning models by
	// name, else max_tokens, which most compatible servers know.
	MaxTokensField string

	// ReplayReasoning names the field in which the reasoning of earlier turns is
	// sent back, such as reasoning_content. "" sends it only to hosts that are
	// known to ask for it; "none" never.
	ReplayReasoning string
}

// Model is a [toolcrib.Model] over Chat Completions. It is safe for use by many
// runs at once and keeps no state of a run.
type Model struct {
	opts   Options
	client *wire.Client
	rules  rules

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
		o.Name = "openai"
	}
	client, err := wire.NewClient(o.Options, DefaultBaseURL, func(h http.Header, key string) {
		if key != "" {
			h.Set("Authorization", "Bearer "+key)
		}
	})
	if err != nil {
		return nil, err
	}
	return &Model{opts: o, client: client, rules: rulesOf(client.Host(), o)}, nil
}

// Stream implements [toolcrib.Model].
func (m *Model) Stream(ctx context.Context, req *toolcrib.Request) iter.Seq2[toolcrib.Delta, error] {
	return (&conversation{model: m}).Stream(ctx, req)
}

// Conversation implements [toolcrib.Conversational].
func (m *Model) Conversation() toolcrib.Model { return &conversation{model: m} }

// ListModels asks for the names of the models that the key may use.
func (m *Model) ListModels(ctx context.Context) ([]string, error) {
	return m.client.ListModels(ctx, "models")
}

// Check asks the API for its models: it tells whether host and key are good
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

// rules are what one server asks for and another refuses. They only ever follow
// the host, or the name of a model where every host behaves alike.
type rules struct {
	vendor          bool // OpenAI itself or Azure: limits that others do not have
	maxTokensField  string
	replayReasoning string
}

func rulesOf(host string, o Options) rules {
	r := rules{maxTokensField: o.MaxTokensField, replayReasoning: o.ReplayReasoning}
	r.vendor = host == "api.openai.com" || strings.HasSuffix(host, ".api.openai.com") || strings.HasSuffix(host, ".openai.azure.com")
	if r.replayReasoning == "" {
		switch host {
		case "api.deepseek.com", "api.moonshot.ai", "api.moonshot.cn":
			r.replayReasoning = "reasoning_content"
		}
	}
	if r.replayReasoning == "none" {
		r.replayReasoning = ""
	}
	return r
}

func (r rules) maxTokens(model string) string {
	switch {
	case r.maxTokensField != "":
		return r.maxTokensField
	case r.vendor, reasons(model):
		return FieldMaxCompletionTokens
	}
	return FieldMaxTokens
}

// bareModel strips the prefix that gateways put before a model's name.
func bareModel(model string) string {
	return strings.ToLower(model[strings.LastIndexByte(model, '/')+1:])
}

// reasons tells OpenAI's reasoning models, which refuse max_tokens.
func reasons(model string) bool {
	name := bareModel(model)
	for _, prefix := range [...]string{"o1", "o3", "o4", "gpt-5", "gpt-6"} {
		rest, ok := strings.CutPrefix(name, prefix)
		if ok && (rest == "" || rest[0] == '-' || rest[0] == '.') {
			return !strings.HasPrefix(rest, "-chat")
		}
	}
	return false
}

// refusesTemperature tells the models of OpenAI that take no temperature.
func refusesTemperature(model string) bool {
	name := bareModel(model)
	return reasons(model) && !strings.HasPrefix(name, "gpt-5.") && !strings.HasPrefix(name, "gpt-6")
}

// toolsWithoutReasoning tells the models that refuse function tools on this API
// unless their reasoning is off: GPT-5.4 and later.
func toolsWithoutReasoning(model string) bool {
	name := bareModel(model)
	if strings.HasPrefix(name, "gpt-6") {
		return true
	}
	rest, ok := strings.CutPrefix(name, "gpt-5.")
	return ok && rest != "" && rest[0] >= '4' && rest[0] <= '9'
}
