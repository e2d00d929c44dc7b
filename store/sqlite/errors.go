package sqlite

import (
	"errors"
	"io/fs"
	"syscall"

	driver "modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/toolcrib/toolcrib/store"
)

// mapped converts an error of the driver or the file system to a [*store.Error]. It returns other
// errors unchanged.
func mapped(path string, err error) error {
	if err == nil {
		return nil
	}
	var already *store.Error
	if errors.As(err, &already) {
		if already.Kind == store.ErrKeys && kindOf(path, already.Err) == store.ErrFull { // they were being created
			return &store.Error{Kind: store.ErrFull, Path: already.Path, Err: already.Err}
		}
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
		if e.Code()&0xff == sqlite3.SQLITE_CANTOPEN && readOnlyFolder(path) {
			return store.ErrReadOnly // SQLite cannot create a file next to the database
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

// kindOfCode returns the kind of error for a result code of SQLite
// (https://www.sqlite.org/rescode.html). full reports whether the file has no room to grow, for which
// SQLite may return the code of a broken disk.
func kindOfCode(code int, full func() bool) error {
	switch code {
	case sqlite3.SQLITE_IOERR_SHMSIZE:
		return store.ErrFull
	case sqlite3.SQLITE_IOERR_WRITE, sqlite3.SQLITE_IOERR_FSYNC, sqlite3.SQLITE_IOERR_TRUNCATE,
		sqlite3.SQLITE_IOERR_SHMMAP:
		if full() {
			return store.ErrFull
		}
	}
	switch code & 0xff {
	case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL:
		return store.ErrLocked
	case sqlite3.SQLITE_FULL:
		return store.ErrFull
	case sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB:
		return store.ErrCorrupt
	case sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM:
		return store.ErrReadOnly
	case sqlite3.SQLITE_TOOBIG:
		return store.ErrTooLarge
	case sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_NOMEM:
		return store.ErrUnavailable
	}
	return nil
}
