package sqlite

import (
	"context"
	"crypto/hmac"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/store"
)

// keptRows is how many rows of usage one system event holds.
const keptRows = 1000

// usageFill is migration 5: it fills the tables of usage and sessions from what
// there is, and leaves in the system journal what follows from no event any more.
type usageFill struct {
	ctx    context.Context
	tx     *sql.Tx
	now    func() time.Time
	old    store.Used // of runs that were pruned
	events []store.SystemEvent
}

func fillUsage(ctx context.Context, tx *sql.Tx, keys *store.Keys, o Options) error {
	if err := nameKeys(ctx, tx, keys); err != nil {
		return err
	}
	f := &usageFill{ctx: ctx, tx: tx, now: o.Now}
	for _, step := range []func() error{f.pruned, f.runs, f.keep, f.sessions} {
		if err := step(); err != nil {
			return err
		}
	}
	return appendTx(ctx, tx, keys, o, f.events)
}

func (f *usageFill) exec(query string, args ...any) (sql.Result, error) {
	return f.tx.ExecContext(f.ctx, query, args...)
}

// pruned counts the calls that records of pruning tell of. Of whom they were they
// do not tell.
func (f *usageFill) pruned() error {
	const records = "SELECT payload FROM system_events WHERE kind IN ('content_pruned', 'run_removed') ORDER BY seq"
	return each(f.ctx, f.tx.QueryContext, records, nil, func(scan func(...any) error) error {
		var payload []byte
		if err := scan(&payload); err != nil {
			return err
		}
		var p store.Pruned
		if err := json.Unmarshal(payload, &p); err != nil {
			return err
		}
		var k store.KeptUsage
		for name, n := range p.Tools {
			k.ToolUsage = append(k.ToolUsage, store.ToolUseEntry{
				ToolUseKey: store.ToolUseKey{Tool: name, Day: store.DayOf(p.EndedAt)},
				ToolUseSum: store.ToolUseSum{Calls: n.Calls, Errors: n.Errors},
			})
		}
		f.old.AddKept(k)
		return nil
	})
}

// runs goes through the events of all runs. Of one without content the row tells
// the sums, which are taken as those of its first day.
func (f *usageFill) runs() error {
	type row struct {
		num int64
		rec store.RunRecord
	}
	var emptied []row
	var whole []row
	err := each(f.ctx, f.tx.QueryContext, "SELECT num, "+recordColumns+", id, pruned_at IS NOT NULL FROM runs ORDER BY num", nil, func(scan func(...any) error) error {
		var r row
		var pruned bool
		if err := scanRecord(scan, &r.rec, []any{&r.num}, []any{&r.rec.ID, &pruned}); err != nil {
			return err
		}
		if pruned {
			emptied = append(emptied, r)
			return nil
		}
		whole = append(whole, row{num: r.num, rec: store.RunRecord{ID: r.rec.ID}})
		return nil
	})
	if err != nil {
		return err
	}
	for _, r := range whole {
		var used store.Used
		if err := metered(f.ctx, f.tx.QueryContext, r.rec.ID, r.num, &used); err != nil {
			return err
		}
		if err := f.put(used); err != nil {
			return err
		}
	}
	for _, r := range emptied {
		sum := store.SumOf(r.rec.Usage)
		if sum == (store.UsageSum{}) {
			continue
		}
		f.old.AddKept(store.KeptUsage{Usage: []store.UsageEntry{{UsageSum: sum, UsageKey: store.UsageKey{
			Day: store.DayOf(r.rec.CreatedAt), Run: r.rec.ID, Model: r.rec.Model, User: r.rec.User, Agent: r.rec.Agent, Session: r.rec.Session,
		}}}})
	}
	return nil
}

func (f *usageFill) put(u store.Used) error {
	for k, v := range u.Models {
		if _, err := f.exec(insertUsage, usageSumArgs(usageKeyArgs(nil, k), v)...); err != nil {
			return err
		}
	}
	return putTools(f.exec, u.Tools)
}

// keep puts down what no event tells of.
func (f *usageFill) keep() error {
	if f.old.Empty() {
		return nil
	}
	if err := f.put(f.old); err != nil {
		return err
	}
	k, at := kept(f.old), wholeMicro(f.now())
	for len(k.Usage)+len(k.ToolUsage) > 0 {
		n, m := min(len(k.Usage), keptRows), min(len(k.ToolUsage), keptRows)
		if err := f.event(at, store.SystemUsageKept, store.KeptUsage{Usage: k.Usage[:n], ToolUsage: k.ToolUsage[:m]}); err != nil {
			return err
		}
		k.Usage, k.ToolUsage = k.Usage[n:], k.ToolUsage[m:]
	}
	return nil
}

// sessions makes the sessions that runs name.
func (f *usageFill) sessions() error {
	const named = `SELECT session_id, user, min(created_at) FROM runs WHERE session_id <> '' AND parent_id = ''
		GROUP BY session_id, user ORDER BY min(num)`
	type row struct {
		made store.SessionMade
		at   int64
	}
	var rows []row
	err := each(f.ctx, f.tx.QueryContext, named, nil, func(scan func(...any) error) error {
		var r row
		if err := scan(&r.made.ID, &r.made.User, &r.at); err != nil {
			return err
		}
		if store.CheckSessionName(string(r.made.ID)) == nil {
			r.made.Name = string(r.made.ID)
		}
		rows = append(rows, r)
		return nil
	})
	if err != nil {
		return err
	}
	for _, r := range rows {
		if _, err := f.exec(insertSession, string(r.made.ID), r.made.User, r.made.Name, r.at); err != nil {
			return err
		}
		if err := f.event(fromMicro(r.at), store.SystemSessionMade, r.made); err != nil {
			return err
		}
	}
	return nil
}

func (f *usageFill) event(at time.Time, kind toolcrib.Kind, payload any) error {
	raw, err := encodeJSON(payload)
	f.events = append(f.events, store.SystemEvent{Time: at, Kind: kind, Payload: raw})
	return err
}

// appendTx adds events to the system journal in the transaction of a migration, and
// seals them. As elsewhere, a break is kept before anything is added; somebody who
// accepts the journal as it is accepts it here.
func appendTx(ctx context.Context, tx *sql.Tx, keys *store.Keys, o Options, events []store.SystemEvent) error {
	if len(events) == 0 {
		return nil
	}
	found, err := scanSealed(tx.QueryRowContext(ctx, selectSealed))
	if err != nil {
		return err
	}
	what := found.broken(keys)
	if what != "" && o.AdoptBy != "" {
		if err := sealTx(ctx, tx, keys, o.AdoptBy, o.Now); err != nil {
			return err
		}
		if found, err = scanSealed(tx.QueryRowContext(ctx, selectSealed)); err != nil {
			return err
		}
		what = found.broken(keys)
	}
	if what != "" {
		raw, err := encodeJSON(found.brokenEvent(what))
		if err != nil {
			return err
		}
		events = append([]store.SystemEvent{{Time: wholeMicro(o.Now()), Kind: store.SystemHeadBroken, Payload: raw}}, events...)
	}
	last := found.last
	for i := range events {
		next, args := last.next(&events[i])
		if _, err := tx.ExecContext(ctx, insertSystem, args...); err != nil {
			return err
		}
		last = next
	}
	_, err = tx.ExecContext(ctx, putSeal, last.args(keys)...)
	return err
}

// nameKeys puts the ID of the keys to a seal that is theirs.
func nameKeys(ctx context.Context, tx *sql.Tx, keys *store.Keys) error {
	found, err := scanSealed(tx.QueryRowContext(ctx, selectSealed))
	if err != nil || !found.found || !hmac.Equal(found.mac, keys.HeadMAC(found.head.seq, found.head.hash)) {
		return err
	}
	_, err = tx.ExecContext(ctx, "UPDATE system_head SET key_id = ?", keys.ID())
	return err
}

// brokenEvent says what is wrong with a head.
func (s *sealed) brokenEvent(what string) store.HeadBroken {
	return store.HeadBroken{
		Seq: s.last.seq, Hash: hex.EncodeToString(s.last.hash), HeadSeq: s.head.seq, HeadHash: hex.EncodeToString(s.head.hash), What: what,
	}
}
