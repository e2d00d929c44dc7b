package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// FuzzGateHook gives gate hook any standard input, and any call: it ends with 0 or 2, with 0 it has
// printed nothing or one decision, with 2 it has said why.
func FuzzGateHook(f *testing.F) {
	home := f.TempDir()
	for _, name := range []string{"HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME"} {
		f.Setenv(name, home)
	}
	f.Setenv("CLAUDE_PROJECT_DIR", "")
	f.Chdir(home)
	for _, seed := range []struct{ raw, tool, input string }{
		{"", "Bash", `{"command":"ls | wc -l"}`},
		{"{}", "Bash", `{"command":"for i in $(seq 3); do rm $i; done","run_in_background":1}`},
		{"[", "Write", `{"file_path":"../a\u0000","content":"\ud800"}`},
		{`{"hook_event_name":"PreToolUse","tool_name":1,"tool_input":null,"cwd":"/"}`, "Glob", `{"pattern":"/../*"}`},
		{`{"hook_event_name":"PreToolUse","tool_name":"Read","tool_input":{},"cwd":"/proc/self/fd"}`, "mcp__a__b", `{"x":1e999}`},
		{"\xff", "Edit", `{"file_path":"","old_string":"","new_string":[]}`},
		{" ", "\u202emcp__", `[{}]`},
		{"", strings.Repeat("mcp__a__", 40), `"x"`},
		{"", "Task", `{"prompt":"[secret:x]","subagent_type":"default"}`},
	} {
		f.Add(seed.raw, seed.tool, seed.input)
	}
	f.Fuzz(func(t *testing.T, raw, tool, input string) {
		call, err := json.Marshal(map[string]any{
			"hook_event_name": hookEvent, "session_id": tool, "cwd": home, "tool_name": tool, "tool_input": json.RawMessage(input),
		})
		for _, stdin := range [][]byte{[]byte(raw), call} {
			if err == nil || len(stdin) > 0 {
				answersOneHook(t, stdin)
			}
		}
	})
}

func answersOneHook(t *testing.T, stdin []byte) {
	t.Helper()
	files := map[string]*os.File{}
	for _, name := range []string{"in", "out", "err"} {
		file, err := os.Create(filepath.Join(t.TempDir(), name))
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		files[name] = file
	}
	if _, err := files["in"].WriteAt(stdin, 0); err != nil {
		t.Fatal(err)
	}
	a := newApp(files["in"], files["out"], files["err"])
	code := a.main([]string{"gate", "hook", "--allow"})
	read := func(name string) string {
		text, err := os.ReadFile(files[name].Name())
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	out, said := read("out"), read("err")
	var decided struct {
		Specific struct {
			Event    string `json:"hookEventName"`
			Decision string `json:"permissionDecision"`
			Reason   string `json:"permissionDecisionReason"`
		} `json:"hookSpecificOutput"`
	}
	switch {
	case code == exitUsage && out == "" && strings.HasPrefix(said, "toolcrib: "):
	case code == exitOK && json.Unmarshal([]byte(out), &decided) == nil && decided.Specific.Event == hookEvent &&
		strings.Contains("allow ask deny", decided.Specific.Decision) && decided.Specific.Reason != "toolcrib: ":
	default:
		t.Errorf("%q ended with %d, %q, %q", stdin, code, out, said)
	}
}
