//go:build unix

package files

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// keepOwner gives f the owner of old, where the process may. A file written by a
// server that runs as root stays its user's.
func keepOwner(f *os.File, old fs.FileInfo) {
	stat, ok := old.Sys().(*syscall.Stat_t)
	if !ok || (int(stat.Uid) == os.Geteuid() && int(stat.Gid) == os.Getegid()) {
		return
	}
	_ = f.Chown(int(stat.Uid), int(stat.Gid)) // not allowed: it becomes the writer's, as with any editor
}

// syncFolder makes a rename in the folder last through a power loss.
func syncFolder(dir *os.Root) error {
	f, err := dir.Open(".")
	if err != nil {
		return err
	}
	if err = f.Sync(); errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.ENOTSUP) {
		err = nil // a file system that cannot sync a folder does without
	}
	if closed := f.Close(); err == nil {
		err = closed
	}
	return err
}

// fileID tells a file from another one in its place.
func fileID(info fs.FileInfo) string {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return ""
	}
	return fmt.Sprintf("%d:%d", stat.Dev, stat.Ino)
}
