package service

import (
	"encoding/json"
	"slices"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/internal/config"
)

// Agent is an agent in the words of the configuration, with defaults filled in and secrets
// masked.
type Agent struct {
	Name     string
	Position string // where it is configured; default = nowhere
	config.Agent
}

// MarshalJSON writes the name and the position before the keys of the configuration.
func (a Agent) MarshalJSON() ([]byte, error) {
	head, err := json.Marshal(map[string]string{"name": a.Name, "position": a.Position})
	if err != nil {
		return nil, err
	}
	return slices.Concat(head[:len(head)-1], []byte{','}, config.ShowJSON(a.Agent)[1:]), nil
}

// Agents returns the agents of the configuration, by their names. They are no secret of
// anybody who is known here.
func (s *Service) Agents(who toolcrib.Principal) ([]Agent, error) {
	if err := somebody(who); err != nil {
		return nil, err
	}
	names := s.Config.AgentNames()
	list := make([]Agent, len(names))
	for i, name := range names {
		list[i] = Agent{name, s.Config.Position(config.JoinKey("agents", name)), s.Config.Agents[name]}
		if list[i].Model == "" {
			list[i].Model = s.Config.Agents[config.DefaultAgent].Model
		}
	}
	return list, nil
}
