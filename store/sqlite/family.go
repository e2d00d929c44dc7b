package sqlite

import (
	"context"
	"fmt"

	"github.com/toolcrib/toolcrib"
)

// A family is a run and all runs below it: those that it started, and those that they
// did.
const (
	// below are the IDs of the runs below a run r.
	below = `(WITH RECURSIVE below(id) AS (SELECT c.id FROM runs c WHERE c.parent_id = r.id AND c.parent_id <> ''
		UNION SELECT c.id FROM runs c JOIN below b ON c.parent_id = b.id AND c.parent_id <> '') SELECT id FROM below)`
	// familyOlder chooses the runs that are a part of no other one that is there, and
	// ended, as all below them did, before the time ?1.
	familyOlder = `r.ended_at < ?1 AND NOT EXISTS (SELECT 1 FROM runs p WHERE p.id = r.parent_id)
		AND NOT EXISTS (SELECT 1 FROM runs b WHERE b.id IN ` + below + ` AND (b.ended_at IS NULL OR b.ended_at >= ?1))`
	familyHasContent = `(r.pruned_at IS NULL OR EXISTS (SELECT 1 FROM runs b WHERE b.id IN ` + below + ` AND b.pruned_at IS NULL))`
	selectFamily     = `WITH RECURSIVE family(id) AS (SELECT ?1 UNION SELECT c.id FROM runs c JOIN family f ON c.parent_id = f.id AND c.parent_id <> '')
		SELECT r.id, r.status FROM runs r WHERE r.id IN (SELECT id FROM family) ORDER BY r.num`
)

// member is a run of a family.
type member struct {
	run    toolcrib.RunID
	status toolcrib.Status
}

// membersOf returns the family of a run, itself first, with query, in a transaction or
// without one; none = it is not there.
func membersOf(ctx context.Context, r reader, run toolcrib.RunID) (members []member, err error) {
	err = r.each(ctx, selectFamily, []any{string(run)}, func(scan scanFunc) error {
		var m member
		err := scan(&m.run, &m.status)
		members = append(members, m)
		return err
	})
	return members, err
}

// allEnded tells which run of a family has not ended.
func allEnded(members []member) error {
	for i, m := range members {
		switch {
		case m.status.Ended():
		case i == 0:
			return notEnded(m.run, m.status)
		default:
			return fmt.Errorf("run %s, a part of run %s, has not ended (%s), so neither can be pruned: %w", m.run, members[0].run, m.status, toolcrib.ErrConflict)
		}
	}
	return nil
}

func notEnded(run toolcrib.RunID, status toolcrib.Status) error {
	return fmt.Errorf("run %s has not ended (%s), so it cannot be pruned: %w", run, status, toolcrib.ErrConflict)
}
