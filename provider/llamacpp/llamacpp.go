// Package llamacpp adapts llama-server of llama.cpp to [toolcrib.Model].
//
// llama-server serves Chat Completions, so this package is a variant of package openai:
// it changes requests before that adapter encodes them, and explains errors. The
// server constrains the arguments of calls to their schemas with a grammar if it
// runs with --jinja, which is the default. So that a single tool cannot prevent
// that, the parts of schemas that cannot be part of a grammar are removed; the gate judges by
// the tool's own schema anyway. Wire format: llama.cpp, tools/server/README.md.
package llamacpp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/provider/openai"
	"github.com/toolcrib/toolcrib/provider/wire"
)

// DefaultBaseURL is the default address of llama-server.
const DefaultBaseURL = "http://localhost:8080/v1"

// Options are the options of [New], the same for all providers: [wire.Options]. The zero value is useful.
type Options = wire.Options

// Model is a [toolcrib.Model] over llama-server. It is safe for concurrent use
// and has no state of a run.
type Model struct {
	wire.Model
	opts    Options
	chat    *openai.Model
	client  *wire.Client // for other requests than chat: /props, /health
	schemas wire.Schemas
	noTools wire.Memory[bool] // for the server as a whole, under the key ""
}

var _ toolcrib.Conversational = (*Model)(nil)

// New returns a model without connecting to the server. Errors name the configuration key
// with the invalid value. If the base URL has no path, /v1 is appended.
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
	o.API, o.MaxTokens = openai.APIChat, true
	chat, err := openai.New(o)
	if err != nil {
		return nil, err
	}
	beside := o
	beside.BaseURL = root
	client, err := wire.NewClient(beside, root, wire.Bearer)
	if err != nil {
		return nil, err
	}
	m := &Model{opts: o, chat: chat, client: client, schemas: wire.Schemas{Fit: wire.GrammarSchema}}
	m.Model = wire.NewModel(client, strings.TrimPrefix(o.BaseURL+"/models", root+"/"), func() toolcrib.Model {
		return &conversation{model: m, chat: chat.Conversation()}
	}, func(err error) error { return m.explain(err, false) })
	return m, nil
}

// Check reports whether the server is reachable, accepts the key and has loaded its
// model, without using tokens.
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
	return nil // a proxy need not have this endpoint
}

// Close closes idle connections. The model can still be used.
func (m *Model) Close() error {
	return errors.Join(m.Model.Close(), m.chat.Close())
}

// noGrammar are phrases of the server's error if it could not make a grammar,
// or a parser, for the tools of a request.
var noGrammar = [...]string{
	"schema conversion failed", "failed to parse grammar", "unable to generate parser", "unrecognized schema",
	"cannot use tools with stream", "unsupported param: tools",
}

// explain adds advice to an error, and corrects its class:
// many invalid requests are reported with status 500, which would be
// retried. withTools is set if the request offered tools. It returns err itself
// if there is nothing to add.
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

// sizes returns the sizes in the error of a prompt that is too long.
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

// Bounds of cached facts about the server, which may be restarted with
// another model.
const (
	keepKnown    = time.Minute
	propsTimeout = 5 * time.Second
)

// refusesTools reports whether the chat template is known not to support tools. Then the
// server accepts tools but ignores them, and the model never calls one.
func (m *Model) refusesTools(ctx context.Context) bool {
	noTools, fresh := m.noTools.Get("")
	if !fresh {
		bounded, cancel := context.WithTimeout(ctx, propsTimeout)
		defer cancel()
		noTools = m.withoutTools(bounded)
		if ctx.Err() != nil {
			return false // the request was cancelled, so nothing is known
		}
		m.noTools.Put("", noTools, keepKnown)
	}
	return noTools
}

// withoutTools requests /props. A failure means false: an old server does not
// report it, and a router answers for no model in particular.
func (m *Model) withoutTools(ctx context.Context) bool {
	reply, err := m.client.Get(ctx, "props")
	if err != nil {
		return false
	}
	defer reply.Close()
	var doc struct {
		Caps struct {
			Tools *bool `json:"supports_tools"`
			Calls *bool `json:"supports_tool_calls"`
		} `json:"chat_template_caps"`
	}
	body, err := reply.All()
	if err != nil || json.Unmarshal(body, &doc) != nil {
		return false
	}
	tools, calls := doc.Caps.Tools, doc.Caps.Calls
	return tools != nil && calls != nil && !*tools && !*calls
}

// conversation changes the requests of one run for the wrapped adapter. It
// must be used by one goroutine at a time.
type conversation struct {
	model *Model
	chat  toolcrib.Model

	hash  string // hash of the tools that were converted last; "" if unknown
	tools []toolcrib.Spec
	extra extraKey
	raw   json.RawMessage
}

// extraKey has the inputs of the extra fields of a request.
type extraKey struct {
	given     string
	reasoning string
	tools     bool
	made      bool
}

// Stream implements [toolcrib.Model].
func (c *conversation) Stream(ctx context.Context, req *toolcrib.Request) iter.Seq2[toolcrib.Delta, error] {
	return func(yield func(toolcrib.Delta, error) bool) {
		withTools := len(req.Tools) > 0
		if withTools && c.model.refusesTools(ctx) {
			yield(toolcrib.Delta{}, &toolcrib.ModelError{
				Class: toolcrib.ErrBadRequest, Provider: c.model.opts.Name, Unsent: true, NoTools: true,
				Message: "the chat template of the model does not support tools: start llama-server with --chat-template-file for one that does, or set tools: text for the model",
			})
			return
		}
		fitted := c.fit(req)
		for d, err := range c.chat.Stream(ctx, &fitted) {
			if err != nil {
				err = c.model.explain(err, withTools)
			}
			if !yield(d, err) {
				return
			}
		}
	}
}

// fit returns the request for llama-server; req is unchanged.
func (c *conversation) fit(req *toolcrib.Request) toolcrib.Request {
	r := *req
	c.fitTools(req)
	r.Tools = c.tools
	// The server accepts a tool choice only as a string and treats an object as auto, so a
	// named tool is sent as the only one, and required.
	if name := req.ToolChoice.Name; req.ToolChoice.Mode == toolcrib.ChoiceName {
		if at := slices.IndexFunc(c.tools, func(s toolcrib.Spec) bool { return s.Name == name }); at >= 0 {
			r.Tools, r.ToolsHash = c.tools[at:at+1], ""
			r.ToolChoice = toolcrib.ToolChoice{Mode: toolcrib.ChoiceRequired}
		}
	}
	// One grammar cannot describe both the calls and the answer.
	if len(r.OutputSchema) > 0 && len(r.Tools) > 0 {
		r.System, r.OutputSchema = wire.WithSchemaInstruction(r.System, r.OutputSchema), nil
	} else if schema, err := wire.GrammarSchema(r.OutputSchema); err == nil {
		r.OutputSchema = schema
	}
	r.Extra = c.extraOf(req)
	return r
}

func (c *conversation) fitTools(req *toolcrib.Request) {
	if c.hash != "" && c.hash == req.ToolsHash {
		return
	}
	c.hash, c.tools = req.ToolsHash, slices.Clone(req.Tools)
	for i := range c.tools {
		// The wrapped adapter rejects invalid schemas.
		if schema, err := c.model.schemas.Of(&c.tools[i]); err == nil {
			c.tools[i].Parameters = schema
		}
	}
}

// extraOf returns the extra fields of a request with those that only llama-server has; the
// configured ones take precedence.
func (c *conversation) extraOf(req *toolcrib.Request) json.RawMessage {
	key := extraKey{given: string(req.Extra), reasoning: req.Reasoning, tools: len(req.Tools) > 0, made: true}
	if key == c.extra {
		return c.raw
	}
	c.extra, c.raw = key, withFields(req)
	return c.raw
}

func withFields(req *toolcrib.Request) json.RawMessage {
	given, err := wire.ParseExtra(req.Extra)
	if err != nil {
		return req.Extra // the wrapped adapter returns the error
	}
	raw := bytes.TrimSpace(req.Extra)
	if len(given.Fields) == 0 {
		raw = []byte("{}")
	}
	out := append([]byte{}, raw[:len(raw)-1]...)
	add := func(name, value string) {
		if given.Get(name) != nil {
			return
		}
		if len(bytes.TrimSpace(out)) > 1 {
			out = append(out, ',')
		}
		out = append(append(wire.AppendString(out, name), ':'), value...)
	}
	if len(req.Tools) > 0 {
		add("parallel_tool_calls", "true")
	}
	// Templates read one of the two; the server passes both on.
	switch req.Reasoning {
	case "":
	case "off":
		add("chat_template_kwargs", `{"enable_thinking":false}`)
	default:
		add("chat_template_kwargs", `{"enable_thinking":true,"reasoning_effort":`+string(wire.AppendString(nil,
			req.Reasoning))+`}`)
	}
	if len(out) == 1 {
		return req.Extra
	}
	return append(out, '}')
}
