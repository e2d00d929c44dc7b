package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"strings"
)

// inserts are statements that insert 1, 2, 4, 8 and 16 rows: most of the cost of
// inserting a small row is that of the statement, and few different ones are
// prepared.
type inserts struct {
	texts [5]string
	width int // columns
}

// newInserts makes the statements; end is what stands behind the rows.
func newInserts(table, columns, end string) *inserts {
	in := &inserts{width: strings.Count(columns, ",") + 1}
	one := "(?" + strings.Repeat(",?", in.width-1) + ")"
	for i := range in.texts {
		in.texts[i] = "INSERT INTO " + table + " (" + columns + ") VALUES " + one + strings.Repeat(","+one, 1<<i-1) + end
	}
	return in
}

// run inserts the rows whose arguments follow each other in args.
func (in *inserts) run(exec execFunc, args []any) error {
	for i := len(in.texts) - 1; len(args) > 0; {
		n := in.width << i
		if n > len(args) {
			i--
			continue
		}
		if _, err := exec(in.texts[i], args[:n]...); err != nil {
			return err
		}
		args = args[n:]
	}
	return nil
}

// execFunc executes a statement, in a transaction.
type execFunc func(query string, args ...any) (sql.Result, error)

// queryFunc reads rows, in a transaction or without one.
type queryFunc func(ctx context.Context, query string, args ...any) (*sql.Rows, error)

// each calls do with each row of a query.
func each(ctx context.Context, query queryFunc, text string, args []any, do func(scan func(...any) error) error) (err error) {
	rows, err := query(ctx, text, args...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		if err := do(rows.Scan); err != nil {
			return err
		}
	}
	return rows.Err()
}
