package safefile

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/toolcrib/toolcrib"
)

// Bounds of stored files.
const (
	MaxBytes       = 16 << 20 // of one file
	MaxFolder      = 4096     // files of one folder
	MaxFolderBytes = 64 << 20 // of the files of one folder that are read together
	maxName        = 255
)

// CheckName returns an error if the name of a stored file is invalid.
func CheckName(name string) error {
	if !fs.ValidPath(name) || len(name) > maxName || strings.ContainsAny(name, "\\\x00") || name[0] == '.' ||
		strings.Contains(name, "/.") {
		return toolcrib.Errorf(toolcrib.CodeBadRequest, "invalid name of a file: %.300q", name)
	}
	return nil
}

// Folder implements [toolcrib.Files] by a folder of the file system. It is made, as those in it, by the first
// change, for its owner only. While a file is changed, its lock is held: NAME.lock, or .lock in its folder.
// A link is followed, except out of a folder in Dir.
type Folder struct {
	Dir      string
	Patience time.Duration           // how long a change waits for another process; if 0, 10 seconds
	Check    func(fs.FileInfo) error // if not nil, it must accept each file that is read
}

var _ toolcrib.Files = Folder{}

// temporary begins the names of temporary files.
const temporary = ".tmp-"

// Path returns the path of a file.
func (f Folder) Path(name string) string { return filepath.Join(f.Dir, filepath.FromSlash(name)) }

// File implements [toolcrib.Files].
func (f Folder) File(ctx context.Context, name string) (data []byte, err error) {
	if err := errors.Join(ctx.Err(), CheckName(name)); err != nil {
		return nil, err
	}
	if !strings.Contains(name, "/") {
		data, err = Read(f.Path(name), MaxBytes, f.checks()...)
	} else {
		var dir *os.Root
		if dir, err = os.OpenRoot(f.Path(path.Dir(name))); err == nil {
			defer dir.Close() //nolint:errcheck // only read
			data, err = ReadIn(dir, path.Base(name), MaxBytes, f.checks()...)
		}
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil, toolcrib.ErrNotFound
	}
	return data, err
}

func (f Folder) checks() []func(fs.FileInfo) error {
	if f.Check == nil {
		return nil
	}
	return []func(fs.FileInfo) error{f.Check}
}

// FilesIn implements [toolcrib.Files].
func (f Folder) FilesIn(ctx context.Context, folder string) (map[string][]byte, error) {
	if err := CheckName(folder); err != nil {
		return nil, err
	}
	dir, err := os.OpenRoot(f.Path(folder))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer dir.Close() //nolint:errcheck // only read
	entries, err := fs.ReadDir(dir.FS(), ".")
	if err != nil {
		return nil, err
	}
	files, left := make(map[string][]byte), int64(MaxFolderBytes)
	for _, e := range entries {
		if e.IsDir() || e.Name()[0] == '.' {
			continue
		}
		if len(files) == MaxFolder {
			break
		}
		data, err := ReadIn(dir, e.Name(), min(left, MaxBytes), f.checks()...)
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if files[e.Name()] = data; err != nil {
			files[e.Name()] = nil
		}
		left -= int64(len(data))
	}
	return files, nil
}

// ChangeFile implements [toolcrib.Files].
func (f Folder) ChangeFile(ctx context.Context, name string, change func([]byte) ([]byte, error)) error {
	if err := errors.Join(ctx.Err(), CheckName(name)); err != nil {
		return err
	}
	file := f.Path(name)
	dir, lock := filepath.Dir(file), file+".lock"
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	inFolder := strings.Contains(name, "/")
	if inFolder {
		lock = filepath.Join(dir, ".lock")
	}
	patience := f.Patience
	if patience == 0 {
		patience = 10 * time.Second
	}
	unlock, err := Lock(lock, patience)
	if err != nil {
		return err
	}
	defer unlock()
	if inFolder { // no other process writes here now
		if err := removeTemporary(dir); err != nil {
			return err
		}
	}
	before, err := f.File(ctx, name)
	if err != nil && !errors.Is(err, toolcrib.ErrNotFound) {
		return err
	}
	after, err := change(before)
	if err == nil {
		err = ctx.Err()
	}
	switch {
	case err != nil:
		return err
	case len(after) > MaxBytes:
		return ErrTooLarge
	case after != nil:
		return Replace(file, temporary, after)
	case before == nil:
		return nil
	}
	return errors.Join(os.Remove(file), syncFolder(dir))
}

// removeTemporary removes the temporary files of processes that were killed.
func removeTemporary(dir string) error {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), temporary) {
			err = errors.Join(err, os.Remove(filepath.Join(dir, e.Name())))
		}
	}
	return err
}
