package sqlite

import (
	"context"
	"database/sql"
	"errors"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/store"
)

// family is what a run says of the runs that it started, and of the one that started it.
type family struct {
	start  *journal.RunStarted // nil = its content is gone
	claims []store.ChildClaim
}

func (f *family) learn(e toolcrib.Event) {
	if b, ok := e.Body.(*journal.RunStarted); ok && f.start == nil {
		f.start = b
	}
	f.claims = store.ClaimChildren(f.claims, e)
}

// verifyFamily holds what a run says of the runs that it started against those, and
// what it says of the run that started it against that.
func (sn snapshot) verifyFamily(ctx context.Context, c *runCheck) error {
	for i := range c.kin.claims {
		what, err := sn.checkClaim(ctx, c.run, &c.kin.claims[i])
		if err != nil {
			return err
		}
		if what != "" {
			return c.broken(c.kin.claims[i].Seq, what)
		}
	}
	if c.kin.start == nil || !store.Claimed(c.kin.start) {
		return nil
	}
	what, err := sn.checkParent(ctx, c.run, c.kin.start)
	if err == nil && what != "" {
		err = c.broken(1, what)
	}
	return err
}

func (sn snapshot) checkClaim(ctx context.Context, run toolcrib.RunID, claim *store.ChildClaim) (what string, err error) {
	var parent toolcrib.RunID
	var agent string
	var status toolcrib.Status
	err = sn.row(ctx, "SELECT parent_id, agent, status FROM runs WHERE id = ?", []any{string(claim.Run)}, &parent, &agent, &status)
	switch {
	case err == nil:
		return claim.Broken(run, parent, agent, status), nil
	case !errors.Is(err, sql.ErrNoRows):
		return "", err
	}
	f, err := sn.factsOf(ctx, claim.Run)
	if err != nil || f.removed != nil {
		return "", err
	}
	return claim.Gone(len(f.anchors) > 0), nil
}

func (sn snapshot) checkParent(ctx context.Context, run toolcrib.RunID, start *journal.RunStarted) (what string, err error) {
	parent := start.Parent
	known := sn.parents[parent]
	if known == nil {
		var num int64
		err = sn.row(ctx, "SELECT num FROM runs WHERE id = ?", []any{string(parent)}, &num)
		if errors.Is(err, sql.ErrNoRows) {
			f, err := sn.factsOf(ctx, parent)
			if err != nil || f.removed != nil {
				return "", err
			}
			return store.Orphaned(parent), nil
		}
		if err != nil {
			return "", err
		}
		if known, err = sn.parent(ctx, parent, num); err != nil {
			return "", err
		}
		sn.parents[parent] = known
	}
	return known.Disowns(run, start), nil
}

// parent reads what a run says to those that it has started.
func (sn snapshot) parent(ctx context.Context, run toolcrib.RunID, num int64) (*store.Parent, error) {
	p := &store.Parent{Run: run, Depth: -1, Named: make(map[toolcrib.RunID]bool)}
	pruned := false
	err := sn.each(ctx, "SELECT kind, payload FROM events WHERE key BETWEEN ? AND ? AND kind IN ('run_started', 'child_started')",
		[]any{eventKey(num, 0), eventKey(num, maxSeq)}, func(scan scanFunc) error {
			var kind toolcrib.Kind
			var payload []byte
			if err := scan(&kind, &payload); err != nil {
				return err
			}
			if pruned = pruned || payload == nil; payload == nil {
				return nil
			}
			body, err := journal.Decode(kind, payload)
			if err != nil {
				return nil //nolint:nilerr // its own chain tells what is wrong with it
			}
			switch b := body.(type) {
			case *journal.RunStarted:
				p.Depth = b.Depth
			case *journal.ChildStarted:
				p.Named[b.Run] = true
			}
			return nil
		})
	if pruned {
		p.Named = nil
	}
	return p, err
}
