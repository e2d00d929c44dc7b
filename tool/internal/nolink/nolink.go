// Package nolink opens folders and files below a folder by resolved paths, without following links that were created
// since. It imports little; see package jail.
package nolink

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"strings"
	"syscall"
)

// ErrMoved says that a path changed between resolving and opening it, or is neither a regular file nor a
// folder.
var ErrMoved = errors.New("the path has changed, or is neither a regular file nor a folder")

// OpenFolder opens a folder below root by its resolved path, without following links. Each component is
// checked after it was opened; if it is not the folder of that name, the error is [ErrMoved]. If before
// is not nil, it is called before each component is opened.
func OpenFolder(root *os.Root, real string, before func(parent *os.Root, name string) error) (*os.Root, error) {
	at, err := root.OpenRoot(".")
	if err != nil || real == "." {
		return at, err
	}
	for name := range strings.SplitSeq(real, "/") {
		if before != nil {
			err = before(at, name)
		}
		var next *os.Root
		if err == nil {
			next, err = Step(at, name)
		}
		_ = at.Close()
		if err != nil {
			return nil, err
		}
		at = next
	}
	return at, nil
}

// Step opens the folder name in parent, without following a link.
func Step(parent *os.Root, name string) (*os.Root, error) {
	// With "/." only a folder can be opened, so that a FIFO created meanwhile cannot block.
	next, err := parent.OpenRoot(name + "/.")
	if err != nil {
		return nil, err
	}
	opened, err := next.Lstat(".")
	if err == nil {
		var entry fs.FileInfo
		if entry, err = parent.Lstat(name); err == nil && (!entry.IsDir() || !os.SameFile(opened, entry)) {
			err = ErrMoved
		}
	}
	if err != nil {
		_ = next.Close()
		return nil, err
	}
	return next, nil
}

// OpenFile opens a regular file below root by its resolved path, without following links.
func OpenFile(root *os.Root, real string) (*os.File, fs.FileInfo, error) {
	dir, err := OpenFolder(root, path.Dir(real), nil)
	if err != nil {
		return nil, nil, err
	}
	defer dir.Close() //nolint:errcheck // only read
	entry, err := dir.Lstat(path.Base(real))
	if err != nil {
		return nil, nil, err
	}
	return OpenIn(dir, entry)
}

// OpenIn opens the entry of a folder for reading, if it is a regular file and still the same. It never
// blocks on a FIFO, and does not open devices.
func OpenIn(dir *os.Root, entry fs.FileInfo) (*os.File, fs.FileInfo, error) {
	if !entry.Mode().IsRegular() {
		return nil, nil, ErrMoved
	}
	file, err := dir.OpenFile(entry.Name(), os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, err
	}
	info, err := file.Stat()
	if err == nil && (!info.Mode().IsRegular() || !os.SameFile(entry, info)) {
		err = ErrMoved
	}
	if err != nil {
		_ = file.Close()
		return nil, nil, err
	}
	return file, info, nil
}
