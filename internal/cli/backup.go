package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/internal/render"
	"github.com/toolcrib/toolcrib/internal/version"
	"github.com/toolcrib/toolcrib/secret"
	"github.com/toolcrib/toolcrib/service"
	"github.com/toolcrib/toolcrib/store"
	"github.com/toolcrib/toolcrib/store/sqlite"
)

func (a *app) backupCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "backup FILE",
		Short: "Write the database, its keys and the stored secrets to one file",
		Long: "Write the database, its keys and the stored secrets, as they are at one moment, to one new file. Runs continue " +
			"meanwhile. Whoever has the file has the keys: keep it where only you can read it. For administrators.",
		Example: "toolcrib backup ~/backups/toolcrib-2026-01-31.tar",
		Args:    positional,
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
			defer stop()
			return a.backup(ctx, args[0])
		},
	}
}

func (a *app) backup(ctx context.Context, path string) (err error) {
	if _, err := a.administrator(ctx); err != nil {
		return err
	}
	if _, err := os.Lstat(path); err == nil {
		return toolcrib.Errorf(toolcrib.CodeConflict, "%s exists; name a new file", pathText(path))
	}
	s, err := a.databaseToRead(ctx)
	if err != nil {
		return err
	}
	data, err := a.dataDir()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp(filepath.Dir(path), ".toolcrib-backup-*") // 0700
	if err != nil {
		return fmt.Errorf("%s: %v", pathText(path), plainCause(err))
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	b := store.Backup{At: time.Now().UTC(), Version: version.Version()}
	if b.Head, err = s.Backup(ctx, dir); err != nil {
		return err
	}
	names := []string{service.DatabaseName, service.KeysName}
	switch text, err := os.ReadFile(filepath.Join(data, secret.FileName)); {
	case err == nil:
		if err := os.WriteFile(filepath.Join(dir, secret.FileName), text, 0o600); err != nil {
			return err
		}
		names = append(names, secret.FileName)
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	whole := filepath.Join(dir, "backup.tar")
	f, err := os.OpenFile(whole, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	if err := errors.Join(store.WriteBackup(f, b, dir, names...), f.Sync(), f.Close()); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	info, err := os.Stat(whole)
	if err != nil {
		return err
	}
	if err := newName(whole, path); err != nil {
		return err
	}
	fmt.Fprintf(a.out, "%s: %s bytes; whoever has this file has the keys\n", pathText(path), render.Number(info.Size()))
	return nil
}

// newName gives a file a name that nothing has, where the file system can tell.
func newName(from, to string) error {
	err := os.Link(from, to)
	if err == nil || errors.Is(err, fs.ErrExist) {
		return err
	}
	return os.Rename(from, to)
}

// plainCause is the cause of an error of a file without its path.
func plainCause(err error) error {
	var of *fs.PathError
	if errors.As(err, &of) {
		return of.Err
	}
	return err
}

func (a *app) restoreCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "restore FILE",
		Short: "Restore a backup into an empty data folder",
		Long: "Restore a file that toolcrib backup wrote into the data folder, which must be empty or not exist, " +
			"and verify everything.",
		Example: "toolcrib --data-dir ~/restored restore ~/backups/toolcrib-2026-01-31.tar",
		Args:    positional,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.restore(cmd.Context(), args[0])
		},
	}
}

func (a *app) restore(ctx context.Context, path string) (err error) {
	if a.store != nil || a.asFlag != "" || a.tokenFlag != "" {
		return usagef("restore: takes neither --as nor --token-file; it is for who owns the data folder")
	}
	data, err := a.dataDir()
	if err != nil {
		return err
	}
	kept, err := a.svc()
	if err != nil {
		return err
	}
	keys, err := kept.KeysFile()
	if err != nil {
		return err
	}
	if _, err := os.Lstat(keys); err == nil && keys != filepath.Join(data, service.KeysName) {
		return toolcrib.Errorf(toolcrib.CodeConflict, "there is a key file %s, which the configuration names; move it away", pathText(keys))
	}
	if err := emptyFolder(data); err != nil {
		return err
	}
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("%s: %v", pathText(path), plainCause(err))
	}
	defer func() { _ = f.Close() }() // read only
	dir, err := os.MkdirTemp(data, ".restore-*")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	b, err := store.ReadBackup(f, dir, service.DatabaseName, service.KeysName, secret.FileName)
	if err != nil {
		return fmt.Errorf("%s: %v", pathText(path), err)
	}
	if err := checkRestored(ctx, dir, b.Head); err != nil {
		return err
	}
	// The database is last: until it is there, every command refuses the folder.
	for _, name := range []string{service.KeysName, secret.FileName, service.DatabaseName} {
		to := filepath.Join(data, name)
		if name == service.KeysName {
			to = keys
		}
		if err := moveNew(filepath.Join(dir, name), to); err != nil {
			return err
		}
	}
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	if _, err := a.openWith(ctx, sqlite.Options{}); err != nil {
		return err
	}
	who, err := a.administering(ctx)
	if err != nil {
		return err
	}
	found, err := a.service.Verify(ctx, who, "", nil)
	if err != nil {
		return err
	}
	fmt.Fprintf(a.out, "%s: as it was on %s\n", pathText(data), b.At.Local().Format(time.DateTime))
	return a.tellChecked(viewsOfChecked(found), false, a.out)
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
		err = toolcrib.Errorf(toolcrib.CodeConflict, "the data folder %s is not empty (it holds %s); name another with --data-dir, or move it away",
			pathText(dir), pathText(entries[0].Name()))
	}
	return err
}

// checkRestored opens what a backup holds, and compares it with its head.
func checkRestored(ctx context.Context, dir string, head store.Head) (err error) {
	s, err := sqlite.Open(ctx, filepath.Join(dir, service.DatabaseName), sqlite.Options{ReadOnly: true})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	_, err = s.VerifySystemAgainst(ctx, head)
	return err
}
