package shell

import (
	"context"
	"os"
	"os/exec"
	"time"

	landlock "github.com/landlock-lsm/go-landlock/landlock/syscall"
	"golang.org/x/sys/unix"

	"github.com/toolcrib/toolcrib/tool/shell/internal/jail"
)

// Probe looks what this machine has to keep programs in. It starts bubblewrap once,
// if it is installed, to see whether it may do its work here.
func Probe() Report {
	r := Report{Helper: mainCalled.Load(), LandlockABI: landlockABI(), Bubblewrap: bubblewrap()}
	_, err := unix.PrctlRetInt(unix.PR_GET_SECCOMP, 0, 0, 0, 0)
	r.Seccomp = err == nil && jail.Seccomp
	r.Problem = problem(r.Helper, r.sandboxed())
	return r
}

// Problem returns why there is no sandbox, as [Probe] would report it; "" if there is
// one. It starts bubblewrap only where everything depends on it.
func Problem() string {
	helper := mainCalled.Load()
	return problem(helper, helper && (landlockABI() > 0 || bubblewrap() != ""))
}

func problem(helper, sandboxed bool) string {
	switch {
	case !helper:
		return "the program does not call shell.Main first in its main function"
	case !sandboxed:
		return "the kernel has no Landlock, and bubblewrap is not installed or may not be used"
	}
	return ""
}

func landlockABI() int {
	abi, err := landlock.LandlockGetABIVersion()
	if err != nil {
		return 0
	}
	return abi
}

// bubblewrap returns the path of a bwrap that works, as it is used here.
func bubblewrap() string {
	for _, path := range []string{"/usr/bin/bwrap", "/usr/local/bin/bwrap"} {
		if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() {
			continue
		}
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		try := exec.CommandContext(ctx, path, "--ro-bind", "/", "/", "--proc", "/proc", "--dev-bind", os.DevNull, os.DevNull,
			"--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts", "--die-with-parent", "--new-session",
			"--clearenv", "--", "/bin/true")
		try.Env = []string{}
		if try.Run() == nil {
			return path
		}
	}
	return ""
}
