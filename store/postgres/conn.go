package postgres

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/toolcrib/toolcrib/store"
	"github.com/toolcrib/toolcrib/store/sqlstore"
)

// conn is a connection. Statements that [conn.Later] got are sent with the next one, in one round trip.
type conn struct {
	*pgx.Conn
	texts *texts
	later *pgx.Batch // nil if it is empty
	row   []driver.Value
	read  bool      // whether a row was read
	until time.Time // when a query ends at the latest; zero if its context has a deadline
}

var _ sqlstore.Execer = (*conn)(nil)

// texts contains the translations of statements.
type texts struct {
	mu  sync.Mutex
	all map[text]string
}

// text is a statement. If one, it fails unless it changes a row.
type text struct {
	query string
	one   bool
}

// maxTexts bounds the translations that are kept. Almost all statements have a fixed text.
const maxTexts = 1000

func (t *texts) of(query string, one bool) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	key := text{query, one}
	known, ok := t.all[key]
	if ok {
		return known
	}
	if len(t.all) >= maxTexts || t.all == nil {
		t.all = make(map[text]string)
	}
	known = translate(query)
	if one { // divides by zero
		known = "WITH changed AS (" + known + " RETURNING 1) SELECT 1 / count(*) FROM changed"
	}
	t.all[key] = known
	return known
}

// values converts arguments to those of the driver.
func values(args []any) ([]any, error) {
	to := make([]any, len(args))
	for i, arg := range args {
		v, err := sqlstore.Value(arg)
		if err != nil {
			return nil, fmt.Errorf("postgres: argument %d: %w", i+1, err)
		}
		switch v := v.(type) {
		case string:
			to[i] = escaped(v)
		case bool:
			to[i] = int64(0)
			if v {
				to[i] = int64(1)
			}
		default:
			to[i] = v
		}
	}
	return to, nil
}

// Later implements [sqlstore.Execer].
func (c *conn) Later(_ context.Context, query string, args ...any) error {
	return c.queue(c.texts.of(query, false), args)
}

func (c *conn) queue(text string, args []any) error {
	list, err := values(args)
	if err != nil {
		return err
	}
	if c.later == nil {
		c.later = new(pgx.Batch)
	}
	c.later.Queue(text, list...)
	return nil
}

// One implements [sqlstore.Execer]: the server fails if no row is changed.
func (c *conn) One(ctx context.Context, query string, args ...any) (changed bool, err error) {
	return true, c.queue(c.texts.of(query, true), args)
}

// send sends the statements that wait, then one more. It returns the rows of that one, and a function
// to be called after reading them.
func (c *conn) send(ctx context.Context, query string, args []any) (pgx.Rows, func() error, error) {
	if c.later == nil {
		rows, err := c.Query(ctx, query, args...)
		return rows, func() error { return nil }, err
	}
	batch := c.later
	c.later = nil
	batch.Queue(query, args...)
	results := c.SendBatch(ctx, batch)
	for range batch.Len() - 1 {
		if _, err := results.Exec(); err != nil {
			_ = results.Close() // the first error is the cause
			return nil, nil, err
		}
	}
	rows, err := results.Query()
	if err != nil {
		_ = results.Close() // likewise
	}
	return rows, results.Close, err
}

// Exec implements [sqlstore.Execer].
func (c *conn) Exec(ctx context.Context, query string, args ...any) (changed int64, err error) {
	list, err := values(args)
	if err != nil {
		return 0, err
	}
	rows, end, err := c.send(ctx, c.texts.of(query, false), list)
	if err != nil {
		return 0, err
	}
	rows.Close()
	return rows.CommandTag().RowsAffected(), errors.Join(rows.Err(), end())
}

// Each implements [sqlstore.Reader].
func (c *conn) Each(ctx context.Context, query string, args []any, do func(scan sqlstore.Scan) error) error {
	list, err := values(args)
	if err != nil {
		return err
	}
	if !c.until.IsZero() {
		within, cancel := context.WithDeadline(ctx, c.until)
		defer cancel()
		ctx = within
	}
	rows, end, err := c.send(ctx, c.texts.of(query, false), list)
	if err != nil {
		return err
	}
	scan := func(dest ...any) error { return sqlstore.ScanRow(c.row, dest) }
	for err == nil && rows.Next() {
		c.read = true
		if c.row, err = rowOf(rows); err == nil {
			err = do(scan)
		}
	}
	rows.Close()
	failed := errors.Join(rows.Err(), end())
	switch {
	case errors.Is(err, sqlstore.ErrEnough):
		return failed
	case err != nil:
		return err
	}
	return failed
}

// rowOf returns the values of a row as [sqlstore.ScanRow] takes them.
func rowOf(rows pgx.Rows) ([]driver.Value, error) {
	list, err := rows.Values()
	if err != nil {
		return nil, err
	}
	row := make([]driver.Value, len(list))
	for i, v := range list {
		switch v := v.(type) {
		case string:
			row[i] = unescaped(v)
		case int32:
			row[i] = int64(v)
		case bool:
			row[i] = int64(0)
			if v {
				row[i] = int64(1)
			}
		case pgtype.Numeric: // a sum
			n, err := v.Int64Value()
			if err != nil || !n.Valid {
				return nil, &store.ChainError{What: "a sum of its values is too large"}
			}
			row[i] = n.Int64
		default:
			row[i] = v
		}
	}
	return row, nil
}

// Matched implements [sqlstore.Conn]: PostgreSQL does not say whether another program has changed
// something, so sealed tables are always compared with their seals.
func (c *conn) Matched(int) bool { return false }

// SetMatched implements [sqlstore.Conn].
func (c *conn) SetMatched(int) {}
