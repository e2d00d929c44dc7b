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
)

//go:embed schema.sql
var schema string

const (
	// schemaVersion is what the schema sets user_version to.
	schemaVersion = 22
	// applicationID marks the file as one of toolcrib: "tcrb".
	applicationID = 0x74637262
	// loggedID marks one whose newest content may be in its write-ahead log only: "tcrl".
	loggedID = 0x7463726c
	// creationWait is how long a process waits while another one makes the database.
	creationWait = time.Minute
	// walPause is how long it waits before it tries again to change the journal mode.
	walPause = 2 * time.Millisecond
)

// readVersion returns the schema's version; 0 = it has none yet. It reads the
// header only, which is all that most starts need.
func readVersion(ctx context.Context, r reader, path string) (int, error) {
	version, ours, err := readHeader(ctx, r)
	if err != nil {
		return 0, err
	}
	if !ours {
		var tables int
		if err := one(ctx, r, "SELECT count(*) FROM sqlite_schema", nil, &tables); err != nil || tables == 0 {
			return 0, err
		}
		// Another process may have made it since the header was read. It sets the mark
		// together with the tables, so now the mark is there or never.
		if version, ours, err = readHeader(ctx, r); err != nil {
			return 0, err
		}
	}
	if !ours {
		return 0, &store.Error{Kind: store.ErrCorrupt, Path: path, Err: errors.New("it is the database of another program")}
	}
	if err := checkVersion(version, path); err != nil {
		return 0, err
	}
	return version, nil
}

// checkVersion refuses every schema but the one that this version of toolcrib knows.
func checkVersion(version int, path string) error {
	if version == schemaVersion {
		return nil
	}
	kind := store.ErrOlder
	if version > schemaVersion {
		kind = store.ErrNewer
	}
	return &store.Error{Kind: kind, Path: path, Err: fmt.Errorf("its schema is %d, this version knows %d", version,
		schemaVersion)}
}

// readHeader returns the version, and whether the file has toolcrib's mark.
func readHeader(ctx context.Context, r reader) (version int, ours bool, err error) {
	var id int
	err = one(ctx, r, "SELECT user_version, application_id FROM pragma_user_version, pragma_application_id", nil,
		&version, &id)
	return version, id == applicationID || id == loggedID, err
}

// The mark of the file says whether its newest content may be in its log only. While the database is
// in use, the file has it, and what is in the log takes it back; closing moves everything into the file. So a
// marked file without a log was copied, or its log removed, while it was in use. Where another program
// moved the log into the file and removed it, as SQLite's own does after a process was killed, the mark is gone.

// isLogged reports whether the database is marked so.
func isLogged(ctx context.Context, c *conn) (bool, error) {
	var id int64
	err := one(ctx, c, "PRAGMA application_id", nil, &id)
	return id == loggedID, err
}

func setLogged(ctx context.Context, c *conn, logged bool) error {
	id := applicationID
	if logged {
		id = loggedID
	}
	return c.run(ctx, fmt.Sprintf("PRAGMA application_id=%d", id))
}

// logSize is the size of the write-ahead log; if there is no log, it is less than zero.
func logSize(path string) int64 {
	info, err := os.Stat(path + "-wal")
	if err != nil {
		return -1
	}
	return info.Size()
}

// checkLog returns store.ErrIncomplete if the log of a marked database is gone. There was no
// log before the connection was made; by now another process may have begun one. Only in WAL
// mode is there a log: a copy made by VACUUM INTO is complete, and not in it.
func checkLog(ctx context.Context, c *conn, path string) error {
	logged, err := isLogged(ctx, c)
	if err != nil || !logged || logSize(path) > 0 {
		return err
	}
	var mode string
	if err := one(ctx, c, "PRAGMA journal_mode", nil, &mode); err != nil || mode != "wal" {
		return err
	}
	return &store.Error{Kind: store.ErrIncomplete, Path: path}
}

// checkLost returns store.ErrLost if there was a database here: its keys lie beside it,
// or a write-ahead log, and it does not, or is empty. The keys are looked for first:
// they get their name after the database was made.
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

// ownKeys is the key file that is made together with a database, where no other is named.
func ownKeys(path string) string { return filepath.Join(filepath.Dir(path), keysName) }

// create makes the tables and seals them. Of processes that do it at the same time one
// does, and the others find it done. A crash leaves either nothing, or all of it: the
// file is put into the write-ahead mode only afterwards, and the keys wait beside the
// database until settleKeys gives them their name.
func create(ctx context.Context, path string, o Options) (err error) {
	c, err := connect(ctx, path, creationWait, "synchronous(FULL)")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }() // rolls back what is not committed
	if err := c.run(ctx, "BEGIN IMMEDIATE"); err != nil {
		return err
	}
	if v, err := readVersion(ctx, c, path); err != nil || v == schemaVersion {
		return err
	}
	keys, err := keysToCreate(path, o)
	if err != nil {
		return err
	}
	if err := c.run(ctx, schema); err != nil {
		return err
	}
	if err := new(headSeal).put(ctx, c, keys, sealedAll); err != nil {
		return err
	}
	return c.run(ctx, "COMMIT")
}

// walMode puts the file into WAL mode, which it stays in. A copy made by VACUUM
// INTO has to be put into it again. SQLite does not wait by itself until the others who
// have the file open look away.
func walMode(ctx context.Context, r reader) error {
	for deadline := time.Now().Add(creationWait); ; {
		var mode string
		err := one(ctx, r, "PRAGMA journal_mode=WAL", nil, &mode)
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
