// Package sqlite implements the store of toolcrib in one SQLite file, with the statements of
// store/sqlstore.
//
// The file is in WAL mode and may be used by several processes at once. Each process has one connection
// for writing, which combines simultaneous appends of many runs into one transaction. An append with a
// barrier event is committed with a full sync (synchronous=FULL), any other without one: it survives
// the death of the process immediately, and a loss of power from the next barrier on.
//
// It wraps modernc.org/sqlite, which needs no C compiler.
package sqlite

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/toolcrib/toolcrib/store"
	"github.com/toolcrib/toolcrib/store/sqlstore"
)

const (
	// DefaultBusyTimeout is used if [Options].BusyTimeout is 0.
	DefaultBusyTimeout = 5 * time.Second
	// readConns is the number of connections for reading.
	readConns = 4
)

var _ store.Store = (*Store)(nil)

// Options are the options of [Open]. The zero value is valid.
type Options struct {
	// BusyTimeout is how long a write waits for another process before it fails with store.ErrLocked.
	// If 0, it is DefaultBusyTimeout.
	BusyTimeout time.Duration
	// ReadOnly opens an existing database for reading. Writes fail with store.ErrReadOnly.
	ReadOnly bool
	// Keys is the file with the keys that seal the stored data. If "", it is the file keys next to the
	// database. It is created with mode 0600 together with the database. If it is missing later, Open
	// fails with store.ErrKeys.
	Keys string
	// AdoptBy is the user who accepts the stored data although its seal is not valid, or its key file
	// is missing, which is then created again. The system journal records that. If "", such a store is
	// not accepted.
	AdoptBy string
	// FileSystem returns the kind of the file system that contains a path, such as nfs. If nil, the
	// operating system is asked. For a network file system, Open fails with store.ErrNetwork.
	FileSystem func(path string) (string, error)
	// Now returns the time for overrides and system events. If nil, it is time.Now.
	Now func() time.Time
	// From is copied into the database when it is created, with its keys. If nil, a new database is empty.
	From *sqlstore.Store
	// Files returns the files of a new database from those of From. If nil, they are the same.
	Files func(copied map[string][]byte) (map[string][]byte, error)
	// Owner is the process that takes leases of runs. If it has no ID, there are none.
	Owner store.Owner

	unlogged bool           // there was no write-ahead log before the first connection
	steps    sqlstore.Steps // if nil, sqlstore.Known()
}

// Store is an open database. It is safe for use by many goroutines.
type Store struct {
	*sqlstore.Store
	db       *database
	writer   *writer // nil if read-only
	keysPath string
}

// Open opens the database at path. If the database or its folder does not exist, it is created (0600,
// 0700). If its keys or its write-ahead log show that it existed before, the error is store.ErrLost. If
// its schema excludes this version of toolcrib, the error is store.ErrOlder or store.ErrNewer. In these
// cases nothing is changed. If the schema lacks changes that this version knows, they are made, and a copy
// of the file as it was is kept next to it, with the end -before.
func Open(ctx context.Context, path string, o Options) (*Store, error) {
	o = o.withDefaults()
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("sqlite: %w", err)
	}
	if o.Keys == "" {
		o.Keys = filepath.Join(filepath.Dir(path), keysName)
	} else if o.Keys, err = filepath.Abs(o.Keys); err != nil {
		return nil, fmt.Errorf("sqlite: %w", err)
	}
	s := &Store{db: &database{path: path, busy: o.BusyTimeout}, keysPath: o.Keys}
	if err := s.open(ctx, o); err != nil {
		return nil, errors.Join(mapped(path, err), s.close())
	}
	return s, nil
}

func (o Options) withDefaults() Options {
	if o.BusyTimeout <= 0 {
		o.BusyTimeout = DefaultBusyTimeout
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.steps == nil {
		o.steps = sqlstore.Known()
	}
	if o.FileSystem == nil {
		o.FileSystem = fileSystemOf
	}
	return o
}

func (s *Store) open(ctx context.Context, o Options) error {
	path := s.db.path
	if err := checkFileSystem(path, o.FileSystem); err != nil {
		return err
	}
	if err := checkLost(path, o); err != nil {
		return err
	}
	if err := makeFile(path, o.ReadOnly); err != nil {
		return err
	}
	o.unlogged = logSize(path) < 0
	s.db.read("query_only(1)")
	made := sqlstore.Options{Database: s.db, KeysPath: o.Keys, Path: path, Now: o.Now, Owner: o.Owner}
	if o.ReadOnly {
		if keys, err := store.LoadKeys(o.Keys); err == nil {
			made.Keys = keys
		}
		s.Store = sqlstore.New(made)
		return s.db.openReadOnly(ctx, o)
	}
	var err error
	if s.writer, err = openWriter(ctx, path, o); err != nil {
		return err
	}
	made.Writer, made.Keys = s.writer, s.writer.keys
	s.Store = sqlstore.New(made)
	return s.CheckOpened(ctx)
}

// close closes what was opened.
func (s *Store) close() error {
	switch {
	case s.Store != nil:
		return s.Close()
	case s.db.readers != nil:
		return s.db.Close()
	}
	return nil
}

// openReadOnly opens the database in the way that its folder and disk permit.
func (d *database) openReadOnly(ctx context.Context, o Options) error {
	err := d.checkReadOnly(ctx, o)
	switch kind := mapped(d.path, err); {
	case errors.Is(kind, store.ErrReadOnly) && alone(d.path):
		return errors.Join(d.readers.close(), d.openAlone(ctx, o, immutable))
	case errors.Is(kind, store.ErrFull):
		// A process that has it open would have created the index of the log.
		return errors.Join(d.readers.close(), d.openAlone(ctx, o, detached))
	}
	return err
}

// read sets up the pool of connections for reading, which use a pragma.
func (d *database) read(pragma string) {
	d.readers = newPool(readConns, func(ctx context.Context) (*conn, error) {
		return connect(ctx, d.path, d.busy, pragma)
	})
}

// openAlone opens a database whose folder is not writable, such as one on a read-only disk, or whose
// disk is full. No file there shows that another process is using it, so no process must be writing.
func (d *database) openAlone(ctx context.Context, o Options, how string) error {
	d.read(how)
	return d.checkReadOnly(ctx, o)
}

// alone reports whether a database has no log and no index, as after its last user closed it.
func alone(path string) bool {
	for _, end := range []string{"-wal", "-shm"} {
		if _, err := os.Stat(path + end); !errors.Is(err, fs.ErrNotExist) {
			return false
		}
	}
	return true
}

// checkReadOnly checks that this version can read the database.
func (d *database) checkReadOnly(ctx context.Context, o Options) error {
	return d.readers.with(ctx, func(c *conn) error {
		v, err := readVersion(ctx, c, d.path)
		if err == nil && v == 0 {
			return &store.Error{Kind: store.ErrReadOnly, Path: d.path, Err: errors.New("it has no tables yet")}
		}
		if err == nil {
			err = o.steps.CheckSchema(ctx, c, d.path)
		}
		if err == nil && o.unlogged {
			err = checkLog(ctx, c, d.path)
		}
		return err
	})
}

// Writable implements [store.Store].
func (s *Store) Writable(ctx context.Context) error {
	err := s.Store.Writable(ctx)
	if err == nil && noRoom(s.db.path) {
		err = &store.Error{Kind: store.ErrFull, Path: s.db.path}
	}
	return err
}

// makeFile creates the file of the database and its folder if they are missing. The driver would create
// them readable for others.
func makeFile(path string, readOnly bool) error {
	info, err := os.Stat(path)
	switch {
	case err == nil && !info.Mode().IsRegular():
		return &store.Error{Kind: store.ErrUnavailable, Path: path, Err: errors.New("it is not a regular file")}
	case err == nil:
		return nil
	case !errors.Is(err, fs.ErrNotExist) || readOnly:
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return nil // another process was first
	}
	if err != nil {
		return err
	}
	return f.Close()
}
