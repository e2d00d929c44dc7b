package terminal

import "golang.org/x/sys/unix"

// The ioctl requests that get the mode of a terminal, and that set it and discard input.
const (
	getMode      = unix.TCGETS
	setModeFlush = unix.TCSETSF
)
