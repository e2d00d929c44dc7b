package secret

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// temporary is what the names of files begin with that are to become the file.
const temporary = ".secrets-"

// read returns what is in the file; nothing if there is none.
func (s *Store) read() (*content, error) {
	file, err := readFile(s.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return newContent(), nil
	case err != nil:
		return nil, s.failed(ErrUnusable, err)
	case len(file) > maxFileBytes:
		return nil, s.failed(ErrDamaged, errors.New("it is too large"))
	}
	c, err := unseal(file, s.identity)
	if err != nil {
		var e *Error
		if errors.As(err, &e) {
			e.Path = s.path
		}
		return nil, err
	}
	return c, nil
}

func (s *Store) failed(kind, err error) error { return &Error{Kind: kind, Path: s.path, Err: err} }

// readFile reads a regular file, and never waits for a pipe.
func readFile(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|nonblock, 0)
	if err != nil {
		return nil, cause(err)
	}
	defer func() { _ = f.Close() }() // read only
	info, err := f.Stat()
	if err != nil {
		return nil, cause(err)
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("it is no regular file")
	}
	data, err := io.ReadAll(io.LimitReader(f, maxFileBytes+1))
	return data, cause(err)
}

// update changes the secrets: under a lock, so that no process undoes what another
// has just set, and by replacing the file, so that none ever reads half of it.
func (s *Store) update(change func(*content) error) error {
	folder := filepath.Dir(s.path)
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return s.failed(ErrUnusable, cause(err))
	}
	unlock, err := lock(s.path+".lock", s.patience)
	if errors.Is(err, errBusy) {
		return s.failed(ErrLocked, nil)
	}
	if err != nil {
		return s.failed(ErrUnusable, cause(err))
	}
	defer unlock()
	c, err := s.read()
	if err != nil {
		return err
	}
	defer c.wipe()
	if err := change(c); err != nil {
		return err
	}
	file, err := seal(c, s.identity.Recipient())
	if err != nil {
		return s.failed(ErrUnusable, err)
	}
	sweep(folder)
	if err := replace(s.path, file); err != nil {
		if noRoom(err) {
			return s.failed(ErrFull, cause(err))
		}
		return s.failed(ErrUnusable, cause(err))
	}
	return nil
}

// sweep removes what a process left that was killed while it wrote. Who holds the
// lock is the only one who writes.
func sweep(folder string) {
	left, err := filepath.Glob(filepath.Join(escaped(folder), temporary+"*"))
	if err != nil {
		return
	}
	for _, name := range left {
		_ = os.Remove(name) // it only takes room
	}
}

// escaped returns a path as a pattern that means nothing else.
func escaped(path string) string {
	if filepath.Separator == '\\' { // there is no escape there
		return path
	}
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(path)
}

// replace writes a file whole or not at all, for its owner only.
func replace(path string, data []byte) (err error) {
	folder := filepath.Dir(path)
	f, err := os.CreateTemp(folder, temporary+"*") // 0600
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

// cause drops the path from an error, which is told once already.
func cause(err error) error {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}
