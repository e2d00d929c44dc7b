package sqlstore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/toolcrib/toolcrib/store"
)

// Reader reads rows.
type Reader interface {
	// Each calls do with each row of a query, until do returns ErrEnough or an error. The query must not
	// contain values, only parameters for args. do must not use the reader.
	Each(ctx context.Context, query string, args []any, do func(scan Scan) error) error
}

// Scan reads the values of a row, each into its destination, or all into one []driver.Value that is
// valid until the next row; see [ScanRow].
type Scan = func(dest ...any) error

// ErrEnough ends a query whose further rows are not needed.
var ErrEnough = errors.New("enough rows were read")

// Conn is a connection for reading. It must not be used by several goroutines at once.
type Conn interface {
	Reader
	// SetMatched records that a sealed table matches its seal. Matched reports whether it was recorded and
	// no program has changed the database since; it is false if the database does not know.
	SetMatched(table int)
	Matched(table int) bool
	// Definitions returns what the schema contains, each with its definition, in a fixed order: tables, columns,
	// constraints, indexes, views, functions and triggers.
	Definitions(ctx context.Context) ([]string, error)
}

// Execer is a connection that executes statements.
type Execer interface {
	Conn
	// Exec executes a statement and returns the number of rows that it has changed.
	Exec(ctx context.Context, query string, args ...any) (changed int64, err error)
	// Later executes a statement whose result is not needed, before the next one at the latest. It does
	// not retain args.
	Later(ctx context.Context, query string, args ...any) error
	// One executes a statement that changes one row, and returns false if it has changed none. A database may
	// return true at once and execute it like Later; if it then changes none, the transaction fails for a
	// transient reason.
	One(ctx context.Context, query string, args ...any) (changed bool, err error)
}

// Writer is the connection for writing. It is used by one goroutine at a time.
type Writer interface {
	Execer
	// Begin begins a transaction that excludes other writers. If durable, it survives a loss of power as
	// soon as it is committed, and otherwise with the next durable one. Begin waits for a lock for a
	// bounded time, or until ctx ends.
	Begin(ctx context.Context, durable bool) error
	// Check is called at the beginning of a transaction. changed reports whether another writer may have
	// changed the database since the last Commit.
	Check(ctx context.Context) (changed bool, err error)
	// Commit commits the transaction. If it returns an error, nothing was stored, unless the error says
	// that this is unknown.
	Commit(ctx context.Context) error
	// Rollback ends a transaction that failed.
	Rollback(ctx context.Context)
	// Transient reports whether a transaction that failed with an error may succeed when it is repeated.
	Transient(err error) bool
	// Due returns the delay until Tend must be called, or 0. Tend does the work between transactions.
	Due() time.Duration
	Tend()
	Close() error
}

// Database is the database of a store, apart from its connection for writing.
type Database interface {
	// Read calls do with a connection. Freeze calls it with one in a transaction that reads a snapshot.
	Read(ctx context.Context, do func(Conn) error) error
	Freeze(ctx context.Context, do func(Conn) error) error
	// Still is like Freeze, but no writer changes the database until do returns.
	Still(ctx context.Context, do func(Conn) error) error
	// Mapped converts an error of the database to a [*store.Error]. It returns other errors unchanged.
	Mapped(err error) error
	// Integrity checks the storage itself. It returns store.ErrCorrupt if it is damaged.
	Integrity(ctx context.Context) error
	// Compact overwrites removed data. If all is false, it does so only if that frees much space. done is
	// false if it was prevented; no data is lost then.
	Compact(ctx context.Context, all bool) (done bool, err error)
	// Damage returns the lines of the record of damage. AddDamage adds a line if the database can be
	// written, and SetDamage replaces all lines.
	Damage(ctx context.Context) ([]string, error)
	AddDamage(ctx context.Context, line string)
	SetDamage(ctx context.Context, lines []string) error
	Close() error
}

// One reads the first row of a query into dest. It returns sql.ErrNoRows if there is no row.
func One(ctx context.Context, r Reader, query string, args []any, dest ...any) error {
	found := false
	err := r.Each(ctx, query, args, func(scan Scan) error {
		found = true
		if err := scan(dest...); err != nil {
			return err
		}
		return ErrEnough
	})
	if err == nil && !found {
		err = sql.ErrNoRows
	}
	return err
}

// Value converts an argument of a statement for a driver: to nil, int64, string, []byte, bool or float64.
func Value(arg any) (driver.Value, error) {
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

// ScanRow stores the values of a row in dest: either one *[]driver.Value for all of them, or a pointer
// for each. It accepts text for strings and JSON, blobs for bytes, and NULL for bytes, JSON, times and
// pointers. A value of a type that is never written is a [*store.ChainError].
func ScanRow(row []driver.Value, dest []any) error {
	if all, ok := dest[0].(*[]driver.Value); ok {
		*all = row
		return nil
	}
	if len(dest) != len(row) {
		return fmt.Errorf("store: %d columns are read into %d places", len(row), len(dest))
	}
	for i, v := range row {
		if err := assign(dest[i], v); err != nil {
			return err
		}
	}
	return nil
}

// assign stores a database value in the variable that dest points to.
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
		if err := t.later(in.texts[n-1], args[:n*in.width]...); err != nil {
			return err
		}
		args = args[n*in.width:]
	}
	return nil
}
