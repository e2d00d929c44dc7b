// Package safefile changes a file that several processes read and write: one of them at
// a time, and whole or not at all.
package safefile

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// ErrBusy means that another program holds the lock.
var ErrBusy = errors.New("another program holds the lock")

// Replace writes a file whole or not at all, for its owner only, and returns when it has
// reached the disk. prefix begins the name of the temporary file beside it.
func Replace(path, prefix string, data []byte) error {
	return ReplaceFrom(path, prefix, func(w io.Writer) error { _, err := w.Write(data); return err })
}

// ReplaceFrom is [Replace] for what write writes; an error of its own is returned as it is.
func ReplaceFrom(path, prefix string, write func(w io.Writer) error) (err error) {
	folder := filepath.Dir(path)
	f, err := os.CreateTemp(folder, prefix+"*") // 0600
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name())
		}
	}()
	if err := write(f); err != nil {
		_ = f.Close()
		return err
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return err
	}
	d, err := os.Open(folder)
	if err != nil {
		return fmt.Errorf("make sure that it is kept: %w", err)
	}
	_ = d.Sync() // not every file system knows it
	return d.Close()
}
