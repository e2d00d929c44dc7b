//go:build unix

package beneath

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
)

// Linked reports whether a file has several names (hard links).
func Linked(info fs.FileInfo) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	return !ok || stat.Nlink > 1
}

// Mine reports whether this user may change the permissions of a file.
func Mine(info fs.FileInfo) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	return !ok || os.Geteuid() == 0 || int(stat.Uid) == os.Geteuid()
}

// SyncFolder makes renames in a folder durable.
func SyncFolder(dir *os.Root) error {
	f, err := dir.Open(".")
	if err != nil {
		return err
	}
	if err = f.Sync(); errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.ENOTSUP) {
		err = nil // the file system cannot sync folders
	}
	if closed := f.Close(); err == nil {
		err = closed
	}
	return err
}
