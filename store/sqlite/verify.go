package sqlite

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/store"
)

// Verify goes through the chain of a run, and compares it with the run's row, its
// kept results, its anchors in the system journal, the runs that it started and the
// one that started it: each must name the other. What does not hold is a
// [*store.ChainError]. The anchors themselves are vouched for by
// [Store.VerifySystem], what the other runs hold by a call for each of them.
func (s *Store) Verify(ctx context.Context, run toolcrib.RunID) (v store.Verified, err error) {
	err = s.frozen(ctx, func(sn snapshot) error {
		f, err := sn.factsOf(ctx, run)
		if err != nil {
			return err
		}
		v, err = sn.verifyRun(ctx, run, f)
		return err
	})
	return v, s.noteDamage(err)
}

// VerifySystem goes through the chain of the system journal, compares its end with
// its sealed head, and what administrators have switched with what it tells of
// it. What does not hold is a [*store.ChainError]; without the key file nothing
// can be said, which is store.ErrKeys.
func (s *Store) VerifySystem(ctx context.Context) (store.Verified, error) {
	v, err := s.verifySystem(ctx, nil)
	return v, s.noteDamage(err)
}

// VerifySystemAgainst is VerifySystem, and finds too that the store was put back
// to a copy older than a head that [Store.Head] gave.
func (s *Store) VerifySystemAgainst(ctx context.Context, head store.Head) (store.Verified, error) {
	return s.verifySystem(ctx, &head)
}

func (s *Store) verifySystem(ctx context.Context, head *store.Head) (v store.Verified, err error) {
	keys, err := loadKeys(s.keysPath)
	if err != nil {
		return v, err
	}
	err = s.frozen(ctx, func(sn snapshot) error {
		c := systemCheck{keys: keys, against: head}
		if v, err = sn.verifySystem(ctx, &c); err != nil {
			return err
		}
		return checkPlaces(ctx, sn, keys, &c.record)
	})
	return v, err
}

// VerifyAll verifies the system journal and every run, and finds what stands
// there that belongs to neither: runs that have an anchor and are gone, events
// without a run. The error joins the Problems of what it returns. It looks at one
// moment of the store, and the -wal file is not cut back until it is done.
func (s *Store) VerifyAll(ctx context.Context) (all store.VerifiedAll, err error) {
	keys, err := loadKeys(s.keysPath)
	if err != nil {
		return all, err
	}
	now := s.now()
	err = s.frozen(ctx, func(sn snapshot) error { return sn.verifyAll(ctx, keys, now, &all) })
	if err != nil {
		return all, err
	}
	if len(all.Problems) == 0 && s.writer != nil {
		return all, s.clearDamage(ctx)
	}
	errs := make([]error, len(all.Problems))
	for i, p := range all.Problems {
		errs[i] = s.noteDamage(p)
	}
	return all, errors.Join(errs...)
}

// snapshot is the store at one moment.
type snapshot struct {
	*conn
	parents map[toolcrib.RunID]*store.Parent // that were looked at
	keys    *store.Keys                      // nil = nothing is said about the seals of runs
}

// frozen lets do look at one moment of the store.
func (s *Store) frozen(ctx context.Context, do func(snapshot) error) error {
	err := s.readers.with(ctx, func(c *conn) (err error) {
		if err := c.run(ctx, "BEGIN"); err != nil {
			return err
		}
		defer func() {
			// Also where ctx has ended: the connection is lent again.
			if e := c.run(context.WithoutCancel(ctx), "ROLLBACK"); e != nil {
				err = errors.Join(err, errSpoiled, e)
			}
		}()
		return do(snapshot{conn: c, parents: make(map[toolcrib.RunID]*store.Parent), keys: s.keys})
	})
	var broken *store.ChainError
	if err == nil || errors.As(err, &broken) || errors.Is(err, toolcrib.ErrNotFound) {
		return err
	}
	return s.failed(ctx, err)
}

// problems collects what does not hold.
type problems struct{ all *store.VerifiedAll }

// add takes a broken chain; any other error is given back.
func (p problems) add(err error) error {
	var broken *store.ChainError
	switch {
	case err == nil, !errors.As(err, &broken):
		return err
	case len(p.all.Problems) >= store.MaxProblems:
		p.all.More = true
	default:
		p.all.Problems = append(p.all.Problems, broken)
	}
	return nil
}

func (sn snapshot) verifyAll(ctx context.Context, keys *store.Keys, now time.Time, all *store.VerifiedAll) error {
	p, used, proved := problems{all: all}, make(store.Used), tokenProofs{}
	sn.keys = keys
	c := systemCheck{keys: keys, facts: make(map[toolcrib.RunID]*facts), used: used}
	var err error
	all.System, err = sn.verifySystem(ctx, &c)
	if err := p.add(err); err != nil {
		return err
	}
	if err := sn.verifyRuns(ctx, c.facts, used, proved, p); err != nil {
		return err
	}
	if len(all.Problems) == 0 { // else it is said already which run it is
		if err := p.add(checkPlaces(ctx, sn, keys, &c.record)); err != nil {
			return err
		}
	}
	if err := sn.verifyUsed(ctx, used, p); err != nil {
		return err
	}
	if err := sn.verifyTokenCalls(ctx, proved, now, p); err != nil {
		return err
	}
	return sn.verifyStray(ctx, p)
}

// verifyRuns verifies each run, and finds the anchors without one.
func (sn snapshot) verifyRuns(ctx context.Context, known map[toolcrib.RunID]*facts, used store.Used, proved tokenProofs, p problems) error {
	var runs []toolcrib.RunID
	err := sn.each(ctx, "SELECT id FROM runs ORDER BY num", nil, func(scan scanFunc) error {
		var id toolcrib.RunID
		if err := scan(&id); err != nil {
			return err
		}
		runs = append(runs, id)
		return nil
	})
	if err != nil {
		return err
	}
	there := make(map[toolcrib.RunID]bool, len(runs))
	for _, run := range runs {
		f := known[run]
		if f == nil {
			f = new(facts)
		}
		f.used, f.proved, there[run] = used, proved, true
		v, err := sn.verifyRun(ctx, run, f)
		if err := p.add(err); err != nil {
			return err
		}
		p.all.Runs++
		p.all.Events += v.Events
		p.all.Pruned += v.Pruned
	}
	var gone []toolcrib.RunID
	for run, f := range known {
		switch {
		case there[run]:
		case f.removed != nil:
			p.all.Removed++
		default:
			gone = append(gone, run)
		}
	}
	slices.Sort(gone)
	for _, run := range gone {
		if err := p.add(goneError(run)); err != nil {
			return err
		}
	}
	return nil
}

func goneError(run toolcrib.RunID) *store.ChainError {
	return &store.ChainError{Run: run, What: "it has an anchor in the system journal but is gone, and no removal is recorded"}
}

// verifySchema finds tables, indexes, views and triggers that are not those of the schema.
func (sn snapshot) verifySchema(ctx context.Context, p problems) error {
	empty, err := connectTo(ctx, ":memory:")
	if err != nil {
		return err
	}
	defer func() { _ = empty.close() }() // it holds nothing
	if err := empty.run(ctx, schema); err != nil {
		return err
	}
	const parts = `SELECT type || ' ' || name || ' ' || tbl_name || ' ' || ifnull(sql, '') FROM sqlite_schema
		WHERE name NOT LIKE 'sqlite!_%' ESCAPE '!' ORDER BY 1`
	var texts [2][]string
	for i, r := range []reader{empty, sn} {
		err := r.each(ctx, parts, nil, func(scan scanFunc) error {
			var part string
			err := scan(&part)
			texts[i] = append(texts[i], part)
			return err
		})
		if err != nil {
			return err
		}
	}
	if slices.Equal(texts[0], texts[1]) {
		return nil
	}
	return p.add(&store.ChainError{What: "there is a table, view or trigger that is not toolcrib's, or one of its own is gone"})
}

// verifyStray finds rows that belong to no run, values of a kind that is never
// written, and kept results that are not what their hash says.
func (sn snapshot) verifyStray(ctx context.Context, p problems) error {
	if err := sn.verifySchema(ctx, p); err != nil {
		return err
	}
	for _, stray := range []struct{ what, query string }{
		{"there are events of no run", "SELECT count(*) FROM events WHERE key >> 32 NOT IN (SELECT num FROM runs)"},
		{"there are pieces of no kept result", "SELECT count(*) FROM content_pieces WHERE key >> 32 NOT IN (SELECT num FROM contents)"},
		{
			"there are kept results of a run that was removed",
			"SELECT count(*) FROM contents WHERE run_id IN (SELECT payload ->> 'run_id' FROM system_events WHERE kind = 'run_removed')",
		},
		{"a value in the table runs has the wrong type", `SELECT count(*) FROM runs WHERE typeof(id) <> 'text'
			OR typeof(last_hash) <> 'blob' OR typeof(pruned_at) NOT IN ('null', 'integer')`},
		{"a value in the system journal is of another type", `SELECT count(*) FROM system_events WHERE typeof(kind) <> 'text'
			OR typeof(time) <> 'integer' OR typeof(payload) <> 'text' OR typeof(payload_hash) <> 'blob' OR typeof(hash) <> 'blob'`},
		{"a value in the table overrides has the wrong type", `SELECT count(*) FROM overrides WHERE typeof(kind) <> 'text'
			OR typeof(name) <> 'text' OR enabled NOT IN (0, 1) OR typeof(by) <> 'text' OR typeof(at) <> 'integer'`},
		{"there is a reservation that cannot be one", `SELECT count(*) FROM reservations WHERE run_id = '' OR request < 0 OR user IS NULL OR day IS NULL
			OR at IS NULL OR tokens < 0 OR nano_usd < 0 OR state NOT IN (0, 1, 2)`},
		{"there is a count of a token's calls that cannot be one", `SELECT (SELECT count(*) FROM token_calls WHERE token = '' OR calls < 0 OR expires < 0)
			+ (SELECT count(*) FROM token_minute WHERE token = '' OR n < 1 OR at IS NULL)`},
		{"there are counters that nobody knows", "SELECT count(*) <> 3 OR sum(name NOT IN ('overrides', 'remembered', 'access') OR typeof(name) <> 'text') > 0 FROM counters"},
	} {
		var n int
		if err := sn.row(ctx, stray.query, nil, &n); err != nil {
			return err
		}
		if n == 0 {
			continue
		}
		if err := p.add(&store.ChainError{What: stray.what}); err != nil {
			return err
		}
	}
	// Of what was kept for a run that is not there (yet), only this is known.
	var runs []toolcrib.RunID
	err := sn.each(ctx, "SELECT DISTINCT run_id FROM contents WHERE run_id NOT IN (SELECT id FROM runs)", nil, func(scan scanFunc) error {
		runs = append(runs, "")
		return scan(&runs[len(runs)-1])
	})
	for i := 0; i < len(runs) && err == nil; i++ {
		err = p.add(sn.verifyContents(ctx, runs[i]))
	}
	return err
}
