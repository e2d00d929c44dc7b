//go:build linux || darwin || freebsd

package doctor

import "syscall"

// freeBytes returns the bytes that this user may still write at path.
func freeBytes(path string) (uint64, bool) {
	var s syscall.Statfs_t
	if err := syscall.Statfs(path, &s); err != nil || s.Bsize <= 0 {
		return 0, false
	}
	return uint64(max(int64(s.Bavail), 0)) * uint64(s.Bsize), true
}
