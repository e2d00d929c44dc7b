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
	r.Bubblewrap, r.Mounts, r.Joins = bubblewrap(r.Helper)
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
		path, _, _ := bubblewrap(false)
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
// of this program may mount in its namespaces, and joins whether it may join another network namespace, which an old
// kernel or bwrap, a set-user-ID bwrap or AppArmor may prevent.
func bubblewrap(helper bool) (path string, mounts, joins bool) {
	for _, path := range []string{"/usr/bin/bwrap", "/usr/local/bin/bwrap"} {
		if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() {
			continue
		}
		args := trialOf(path)
		if helper {
			if mounts, joins = trials(args); mounts || joins {
				return path, mounts, joins
			}
		}
		ctx, cancel := context.WithTimeout(context.Background(), probeTime)
		defer cancel()
		try := exec.CommandContext(ctx, path, append(args[1:], "--", "/bin/true")...)
		try.Env = []string{}
		if try.Run() == nil {
			return path, false, false
		}
	}
	return "", false, false
}

// trialOf returns the command that tries a bwrap.
func trialOf(path string) []string {
	return []string{
		path, "--ro-bind", "/", "/", "--proc", "/proc", "--dev-bind", os.DevNull, os.DevNull, "--unshare-pid",
		"--unshare-net", "--unshare-ipc", "--unshare-uts", "--die-with-parent", "--new-session", "--clearenv",
	}
}

// probeTime is the timeout of one attempt.
const probeTime = 2 * time.Second

// trials reports whether a copy of this program that args start can mount a folder read-only, and whether another one
// can join its network namespace.
func trials(args []string) (mounts, joins bool) {
	made := &loopback{remove: func() {}}
	defer made.end()
	held := []jail.Held{{Path: "/usr"}}
	mounts = held[0].Identify() == nil && tries(args, jail.Job{Held: held, Mounts: true}, made)
	joins = (mounts || tries(args, jail.Job{}, made)) && tries(args, jail.Job{}, made)
	return mounts, joins
}

// tries reports whether a copy of this program that args start can do a job without steps, which joins the namespaces
// or makes them.
func tries(args []string, job jail.Job, shared *loopback) bool {
	ctx, cancel := context.WithTimeout(context.Background(), probeTime)
	defer cancel()
	own, err := os.Executable()
	var std [3]*os.File
	for i := range std {
		if err == nil {
			std[i], err = os.OpenFile(os.DevNull, os.O_RDWR, 0)
		}
		defer std[i].Close() //nolint:errcheck // nothing was written
	}
	if err != nil {
		return false
	}
	job.Dir = "/"
	l := launcher{Job: job, null: std[0], stdout: std[1], stderr: std[2], shared: shared}
	defer l.handOver(nil)
	namespaces := l.namespaces(true)
	if l.Join = namespaces != nil; l.Join || l.Mounts {
		args = slices.Concat(args, []string{"--cap-add", "CAP_SYS_ADMIN"})
	}
	err = l.begin(slices.Concat(args, userNamespace(namespaces), []string{"--", own, jail.Argument}), namespaces)
	return err == nil && l.finish(ctx.Done()) == jail.Outcome{} && l.making == nil
}
