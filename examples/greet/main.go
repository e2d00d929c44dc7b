// Command greet uses toolcrib as a library: a Go function as a tool, a model, a run.
//
//	go run ./greet                                                     # a scripted model; no key, no network
//	OPENAI_API_KEY=… go run ./greet gpt-5-mini "Greet Ada and Grace."  # a real one
package main

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/provider/openai"
	"github.com/toolcrib/toolcrib/provider/script"
	"github.com/toolcrib/toolcrib/tool"
)

func main() {
	id, prompt := "demo", "Greet Ada and Grace."
	if len(os.Args) > 2 {
		id, prompt = os.Args[1], os.Args[2]
	}
	if err := run(context.Background(), os.Stdout, id, prompt); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// greeting is the input that the model gives; its JSON Schema is derived from the struct.
type greeting struct {
	Name string `json:"name" jsonschema:"whom to greet"`
}

func run(ctx context.Context, out io.Writer, id, prompt string) error {
	greet := tool.MustFunc(
		toolcrib.Spec{Name: "greet", Description: "Greet somebody by name.", Effect: toolcrib.EffectReadOnly},
		func(_ context.Context, _ toolcrib.Call, in greeting) (string, error) {
			return "Hello, " + in.Name + "!", nil
		})
	model, err := open()
	if err != nil {
		return err
	}
	// With a gate, limits and a journal in memory; Options has further settings.
	runner, err := agent.New(agent.Options{Tools: []toolcrib.Tool{greet}, Model: model})
	if err != nil {
		return err
	}
	s, err := runner.Run(ctx, agent.Task{Agent: toolcrib.Agent{Model: id}, Prompt: prompt})
	if err != nil {
		return err
	}
	for _, call := range s.Trace {
		fmt.Fprintln(out, call.Name, call.Result.Content)
	}
	answer, err := s.Answer()
	fmt.Fprintln(out, answer)
	return err
}

// open returns a model of OpenAI if there is a key, otherwise a script.
func open() (toolcrib.Model, error) {
	if key := os.Getenv("OPENAI_API_KEY"); key != "" {
		return openai.New(openai.Options{APIKey: key})
	}
	return script.New(script.Options{Bytes: []byte(`
- tool_calls:
    - {name: greet, arguments: {name: Ada}}
    - {name: greet, arguments: {name: Grace}}
- text: Both are greeted.
`)})
}
