//go:build !unix

package beneath

import (
	"io/fs"
	"os"
)

// Linked reports whether a file may have several names (hard links). It is always true, since this is
// unknown on this system.
func Linked(fs.FileInfo) bool { return true }

// Mine reports whether this user may change the permissions of a file. It is always true, since this
// is unknown on this system.
func Mine(fs.FileInfo) bool { return true }

// SyncFolder does nothing: folders cannot be synced on this system, which journals renames itself.
func SyncFolder(*os.Root) error { return nil }
