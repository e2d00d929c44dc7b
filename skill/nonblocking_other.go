//go:build !unix

package skill

const nonBlocking = 0
