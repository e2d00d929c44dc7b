package team_test

import (
	"context"
	"fmt"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/team"
	"github.com/toolcrib/toolcrib/tool/spawn"
	"github.com/toolcrib/toolcrib/tool/verify"
	"github.com/toolcrib/toolcrib/toolcribtest"
)

// Two agents answer the same question side by side and vote. The second checks a claim first: it may
// call verify, since the request names it.
func Example() {
	models := map[string]toolcrib.Model{
		"ann": toolcribtest.NewModel(toolcribtest.Say(`{"answer": "One file is enough.", "ballot": "yes"}`)),
		"ben": toolcribtest.NewModel(
			toolcribtest.Ask(toolcribtest.CallOf("", "verify",
				`{"checks": [{"kind": "contains", "target_text": "SQLite is one file", "value": "one file"}]}`)),
			toolcribtest.Say(`{"answer": "As long as there is one server.", "ballot": "yes"}`)),
	}
	tools := append(verify.New(verify.Options{}), spawn.New([]spawn.Agent{{Name: "ann"}, {Name: "ben"}}))
	report, _, err := team.Run(context.Background(), agent.Options{
		Tools:  tools,
		Models: func(_ context.Context, m journal.ModelInfo) (toolcrib.Model, error) { return models[m.Provider], nil },
		Agents: func(_ context.Context, _ toolcrib.Principal, name, _ string) (agent.Task, error) {
			if models[name] == nil {
				return agent.Task{}, fmt.Errorf("there is no agent %s", name)
			}
			return agent.Task{
				Agent:  toolcrib.Agent{Name: name, Model: name},
				Models: []journal.ModelInfo{{Ref: name, Provider: name, ID: name}},
			}, nil
		},
	}, agent.Task{Principal: toolcrib.Principal{User: "ada"}}, team.Request{
		Kind: team.Confer, Question: "Do we keep sessions in SQLite?", Agents: []string{"ann", "ben"},
		WorkerTools: []string{"verify"}, Ballot: true,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, a := range report.Answers {
		fmt.Println(a.Agent, a.Ballot, a.InnerCalls)
	}
	fmt.Println(report.Ballots)
	// Output:
	// ann yes []
	// ben yes [{1 verify ok }]
	// map[yes:2]
}
