package sqlite

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/store"
)

// The bounds of one transaction.
const (
	groupJobs  = 128
	groupBytes = 16 << 20
	// headsKept bounds the runs whose heads are cached.
	headsKept = 256
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

// Stats counts the writes of a store since it was opened.
type Stats struct {
	Commits uint64 // transactions
	Synced  uint64 // transactions with a full sync
}

// job is one write. do may be called more than once, each time in a new transaction, so it must not
// change anything outside that it does not set again each time.
type job struct {
	barrier bool
	bytes   int
	token   string // ID of the access token that caused it, or ""
	do      func(*tx) error
	done    chan error
}

// rejection is an error of one job that has not written anything, so that the other jobs of its group
// continue.
type rejection struct{ err error }

func (r *rejection) Error() string { return r.err.Error() }

func reject(err error) error { return &rejection{err: err} }

// writer owns the connection for writing. It is used by the goroutine that has the turn.
type writer struct {
	path string
	busy time.Duration // how long to wait for the lock of another process
	now  func() time.Time
	// owner takes the leases of new runs.
	owner store.Owner
	keys  *store.Keys // keys that seal the stored data
	conn  *conn
	full  bool // the connection's synchronous is FULL, not NORMAL
	// heads caches the heads of recent runs, including those of the current transaction. It is used
	// only by the goroutine that has the turn, as are the fields below up to shared. A head is not
	// modified once it is in the map.
	heads map[toolcrib.RunID]*head
	// reserves reports whether there are, or have been, reservations.
	reserves bool
	// checked reports whether the record of all runs was compared with the runs, and sealed is the head
	// after the last transaction, if known. Both apply to content only.
	checked bool
	sealed  *headSeal
	content uint32 // content number of the file after the last transaction; 0 if unknown
	// silent reports whether the file has no messages to runs at content.
	silent bool
	// unsettled reports whether the file may lack the mark of isLogged. moved is the last known
	// modification time of the file: a program that moves content from the log into it may have removed
	// the mark.
	unsettled bool
	moved     time.Time
	files     []openFile     // open files
	looked    time.Time      // time of the last check of files
	sealing   *store.Sealing // seals the current row

	charges []store.UseEntry // usage reported by the current append
	args    []any            // arguments of the current statement
	tx      tx               // current transaction

	turn  chan struct{} // contains one element while a goroutine has the turn
	due   *time.Timer   // timer for settle; nil if there is nothing to settle
	ended chan struct{} // closed along with the connection
	// shared reports whether the last transaction had more than one job.
	shared bool

	mu     sync.Mutex // guards the fields below
	closed bool
	queues map[bool][]*job // waiting jobs; the key is whether they are barriers

	commits, synced atomic.Uint64 // see Stats
}

func openWriter(ctx context.Context, path string, o Options) (*writer, error) {
	c, err := connect(ctx, path, o.BusyTimeout,
		"synchronous(NORMAL)", "fullfsync(1)", fmt.Sprintf("journal_size_limit(%d)", walKeepBytes))
	if err != nil {
		return nil, err
	}
	w := &writer{
		path: path, busy: o.BusyTimeout, now: o.Now, owner: o.Owner, conn: c, heads: make(map[toolcrib.RunID]*head),
		turn: make(chan struct{}, 1), ended: make(chan struct{}), queues: make(map[bool][]*job),
	}
	if err := w.connect(ctx, o); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return w, nil
}

func (w *writer) connect(ctx context.Context, o Options) error {
	v, err := readVersion(ctx, w.conn, w.path)
	if err != nil {
		return err
	}
	if v < schemaVersion {
		if err := create(ctx, w.path, o); err != nil {
			return err
		}
	}
	var incomplete error
	if o.unlogged && v == schemaVersion {
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
	w.sealing = w.keys.SealRun()
	for _, name := range []string{w.path, w.path + "-wal"} {
		info, err := os.Stat(name)
		if err != nil {
			return err
		}
		w.files = append(w.files, openFile{name, info})
	}
	return w.conn.run(ctx, "PRAGMA busy_timeout=0") // begin waits itself
}

// do submits a job and waits for its outcome. Of the waiting callers, the first stores the jobs of all.
// If ctx ends before the job is in a transaction, nothing is stored; after that, do waits for the
// outcome, so that the caller always knows it.
func (w *writer) do(ctx context.Context, j *job) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	j.done, j.token = make(chan error, 1), store.TokenOf(ctx)
	if err := w.hand(j); err != nil {
		return err
	}
	select {
	case err := <-j.done:
		return err
	case w.turn <- struct{}{}:
		w.work(ctx, j)
		<-w.turn
	case <-ctx.Done():
	}
	if w.abandon(j) {
		return ctx.Err()
	}
	return <-j.done
}

func (w *writer) hand(j *job) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return &store.Error{Kind: store.ErrClosed, Path: w.path}
	}
	w.queues[j.barrier] = append(w.queues[j.barrier], j)
	return nil
}

// abandon removes j from its queue. It returns false if j was no longer in it.
func (w *writer) abandon(j *job) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	i := slices.Index(w.queues[j.barrier], j)
	if i >= 0 {
		w.queues[j.barrier] = slices.Delete(w.queues[j.barrier], i, i+1)
	}
	return i >= 0
}

// work stores waiting jobs until the outcome of j is known, or ctx ends. Jobs are not stored in the
// order of their submission: a job without a barrier does not wait for one with a barrier, and during
// that one's sync other runs continue to their next appends.
func (w *writer) work(ctx context.Context, j *job) {
	if w.shared {
		runtime.Gosched() // include the jobs that are about to be submitted
	}
	for ok := true; ok && len(j.done) == 0; {
		ok = w.commit(ctx, false) && (!j.barrier || w.commit(ctx, true))
	}
	if w.unsettled && w.due == nil {
		w.due = time.AfterFunc(settleAfter, w.settle)
	}
}

// waits reports whether a job waits in a queue.
func (w *writer) waits(barrier bool) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.queues[barrier]) > 0
}

// gather removes the jobs that wait in a queue, up to the bounds of a transaction.
func (w *writer) gather(barrier bool) []*job {
	w.mu.Lock()
	defer w.mu.Unlock()
	waiting := w.queues[barrier]
	n, bytes := 0, 0
	for ; n < len(waiting) && n < groupJobs && bytes < groupBytes; n++ {
		bytes += waiting[n].bytes
	}
	if w.queues[barrier] = waiting[n:]; n == len(waiting) {
		w.queues[barrier] = nil // do not retain the array of the jobs
	}
	return waiting[:n]
}

// settle writes the mark to the file, and a change that removes it to the log. If a reader or another
// process prevents that, it tries again later.
func (w *writer) settle() {
	select {
	case w.turn <- struct{}{}:
		defer func() { <-w.turn }()
	case <-w.ended:
		return
	}
	w.due = nil
	w.unsettled = false
	log, err := os.Stat(w.path + "-wal")
	if err != nil || log.Size() > settleBytes && w.moved.Equal(w.files[0].info.ModTime()) {
		return
	}
	marked, err := w.mark(context.Background())
	kind := mapped(w.path, err)
	again := err == nil || errors.Is(kind, store.ErrLocked) || errors.Is(kind, store.ErrFull)
	if w.unsettled = !marked && again; w.unsettled {
		w.due = time.AfterFunc(settleAgain, w.settle)
	}
}

// mark does the work of settle. It reports whether the file is marked.
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
		err := one(ctx, w.conn, "PRAGMA wal_checkpoint(PASSIVE)", nil, &busy, &pages, &moved)
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
	if err := w.begin(ctx, false); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			w.rollback(ctx)
		}
	}()
	if err := w.checkContent(ctx); err != nil {
		return err
	}
	if err := setLogged(ctx, w.conn, logged); err != nil {
		return err
	}
	if _, err := w.conn.exec(ctx, "COMMIT"); err != nil {
		return err
	}
	w.content, err = w.conn.content()
	return err
}

// commit stores a group of the jobs in a queue in one transaction. If that fails, each job gets a
// transaction of its own, so that a job that cannot be stored fails alone. It returns false if ctx has
// ended while another process had the lock.
func (w *writer) commit(ctx context.Context, barrier bool) bool {
	if !w.waits(barrier) {
		return true
	}
	locked := w.begin(ctx, barrier)
	if locked != nil && ctx.Err() != nil {
		return false
	}
	ctx = context.Background() // once begun, a transaction is not abandoned
	group := w.gather(barrier)
	w.shared = len(group) > 1
	if locked != nil {
		w.deliver(group, nil, locked)
		return true
	}
	errs, err := w.attempt(ctx, group)
	if err == nil || len(group) < 2 {
		w.deliver(group, errs, err)
		return true
	}
	for i := range group {
		one := group[i : i+1]
		if err = w.begin(ctx, barrier); err == nil {
			errs, err = w.attempt(ctx, one)
		}
		w.deliver(one, errs, err)
	}
	return true
}

// deliver sends the callers of jobs their outcomes: the job's own rejection, or else the outcome of the
// transaction.
func (w *writer) deliver(group []*job, errs []error, whole error) {
	for i, j := range group {
		var r *rejection
		if whole == nil && errors.As(errs[i], &r) {
			j.done <- r.err
			continue
		}
		j.done <- mapped(w.path, whole)
	}
}

// attempt runs jobs in the transaction that was begun, and commits it. It returns their rejections. If
// it returns an error, nothing was stored.
func (w *writer) attempt(ctx context.Context, group []*job) (errs []error, err error) {
	defer func() {
		if err != nil {
			w.rollback(ctx)
		}
	}()
	t := w.newTx(ctx)
	if err := w.checkContent(ctx); err != nil {
		return nil, err
	}
	if err := w.checkFiles(false); err != nil {
		return nil, err
	}
	errs = make([]error, len(group))
	for i, j := range group {
		t.token = j.token
		errs[i] = j.do(t)
		var r *rejection
		if errs[i] != nil && !errors.As(errs[i], &r) {
			return nil, errs[i]
		}
	}
	if err := t.finish(); err != nil {
		return nil, err
	}
	w.content, _ = w.conn.content() // 0 on an error; then it is read again
	if t.seal != nil {
		w.sealed = &headSeal{system: t.seal.system, record: t.seal.record, known: t.seal.known}
	}
	if err := w.checkFiles(w.full); err != nil {
		return nil, err
	}
	w.commits.Add(1)
	if w.full {
		w.synced.Add(1)
	}
	return errs, nil
}

// checkContent checks whether another writer has changed the file since this writer's last transaction.
// If so, all cached state is discarded, and the schema version is checked again.
func (w *writer) checkContent(ctx context.Context) error {
	content, err := w.conn.content()
	if err != nil || content == w.content && content != 0 {
		return err
	}
	w.content, w.checked, w.sealed, w.silent = content, false, nil, false
	version := 0
	if err = one(ctx, w.conn, "PRAGMA user_version", nil, &version); err == nil {
		err = checkVersion(version, w.path)
	}
	return err
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

// remember caches the head of a run. A run that has ended is not needed again.
func (w *writer) remember(run toolcrib.RunID, h *head) {
	if h.Record.Status.Ended() {
		delete(w.heads, run)
		return
	}
	if _, ok := w.heads[run]; !ok && len(w.heads) >= headsKept {
		for other := range w.heads {
			delete(w.heads, other)
			break
		}
	}
	w.heads[run] = h
}

// begin begins a transaction with the sync that it needs. SQLite does not permit changing it inside of
// a transaction.
func (w *writer) begin(ctx context.Context, full bool) error {
	if full != w.full {
		pragma := "PRAGMA synchronous=NORMAL"
		if full {
			pragma = "PRAGMA synchronous=FULL"
		}
		if _, err := w.conn.exec(context.Background(), pragma); err != nil {
			return err
		}
		w.full = full
	}
	for since, pause := time.Now(), time.Millisecond; ; pause = min(2*pause, lockPause) {
		_, err := w.conn.exec(context.Background(), "BEGIN IMMEDIATE")
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

// rollback ends a transaction that failed.
func (w *writer) rollback(ctx context.Context) {
	w.content = 0 // unknown
	clear(w.heads)
	// After some errors, such as a full disk, SQLite has rolled back by itself and reports here that
	// there is nothing to roll back.
	_ = w.conn.run(ctx, "ROLLBACK")
}

// close accepts no more jobs, stores the submitted ones, and closes the connection.
func (w *writer) close() error {
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
	w.turn <- struct{}{} // never released
	defer close(w.ended)
	ctx := context.Background()
	for w.waits(false) || w.waits(true) {
		_, _ = w.commit(ctx, false), w.commit(ctx, true) // their callers receive the outcomes
	}
	if logged, err := isLogged(ctx, w.conn); err == nil && logged {
		// If another process is writing, it keeps the mark and the log.
		_ = setLogged(ctx, w.conn, false)
	}
	return w.conn.Close()
}

// tx is a transaction of the writer, used only by the goroutine that has the turn.
type tx struct {
	ctx  context.Context
	w    *writer
	seal *headSeal  // nil if not read yet
	used store.Used // usage reported by its appends

	token string // token of the current job
}

// newTx returns a new transaction in the memory of the previous one.
func (w *writer) newTx(ctx context.Context) *tx {
	t := &w.tx
	if t.used == nil {
		t.used = make(store.Used)
	}
	clear(t.used)
	*t = tx{ctx: ctx, w: w, used: t.used}
	return t
}

// finish stores the data that is common to all jobs of a transaction, and commits it.
func (t *tx) finish() error {
	if err := t.putUsed(); err != nil {
		return err
	}
	if err := t.putSeal(); err != nil {
		return err
	}
	_, err := t.exec("COMMIT")
	return err
}

func (t *tx) exec(query string, args ...any) (driver.Result, error) {
	return t.w.conn.exec(t.ctx, query, args...)
}

// each calls do with each row of a query.
func (t *tx) each(query string, args []any, do func(scan scanFunc) error) error {
	return t.w.conn.each(t.ctx, query, args, do)
}

// row reads one row into dest. It returns [sql.ErrNoRows] if no row matches.
func (t *tx) row(query string, args []any, dest ...any) error {
	return one(t.ctx, t.w.conn, query, args, dest...)
}
