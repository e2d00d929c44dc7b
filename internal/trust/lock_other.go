//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package trust

import "io/fs"

// nonblock does not exist here, nor do pipes with a name in a folder.
const nonblock = 0

// writableByOthers cannot be told from the mode here; the user's profile is closed.
func writableByOthers(fs.FileInfo) bool { return false }
