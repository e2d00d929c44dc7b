//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package trust

import "io/fs"

// writableByOthers cannot be told from the mode here; the user's profile is closed.
func writableByOthers(fs.FileInfo) bool { return false }
