package gate_test

import (
	"context"
	"fmt"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/toolcribtest"
)

// Explain asks the layers that decide, and says which of them refuses.
func ExampleGate_Explain() {
	g, err := gate.New(gate.Options{
		Tools:        []toolcrib.Tool{toolcribtest.ReadOnly("look", ""), toolcribtest.Writer("touch", "")},
		Availability: gate.Overrides{},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	scope := gate.Scope{Agent: "reader", AgentTools: []string{"look"}}
	for _, e := range g.Explain(context.Background(), toolcrib.Principal{User: "ada"}, scope) {
		fmt.Printf("%s: %q\n", e.Tool, e.Reason)
	}
	// Output:
	// look: ""
	// touch: "agent_allowlist"
}
