package doctor

import (
	"context"
	"strings"
	"testing"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/internal/config"
	"github.com/toolcrib/toolcrib/tool/shell"
)

// doctor reports a machine without a sandbox, or with an incomplete one.
func TestNoSandbox_IsFound(t *testing.T) {
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
		{
			shell.SandboxBestEffort,
			shell.Report{Helper: true, Bubblewrap: "/usr/bin/bwrap"},
			true,
			"sandbox: bubblewrap (/usr/bin/bwrap); the commands of a run do not share a loopback interface",
		},
		{
			shell.SandboxBestEffort,
			shell.Report{Helper: true, Bubblewrap: "/usr/bin/bwrap", Joins: true, Seccomp: true},
			true,
			"sandbox: bubblewrap (/usr/bin/bwrap), seccomp {",
		},
	} {
		found, err := examined(t.Context(), toolcrib.Principal{User: "local:root", Admin: true},
			check{"shell", "install bubblewrap", func(context.Context) (detail, fix string, err error) {
				return shellFound(config.Shell{Mode: string(shell.ModeAllowlist), Sandbox: string(c.sandbox)}, c.report)
			}})
		if err != nil || len(found) != 1 {
			t.Fatal(found, err)
		}
		f := found[0]
		if f.OK != c.ok || !strings.Contains(f.Detail+" {"+f.Fix, c.want) {
			t.Errorf("%+v: %+v", c, f)
		}
	}
}
