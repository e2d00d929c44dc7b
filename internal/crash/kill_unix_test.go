//go:build unix

package crash

import (
	"os"
	"syscall"
)

// Supported reports whether a process can kill itself here as kill -9 would.
const Supported = true

// killSelf ends the process at once: no deferred call, no flush, no signal handler.
func killSelf() {
	if err := syscall.Kill(os.Getpid(), syscall.SIGKILL); err != nil {
		panic(err)
	}
	select {} // the signal arrives before the next instruction that matters
}

// alive opens a file and holds a shared lock on it, until it is closed or this process has gone.
func alive(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	return f, syscall.Flock(int(f.Fd()), syscall.LOCK_SH)
}

// awaitDead waits until no process holds a lock on a file any longer.
func awaitDead(path string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	return syscall.Flock(int(f.Fd()), syscall.LOCK_EX)
}

// killed reports whether a process ended by SIGKILL.
func killed(state *os.ProcessState) bool {
	status, ok := state.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && status.Signal() == syscall.SIGKILL
}
