package service

import (
	"cmp"
	"context"
	"encoding/json"
	"math"

	"github.com/toolcrib/toolcrib"
)

// Answering is how a run is to answer, as far as that differs from its agent.
type Answering struct {
	System          string   // is added to the agent's own
	Temperature     *float64 // nil = the agent's
	MaxOutputTokens int      // of the agent's and this the smaller counts; 0 = the agent's
	// Schema of the answer, for an agent that has none; nil = any text.
	Schema json.RawMessage
}

func (a *Answering) apply(def *toolcrib.Agent) error {
	if def.System != "" && a.System != "" {
		def.System += "\n\n"
	}
	def.System += a.System
	if a.Temperature != nil {
		def.Temperature = a.Temperature
	}
	if n := a.MaxOutputTokens; n > 0 {
		def.MaxOutputTokens = min(cmp.Or(def.MaxOutputTokens, math.MaxInt), n)
	}
	if len(a.Schema) > 0 && len(def.OutputSchema) > 0 {
		return badRequestf("the agent %s has a schema for its answers, and takes no other", def.Name)
	}
	if len(a.Schema) > 0 {
		def.OutputSchema = a.Schema
	}
	return nil
}

// RunnableAgents returns the names of the agents of which who may have a run today.
func (s *Service) RunnableAgents(ctx context.Context, who toolcrib.Principal) ([]string, error) {
	dir, err := s.OwnWorkspace(who)
	if err != nil {
		return nil, err
	}
	g, err := s.Gate(dir)
	if err != nil {
		return nil, err
	}
	names := []string{}
	for _, name := range s.Config.AgentNames() {
		refused, err := g.MayRun(ctx, who, name)
		if err != nil {
			return nil, err
		}
		if refused == "" {
			names = append(names, name)
		}
	}
	return names, nil
}
