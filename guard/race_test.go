//go:build race

package guard

// With the race detector, a sync.Pool drops some values.
func init() { poolsKeep = false }
