package cli_test

import (
	"encoding/json"
	"os"
	"regexp"
	"strconv"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"
)

// cmdJudging gives gate hook a call of another agent in the present folder, of the session
// SESSION: judging CODE TOOL INPUT FLAG…
func cmdJudging(ts *testscript.TestScript, _ bool, args []string) {
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	call, err := json.Marshal(map[string]any{
		"session_id": ts.Getenv("SESSION"), "transcript_path": "/none", "cwd": ts.MkAbs("."), "permission_mode": "default",
		"hook_event_name": "PreToolUse", "tool_name": args[1], "tool_use_id": "toolu_1",
		"tool_input": json.RawMessage(strings.ReplaceAll(args[2], "$WORK", ts.Getenv("WORK"))),
	})
	ts.Check(err)
	file := ts.MkAbs("../call.json")
	ts.Check(os.WriteFile(file, call, 0o600))
	err = ts.Exec("sh", append([]string{"-c", `exec toolcrib gate hook "$@" < ` + file, "sh"}, args[3:]...)...)
	if got := exitCode(err); got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
}

// cmdDecided wants that the last gate hook has printed a decision, and nothing else: decided
// DECISION|DECISION… [REASON]
func cmdDecided(ts *testscript.TestScript, _ bool, args []string) {
	var out struct {
		Of struct {
			Event    string `json:"hookEventName"`
			Decision string `json:"permissionDecision"`
			Reason   string `json:"permissionDecisionReason"`
		} `json:"hookSpecificOutput"`
	}
	ts.Check(json.Unmarshal([]byte(ts.ReadFile("stdout")), &out))
	if out.Of.Event != "PreToolUse" || !strings.Contains("|"+args[0]+"|", "|"+out.Of.Decision+"|") {
		ts.Fatalf("%+v", out.Of)
	}
	if len(args) > 1 && !regexp.MustCompile(args[1]).MatchString(out.Of.Reason) {
		ts.Fatalf("the reason is %q", out.Of.Reason)
	}
}
