package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"path/filepath"
	"reflect"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	sqlite "modernc.org/sqlite"

	"github.com/toolcrib/toolcrib/store"
)

// conn is a connection with its prepared statements. The driver executes them directly: database/sql
// would add a fifth to the time of a small statement and most of its garbage. A conn must not be used
// by several goroutines at once.
type conn struct {
	driver.Conn
	path     string // path of the database
	prepared map[string]*statement
	values   []driver.NamedValue // arguments of the statement that is being executed
	// checked contains, for each sealed table, the content number of the file when the table last
	// matched its seal.
	checked [store.SealedTables]uint32
}

type statement struct {
	driver.Stmt
	busy bool // whether its rows are being read
}

// reader reads rows: a connection, or the store with any of its connections.
type reader interface {
	// each calls do with each row of a query, until do returns errEnough or an error.
	each(ctx context.Context, query string, args []any, do func(scan scanFunc) error) error
}

// scanFunc reads the values of a row, each into its destination, or all into one []driver.Value that is
// valid until the next row.
type scanFunc = func(dest ...any) error

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

// exec executes a statement to its end.
func (c *conn) exec(ctx context.Context, query string, args ...any) (driver.Result, error) {
	st, err := c.stmt(ctx, query)
	if err != nil {
		return nil, err
	}
	values, err := c.bind(args)
	if err != nil {
		return nil, err
	}
	result, err := st.Stmt.(driver.StmtExecContext).ExecContext(ctx, values)
	clear(values) // release the values
	return result, err
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
		v, err := valueOf(arg)
		if err != nil {
			return nil, fmt.Errorf("sqlite: argument %d: %w", i+1, err)
		}
		values = append(values, driver.NamedValue{Ordinal: i + 1, Value: v})
	}
	c.values = values[:0]
	return values, nil
}

// valueOf converts an argument for the driver.
func valueOf(arg any) (driver.Value, error) {
	switch v := arg.(type) {
	case nil, int64, string, []byte, bool, float64:
		return v, nil
	case int:
		return int64(v), nil
	case time.Time:
		return v.UnixMicro(), nil
	}
	return driver.DefaultParameterConverter.ConvertValue(arg)
}

// each implements [reader].
func (c *conn) each(ctx context.Context, query string, args []any, do func(scan scanFunc) error) (err error) {
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
	scan := func(dest ...any) error { return scanRow(row, dest) }
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
		case errors.Is(err, errEnough):
			return nil
		case err != nil:
			return err
		}
	}
}

// errEnough ends a query whose further rows are not needed.
var errEnough = errors.New("enough rows were read")

// one reads the first row of a query into dest. It returns sql.ErrNoRows if there is no row.
func one(ctx context.Context, r reader, query string, args []any, dest ...any) error {
	found := false
	err := r.each(ctx, query, args, func(scan scanFunc) error {
		found = true
		return cmp.Or(scan(dest...), errEnough)
	})
	if err == nil && !found {
		err = sql.ErrNoRows
	}
	return err
}

func scanRow(row []driver.Value, dest []any) error {
	if all, ok := dest[0].(*[]driver.Value); ok {
		*all = row
		return nil
	}
	if len(dest) != len(row) {
		return fmt.Errorf("sqlite: %d columns are read into %d places", len(row), len(dest))
	}
	for i, v := range row {
		if err := assign(dest[i], v); err != nil {
			return err
		}
	}
	return nil
}

// assign stores a database value in the variable that dest points to. It accepts text for strings and
// JSON, blobs for bytes, and NULL for bytes, JSON, times and pointers. A value of a type that is never
// written is a [*store.ChainError].
func assign(dest any, v driver.Value) error {
	switch d := dest.(type) { // the most frequent types
	case *any:
		*d = v
		return nil
	case *string:
		if s, ok := v.(string); ok {
			*d = s
			return nil
		}
	}
	to := reflect.ValueOf(dest).Elem()
	kind := to.Kind()
	if v == nil && (kind == reflect.Pointer || kind == reflect.Slice || kind == reflect.Struct) {
		to.SetZero()
		return nil
	}
	_, isJSON := dest.(*json.RawMessage)
	at, isTime := dest.(*time.Time)
	switch v := v.(type) {
	case string:
		switch {
		case kind == reflect.Pointer:
			text := v // only this variable escapes
			to.Set(reflect.ValueOf(&text))
			return nil
		case kind == reflect.String:
			to.SetString(v)
			return nil
		case isJSON:
			to.SetBytes([]byte(v))
			return nil
		}
	case []byte:
		if kind == reflect.Slice && !isJSON {
			to.SetBytes(v)
			return nil
		}
	case int64:
		switch {
		case isTime && !store.Micro(v).IsZero(): // a zero time is stored as NULL
			*at = store.Micro(v)
			return nil
		case to.CanInt():
			to.SetInt(v)
			return nil
		case to.CanUint() && v >= 0 && !to.OverflowUint(uint64(v)):
			to.SetUint(uint64(v))
			return nil
		case kind == reflect.Bool && (v == 0 || v == 1):
			to.SetBool(v == 1)
			return nil
		case kind == reflect.Float64:
			to.SetFloat(float64(v))
			return nil
		}
	case float64:
		if kind == reflect.Float64 {
			to.SetFloat(v)
			return nil
		}
	}
	return &store.ChainError{What: "one of its values is of another type"}
}

// clauses are the conditions of a query, each after an AND. Values are passed only as arguments.
type clauses struct {
	text string
	args []any
}

// add adds a condition if given is set.
func (c *clauses) add(given bool, clause string, args ...any) {
	if given {
		c.text, c.args = c.text+" AND "+clause, append(c.args, args...)
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

// inserts are statements that insert rows; texts[i] inserts i+1 rows. Most of the cost of inserting a
// small row is that of the statement.
type inserts struct {
	texts [16]string
	width int // number of columns
}

// newInserts builds the statements; end follows the rows.
func newInserts(table, columns, end string) *inserts {
	in := &inserts{width: strings.Count(columns, ",") + 1}
	one := "(?" + strings.Repeat(",?", in.width-1) + ")"
	for i := range in.texts {
		in.texts[i] = "INSERT INTO " + table + " (" + columns + ") VALUES " + one + strings.Repeat(","+one, i) + end
	}
	return in
}

// run inserts rows, whose arguments are consecutive in args.
func (in *inserts) run(t *tx, args []any) error {
	for len(args) > 0 {
		n := min(len(args)/in.width, len(in.texts))
		if _, err := t.exec(in.texts[n-1], args[:n*in.width]...); err != nil {
			return err
		}
		args = args[n*in.width:]
	}
	return nil
}
