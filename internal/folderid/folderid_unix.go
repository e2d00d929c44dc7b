//go:build unix && !linux

package gate

import (
	"fmt"
	"syscall"
)

// folderID tells a folder from another one that has come in its place.
func folderID(path string) (string, error) {
	var s syscall.Stat_t
	if err := syscall.Lstat(path, &s); err != nil {
		return "", err
	}
	return fmt.Sprintf("%d:%d", s.Dev, s.Ino), nil
}
