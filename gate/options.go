package gate

import (
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/toolcrib/toolcrib"
)

// ConfirmMode says which calls need a person's approval, by their effect
// (tools.confirm).
type ConfirmMode string

const (
	ConfirmWrites ConfirmMode = "writes" // calls whose effect is a write
	ConfirmNever  ConfirmMode = "never"
	ConfirmAlways ConfirmMode = "always"
)

func (c ConfirmMode) valid() bool {
	return c == ConfirmWrites || c == ConfirmNever || c == ConfirmAlways
}

// asks reports whether the mode puts a call of this effect to a person. Anything
// that is no mode asks.
func (c ConfirmMode) asks(effect toolcrib.Effect) bool {
	switch c {
	case ConfirmNever:
		return false
	case ConfirmWrites:
		return effect.Writes()
	}
	return true
}

// ToolSettings is what the configuration says about one tool (tools.settings.X).
type ToolSettings struct {
	Timeout        time.Duration // 0 = the tool's own, else the run's
	MaxResultBytes int           // 0 = no bound of its own; the smallest bound counts
	// Confirm takes the place of tools.confirm for this tool; "" = tools.confirm.
	// always can be lifted by nothing.
	Confirm ConfirmMode
	// Untrusted marks the results as untrusted data; false marks nothing. Of a tool that
	// reads files ([toolcrib.GroupFiles]) it marks the files, whatever reads them.
	Untrusted bool
}

// Options is what a gate is made from: the tools, and today's policy.
type Options struct {
	Tools []toolcrib.Tool
	// Availability is required: there is no gate that does not look. [Overrides]
	// is one that never changes.
	Availability Availability
	// People knows what a principal may do today; nil = what it says of itself, and
	// nobody acts by an access token.
	People    People
	Confirm   ConfirmMode // "" = writes
	Settings  map[string]ToolSettings
	Protected Protected
	Paths     *PathRules // Protected made ready; nil = New does it
	Rules     Rules      // nil = none
	// SkillArguments judges what the skills' entries say about arguments; nil = such
	// an entry allows no call.
	SkillArguments SkillArguments
	// Layers are further layers. They are judged after the gate's own, in order,
	// and like those can only narrow.
	Layers []Layer
	// Positions returns FILE:LINE of a key path of the configuration, such as
	// tools.confirm; "" = unknown. It is used for explain and the journal, never
	// for what a model reads. nil = all unknown.
	Positions func(keyPath string) string
	// Panicked logs a panic during a judgement, with its stack, under ref: verdicts have the ref only.
	// If nil, it is not logged.
	Panicked func(ref, detail string)
	// Before is a gate that has much the same tools: the schemas that are the same are not
	// compiled again. nil = all are.
	Before *Gate
}

// New makes a gate. It fails if two tools have the same name or names that differ
// only in letter case (N2; both sources are named), if a tool's own spec or
// schema is wrong, or if the policy makes no sense. A tool from elsewhere (MCP,
// bus, client) whose spec or schema is wrong stops nothing: it is unusable, and
// States and Explain say why.
func New(o Options) (*Gate, error) {
	if o.Availability == nil {
		return nil, badOption("Availability is missing: a gate must know which tools are switched off")
	}
	if o.Confirm == "" {
		o.Confirm = ConfirmWrites
	}
	if !o.Confirm.valid() {
		return nil, badOption("tools.confirm: %q must be writes, never or always", o.Confirm)
	}
	for _, name := range slices.Sorted(maps.Keys(o.Settings)) {
		if err := o.Settings[name].check(name); err != nil {
			return nil, err
		}
	}
	if o.Paths == nil {
		protected, err := o.Protected.Rules()
		if err != nil {
			return nil, err
		}
		o.Paths = &protected
	}
	g := &Gate{options: o, protected: *o.Paths, layers: slices.Concat(Layers(), o.Layers)}
	g.options.Settings, g.options.Tools, g.options.Before = maps.Clone(o.Settings), nil, nil
	if o.Before != nil {
		g.tools.Store(o.Before.toolSet())
	}
	if err := g.SetTools(o.Tools); err != nil {
		return nil, err
	}
	return g, nil
}

// badOption is an error about what a gate is made from.
func badOption(format string, args ...any) error {
	return toolcrib.Errorf(toolcrib.CodeBadRequest, "gate: "+format, args...)
}

func (s ToolSettings) check(name string) error {
	switch {
	case s.Confirm != "" && !s.Confirm.valid():
		return badOption("tools.settings.%s.confirm: %q must be writes, never or always", name, s.Confirm)
	case s.Timeout < 0:
		return badOption("tools.settings.%s.timeout: must not be negative", name)
	case s.MaxResultBytes != 0 && s.MaxResultBytes < minResultBytes:
		return badOption("tools.settings.%s.max_result_bytes: must be at least %d", name, minResultBytes)
	}
	return nil
}

// Gate decides about tools. Its methods may be used by many goroutines. The zero
// value has no tools and refuses everything.
type Gate struct {
	options   Options // without the tools
	protected PathRules
	layers    []Layer
	tools     atomic.Pointer[toolSet]
	offer     atomic.Pointer[Offer] // the last one
	lists     listCache
	clients   clientSets
}

// Names returns the names of all registered tools, sorted.
func (g *Gate) Names() []string { return g.toolSet().names() }

// UnknownSettings returns the names under tools.settings that no tool has,
// sorted. They mean nothing, and are worth a notice.
func (g *Gate) UnknownSettings() []string {
	var unknown []string
	tools := g.toolSet()
	for name := range g.options.Settings {
		if tools.byName[name] == nil {
			unknown = append(unknown, name)
		}
	}
	slices.Sort(unknown)
	return unknown
}

// position is where the configuration says what is at keyPath; never fails.
func (g *Gate) position(keyPath string) (position string) {
	if g.options.Positions == nil || keyPath == "" {
		return ""
	}
	defer func() {
		if recover() != nil {
			position = ""
		}
	}()
	return g.options.Positions(keyPath)
}

// foreign reports whether a tool's spec was written by somebody that toolcrib does
// not know.
func foreign(source string) bool {
	kind, _, _ := strings.Cut(source, ":")
	return kind == "mcp" || kind == "bus" || kind == "client"
}
