//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package safefile

import (
	"errors"
	"os"
	"time"
)

// NonBlock does not exist here, nor do pipes with a name in a folder.
const NonBlock = 0

// Lock makes the file, which must not exist, and removes it at the end. One that a
// killed process left is taken over once it is older than patience.
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
		case !busy && !errors.Is(err, os.ErrPermission): // that is what one is that is just removed
			return nil, err
		case time.Now().Before(deadline):
		case busy:
			return nil, ErrBusy
		default:
			return nil, err
		}
	}
}
