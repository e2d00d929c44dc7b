package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net/url"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	sqlite "modernc.org/sqlite"

	"github.com/toolcrib/toolcrib/store"
	"github.com/toolcrib/toolcrib/store/sqlstore"
)

// conn is a connection with its prepared statements. The driver executes them directly: database/sql
// would add a fifth to the time of a small statement and most of its garbage. A conn must not be used
// by several goroutines at once.
type conn struct {
	driver.Conn
	path     string // path of the database
	prepared map[string]*statement
	values   []driver.NamedValue // arguments of the statement that is being executed
	// matched contains, for each sealed table, the content number of the file when the table last
	// matched its seal.
	matched [store.SealedTables]uint32
}

type statement struct {
	driver.Stmt
	busy bool // whether its rows are being read
}

// Access modes that replace pragmas: immutable opens a file that is not written by anyone, without its
// log; detached reads its log with an index in memory and takes no locks.
const (
	immutable = "immutable"
	detached  = "locking_mode(EXCLUSIVE)"
)

// connect opens a connection to the file.
func connect(ctx context.Context, path string, busy time.Duration, pragmas ...string) (*conn, error) {
	query := url.Values{"mode": {"rw"}, "_pragma": { // rw: if the database was moved away, no file is created
		"busy_timeout(" + strconv.FormatInt(busy.Milliseconds(), 10) + ")",
		"foreign_keys(1)",
		"secure_delete(1)", // pruned content leaves no traces in the file
	}}
	for _, pragma := range pragmas {
		if pragma == immutable {
			query.Set(immutable, "1")
			continue
		}
		query.Add("_pragma", pragma)
		if pragma == detached {
			query.Set("mode", "ro")
			query.Set("vfs", "unix-none") // no file locks (sqlite.org/vfs.html)
			if runtime.GOOS == "windows" {
				query.Set("vfs", "win32-none")
			}
		}
	}
	name := filepath.ToSlash(path)
	if !strings.HasPrefix(name, "/") {
		name = "/" + name
	}
	c, err := connectTo(ctx, "file:"+(&url.URL{Path: name}).EscapedPath()+"?"+query.Encode())
	if err == nil {
		c.path = path
	}
	return c, err
}

func connectTo(ctx context.Context, name string) (*conn, error) {
	connector, err := sqlite.NewConnector(name)
	if err != nil {
		return nil, err
	}
	c, err := connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return &conn{Conn: c, prepared: make(map[string]*statement)}, nil
}

// Close closes the statements, then the connection. The last connection to close removes the log,
// unless the database is marked, as after a process was killed: then a writer removes it.
func (c *conn) Close() error {
	if logged, err := isLogged(context.Background(), c); err == nil && logged && logSize(c.path) > 0 {
		// on an error the file may be reported as a copy
		_, _ = c.Conn.(sqlite.FileControl).FileControlPersistWAL("main", 1)
	}
	var errs []error
	for _, st := range c.prepared {
		errs = append(errs, st.Close())
	}
	return errors.Join(append(errs, c.Conn.Close())...)
}

// content returns a number that changes whenever any process changes the content of the file.
func (c *conn) content() (uint32, error) {
	return c.Conn.(sqlite.FileControl).FileControlDataVersion("main")
}

// run executes SQL that is not prepared, such as a script.
func (c *conn) run(ctx context.Context, script string, args ...any) error {
	values, err := c.bind(args)
	if err != nil {
		return err
	}
	_, err = c.Conn.(driver.ExecerContext).ExecContext(ctx, script, values)
	return err
}

// Exec implements [sqlstore.Execer].
func (c *conn) Exec(ctx context.Context, query string, args ...any) (changed int64, err error) {
	st, err := c.stmt(ctx, query)
	if err != nil {
		return 0, err
	}
	values, err := c.bind(args)
	if err != nil {
		return 0, err
	}
	result, err := st.Stmt.(driver.StmtExecContext).ExecContext(ctx, values)
	clear(values) // release the values
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

// Later implements [sqlstore.Execer].
func (c *conn) Later(ctx context.Context, query string, args ...any) error {
	_, err := c.Exec(ctx, query, args...)
	return err
}

// One implements [sqlstore.Execer].
func (c *conn) One(ctx context.Context, query string, args ...any) (changed bool, err error) {
	n, err := c.Exec(ctx, query, args...)
	return n == 1, err
}

// Matched implements [sqlstore.Conn].
func (c *conn) Matched(table int) bool {
	content, err := c.content()
	return err == nil && content != 0 && c.matched[table] == content
}

// SetMatched implements [sqlstore.Conn].
func (c *conn) SetMatched(table int) {
	c.matched[table], _ = c.content() // 0 on an error
}

// stmt returns a prepared statement whose rows are not being read.
func (c *conn) stmt(ctx context.Context, query string) (*statement, error) {
	if st := c.prepared[query]; st != nil && !st.busy {
		return st, nil
	}
	made, err := c.Conn.(driver.ConnPrepareContext).PrepareContext(ctx, query)
	if err != nil {
		return nil, err
	}
	st := &statement{Stmt: made}
	if c.prepared[query] == nil {
		c.prepared[query] = st
	}
	return st, nil
}

func (c *conn) bind(args []any) ([]driver.NamedValue, error) {
	values := c.values[:0]
	for i, arg := range args {
		v, err := sqlstore.Value(arg)
		if err != nil {
			return nil, fmt.Errorf("sqlite: argument %d: %w", i+1, err)
		}
		values = append(values, driver.NamedValue{Ordinal: i + 1, Value: v})
	}
	c.values = values[:0]
	return values, nil
}

// Each implements [sqlstore.Reader].
func (c *conn) Each(ctx context.Context, query string, args []any, do func(scan sqlstore.Scan) error) (err error) {
	st, err := c.stmt(ctx, query)
	if err != nil {
		return err
	}
	if c.prepared[query] != st {
		defer func() { err = errors.Join(err, st.Close()) }()
	}
	values, err := c.bind(args)
	if err != nil {
		return err
	}
	st.busy = true
	rows, err := st.Stmt.(driver.StmtQueryContext).QueryContext(ctx, values)
	clear(values)
	if err != nil {
		st.busy = false
		return err
	}
	defer func() {
		st.busy = false
		if e := rows.Close(); err == nil {
			err = e
		}
	}()
	row := make([]driver.Value, len(rows.Columns()))
	scan := func(dest ...any) error { return sqlstore.ScanRow(row, dest) }
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		switch err := rows.Next(row); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		switch err := do(scan); {
		case errors.Is(err, sqlstore.ErrEnough):
			return nil
		case err != nil:
			return err
		}
	}
}

// pool is a bounded pool of connections for reading.
type pool struct {
	db     *sql.DB
	closed atomic.Bool
}

// connector opens the connections of a pool.
type connector func(context.Context) (*conn, error)

// Connect implements [driver.Connector].
func (open connector) Connect(ctx context.Context) (driver.Conn, error) { return open(ctx) }

// Driver implements [driver.Connector].
func (open connector) Driver() driver.Driver { return &sqlite.Driver{} }

func newPool(size int, open connector) *pool {
	db := sql.OpenDB(open)
	db.SetMaxOpenConns(size)
	db.SetMaxIdleConns(size)
	return &pool{db: db}
}

// with calls do with a connection. The connection returns to the pool unless do returns errSpoiled, or
// SQLite an error that may be due to the connection, such as one that was opened while its files were
// being moved.
func (p *pool) with(ctx context.Context, do func(*conn) error) error {
	lent, err := p.db.Conn(ctx)
	if err != nil && p.closed.Load() {
		return &store.Error{Kind: store.ErrClosed}
	}
	if err != nil {
		return err
	}
	defer func() { _ = lent.Close() }() // a spoiled connection is closed already
	raw := lent.Raw(func(c any) error {
		err = do(c.(*conn))
		var e *sqlite.Error
		if ctx.Err() == nil && errors.As(err, &e) && !errors.Is(mapped(c.(*conn).path, err), store.ErrLocked) {
			return driver.ErrBadConn
		}
		return err
	})
	return cmp.Or(err, raw)
}

// errSpoiled reports that a connection must not be used again.
var errSpoiled = fmt.Errorf("the connection cannot be used again: %w", driver.ErrBadConn)

// close closes the idle connections now, and the others when they are returned.
func (p *pool) close() error {
	p.closed.Store(true)
	return p.db.Close()
}
