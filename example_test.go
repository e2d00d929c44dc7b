package toolcrib_test

import (
	"context"
	"fmt"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/tool"
	"github.com/toolcrib/toolcrib/toolcribtest"
)

// A tool, a model and a run. Gate, limits and a journal in memory are there without
// being asked for.
func Example() {
	greet := tool.MustFunc(
		toolcrib.Spec{Name: "greet", Description: "Greet somebody.", Effect: toolcrib.EffectReadOnly},
		func(_ context.Context, _ toolcrib.Call, in struct {
			Name string `json:"name"`
		},
		) (string, error) {
			return "Hello, " + in.Name + "!", nil
		})
	// A real program opens a model of package provider here.
	model := toolcribtest.NewModel(
		toolcribtest.Ask(toolcribtest.CallOf("", "greet", `{"name":"Ada"}`)),
		toolcribtest.Say("Ada is greeted."))

	runner, err := agent.New(agent.Options{Tools: []toolcrib.Tool{greet}, Model: model})
	if err != nil {
		fmt.Println(err)
		return
	}
	run, err := runner.Run(context.Background(), agent.Task{Prompt: "Greet Ada."})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(run.Answer())
	fmt.Println(run.Trace[0].Name, run.Trace[0].Result.Content)
	// Output:
	// Ada is greeted. <nil>
	// greet Hello, Ada!
}

func ExampleCodeOf() {
	err := fmt.Errorf("open run: %w", toolcrib.Errorf(toolcrib.CodeNotFound, "there is no run %q", "run_1"))
	fmt.Println(toolcrib.CodeOf(err), "-", err)
	// Output: not_found - open run: there is no run "run_1"
}
