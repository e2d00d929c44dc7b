// Package safefile changes a file that several processes read and write: one of them at
// a time, and whole or not at all.
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
)

// ErrBusy means that another program holds the lock.
var ErrBusy = errors.New("another program holds the lock")

// Replace writes a file whole or not at all, for its owner only, and returns when it has
// reached the disk. prefix begins the name of the temporary file beside it.
func Replace(path, prefix string, data []byte) error {
	return put(path, prefix, data, os.Rename)
}

// Create is [Replace] for a file that must not exist, or the error is fs.ErrExist.
func Create(path, prefix string, data []byte) error {
	return put(path, prefix, data, os.Link)
}

func put(path, prefix string, data []byte, name func(from, to string) error) error {
	folder := filepath.Dir(path)
	f, err := os.CreateTemp(folder, prefix+"*") // 0600
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(f.Name()) }() // what has the other name stays
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
	d, err := os.Open(folder)
	if err != nil {
		return fmt.Errorf("make sure that it is kept: %w", err)
	}
	_ = d.Sync() // not every file system knows it
	return d.Close()
}

// What a file is that [Read] refuses.
var (
	ErrFolder    = errors.New("is a directory, not a file")
	ErrIrregular = errors.New("is not a regular file")
	ErrTooLarge  = errors.New("is larger than allowed")
)

// readError is an error of [Read] in words that follow the name of the file.
type readError struct {
	text  string
	cause error
}

func (e *readError) Error() string { return e.text }
func (e *readError) Unwrap() error { return e.cause }

// Read reads a regular file of at most limit bytes. Symbolic links are followed. It never
// waits for a pipe or a device. An error is in words that follow the name of the file,
// such as "does not exist", and wraps its cause. What checks say of the open file, in
// such words, is an error too.
func Read(path string, limit int64, checks ...func(fs.FileInfo) error) ([]byte, error) {
	return readBy(os.OpenFile, path, limit, checks)
}

// ReadIn is [Read] of a file below a root, which no link leads out of.
func ReadIn(root *os.Root, name string, limit int64) ([]byte, error) {
	return readBy(root.OpenFile, name, limit, nil)
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

// lookedFor bounds how many files [RemoveOld] looks at.
const lookedFor = 1000

// RemoveOld removes files of a folder that nobody has written for so long, but those whose names begin
// with a dot. What cannot be removed stays.
func RemoveOld(dir string, age time.Duration) {
	folder, err := os.Open(dir)
	if err != nil {
		return
	}
	defer folder.Close()                    //nolint:errcheck // only read
	entries, _ := folder.ReadDir(lookedFor) // those that cannot be read stay
	for _, e := range entries {
		if info, err := e.Info(); err == nil && time.Since(info.ModTime()) > age && e.Name()[0] != '.' {
			_ = os.Remove(filepath.Join(dir, e.Name())) // or the next time
		}
	}
}

// Cause is an error of the standard library without the path before it.
func Cause(err error) error {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return pe.Err
	}
	return err
}

// Entries returns what an open folder holds, read a few at a time, so that whoever has seen too many can stop.
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
