//go:build !unix

package config

// nonblock does not exist here, nor do pipes with a name in a folder.
const nonblock = 0
