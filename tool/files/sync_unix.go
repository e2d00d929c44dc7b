//go:build unix

package files

import (
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

// fileID tells a file from another one in its place.
func fileID(info fs.FileInfo) string {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return ""
	}
	return fmt.Sprintf("%d:%d", stat.Dev, stat.Ino)
}
