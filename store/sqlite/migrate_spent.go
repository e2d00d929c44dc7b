package sqlite

import (
	"context"
	"database/sql"

	"github.com/toolcrib/toolcrib/store"
)

// fillSpent is migration 7: it fills the tables of what users have spent and of what
// rules have decided from what there is.
func fillSpent(ctx context.Context, tx *sql.Tx) error {
	used, err := spentByPruned(ctx, tx)
	if err != nil {
		return err
	}
	runs, err := wholeRuns(ctx, tx)
	for i := 0; err == nil && i < len(runs); i++ {
		err = metered(ctx, tx.QueryContext, runs[i].id, runs[i].num, &used)
		used.Models, used.Tools = nil, nil // they are counted already
	}
	if err != nil {
		return err
	}
	exec := func(query string, args ...any) (sql.Result, error) { return tx.ExecContext(ctx, query, args...) }
	if err := putSpent(exec, used.Spent); err != nil {
		return err
	}
	return putRules(exec, used.Rules)
}

// spentByPruned is what records of pruning tell.
func spentByPruned(ctx context.Context, tx *sql.Tx) (used store.Used, err error) {
	const records = "SELECT payload FROM system_events WHERE kind IN ('usage_kept', 'content_pruned', 'run_removed') ORDER BY seq"
	err = each(ctx, tx.QueryContext, records, nil, func(scan func(...any) error) error {
		var payload []byte
		if err := scan(&payload); err != nil {
			return err
		}
		var k store.KeptUsage
		err := decodeJSON(payload, &k)
		used.AddKept(k)
		return err
	})
	return used, err
}
