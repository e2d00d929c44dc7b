//go:build !linux && !darwin

package sqlite

// fileSystemOf cannot tell on this system.
func fileSystemOf(string) (string, error) { return "", nil }
