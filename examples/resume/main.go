// Command resume keeps its runs in SQLite. Kill it in the middle, start it again, and the run continues: what was
// measured is not measured again.
//
//	go run ./resume data                                              # a scripted model; no key, no network
//	OPENAI_API_KEY=… go run ./resume data gpt-5-mini "Measure Oslo."  # a real one
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/provider/openai"
	"github.com/toolcrib/toolcrib/provider/script"
	"github.com/toolcrib/toolcrib/store"
	"github.com/toolcrib/toolcrib/store/sqlite"
	"github.com/toolcrib/toolcrib/tool"
)

func main() {
	dir, id, prompt := "data", "demo", "How warm is it in Oslo, Bergen and Tromsø?"
	if len(os.Args) > 1 {
		dir = os.Args[1]
	}
	if len(os.Args) > 3 {
		id, prompt = os.Args[2], os.Args[3]
	}
	if err := run(context.Background(), os.Stdout, dir, id, prompt); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer, dir, id, prompt string) error {
	// The store keeps events and contents, each with its hash, sealed with a key beside the database.
	kept, err := sqlite.Open(ctx, filepath.Join(dir, "toolcrib.db"), sqlite.Options{})
	if err != nil {
		return err
	}
	defer kept.Close()
	model, err := open()
	if err != nil {
		return err
	}
	runner, err := agent.New(agent.Options{
		Tools: []toolcrib.Tool{thermometer(out)}, Model: model, Journal: kept, Contents: kept,
	})
	if err != nil {
		return err
	}

	// A run that was cut off has not ended. It continues from its last event.
	cutOff, err := kept.Runs(ctx, store.Filter{Status: []toolcrib.Status{toolcrib.StatusRunning}, Limit: 1})
	if err != nil {
		return err
	}
	var s *agent.State
	if len(cutOff.Runs) > 0 {
		fmt.Fprintln(out, "continues", cutOff.Runs[0].ID)
		s, err = runner.Resume(ctx, cutOff.Runs[0].ID)
	} else {
		s, err = runner.Run(ctx, agent.Task{Agent: toolcrib.Agent{Model: id}, Prompt: prompt})
	}
	if err != nil {
		return err
	}
	answer, err := s.Answer()
	fmt.Fprintln(out, answer)
	return err
}

// thermometer takes a second for each town. It only reads, so a measurement that was cut off is made again. One that
// was finished is in the journal. A tool that writes would not run again: a person would be asked what happened.
func thermometer(out io.Writer) toolcrib.Tool {
	return tool.MustFunc(
		toolcrib.Spec{Name: "measure", Description: "Measure the temperature in a town.", Effect: toolcrib.EffectReadOnly},
		func(ctx context.Context, _ toolcrib.Call, in struct {
			Town string `json:"town"`
		},
		) (string, error) {
			fmt.Fprintln(out, "measuring in", in.Town)
			select {
			case <-time.After(time.Second):
				return "4 °C", nil
			case <-ctx.Done():
				return "", context.Cause(ctx)
			}
		})
}

// open returns a model of OpenAI if there is a key, otherwise a script.
func open() (toolcrib.Model, error) {
	if key := os.Getenv("OPENAI_API_KEY"); key != "" {
		return openai.New(openai.Options{APIKey: key})
	}
	return script.New(script.Options{Bytes: []byte(`
- tool_calls: [{name: measure, arguments: {town: Oslo}}]
- tool_calls: [{name: measure, arguments: {town: Bergen}}]
- tool_calls: [{name: measure, arguments: {town: Tromsø}}]
- text: It is 4 °C in all of them.
`)})
}
