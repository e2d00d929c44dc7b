// Package sqlite is the store of toolcrib in one SQLite file: the journal, the
// projections of runs, contents, overrides and the system journal.
//
// The file is in WAL mode and may be used by several processes at once. Each
// process has one connection that writes, owned by one goroutine, which gathers
// what many runs append at the same time into one transaction. An append that
// holds a barrier event is committed with a full sync (synchronous=FULL), any
// other without one: it survives the death of the process at once, and the loss
// of power with the next barrier (design.md §2).
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
	// DefaultBusyTimeout is what [Options] means by zero.
	DefaultBusyTimeout = 5 * time.Second
	// readConns is the number of connections that read.
	readConns = 4
)

var _ store.Store = (*Store)(nil)

// Options are the choices of [Open]; the zero value is good.
type Options struct {
	// BusyTimeout is how long a write waits for another process before it fails
	// with store.ErrLocked; 0 = DefaultBusyTimeout.
	BusyTimeout time.Duration
	// ReadOnly opens an existing database for reading; writes fail with
	// store.ErrReadOnly.
	ReadOnly bool
	// Keys is the file with the keys that seal what is stored; "" = the file keys beside
	// the database. It is made, 0600, together with the database. If it is missing later,
	// Open fails with store.ErrKeys.
	Keys string
	// AdoptBy is who accepts what is stored as it is where its seal does not hold, or its
	// key file is missing, which is then made again. The system journal says so from there
	// on. "" = nobody.
	AdoptBy string
	// FileSystem returns the kind of the file system that holds a path, such as
	// nfs; nil = what the operating system says. A network file system is
	// store.ErrNetwork.
	FileSystem func(path string) (string, error)
	// Now gives the time of overrides and system events; nil = time.Now.
	Now func() time.Time

	unlogged bool // there was no write-ahead log before the first connection
}

// Store is an open database. It is safe for use by many goroutines.
type Store struct {
	path     string
	keysPath string
	now      func() time.Time
	busy     time.Duration
	keys     *store.Keys // nil = read only, and without them nothing is said about seals
	readers  *pool
	writer   *writer // nil = read only

	buffers    sync.Pool // of *bytes.Buffer: what appends are encoded in
	overrides  cache[store.Override]
	remembered cache[store.Remembered]
	tables     [store.SealedTables]tableState

	closeOnce sync.Once
	closeErr  error
}

// Open opens the database at path, and makes it, and its folder, if there is
// none (0600, 0700). If there was one, because its keys or its write-ahead log are
// there, it is store.ErrLost. One that an earlier or a later version of toolcrib wrote
// is store.ErrOlder or store.ErrNewer. None of these is touched.
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
	s := &Store{path: path, keysPath: o.Keys, now: o.Now, busy: o.BusyTimeout}
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
			// Whoever had it open would have made room for the index of its log.
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

// read has connections opened with a pragma when something is read.
func (s *Store) read(o Options, pragma string) {
	s.readers = newPool(readConns,
		func(ctx context.Context) (*conn, error) {
			return connect(ctx, s.path, o.BusyTimeout, pragma)
		})
}

// checkOpened looks, quickly, whether what grants is as it was sealed: what is not is
// store.ErrDamaged, and then the database can be opened for reading only.
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

// tableState is what is known of a sealed table.
type tableState struct {
	mu      sync.Mutex
	sealed  uint64    // the version, and one, at which it was as it was sealed
	version uint64    // at looked
	looked  time.Time // zero = what is known is not known to hold
	changes uint64    // by this store: what was being read meanwhile may be from before
}

// version returns how often a sealed table was changed, by any process, as it was at most age
// ago, and not before a change by this store. It reads one row, and, where that is not as before,
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
	t.sealed = v + 1 // what is newer is looked at once more
	if t.changes == changes && !now.Before(t.looked) {
		t.version, t.looked = v, now
	}
	return v, nil
}

// change runs do, which changes a sealed table, in a transaction.
func (s *Store) change(ctx context.Context, table int, do func(*tx) error) error {
	err := s.write(ctx, &job{barrier: true, do: do})
	t := &s.tables[table]
	t.mu.Lock()
	defer t.mu.Unlock()
	t.changes, t.looked = t.changes+1, time.Time{} // an error does not prove that nothing was stored
	return err
}

// checkTable compares a table with its seal; what was opened for reading has no keys to.
func (s *Store) checkTable(ctx context.Context, sn snapshot, table int) error {
	if s.keys == nil {
		return nil
	}
	r, err := openRecord(ctx, sn, s.keys)
	content, _ := sn.content() // 0 on an error; of what was just read
	if err != nil || content != 0 && sn.checked[table] == content {
		return err
	}
	if err = store.CheckTable(ctx, sn, s.keys, &r, table); err == nil {
		sn.checked[table] = content
	}
	return err
}

// openAlone opens a database whose folder cannot be written, such as one on a read-only
// disk, or beside which nothing more has room: nothing there says who uses it, so nobody
// must be writing.
func (s *Store) openAlone(ctx context.Context, o Options, how string) error {
	s.read(o, how)
	return s.checkReadOnly(ctx, o)
}

// alone reports whether nothing lies beside a database that belongs to it, as when it was
// closed by the last who used it.
func alone(path string) bool {
	for _, end := range []string{"-wal", "-shm"} {
		if _, err := os.Stat(path + end); !errors.Is(err, fs.ErrNotExist) {
			return false
		}
	}
	return true
}

// checkReadOnly sees to it that the database is one that this version can read.
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

// Close waits for the appends that were begun, then closes the database. A
// second Close does nothing.
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

// Stats returns what the store has written since it was opened.
func (s *Store) Stats() Stats {
	if s.writer == nil {
		return Stats{}
	}
	return Stats{Commits: s.writer.commits.Load(), Synced: s.writer.synced.Load()}
}

// Check reads the whole database, also its indexes, and returns store.ErrCorrupt if it is
// damaged, a [*store.ChainError] if a seal does not hold, and store.ErrDamaged if damage
// was found before. It takes many seconds for each GiB.
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

// integrity is SQLite's own check of the whole file.
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

// each implements [reader]: with any of the connections that read, and errors as callers see them.
func (s *Store) each(ctx context.Context, query string, args []any, do func(scan scanFunc) error) error {
	return s.failed(ctx, s.readers.with(ctx, func(c *conn) error { return c.each(ctx, query, args, do) }))
}

// short reads a few rows by an index: the driver starts no goroutine for it that waits for the end of ctx.
type short struct{ *Store }

// each implements [reader].
func (s short) each(ctx context.Context, query string, args []any, do func(scan scanFunc) error) error {
	return s.failed(ctx, s.readers.with(ctx, func(c *conn) error {
		return c.each(context.WithoutCancel(ctx), query, args, do)
	}))
}

// failed is an error of reading as callers see it.
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

// makeFile makes the file of the database and its folder if they are missing. The
// driver would make them readable for others.
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
