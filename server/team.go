package server

import (
	"net/http"

	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/service"
	"github.com/toolcrib/toolcrib/team"
)

// teamRoutes returns the routes that ask several agents. begins adapts a route that starts a run.
func teamRoutes(begins func(path, summary string, r route) route) []route {
	var list []route
	for _, row := range []struct {
		kind    team.Kind
		summary string
	}{
		{team.Confer, "Ask several agents the same question"},
		{team.Coordinate, "Have one agent propose, others criticise, and one write the synthesis"},
		{team.Assess, "Have agents score an answer by a rubric"},
	} {
		list = append(list, begins("/api/"+string(row.kind), row.summary,
			send(http.MethodPost, "", "", func(c *call, b service.TeamRequest) (any, error) { return c.askTeam(row.kind, b) })))
	}
	return list
}

// askTeam starts a run of a team.
func (c *call) askTeam(kind team.Kind, b service.TeamRequest) (any, error) {
	b.Kind = kind
	workspace, err := c.Service.Policy.OwnWorkspace(c.who)
	if err != nil {
		return nil, err
	}
	return c.start(service.StartRequest{
		Agent: string(kind), Team: &b, Approve: agent.ApproveNone, Workspace: workspace,
	}, b.Detach)
}
