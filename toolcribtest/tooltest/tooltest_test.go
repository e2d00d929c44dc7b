package tooltest_test

import (
	"context"
	"testing"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/tool"
	"github.com/toolcrib/toolcrib/toolcribtest/tooltest"
)

type pair struct {
	A int `json:"a" jsonschema:"first number"`
	B int `json:"b,omitempty" jsonschema:"second number"`
}

func add() toolcrib.Tool {
	return tool.MustFunc(
		toolcrib.Spec{Name: "add", Description: "Add two numbers.", Effect: toolcrib.EffectReadOnly},
		func(_ context.Context, _ toolcrib.Call, in pair) (int, error) {
			if in.A < 0 {
				return 0, toolcrib.Failf(toolcrib.InvalidArguments, "a is negative")
			}
			return in.A + in.B, nil
		})
}

func TestN1_FunctionConforms(t *testing.T) {
	tooltest.Run(t, add, tooltest.Cases{Calls: []tooltest.Case{
		{Name: "sum", Arguments: `{"a": 1, "b": 2}`, Check: func(t *testing.T, _ string, out toolcrib.Output) {
			if string(out.JSON) != "3" {
				t.Errorf("got %s", out.JSON)
			}
		}},
		{Name: "negative", Arguments: `{"a": -1}`, Err: toolcrib.InvalidArguments},
		{Name: "missing", Arguments: `{"b": 1}`, Invalid: true},
		{Name: "unknown", Arguments: `{"a": 1, "c": 1}`, Invalid: true},
		{Name: "type", Arguments: `{"a": "x"}`, Invalid: true, Err: toolcrib.InvalidArguments},
	}})
}

func TestN1_LongCallIsCancelled(t *testing.T) {
	started := make(chan struct{})
	tooltest.Run(t, func() toolcrib.Tool {
		return tool.MustFunc(
			toolcrib.Spec{Name: "wait", Description: "Wait.", Effect: toolcrib.EffectReadOnly},
			func(ctx context.Context, _ toolcrib.Call, in struct {
				Long bool `json:"long,omitempty"`
			},
			) (string, error) {
				if in.Long {
					close(started)
					<-ctx.Done()
				}
				return "waited", ctx.Err()
			})
	}, tooltest.Cases{
		Calls: []tooltest.Case{{Name: "short", Arguments: `{}`}},
		Long:  &tooltest.Long{Case: tooltest.Case{Arguments: `{"long": true}`}, Started: started},
	})
}
