//go:build !unix

package files

import (
	"io/fs"
	"os"
)

func keepOwner(*os.File, fs.FileInfo) {}

// fileID returns "": on this system only size and time identify a file.
func fileID(fs.FileInfo) string { return "" }
