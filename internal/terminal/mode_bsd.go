//go:build darwin || dragonfly || freebsd || netbsd || openbsd

package terminal

import "golang.org/x/sys/unix"

// The requests that read the mode of a terminal, and that set it and drop its input.
const (
	getMode      = unix.TIOCGETA
	setModeFlush = unix.TIOCSETAF
)
