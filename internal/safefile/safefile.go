// Package safefile changes a file that several processes read and write: one of them at
// a time, and whole or not at all.
package safefile

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// ErrBusy means that another program holds the lock.
var ErrBusy = errors.New("another program holds the lock")

// Replace writes a file whole or not at all, for its owner only, and returns when it has
// reached the disk. prefix begins the name of the temporary file beside it.
func Replace(path, prefix string, data []byte) (err error) {
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
	if _, err := f.Write(data); err != nil {
		return errors.Join(err, f.Close())
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
