//go:build !unix

package files

import (
	"io/fs"
	"os"
)

func keepOwner(*os.File, fs.FileInfo) {}

// A folder cannot be synced here; the system journals its own renames.
func syncFolder(*os.Root) error { return nil }

// A file is told by its size and its time alone.
func fileID(fs.FileInfo) string { return "" }
