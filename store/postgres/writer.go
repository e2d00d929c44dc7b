package postgres

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/toolcrib/toolcrib/store"
	"github.com/toolcrib/toolcrib/store/sqlstore"
)

const (
	// txTimeout bounds a transaction that writes. The server ends one whose client is silent for idleTimeout,
	// less than others wait: it has the lock for writing.
	txTimeout   = 2 * time.Minute
	idleTimeout = 5 * time.Second
	// The interval between attempts to connect doubles up to maxPause.
	minPause = 20 * time.Millisecond
	maxPause = time.Second
	// writersKept is how long the last transaction of a store that has ended is kept.
	writersKept = "30 days"
)

// writer is the connection for writing. A transaction begins with the lock of the row of toolcrib.state,
// so that transactions of all servers follow one another as with SQLite.
type writer struct {
	*conn
	db      *database
	id      string          // of its row in toolcrib.writers
	content int64           // number of the last transaction; 0 if unknown
	now     int64           // number of the current transaction
	last    int64           // number of the last transaction of this writer in the database; 0 if it has none
	version int             // version of the schema in the current transaction
	oldest  int             // oldest version whose programs may work on it
	tx      context.Context // of the current transaction
	end     context.CancelFunc
}

var _ sqlstore.Writer = (*writer)(nil)

func openWriter(ctx context.Context, db *database) (*writer, error) {
	w := &writer{conn: &conn{texts: &db.texts}, db: db, id: rand.Text()}
	if err := w.connect(ctx); err != nil {
		return nil, err
	}
	_, err := w.Conn.Exec(ctx, "DELETE FROM toolcrib.writers WHERE at < now() - interval '"+writersKept+"'")
	return w, errors.Join(err)
}

// connect connects unless there is a usable connection.
func (w *writer) connect(ctx context.Context) error {
	if w.Conn != nil && !w.IsClosed() {
		return nil
	}
	made, err := pgx.ConnectConfig(ctx, w.db.config.Copy())
	if err == nil {
		w.Conn, w.content = made, 0
	}
	return err
}

// Begin implements [sqlstore.Writer]. Every transaction is durable. It waits for a server that cannot be
// reached as long as for the lock.
func (w *writer) Begin(ctx context.Context, _ bool) error {
	w.later = nil
	for wait := newWait(w.db.busy); ; {
		err := w.begin(ctx, wait.until)
		if err == nil || !broken(err) || !wait.again(ctx) {
			return err
		}
	}
}

// durable makes the current transaction survive a crash of the server. The setting of the role may only be
// stronger.
const durable = `set_config('synchronous_commit',
	CASE current_setting('synchronous_commit') WHEN 'remote_apply' THEN 'remote_apply' ELSE 'on' END, true)`

// begin begins a transaction in one round trip.
func (w *writer) begin(ctx context.Context, deadline time.Time) error {
	ctx, cancel := context.WithDeadline(ctx, deadline.Add(time.Second)) // the server's timeout comes first
	defer cancel()
	if err := w.connect(ctx); err != nil {
		return err
	}
	wait := max(time.Until(deadline), time.Millisecond).Milliseconds()
	results, err := w.PgConn().Exec(ctx, fmt.Sprintf(`BEGIN; SELECT set_config('lock_timeout', '%d', true), set_config('statement_timeout', '%d', true),
			set_config('idle_in_transaction_session_timeout', '%d', true), `+durable+`;
		UPDATE toolcrib.state SET content = content + 1 WHERE one = 1 RETURNING content, version, oldest,
			coalesce((SELECT content FROM toolcrib.writers WHERE id = '%s'), 0)`,
		wait, txTimeout.Milliseconds(), idleTimeout.Milliseconds(), w.id)).ReadAll()
	if err == nil {
		rows := results[len(results)-1].Rows
		if len(rows) == 0 {
			err = &store.ChainError{What: "the row of toolcrib.state is gone"}
		} else {
			_, err = fmt.Sscan(string(bytes.Join(rows[0], []byte(" "))), &w.now, &w.version, &w.oldest, &w.last)
		}
	}
	if err != nil {
		w.Rollback(ctx)
		return err
	}
	w.tx, w.end = context.WithTimeout(context.Background(), txTimeout)
	return nil
}

// Check implements [sqlstore.Writer]. The number alone does not show that nothing has changed: a crash of the
// server can set it back, and others can then have written as many transactions as were lost.
func (w *writer) Check(context.Context) (changed bool, err error) {
	return w.now != w.content+1 || w.last != w.content, w.db.steps.Check(w.db.path, w.version, w.oldest)
}

// within returns the context of the current transaction.
func (w *writer) within(ctx context.Context) context.Context {
	if w.tx != nil {
		return w.tx
	}
	return ctx
}

// Each implements [sqlstore.Reader].
func (w *writer) Each(ctx context.Context, query string, args []any, do func(scan sqlstore.Scan) error) error {
	return w.conn.Each(w.within(ctx), query, args, do)
}

// Exec implements [sqlstore.Execer].
func (w *writer) Exec(ctx context.Context, query string, args ...any) (changed int64, err error) {
	return w.conn.Exec(w.within(ctx), query, args...)
}

// committed records the transaction in the row of the writer.
const committed = `INSERT INTO toolcrib.writers (id, content) VALUES ($1, $2)
	ON CONFLICT (id) DO UPDATE SET content = excluded.content, at = excluded.at`

// Commit implements [sqlstore.Writer]. If the server does not answer, the outcome is looked up in another
// transaction.
func (w *writer) Commit(ctx context.Context) error {
	if w.later == nil {
		w.later = new(pgx.Batch)
	}
	w.later.Queue(committed, w.id, w.now)
	rows, end, err := w.send(w.tx, "COMMIT", nil)
	tag := pgconn.CommandTag{}
	if err == nil {
		rows.Close()
		tag = rows.CommandTag()
		err = errors.Join(rows.Err(), end())
	}
	w.end()
	w.tx = nil
	switch {
	case err == nil && tag.String() != "COMMIT":
		return errAborted
	case err == nil:
		w.content = w.now
		return nil
	case !broken(err) && !w.IsClosed():
		return err
	}
	return w.lookUp(ctx, w.now, err)
}

// lookUp returns nil if a transaction was committed, and otherwise the error with which it ended. The
// new transaction in which it looks begins when the old one has ended.
func (w *writer) lookUp(ctx context.Context, number int64, lost error) error {
	if err := w.Begin(ctx, true); err != nil {
		return &unknownError{errors.Join(lost, err)}
	}
	var last int64
	err := w.QueryRow(w.tx, "SELECT content FROM toolcrib.writers WHERE id = $1", w.id).Scan(&last)
	w.Rollback(ctx)
	switch {
	case err == nil && last == number:
		return nil
	case err == nil, errors.Is(err, pgx.ErrNoRows):
		return lost
	}
	return &unknownError{errors.Join(lost, err)}
}

// Rollback implements [sqlstore.Writer].
func (w *writer) Rollback(ctx context.Context) {
	if w.end != nil {
		w.end()
	}
	w.tx, w.end, w.content, w.later = nil, nil, 0, nil
	if w.Conn == nil || w.IsClosed() {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), idleTimeout)
	defer cancel()
	if _, err := w.PgConn().Exec(ctx, "ROLLBACK").ReadAll(); err != nil {
		_ = w.Conn.Close(ctx) // the next transaction connects again
	}
}

// Transient implements [sqlstore.Writer].
func (w *writer) Transient(err error) bool { return transient(err) }

// Due implements [sqlstore.Writer].
func (w *writer) Due() time.Duration { return 0 }

// Tend implements [sqlstore.Writer].
func (w *writer) Tend() {}

// Close implements [sqlstore.Writer].
func (w *writer) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), idleTimeout)
	defer cancel()
	if w.Conn == nil || w.IsClosed() {
		return nil
	}
	_, _ = w.Conn.Exec(ctx, "DELETE FROM toolcrib.writers WHERE id = $1", w.id) // otherwise it goes with time
	return w.Conn.Close(ctx)
}
