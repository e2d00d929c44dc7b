package shell

import (
	"context"
	"os"
	"os/exec"
	"slices"
	"time"

	landlock "github.com/landlock-lsm/go-landlock/landlock/syscall"
	"golang.org/x/sys/unix"

	"github.com/toolcrib/toolcrib/tool/shell/internal/jail"
)

// Probe determines the sandbox of this machine. If bubblewrap is installed, it starts it once to
// find out whether it works.
func Probe() Report {
	r := Report{Helper: mainCalled.Load(), LandlockABI: landlockABI()}
	r.Bubblewrap, r.Mounts = bubblewrap(r.Helper)
	_, err := unix.PrctlRetInt(unix.PR_GET_SECCOMP, 0, 0, 0, 0)
	r.Seccomp = err == nil && jail.Seccomp
	r.Problem = problem(r.Helper, r.sandboxed())
	return r
}

// Problem returns why there is no sandbox, as [Probe] would report it, or "". It starts
// bubblewrap only if there is no Landlock.
func Problem() string {
	helper, sandboxed := mainCalled.Load(), landlockABI() > 0
	if helper && !sandboxed {
		path, _ := bubblewrap(false)
		sandboxed = path != ""
	}
	return problem(helper, sandboxed)
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

// bubblewrap returns the path of a bwrap that works with the options used here, or "". mounts reports whether a copy
// of this program may mount in its namespaces, which an old kernel, a set-user-ID bwrap or AppArmor may prevent.
func bubblewrap(helper bool) (path string, mounts bool) {
	for _, path := range []string{"/usr/bin/bwrap", "/usr/local/bin/bwrap"} {
		if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() {
			continue
		}
		args := []string{
			path, "--ro-bind", "/", "/", "--proc", "/proc", "--dev-bind", os.DevNull, os.DevNull, "--unshare-pid",
			"--unshare-net", "--unshare-ipc", "--unshare-uts", "--die-with-parent", "--new-session", "--clearenv",
		}
		if helper && mountsIn(args) {
			return path, true
		}
		ctx, cancel := context.WithTimeout(context.Background(), probeTime)
		defer cancel()
		try := exec.CommandContext(ctx, path, append(args[1:], "--", "/bin/true")...)
		try.Env = []string{}
		if try.Run() == nil {
			return path, false
		}
	}
	return "", false
}

// probeTime is the timeout of one attempt.
const probeTime = 2 * time.Second

// mountsIn reports whether a copy of this program that args start can mount a folder read-only.
func mountsIn(args []string) bool {
	ctx, cancel := context.WithTimeout(context.Background(), probeTime)
	defer cancel()
	held := []jail.Held{{Path: "/usr"}}
	own, err := os.Executable()
	var std [3]*os.File
	for i := range std {
		if err == nil {
			std[i], err = os.OpenFile(os.DevNull, os.O_RDWR, 0)
		}
		defer std[i].Close() //nolint:errcheck // nothing was written
	}
	if err != nil || held[0].Identify() != nil {
		return false
	}
	l := launcher{Job: jail.Job{Dir: "/", Held: held, Mounts: true}, null: std[0], stdout: std[1], stderr: std[2]}
	err = l.begin(append(slices.Clip(args), "--cap-add", "CAP_SYS_ADMIN", "--", own, jail.Argument), nil)
	return err == nil && l.finish(ctx.Done()) == jail.Outcome{}
}
