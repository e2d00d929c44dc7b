//go:build !linux && !darwin

package sqlite

// Functions without an implementation for this system: the file system of a path, whether a file can
// grow, and whether the folder of path is not writable.

func fileSystemOf(string) (string, error) { return "", nil }
func noRoom(string) bool                  { return false }
func readOnlyFolder(string) bool          { return false }
