//go:build !linux && !darwin

package sqlite

// noRoom cannot tell on this system.
func noRoom(string) bool { return false }
