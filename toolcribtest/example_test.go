package toolcribtest_test

import (
	"context"
	"fmt"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/toolcribtest"
)

// A model that says what it is told to keeps the requests that it was sent.
func ExampleModel() {
	model := toolcribtest.NewModel(toolcribtest.Say("Four."))
	runner, err := agent.New(agent.Options{Model: model, Tools: []toolcrib.Tool{toolcribtest.ReadOnly("add", "4")}})
	if err != nil {
		fmt.Println(err)
		return
	}
	if _, err := runner.Run(context.Background(), agent.Task{Prompt: "What is 2 + 2?"}); err != nil {
		fmt.Println(err)
		return
	}
	request := model.Requests()[0]
	fmt.Println(request.Messages[0].Text(), request.Tools[0].Name)
	// Output: What is 2 + 2? add
}
