// Package standin manages the empty folders that exec_shell creates in place of protected names that do
// not exist while a command runs, because a name that is mounted read-only cannot be created. All other
// code treats such a folder as if it did not exist.
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

// Is reports whether path is a stand-in: an empty folder without write permission. This includes one
// that a killed process left behind.
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

// Exists reports whether path exists and is not a stand-in. It returns false if that cannot be determined.
func Exists(path string) bool {
	_, err := os.Lstat(path)
	return !errors.Is(err, fs.ErrNotExist) && !Is(path)
}

// Make creates a stand-in if path does not exist, or keeps an existing one.
func Make(path string) error {
	err := os.Mkdir(path, mode)
	if errors.Is(err, fs.ErrExist) && Is(path) {
		return nil
	}
	return err
}

// Remove removes a stand-in, but nothing else.
func Remove(path string) {
	if Is(path) {
		_ = os.Remove(path) // a folder that is not empty stays
	}
}
