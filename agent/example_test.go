package agent_test

import (
	"context"
	"fmt"
	"strings"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/journal/inmemory"
	spawntool "github.com/toolcrib/toolcrib/tool/spawn"
	"github.com/toolcrib/toolcrib/toolcribtest"
)

// allOn switches no tool on or off.
type allOn struct{}

func (allOn) Overrides(context.Context) (gate.Overrides, error) { return gate.Overrides{}, nil }

// terminal is a person who denies every call.
type terminal struct{}

func (terminal) Decide(_ context.Context, _ toolcrib.RunID, ask *journal.ConfirmationRequired) (journal.ConfirmationResolved, bool, error) {
	call := ask.Calls[0]
	fmt.Printf("May the model call %s %s? no\n", call.Name, call.Arguments)
	return journal.ConfirmationResolved{Decision: journal.DecisionDeny, Reason: "not today"}, true, nil
}

// A person is asked about calls that write. What they say is bound to these calls.
func Example_approver() {
	door := toolcribtest.Writer("open_door", "open")
	model := toolcribtest.NewModel(
		toolcribtest.Ask(toolcribtest.CallOf("", "open_door", `{"door":"front"}`)),
		toolcribtest.Say("The door stays closed."))
	runner, err := agent.New(agent.Options{Tools: []toolcrib.Tool{door}, Model: model, Approver: terminal{}})
	if err != nil {
		fmt.Println(err)
		return
	}
	run, err := runner.Run(context.Background(), agent.Task{
		Principal: toolcrib.Principal{User: "ada"}, Prompt: "Open the front door.",
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(run.Answer())
	fmt.Println("doors opened:", len(door.Calls()))
	// Output:
	// May the model call open_door {"door":"front"}? no
	// The door stays closed. <nil>
	// doors opened: 0
}

// Without an Approver the run waits, without a process. Somebody decides later, and the
// run continues.
func ExampleRunner_Decide() {
	door := toolcribtest.Writer("open_door", "open")
	model := toolcribtest.NewModel(
		toolcribtest.Ask(toolcribtest.CallOf("", "open_door", `{}`)),
		toolcribtest.Say("The door is open."))
	runner, err := agent.New(agent.Options{Tools: []toolcrib.Tool{door}, Model: model})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, ada := context.Background(), toolcrib.Principal{User: "ada"}
	run, err := runner.Run(ctx, agent.Task{Principal: ada, Prompt: "Open the door."})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(run.Status)
	_, err = runner.Decide(ctx, run.Run, agent.Decision{
		ApprovalID: run.Pending.ApprovalID, Digest: run.Pending.Digest, Who: ada, Decision: journal.DecisionApprove,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	run, err = runner.Resume(ctx, run.Run)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(run.Answer())
	// Output:
	// waiting_for_approval
	// The door is open. <nil>
}

// A run without an answer says why.
func ExampleState_Answer() {
	runner, err := agent.New(agent.Options{Model: toolcribtest.NewModel(toolcribtest.Fail(toolcrib.ErrAuth))})
	if err != nil {
		fmt.Println(err)
		return
	}
	run, err := runner.Run(context.Background(), agent.Task{Prompt: "Hello."})
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = run.Answer()
	fmt.Println(toolcrib.CodeOf(err))
	// Output: provider_failed
}

// Two agents in one program: the editor gives a task to the researcher, who has a tool of
// its own. The researcher works in a run of its own, which nothing lets do more than the
// editor may.
func Example_subAgents() {
	// A real program opens models of package provider here.
	model := toolcribtest.NewModelFunc(func(_ int, req *toolcrib.Request) toolcribtest.Reply {
		last := req.Messages[len(req.Messages)-1]
		switch {
		case last.Role == toolcrib.RoleTool:
			return toolcribtest.Say("I read: " + last.Parts[0].ToolResult.Content)
		case strings.HasPrefix(req.System, "You edit"):
			return toolcribtest.Ask(toolcribtest.CallOf("", "spawn", `{"agent":"researcher","task":"How high is the Zugspitze?","tools":["height_of"]}`))
		}
		return toolcribtest.Ask(toolcribtest.CallOf("", "height_of", `{}`))
	})

	limits := toolcrib.DefaultLimits()
	agents := map[string]toolcrib.Agent{
		"editor":     {Name: "editor", System: "You edit.", Limits: limits, Budget: toolcrib.Budget{MaxRequests: 10}},
		"researcher": {Name: "researcher", System: "You look things up.", Limits: limits, Tools: []string{"height_of"}},
	}
	me := toolcrib.Principal{User: "ann"}
	taskOf := func(_ context.Context, who toolcrib.Principal, name, workspace string) (agent.Task, error) {
		a, ok := agents[name]
		if !ok {
			return agent.Task{}, fmt.Errorf("there is no agent %s", name)
		}
		return agent.Task{Agent: a, Models: []journal.ModelInfo{{Ref: "fake", ID: "fake"}}, Principal: who, Workspace: workspace}, nil
	}

	g, err := gate.New(gate.Options{
		Tools: []toolcrib.Tool{
			spawntool.New([]spawntool.Agent{{Name: "researcher", Description: "Looks things up."}}),
			toolcribtest.ReadOnly("height_of", "2962 m"),
		},
		Availability: allOn{},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	var kept inmemory.Journal
	runner, err := agent.New(agent.Options{
		Journal: &kept, Contents: &kept, Gate: g, Agents: taskOf,
		Models: func(context.Context, journal.ModelInfo) (toolcrib.Model, error) { return model, nil },
	})
	if err != nil {
		fmt.Println(err)
		return
	}

	ctx := context.Background()
	task, _ := taskOf(ctx, me, "editor", "")
	task.Prompt = "Write a line about the Zugspitze."
	run, err := runner.Run(ctx, task)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(run.Done.Content)
	fmt.Println("requests of the editor:", run.Usage.Requests, "of the researcher:", run.Children.Requests)

	call := run.Trace[0]
	child, err := runner.Load(ctx, call.Child.Run)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(call.Name, "was answered by", child.Start.Agent.Name, "at depth", child.Start.Depth)
	fmt.Println("it had", child.Start.Offer.Names(), "and called", child.Trace[0].Name)

	// Output:
	// I read: I read: 2962 m
	// requests of the editor: 2 of the researcher: 2
	// spawn was answered by researcher at depth 1
	// it had [height_of] and called height_of
}
