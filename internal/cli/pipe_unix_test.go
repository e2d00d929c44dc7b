//go:build unix

package cli_test

import (
	"errors"
	"io/fs"
	"syscall"

	"github.com/rogpeppe/go-internal/testscript"
)

// makePipe makes a named pipe, if it does not exist.
func makePipe(ts *testscript.TestScript, name string) string {
	path := ts.MkAbs(name)
	if err := syscall.Mkfifo(path, 0o600); err != nil && !errors.Is(err, fs.ErrExist) {
		ts.Fatalf("%v", err)
	}
	return path
}
