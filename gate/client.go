package gate

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"

	"github.com/toolcrib/toolcrib"
)

// A client tool ([toolcrib.ByClient]) comes with the run that may call it: its spec is in the
// [Scope]. It is judged like any other tool, but not executed here.

// clientTool makes a tool of a spec.
type clientTool struct{ spec toolcrib.Spec }

func (t clientTool) Spec() toolcrib.Spec { return t.spec }

func (clientTool) Call(context.Context, toolcrib.Call) (toolcrib.Output, error) {
	return toolcrib.Output{}, ErrAnsweredElsewhere
}

// CheckClientTool returns an error if spec cannot be a client tool of any run. A keyword of its
// schema that cannot be checked is not an error, unless it is the type of the root.
func CheckClientTool(spec toolcrib.Spec) error {
	e, err := newEntry(clientTool{spec}, nil)
	switch {
	case err != nil:
		return err
	case e.unusable != "":
		return errors.New(e.unusable)
	case slices.Contains(e.unchecked, "/"), slices.Contains(e.unchecked, "/type"):
		return errors.New(`parameters: must be a JSON Schema whose type is "object"`)
	}
	return nil
}

// clientSets caches the client tools of runs. A gate has few runs.
type clientSets struct {
	mu   sync.Mutex
	sets []clientSet
}

type clientSet struct {
	specs  []toolcrib.Spec // from the first event of a run, so they never change
	byName map[string]*entry
}

const maxClientSets = 16

// of returns the tools of specs by name. It returns none if one of them cannot be registered.
func (c *clientSets) of(specs []toolcrib.Spec, settings map[string]ToolSettings) map[string]*entry {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, set := range c.sets {
		if len(set.specs) == len(specs) && &set.specs[0] == &specs[0] {
			return set.byName
		}
	}
	tools := make([]toolcrib.Tool, len(specs))
	for i, spec := range specs {
		tools[i] = clientTool{spec}
	}
	byName, err := register(tools, settings, nil)
	if err != nil {
		byName = nil
	}
	if len(c.sets) >= maxClientSets {
		c.sets = nil
	}
	c.sets = append(c.sets, clientSet{specs, byName})
	return byName
}

// toolsOf returns the tools of a run: those of the gate, and those of its client. If both have a
// tool of the same name, ignoring case, the client's tool replaces the other in this run.
func (g *Gate) toolsOf(scope *Scope) *toolSet {
	all := g.toolSet()
	if scope == nil || len(scope.ClientTools) == 0 {
		return all
	}
	own := g.clients.of(scope.ClientTools, g.options.Settings)
	taken, byName := make(map[string]bool, len(own)), make(map[string]*entry, len(all.byName)+len(own))
	for name, e := range own {
		taken[strings.ToLower(name)], byName[name] = true, e
	}
	for name, e := range all.byName {
		if !taken[strings.ToLower(name)] {
			byName[name] = e
		}
	}
	return newToolSet(byName, all.untrustedFiles)
}

// byClient reports whether the client of the run carries out calls of the tool.
func (e *entry) byClient() bool { return e.spec.AnsweredBy == toolcrib.ByClient }

// clientSource is the prefix of sources of untrusted data that come from the client of a run.
const clientSource = "client:"

// ClientSource returns the source of untrusted data for the results of a client's tool.
func ClientSource(tool string) string { return clientSource + tool }

// Source removes the prefix of [ClientSource] from the name of a source of untrusted data, so that
// no other source has it.
func Source(name string) string {
	for strings.HasPrefix(name, clientSource) {
		name = name[len(clientSource):]
	}
	return name
}

// ofOthers returns the sources of untrusted data other than the client. Returning data to the
// client it came from does not carry it out.
func ofOthers(taint []string) []string {
	return slices.DeleteFunc(slices.Clone(taint), func(source string) bool {
		return strings.HasPrefix(source, clientSource)
	})
}
