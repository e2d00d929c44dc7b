//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package safefile

import (
	"errors"
	"os"
	"time"
)

// NonBlock is 0: this system has neither the flag nor named pipes in folders.
const NonBlock = 0

// Lock creates the file, which must not exist, and removes it at the end. A file that a killed process
// left is replaced once it is older than patience.
func Lock(path string, patience time.Duration) (unlock func(), err error) {
	for deadline := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
		if err == nil {
			return func() { _ = f.Close(); _ = os.Remove(path) }, nil
		}
		if info, statErr := os.Stat(path); statErr == nil && time.Since(info.ModTime()) > patience {
			_ = os.Remove(path)
		}
		switch busy := errors.Is(err, os.ErrExist); {
		case !busy && !errors.Is(err, os.ErrPermission): // the error for a file that was just removed
			return nil, err
		case time.Now().Before(deadline):
		case busy:
			return nil, ErrBusy
		default:
			return nil, err
		}
	}
}
