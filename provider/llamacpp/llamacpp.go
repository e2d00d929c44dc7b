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

// DefaultBaseURL is where llama-server listens if nobody says otherwise.
const DefaultBaseURL = "http://localhost:8080/v1"

// Options say where llama-server is. The zero value of every field is good.
type Options struct {
	wire.Options
}

// Model is a [toolcrib.Model] over llama-server. It is safe for use by many runs
// at once and keeps no state of a run.
type Model struct {
	wire.Model
	opts    Options
	chat    *openai.Model
	client  *wire.Client // of what is beside the chat: /props, /health
	schemas wire.Schemas
	noTools wire.Memory[bool] // of the server as a whole, under ""
}

var _ toolcrib.Conversational = (*Model)(nil)

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
	chat, err := openai.New(openai.Options{Options: o.Options, MaxTokens: true})
	if err != nil {
		return nil, err
	}
	beside := o.Options
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
	return errors.Join(m.Model.Close(), m.chat.Close())
}

// noGrammar are the words by which the server says that it could make no grammar,
// or no parser, for the tools of a request.
var noGrammar = [...]string{
	"schema conversion failed", "failed to parse grammar", "unable to generate parser", "unrecognized schema",
	"cannot use tools with stream", "unsupported param: tools",
}

// explain says in an error what the person can do about it, and corrects classes:
// much of what is wrong with a request comes with status 500, which would be tried
// again. withTools reports that the request offered tools. It returns err itself
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

// Bounds of what is remembered of the server, which may be started again with
// another model.
const (
	keepKnown    = time.Minute
	propsTimeout = 5 * time.Second
)

// refusesTools reports whether the chat template is known not to support tools. Then the
// server takes them, passes them over in silence, and the model never calls one.
func (m *Model) refusesTools(ctx context.Context) bool {
	noTools, fresh := m.noTools.Get("")
	if !fresh {
		bounded, cancel := context.WithTimeout(ctx, propsTimeout)
		defer cancel()
		noTools = m.withoutTools(bounded)
		if ctx.Err() != nil {
			return false // a run that was cancelled has learned nothing
		}
		m.noTools.Put("", noTools, keepKnown)
	}
	return noTools
}

// withoutTools asks /props. Whatever keeps the server from telling is no error: an old one
// does not know, and a router answers for no model in particular.
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

// conversation changes the requests of one run for the adapter below it. It
// serves one goroutine.
type conversation struct {
	model *Model
	chat  toolcrib.Model

	hash  string // of the tools that were fitted last; "" = unknown
	tools []toolcrib.Spec
	extra extraKey
	raw   json.RawMessage
}

// extraKey is what the extra fields of a request follow from.
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

// fit makes the request that llama-server takes. The one given stays as it is.
func (c *conversation) fit(req *toolcrib.Request) toolcrib.Request {
	r := *req
	c.fitTools(req)
	r.Tools = c.tools
	// The server reads a tool choice as a word and takes an object for auto: a
	// named tool is the only one of its request, and required.
	if name := req.ToolChoice.Name; req.ToolChoice.Mode == toolcrib.ChoiceName {
		if at := slices.IndexFunc(c.tools, func(s toolcrib.Spec) bool { return s.Name == name }); at >= 0 {
			r.Tools, r.ToolsHash = c.tools[at:at+1], ""
			r.ToolChoice = toolcrib.ToolChoice{Mode: toolcrib.ChoiceRequired}
		}
	}
	// One grammar cannot hold both the calls and the answer.
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
		// The adapter below refuses what is not a schema.
		if schema, err := c.model.schemas.Of(&c.tools[i]); err == nil {
			c.tools[i].Parameters = schema
		}
	}
}

// extraOf adds the fields that only llama-server has; those of the configuration
// win.
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
		return req.Extra // the adapter below says what is wrong
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
	// Which of the two a template reads differs; the server passes both on.
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
