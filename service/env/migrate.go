package env

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"os"
	"strings"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/store"
	"github.com/toolcrib/toolcrib/store/postgres"
	"github.com/toolcrib/toolcrib/store/sqlite"
)

// Migration is a change of the database of a data folder. At most one of To and From is set.
type Migration struct {
	// Owner is the address of the PostgreSQL database with a role that may create the tables. If "", the role that
	// uses them creates them.
	Owner string
	// To is the address of a database that everything in the data folder's own database is copied to.
	To string
	// From is the address of a database that is copied into a new database in the data folder, and Keys is its key
	// file. If Keys is "", it is that of the data folder.
	From, Keys string
}

// Migrate creates the tables of the PostgreSQL database that the configuration names, unless they are there, and gives
// its role the rights that an open store needs; or it copies a database. It is for administrators. It returns the
// address or the path of the new database.
func (e *Env) Migrate(ctx context.Context, who toolcrib.Principal, m Migration) (path string, err error) {
	if _, err := Administrator(who); err != nil {
		return "", err
	}
	keys, err := e.KeysFile()
	if err != nil {
		return "", err
	}
	own, err := e.database()
	if err != nil {
		return "", err
	}
	switch copies := m.To != "" || m.From != ""; {
	case copies && own != "":
		return "", BadRequestf("the configuration names a database; remove the key `database` while you copy one")
	case m.To != "":
		return e.copyTo(ctx, m, keys)
	case m.From != "":
		return e.copyFrom(ctx, m, keys)
	case own == "":
		return "", BadRequestf("database is not set in the configuration; SQLite makes its tables by itself")
	}
	return postgres.Migrate(ctx, cmp.Or(m.Owner, own), postgres.MigrateOptions{Keys: keys, For: own})
}

// copyTo copies the database in the data folder, the stored secrets and the notes of users to PostgreSQL.
func (e *Env) copyTo(ctx context.Context, m Migration, keys string) (path string, err error) {
	if _, err := os.Stat(e.Database()); err != nil {
		return "", toolcrib.Errorf(toolcrib.CodeNotFound, "there is no database %s to copy", e.Database())
	}
	from, err := sqlite.Open(ctx, e.Database(), sqlite.Options{Keys: keys, ReadOnly: true})
	if errors.Is(err, store.ErrUnmigrated) { // of an earlier version
		var upgraded *sqlite.Store
		if upgraded, err = sqlite.Open(ctx, e.Database(), sqlite.Options{Keys: keys}); err == nil {
			err = errors.Join(upgraded.Writable(ctx), upgraded.Close())
		}
		if err == nil {
			from, err = sqlite.Open(ctx, e.Database(), sqlite.Options{Keys: keys, ReadOnly: true})
		}
	}
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, from.Close()) }()
	if err := from.CheckIdle(ctx); err != nil {
		return "", err
	}
	return postgres.Migrate(ctx, cmp.Or(m.Owner, m.To), postgres.MigrateOptions{
		Keys: keys, From: from.Store, For: m.To,
		Files: func(copied map[string][]byte) (map[string][]byte, error) {
			files, err := e.filesToCopy(ctx)
			if err == nil {
				maps.Copy(files, passwordsOf(copied))
			}
			return files, err
		},
	})
}

// copyFrom copies a database in PostgreSQL to a new one in the data folder, and its secrets and notes to files.
func (e *Env) copyFrom(ctx context.Context, m Migration, keys string) (path string, err error) {
	path = e.Database()
	if info, err := os.Stat(path); err == nil && info.Size() > 0 { // an empty one is left by a copy that failed
		return "", toolcrib.Errorf(toolcrib.CodeConflict, "there is a database %s already; name another data folder", path)
	}
	from, err := postgres.Open(ctx, m.From, postgres.Options{Keys: cmp.Or(m.Keys, keys), ReadOnly: true})
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, from.Close()) }()
	if err := from.CheckIdle(ctx); err != nil {
		return "", err
	}
	to, err := sqlite.Open(ctx, path, sqlite.Options{
		Keys: keys, From: from.Store,
		Files: func(copied map[string][]byte) (map[string][]byte, error) {
			return passwordsOf(copied), e.WriteCopied(ctx, copied)
		},
	})
	if err != nil {
		return "", err
	}
	return path, to.Close()
}

// passwordsOf returns the files with passwords. Whoever has signed in does so again.
func passwordsOf(files map[string][]byte) map[string][]byte {
	files = maps.Clone(files)
	maps.DeleteFunc(files, func(name string, _ []byte) bool { return !strings.HasPrefix(name, PasswordFolder+"/") })
	return files
}
