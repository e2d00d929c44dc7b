package celrule_test

import (
	"fmt"

	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/gate/celrule"
)

// A condition that cannot be meant is found when it is loaded, with its place.
func ExampleNew() {
	_, err := celrule.New([]celrule.Rule{{
		Name: "pushes", Tools: []string{"exec_shell"}, When: `args.command.startsWith(1)`, Then: gate.RuleAsk,
		Position: "toolcrib.yaml:3",
	}}, celrule.Options{})
	fmt.Println(err != nil)
	set, err := celrule.New([]celrule.Rule{{
		Name: "pushes", Tools: []string{"exec_shell"}, When: `args.command.startsWith("git push")`, Then: gate.RuleAsk,
	}}, celrule.Options{})
	fmt.Println(set != nil, err)
	// Output:
	// true
	// true <nil>
}
