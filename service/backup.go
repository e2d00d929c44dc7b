package service

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/internal/version"
	"github.com/toolcrib/toolcrib/secret"
	"github.com/toolcrib/toolcrib/store"
	"github.com/toolcrib/toolcrib/store/sqlite"
)

// Backup writes the database, its keys and the stored secrets, as they are at one moment,
// to one new file, for administrators, and returns its size.
func (s *Service) Backup(ctx context.Context, who toolcrib.Principal, path string) (size int64, err error) {
	if _, err := Administrator(who); err != nil {
		return 0, err
	}
	if _, err := os.Lstat(path); err == nil {
		return 0, toolcrib.Errorf(toolcrib.CodeConflict, "%s exists; name a new file", path)
	}
	dir, err := os.MkdirTemp(filepath.Dir(path), ".toolcrib-backup-*") // 0700
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	b := store.Backup{At: time.Now().UTC(), Version: version.Version()}
	if b.Head, err = s.store.Backup(ctx, dir); err != nil {
		return 0, err
	}
	names := []string{DatabaseName, KeysName}
	switch text, err := os.ReadFile(filepath.Join(s.DataDir, secret.FileName)); {
	case err == nil:
		if err := os.WriteFile(filepath.Join(dir, secret.FileName), text, 0o600); err != nil {
			return 0, err
		}
		names = append(names, secret.FileName)
	case !errors.Is(err, fs.ErrNotExist):
		return 0, err
	}
	whole := filepath.Join(dir, "backup.tar")
	f, err := os.OpenFile(whole, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return 0, err
	}
	if err := errors.Join(store.WriteBackup(f, b, dir, names...), f.Sync(), f.Close(), ctx.Err()); err != nil {
		return 0, err
	}
	info, err := os.Stat(whole)
	if err != nil {
		return 0, err
	}
	return info.Size(), newName(whole, path)
}

// Restore puts a file that [Service.Backup] wrote into the data folder, which must be
// empty or not exist, and returns of when it is. It is for who owns the folder, in which
// there is nobody else yet; the store must not be open.
func (s *Service) Restore(ctx context.Context, path string) (at time.Time, err error) {
	keys, err := s.KeysFile()
	if err != nil {
		return at, err
	}
	if _, err := os.Lstat(keys); err == nil && keys != filepath.Join(s.DataDir, KeysName) {
		return at, toolcrib.Errorf(toolcrib.CodeConflict,
			"there is a key file %s, which the configuration names; move it away", keys)
	}
	if err := emptyFolder(s.DataDir); err != nil {
		return at, err
	}
	f, err := os.Open(path)
	if err != nil {
		return at, err
	}
	defer func() { _ = f.Close() }() // read only
	dir, err := os.MkdirTemp(s.DataDir, ".restore-*")
	if err != nil {
		return at, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	b, err := store.ReadBackup(f, dir, DatabaseName, KeysName, secret.FileName)
	if errors.Is(err, store.ErrBackup) {
		err = toolcrib.Errorf(toolcrib.CodeBadRequest, "%v", err)
	}
	if err != nil {
		return at, err
	}
	if err := checkRestored(ctx, dir, b.Head); err != nil {
		return at, err
	}
	// The database is last: until it is there, every command refuses the folder.
	for _, name := range []string{KeysName, secret.FileName, DatabaseName} {
		to := filepath.Join(s.DataDir, name)
		if name == KeysName {
			to = keys
		}
		if err := moveNew(filepath.Join(dir, name), to); err != nil {
			return at, err
		}
	}
	return b.At, nil
}

// newName gives a file a name that nothing has, where the file system can tell.
func newName(from, to string) error {
	err := os.Link(from, to)
	if err == nil || errors.Is(err, fs.ErrExist) {
		return err
	}
	return os.Rename(from, to)
}

// moveNew moves a file to a name that nothing has, if there is the file.
func moveNew(from, to string) error {
	if _, err := os.Lstat(from); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	err := newName(from, to)
	if err == nil || errors.Is(err, fs.ErrExist) {
		return err
	}
	text, err := os.ReadFile(from) // the key file may lie on another disk
	if err != nil {
		return err
	}
	f, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	return errors.Join(err, f.Sync(), f.Close())
}

// emptyFolder makes a data folder; one in which there is anything is a conflict.
func emptyFolder(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	entries, err := os.ReadDir(dir)
	if err == nil && len(entries) > 0 {
		err = toolcrib.Errorf(toolcrib.CodeConflict, "the data folder %s is not empty (it holds %s); name another, or "+
			"move it away",
			dir, entries[0].Name())
	}
	return err
}

// checkRestored opens what a backup holds, and compares it with its head.
func checkRestored(ctx context.Context, dir string, head store.Head) (err error) {
	s, err := sqlite.Open(ctx, filepath.Join(dir, DatabaseName), sqlite.Options{ReadOnly: true})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	_, err = s.VerifySystemAgainst(ctx, head)
	return err
}
