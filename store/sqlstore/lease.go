package sqlstore

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/store"
)

// Clock is the time of the database in microseconds.
const Clock = "CAST(unixepoch('subsec') * 1000000 AS INTEGER)"

// leaseColumns are the columns that [readLease] reads.
const leaseColumns = "run_id, owner, epoch, expires - " + Clock + ", lasts, host, machine, pid, started, cancel_by, cancel_token, about"

func readLease(scan Scan) (l store.Lease, err error) {
	var left, lasts int64
	err = scan(&l.Run, &l.Owner.ID, &l.Epoch, &left, &lasts, &l.Owner.Host, &l.Owner.Machine, &l.Owner.PID,
		&l.Owner.Started, &l.CancelBy, &l.CancelToken, &l.About)
	l.Owner.Lease = time.Duration(lasts) * time.Microsecond
	l.Left, l.Expired = time.Duration(left)*time.Microsecond, left <= 0
	return l, err
}

// insertLease takes a lease that does not exist. takeLease also takes one of the same owner, and one whose
// time has passed.
const (
	insertLease = `INSERT INTO leases (run_id, owner, epoch, expires, lasts, host, machine, pid, started, cancel_by, cancel_token)
		VALUES (?, ?, ?, ` + Clock + ` + ?, ?, ?, ?, ?, ?, '', '') ON CONFLICT (run_id) DO `
	newLease  = insertLease + "NOTHING"
	takeLease = insertLease + `UPDATE SET owner = excluded.owner, expires = excluded.expires, lasts = excluded.lasts,
			epoch = CASE WHEN excluded.epoch > leases.epoch THEN excluded.epoch ELSE leases.epoch + 1 END,
			host = excluded.host, machine = excluded.machine, pid = excluded.pid, started = excluded.started,
			cancel_by = '', cancel_token = '', about = ''
		WHERE leases.owner = excluded.owner OR leases.expires <= ` + Clock + `
		RETURNING epoch`
	renewLeases = "UPDATE leases SET expires = " + Clock + " + lasts WHERE owner = ? RETURNING " + leaseColumns
)

// leaseArgs returns the arguments of insertLease.
func leaseArgs(run toolcrib.RunID, o *store.Owner, epoch int64, lasts time.Duration) []any {
	return []any{
		string(run), o.ID, epoch, lasts.Microseconds(), lasts.Microseconds(), text(o.Host), text(o.Machine), o.PID, o.Started,
	}
}

// leaseWrite runs do in a transaction, for the owner of the store.
func (s *Store) leaseWrite(ctx context.Context, do func(*tx) error) error {
	if s.owner.ID == "" {
		return errors.New("store: the store was opened without an owner of leases")
	}
	return s.write(ctx, &job{do: do})
}

// TakeLease implements [store.Leases]. The epoch is the time, so that it differs from those of leases that
// have ended.
func (s *Store) TakeLease(
	ctx context.Context, run toolcrib.RunID, lasts time.Duration, bounded bool,
) (l store.Lease, err error) {
	err = s.leaseWrite(ctx, func(t *tx) (err error) {
		if bounded {
			if err := t.checkBoundsOf(run); err != nil {
				return err
			}
		}
		l = store.Lease{Run: run, Owner: s.owner}
		l.Owner.Lease = lasts
		args := leaseArgs(run, &s.owner, time.Now().UnixMicro(), lasts)
		if err = t.row(takeLease, args, &l.Epoch); !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		err = t.each("SELECT "+leaseColumns+" FROM leases WHERE run_id = ?", []any{string(run)}, func(scan Scan) error {
			l, err = readLease(scan)
			return err
		})
		if err == nil {
			err = reject(store.ErrLeased)
		}
		return err
	})
	return l, err
}

// RenewLeases implements [store.Leases].
func (s *Store) RenewLeases(ctx context.Context) (all []store.Lease, err error) {
	err = s.leaseWrite(ctx, func(t *tx) error {
		all = all[:0]
		return t.each(renewLeases, []any{s.owner.ID}, func(scan Scan) error {
			l, err := readLease(scan)
			all = append(all, l)
			return err
		})
	})
	return all, err
}

// ReleaseLease implements [store.Leases].
func (s *Store) ReleaseLease(ctx context.Context, l store.Lease) error {
	return s.leaseWrite(ctx, func(t *tx) error {
		return t.later("DELETE FROM leases WHERE run_id = ? AND owner = ? AND epoch = ?", string(l.Run), s.owner.ID, l.Epoch)
	})
}

// EndLeases implements [store.Leases].
func (s *Store) EndLeases(ctx context.Context, owner string) error {
	return s.leaseWrite(ctx, func(t *tx) error {
		return t.later("DELETE FROM leases WHERE owner = ?", owner)
	})
}

// RequestCancel implements [store.Leases].
func (s *Store) RequestCancel(ctx context.Context, run toolcrib.RunID, by, token string) error {
	return s.leaseWrite(ctx, func(t *tx) error {
		return t.later("UPDATE leases SET cancel_by = ?, cancel_token = ? WHERE run_id = ?", text(by), text(token), string(run))
	})
}

// Describe implements [store.Leases].
func (s *Store) Describe(ctx context.Context, run toolcrib.RunID, about string) error {
	return s.leaseWrite(ctx, func(t *tx) error {
		return t.later("UPDATE leases SET about = ? WHERE run_id = ? AND owner = ?", text(about), string(run), s.owner.ID)
	})
}

// Clock implements [store.Leases].
func (s *Store) Clock(ctx context.Context) (time.Time, error) {
	var now int64
	err := One(ctx, short{s}, "SELECT "+Clock, nil, &now)
	return store.Micro(now), err
}

// Leases implements [store.Leases].
func (s *Store) Leases(ctx context.Context, f store.LeaseFilter) (all []store.Lease, err error) {
	where := clauses{text: "WHERE 1 = 1"}
	where.add(f.Machine != "", "machine = ? AND owner <> ?", text(f.Machine), s.owner.ID)
	where.add(f.About, "about <> ''")
	where.add(f.Cancel, "owner = ? AND cancel_by <> ''", s.owner.ID)
	for chunk := range slices.Chunk(f.Runs, leasesAtOnce) {
		w := where
		w.args = slices.Clip(w.args)
		for _, run := range chunk {
			w.args = append(w.args, string(run))
		}
		n := 1 // few different statements
		for ; n < len(chunk); n = min(8*n, leasesAtOnce) {
		}
		for range n - len(chunk) {
			w.args = append(w.args, string(chunk[0]))
		}
		w.text += " AND run_id IN (?" + strings.Repeat(",?", n-1) + ")"
		if all, err = s.leases(ctx, all, &w); err != nil {
			return nil, err
		}
	}
	if len(f.Runs) > 0 {
		return all, nil
	}
	return s.leases(ctx, nil, &where)
}

// leasesAtOnce bounds the runs whose leases one statement reads.
const leasesAtOnce = 512

func (s *Store) leases(ctx context.Context, all []store.Lease, where *clauses) ([]store.Lease, error) {
	err := short{s}.Each(ctx, "SELECT "+leaseColumns+" FROM leases "+where.text, where.args, func(scan Scan) error {
		l, err := readLease(scan)
		all = append(all, l)
		return err
	})
	return all, err
}

// Undriven implements [store.Leases].
func (s *Store) Undriven(
	ctx context.Context, driver, site string, after toolcrib.RunID, limit int,
) (runs []toolcrib.RunID, more bool, err error) {
	var at clauses
	at.add(site != "", "site IN ('', ?)", site)
	args := append(append([]any{driver}, at.args...), store.Renewals, string(after), limit)
	err = reading{s}.Each(ctx, `SELECT id FROM runs WHERE ended_at IS NULL AND status IN ('running', 'queued') AND driver = ?`+at.text+`
		AND NOT EXISTS (SELECT 1 FROM leases WHERE run_id = id AND expires > `+Clock+` + lasts / ?)
		AND num > COALESCE((SELECT num FROM runs WHERE id = ?), 0) ORDER BY num LIMIT ?`,
		args, func(scan Scan) error {
			var run toolcrib.RunID
			err := scan(&run)
			runs = append(runs, run)
			return err
		})
	return runs, err == nil && len(runs) == limit, err
}

// SetBounds implements [store.Leases].
func (s *Store) SetBounds(of store.LeaseBounds) {
	if s.writer != nil {
		s.writer.bounds.Store(&of)
	}
}

// active are the leases that bounds count. The few leases come first.
const active = " FROM leases CROSS JOIN runs ON id = run_id WHERE expires > " + Clock + " AND parent_id = '' AND driver = ?"

// Active implements [store.Leases].
func (s *Store) Active(ctx context.Context, driver string) (map[store.Active]int, error) {
	all := map[store.Active]int{}
	count := "SELECT user, agent, count(*)" + active + " GROUP BY user, agent"
	err := short{s}.Each(ctx, count, []any{driver}, func(scan Scan) error {
		var of store.Active
		var n int
		err := scan(&of.User, &of.Agent, &n)
		all[of] = n
		return err
	})
	return all, err
}

// checkBoundsOf rejects the lease of a run that would exceed a bound.
func (t *tx) checkBoundsOf(run toolcrib.RunID) error {
	rec := store.RunRecord{ID: run}
	err := t.row("SELECT user, agent, driver, parent_id FROM runs WHERE id = ?", []any{string(run)}, &rec.User, &rec.Agent,
		&rec.Driver, &rec.Parent)
	if errors.Is(err, sql.ErrNoRows) {
		return nil
	}
	return cmp.Or(err, t.checkBounds(&rec))
}

// checkNewBounds rejects a new run whose lease would exceed a bound.
func (t *tx) checkNewBounds(run toolcrib.RunID, first toolcrib.Event) error {
	if t.w.owner.ID == "" || t.w.bounds.Load() == nil {
		return nil
	}
	rec := store.RunRecord{ID: run}
	store.Project(&rec, first)
	return t.checkBounds(&rec)
}

func (t *tx) checkBounds(rec *store.RunRecord) error {
	of := t.w.bounds.Load()
	if of == nil || rec.Parent != "" {
		return nil
	}
	ofUser, ofAgent := (*of)(rec.User, rec.Agent)
	for _, b := range []struct {
		store.LeaseBound
		column, value string
	}{{ofUser, "user", rec.User}, {ofAgent, "agent", rec.Agent}} {
		if b.Most == 0 {
			continue
		}
		n, others := 0, active+" AND id <> ? AND "+b.column+" = ?"
		if err := t.row("SELECT count(*)"+others, []any{rec.Driver, string(rec.ID), b.value}, &n); err != nil {
			return err
		}
		if n >= b.Most {
			return reject(b.Err)
		}
	}
	return nil
}

// leaseNew takes the lease of a run with its first event.
func (t *tx) leaseNew(run toolcrib.RunID) error {
	if t.w.owner.ID == "" {
		return nil
	}
	return t.later(newLease, leaseArgs(run, &t.w.owner, 1, t.w.owner.Lease)...)
}

// endLease ends the lease of a run with its last event.
func (t *tx) endLease(run toolcrib.RunID) error {
	return t.later("DELETE FROM leases WHERE run_id = ?", string(run))
}
