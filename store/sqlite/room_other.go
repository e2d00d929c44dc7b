//go:build !linux && !darwin

package sqlite

// noRoom cannot tell on this system.
func noRoom(string) bool { return false }

// readOnlyFolder reports whether the folder of path cannot be written.
func readOnlyFolder(string) bool { return false }
