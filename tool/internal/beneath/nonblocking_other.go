//go:build !unix

package beneath

// nonBlocking has no meaning here: there is no FIFO in a folder.
const nonBlocking = 0
