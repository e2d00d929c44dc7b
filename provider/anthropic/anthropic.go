// Package anthropic adapts the Messages API of Anthropic, and of the servers that
// are compatible with it, to [toolcrib.Model].
//
// It is a thin layer over net/http. It streams, keeps the encoded history of a
// conversation, marks the stable prefix for the prompt cache, and sends the
// reasoning of earlier turns back byte for byte. Wire format: Anthropic API
// reference, "Messages" and "Streaming messages", version 2023-06-01.
package anthropic

import (
	"net/http"
	"strconv"
	"strings"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/internal/lazyregexp"
	"github.com/toolcrib/toolcrib/provider/wire"
)

// DefaultBaseURL is the base URL of Anthropic's API.
const DefaultBaseURL = "https://api.anthropic.com"

// Version is the version of the API that this package uses.
const Version = "2023-06-01"

// DefaultMaxTokens bounds the output if the request does not; the API requires a
// bound in each request. It is doubled for models that reason by default, because
// reasoning counts as output.
const DefaultMaxTokens = 8192

// Options are the options of [New], the same for all providers: [wire.Options]. The zero value is useful.
type Options = wire.Options

// Model is a [toolcrib.Model] over the Messages API. It is safe for concurrent use
// and has no state of a run.
type Model struct {
	wire.Model
	client *wire.Client
	prefix string // v1/, unless the base URL has it
	vendor bool   // Anthropic itself, whose models have known restrictions
	tools  wire.ToolForm
}

var _ toolcrib.Conversational = (*Model)(nil)

// New returns a model without connecting to the API. Errors name the configuration key
// with the invalid value.
func New(o Options) (*Model, error) {
	if o.Name == "" {
		o.Name = "anthropic"
	}
	client, err := wire.NewClient(o, DefaultBaseURL, func(h http.Header, key string) {
		h.Set("Anthropic-Version", Version)
		if key != "" {
			h.Set("X-Api-Key", key)
		}
	})
	if err != nil {
		return nil, err
	}
	m := &Model{client: client, prefix: "v1/", vendor: client.Host() == "api.anthropic.com", tools: wire.ToolForm{
		// The last brace is written after the mark for the prompt cache.
		Open: `{"name":`, Parameters: `,"input_schema":`, Separator: `},`, OmitBlank: true,
		Schemas: &wire.Schemas{Check: checkNames},
	}}
	if strings.HasSuffix(strings.TrimRight(client.Options().BaseURL, "/"), "/v1") {
		m.prefix = ""
	}
	m.Model = wire.NewModel(client, m.prefix+"models", func() toolcrib.Model {
		return &conversation{model: m, history: client.History(fileRules())}
	}, nil)
	return m, nil
}

// traits are the differences between generations of Claude. They are derived from the name
// of the model; an unknown name has none.
type traits struct {
	known      bool
	thinks     bool // can reason
	adaptive   bool // thinking.type adaptive with output_config.effort; else a budget
	thinksDef  bool // reasons by default
	alwaysOn   bool // reasoning cannot be turned off
	noSampling bool // rejects temperature
	noForce    bool // rejects tool_choice any and tool
	structured bool // accepts output_config.format
	small      bool // writes at most 4096 tokens
}

// names matches names such as claude-opus-4-6, claude-haiku-4-5-20251001, claude-3-7-sonnet-latest
// and anthropic.claude-sonnet-5-v1:0. A longer number is a date.
var names = lazyregexp.New(`claude-(?:(opus|sonnet|haiku|fable|mythos)[-@:.])?(\d{1,2})\b(?:[-@:.](\d{1,2})\b)?` +
	`(?:[-@:.](opus|sonnet|haiku|fable|mythos)\b)?`)

func traitsOf(model string) traits {
	m := names.FindStringSubmatch(model)
	if m == nil || m[1]+m[4] == "" {
		return traits{thinks: true}
	}
	major, _ := strconv.Atoi(m[2])
	minor, _ := strconv.Atoi(m[3]) // "" is 0
	family, v := m[1]+m[4], major*100+minor
	top := family == "fable" || family == "mythos" // above the other families
	return traits{
		known: true, thinks: v >= 307, adaptive: v >= 406, noSampling: v >= 407, structured: v >= 405, small: v < 305,
		thinksDef: v >= 500, alwaysOn: top || v >= 505, noForce: top && v >= 501 || v >= 505,
	}
}

// budget returns the tokens of reasoning for models that require a number.
func budget(reasoning string) int {
	switch reasoning {
	case "low":
		return 2048
	case "high":
		return 16384
	}
	return 8192
}

// minBudget is the smallest budget that the API accepts.
const minBudget = 1024
