package tool_test

import (
	"context"
	"fmt"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/tool"
)

// The schema is inferred from the struct. An error of [toolcrib.Failf] is for the
// model; the text of any other error stays with the operator.
func ExampleFunc() {
	type query struct {
		City string `json:"city" jsonschema:"where"`
	}
	weather, err := tool.Func(
		toolcrib.Spec{Name: "weather", Effect: toolcrib.EffectReadOnly},
		func(_ context.Context, _ toolcrib.Call, in query) (map[string]int, error) {
			if in.City != "Oslo" {
				return nil, toolcrib.Failf(toolcrib.ToolNotFound, "%s", in.City)
			}
			return map[string]int{"celsius": -3}, nil
		})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(string(weather.Spec().Parameters))
	for _, arguments := range []string{`{"city":"Oslo"}`, `{"city":"Atlantis"}`} {
		out, err := weather.Call(context.Background(), toolcrib.Call{Arguments: []byte(arguments)})
		fmt.Println(string(out.JSON), err)
	}
	// Output:
	// {"type":"object","properties":{"city":{"type":"string","description":"where"}},"required":["city"],"additionalProperties":false}
	// {"celsius":-3} <nil>
	//  tool not found: Atlantis
}
