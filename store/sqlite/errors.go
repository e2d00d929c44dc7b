package sqlite

import (
	"errors"
	"io/fs"
	"syscall"

	driver "modernc.org/sqlite"

	"github.com/toolcrib/toolcrib/store"
)

// The primary result codes of SQLite that are told apart
// (https://www.sqlite.org/rescode.html).
const (
	codePerm     = 3
	codeBusy     = 5
	codeLocked   = 6
	codeNoMemory = 7
	codeReadOnly = 8
	codeIO       = 10
	codeCorrupt  = 11
	codeFull     = 13
	codeCantOpen = 14
	codeProtocol = 15
	codeTooBig   = 18
	codeNotADB   = 26
)

// mapped turns an error of the driver or the file system into a [*store.Error];
// other errors stay as they are.
func mapped(path string, err error) error {
	if err == nil {
		return nil
	}
	var already *store.Error
	if errors.As(err, &already) {
		return err
	}
	if kind := kindOf(err); kind != nil {
		return &store.Error{Kind: kind, Path: path, Err: err}
	}
	return err
}

func kindOf(err error) error {
	var e *driver.Error
	if errors.As(err, &e) {
		return kindOfCode(e.Code() & 0xff)
	}
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return store.ErrFull
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		return store.ErrReadOnly
	}
	var pathErr *fs.PathError
	if errors.As(err, &pathErr) {
		return store.ErrUnavailable
	}
	return nil
}

func kindOfCode(code int) error {
	switch code {
	case codeBusy, codeLocked, codeProtocol:
		return store.ErrLocked
	case codeFull:
		return store.ErrFull
	case codeCorrupt, codeNotADB:
		return store.ErrCorrupt
	case codeReadOnly, codePerm:
		return store.ErrReadOnly
	case codeTooBig:
		return store.ErrTooLarge
	case codeCantOpen, codeIO, codeNoMemory:
		return store.ErrUnavailable
	}
	return nil
}
