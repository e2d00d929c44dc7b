package sqlstore

import (
	"context"
	"errors"
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
	db     Writer
	path   string // names the database in messages
	retry  time.Duration
	share  int
	now    func() time.Time
	owner  store.Owner // takes the leases of new runs
	bounds atomic.Pointer[store.LeaseBounds]
	mapped func(error) error
	keys   *store.Keys // keys that seal the stored data
	// heads caches the heads of recent runs, including those of the current transaction. It is used
	// only by the goroutine that has the turn, as are the fields below up to shared. A head is not
	// modified once it is in the map.
	heads map[toolcrib.RunID]*head
	// reserves reports whether there are, or have been, reservations.
	reserves bool
	// checked reports whether the record of all runs was compared with the runs, and sealed is the head
	// after the last transaction, if known. Both apply until another writer changes the database; see
	// [Options.CheckShare].
	checked atomic.Bool
	next    atomic.Int64                // time of the next comparison in nanoseconds; 0 means never
	compare func(context.Context) error // compares them in a snapshot
	sealed  *headSeal
	// silent reports whether there are no messages to runs, until another writer changes the database.
	silent  bool
	sealing *store.Sealing // seals the current row

	charges []store.UseEntry // usage reported by the current append
	args    []any            // arguments of the current statement
	tx      tx               // current transaction

	turn  chan struct{} // contains one element while a goroutine has the turn
	due   *time.Timer   // timer for tend; nil if nothing is due
	ended chan struct{} // closed along with the connection

	comparing sync.WaitGroup // of compareAgain, which living ends
	living    context.Context
	stop      context.CancelFunc
	// shared reports whether the last transaction had more than one job.
	shared bool

	mu     sync.Mutex // guards the fields below
	closed bool
	queues map[bool][]*job // waiting jobs; the key is whether they are barriers

	commits, synced atomic.Uint64 // see Stats
}

func newWriter(o Options) *writer {
	w := &writer{
		db: o.Writer, path: o.Path, retry: o.Retry, share: o.CheckShare, now: o.Now, owner: o.Owner,
		mapped: o.Database.Mapped, keys: o.Keys, sealing: o.Keys.SealRun(), heads: make(map[toolcrib.RunID]*head),
		turn: make(chan struct{}, 1), ended: make(chan struct{}), queues: make(map[bool][]*job),
	}
	w.living, w.stop = context.WithCancel(context.Background())
	return w
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
	w.schedule()
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

// schedule schedules tend if it is due. The caller has the turn.
func (w *writer) schedule() {
	if delay := w.db.Due(); delay > 0 && w.due == nil {
		w.due = time.AfterFunc(delay, w.tend)
	}
}

// tend does the work that the database wants done between transactions.
func (w *writer) tend() {
	select {
	case w.turn <- struct{}{}:
		defer func() { <-w.turn }()
	case <-w.ended:
		return
	}
	w.due = nil
	w.db.Tend()
	w.schedule()
}

// commit stores a group of the jobs in a queue in one transaction. If that fails, each job gets a
// transaction of its own, so that a job that cannot be stored fails alone; not if the database cannot be
// reached, because the outcome may be unknown, and no job would fare better. It returns false if ctx has
// ended while another process had the lock.
func (w *writer) commit(ctx context.Context, barrier bool) bool {
	if !w.waits(barrier) {
		return true
	}
	locked := w.db.Begin(ctx, barrier)
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
	errs, err := w.repeat(ctx, barrier, group)
	if err == nil || len(group) < 2 || errors.Is(w.mapped(err), store.ErrUnreachable) {
		w.deliver(group, errs, err)
		return true
	}
	for i := range group {
		one := group[i : i+1]
		if err = w.db.Begin(ctx, barrier); err == nil {
			errs, err = w.repeat(ctx, barrier, one)
		}
		w.deliver(one, errs, err)
	}
	return true
}

// repeat runs jobs in the transaction that was begun, and in others as long as it fails for a transient
// reason.
func (w *writer) repeat(ctx context.Context, barrier bool, group []*job) (errs []error, err error) {
	for since := time.Now(); ; {
		errs, err = w.attempt(ctx, barrier, group)
		if err == nil || !w.db.Transient(err) || time.Since(since) >= w.retry {
			return errs, err
		}
		if again := w.db.Begin(ctx, barrier); again != nil {
			return nil, again
		}
	}
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
		j.done <- w.mapped(whole)
	}
}

// attempt runs jobs in the transaction that was begun, and commits it. It returns their rejections. If
// it returns an error, nothing was stored.
func (w *writer) attempt(ctx context.Context, barrier bool, group []*job) (errs []error, err error) {
	defer func() {
		if err != nil {
			w.db.Rollback(ctx)
			w.sealed = nil
			clear(w.heads)
		}
	}()
	t := w.newTx(ctx)
	changed, err := w.db.Check(ctx)
	if err != nil {
		return nil, err
	}
	if changed {
		w.sealed, w.silent = nil, false
		if w.share == 0 {
			w.checked.Store(false)
		}
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
	if t.seal != nil {
		w.sealed = &headSeal{system: t.seal.system, record: t.seal.record, known: t.seal.known}
	}
	w.commits.Add(1)
	if barrier {
		w.synced.Add(1)
	}
	return errs, nil
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
	w.stop()
	w.comparing.Wait()
	return w.db.Close()
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
	return t.w.db.Commit(t.ctx)
}

// later executes a statement whose result is not needed.
func (t *tx) later(query string, args ...any) error { return t.w.db.Later(t.ctx, query, args...) }

// each calls do with each row of a query.
func (t *tx) each(query string, args []any, do func(scan Scan) error) error {
	return t.w.db.Each(t.ctx, query, args, do)
}

// row reads one row into dest. It returns [sql.ErrNoRows] if no row matches.
func (t *tx) row(query string, args []any, dest ...any) error {
	return One(t.ctx, t.w.db, query, args, dest...)
}
