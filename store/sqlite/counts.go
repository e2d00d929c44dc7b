package sqlite

import (
	"context"
	"database/sql"
	"errors"

	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/store"
)

// queryFunc reads rows, in a transaction or without one.
type queryFunc func(ctx context.Context, query string, args ...any) (*sql.Rows, error)

const addCount = `INSERT INTO tool_counts (name, calls, errors) VALUES (?,?,?)
	ON CONFLICT (name) DO UPDATE SET calls = calls + excluded.calls, errors = errors + excluded.errors`

// ToolCounts returns how often each tool was called and failed, in all runs, also
// in those that were pruned since. It reads one row a tool.
func (s *Store) ToolCounts(ctx context.Context) (map[string]store.ToolCount, error) {
	counts, err := readCounts(ctx, s.readers.QueryContext)
	if err != nil {
		return nil, s.failed(ctx, err)
	}
	return counts, nil
}

func readCounts(ctx context.Context, query queryFunc) (map[string]store.ToolCount, error) {
	counts := make(map[string]store.ToolCount)
	err := each(ctx, query, "SELECT name, calls, errors FROM tool_counts", nil, func(scan func(...any) error) error {
		var name string
		var c store.ToolCount
		if err := scan(&name, &c.Calls, &c.Errors); err != nil {
			return err
		}
		counts[name] = c
		return nil
	})
	return counts, err
}

// putCounts adds what the transaction has counted.
func (t *tx) putCounts() error {
	for name, c := range t.counts {
		if _, err := t.exec(addCount, name, c.Calls, c.Errors); err != nil {
			return err
		}
	}
	return nil
}

// countTools counts the calls in the events from one key to another.
func countTools(ctx context.Context, query queryFunc, from, to int64) (map[string]store.ToolCount, error) {
	counts := make(map[string]store.ToolCount)
	const events = "SELECT payload FROM events WHERE key BETWEEN ? AND ? AND kind = ? AND payload IS NOT NULL"
	args := []any{from, to, string(journal.KindToolResult)}
	err := each(ctx, query, events, args, func(scan func(...any) error) error {
		var payload sql.RawBytes
		if err := scan(&payload); err != nil {
			return err
		}
		body, err := journal.Decode(journal.KindToolResult, payload)
		if err != nil {
			return err
		}
		store.CountTool(counts, body)
		return nil
	})
	return counts, err
}

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
