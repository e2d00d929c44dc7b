//go:build !unix

package beneath

import (
	"io/fs"
	"os"
)

// Linked reports whether a file may have more than one name, which is not told here.
func Linked(fs.FileInfo) bool { return true }

// Mine reports whether this user may change the rights of a file, as far as that is told.
func Mine(fs.FileInfo) bool { return true }

// SyncFolder does nothing: a folder cannot be synced here, and the system journals its own renames.
func SyncFolder(*os.Root) error { return nil }
