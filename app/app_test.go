package app_test

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/app"
	"github.com/toolcrib/toolcrib/tool"
)

// own makes a tool with a name.
func own(name string) toolcrib.Tool {
	return tool.MustFunc(toolcrib.Spec{Name: name}, func(context.Context, toolcrib.Call, struct{}) (string, error) { return "", nil })
}

// TestMain makes the test binary a program with the tools that a variable names.
func TestMain(m *testing.M) {
	if names := os.Getenv("APP_TOOLS"); names != "" {
		o := app.Options{}
		for name := range strings.FieldsSeq(names) {
			if name == "nil" {
				o.Tools = append(o.Tools, nil)
				continue
			}
			o.Tools = append(o.Tools, own(name))
		}
		app.Main(o)
	}
	os.Exit(m.Run())
}

// A tool with the name of a built-in one, or of another one, is an error at the start of any command.
func TestMain_Collisions(t *testing.T) {
	for names, want := range map[string]string{
		"read_file":  "tool read_file: read_file is a built-in tool; use another name",
		"Exec_Shell": "tool Exec_Shell: exec_shell is a built-in tool",
		"mine mine":  `two tools are named "mine"`,
		"mine Mine":  "differ only in letter case",
		"nil":        "a tool of this program is nil",
		"mine":       "",
	} {
		self, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), self, "version")
		cmd.Env = append(os.Environ(), "APP_TOOLS="+names, "HOME="+t.TempDir())
		out, _ := cmd.CombinedOutput()
		code := cmd.ProcessState.ExitCode()
		if !strings.Contains(string(out), want) || (want == "") != (code == 0) || want != "" && code != 2 {
			t.Errorf("%s: exit %d, %s", names, code, out)
		}
	}
}
