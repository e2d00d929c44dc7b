package cli_test

import (
	"encoding/json"
	"os"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"
)

// cmdRemembered sets a variable to the ID of the one approval that standard output
// of the last command, approvals remembered list --json, lists: remembered NAME.
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

// cmdRuled adds the rules that standard output of the last command, approvals show,
// proposes to the end of a configuration: ruled FILE.
func cmdRuled(ts *testscript.TestScript, _ bool, args []string) {
	name := ts.MkAbs(args[0])
	text, err := os.ReadFile(name)
	ts.Check(err)
	for line := range strings.Lines(ts.ReadFile("stdout")) {
		if strings.HasPrefix(line, "- {name: allow_") {
			text = append(text, "  "+line...)
		}
	}
	ts.Check(os.WriteFile(name, text, 0o600))
}
