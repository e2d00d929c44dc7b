package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
)

// statements are those that the writer executes, prepared once for the life of its
// connection. They are executed by the driver itself: database/sql would cost a
// fifth of a small statement and most of its garbage. Only the writer's goroutine
// uses them.
type statements struct {
	conn     *sql.Conn
	prepared map[string]driver.StmtExecContext

	// Of the statement that is being executed.
	ctx    context.Context
	query  string
	values []driver.NamedValue
	result driver.Result
	run    func(driverConn any) error
}

func newStatements(conn *sql.Conn) *statements {
	s := &statements{conn: conn, prepared: make(map[string]driver.StmtExecContext)}
	s.run = s.runOn
	return s
}

// exec executes a statement to its end.
func (s *statements) exec(ctx context.Context, query string, args []any) (sql.Result, error) {
	values := s.values[:0]
	for i, arg := range args {
		v, err := valueOf(arg)
		if err != nil {
			return nil, fmt.Errorf("sqlite: argument %d: %w", i+1, err)
		}
		values = append(values, driver.NamedValue{Ordinal: i + 1, Value: v})
	}
	s.ctx, s.query, s.values = ctx, query, values
	err := s.conn.Raw(s.run)
	result := s.result
	clear(values) // so that they hold on to nothing
	s.ctx, s.query, s.result = nil, "", nil
	return result, err
}

func (s *statements) runOn(driverConn any) error {
	st, ok := s.prepared[s.query]
	if !ok {
		made, err := driverConn.(driver.ConnPrepareContext).PrepareContext(s.ctx, s.query)
		if err != nil {
			return err
		}
		st = made.(driver.StmtExecContext)
		s.prepared[s.query] = st
	}
	var err error
	s.result, err = st.ExecContext(s.ctx, s.values)
	return err
}

// close closes the statements, before their connection is.
func (s *statements) close() error {
	return s.conn.Raw(func(any) error {
		var first error
		for _, st := range s.prepared {
			if err := st.(driver.Stmt).Close(); first == nil {
				first = err
			}
		}
		clear(s.prepared)
		return first
	})
}

// valueOf is an argument as the driver takes it.
func valueOf(arg any) (driver.Value, error) {
	switch v := arg.(type) {
	case nil, int64, string, []byte, bool, float64:
		return v, nil
	case int:
		return int64(v), nil
	}
	return driver.DefaultParameterConverter.ConvertValue(arg)
}
