//go:build darwin || dragonfly || freebsd || netbsd || openbsd

package terminal

import "golang.org/x/sys/unix"

// The ioctl requests that get the mode of a terminal, and that set it and discard input.
const (
	getMode      = unix.TIOCGETA
	setModeFlush = unix.TIOCSETAF
)
