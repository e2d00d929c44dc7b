//go:build race

package guard

// The race detector has a sync.Pool lose some of what it is given.
func init() { poolsKeep = false }
