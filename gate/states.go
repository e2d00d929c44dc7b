package gate

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/toolcrib/toolcrib"
)

// State is a tool as listings show it (A3).
type State struct {
	Name             string          `json:"name"`
	Description      string          `json:"description"`
	Parameters       json.RawMessage `json:"parameters"`
	Source           string          `json:"source"`
	Effect           toolcrib.Effect `json:"effect"` // the worst that a call may do
	Group            string          `json:"group"`
	RequiresAdmin    bool            `json:"requires_admin"`
	Enabled          bool            `json:"enabled"` // in effect: group, override, default
	EnabledByDefault bool            `json:"enabled_by_default"`
	Overridden       bool            `json:"overridden"` // an administrator has decided about this tool
	// AllDisabled is set if all tools are switched off.
	AllDisabled bool `json:"all_disabled,omitempty"`
	// GroupDisabled is set if the tool's group is switched off.
	GroupDisabled bool `json:"group_disabled,omitempty"`
	// Unusable says why a tool from elsewhere can not be used.
	Unusable string `json:"unusable,omitempty"`
}

// States returns every registered tool, sorted by name. It fails if the overrides
// can not be read.
func (g *Gate) States(ctx context.Context) ([]State, error) {
	over, err := g.overrides(ctx)
	if err != nil {
		return nil, fmt.Errorf("gate: no states: %w", err)
	}
	p := newPolicy(g.toolSet(), nil, nil, over, nil)
	states := make([]State, len(p.tools.sorted))
	for i, e := range p.tools.sorted {
		a := enabled{}.Judge(p.query(e.spec.Name))
		_, overridden := over.Tools[e.spec.Name]
		on, known := over.Groups[e.spec.Group]
		states[i] = State{
			Name: e.spec.Name, Description: e.spec.Description, Parameters: e.spec.Parameters,
			Source: e.spec.Source, Effect: e.spec.Effect.OrStrictest(), Group: e.spec.Group,
			RequiresAdmin: e.spec.RequiresAdmin, Enabled: a.Allowed, EnabledByDefault: e.spec.EnabledByDefault,
			Overridden: overridden, AllDisabled: over.Off, GroupDisabled: e.spec.Group != "" && known && !on, Unusable: e.unusable,
		}
	}
	return states, nil
}
