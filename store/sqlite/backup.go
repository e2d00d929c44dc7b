package sqlite

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"github.com/toolcrib/toolcrib/store"
)

// Backup implements [store.Store].
func (s *Store) Backup(ctx context.Context, dir string) (head store.Head, err error) {
	keys, err := loadKeys(s.keysPath)
	if err != nil {
		return head, err
	}
	if head, err = s.Head(ctx); err != nil {
		return head, err
	}
	c, err := connect(ctx, s.path, s.busy)
	if err != nil {
		return head, s.failed(ctx, err)
	}
	defer func() { err = errors.Join(err, mapped(s.path, c.Close())) }()
	path := filepath.Join(dir, filepath.Base(s.path))
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600) // SQLite would let others read it
	if err != nil {
		return head, err
	}
	if err := f.Close(); err != nil {
		return head, err
	}
	if err := c.run(ctx, "VACUUM INTO ?", path); err != nil {
		return head, s.failed(ctx, err)
	}
	return head, writeKeys(filepath.Join(dir, keysName), keys)
}
