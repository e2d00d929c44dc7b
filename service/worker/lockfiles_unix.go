//go:build unix

package worker

import (
	"os"
	"syscall"
)

// tryLock locks a file for this process. It does not wait.
func tryLock(f *os.File) error {
	return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
}
