//go:build unix

package beneath

import (
	"io/fs"
	"syscall"
)

// linked reports whether a file has more than one name.
func linked(info fs.FileInfo) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	return !ok || stat.Nlink > 1
}
