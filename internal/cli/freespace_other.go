//go:build !(linux || darwin || freebsd)

package cli

// freeBytes is not known here.
func freeBytes(string) (uint64, bool) { return 0, false }
