// Command panel lets several agents work on one question: one proposes an answer, two criticise it, and
// one writes the synthesis. Each answers in a run of its own.
//
//	go run ./panel                                                            # scripts; no key, no network
//	OPENAI_API_KEY=… go run ./panel gpt-5-mini "Where do we keep sessions?"   # a real model
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/provider/openai"
	"github.com/toolcrib/toolcrib/provider/script"
	"github.com/toolcrib/toolcrib/team"
	"github.com/toolcrib/toolcrib/tool/spawn"
	"github.com/toolcrib/toolcrib/tool/verify"
)

func main() {
	id, question := "demo", "Where do we keep sessions?"
	if len(os.Args) > 2 {
		id, question = os.Args[1], os.Args[2]
	}
	if err := run(context.Background(), os.Stdout, id, question); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// members are the agents, by name: the system text of each, and its reply without a real model.
var members = map[string]struct{ system, script string }{
	"architect": {"You design systems and prefer what is simple.", `
- text: '{"role": "proposer", "summary": "Keep sessions in SQLite.", "confidence": 0.8}'
`},
	"operator": {"You run systems and think of what breaks at night.", `
- tool_calls: [{name: verify, arguments: {checks: [{kind: contains, target_text: "one file, one server", value: "one server"}]}}]
- text: '{"role": "critic", "summary": "It needs one server.", "confidence": 0.7, "ballot": "agree"}'
`},
	"sceptic": {"You look for what is wrong or not supported.", `
- text: '{"role": "critic", "summary": "Nobody has counted the sessions.", "confidence": 0.6, "ballot": "abstain"}'
`},
	"editor": {"You sum up fairly.", `
- text: '{"consensus": "SQLite, as long as there is one server.", "weighted_confidence": 0.75, "key_claims": []}'
`},
}

func run(ctx context.Context, out io.Writer, id, question string) error {
	var names []spawn.Agent
	for name := range members {
		names = append(names, spawn.Agent{Name: name})
	}
	report, state, err := team.Run(ctx, agent.Options{
		// spawn asks the agents, who may call verify.
		Tools:  append(verify.New(verify.Options{}), spawn.New(names)),
		Models: func(_ context.Context, m journal.ModelInfo) (toolcrib.Model, error) { return open(m.Provider) },
		Agents: func(_ context.Context, _ toolcrib.Principal, name, _ string) (agent.Task, error) {
			member, ok := members[name]
			if !ok {
				return agent.Task{}, fmt.Errorf("there is no agent %s", name)
			}
			return agent.Task{
				Agent:  toolcrib.Agent{Name: name, Model: id, System: member.system},
				Models: []journal.ModelInfo{{Ref: id, Provider: name, ID: id}},
			}, nil
		},
	}, agent.Task{Principal: toolcrib.Principal{User: "ada"}}, team.Request{
		Kind: team.Coordinate, Question: question, Agents: []string{"architect", "operator", "sceptic"},
		Synthesizer: "editor", WorkerTools: []string{"verify"},
	})
	if err != nil {
		return err
	}
	for _, a := range report.Answers {
		fmt.Fprintf(out, "%s (%s): %s", a.Agent, a.Role, a.Status)
		for _, c := range a.InnerCalls {
			fmt.Fprintf(out, ", %s %s", c.Name, c.Status)
		}
		fmt.Fprintln(out, " "+a.Error)
	}
	var synthesis team.Synthesis
	if err := json.Unmarshal(report.Synthesis, &synthesis); err != nil {
		_, err = state.Answer() // the error is the reason
		return err
	}
	fmt.Fprintf(out, "%s (%.0f %%)\n", synthesis.Consensus, 100*synthesis.Confidence)
	return nil
}

// open returns a model of OpenAI if there is a key, otherwise the script of the agent.
func open(name string) (toolcrib.Model, error) {
	if key := os.Getenv("OPENAI_API_KEY"); key != "" {
		return openai.New(openai.Options{APIKey: key})
	}
	return script.New(script.Options{Bytes: []byte(members[name].script)})
}
