//go:build !unix

package system

const nonBlocking = 0
