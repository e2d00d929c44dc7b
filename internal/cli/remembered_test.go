package cli_test

import (
	"encoding/json"

	"github.com/rogpeppe/go-internal/testscript"
)

// cmdRemembered sets a variable to the ID of the one approval that standard output
// of the last command, approvals remembered list --json, tells of: remembered NAME.
func cmdRemembered(ts *testscript.TestScript, _ bool, args []string) {
	var list []struct {
		ID string `json:"id"`
	}
	ts.Check(json.Unmarshal([]byte(ts.ReadFile("stdout")), &list))
	if len(list) != 1 {
		ts.Fatalf("%d approvals are remembered, not 1", len(list))
	}
	ts.Setenv(args[0], list[0].ID)
}
