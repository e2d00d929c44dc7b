// Package standin knows the empty folders that exec_shell puts in place of
// protected names that do not exist, while a command runs: a name that is mounted
// read-only cannot be made. To everybody else such a folder is nothing.
package standin

import (
	"errors"
	"io/fs"
	"os"
)

const (
	mode     = 0o555
	writable = 0o222
)

// Is reports whether path is a stand-in: an empty folder that nobody may write. One
// that a killed process left behind counts as well.
func Is(path string) bool {
	info, err := os.Lstat(path)
	if err != nil || !info.IsDir() || info.Mode().Perm()&writable != 0 {
		return false
	}
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	names, _ := f.Readdirnames(1)
	return len(names) == 0
}

// Exists reports whether there is something at path other than a stand-in, and
// nothing that could tell so is in the way.
func Exists(path string) bool {
	_, err := os.Lstat(path)
	return !errors.Is(err, fs.ErrNotExist) && !Is(path)
}

// Make puts a stand-in where there is nothing, or keeps the one that is there.
func Make(path string) error {
	err := os.Mkdir(path, mode)
	if errors.Is(err, fs.ErrExist) && Is(path) {
		return nil
	}
	return err
}

// Remove removes a stand-in; whatever else is there stays.
func Remove(path string) {
	if Is(path) {
		_ = os.Remove(path) // a folder with something in it stays, too
	}
}
