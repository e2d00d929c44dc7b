//go:build unix && !linux

package folderid

import (
	"fmt"
	"syscall"
)

// Of returns an identifier that distinguishes a folder from another one that has replaced it.
func Of(path string) (string, error) {
	var s syscall.Stat_t
	if err := syscall.Lstat(path, &s); err != nil {
		return "", err
	}
	return fmt.Sprintf("%d:%d", s.Dev, s.Ino), nil
}
