// Package providers is the table of provider types: everything that the configuration, the search for a
// model and doctor need to know about each, and how to open its models. A new type is a package below
// provider and a row here.
package providers

import (
	"cmp"
	"context"
	"net"
	"slices"
	"strings"
	"sync"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/bus"
	"github.com/toolcrib/toolcrib/provider/anthropic"
	busmodel "github.com/toolcrib/toolcrib/provider/bus"
	"github.com/toolcrib/toolcrib/provider/gemini"
	"github.com/toolcrib/toolcrib/provider/llamacpp"
	"github.com/toolcrib/toolcrib/provider/offline"
	"github.com/toolcrib/toolcrib/provider/ollama"
	"github.com/toolcrib/toolcrib/provider/openai"
	"github.com/toolcrib/toolcrib/provider/script"
	"github.com/toolcrib/toolcrib/provider/wire"
)

// Settings are the options for opening an adapter: those of the HTTP APIs, and the key that only
// scripts have.
type Settings struct {
	wire.Options
	File string // file with replies to play

	// Of type bus.
	Open  func(ctx context.Context, run toolcrib.RunID, r bus.Request) (*bus.Exchange, error)
	Node  string // key of the node that is asked; "" means any
	Token string
}

// Type describes one type of provider.
type Type struct {
	Name string // value of providers.NAME.type

	KeyVariable string // environment variable that usually contains the key; "" if none is needed
	// AddressVariable is the environment variable in which the vendor's own programs expect an address,
	// or "". ParseAddress converts its value to a URL; if nil, the value is one.
	AddressVariable string
	ParseAddress    func(value string) string

	// DefaultModel is used if the key is set and no model is configured. If "", the type is not used
	// without configuration. The model is small, current and calls tools. If several keys are set, the
	// type with the lowest Rank is used.
	DefaultModel string
	Rank         int

	NeedsEntry bool   // has no meaning without an entry in providers
	InProcess  bool   // runs here, without a network
	OwnMachine bool   // a server that users run on their own machine
	Start      string // command that starts such a server
	HasAPI     bool   // has the key api
	// HasReasoning reports whether the type has the key reasoning: other types have only one mode.
	HasReasoning bool
	HasFile      bool // requires the key file
	OnBus        bool // is a node of the bus; has the keys node and token

	// New opens the models of a provider.
	New func(Settings) (toolcrib.Model, error)
}

// All returns the types of providers, in the order in which they are listed.
func All() []Type { return slices.Clone(all()) }

var all = sync.OnceValue(func() []Type {
	return []Type{
		{
			Name: "openai", KeyVariable: "OPENAI_API_KEY", AddressVariable: "OPENAI_BASE_URL",
			DefaultModel: "gpt-5-mini", Rank: 2, HasAPI: true, HasReasoning: true,
			New: func(s Settings) (toolcrib.Model, error) {
				return openai.New(s.Options)
			},
		},
		{
			Name: "anthropic", KeyVariable: "ANTHROPIC_API_KEY", AddressVariable: "ANTHROPIC_BASE_URL",
			DefaultModel: "claude-haiku-4-5", Rank: 1,
			New: func(s Settings) (toolcrib.Model, error) {
				return anthropic.New(s.Options)
			},
		},
		{
			Name: "gemini", KeyVariable: "GEMINI_API_KEY", AddressVariable: "GEMINI_BASE_URL",
			DefaultModel: "gemini-2.5-flash", Rank: 3,
			New: func(s Settings) (toolcrib.Model, error) { return gemini.New(s.Options) },
		},
		{
			Name: "ollama", AddressVariable: "OLLAMA_HOST", ParseAddress: ollamaHost, OwnMachine: true, Start: "ollama serve",
			HasReasoning: true,
			New:          func(s Settings) (toolcrib.Model, error) { return ollama.New(s.Options) },
		},
		{
			Name: "llamacpp", OwnMachine: true, Start: "llama-server --jinja -m MODEL.gguf", HasReasoning: true,
			New: func(s Settings) (toolcrib.Model, error) {
				return llamacpp.New(s.Options)
			},
		},
		{
			Name: "bus", NeedsEntry: true, OnBus: true,
			New: func(s Settings) (toolcrib.Model, error) {
				o := busmodel.Options{
					Name: s.Name, Open: s.Open, Token: s.Token, FirstToken: s.FirstTokenTimeout, Idle: s.IdleTimeout,
				}
				var err error
				if s.Node != "" {
					o.Node, err = bus.ParseKey(s.Node)
				}
				if err != nil {
					return nil, err
				}
				return busmodel.New(o)
			},
		},
		{
			Name: "script", NeedsEntry: true, InProcess: true, HasFile: true,
			New: func(s Settings) (toolcrib.Model, error) {
				m, err := script.New(script.Options{Name: s.Name, File: s.File})
				if err != nil {
					return nil, err
				}
				return m, m.Check()
			},
		},
		{
			Name: "offline", InProcess: true,
			New: func(Settings) (toolcrib.Model, error) { return offline.New(), nil },
		},
	}
})

// Of returns the type with a name. If no type has it, Of returns one without New.
func Of(name string) (Type, bool) {
	for _, t := range all() {
		if t.Name == name {
			return t, true
		}
	}
	return Type{Name: name, NeedsEntry: true}, false
}

// Names returns the names of the types for which keep returns true; if keep is nil, of all types.
func Names(keep func(Type) bool) []string {
	var names []string
	for _, t := range All() {
		if keep == nil || keep(t) {
			names = append(names, t.Name)
		}
	}
	return names
}

// ByKey returns the types that are used if their key is set and no model is configured, in order of preference.
func ByKey() []Type {
	types := slices.DeleteFunc(All(), func(t Type) bool { return t.DefaultModel == "" })
	slices.SortFunc(types, func(a, b Type) int { return cmp.Compare(a.Rank, b.Rank) })
	return types
}

// WithoutEntry reports whether t can be used without an entry in providers.
func (t Type) WithoutEntry() bool { return !t.NeedsEntry }

// Address returns the address of t in the environment, or "".
func (t Type) Address(getenv func(string) string) string {
	if t.AddressVariable == "" {
		return ""
	}
	value := getenv(t.AddressVariable)
	if t.ParseAddress != nil {
		return t.ParseAddress(value)
	}
	return value
}

// ollamaHost returns the URL for a value of Ollama's variable: [SCHEME://][HOST][:PORT]. An address for
// listening on all interfaces means this machine.
func ollamaHost(text string) string {
	if text = strings.TrimSpace(text); text == "" {
		return ""
	}
	scheme, rest, given := strings.Cut(text, "://")
	port := "11434"
	switch {
	case !given:
		scheme, rest = "http", text
	case scheme == "https":
		port = "443"
	case scheme == "http":
		port = "80"
	}
	hostport, path, _ := strings.Cut(rest, "/")
	host, ownPort, err := net.SplitHostPort(hostport)
	if err != nil {
		host, ownPort = strings.Trim(hostport, "[]"), ""
	}
	switch host {
	case "", "0.0.0.0":
		host = "127.0.0.1"
	case "::":
		host = "::1"
	}
	address := scheme + "://" + net.JoinHostPort(host, cmp.Or(ownPort, port))
	if path != "" {
		address += "/" + path
	}
	return address
}
