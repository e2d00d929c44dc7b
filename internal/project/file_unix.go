//go:build unix

package project

import (
	"io/fs"
	"os"
	"syscall"
)

// openFlags keep a pipe with the name of a note from blocking.
const openFlags = syscall.O_NONBLOCK

// ownFile reports whether a file belongs to the user of this process, or to root.
func ownFile(info fs.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && (int(st.Uid) == os.Geteuid() || st.Uid == 0)
}
