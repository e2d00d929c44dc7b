package terminal

import (
	"os"
	"time"

	"golang.org/x/sys/windows"
)

// drop discards input that was not read.
func drop(terminal *os.File) error {
	return windows.FlushConsoleInputBuffer(windows.Handle(terminal.Fd()))
}

// hide turns echo off until show is called.
func hide(terminal *os.File) (show func(), err error) {
	console, before := windows.Handle(terminal.Fd()), uint32(0)
	if err := windows.GetConsoleMode(console, &before); err != nil {
		return nil, err
	}
	show = func() { _ = windows.SetConsoleMode(console, before) }
	return show, windows.SetConsoleMode(console, before&^windows.ENABLE_ECHO_INPUT)
}

// quietly discards input until more returns false. It calls more after each step, with whether
// anything was typed.
func quietly(terminal *os.File, more func(typed bool) bool) error {
	console := windows.Handle(terminal.Fd())
	for typed := false; more(typed); {
		time.Sleep(step)
		var events uint32
		err := windows.GetNumberOfConsoleInputEvents(console, &events)
		if typed = err == nil && events > 0; typed {
			err = windows.FlushConsoleInputBuffer(console)
		}
		if err != nil {
			return err
		}
	}
	return drop(terminal)
}
