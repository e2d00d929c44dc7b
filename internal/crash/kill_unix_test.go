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

// killed reports whether a process ended by SIGKILL.
func killed(state *os.ProcessState) bool {
	status, ok := state.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && status.Signal() == syscall.SIGKILL
}
