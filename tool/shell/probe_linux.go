package shell

import (
	"context"
	"os"
	"os/exec"
	"time"

	landlock "github.com/landlock-lsm/go-landlock/landlock/syscall"
	"golang.org/x/sys/unix"
)

// Probe looks what this machine has to keep programs in. It starts bubblewrap once,
// if it is installed, to see whether it may do its work here.
func Probe() Report {
	r := Report{Helper: mainCalled.Load()}
	if abi, err := landlock.LandlockGetABIVersion(); err == nil {
		r.LandlockABI = abi
	}
	_, err := unix.PrctlRetInt(unix.PR_GET_SECCOMP, 0, 0, 0, 0)
	r.Seccomp = err == nil && seccompArch != 0
	r.Bubblewrap = bubblewrap()
	switch {
	case !r.Helper:
		r.Problem = "the program does not call shell.Main first in its main function"
	case !r.sandboxed():
		r.Problem = "the kernel has no Landlock, and bubblewrap is not installed or may not be used"
	}
	return r
}

// bubblewrap returns the path of a bwrap that works, as it is used here.
func bubblewrap() string {
	for _, path := range []string{"/usr/bin/bwrap", "/usr/local/bin/bwrap"} {
		if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() {
			continue
		}
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		try := exec.CommandContext(ctx, path, "--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev",
			"--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts", "--die-with-parent", "--new-session", "--clearenv",
			"--remount-ro", "/dev", "--", "/bin/true")
		try.Env = []string{}
		if try.Run() == nil {
			return path
		}
	}
	return ""
}
