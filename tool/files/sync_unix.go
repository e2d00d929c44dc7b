//go:build unix

package files

import (
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// keepOwner gives f the owner of old if the process may, so that a file written by a server that runs
// as root still belongs to its user.
func keepOwner(f *os.File, old fs.FileInfo) {
	stat, ok := old.Sys().(*syscall.Stat_t)
	if !ok || (int(stat.Uid) == os.Geteuid() && int(stat.Gid) == os.Getegid()) {
		return
	}
	_ = f.Chown(int(stat.Uid), int(stat.Gid)) // if not permitted, the writer owns the file, as with any editor
}

// fileID identifies a file in the file system.
func fileID(info fs.FileInfo) string {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return ""
	}
	return fmt.Sprintf("%d:%d", stat.Dev, stat.Ino)
}
