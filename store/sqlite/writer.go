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

// The bounds of what one transaction takes.
const (
	groupJobs  = 128
	groupBytes = 16 << 20
	// headsKept is how many runs are remembered.
	headsKept = 256
	// walKeepBytes is what the -wal file is cut back to after a large write.
	walKeepBytes = 64 << 20
	// filesAge is for how long the files of the database are taken to be where they were.
	filesAge = 20 * time.Millisecond
	// lockPause is the longest pause between two looks at a lock that another process has.
	lockPause = 50 * time.Millisecond
	// settleAfter is when the mark of isLogged goes into the file, which a short run needs not wait for.
	settleAfter = 200 * time.Millisecond
	settleAgain = time.Second // where a reader or another process is in the way
	// settleBytes is how long a log may be for that: a longer one is moved when SQLite does so. On a disk
	// that was full, moving it could take the room that the next append needs.
	settleBytes = 1 << 20
)

// Stats counts what a store has written since it was opened.
type Stats struct {
	Commits uint64 // transactions
	Synced  uint64 // of these, with a full sync
}

// job is one write. do may run more than once, each time in a new transaction,
// so it must change nothing outside but what it sets again each time.
type job struct {
	barrier bool
	bytes   int
	token   string // the ID of the access token that caused it; "" = none
	do      func(*tx) error
	done    chan error
}

// rejection is an error of one job that has written nothing, so that the others
// of its group go on.
type rejection struct{ err error }

func (r *rejection) Error() string { return r.err.Error() }

func reject(err error) error { return &rejection{err: err} }

// writer owns the connection that writes. Whoever has the turn uses it.
type writer struct {
	path string
	busy time.Duration // for how long a lock of another process is waited for
	now  func() time.Time
	keys *store.Keys // seal what is stored
	conn *conn
	full bool // the connection's synchronous is FULL, not NORMAL
	// where the runs of late stand, also in the transaction that is under way; only who has the turn
	// looks, and what is pointed to never changes
	heads map[toolcrib.RunID]*head
	// reserves says that there are, or were, reservations; likewise.
	reserves bool
	// checked reports whether the record of all runs was compared with the runs, and sealed is
	// the head as the last transaction left it, if known; both only for content; likewise.
	checked bool
	sealed  *headSeal
	content uint32 // of the file, as it was after the last transaction; 0 = unknown
	// silent reports whether content has no message to any run; likewise.
	silent bool
	// unsettled reports whether the file may lack the mark of isLogged, and moved is when the file was last
	// written to, as far as was seen: whoever moves content from the log into it may have removed the mark; likewise.
	unsettled bool
	moved     time.Time
	files     []openFile     // that it writes to
	looked    time.Time      // when they were checked
	sealing   *store.Sealing // of the row that is being sealed

	charges []store.UseEntry // of the append that is being stored
	args    []any            // of the statement that is being run
	tx      tx               // that is under way

	turn  chan struct{} // holds one value while a goroutine has the turn
	due   *time.Timer   // for settle; nil = nothing is to be settled; who has the turn looks
	ended chan struct{} // closed when the connection is
	// whether the last transaction was of more than one job; who has the turn looks
	shared bool

	mu     sync.Mutex // of what follows
	closed bool
	queues map[bool][]*job // that wait, by whether they are barriers

	commits, synced atomic.Uint64 // see Stats
}

func openWriter(ctx context.Context, path string, o Options) (*writer, error) {
	c, err := connect(ctx, path, o.BusyTimeout,
		"synchronous(NORMAL)", "fullfsync(1)", fmt.Sprintf("journal_size_limit(%d)", walKeepBytes))
	if err != nil {
		return nil, err
	}
	w := &writer{
		path: path, busy: o.BusyTimeout, now: o.Now, conn: c, heads: make(map[toolcrib.RunID]*head),
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
	// What this connection knows of tables is from before they were made. If nothing can be read now, as on a full
	// disk, a statement would find no table; this reports why.
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

// do hands in a job and waits for its outcome. Of those who wait, the first stores the jobs of
// all. If ctx ends before the job is in a transaction, nothing is stored; later, its outcome is
// waited for, so that the caller always knows.
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

// abandon reports whether j was still waiting; then it does no longer.
func (w *writer) abandon(j *job) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	i := slices.Index(w.queues[j.barrier], j)
	if i >= 0 {
		w.queues[j.barrier] = slices.Delete(w.queues[j.barrier], i, i+1)
	}
	return i >= 0
}

// work stores jobs that wait until the outcome of j is known, or ctx ends. They are not in any
// order: what need not reach the disk at once does not wait for what must, and during that sync
// the runs of the others go on to their next appends.
func (w *writer) work(ctx context.Context, j *job) {
	if w.shared {
		runtime.Gosched() // those who are about to hand in a job come along
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

// gather takes what waits in a queue already.
func (w *writer) gather(barrier bool) []*job {
	w.mu.Lock()
	defer w.mu.Unlock()
	waiting := w.queues[barrier]
	n, bytes := 0, 0
	for ; n < len(waiting) && n < groupJobs && bytes < groupBytes; n++ {
		bytes += waiting[n].bytes
	}
	if w.queues[barrier] = waiting[n:]; n == len(waiting) {
		w.queues[barrier] = nil // what was taken has no room behind it
	}
	return waiting[:n]
}

// settle marks the file as one with a log, and takes the mark back in the log. If a reader is in the way, or
// another process, it is tried again.
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

// mark is the work of settle. It reports whether the file is marked.
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
		if err != nil || moved < pages { // the log must not end with the mark: another program may move it
			return false, errors.Join(err, w.setLogged(ctx, false))
		}
	}
	err = w.setLogged(ctx, false)
	return err == nil, err
}

// setLogged sets or removes the mark in the log, unless it is so.
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

// commit stores a group of those that wait in a queue in one transaction. If that fails, each
// job gets one of its own, so that a job that cannot be stored fails alone. It returns false
// if ctx has ended while another process had the lock.
func (w *writer) commit(ctx context.Context, barrier bool) bool {
	if !w.waits(barrier) {
		return true
	}
	locked := w.begin(ctx, barrier)
	if locked != nil && ctx.Err() != nil {
		return false
	}
	ctx = context.Background() // once begun, a transaction is not given up halfway
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

// deliver tells the callers of jobs what became of them: the job's own
// rejection, else what became of the transaction.
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

// attempt runs jobs in the transaction that was begun, and commits it. It
// returns their rejections; with an error nothing was stored.
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
	w.content, _ = w.conn.content() // 0 on an error, and then it is looked at again
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

// checkContent looks whether anything but this writer has written since its last
// transaction. If so, nothing that was known of the file is, and another process may have
// brought the database to a later version.
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

// checkFiles returns store.ErrReplaced if a file that was written to is no longer the one
// of its name: what was stored there nobody will find, so nothing may be done on it. Unless it
// has to be known now, as after a barrier, it looks only every filesAge: what is no barrier may be
// lost anyway, and what is one is looked after.
func (w *writer) checkFiles(now bool) error {
	at := time.Now()
	if !now && at.Sub(w.looked) < filesAge {
		return nil
	}
	for _, f := range w.files {
		info, err := os.Stat(f.name)
		if err != nil || !os.SameFile(info, f.info) {
			w.looked = time.Time{} // what is no barrier looks at once, too
			return &store.Error{Kind: store.ErrReplaced, Path: f.name, Err: err}
		}
		if f.name == w.path && !info.ModTime().Equal(w.moved) {
			w.moved, w.unsettled = info.ModTime(), true
		}
	}
	w.looked = at
	return nil
}

// remember keeps where a run stands. One that has ended is not asked for again.
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

// begin begins a transaction with the sync that it needs. SQLite allows no
// change of it inside of one.
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
	w.content = 0 // what was stored is not known
	clear(w.heads)
	// After some errors (a full disk, say) SQLite has rolled back by itself, and
	// says here that there is nothing to roll back.
	_ = w.conn.run(ctx, "ROLLBACK")
}

// close takes no more jobs, stores those that were handed in, and closes the connection.
func (w *writer) close() error {
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
	w.turn <- struct{}{} // for good
	defer close(w.ended)
	ctx := context.Background()
	for w.waits(false) || w.waits(true) {
		_, _ = w.commit(ctx, false), w.commit(ctx, true) // who waits is told
	}
	if logged, err := isLogged(ctx, w.conn); err == nil && logged {
		// If another process is writing, it keeps the mark, and the log.
		_ = setLogged(ctx, w.conn, false)
	}
	return w.conn.Close()
}

// tx is a transaction of the writer. Only who has the turn uses it.
type tx struct {
	ctx  context.Context
	w    *writer
	seal *headSeal  // nil = not read yet
	used store.Used // what its appends say was used

	token string // of the job at hand
}

// newTx makes a transaction, in the memory of the one before.
func (w *writer) newTx(ctx context.Context) *tx {
	t := &w.tx
	if t.used == nil {
		t.used = make(store.Used)
	}
	clear(t.used)
	*t = tx{ctx: ctx, w: w, used: t.used}
	return t
}

// finish stores what is kept once for all jobs of a transaction, and commits it.
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

// row reads one row into dest; [sql.ErrNoRows] if there is none.
func (t *tx) row(query string, args []any, dest ...any) error {
	return one(t.ctx, t.w.conn, query, args, dest...)
}
