package guard_test

import (
	"fmt"

	"github.com/toolcrib/toolcrib/guard"
)

// Arguments that two readers could read differently are rejected.
func ExampleArguments() {
	for _, raw := range []string{`{"b":1, "a":"x"}`, `{"path":"a","path":"b"}`} {
		canonical, err := guard.Arguments([]byte(raw))
		fmt.Println(string(canonical), err != nil)
	}
	// Output:
	// {"a":"x","b":1} false
	//  true
}

// Hidden characters are shown before a person decides.
func ExampleVisible() {
	fmt.Println(guard.Visible("rm \u202egpj.tac"))
	// Output: rm [U+202E]gpj.tac
}
