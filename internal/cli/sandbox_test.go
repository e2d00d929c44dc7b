package cli

import (
	"os"
	"strings"
	"testing"

	"github.com/toolcrib/toolcrib/internal/config"
	"github.com/toolcrib/toolcrib/tool/shell"
)

// A machine without a sandbox is told of at the start of each run, and by doctor.
func TestNoSandbox_IsSaid(t *testing.T) {
	t.Chdir(t.TempDir())
	for problem, want := range map[string]bool{"nothing here": true, "": false} {
		a := newApp(os.Stdin, os.Stdout, os.Stderr)
		var said strings.Builder
		a.err, a.beside, a.inTerminal = &said, &said, false
		a.noSandbox = func() string { return problem }
		if code := a.execute(t.Context(), []string{"run", "--data-dir", t.TempDir(), "--model", "offline/x", "Hello"}); code != 0 {
			t.Fatalf("exit %d: %s", code, said.String())
		}
		if got := strings.Contains(said.String(), "exec_shell has no sandbox (nothing here), so each of its calls asks"); got != want {
			t.Errorf("%q: said %q", problem, said.String())
		}
	}
	for _, c := range []struct {
		sandbox shell.Sandbox
		report  shell.Report
		ok      bool
		want    string
	}{
		{shell.SandboxBestEffort, shell.Report{Problem: "nothing here"}, false, "asks about every call"},
		{shell.SandboxRequired, shell.Report{Problem: "nothing here"}, false, "refuses every call"},
		{shell.SandboxBestEffort, shell.Report{Helper: true, LandlockABI: 7}, true, "without bubblewrap protected files cannot be kept"},
		{shell.SandboxRequired, shell.Report{Helper: true, LandlockABI: 7}, false, "so each such call is refused"},
		{shell.SandboxBestEffort, shell.Report{Helper: true, Bubblewrap: "/usr/bin/bwrap"}, true, "sandbox: bubblewrap (/usr/bin/bwrap)"},
	} {
		f := shellFinding(config.Shell{Mode: string(shell.ModeAllowlist), Sandbox: string(c.sandbox)}, c.report)
		if f.OK != c.ok || !strings.Contains(f.Detail+f.Fix, c.want) {
			t.Errorf("%+v: %+v", c, f)
		}
	}
}
