package sqlite

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/toolcrib/toolcrib/store"
	"github.com/toolcrib/toolcrib/store/sqlstore"
)

//go:embed schema.sql
var schema string

const (
	// applicationID identifies a file of toolcrib: "tcrb".
	applicationID = 0x74637262
	// loggedID identifies one whose newest content may be only in its write-ahead log: "tcrl".
	loggedID = 0x7463726c
	// creationWait bounds the wait for another process that is creating the database.
	creationWait = time.Minute
	// walPause is the interval between attempts to change the journal mode.
	walPause = 2 * time.Millisecond
)

// readVersion returns sqlstore.Baseline, which is the user_version of the file, or 0 if it has no tables yet. The
// version of the schema is in the table state. In most cases readVersion reads only the header.
func readVersion(ctx context.Context, r sqlstore.Reader, path string) (int, error) {
	version, ours, err := readHeader(ctx, r)
	if err != nil {
		return 0, err
	}
	if !ours {
		var tables int
		if err := sqlstore.One(ctx, r, "SELECT count(*) FROM sqlite_schema", nil, &tables); err != nil || tables == 0 {
			return 0, err
		}
		// Another process may have created it since the header was read. The mark is set together with
		// the tables, so it is there by now or never.
		if version, ours, err = readHeader(ctx, r); err != nil {
			return 0, err
		}
	}
	if !ours {
		return 0, &store.Error{Kind: store.ErrCorrupt, Path: path, Err: errors.New("it is the database of another program")}
	}
	kind := store.ErrOlder
	switch {
	case version == sqlstore.Baseline:
		return version, nil
	case version > sqlstore.Baseline:
		kind = store.ErrNewer
	}
	return 0, &store.Error{Kind: kind, Path: path, Err: fmt.Errorf("its schema is %d, and this version needs at least %d",
		version, sqlstore.Baseline)}
}

// readHeader returns the version, and whether the file has toolcrib's mark.
func readHeader(ctx context.Context, r sqlstore.Reader) (version int, ours bool, err error) {
	var id int
	err = sqlstore.One(ctx, r, "SELECT user_version, application_id FROM pragma_user_version, pragma_application_id", nil,
		&version, &id)
	return version, id == applicationID || id == loggedID, err
}

// The mark in a file says whether its newest content may be only in its log. While the database is in
// use, the file is marked, and the log contains the change that removes the mark; closing moves
// everything into the file. So a marked file without a log was copied while it was in use, or its log
// was removed. If another program moved the log into the file and removed it, as SQLite's shell does
// after a process was killed, the mark is gone.

// isLogged reports whether the database has the mark.
func isLogged(ctx context.Context, c *conn) (bool, error) {
	var id int64
	err := sqlstore.One(ctx, c, "PRAGMA application_id", nil, &id)
	return id == loggedID, err
}

func setLogged(ctx context.Context, c *conn, logged bool) error {
	id := applicationID
	if logged {
		id = loggedID
	}
	return c.run(ctx, fmt.Sprintf("PRAGMA application_id=%d", id))
}

// logSize returns the size of the write-ahead log, or a negative number if it does not exist.
func logSize(path string) int64 {
	info, err := os.Stat(path + "-wal")
	if err != nil {
		return -1
	}
	return info.Size()
}

// checkLog returns store.ErrIncomplete if the log of a marked database is missing. The log did not
// exist before the connection was opened; another process may have created one since. Only WAL mode has
// a log: a copy made by VACUUM INTO is complete, and is not in that mode.
func checkLog(ctx context.Context, c *conn, path string) error {
	logged, err := isLogged(ctx, c)
	if err != nil || !logged || logSize(path) > 0 {
		return err
	}
	var mode string
	if err := sqlstore.One(ctx, c, "PRAGMA journal_mode", nil, &mode); err != nil || mode != "wal" {
		return err
	}
	return &store.Error{Kind: store.ErrIncomplete, Path: path}
}

// checkLost returns store.ErrLost if the database itself is missing or empty, but its keys or a
// write-ahead log exist. The keys are checked first: they get their name after the database was
// created.
func checkLost(path string, o Options) error {
	left := ""
	for _, name := range []string{path + "-wal", ownKeys(path)} {
		if info, err := os.Stat(name); err == nil && info.Size() > 0 && (name != ownKeys(path) || name == o.Keys) {
			left = name
		}
	}
	if left == "" {
		return nil
	}
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return lost(path, left, "it does not exist")
	case err == nil && info.Size() == 0:
		return lost(path, left, "it is empty")
	}
	return nil
}

func lost(path, left, what string) error {
	return &store.Error{Kind: store.ErrLost, Path: path, Err: fmt.Errorf("%s, but %s exists", what, left)}
}

// ownKeys returns the path of the key file that is created together with a database, unless another
// file is named.
func ownKeys(path string) string { return filepath.Join(filepath.Dir(path), keysName) }

// create creates the tables and seals them. If several processes do that at the same time, one succeeds
// and the others find the tables. A crash leaves either nothing or everything: the file is set to WAL
// mode only afterwards, and the keys have a temporary name until settleKeys renames them.
func create(ctx context.Context, path string, o Options) (err error) {
	c, err := connect(ctx, path, creationWait, "synchronous(FULL)")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }() // rolls back unless committed
	if err := c.run(ctx, "BEGIN IMMEDIATE"); err != nil {
		return err
	}
	if v, err := readVersion(ctx, c, path); err != nil || v > 0 {
		return err
	}
	keys, err := keysToCreate(path, o)
	if err != nil {
		return err
	}
	if err := c.run(ctx, schema); err != nil {
		return err
	}
	if err := sqlstore.SealSchema(ctx, c, keys, sqlstore.Baseline, sqlstore.Baseline); err != nil {
		return err
	}
	if err := apply(ctx, c, keys, o.steps); err != nil {
		return err
	}
	if o.From == nil {
		err = sqlstore.Create(ctx, c, keys)
	} else {
		err = o.From.CopyTo(ctx, c)
	}
	if err == nil && o.Files != nil {
		err = sqlstore.ReplaceFiles(ctx, c, keys, o.Now(), o.Files)
	}
	if err != nil {
		return err
	}
	return c.run(ctx, "COMMIT")
}

// beforeEnd ends the name of the copy that is made before the schema is changed. There is one.
const beforeEnd = "-before"

// apply makes the changes that the schema lacks, in the transaction of c.
func apply(ctx context.Context, c *conn, keys *store.Keys, steps sqlstore.Steps) error {
	return steps.Apply(ctx, c, keys, func(step sqlstore.Step) error { return c.run(ctx, step.SQLite) })
}

// upgrade makes the changes that the schema lacks, in one transaction, and keeps a copy of the file as it was.
func upgrade(ctx context.Context, path string, keys *store.Keys, steps sqlstore.Steps) (err error) {
	c, err := connect(ctx, path, creationWait, "synchronous(FULL)")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }() // rolls back unless committed
	if err := c.run(ctx, "BEGIN IMMEDIATE"); err != nil {
		return err
	}
	if err := steps.CheckSchema(ctx, c, path); !errors.Is(err, store.ErrUnmigrated) {
		return err // another process was first
	}
	part := path + beforeEnd + ".part"
	if err := os.Remove(part); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := copyInto(ctx, path, part); err != nil {
		return err
	}
	if err := os.Rename(part, path+beforeEnd); err != nil {
		return err
	}
	if err := apply(ctx, c, keys, steps); err != nil {
		return err
	}
	return c.run(ctx, "COMMIT")
}

// copyInto copies what is committed in a database into a new file.
func copyInto(ctx context.Context, path, to string) (err error) {
	f, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600) // SQLite would create it readable for others
	if err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	c, err := connect(ctx, path, creationWait)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	return c.run(ctx, "VACUUM INTO ?", to)
}

// walMode sets the file to WAL mode, which is permanent. A copy made by VACUUM INTO must be set to it
// again. SQLite itself does not wait for other connections here.
func walMode(ctx context.Context, r sqlstore.Reader) error {
	for deadline := time.Now().Add(creationWait); ; {
		var mode string
		err := sqlstore.One(ctx, r, "PRAGMA journal_mode=WAL", nil, &mode)
		switch {
		case errors.Is(mapped("", err), store.ErrLocked) && time.Now().Before(deadline) && ctx.Err() == nil:
			time.Sleep(walPause)
		case err != nil:
			return err
		case mode != "wal":
			return &store.Error{Kind: store.ErrUnavailable, Err: fmt.Errorf("its file system allows no write-ahead log (journal mode %s)", mode)}
		default:
			return nil
		}
	}
}
