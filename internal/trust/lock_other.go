//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package trust

import (
	"errors"
	"io/fs"
	"os"
	"time"
)

// nonblock does not exist here, nor do pipes with a name in a folder.
const nonblock = 0

// writableByOthers cannot be told from the mode here; the user's profile is closed.
func writableByOthers(fs.FileInfo) bool { return false }

// lock makes the file, which must not exist, and removes it at the end. One that a
// killed process left is taken over once it is older than the patience.
func lock(path string, patience time.Duration) (unlock func(), err error) {
	for deadline := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
		if err == nil {
			return func() { _ = f.Close(); _ = os.Remove(path) }, nil
		}
		if info, statErr := os.Stat(path); statErr == nil && time.Since(info.ModTime()) > patience {
			_ = os.Remove(path)
		}
		if time.Now().After(deadline) {
			return nil, errors.New("another toolcrib holds " + path)
		}
	}
}
