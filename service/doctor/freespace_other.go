//go:build !(linux || darwin || freebsd)

package doctor

// freeBytes returns an unknown size: this system does not report it.
func freeBytes(string) (uint64, bool) { return 0, false }
