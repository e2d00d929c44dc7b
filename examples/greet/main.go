// Command greet is toolcrib as a library: one Go function as a tool, a model, a
// gate and a journal.
//
//	go run ./greet            # a scripted model; no key, no network
//	OPENAI_API_KEY=… go run ./greet gpt-5-mini "Greet Ada and Grace."
package main

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/provider/openai"
	"github.com/toolcrib/toolcrib/provider/script"
	"github.com/toolcrib/toolcrib/provider/wire"
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

// greeting is what the model gives; its JSON Schema is made from the struct.
type greeting struct {
	Name string `json:"name" jsonschema:"whom to greet"`
}

func run(ctx context.Context, out io.Writer, id, prompt string) error {
	greet, err := tool.Func(toolcrib.Spec{
		Name: "greet", Description: "Greet somebody by name.", Effect: toolcrib.EffectReadOnly,
	}, func(_ context.Context, _ toolcrib.Call, in greeting) (string, error) {
		return "Hello, " + in.Name + "!", nil
	})
	if err != nil {
		return err
	}
	// gate.Overrides{} is the answer "nobody switched a tool on or off".
	g, err := gate.New(gate.Options{Tools: []toolcrib.Tool{greet}, Availability: gate.Overrides{}})
	if err != nil {
		return err
	}
	model, err := open()
	if err != nil {
		return err
	}
	var kept journal.Memory // sqlite.Open gives one that outlives the program
	runner, err := agent.New(agent.Options{
		Journal: &kept, Contents: &kept, Gate: g,
		Models: func(context.Context, journal.ModelInfo) (toolcrib.Model, error) { return model, nil },
		Watch: func(_ toolcrib.RunID, f journal.Frame) {
			if f.Event == string(journal.KindToolResult) {
				fmt.Fprintf(out, "event %d: %s\n", f.Seq, f.Event)
			}
		},
	})
	if err != nil {
		return err
	}
	s, err := runner.Run(ctx, agent.Task{
		Agent:     toolcrib.Agent{Name: "greeter", Model: id, Limits: toolcrib.DefaultLimits()},
		Models:    []journal.ModelInfo{{Ref: id, Provider: "openai", ID: id}},
		Principal: toolcrib.Principal{User: "example"},
		Prompt:    prompt,
	})
	if err != nil {
		return err
	}
	if s.Failed != nil {
		return fmt.Errorf("%s: %s", s.Failed.Code, s.Failed.Message)
	}
	for _, c := range s.Trace {
		fmt.Fprintf(out, "%s %s -> %s\n", c.Name, c.Arguments, c.Result.Content)
	}
	fmt.Fprintln(out, s.Done.Content)
	return nil
}

// open takes OpenAI if there is a key, else a script.
func open() (toolcrib.Model, error) {
	if key := os.Getenv("OPENAI_API_KEY"); key != "" {
		return openai.New(openai.Options{Options: wire.Options{APIKey: key}})
	}
	return script.New(script.Options{Name: "demo", Bytes: []byte(`
- tool_calls:
    - {name: greet, arguments: {name: Ada}}
    - {name: greet, arguments: {name: Grace}}
- text: Both are greeted.
`)})
}
