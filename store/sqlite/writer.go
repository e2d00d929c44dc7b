package sqlite

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/toolcrib/toolcrib/store"
	"github.com/toolcrib/toolcrib/store/sqlstore"
)

const (
	// walKeepBytes is the size to which the -wal file is truncated after a large write.
	walKeepBytes = 64 << 20
	// filesAge is how long a check of the files of the database remains valid.
	filesAge = 20 * time.Millisecond
	// lockPause is the longest interval between attempts to get the lock of another process.
	lockPause = 50 * time.Millisecond
	// settleAfter is the delay before the mark of isLogged is written to the file; a short run does not
	// wait for it.
	settleAfter = 200 * time.Millisecond
	settleAgain = time.Second // if a reader or another process prevented it
	// settleBytes bounds the size of a log that settle moves into the file; SQLite moves a larger one
	// by itself. On a disk that was full, moving it could use the space that the next append needs.
	settleBytes = 1 << 20
)

// writer is the connection for writing.
type writer struct {
	*conn
	busy    time.Duration // how long to wait for the lock of another process
	keys    *store.Keys   // keys that seal the stored data
	steps   sqlstore.Steps
	full    bool   // the connection's synchronous is FULL, not NORMAL
	content uint32 // content number of the file after the last transaction; 0 if unknown
	// unsettled reports whether the file may lack the mark of isLogged. moved is the last known
	// modification time of the file: a program that moves content from the log into it may have removed
	// the mark.
	unsettled bool
	again     bool // a reader or another process prevented settling
	moved     time.Time
	files     []openFile // open files
	looked    time.Time  // time of the last check of files
}

var _ sqlstore.Writer = (*writer)(nil)

func openWriter(ctx context.Context, path string, o Options) (*writer, error) {
	c, err := connect(ctx, path, o.BusyTimeout,
		"synchronous(NORMAL)", "fullfsync(1)", fmt.Sprintf("journal_size_limit(%d)", walKeepBytes))
	if err != nil {
		return nil, err
	}
	w := &writer{conn: c, busy: o.BusyTimeout, steps: o.steps}
	if err := w.open(ctx, o); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return w, nil
}

func (w *writer) open(ctx context.Context, o Options) error {
	v, err := readVersion(ctx, w.conn, w.path)
	if err != nil {
		return err
	}
	if v == 0 {
		if err := create(ctx, w.path, o); err != nil {
			return err
		}
	}
	var incomplete error
	if o.unlogged && v > 0 {
		if incomplete = checkLog(ctx, w.conn, w.path); incomplete != nil &&
			(o.AdoptBy == "" || !errors.Is(incomplete, store.ErrIncomplete)) {
			return incomplete
		}
	}
	if err := walMode(ctx, w.conn); err != nil {
		return err
	}
	// The schema that this connection has cached is from before the tables were created. If nothing can
	// be read now, as on a full disk, a statement would not find its table; this returns the real
	// cause.
	if _, err := readVersion(ctx, w.conn, w.path); err != nil {
		return err
	}
	if err := settleKeys(ctx, w.conn, w.path); err != nil {
		return err
	}
	if w.keys, err = openKeys(ctx, w.conn, o, incomplete); err != nil {
		return err
	}
	if err := w.steps.CheckSchema(ctx, w.conn, w.path); errors.Is(err, store.ErrUnmigrated) {
		if err := upgrade(ctx, w.path, w.keys, w.steps); err != nil {
			return err
		}
	} else if err != nil {
		return err
	}
	for _, name := range []string{w.path, w.path + "-wal"} {
		info, err := os.Stat(name)
		if err != nil {
			return err
		}
		w.files = append(w.files, openFile{name, info})
	}
	return w.conn.run(ctx, "PRAGMA busy_timeout=0") // Begin waits itself
}

// Due implements [sqlstore.Writer].
func (w *writer) Due() time.Duration {
	switch {
	case !w.unsettled:
		return 0
	case w.again:
		return settleAgain
	}
	return settleAfter
}

// Tend writes the mark to the file, and a change that removes it to the log. If a reader or another
// process prevents that, it tries again later.
func (w *writer) Tend() {
	w.unsettled, w.again = false, false
	log, err := os.Stat(w.path + "-wal")
	if err != nil || log.Size() > settleBytes && w.moved.Equal(w.files[0].info.ModTime()) {
		return
	}
	marked, err := w.mark(context.Background())
	kind := mapped(w.path, err)
	w.again = !marked && (err == nil || errors.Is(kind, store.ErrLocked) || errors.Is(kind, store.ErrFull))
	w.unsettled = w.again
}

// mark does the work of Tend. It reports whether the file is marked.
func (w *writer) mark(ctx context.Context) (marked bool, err error) {
	file, err := connect(ctx, w.path, 0, immutable)
	if err != nil {
		return false, err
	}
	marked, err = isLogged(ctx, file)
	if err = errors.Join(err, file.Close()); err != nil {
		return false, err
	}
	if !marked {
		if err := w.setLogged(ctx, true); err != nil {
			return false, err
		}
		var busy, pages, moved int
		err := sqlstore.One(ctx, w.conn, "PRAGMA wal_checkpoint(PASSIVE)", nil, &busy, &pages, &moved)
		// the log must not end with the mark: another program may move it into the file
		if err != nil || moved < pages {
			return false, errors.Join(err, w.setLogged(ctx, false))
		}
	}
	err = w.setLogged(ctx, false)
	return err == nil, err
}

// setLogged sets or removes the mark in the log, unless it is set so already.
func (w *writer) setLogged(ctx context.Context, logged bool) (err error) {
	if is, err := isLogged(ctx, w.conn); err != nil || is == logged {
		return err
	}
	if err := w.Begin(ctx, false); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			w.Rollback(ctx)
		}
	}()
	changed, err := w.checkContent(ctx)
	if err != nil {
		return err
	}
	if err := setLogged(ctx, w.conn, logged); err != nil {
		return err
	}
	if _, err := w.Exec(ctx, "COMMIT"); err != nil || changed {
		w.content = 0 // the next transaction learns of the change
		return err
	}
	w.content, err = w.conn.content()
	return err
}

// Check implements [sqlstore.Writer]. The files were removed or replaced if it returns store.ErrReplaced.
func (w *writer) Check(ctx context.Context) (changed bool, err error) {
	if changed, err = w.checkContent(ctx); err == nil {
		err = w.checkFiles(false)
	}
	return changed, err
}

// checkContent reports whether another writer has changed the file since this writer's last transaction.
// If so, the version of the schema is checked again.
func (w *writer) checkContent(ctx context.Context) (changed bool, err error) {
	content, err := w.conn.content()
	if err != nil || content == w.content && content != 0 {
		return false, err
	}
	w.content = content
	return true, w.steps.CheckSchema(ctx, w, w.path)
}

// openFile is a file that the connection has open.
type openFile struct {
	name string
	info os.FileInfo
}

// checkFiles returns store.ErrReplaced if a file that was written to no longer has its name: data
// stored there would be lost, so no effect may depend on it. Unless now is set, as after a barrier, it
// checks only every filesAge: without a barrier, data may be lost anyway, and after a barrier it is
// checked.
func (w *writer) checkFiles(now bool) error {
	at := time.Now()
	if !now && at.Sub(w.looked) < filesAge {
		return nil
	}
	for _, f := range w.files {
		info, err := os.Stat(f.name)
		if err != nil || !os.SameFile(info, f.info) {
			w.looked = time.Time{} // the next job without a barrier checks again
			return &store.Error{Kind: store.ErrReplaced, Path: f.name, Err: err}
		}
		if f.name == w.path && !info.ModTime().Equal(w.moved) {
			w.moved, w.unsettled = info.ModTime(), true
		}
	}
	w.looked = at
	return nil
}

// Begin implements [sqlstore.Writer]. SQLite does not permit changing the sync of a transaction inside of it.
func (w *writer) Begin(ctx context.Context, full bool) error {
	if full != w.full {
		pragma := "PRAGMA synchronous=NORMAL"
		if full {
			pragma = "PRAGMA synchronous=FULL"
		}
		if _, err := w.Exec(context.Background(), pragma); err != nil {
			return err
		}
		w.full = full
	}
	for since, pause := time.Now(), time.Millisecond; ; pause = min(2*pause, lockPause) {
		_, err := w.Exec(context.Background(), "BEGIN IMMEDIATE")
		if !errors.Is(mapped(w.path, err), store.ErrLocked) || time.Since(since) >= w.busy && !compacting(w.path) {
			return err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return err
		}
	}
}

// Commit implements [sqlstore.Writer].
func (w *writer) Commit(ctx context.Context) error {
	if _, err := w.Exec(ctx, "COMMIT"); err != nil {
		return err
	}
	w.content, _ = w.conn.content() // 0 on an error; then it is read again
	return w.checkFiles(w.full)
}

// Transient implements [sqlstore.Writer].
func (w *writer) Transient(error) bool { return false }

// Rollback implements [sqlstore.Writer].
func (w *writer) Rollback(ctx context.Context) {
	w.content = 0 // unknown
	// After some errors, such as a full disk, SQLite has rolled back by itself and reports here that
	// there is nothing to roll back.
	_ = w.conn.run(ctx, "ROLLBACK")
}

// Close implements [sqlstore.Writer].
func (w *writer) Close() error {
	ctx := context.Background()
	if logged, err := isLogged(ctx, w.conn); err == nil && logged {
		// If another process is writing, it keeps the mark and the log.
		_ = setLogged(ctx, w.conn, false)
	}
	return w.conn.Close()
}
