// Package folderid identifies folders, whatever their path.
package folderid

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Of returns an identifier that distinguishes a folder from another one that has replaced it. The
// inode number of a removed folder is soon reused, so the identifier includes the time of birth. If
// that is not known, it includes the device instead, which can change with a restart.
func Of(path string) (string, error) {
	var s unix.Statx_t
	if err := unix.Statx(unix.AT_FDCWD, path, unix.AT_SYMLINK_NOFOLLOW, unix.STATX_INO|unix.STATX_BTIME, &s); err != nil {
		return "", err
	}
	if s.Mask&unix.STATX_BTIME == 0 {
		return fmt.Sprintf("%d:%d:%d", s.Ino, s.Dev_major, s.Dev_minor), nil
	}
	return fmt.Sprintf("%d@%d.%09d", s.Ino, s.Btime.Sec, s.Btime.Nsec), nil
}
