// Command converse is a conversation: each line is a run, which has the transcript of the runs before.
//
//	go run ./converse                                # a scripted model; no key, no network
//	OPENAI_API_KEY=… go run ./converse gpt-5-mini    # a real one
package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/provider/openai"
	"github.com/toolcrib/toolcrib/provider/script"
)

func main() {
	id := "demo"
	if len(os.Args) > 1 {
		id = os.Args[1]
	}
	if err := run(context.Background(), os.Stdin, os.Stdout, id); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, in io.Reader, out io.Writer, id string) error {
	model, err := open()
	if err != nil {
		return err
	}
	runner, err := agent.New(agent.Options{Model: model})
	if err != nil {
		return err
	}
	var last *agent.State
	for lines := bufio.NewScanner(in); lines.Scan(); {
		task := agent.Task{Agent: toolcrib.Agent{Model: id, System: "Be brief."}, Prompt: lines.Text()}
		if last != nil {
			task.After(last)
		}
		if last, err = runner.Run(ctx, task); err != nil {
			return err
		}
		answer, err := last.Answer()
		if err != nil {
			return err
		}
		fmt.Fprintln(out, answer)
	}
	return nil
}

// open returns a model of OpenAI if there is a key, otherwise a script, whose replies are those to the first and second
// message of a conversation.
func open() (toolcrib.Model, error) {
	if key := os.Getenv("OPENAI_API_KEY"); key != "" {
		return openai.New(openai.Options{APIKey: key})
	}
	return script.New(script.Options{Bytes: []byte(`
- text: Hello, Ada.
- text: Your name is Ada.
`)})
}
