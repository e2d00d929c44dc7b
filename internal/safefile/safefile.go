// Package safefile changes a file that several processes read and write, one process at a time and atomically.
package safefile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"time"

	"github.com/toolcrib/toolcrib"
)

// ErrBusy reports that another program holds the lock.
var ErrBusy error = toolcrib.Errorf(toolcrib.CodeConflict, "another program holds the lock")

// Replace writes a file atomically, for its owner only, and returns when it has reached the disk.
// prefix begins the name of the temporary file next to it.
func Replace(path, prefix string, data []byte) error {
	return put(path, prefix, data, os.Rename)
}

// Create is [Replace] for a file that must not exist; otherwise the error is fs.ErrExist.
func Create(path, prefix string, data []byte) error {
	return put(path, prefix, data, os.Link)
}

func put(path, prefix string, data []byte, name func(from, to string) error) error {
	folder := filepath.Dir(path)
	f, err := os.CreateTemp(folder, prefix+"*") // 0600
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(f.Name()) }() // a renamed file is not affected
	if _, err := f.Write(data); err != nil {
		_ = f.Close()
		return err
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := name(f.Name(), path); err != nil {
		return err
	}
	return syncFolder(folder)
}

// syncFolder returns when the names in a folder have reached the disk.
func syncFolder(folder string) error {
	d, err := os.Open(folder)
	if err != nil {
		return fmt.Errorf("make sure that it is kept: %w", err)
	}
	_ = d.Sync() // not every file system supports it
	return d.Close()
}

// Kinds of files that [Read] rejects.
var (
	ErrFolder    = errors.New("is a directory, not a file")
	ErrIrregular = errors.New("is not a regular file")
	ErrTooLarge  = errors.New("is larger than allowed")
)

// readError is an error of [Read] with a text that follows the name of the file.
type readError struct {
	text  string
	cause error
}

func (e *readError) Error() string { return e.text }
func (e *readError) Unwrap() error { return e.cause }

// Read reads a regular file of at most limit bytes. It follows symbolic links. It never waits for a pipe or a
// device. The text of an error follows the name of the file, such as "does not exist"; the error wraps its cause.
// checks are called with the open file; their errors, with such texts, are also returned.
func Read(path string, limit int64, checks ...func(fs.FileInfo) error) ([]byte, error) {
	return readBy(os.OpenFile, path, limit, checks)
}

// ReadIn is [Read] for a file below a root, which links cannot leave.
func ReadIn(root *os.Root, name string, limit int64, checks ...func(fs.FileInfo) error) ([]byte, error) {
	return readBy(root.OpenFile, name, limit, checks)
}

type opener func(name string, flag int, perm fs.FileMode) (*os.File, error)

func readBy(open opener, path string, limit int64, checks []func(fs.FileInfo) error) ([]byte, error) {
	data, err := read(open, path, limit, checks)
	text := ""
	var pe *fs.PathError
	switch {
	case err == nil:
		return data, nil
	case errors.Is(err, fs.ErrNotExist):
		text = "does not exist"
	case errors.Is(err, ErrTooLarge):
		text = fmt.Sprintf("is larger than %d bytes", limit)
	case errors.As(err, &pe):
		text = "cannot be read: " + pe.Err.Error()
	default:
		return nil, err
	}
	return nil, &readError{text, err}
}

func read(open opener, path string, limit int64, checks []func(fs.FileInfo) error) ([]byte, error) {
	f, err := open(path, os.O_RDONLY|NonBlock, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // only read
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, err
	case info.IsDir():
		return nil, ErrFolder
	case !info.Mode().IsRegular():
		return nil, ErrIrregular
	}
	for _, check := range checks {
		if err := check(info); err != nil {
			return nil, err
		}
	}
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(data)) > limit {
		err = ErrTooLarge
	}
	return data, err
}

// lookedFor bounds the files that [RemoveOld] checks.
const lookedFor = 1000

// RemoveOld removes the files of a folder that were not modified for the duration age, except files
// whose names begin with a dot. Errors are ignored.
func RemoveOld(dir string, age time.Duration) {
	folder, err := os.Open(dir)
	if err != nil {
		return
	}
	defer folder.Close()                    //nolint:errcheck // only read
	entries, _ := folder.ReadDir(lookedFor) // unreadable entries stay
	for _, e := range entries {
		if info, err := e.Info(); err == nil && time.Since(info.ModTime()) > age && e.Name()[0] != '.' {
			_ = os.Remove(filepath.Join(dir, e.Name())) // otherwise the next time
		}
	}
}

// Cause returns an error of the standard library without the path in front of it.
func Cause(err error) error {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return pe.Err
	}
	return err
}

// Entries iterates over the entries of an open folder, which it reads a few at a time, so that a caller
// can stop early.
func Entries(folder *os.File) iter.Seq2[fs.DirEntry, error] {
	return func(yield func(fs.DirEntry, error) bool) {
		for {
			entries, err := folder.ReadDir(256)
			for _, e := range entries {
				if !yield(e, nil) {
					return
				}
			}
			if errors.Is(err, io.EOF) {
				return
			}
			if err != nil {
				yield(nil, err)
				return
			}
		}
	}
}
