//go:build linux || darwin

package sqlite

import (
	"os"
	"path/filepath"
	"syscall"
)

// little is the number of bytes that one write of the database may need.
const little = 256 << 10

// noRoom reports whether a file at path cannot grow: its disk is nearly full, or the file has the
// maximum size for the process (RLIMIT_FSIZE), which SQLite reports like any other failed write.
func noRoom(path string) bool {
	var st syscall.Statfs_t
	if err := syscall.Statfs(filepath.Dir(path), &st); err == nil && st.Bavail*uint64(st.Bsize) < little {
		return true
	}
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		return false
	}
	largest := int64(0)
	for _, end := range []string{"", "-wal", "-shm", "-migrate"} {
		if info, err := os.Stat(path + end); err == nil {
			largest = max(largest, info.Size())
		}
	}
	return uint64(largest)+little > limit.Cur
}

// readOnlyFolder reports whether the file at path is readable in a folder that is not writable, because
// of its permissions or because the file system is read-only.
func readOnlyFolder(path string) bool {
	const write, read = 2, 4
	return path != "" && syscall.Access(filepath.Dir(path), write) != nil && syscall.Access(path, read) == nil
}
