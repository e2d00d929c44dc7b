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

// Extended codes of codeIO for a file that could not be made longer. The first is
// that alone; the others may be a broken disk too, so the disk is asked.
const (
	codeShmSize  = codeIO | 19<<8
	codeWrite    = codeIO | 3<<8
	codeSync     = codeIO | 4<<8
	codeTruncate = codeIO | 6<<8
	codeShmMap   = codeIO | 21<<8
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
	if kind := kindOf(path, err); kind != nil {
		return &store.Error{Kind: kind, Path: path, Err: err}
	}
	return err
}

func kindOf(path string, err error) error {
	var e *driver.Error
	if errors.As(err, &e) {
		if e.Code()&0xff == codeCantOpen && readOnlyFolder(path) {
			return store.ErrReadOnly // what SQLite cannot make is a file beside the database
		}
		return kindOfCode(e.Code(), func() bool { return noRoom(path) })
	}
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT), errors.Is(err, syscall.EFBIG):
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

// kindOfCode is what a result code of SQLite means; full reports whether there is
// no room for the file to grow.
func kindOfCode(code int, full func() bool) error {
	switch code {
	case codeShmSize:
		return store.ErrFull
	case codeWrite, codeSync, codeTruncate, codeShmMap:
		if full() {
			return store.ErrFull
		}
	}
	switch code & 0xff {
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
