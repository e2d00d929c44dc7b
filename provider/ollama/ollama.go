// Package ollama adapts Ollama's own API, POST /api/chat, to [toolcrib.Model].
//
// The arguments of calls are objects on the wire, in both directions, and the
// result of a call is matched by its position and the name of its tool: there is no
// tool_call_id. Replies stream as NDJSON. Wire format: Ollama's
// documentation, "API" and "Errors".
//
// A prompt that is longer than the context is rejected and not truncated: by default Ollama
// drops the oldest messages silently, so each request has truncate: false
// (servers without that field always truncate). The server sets the size of the
// context (OLLAMA_CONTEXT_LENGTH, often 4096 tokens) unless
// extra.num_ctx does.
package ollama

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/provider/wire"
)

// DefaultBaseURL is the default address of Ollama.
const DefaultBaseURL = "http://localhost:11434"

// Options are the options of [New], the same for all providers: [wire.Options]. The zero value is useful.
type Options = wire.Options

// Model is a [toolcrib.Model] over Ollama's chat API. It is safe for concurrent use
// and has no state of a run.
type Model struct {
	wire.Model
	opts   Options
	client *wire.Client
	tools  wire.ToolForm
	known  wire.Memory[trait]
}

var _ toolcrib.Conversational = (*Model)(nil)

// New returns a model without connecting to the server. Errors name the configuration key
// with the invalid value. A base URL may end in /v1 or /api, as those of
// other clients of Ollama do.
func New(o Options) (*Model, error) {
	if o.Name == "" {
		o.Name = "ollama"
	}
	o.BaseURL = root(o.BaseURL)
	client, err := wire.NewClient(o, DefaultBaseURL, func(h http.Header, key string) {
		h.Set("Accept", "application/x-ndjson, application/json")
		wire.Bearer(h, key)
	})
	if err != nil {
		return nil, err
	}
	m := &Model{opts: o, client: client, tools: wire.ToolForm{
		Open: `{"type":"function","function":{"name":`, Parameters: `,"parameters":`, Close: `}}`, Separator: `,`,
		Schemas: &wire.Schemas{Fit: wire.GrammarSchema, Check: decodable},
	}}
	m.Model = wire.NewModel(client, "api/tags", func() toolcrib.Model {
		// Only images that every version of Ollama can decode; any other makes the whole request fail.
		files := wire.FileRules{Types: []string{"image/png", "image/jpeg", "image/webp"}}
		return &conversation{model: m, history: client.History(files)}
	}, func(err error) error { return m.explain(err, "") })
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

// explain adds advice to an error, and corrects its class:
// Ollama distinguishes its errors by their text only. It returns another error for each
// known kind, and err itself for others.
func (m *Model) explain(err error, model string) error {
	var known *toolcrib.ModelError
	if !errors.As(err, &known) {
		return err
	}
	e := *known
	said := strings.ToLower(e.Message)
	name := wire.Line(model)
	switch {
	case e.Unsent && e.Class == toolcrib.ErrNetwork:
		e.Message += ": is Ollama running? Start it with `ollama serve`, or set base_url"
	case e.NoTools:
		e = noTools(e, name)
	case strings.Contains(said, "does not support thinking"):
		e.Class = toolcrib.ErrBadRequest
		e.Message = fmt.Sprintf("model %s does not support thinking: leave its reasoning out, or set it to off", name)
	case e.Class == toolcrib.ErrContextLength:
		e.Message += " (num_ctx in the model's extra, or OLLAMA_CONTEXT_LENGTH of the server, gives it more)"
	case e.Status == http.StatusNotFound && notPulled(said):
		e.Class = toolcrib.ErrBadRequest
		e.Message = fmt.Sprintf("model %s is not installed: pull it with `ollama pull %s`", name, name)
	case e.Status == http.StatusUnauthorized && strings.Contains(e.Detail, `"signin_url"`):
		e.Message = "the model runs at ollama.com, which wants a login: run `ollama signin` where the server is"
	case strings.Contains(said, "requires more system memory"):
		e.Class = toolcrib.ErrOther // a retry frees no memory
	case strings.Contains(said, "server busy"):
		e.Class = toolcrib.ErrOverloaded
	default:
		return err
	}
	return &e
}

func noTools(e toolcrib.ModelError, model string) toolcrib.ModelError {
	e.Class, e.NoTools = toolcrib.ErrBadRequest, true
	e.Message = fmt.Sprintf("model %s does not support tools: take one that does, or set tools: text for it", model)
	return e
}

// notPulled distinguishes the error about a missing model, which is quoted in it, from the
// error about an unknown route.
func notPulled(said string) bool {
	return strings.Contains(said, "not found") && (strings.Contains(said, "model '") || strings.Contains(said, `model "`))
}

// streamError returns the error of an error object inside a stream. A relay to
// ollama.com sends the status with it; any other is a fault of the server.
func streamError(line []byte, status int) error {
	if status >= 400 && status < 600 {
		return wire.StatusError(status, nil, line)
	}
	e := wire.EventError(line)
	if e.Class == toolcrib.ErrOther {
		e.Class = toolcrib.ErrOverloaded
	}
	return e
}

// optionNames are the names of Modelfile parameters and of older options. Ollama
// accepts them inside options only; in extra they may also be at the top.
var optionNames = [...]string{
	"num_ctx", "num_predict", "num_keep", "num_batch", "num_gpu", "main_gpu", "num_thread", "draft_num_predict", "seed",
	"temperature", "top_k", "top_p", "min_p", "typical_p", "tfs_z", "stop", "repeat_last_n", "repeat_penalty",
	"presence_penalty", "frequency_penalty", "penalize_newline", "mirostat", "mirostat_eta", "mirostat_tau", "use_mmap",
	"use_mlock", "low_vram", "f16_kv", "vocab_only", "numa",
}

// splitExtra splits the extra fields into those of the body and those of its
// options. Of a name in both places, the one in options is used.
func splitExtra(x wire.Extra) (top, options wire.Extra, err error) {
	if raw := x.Get("options"); raw != nil {
		if options, err = wire.ParseExtra(raw); err != nil {
			return top, options, errors.New("extra.options: must be an object")
		}
	}
	for _, f := range x.Fields {
		switch {
		case f.Name == "options" || f.Name == "stream":
		case !slices.Contains(optionNames[:], f.Name):
			top.Fields = append(top.Fields, f)
		case options.Get(f.Name) == nil:
			options.Fields = append(options.Fields, f)
		}
	}
	return top, options, nil
}
