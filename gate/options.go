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

// asks reports whether the mode asks a person about a call of this effect. An invalid mode always
// asks.
func (c ConfirmMode) asks(effect toolcrib.Effect) bool {
	switch c {
	case ConfirmNever:
		return false
	case ConfirmWrites:
		return effect.Writes()
	}
	return true
}

// ToolSettings is the configuration of one tool (tools.settings.X).
type ToolSettings struct {
	Timeout        time.Duration // if 0, the tool's own, or else the run's
	MaxResultBytes int           // 0 means no bound of its own; the smallest bound applies
	// Confirm replaces tools.confirm for this tool, unless it is "". Nothing lifts the value
	// always.
	Confirm ConfirmMode
	// Untrusted marks the results as untrusted data. For a tool that reads files
	// ([toolcrib.GroupFiles]) it marks the files, whatever tool reads them. If false, it marks
	// nothing.
	Untrusted bool
}

// Options has the tools and the current policy of a gate.
type Options struct {
	Tools []toolcrib.Tool
	// Availability is required, so that every gate checks which tools are switched off. [Overrides]
	// is an implementation that never changes.
	Availability Availability
	// People knows the current rights of principals. If nil, a principal has the rights that it
	// says it has, and may not act by an access token.
	People    People
	Confirm   ConfirmMode // "" means writes
	Settings  map[string]ToolSettings
	Protected Protected
	Paths     *PathRules // Protected made ready; if nil, New does it
	Rules     Rules      // may be nil
	// SkillArguments judges arguments by the skills' entries. If nil, an entry with a pattern for
	// arguments allows no call.
	SkillArguments SkillArguments
	// Layers are additional layers. They are judged after the gate's own, in order, and can only
	// narrow as well.
	Layers []Layer
	// Positions returns the FILE:LINE of a key path of the configuration, such as tools.confirm, or
	// "" if unknown. It is used for explain and the journal, never in texts for a model. If nil,
	// all positions are unknown.
	Positions func(keyPath string) string
	// Panicked logs a panic during a judgement, with its stack, under ref: verdicts have the ref only.
	// If nil, it is not logged.
	Panicked func(ref, detail string)
	// Before is a gate with similar tools, from which equal schemas are reused. If nil, all schemas
	// are compiled.
	Before *Gate
}

// New returns a gate. It fails if two tools have the same name or names that differ only in letter
// case (the error names both sources), if a spec or schema is wrong, or if the policy is
// invalid. A tool from elsewhere (MCP, bus, client) with a wrong spec or schema is not an error: it
// is unusable, and States and Explain say why.
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

// badOption returns an error about the options of a gate.
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
	offer     atomic.Pointer[Offer] // the last offer
	lists     listCache
	clients   clientSets
}

// Names returns the names of all registered tools, sorted.
func (g *Gate) Names() []string { return g.toolSet().names() }

// UnknownSettings returns the names under tools.settings that are not names of tools, sorted. They
// have no effect, and are worth a notice.
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

// position returns the position of keyPath in the configuration, or "". It never fails.
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

// foreign reports whether a tool's spec comes from elsewhere: an MCP server, the bus or a client.
func foreign(source string) bool {
	kind, _, _ := strings.Cut(source, ":")
	return kind == "mcp" || kind == "bus" || kind == "client"
}
