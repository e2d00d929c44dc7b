//go:build unix

package beneath

import "syscall"

// nonBlocking lets an open return at once where a FIFO or a device would wait.
const nonBlocking = syscall.O_NONBLOCK
