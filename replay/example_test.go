package replay_test

import (
	"context"
	"fmt"

	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/journal/inmemory"
	"github.com/toolcrib/toolcrib/replay"
	"github.com/toolcrib/toolcrib/toolcribtest"
)

// A stored run is gone through again, without asking a model or calling a tool.
func ExampleRun() {
	var kept inmemory.Journal
	runner, err := agent.New(agent.Options{
		Journal: &kept, Contents: &kept, Model: toolcribtest.NewModel(toolcribtest.Say("Hello.")),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	run, err := runner.Run(ctx, agent.Task{Prompt: "Say hello."})
	if err != nil {
		fmt.Println(err)
		return
	}
	report, err := replay.Run(ctx, &kept, run.Run)
	fmt.Println(report.Status, report.Requests, err)
	// Output: completed 1 <nil>
}
