// Package sqlstore implements store.Store with SQL, except for opening and backups: the journal, the
// projections of runs, contents, overrides and the system journal. The packages store/sqlite and
// store/postgres connect it to a database. Statements are written for SQLite; store/postgres translates
// each of them once.
//
// A store has one connection for writing, which combines simultaneous appends of many runs into one
// transaction. An append with a barrier event is durable when it returns; any other one with the next
// barrier at the latest.
package sqlstore

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/toolcrib/toolcrib/store"
)

// Options are the options of [New]. Those without a comment are required.
type Options struct {
	Database Database
	Writer   Writer      // if nil, the store is read-only
	Keys     *store.Keys // if nil, seals are not checked; only in a read-only store
	KeysPath string      // path of the key file
	Path     string      // names the database in messages
	Now      func() time.Time
	Owner    store.Owner // process that takes leases of runs; if it has no ID, there are none
	// Retry is how long a transaction is repeated that failed for a transient reason.
	Retry time.Duration
	// CheckShare is the share of time, in percent, in which the places of all runs may be compared with the
	// record, in the background after the first time. If 0, they are compared whenever another writer has
	// changed the database.
	CheckShare int
}

// Store is an open database. It is safe for use by many goroutines.
type Store struct {
	path     string
	keysPath string
	now      func() time.Time
	owner    store.Owner
	keys     *store.Keys
	db       Database
	writer   *writer

	buffers    sync.Pool // contains *bytes.Buffer, for encoding appends
	overrides  cache[store.Override]
	remembered cache[store.Remembered]
	tables     [store.SealedTables]tableState

	closeOnce sync.Once
	closeErr  error
}

// New returns a store in a database that has the tables of its schema.
func New(o Options) *Store {
	s := &Store{
		path: o.Path, keysPath: o.KeysPath, now: o.Now, owner: o.Owner, keys: o.Keys, db: o.Database,
	}
	if o.Writer != nil {
		s.writer = newWriter(o)
		s.writer.compare = s.compareRecord
	}
	return s
}

// CheckOpened quickly checks the seals of the tables that grant rights. If one is not valid, the error
// is store.ErrDamaged, and the database can only be opened for reading.
func (s *Store) CheckOpened(ctx context.Context) error {
	_, err := s.Head(ctx)
	for table := 0; err == nil && table < store.SealedTables; table++ {
		_, err = s.version(ctx, table, 0)
	}
	var broken *store.ChainError
	if errors.As(err, &broken) {
		err = &store.Error{Kind: store.ErrDamaged, Path: s.path, Err: s.noteDamage(ctx, err)}
	}
	return err
}

// CheckKeys returns an error for the key file of another database, which must not seal this one. Other
// invalid seals do not prevent opening it: the database can be read, but nothing can be added.
func CheckKeys(ctx context.Context, r Reader, path string, keys *store.Keys) error {
	id, err := KeyID(ctx, r)
	if err == nil && len(id) > 0 && !bytes.Equal(id, keys.ID()) {
		err = &store.Error{Kind: store.ErrKeys, Path: path, Err: errors.New("it has other keys than those that have sealed the database")}
	}
	return err
}

// KeyID returns the ID of the keys that have sealed a database.
func KeyID(ctx context.Context, r Reader) ([]byte, error) {
	found, err := readSealed(ctx, r)
	return found.KeyID, err
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
	err = One(ctx, short{s}, "SELECT value FROM counters WHERE name = ?", []any{store.SealedDocs[table].Name}, &v)
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
	if err != nil || sn.Matched(table) {
		return err
	}
	if err = store.CheckTable(ctx, sn, s.keys, &r, table); err == nil {
		sn.SetMatched(table)
	}
	return err
}

// Path implements [store.Store].
func (s *Store) Path() string { return s.path }

// Close waits for pending appends, then closes the database. A second Close has no effect.
func (s *Store) Close() error {
	s.closeOnce.Do(func() {
		var errs []error
		if s.writer != nil {
			errs = append(errs, s.writer.close())
		}
		errs = append(errs, s.db.Close())
		s.closeErr = s.db.Mapped(errors.Join(errs...))
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
	if err := s.db.Integrity(ctx); err != nil {
		return s.noteDamage(ctx, err)
	}
	if s.keys != nil {
		if err := s.frozen(ctx, func(sn snapshot) error { return checkSealed(ctx, sn, s.keys) }); err != nil {
			return s.noteDamage(ctx, err)
		}
	}
	return s.Damage(ctx)
}

// reading reads with any connection, and returns errors for callers.
type reading struct{ *Store }

// Each implements [Reader].
func (s reading) Each(ctx context.Context, query string, args []any, do func(scan Scan) error) error {
	return s.failed(ctx, s.db.Read(ctx, func(c Conn) error { return c.Each(ctx, query, args, do) }))
}

// short reads a few rows by an index. It does not pass on ctx, for which SQLite's driver would start a
// goroutine.
type short struct{ *Store }

// Each implements [Reader].
func (s short) Each(ctx context.Context, query string, args []any, do func(scan Scan) error) error {
	return s.failed(ctx, s.db.Read(ctx, func(c Conn) error {
		return c.Each(context.WithoutCancel(ctx), query, args, do)
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
	return s.noteDamage(ctx, s.db.Mapped(err))
}

// write runs fn in a transaction of the writer.
func (s *Store) write(ctx context.Context, j *job) error {
	if s.writer == nil {
		return s.notWritable()
	}
	return s.noteDamage(ctx, s.writer.do(ctx, j))
}

// Writable implements [store.Store].
func (s *Store) Writable(ctx context.Context) error {
	return s.write(ctx, &job{do: func(*tx) error { return nil }})
}

func (s *Store) notWritable() error {
	return &store.Error{Kind: store.ErrReadOnly, Path: s.path, Err: errors.New("it was opened for reading")}
}
