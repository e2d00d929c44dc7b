// Package gemini adapts Google's Generative Language API, models.generateContent
// and models.streamGenerateContent of v1beta, to [toolcrib.Model].
//
// It is a thin layer over net/http. It streams, keeps the encoded history of a
// conversation, converts the schemas of tools into the API's subset, and returns
// the thought signatures of earlier turns byte for byte, to the model that
// made them. Wire format: Gemini API reference, "Generating content", "Function
// calling", "Thinking" and "Thought signatures".
package gemini

import (
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/internal/lazyregexp"
	"github.com/toolcrib/toolcrib/provider/wire"
)

// DefaultBaseURL is the base URL of Google's API.
const DefaultBaseURL = "https://generativelanguage.googleapis.com"

// Version is the version of the API that this package uses, unless the base
// URL has another.
const Version = "v1beta"

// Options are the options of [New], the same for all providers: [wire.Options]. The zero value is useful.
type Options = wire.Options

// Model is a [toolcrib.Model] over generateContent. It is safe for concurrent use
// and has no state of a run.
type Model struct {
	wire.Model
	opts   Options
	prefix string // v1beta/, unless the base URL has a version
	tools  wire.ToolForm
}

var _ toolcrib.Conversational = (*Model)(nil)

var versioned = lazyregexp.New(`/v[0-9]+((alpha|beta)[0-9]*)?$`)

// New returns a model without connecting to the API. Errors name the configuration key
// with the invalid value.
func New(o Options) (*Model, error) {
	if o.Name == "" {
		o.Name = "gemini"
	}
	client, err := wire.NewClient(o, DefaultBaseURL, func(h http.Header, key string) {
		if key != "" {
			h.Set("X-Goog-Api-Key", key)
		}
	})
	if err != nil {
		return nil, err
	}
	m := &Model{opts: o, prefix: Version + "/", tools: wire.ToolForm{
		Open: `{"name":`, Parameters: `,"parametersJsonSchema":`, Close: `}`, Separator: `,`,
		Schemas: &wire.Schemas{Make: parameters}, ValidName: functionName.MatchString, Max: maxDeclarations,
		Description: func(spec *toolcrib.Spec) string {
			if wire.Blank(spec.Description) {
				return spec.Name // the API requires one
			}
			return spec.Description
		},
	}}
	base, _, _ := strings.Cut(client.Options().BaseURL, "?")
	if versioned.MatchString(strings.TrimRight(strings.TrimSpace(base), "/")) {
		m.prefix = ""
	}
	m.Model = wire.NewModel(client, m.prefix+"models?pageSize=1000", func() toolcrib.Model {
		return &conversation{model: m, history: client.History(fileRules())}
	}, m.refine)
	return m, nil
}

// modelName matches names that are safe in a path: no query, no escape, no "..".
var modelName = lazyregexp.New(`^[A-Za-z0-9_][A-Za-z0-9_.:@+-]*(/[A-Za-z0-9_][A-Za-z0-9_.:@+-]*)*$`)

// path returns the path for requests to a model; ok is false for an invalid name.
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

// traits are the differences between generations of models. They are derived from the name of
// the model; an unknown name gets the most conservative ones.
type traits struct {
	generation int // 205 for 2.5; if 0, unknown
	gemini     bool
	pro, flash bool // model classes; lite models are also flash
	lite       bool
	noSystem   bool // no system instruction: Gemma up to 3
}

// names matches names such as gemini-2.5-flash-lite, gemini-3-pro-preview, gemini-flash-latest
// and gemma-3-27b-it.
var names = lazyregexp.New(`^(gemini|gemma)-(?:(\d{1,2})(?:\.(\d{1,2}))?(?:-|$))?`)

func traitsOf(model string) (t traits) {
	name := wire.BareModel(model)
	m := names.FindStringSubmatch(name)
	if m == nil {
		return t
	}
	major, _ := strconv.Atoi(m[2])
	minor, _ := strconv.Atoi(m[3]) // "" is 0
	t.gemini, t.generation = m[1] == "gemini", major*100+minor
	if !t.gemini {
		t.noSystem = t.generation > 0 && t.generation < 400
		return t
	}
	if t.generation == 0 && strings.HasSuffix(name, "latest") {
		t.generation = latest
	}
	words := strings.Split(name, "-")
	t.pro, t.flash, t.lite = slices.Contains(words, "pro"), slices.Contains(words, "flash"), slices.Contains(words, "lite")
	return t
}

// latest is the generation of names without a version, such as gemini-flash-latest.
const latest = 305

// thinks reports whether the amount of reasoning can be set.
func (t traits) thinks() bool {
	if t.gemini {
		return t.generation == 0 || t.generation >= 205
	}
	return t.generation == 0
}

// levels reports whether reasoning is set by a level, from generation 3 on; otherwise by a
// budget of tokens. A name without a version gets a budget, which generation 3 also accepts.
// Models with levels also accept an answer schema together with tools, and files in results.
func (t traits) levels() bool { return t.gemini && t.generation >= 300 }

// signed reports whether the first call of a turn must have a signature. A name
// without a version may be such a model.
func (t traits) signed() bool {
	return t.gemini && (t.generation == 0 || t.generation >= 300)
}

// takesSchema reports whether the model accepts a JSON Schema of the answer.
func (t traits) takesSchema() bool {
	if t.gemini {
		return t.generation == 0 || t.generation >= 200
	}
	return t.generation == 0
}

// budget returns the tokens of reasoning for a level, and the least that the
// model accepts other than 0.
func (t traits) budget(level string) (tokens, least int) {
	switch {
	case t.pro:
		least = 128
	case t.lite:
		least = 512
	case !t.flash:
		least = 512 // unknown: accepted by all
	}
	switch level {
	case "low":
		return 1024, least
	case "high":
		return 24576, least
	}
	return 8192, least
}

// refine corrects errors that are specific to this API. A rejected key is reported
// as a bad request, and the time to wait is in the body (google.rpc.RetryInfo).
func (m *Model) refine(err error) error {
	var e *toolcrib.ModelError
	if !errors.As(err, &e) {
		return err
	}
	switch {
	case e.Class == toolcrib.ErrBadRequest && (strings.Contains(e.Detail, "API_KEY_INVALID") ||
		wire.Says(e.Message, "api key not valid", "api key expired")):
		e.Class = toolcrib.ErrAuth
		if e.Message += " (check api_key)"; m.opts.KeyAdvice != "" {
			e.Message += "; " + m.opts.KeyAdvice
		}
	case e.Status == 499: // CANCELLED by the API, not by the caller
		e.Class = toolcrib.ErrOverloaded
	}
	if e.RetryAfter == 0 && e.Class.Retryable() {
		if m := waitFor.FindStringSubmatch(e.Detail); m != nil {
			e.RetryAfter = wire.RetryAfter(http.Header{"Retry-After": m[1:]}, time.Now())
		}
	}
	return err
}

// waitFor matches google.rpc.RetryInfo. The body may be truncated, so it is not decoded as JSON.
var waitFor = lazyregexp.New(`"retryDelay"\s*:\s*"([^"]{1,64})s"`)
