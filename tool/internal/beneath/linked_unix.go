//go:build unix

package beneath

import (
	"io/fs"
	"os"
	"syscall"
)

// Linked reports whether a file has more than one name.
func Linked(info fs.FileInfo) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	return !ok || stat.Nlink > 1
}

// Mine reports whether this user may change the rights of a file.
func Mine(info fs.FileInfo) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	return !ok || os.Geteuid() == 0 || int(stat.Uid) == os.Geteuid()
}
