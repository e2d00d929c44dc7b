package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestMain makes the test binary the program if it is called as that.
func TestMain(m *testing.M) {
	if os.Getenv("OWNTOOLS") != "" {
		main()
	}
	// The copies that keep programs in their sandbox have no variables.
	os.Exit(m.Run())
}

// TestOwnTools shows that the tool is listed, gated, run and journaled like a built-in one.
func TestOwnTools(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"toolcrib.yaml": "data_dir: data\nproviders: {s: {type: script, file: script.yaml}}\nagents: {default: {model: s/x}, none: {model: s/x, tools: []}}\n",
		"script.yaml":   "- tool_calls: [{name: miles, arguments: {kilometers: 42.195}}]\n- text: Twenty-six.\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	run := func(code int, args ...string) string {
		t.Helper()
		self, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), self, append([]string{"--config", "toolcrib.yaml"}, args...)...)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "OWNTOOLS=1", "HOME="+dir)
		out, err := cmd.Output()
		if cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != code {
			t.Fatalf("%v: %v\n%s", args, err, out)
		}
		return string(out)
	}
	var tools []struct{ Name, Source, Effect string }
	if err := json.Unmarshal([]byte(run(0, "tools", "list", "--json")), &tools); err != nil {
		t.Fatal(err)
	}
	listed := false
	for _, tool := range tools {
		listed = listed || tool.Name == "miles" && tool.Source == "go" && tool.Effect == "read_only"
	}
	if !listed {
		t.Errorf("miles is not listed: %v", tools)
	}
	if out := run(0, "run", "How far?"); !strings.Contains(out, "Twenty-six.") {
		t.Error(out)
	}
	if out := run(0, "runs", "events", "last", "--json"); !strings.Contains(out, "26.21875") {
		t.Error(out)
	}
	if out := run(5, "tools", "call", "miles", "--agent", "none", "--args", `{"kilometers":1}`); !strings.Contains(out, "agent_allowlist") {
		t.Error(out)
	}
	if out := run(5, "tools", "call", "miles", "--args", `{"miles":1}`); !strings.Contains(out, "invalid_arguments") {
		t.Error(out)
	}
}
