// Package sqlite implements the store of toolcrib in one SQLite file: the journal, the projections of
// runs, contents, overrides and the system journal.
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
	"sync"
	"time"

	"github.com/toolcrib/toolcrib/store"
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
	// Owner is the process that takes leases of runs. If it has no ID, there are none.
	Owner store.Owner

	unlogged bool // there was no write-ahead log before the first connection
}

// Store is an open database. It is safe for use by many goroutines.
type Store struct {
	path     string
	keysPath string
	now      func() time.Time
	owner    store.Owner
	busy     time.Duration
	keys     *store.Keys // nil if read-only without keys, in which case seals are not checked
	readers  *pool
	writer   *writer // nil if read-only

	buffers    sync.Pool // contains *bytes.Buffer, for encoding appends
	overrides  cache[store.Override]
	remembered cache[store.Remembered]
	tables     [store.SealedTables]tableState

	closeOnce sync.Once
	closeErr  error
}

// Open opens the database at path. If the database or its folder does not exist, it is created (0600,
// 0700). If its keys or its write-ahead log show that it existed before, the error is store.ErrLost. If
// an earlier or later version of toolcrib has written it, the error is store.ErrOlder or
// store.ErrNewer. In these cases nothing is changed.
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
	s := &Store{path: path, keysPath: o.Keys, now: o.Now, owner: o.Owner, busy: o.BusyTimeout}
	if err := s.open(ctx, o); err != nil {
		return nil, errors.Join(mapped(path, err), s.Close())
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
	if o.FileSystem == nil {
		o.FileSystem = fileSystemOf
	}
	return o
}

func (s *Store) open(ctx context.Context, o Options) error {
	if err := checkFileSystem(s.path, o.FileSystem); err != nil {
		return err
	}
	if err := checkLost(s.path, o); err != nil {
		return err
	}
	if err := makeFile(s.path, o.ReadOnly); err != nil {
		return err
	}
	var err error
	o.unlogged = logSize(s.path) < 0
	s.read(o, "query_only(1)")
	if o.ReadOnly {
		if keys, err := store.LoadKeys(o.Keys); err == nil {
			s.keys = keys
		}
		err := s.checkReadOnly(ctx, o)
		switch kind := mapped(s.path, err); {
		case errors.Is(kind, store.ErrReadOnly) && alone(s.path):
			return errors.Join(s.readers.close(), s.openAlone(ctx, o, immutable))
		case errors.Is(kind, store.ErrFull):
			// A process that has it open would have created the index of the log.
			return errors.Join(s.readers.close(), s.openAlone(ctx, o, detached))
		}
		return err
	}
	if s.writer, err = openWriter(ctx, s.path, o); err != nil {
		return err
	}
	s.keys = s.writer.keys
	return s.checkOpened(ctx)
}

// read sets up the pool of connections for reading, which use a pragma.
func (s *Store) read(o Options, pragma string) {
	s.readers = newPool(readConns,
		func(ctx context.Context) (*conn, error) {
			return connect(ctx, s.path, o.BusyTimeout, pragma)
		})
}

// checkOpened quickly checks the seals of the tables that grant rights. If one is not valid, the error
// is store.ErrDamaged, and the database can only be opened for reading.
func (s *Store) checkOpened(ctx context.Context) error {
	_, err := s.Head(ctx)
	for table := 0; err == nil && table < store.SealedTables; table++ {
		_, err = s.version(ctx, table, 0)
	}
	var broken *store.ChainError
	if errors.As(err, &broken) {
		err = &store.Error{Kind: store.ErrDamaged, Path: s.path, Err: s.noteDamage(err)}
	}
	return err
}

// tableState is the known state of a sealed table.
type tableState struct {
	mu      sync.Mutex
	sealed  uint64    // 1 + the version at which the table matched its seal
	version uint64    // version at the time looked
	looked  time.Time // zero if version must be read again
	changes uint64    // number of changes by this store: a read that overlaps one may be outdated
}

// version returns the number of changes to a sealed table by any process. The result is at most age old
// and not older than the last change by this store. It reads one row and, if the number has changed,
// the whole table, to compare it with its seal.
func (s *Store) version(ctx context.Context, table int, age time.Duration) (v uint64, err error) {
	t, now := &s.tables[table], s.now()
	t.mu.Lock()
	changes, sealed := t.changes, t.sealed
	if since := now.Sub(t.looked); !t.looked.IsZero() && since >= 0 && since < age {
		defer t.mu.Unlock()
		return t.version, nil
	}
	t.mu.Unlock()
	err = one(ctx, short{s}, "SELECT value FROM counters WHERE name = ?", []any{store.SealedDocs[table].Name}, &v)
	if err == nil && sealed != v+1 {
		err = s.failed(ctx, s.frozen(ctx, func(sn snapshot) error { return s.checkTable(ctx, sn, table) }))
	}
	if err != nil {
		return v, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sealed = v + 1 // a newer state is checked again
	if t.changes == changes && !now.Before(t.looked) {
		t.version, t.looked = v, now
	}
	return v, nil
}

// change calls do, which changes a sealed table, in a transaction.
func (s *Store) change(ctx context.Context, table int, do func(*tx) error) error {
	err := s.write(ctx, &job{barrier: true, do: do})
	t := &s.tables[table]
	t.mu.Lock()
	defer t.mu.Unlock()
	t.changes, t.looked = t.changes+1, time.Time{} // after an error, data may have been stored nevertheless
	return err
}

// checkTable compares a table with its seal, unless the store was opened for reading without keys.
func (s *Store) checkTable(ctx context.Context, sn snapshot, table int) error {
	if s.keys == nil {
		return nil
	}
	r, err := openRecord(ctx, sn, s.keys)
	content, _ := sn.content() // 0 on an error; the content of the same snapshot
	if err != nil || content != 0 && sn.checked[table] == content {
		return err
	}
	if err = store.CheckTable(ctx, sn, s.keys, &r, table); err == nil {
		sn.checked[table] = content
	}
	return err
}

// openAlone opens a database whose folder is not writable, such as one on a read-only disk, or whose
// disk is full. No file there shows that another process is using it, so no process must be writing.
func (s *Store) openAlone(ctx context.Context, o Options, how string) error {
	s.read(o, how)
	return s.checkReadOnly(ctx, o)
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
func (s *Store) checkReadOnly(ctx context.Context, o Options) error {
	v, err := readVersion(ctx, s, s.path)
	if err == nil && v < schemaVersion {
		return &store.Error{Kind: store.ErrReadOnly, Path: s.path, Err: errors.New("it has no tables yet")}
	}
	if err == nil && o.unlogged {
		err = s.readers.with(ctx, func(c *conn) error { return checkLog(ctx, c, s.path) })
	}
	return err
}

// Path returns the absolute path of the database.
func (s *Store) Path() string { return s.path }

// Close waits for pending appends, then closes the database. A second Close has no effect.
func (s *Store) Close() error {
	s.closeOnce.Do(func() {
		var errs []error
		if s.writer != nil {
			errs = append(errs, s.writer.close())
		}
		if s.readers != nil {
			errs = append(errs, s.readers.close())
		}
		s.closeErr = mapped(s.path, errors.Join(errs...))
	})
	return s.closeErr
}

// Stats returns the number of writes since the store was opened.
func (s *Store) Stats() Stats {
	if s.writer == nil {
		return Stats{}
	}
	return Stats{Commits: s.writer.commits.Load(), Synced: s.writer.synced.Load()}
}

// Check reads the whole database including its indexes. It returns store.ErrCorrupt if it is damaged, a
// [*store.ChainError] if a seal is not valid, and store.ErrDamaged if damage was found before. It takes
// many seconds for each GiB.
func (s *Store) Check(ctx context.Context) error {
	if err := s.integrity(ctx); err != nil {
		return err
	}
	if s.keys != nil {
		if err := s.frozen(ctx, func(sn snapshot) error { return checkSealed(ctx, sn.conn, s.keys) }); err != nil {
			return s.noteDamage(err)
		}
	}
	return s.Damage()
}

// integrity runs SQLite's own check of the whole file.
func (s *Store) integrity(ctx context.Context) error {
	var answer string
	if err := one(ctx, s, "PRAGMA integrity_check(1)", nil, &answer); err != nil {
		return err
	}
	if answer != "ok" {
		return s.noteDamage(&store.Error{Kind: store.ErrCorrupt, Path: s.path, Err: errors.New(answer)})
	}
	return nil
}

// each implements [reader] with any of the connections for reading, and returns errors for callers.
func (s *Store) each(ctx context.Context, query string, args []any, do func(scan scanFunc) error) error {
	return s.failed(ctx, s.readers.with(ctx, func(c *conn) error { return c.each(ctx, query, args, do) }))
}

// short reads a few rows by an index. It does not pass on ctx, for which the driver would start a
// goroutine.
type short struct{ *Store }

// each implements [reader].
func (s short) each(ctx context.Context, query string, args []any, do func(scan scanFunc) error) error {
	return s.failed(ctx, s.readers.with(ctx, func(c *conn) error {
		return c.each(context.WithoutCancel(ctx), query, args, do)
	}))
}

// failed converts an error of reading for callers.
func (s *Store) failed(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err == nil {
		return nil
	}
	return s.noteDamage(mapped(s.path, err))
}

// write runs fn in a transaction of the writer.
func (s *Store) write(ctx context.Context, j *job) error {
	if s.writer == nil {
		return s.notWritable()
	}
	return s.noteDamage(s.writer.do(ctx, j))
}

// Writable implements [store.Store].
func (s *Store) Writable(ctx context.Context) error {
	err := s.write(ctx, &job{do: func(*tx) error { return nil }})
	if err == nil && noRoom(s.path) {
		err = &store.Error{Kind: store.ErrFull, Path: s.path}
	}
	return err
}

func (s *Store) notWritable() error {
	return &store.Error{Kind: store.ErrReadOnly, Path: s.path, Err: errors.New("it was opened for reading")}
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
