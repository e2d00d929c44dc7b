//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package trust

import (
	"io/fs"
	"syscall"
)

// nonblock keeps the opening of a pipe from waiting for its other end.
const nonblock = syscall.O_NONBLOCK

// writableByOthers reports whether another user could have trusted something.
func writableByOthers(info fs.FileInfo) bool { return info.Mode().Perm()&0o022 != 0 }
