//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package trust

import "io/fs"

// writableByOthers reports whether another user could have trusted something.
func writableByOthers(info fs.FileInfo) bool { return info.Mode().Perm()&0o022 != 0 }
