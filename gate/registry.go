package gate

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/guard"
)

// maxDescriptionBytes bounds the description of a tool from elsewhere.
const maxDescriptionBytes = 64 << 10

// entry is one registered tool. It never changes.
type entry struct {
	tool     toolcrib.Tool
	spec     toolcrib.Spec // as it was when registered; Parameters compact, never empty
	sum      [sha256.Size]byte
	hash     string // hex of sum
	schema   *schema
	raw      json.RawMessage // source of schema
	unusable string          // why the tool cannot be used, or ""
	// unchecked lists the places of the schema that arguments are not checked against.
	unchecked []string
	settings  ToolSettings

	// The optional interfaces, nil if the tool does not implement them.
	planner toolcrib.Planner
	finder  toolcrib.Finder
}

// toolSet is a set of tools as a gate judges with it. It never changes; each offer, turn and
// explanation uses one set.
type toolSet struct {
	byName         map[string]*entry
	sorted         []*entry // by name (C5)
	untrustedFiles bool
}

// SetTools replaces all tools of the gate at once. It fails as [New] does, and then changes
// nothing. A turn that is being judged keeps the tools that it began with.
func (g *Gate) SetTools(tools []toolcrib.Tool) error {
	byName, err := register(tools, g.options.Settings, g.toolSet().byName)
	if err != nil {
		return err
	}
	g.tools.Store(newToolSet(byName, untrustedFiles(byName)))
	return nil
}

// Absent is a tool that cannot be used now.
type Absent struct {
	Tool toolcrib.Tool
	Why  string
}

// With returns a gate that lists further tools, which cannot be used. It is for listings and
// explanations. A tool whose name the gate has is left out.
func (g *Gate) With(absent []Absent) (*Gate, error) {
	tools := make([]toolcrib.Tool, len(absent))
	for i, a := range absent {
		tools[i] = a.Tool
	}
	had := g.toolSet()
	all, err := register(tools, g.options.Settings, had.byName)
	if err != nil {
		return nil, err
	}
	for _, a := range absent {
		all[a.Tool.Spec().Name].unusable = a.Why
	}
	maps.Copy(all, had.byName)
	other := &Gate{options: g.options, protected: g.protected, layers: g.layers}
	other.tools.Store(newToolSet(all, had.untrustedFiles))
	return other, nil
}

func newToolSet(byName map[string]*entry, untrustedFiles bool) *toolSet {
	set := &toolSet{byName: byName, untrustedFiles: untrustedFiles}
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		set.sorted = append(set.sorted, byName[name])
	}
	return set
}

// toolSet returns the current tools. The set may be empty.
func (g *Gate) toolSet() *toolSet {
	if set := g.tools.Load(); set != nil {
		return set
	}
	return &toolSet{}
}

func (s *toolSet) names() []string {
	names := make([]string, len(s.sorted))
	for i, e := range s.sorted {
		names[i] = e.spec.Name
	}
	return names
}

// register indexes the tools by name.
func register(tools []toolcrib.Tool, settings map[string]ToolSettings, before map[string]*entry) (map[string]*entry,
	error,
) {
	byName := make(map[string]*entry, len(tools))
	folded := make(map[string]*entry, len(tools))
	for i, tool := range tools {
		e, err := newEntry(tool, before)
		if err != nil {
			return nil, fmt.Errorf("gate: tool %d: %w", i+1, err)
		}
		key := strings.ToLower(e.spec.Name)
		if other := folded[key]; other != nil {
			return nil, duplicate(other, e)
		}
		own, ok := settings[e.spec.Name]
		if !ok {
			own = settings[e.spec.As]
		}
		e.settings = own
		folded[key], byName[e.spec.Name] = e, e
	}
	return byName, nil
}

func duplicate(a, b *entry) error {
	text := "the tools %q from %s and %q from %s differ only in letter case: rename or remove one of them"
	if a.spec.Name == b.spec.Name {
		text = "two tools are named %[1]q, one from %[2]s, one from %[4]s: rename or remove one of them"
	}
	return badOption(text, a.spec.Name, sourceOf(a.spec), b.spec.Name, sourceOf(b.spec))
}

func sourceOf(s toolcrib.Spec) string {
	if s.Source == "" {
		return "an unnamed source"
	}
	return s.Source
}

// newEntry reads a tool's spec and compiles its schema. The texts for the model are cleaned here,
// whatever their source.
func newEntry(tool toolcrib.Tool, before map[string]*entry) (*entry, error) {
	spec, err := readSpec(tool)
	if err != nil {
		return nil, err
	}
	e := &entry{tool: tool, spec: spec}
	e.planner, _ = tool.(toolcrib.Planner)
	if !foreign(spec.Source) { // a finder is offered whatever the lists say
		e.finder, _ = tool.(toolcrib.Finder)
	}
	if err := e.compile(before[spec.Name]); err != nil {
		if !foreign(spec.Source) || spec.Name == "" {
			return nil, fmt.Errorf("%s (%s): %w", spec.Name, sourceOf(spec), err)
		}
		e.unusable = guard.Cut(guard.Clean(err.Error()), maxDetailBytes)
		e.schema, e.spec.Parameters = nil, json.RawMessage(emptySchema)
	}
	return e, nil
}

func readSpec(tool toolcrib.Tool) (spec toolcrib.Spec, err error) {
	if tool == nil {
		return spec, errors.New("is nil")
	}
	return guard.Contain(func() (toolcrib.Spec, error) { return tool.Spec(), nil })
}

func (e *entry) compile(before *entry) error {
	if err := e.spec.Check(); err != nil {
		return err
	}
	if foreign(e.spec.Source) && len(e.spec.Description) > maxDescriptionBytes {
		return fmt.Errorf("the description is longer than %d bytes", maxDescriptionBytes)
	}
	e.spec.Description = guard.Clean(e.spec.Description)
	if e.raw = bytes.Clone(e.spec.Parameters); before != nil && before.schema != nil && bytes.Equal(before.raw, e.raw) {
		e.spec.Parameters, e.schema, e.unchecked = before.spec.Parameters, before.schema, before.unchecked
		if reflect.DeepEqual(e.spec, before.spec) {
			e.sum, e.hash = before.sum, before.hash
			return nil
		}
	} else {
		parameters, compiled, unchecked, err := compileSchema(e.raw, foreign(e.spec.Source))
		if err != nil {
			return err
		}
		e.spec.Parameters, e.schema, e.unchecked = parameters, compiled, unchecked
	}
	e.sum = sha256.Sum256(encode(e.spec))
	e.hash = hex.EncodeToString(e.sum[:])
	return nil
}

// State is a tool as listings show it.
type State struct {
	Name             string          `json:"name"`
	Description      string          `json:"description"`
	Parameters       json.RawMessage `json:"parameters"`
	Source           string          `json:"source"`
	Effect           toolcrib.Effect `json:"effect"` // the worst effect of a call
	Group            string          `json:"group"`
	RequiresAdmin    bool            `json:"requires_admin"`
	Enabled          bool            `json:"enabled"` // as resolved from group, override, default
	EnabledByDefault bool            `json:"enabled_by_default"`
	Overridden       bool            `json:"overridden"` // set by an administrator for this tool
	// AllDisabled is set if all tools are switched off.
	AllDisabled bool `json:"all_disabled,omitempty"`
	// GroupDisabled is set if the tool's group is switched off.
	GroupDisabled bool `json:"group_disabled,omitempty"`
	// Unusable says why a tool from elsewhere cannot be used.
	Unusable string `json:"unusable,omitempty"`
}

// Unusable returns the tools of a source that cannot be used, each with the reason, sorted by name.
func (g *Gate) Unusable(source string) (list []string) {
	for _, e := range g.toolSet().sorted {
		if e.unusable != "" && e.spec.Source == source {
			list = append(list, e.spec.Name+": "+e.unusable)
		}
	}
	return list
}

// States returns every registered tool, sorted by name. It fails if the overrides
// cannot be read.
func (g *Gate) States(ctx context.Context) ([]State, error) {
	over, err := g.overrides(ctx)
	if err != nil {
		return nil, fmt.Errorf("gate: no states: %w", err)
	}
	p := new(policy).of(g.toolSet(), nil, nil, over, nil)
	states := make([]State, len(p.tools.sorted))
	for i, e := range p.tools.sorted {
		a := enabled(p.query(e.spec.Name, e))
		_, overridden := over.Tools[e.spec.Name]
		on, known := over.Groups[e.spec.Group]
		states[i] = State{
			Name: e.spec.Name, Description: e.spec.Description, Parameters: e.spec.Parameters,
			Source: e.spec.Source, Effect: e.spec.Effect.OrStrictest(), Group: e.spec.Group,
			RequiresAdmin: e.spec.RequiresAdmin, Enabled: a.Allowed, EnabledByDefault: e.spec.EnabledByDefault,
			Overridden: overridden, AllDisabled: over.Off, GroupDisabled: e.spec.Group != "" && known && !on,
			Unusable: e.unusable,
		}
	}
	return states, nil
}
