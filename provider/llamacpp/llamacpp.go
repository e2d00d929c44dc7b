// Package llamacpp adapts llama-server of llama.cpp to [toolcrib.Model].
//
// llama-server speaks Chat Completions, so this is a dialect of package openai:
// it changes requests before that adapter encodes them, and explains errors. The
// server itself holds the arguments of calls to their schemas by a grammar when it
// runs with --jinja, which is its default by now. So that one tool cannot spoil
// that, what no grammar can be made of is left out of schemas; the gate judges by
// the tool's own schema anyway. Wire format: llama.cpp, tools/server/README.md.
package llamacpp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"strings"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/provider/openai"
	"github.com/toolcrib/toolcrib/provider/wire"
)

// DefaultBaseURL is where llama-server listens if nobody says otherwise.
const DefaultBaseURL = "http://localhost:8080/v1"

// Options say where llama-server is. The zero value of every field is good.
type Options struct {
	wire.Options

	// ReplayReasoning names the field in which the reasoning of earlier turns is
	// sent back: reasoning_content for models whose template keeps it. "" and
	// "none" send none, which every template takes.
	ReplayReasoning string
}

// Model is a [toolcrib.Model] over llama-server. It is safe for use by many runs
// at once and keeps no state of a run.
type Model struct {
	opts    Options
	chat    *openai.Model
	client  *wire.Client // of what stands beside the chat: /props, /health
	schemas wire.Schemas
	known   traits
}

var _ interface {
	toolcrib.Model
	toolcrib.Conversational
} = (*Model)(nil)

// New makes a model; it connects to nothing yet. Errors name the key of the
// configuration that is wrong. A base URL without a path means /v1.
func New(o Options) (*Model, error) {
	if o.Name == "" {
		o.Name = "llamacpp"
	}
	if o.BaseURL = strings.TrimRight(strings.TrimSpace(o.BaseURL), "/"); o.BaseURL == "" {
		o.BaseURL = DefaultBaseURL
	}
	root := strings.TrimSuffix(o.BaseURL, "/v1")
	if _, rest, ok := strings.Cut(root, "://"); ok && root == o.BaseURL && !strings.Contains(rest, "/") {
		o.BaseURL += "/v1"
	}
	if o.ReplayReasoning == "" {
		o.ReplayReasoning = "none"
	}
	chat, err := openai.New(openai.Options{
		Options: o.Options, MaxTokensField: openai.FieldMaxTokens,
		ReplayReasoning: o.ReplayReasoning,
	})
	if err != nil {
		return nil, err
	}
	beside := o.Options
	beside.BaseURL = root
	client, err := wire.NewClient(beside, root, func(h http.Header, key string) {
		if key != "" {
			h.Set("Authorization", "Bearer "+key)
		}
	})
	if err != nil {
		return nil, err
	}
	m := &Model{opts: o, chat: chat, client: client}
	m.schemas.Fit = wire.GrammarSchema
	return m, nil
}

// Stream implements [toolcrib.Model].
func (m *Model) Stream(ctx context.Context, req *toolcrib.Request) iter.Seq2[toolcrib.Delta, error] {
	return (&conversation{model: m, chat: m.chat}).Stream(ctx, req)
}

// Conversation implements [toolcrib.Conversational].
func (m *Model) Conversation() toolcrib.Model {
	return &conversation{model: m, chat: m.chat.Conversation()}
}

// ListModels asks for the names of the models that the server has: one, unless it
// is a router.
func (m *Model) ListModels(ctx context.Context) ([]string, error) {
	names, err := m.chat.ListModels(ctx)
	if err != nil {
		return nil, m.explain(err, false)
	}
	return names, nil
}

// Check reports whether the server is there, takes the key and has loaded its
// model, without spending a token.
func (m *Model) Check(ctx context.Context) error {
	if _, err := m.ListModels(ctx); err != nil {
		return err
	}
	reply, err := m.client.Get(ctx, "health")
	if err == nil {
		reply.Finish()
		return nil
	}
	var known *toolcrib.ModelError
	if errors.As(err, &known) && known.Status == http.StatusServiceUnavailable {
		return m.explain(err, false)
	}
	return nil // a proxy need not have it
}

// Close closes idle connections. The model can still be used.
func (m *Model) Close() error {
	m.client.CloseIdle()
	return m.chat.Close()
}

// noGrammar are the words by which the server says that it could make no grammar,
// or no parser, for the tools of a request.
var noGrammar = [...]string{
	"schema conversion failed", "failed to parse grammar", "unable to generate parser", "unrecognized schema",
	"cannot use tools with stream", "unsupported param: tools",
}

// explain says in an error what the person can do about it, and mends classes:
// much of what is wrong with a request comes with status 500, which would be tried
// again. withTools tells that the request offered tools. It returns err itself
// where there is nothing to add.
func (m *Model) explain(err error, withTools bool) error {
	var known *toolcrib.ModelError
	if !errors.As(err, &known) {
		return err
	}
	e := *known
	said := strings.ToLower(e.Message)
	switch {
	case e.Unsent && e.Class == toolcrib.ErrNetwork:
		e.Message += ": is llama-server running? Start it, or set base_url"
	case strings.Contains(said, "--jinja"):
		e.Class, e.NoTools = toolcrib.ErrBadRequest, true
		e.Message = "llama-server runs without --jinja and takes no tools: start it with --jinja, or set tools: text for the model"
	case withTools && wire.Says(said, noGrammar[:]...):
		e.Class, e.NoTools = toolcrib.ErrBadRequest, true
		e.Message = "llama-server cannot hold calls to the schemas of these tools with this model (a newer version may): " +
			e.Message
	case e.Class == toolcrib.ErrContextLength:
		e.Message += sizes(e.Detail) + " (llama-server's --ctx-size, which its --parallel slots share, gives it more)"
	case e.Status == http.StatusServiceUnavailable && strings.Contains(said, "loading"):
		e.Message = "llama-server is still loading the model"
	default:
		return err
	}
	e.Message = wire.Clip(e.Message, 480)
	return &e
}

// sizes tells the sizes that stand beside the error of a prompt that is too long.
func sizes(detail string) string {
	var doc struct {
		Error struct {
			Prompt  int64 `json:"n_prompt_tokens"`
			Context int64 `json:"n_ctx"`
		} `json:"error"`
	}
	if json.Unmarshal([]byte(detail), &doc) != nil || doc.Error.Prompt <= 0 || doc.Error.Context <= 0 {
		return ""
	}
	return fmt.Sprintf(": %d tokens of %d", doc.Error.Prompt, doc.Error.Context)
}
