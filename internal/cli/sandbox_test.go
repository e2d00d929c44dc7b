package cli

import (
	"os"
	"strings"
	"testing"
)

// Each run says at its start if the machine has no sandbox.
func TestNoSandbox_IsSaid(t *testing.T) {
	t.Chdir(t.TempDir())
	for problem, want := range map[string]bool{"nothing here": true, "": false} {
		a := newApp(os.Stdin, os.Stdout, os.Stderr)
		var said strings.Builder
		a.err, a.noticeTo, a.inTerminal = &said, &said, false
		a.noSandbox = func() string { return problem }
		if code := a.execute(t.Context(), []string{"run", "--data-dir", t.TempDir(), "--model", "offline/x", "Hello"}); code != 0 {
			t.Fatalf("exit %d: %s", code, said.String())
		}
		if got := strings.Contains(said.String(), "exec_shell has no sandbox (nothing here), so each of its calls asks"); got != want {
			t.Errorf("%q: said %q", problem, said.String())
		}
	}
}
