package toolcrib_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"os"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/provider/openai"
	"github.com/toolcrib/toolcrib/tool"
	"github.com/toolcrib/toolcrib/toolcribtest"
)

// A tool, a model and a run. Gate, limits and a journal in memory are there without
// being asked for.
func Example() {
	greet := tool.MustFunc(
		toolcrib.Spec{Name: "greet", Description: "Greet somebody.", Effect: toolcrib.EffectReadOnly},
		func(_ context.Context, _ toolcrib.Call, in greeting) (string, error) {
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

// greeting are the arguments that the model gives.
type greeting struct {
	Name string `json:"name" jsonschema:"whom to greet"`
}

// The same with a model of OpenAI.
func Example_openai() {
	// A tool is a function. The schema of its arguments comes from their type.
	greet := tool.MustFunc(
		toolcrib.Spec{Name: "greet", Description: "Greet somebody.", Effect: toolcrib.EffectReadOnly},
		func(_ context.Context, _ toolcrib.Call, in greeting) (string, error) {
			return "Hello, " + in.Name + "!", nil
		})

	model, err := openai.New(openai.Options{APIKey: os.Getenv("OPENAI_API_KEY")})
	if err != nil {
		log.Fatal(err)
	}

	runner, err := agent.New(agent.Options{
		Model: model,
		Tools: []toolcrib.Tool{greet},
	})
	if err != nil {
		log.Fatal(err)
	}

	run, err := runner.Run(context.Background(), agent.Task{
		Agent:  toolcrib.Agent{Model: "gpt-5-mini"},
		Prompt: "Greet Ada.",
	})
	if err != nil {
		log.Fatal(err)
	}

	answer, err := run.Answer()
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(answer)
}

func ExampleCodeOf() {
	err := fmt.Errorf("open run: %w", toolcrib.Errorf(toolcrib.CodeNotFound, "there is no run %q", "run_1"))
	fmt.Println(toolcrib.CodeOf(err), "-", err)
	// Output: not_found - open run: there is no run "run_1"
}

// lamp switches a lamp, or says whether it is on.
type lamp struct{ on bool }

func (l *lamp) Spec() toolcrib.Spec {
	return toolcrib.Spec{
		Name: "lamp", Description: "Switch the lamp, or read its state.", Effect: toolcrib.EffectIdempotentWrite,
		Source: "go", EnabledByDefault: true, Plans: toolcrib.PlanFacts{Effect: true, Targets: true},
		Parameters: json.RawMessage(`{"type":"object","properties":{"on":{"type":"boolean"}},"additionalProperties":false}`),
	}
}

func (l *lamp) Plan(_ context.Context, call toolcrib.Call) (*toolcrib.Plan, error) {
	var in struct{ On *bool }
	if err := json.Unmarshal(call.Arguments, &in); err != nil {
		return nil, err
	}
	plan := &toolcrib.Plan{
		Effect:  toolcrib.EffectReadOnly,
		Targets: []toolcrib.Target{{Kind: "lamp", Name: "desk", Write: in.On != nil}},
		Run: func(context.Context, toolcrib.Call) (toolcrib.Output, error) {
			if in.On != nil {
				l.on = *in.On
			}
			return toolcrib.Output{Text: fmt.Sprintf("on: %t", l.on)}, nil
		},
	}
	if in.On != nil {
		plan.Effect = toolcrib.EffectIdempotentWrite
	}
	return plan, nil
}

func (l *lamp) Call(ctx context.Context, call toolcrib.Call) (toolcrib.Output, error) {
	return toolcrib.RunPlan(ctx, l, call)
}

// A tool that reads in some calls and writes in others: the gate asks a person about the writes only.
func ExamplePlanner() {
	g, err := gate.New(gate.Options{Availability: gate.Overrides{}, Tools: []toolcrib.Tool{&lamp{}}})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, arguments := range []string{`{}`, `{"on":true}`} {
		verdict := g.Judge(context.Background(), toolcrib.Principal{User: "ada"}, gate.Scope{MaxCalls: 1},
			gate.Facts{Offered: map[string]bool{"lamp": true}},
			[]toolcrib.ToolCall{{ID: "1", Name: "lamp", Arguments: json.RawMessage(arguments)}})[0]
		fmt.Println(arguments, verdict.Decision, verdict.Effect)
	}
	// Output:
	// {} allow read_only
	// {"on":true} ask idempotent_write
}
