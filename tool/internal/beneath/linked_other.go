//go:build !unix

package beneath

import "io/fs"

// linked reports whether a file may have more than one name, which is not told here.
func linked(fs.FileInfo) bool { return true }
