package cli

import (
	"context"
	"strings"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/internal/config"
	"github.com/toolcrib/toolcrib/service"
)

// subAgent prepares the run of an agent that another run starts in the middle of its
// work; several may be prepared at the same time. The task has the agent as it is
// configured, its models (m opens them from now on), its skills and the principal and
// workspace that were given; what the run is to do, how deep it is and what its parent
// leaves it is for the caller to add. Nobody is asked anything: a folder of skills that
// is not trusted is passed over. tell hears notices, one at a time and each once in a
// process. An error is made for a person; one about the name says which agents there are.
func (a *app) subAgent(ctx context.Context, c *config.Config, m *service.Models, who toolcrib.Principal, name, workspace string, tell func(string)) (agent.Task, error) {
	if err := context.Cause(ctx); err != nil {
		return agent.Task{}, err
	}
	if name == "" {
		return agent.Task{}, usagef("no agent is named; there is %s", strings.Join(c.AgentNames(), ", "))
	}
	told := func(text string) {
		a.telling.Lock()
		defer a.telling.Unlock()
		tell(text)
	}
	p, err := a.prepare(c, who, name, change{}, told)
	if err != nil {
		return agent.Task{}, err
	}
	p.models, p.workspace = m, workspace
	if err := p.open(told); err != nil {
		return agent.Task{}, err
	}
	var task agent.Task
	if err := p.fill(&task, told); err != nil {
		return agent.Task{}, err
	}
	once := a.service.Once(told)
	for _, n := range task.Notices {
		once(n.Message) // whoever watches the run above sees no events of this one
	}
	return task, nil
}
