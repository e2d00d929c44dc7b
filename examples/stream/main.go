// Command stream shows an answer while the model writes it, and the calls that it makes.
//
//	go run ./stream                                                   # a scripted model; no key, no network
//	OPENAI_API_KEY=… go run ./stream gpt-5-mini "What time is it?"    # a real one
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/provider/openai"
	"github.com/toolcrib/toolcrib/provider/script"
	"github.com/toolcrib/toolcrib/tool"
)

func main() {
	id, prompt := "demo", "What time is it?"
	if len(os.Args) > 2 {
		id, prompt = os.Args[1], os.Args[2]
	}
	if err := run(context.Background(), os.Stdout, time.Now, id, prompt); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// show returns a function that prints what happens in a run. Events have a number and are in the journal; the pieces of
// a reply are live only.
func show(out io.Writer) func(toolcrib.RunID, journal.Frame) {
	return func(_ toolcrib.RunID, f journal.Frame) {
		switch data := f.Data.(type) {
		case journal.TextView:
			if f.Event == journal.FrameToken {
				fmt.Fprint(out, data.Text)
			}
		case journal.CallView:
			fmt.Fprintf(out, "[%s %s]\n", data.Name, data.Arguments)
		case journal.DoneView:
			fmt.Fprintln(out)
		}
	}
}

func run(ctx context.Context, out io.Writer, now func() time.Time, id, prompt string) error {
	clock := tool.MustFunc(
		toolcrib.Spec{Name: "clock", Description: "Tell the time.", Effect: toolcrib.EffectReadOnly},
		func(context.Context, toolcrib.Call, struct{}) (string, error) {
			return now().Format(time.TimeOnly), nil
		})
	model, err := open()
	if err != nil {
		return err
	}
	runner, err := agent.New(agent.Options{Tools: []toolcrib.Tool{clock}, Model: model, Watch: show(out)})
	if err != nil {
		return err
	}
	s, err := runner.Run(ctx, agent.Task{Agent: toolcrib.Agent{Model: id}, Prompt: prompt})
	if err != nil {
		return err
	}
	_, err = s.Answer() // it was shown
	return err
}

// open returns a model of OpenAI if there is a key, otherwise a script.
func open() (toolcrib.Model, error) {
	if key := os.Getenv("OPENAI_API_KEY"); key != "" {
		return openai.New(openai.Options{APIKey: key})
	}
	return script.New(script.Options{Bytes: []byte(`
- {text: "Let me see. ", tool_calls: [{name: clock, arguments: {}}]}
- text: It is noon.
`)})
}
