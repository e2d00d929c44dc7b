//go:build unix

package safefile

import (
	"io/fs"
	"os"
	"syscall"
)

// Owned reports whether a file belongs to the user of this process, or to root.
func Owned(info fs.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && (int(st.Uid) == os.Geteuid() || st.Uid == 0)
}
