package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/store"
)

// fillMarks is migration 9: versions before schema 8 did not note of usage that no price
// was known of it. It makes the marks those that the events, and the records of what was
// pruned, give. So a mark that is missing from now on was taken away, and is found.
//
// A run whose events cannot be read keeps its marks: verifying tells of it anyway, and
// it must not keep everything else from being opened.
func fillMarks(ctx context.Context, tx *sql.Tx) error {
	used, err := spentByPruned(ctx, tx)
	if err != nil {
		return err
	}
	unpriced := make(map[store.UsageKey]bool)
	note := func(u store.Used) {
		for k, v := range u.Models {
			if v.Unpriced {
				unpriced[k] = true
			}
		}
	}
	note(used)
	runs, err := wholeRuns(ctx, tx)
	if err != nil {
		return err
	}
	unread := make(map[toolcrib.RunID]bool)
	for _, run := range runs {
		var used store.Used
		err := metered(ctx, tx.QueryContext, run.id, run.num, &used)
		switch {
		case errors.Is(err, errUnreadable):
			unread[run.id] = true
		case err != nil:
			return err
		default:
			note(used)
		}
	}
	return putMarks(ctx, tx, unpriced, unread)
}

// wholeRun is a run that has its content.
type wholeRun struct {
	id  toolcrib.RunID
	num int64
}

func wholeRuns(ctx context.Context, tx *sql.Tx) (runs []wholeRun, err error) {
	err = each(ctx, tx.QueryContext, "SELECT id, num FROM runs WHERE pruned_at IS NULL ORDER BY num", nil, func(scan func(...any) error) error {
		runs = append(runs, wholeRun{})
		return scan(&runs[len(runs)-1].id, &runs[len(runs)-1].num)
	})
	return runs, err
}

// putMarks corrects the marks of the rows of usage.
func putMarks(ctx context.Context, tx *sql.Tx, unpriced map[store.UsageKey]bool, unread map[toolcrib.RunID]bool) error {
	changes := make(map[int64]usageMarks)
	err := each(ctx, tx.QueryContext, "SELECT num, "+usageKeys+", estimated FROM usage", nil, func(scan func(...any) error) error {
		var num int64
		var k store.UsageKey
		var have usageMarks
		if err := scan(&num, &k.Day, &k.Run, &k.Provider, &k.Model, &k.User, &k.Agent, &k.Session, &have); err != nil {
			return err
		}
		want := have &^ markUnpriced
		if unpriced[k] {
			want |= markUnpriced
		}
		if want != have && !unread[k.Run] {
			changes[num] = want
		}
		return nil
	})
	for num, marks := range changes {
		if err != nil {
			break
		}
		_, err = tx.ExecContext(ctx, "UPDATE usage SET estimated = ? WHERE num = ?", int64(marks), num)
	}
	if err != nil {
		return fmt.Errorf("the marks of usage: %w", err)
	}
	return nil
}
