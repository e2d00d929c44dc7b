// Package spawn implements spawn, by which a model gives a task to another agent of the
// configuration. The tool is not executed itself: the loop starts a child run, whose answer is the
// result.
package spawn

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/tool/internal/pattern"
	"github.com/toolcrib/toolcrib/tool/internal/wire"
)

const (
	// Name is the name of the tool, Group its group.
	Name  = "spawn"
	Group = "agents"

	maxEnum = 200 // names of agents in the schema
	maxName = 128 // bytes of the name of an agent
	maxNear = 3   // names in an error
)

// Agent is an agent that a model may call.
type Agent struct {
	Name        string
	Description string // purpose of the agent, for models; may be ""
}

// New returns spawn for these agents, in any order. It leaves out agents with invalid names (empty,
// longer than 128 bytes, or with spaces, control or hidden characters), since a model could not
// repeat them, and agents whose name was already used.
func New(agents []Agent) toolcrib.Tool {
	t := &spawner{about: make(map[string]string, len(agents))}
	for _, a := range agents {
		if _, twice := t.about[a.Name]; twice || !callable(a.Name) {
			continue
		}
		t.about[a.Name] = oneLine(a.Description)
		t.names = append(t.names, a.Name)
	}
	slices.Sort(t.names)
	t.description = describe(t.names, t.about)
	t.parameters = schema(t.names)
	return t
}

// callable reports whether models can repeat the name, and people can see all of it.
func callable(name string) bool {
	return name != "" && len(name) <= maxName && utf8.ValidString(name) &&
		!strings.ContainsFunc(name, unicode.IsSpace) && guard.Visible(name) == name
}

type spawner struct {
	names       []string          // sorted
	about       map[string]string // descriptions by name
	description string
	parameters  json.RawMessage
}

type input struct {
	Agent string    `json:"agent"`
	Task  string    `json:"task"`
	Tools *[]string `json:"tools"` // nil if not given
}

// Spec implements [toolcrib.Tool]. The call itself is read-only, since each call of the child run is
// judged by itself. It is a sink, since the task is sent to another model, perhaps of another
// provider.
func (t *spawner) Spec() toolcrib.Spec {
	return toolcrib.Spec{
		Name: Name, Description: t.description, Parameters: t.parameters,
		Effect: toolcrib.EffectReadOnly, Group: Group, Source: "builtin", EnabledByDefault: true,
		AnsweredBy: toolcrib.ByAgent, Nested: true, Sink: true,
		Plans: toolcrib.PlanFacts{Targets: true, Policy: true},
	}
}

// Plan implements [toolcrib.Planner]. It refuses unknown agents, which the schema does not exclude if
// there are many.
func (t *spawner) Plan(_ context.Context, call toolcrib.Call) (*toolcrib.Plan, error) {
	var in input
	if err := wire.Decode(call.Arguments, &in); err != nil {
		return nil, err
	}
	if _, ok := t.about[in.Agent]; !ok {
		return nil, t.unknown(in.Agent)
	}
	return &toolcrib.Plan{
		Targets: []toolcrib.Target{{Kind: toolcrib.TargetAgent, Name: in.Agent}},
		Matches: func(patterns []string) (bool, error) { return pattern.Text(patterns, in.Agent), nil },
		Preview: func(context.Context) (toolcrib.Preview, error) { return t.preview(in), nil },
		Run:     t.Call,
	}, nil
}

// unknown returns the error for an unknown agent, with similar names.
func (t *spawner) unknown(name string) error {
	if len(t.names) == 0 {
		return toolcrib.Failf(toolcrib.NotFound, "there is no agent %q; no agent is configured", quotable(name))
	}
	near, which := guard.NearNames(name, t.names, maxNear), "near it are"
	if len(near) == 0 {
		near, which = t.names[:min(len(t.names), maxNear)], "there are"
		if len(t.names) > len(near) {
			near = append(slices.Clone(near), "…")
		}
	}
	return toolcrib.Failf(toolcrib.NotFound, "there is no agent %q; %s: %s", quotable(name), which,
		strings.Join(near, ", "))
}

// quotable returns a text of the model for a message, shortened and visible.
func quotable(text string) string { return guard.Visible(guard.Clip(text, 100)) }

// Call implements [toolcrib.Tool]. It is never called: the loop uses the answer of the child run
// instead.
func (t *spawner) Call(context.Context, toolcrib.Call) (toolcrib.Output, error) {
	return toolcrib.Output{}, toolcrib.Failf(toolcrib.ExecutionFailed, "a sub-agent answers this call, and none has")
}

// BadPattern returns "": any pattern can match an agent.
func (t *spawner) BadPattern(string) string { return "" }
