//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package secret

import (
	"errors"
	"os"
	"syscall"
	"time"
)

// nonblock does not exist here, nor do pipes with a name in a folder.
const nonblock = 0

var errBusy = errors.New("locked")

// lock makes the file, which must not exist, and removes it at the end. One that a
// killed process left is taken over once it is older than the patience.
func lock(path string, patience time.Duration) (unlock func(), err error) {
	give := time.NewTimer(patience)
	defer give.Stop()
	again := time.NewTicker(5 * time.Millisecond)
	defer again.Stop()
	for {
		f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
		if err == nil {
			return func() { _ = f.Close(); _ = os.Remove(path) }, nil
		}
		if !errors.Is(err, os.ErrExist) {
			return nil, err
		}
		if info, statErr := os.Stat(path); statErr == nil && time.Since(info.ModTime()) > patience {
			_ = os.Remove(path)
		}
		select {
		case <-again.C:
		case <-give.C:
			return nil, errBusy
		}
	}
}

// noRoom tells whether an error says that the disk is full (ERROR_DISK_FULL where
// the system has that).
func noRoom(err error) bool { return errors.Is(err, syscall.Errno(112)) }
