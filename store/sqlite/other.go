//go:build !linux && !darwin

package sqlite

// What cannot be told on this system: the file system of a path, whether a file can grow, and
// whether the folder of path cannot be written.

func fileSystemOf(string) (string, error) { return "", nil }
func noRoom(string) bool                  { return false }
func readOnlyFolder(string) bool          { return false }
