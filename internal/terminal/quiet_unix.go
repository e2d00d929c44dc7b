//go:build unix

package terminal

import (
	"bytes"
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// drop discards input that was not read.
func drop(terminal *os.File) error {
	fd := int(terminal.Fd())
	mode, err := unix.IoctlGetTermios(fd, getMode)
	if err != nil {
		return err
	}
	return unix.IoctlSetTermios(fd, setModeFlush, mode)
}

// hide turns echo off until show is called.
func hide(terminal *os.File) (show func(), err error) {
	fd := int(terminal.Fd())
	before, err := unix.IoctlGetTermios(fd, getMode)
	if err != nil {
		return nil, err
	}
	hidden := *before
	hidden.Lflag &^= unix.ECHO | unix.ECHONL
	return func() { _ = unix.IoctlSetTermios(fd, setModeFlush, before) }, unix.IoctlSetTermios(fd, setModeFlush, &hidden)
}

// quietly discards input without echo until more returns false. It calls more after each step, with
// whether anything was typed. An interrupt key ends it, and interrupts the process after the mode of
// the terminal was restored.
func quietly(terminal *os.File, more func(typed bool) bool) error {
	fd := int(terminal.Fd())
	before, err := unix.IoctlGetTermios(fd, getMode)
	if err != nil {
		return err
	}
	quiet := *before
	quiet.Lflag &^= unix.ICANON | unix.ECHO | unix.ECHONL | unix.ISIG | unix.IEXTEN
	quiet.Cc[unix.VMIN], quiet.Cc[unix.VTIME] = 0, uint8(step/(100*time.Millisecond))
	if err := unix.IoctlSetTermios(fd, setModeFlush, &quiet); err != nil {
		return err
	}
	interrupted := false
	for !interrupted {
		var keys [1024]byte
		n, err := unix.Read(fd, keys[:])
		if errors.Is(err, unix.EAGAIN) {
			time.Sleep(step)
		}
		typed := n > 0
		interrupted = typed && bytes.IndexByte(keys[:n], before.Cc[unix.VINTR]) >= 0
		if !more(typed) {
			break
		}
	}
	err = unix.IoctlSetTermios(fd, setModeFlush, before)
	if interrupted {
		err = errors.Join(err, unix.Kill(0, unix.SIGINT)) // as the terminal itself would
	}
	return err
}
