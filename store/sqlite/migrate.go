package sqlite

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/pressly/goose/v3"

	"github.com/toolcrib/toolcrib/store"
)

//go:embed migrations/*.sql
var migrations embed.FS

const (
	// schemaVersion is the number of the last migration.
	schemaVersion = 9
	// sealedVersion is the first whose system journal is sealed.
	sealedVersion = 3
	// applicationID marks the file as one of toolcrib: "tcrb".
	applicationID = 0x74637262
	// migrationWait is how long a process waits while another one migrates.
	migrationWait = time.Minute
)

// rowQuerier is what a pool and a connection have in common.
type rowQuerier interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// readVersion returns the schema's version; 0 = it has none yet. It reads the
// header only, which is all that most starts need.
func readVersion(ctx context.Context, q rowQuerier, path string) (int, error) {
	version, ours, err := readHeader(ctx, q)
	if err != nil {
		return 0, err
	}
	if !ours {
		tables, err := countTables(ctx, q)
		if err != nil || tables == 0 {
			return 0, err
		}
		// Another process may have migrated it since the header was read. It sets
		// the mark together with the tables, so now the mark is there or never.
		if version, ours, err = readHeader(ctx, q); err != nil {
			return 0, err
		}
	}
	switch {
	case !ours:
		return 0, &store.Error{Kind: store.ErrCorrupt, Path: path, Err: errors.New("it is the database of another program")}
	case version > schemaVersion:
		return 0, &store.Error{Kind: store.ErrNewer, Path: path, Err: fmt.Errorf("its schema is %d, this version knows %d", version, schemaVersion)}
	}
	return version, nil
}

// readHeader returns the version, and whether the file has toolcrib's mark.
func readHeader(ctx context.Context, q rowQuerier) (version int, ours bool, err error) {
	var id int
	row := q.QueryRowContext(ctx, "SELECT user_version, application_id FROM pragma_user_version, pragma_application_id")
	err = row.Scan(&version, &id)
	return version, id == applicationID, err
}

// countTables counts the tables but for that of goose, which is there already if
// a migration was cut off before its first step.
func countTables(ctx context.Context, q rowQuerier) (n int, err error) {
	row := q.QueryRowContext(ctx, "SELECT count(*) FROM sqlite_schema WHERE name NOT LIKE 'goose_%' AND name NOT LIKE 'sqlite_%'")
	err = row.Scan(&n)
	return n, err
}

// upgrade brings the schema up to date. Only one process does it at a time; the
// others find it done.
func upgrade(ctx context.Context, path string, o Options) (err error) {
	unlock, err := lockMigration(ctx, path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unlock()) }()

	db, err := openDB(path, migrationWait)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	v, err := readVersion(ctx, db, path)
	if err != nil || v == schemaVersion {
		return err
	}
	if err := walMode(ctx, db); err != nil {
		return err
	}
	files, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return err
	}
	keys, err := keysToMigrate(v, o)
	if err != nil {
		return err
	}
	provider, err := goose.NewProvider(goose.DialectSQLite3, db, files, goose.WithDisableGlobalRegistry(true),
		goose.WithGoMigrations(inGo(3, func(ctx context.Context, tx *sql.Tx) error {
			return sealTx(ctx, tx, keys, store.AdoptedByMigration, o.Now)
		}), inGo(5, func(ctx context.Context, tx *sql.Tx) error {
			return fillUsage(ctx, tx, keys, o)
		}), inGo(7, fillSpent), inGo(9, fillMarks)))
	if err != nil {
		return err
	}
	_, err = provider.Up(ctx)
	return err
}

// inGo is a migration that SQL alone cannot do.
func inGo(version int64, do func(ctx context.Context, tx *sql.Tx) error) *goose.Migration {
	return goose.NewGoMigration(version, &goose.GoFunc{RunTx: func(ctx context.Context, tx *sql.Tx) error {
		if err := do(ctx, tx); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, fmt.Sprintf("PRAGMA user_version = %d", version))
		return err
	}}, nil)
}

// keysToMigrate returns the keys that seal what a migration adds to the system
// journal. A sealed one has its keys already; a lost file is made anew only for
// somebody who accepts that.
func keysToMigrate(version int, o Options) (*store.Keys, error) {
	if version >= sealedVersion && o.AdoptBy == "" {
		return loadKeys(o.Keys)
	}
	return makeKeys(o.Keys)
}

// lockMigration holds an exclusive lock on an empty database beside path: goose
// itself has no lock for SQLite, and this one ends with its process.
func lockMigration(ctx context.Context, path string) (unlock func() error, err error) {
	path += "-migrate"
	if err := makeFile(path, false); err != nil {
		return nil, err
	}
	db, err := openDB(path, migrationWait)
	if err != nil {
		return nil, err
	}
	conn, err := db.Conn(ctx)
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	unlock = func() error { return errors.Join(conn.Close(), db.Close()) }
	if _, err := conn.ExecContext(ctx, "BEGIN EXCLUSIVE"); err != nil {
		return nil, errors.Join(err, unlock())
	}
	return unlock, nil
}

// walMode puts the file into WAL mode, which it stays in. A copy made by VACUUM
// INTO has to be put into it again.
func walMode(ctx context.Context, q rowQuerier) error {
	var mode string
	if err := q.QueryRowContext(ctx, "PRAGMA journal_mode=WAL").Scan(&mode); err != nil {
		return err
	}
	if mode != "wal" {
		return &store.Error{Kind: store.ErrUnavailable, Err: fmt.Errorf("its file system allows no write-ahead log (journal mode %s)", mode)}
	}
	return nil
}
