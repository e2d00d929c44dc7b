//go:build unix

package service

import (
	"os"
	"syscall"
)

// tryLock locks a file for this process, or fails at once.
func tryLock(f *os.File) error {
	return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
}
