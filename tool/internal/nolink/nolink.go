// Package nolink opens folders and files below a folder by paths whose links are resolved: themselves, and no link that
// has been put there since. It imports little: see package jail.
package nolink

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"strings"
	"syscall"
)

// ErrMoved says that a path was changed between the look and the open, or leads to
// what is not a regular file or folder.
var ErrMoved = errors.New("the path has changed, or is neither a regular file nor a folder")

// OpenFolder opens a folder below root by its resolved path, itself and no link to another: the
// folder that is open at the end is the one that was found, or [ErrMoved] is returned (the
// check and the open are one). If before is not nil, it is called for each part first.
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

// Step opens the folder name in parent, itself and no link to another.
func Step(parent *os.Root, name string) (*os.Root, error) {
	// "/." makes the open one of a folder: a FIFO put there meanwhile cannot block it.
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

// OpenFile opens a regular file below root by its resolved path, itself and no link to another.
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

// OpenIn opens for reading what was just seen in a folder, if it is that and a regular
// file. It never waits for the other end of a FIFO, and opens no device.
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
