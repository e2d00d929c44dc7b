//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package trust

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
	"time"
)

// nonblock keeps the opening of a pipe from waiting for its other end.
const nonblock = syscall.O_NONBLOCK

// writableByOthers tells whether another user could have trusted something.
func writableByOthers(info fs.FileInfo) bool { return info.Mode().Perm()&0o022 != 0 }

// lock takes the file's lock, which ends with the process at the latest.
func lock(path string, patience time.Duration) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|nonblock, 0o600)
	if err != nil {
		return nil, err
	}
	for deadline := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { _ = f.Close() }, nil
		}
		busy := errors.Is(err, syscall.EWOULDBLOCK) || errors.Is(err, syscall.EINTR)
		if !busy || time.Now().After(deadline) {
			_ = f.Close()
			if busy {
				err = errors.New("another toolcrib holds " + path)
			}
			return nil, err
		}
	}
}
