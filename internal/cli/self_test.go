package cli

import (
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/toolcrib/toolcrib/internal/trust"
)

// A pasted line names the same files from any folder; a shell reads each as one word.
func TestSelf(t *testing.T) {
	if got := (&app{}).self(); got != "toolcrib" {
		t.Error(got)
	}
	abs, err := filepath.Abs("it's here")
	if err != nil {
		t.Fatal(err)
	}
	a := &app{configFlag: "/etc/tool crib.yaml", dataFlag: "it's here"}
	if got, want := a.self(), `toolcrib --config '/etc/tool crib.yaml' --data-dir `+trust.ShellWord(abs); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	shell, err := exec.LookPath("sh")
	if err != nil {
		t.Skip("no sh")
	}
	for _, text := range []string{"plain/x.yaml", "a b", "it's", "$HOME `id` \"x\"", "a;b&c|d*", `back\slash`, "~", "-x", ""} {
		out, err := exec.CommandContext(t.Context(), shell, "-c", "printf %s "+trust.ShellWord(text)).Output()
		if err != nil || string(out) != text {
			t.Errorf("%q became %q, %v", text, out, err)
		}
	}
}
