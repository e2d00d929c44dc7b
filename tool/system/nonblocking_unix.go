//go:build unix

package system

import "syscall"

// nonBlocking lets an open return at once where a FIFO would wait.
const nonBlocking = syscall.O_NONBLOCK
