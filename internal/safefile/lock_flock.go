//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package safefile

import (
	"errors"
	"os"
	"syscall"
	"time"
)

// NonBlock prevents the opening of a pipe from waiting for its other end.
const NonBlock = syscall.O_NONBLOCK

// Lock locks a file. It waits for another lock at most for the duration patience. The lock ends with
// the process at the latest.
func Lock(path string, patience time.Duration) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|NonBlock, 0o600)
	if err != nil {
		return nil, err
	}
	for deadline := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { _ = f.Close() }, nil
		}
		busy := errors.Is(err, syscall.EWOULDBLOCK) || errors.Is(err, syscall.EINTR)
		if busy && time.Now().Before(deadline) {
			continue
		}
		_ = f.Close()
		if busy {
			return nil, ErrBusy
		}
		return nil, err
	}
}
