// Command approve asks on the terminal before a call writes.
//
//	go run ./approve                                                          # a scripted model; no key, no network
//	OPENAI_API_KEY=… go run ./approve gpt-5-mini "Refund order 17 by 20 EUR." # a real one
package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/provider/openai"
	"github.com/toolcrib/toolcrib/provider/script"
	"github.com/toolcrib/toolcrib/tool"
)

func main() {
	id, prompt := "demo", "Refund order 17."
	if len(os.Args) > 2 {
		id, prompt = os.Args[1], os.Args[2]
	}
	if err := run(context.Background(), os.Stdin, os.Stdout, id, prompt); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// terminal is a person at a terminal.
type terminal struct {
	in  *bufio.Reader
	out io.Writer
}

// Decide shows the calls, and returns the decision. It applies to these calls with these arguments only. Without an
// answer the run waits.
func (t terminal) Decide(
	_ context.Context, _ toolcrib.RunID, ask *journal.ConfirmationRequired,
) (decision journal.ConfirmationResolved, ok bool, err error) {
	for _, call := range ask.Calls {
		fmt.Fprintln(t.out, call.Name, guard.Visible(string(call.Arguments)))
	}
	fmt.Fprint(t.out, "May it? (y/n, or why not) ")
	answer, err := t.in.ReadString('\n')
	switch answer = strings.TrimSpace(answer); {
	case err != nil:
		return decision, false, nil
	case answer == "y":
		decision.Decision = journal.DecisionApprove
	default:
		decision.Decision, decision.Reason = journal.DecisionDeny, answer
	}
	return decision, true, nil
}

func run(ctx context.Context, in io.Reader, out io.Writer, id, prompt string) error {
	// A tool without an Effect writes, and must not be repeated.
	refund := tool.MustFunc(
		toolcrib.Spec{Name: "refund", Description: "Refund an order, in EUR."},
		func(_ context.Context, _ toolcrib.Call, in struct {
			Order  int     `json:"order"`
			Amount float64 `json:"amount"`
		},
		) (string, error) {
			fmt.Fprintf(out, "refunded %.2f EUR of order %d\n", in.Amount, in.Order)
			return "done", nil
		})
	model, err := open()
	if err != nil {
		return err
	}
	runner, err := agent.New(agent.Options{
		Tools: []toolcrib.Tool{refund}, Model: model, Approver: terminal{bufio.NewReader(in), out},
	})
	if err != nil {
		return err
	}
	// An approval needs a person, so the run has a user.
	s, err := runner.Run(ctx, agent.Task{
		Agent: toolcrib.Agent{Model: id}, Principal: toolcrib.Principal{User: "ada"}, Prompt: prompt,
	})
	if err != nil {
		return err
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
- tool_calls: [{name: refund, arguments: {order: 17, amount: 2000}}]
- tool_calls: [{name: refund, arguments: {order: 17, amount: 20}}]
- text: Order 17 is refunded.
`)})
}
