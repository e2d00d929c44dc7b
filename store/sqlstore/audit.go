package sqlstore

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/store"
)

// Audit returns a page of the audit log: the gate's verdicts, people's decisions and changes, and
// prunings, from the journals of all runs and the system journal, by time; newest first unless the
// filter says otherwise. Entries of the same time are in the order of their journals, runs first.
// VerifyAll verifies it.
func (s *Store) Audit(ctx context.Context, f store.AuditFilter) (page store.AuditPage, err error) {
	if err := f.Check(); err != nil {
		return page, err
	}
	// The position itself is read again, and one more entry shows that a page follows.
	q := auditQuery{f: f, lo: math.MinInt64, hi: math.MaxInt64, rows: min(store.Bound(f.Limit)+2, auditRows)}
	if !f.Since.IsZero() {
		q.lo = f.Since.UnixMicro()
	}
	if !f.Until.IsZero() {
		q.hi = f.Until.UnixMicro()
	}
	if f.Run != "" {
		// 0 if it does not exist; the system journal may still mention it
		err = One(ctx, reading{s}, "SELECT coalesce(max(num), 0) FROM runs WHERE id = ?", []any{string(f.Run)}, &q.num)
		if err != nil {
			return page, err
		}
	}
	if f.User != "" {
		if q.few, err = s.hasFewEvents(ctx, f.User); err != nil {
			return page, err
		}
	}
	first := auditPos{math.MaxInt64, rankSystem, math.MaxInt64, math.MaxInt64}
	if f.OldestFirst {
		first = auditPos{math.MinInt64, 0, math.MinInt64, math.MinInt64}
	}
	if f.Cursor != "" {
		if first, err = parseAuditPos(f.Cursor); err != nil {
			return page, err
		}
	}
	var last auditPos // position of the page's last entry
	for more := true; more; {
		var items []auditItem
		if items, more, err = q.read(ctx, reading{s}, first); err != nil {
			return store.AuditPage{}, err
		}
		for i := range items {
			e, pos := &items[i].entry, items[i].pos
			if !q.after(pos, first) {
				continue
			}
			if first = pos; !f.Wants(e.Kind) || f.User != "" && !e.About(f.User) {
				continue
			}
			if len(page.Entries) == store.Bound(f.Limit) {
				page.Next = last.String()
				return page, nil
			}
			page.Entries, last = append(page.Entries, *e), pos
		}
		q.rows = min(2*q.rows, auditRows) // most did not match
	}
	return page, nil
}

// LastChanged implements [store.Store].
func (s *Store) LastChanged(ctx context.Context, kind toolcrib.Kind, path string) (last store.FileChanged, err error) {
	err = reading{s}.Each(ctx, `SELECT payload FROM system_events
		WHERE kind = ? AND payload ->> 'path' = ? ORDER BY seq DESC LIMIT 1`, []any{string(kind), text(path)},
		func(scan Scan) error {
			var raw json.RawMessage
			if err := scan(&raw); err != nil {
				return err
			}
			return json.Unmarshal(raw, &last)
		})
	return last, err
}

// rankSystem is the rank of the system journal. The journals of runs have rank 0 and precede it at the
// same time.
const rankSystem = 1

// auditPos is the position of an entry in the log: its time, the rank of its source, the key of its
// event in that source, and its index in the event.
type auditPos [4]int64

func (p auditPos) String() string { return fmt.Sprintf("%d.%d.%d.%d", p[0], p[1], p[2], p[3]) }

func parseAuditPos(text string) (p auditPos, err error) {
	_, err = fmt.Sscanf(text, "%d.%d.%d.%d", &p[0], &p[1], &p[2], &p[3])
	if err != nil || p.String() != text || p[1] < 0 || p[1] > rankSystem {
		return p, store.ErrBadCursor
	}
	return p, nil
}

type auditQuery struct {
	f      store.AuditFilter
	lo, hi int64 // bounds of the time
	num    int64 // number of the filter's run
	few    bool  // the runs of the filter's user have few events
	rows   int   // number of events that are read at once
}

// auditItem is an entry with its position.
type auditItem struct {
	pos   auditPos
	entry store.AuditEntry
}

// auditRows is the largest number of events that are read at once.
const auditRows = 256

// after reports whether an entry comes after another one in the order of the filter.
func (q *auditQuery) after(a, b auditPos) bool {
	if q.f.OldestFirst {
		return slices.Compare(a[:], b[:]) > 0
	}
	return slices.Compare(a[:], b[:]) < 0
}

const (
	// auditedKinds is the condition of the index events_audit, and actedKinds that of events_by.
	auditedKinds = `(e.kind = 'run_started' OR e.kind = 'verdicts' OR e.kind = 'confirmation_required'
	OR e.kind = 'confirmation_resolved' OR e.kind = 'granted' OR e.kind = 'stopping')`
	actedKinds = "(e.kind = 'confirmation_resolved' OR e.kind = 'granted' OR e.kind = 'stopping')"
	// runsOf selects the numbers of the runs of a user, which is given twice.
	runsOf = "SELECT num FROM runs WHERE user = ? UNION SELECT num FROM runs WHERE actor = ? AND actor <> ''"
	// auditFew is the number of events of a user's runs up to which all of them are looked at for a page. Otherwise, the
	// events of all users are read by time.
	auditFew = 20_000
)

// hasFewEvents reports whether the runs of a user have few events.
func (s *Store) hasFewEvents(ctx context.Context, user string) (bool, error) {
	var runs, events int64
	const most = auditFew / 10 // runs that are counted
	err := One(ctx, reading{s}, fmt.Sprintf("SELECT count(*), coalesce(sum(last_seq), 0) FROM (SELECT last_seq FROM runs"+
		" WHERE num IN (%s) LIMIT %d) AS of", runsOf, most), []any{text(user), text(user)}, &runs, &events)
	return runs < most && events <= auditFew, err
}

// auditSource is where events of runs are read from.
type auditSource struct {
	from, where string
	args        []any
	keys        bool // only their keys are selected at first: they are sorted, and events may be large
}

// sources returns where the events of runs are read from.
func (q *auditQuery) sources() []auditSource {
	const byTime = "events e INDEXED BY events_audit CROSS JOIN runs r ON r.num = e.key >> 32"
	var kinds, acted []any
	for _, k := range store.AuditedEvents() {
		if q.f.WantsEvent(k) {
			kinds = append(kinds, string(k))
			if k == journal.KindConfirmationResolved || k == journal.KindGranted || k == journal.KindStopping {
				acted = append(acted, string(k))
			}
		}
	}
	if len(kinds) == 0 || q.f.Run != "" && q.num == 0 {
		return nil
	}
	among := func(kinds []any) string { return " AND e.kind IN (?" + strings.Repeat(",?", len(kinds)-1) + ")" }
	where, user := auditedKinds+among(kinds), any(text(q.f.User))
	switch {
	case q.num != 0:
		s := auditSource{from: "events e CROSS JOIN runs r ON r.num = e.key >> 32", where: where + " AND e.key BETWEEN ? AND ?"}
		s.args = append(kinds, eventKey(q.num, 0), eventKey(q.num, maxSeq))
		if q.f.User != "" {
			s.where += " AND (r.user = ? OR r.actor = ? OR " + actedKinds + ")"
			s.args = append(s.args, user, user)
		}
		return []auditSource{s}
	case q.f.User == "":
		return []auditSource{{from: byTime, where: where, args: kinds}}
	}
	own := auditSource{from: byTime, where: where + " AND (r.user = ? OR r.actor = ?)", args: append(kinds, user, user)}
	if q.few {
		own = auditSource{keys: true, where: where, args: append([]any{user, user}, kinds...), from: "(" + runsOf +
			") AS own CROSS JOIN events e ON e.key BETWEEN own.num << 32 AND (own.num << 32) + 4294967295"}
	}
	if len(acted) == 0 {
		return []auditSource{own}
	}
	return []auditSource{own, { // what the user did in runs of others
		from: "events e INDEXED BY events_by CROSS JOIN runs r ON r.num = e.key >> 32",
		where: actedKinds + among(acted) +
			" AND substr(CASE WHEN json_valid(e.payload) THEN e.payload ->> 'by' END, 1, 200) = substr(?, 1, 200)" +
			" AND r.user <> ? AND r.actor <> ?",
		args: append(acted, user, user, user),
	}}
}

// query selects the events of the log from a position on, including that event, which may have entries
// that were not returned yet. For run_started, which can be large, it selects columns of the run's row.
func (q *auditQuery) query(from auditPos) (query string, args []any) {
	order, compare, lo, hi := "DESC", "<=", q.lo, min(q.hi, max(from[0], from[0]+1))
	if q.f.OldestFirst {
		order, compare, lo, hi = "ASC", ">=", max(q.lo, from[0]), q.hi
	}
	next := func(query string, time string, rank int, key string, with ...any) string {
		args = append(append(args, with...), from[0], from[1], from[2], lo, hi)
		return fmt.Sprintf("%s AND (%[2]s, %d, %s) %s (?, ?, ?) AND %[2]s >= ? AND %[2]s < ? ORDER BY %[2]s %[6]s, %[4]s %[6]s LIMIT %[7]d",
			query, time, rank, key, compare, order, q.rows)
	}
	system, systemArgs := `SELECT time, 1, seq, kind, payload, '', hash, '', '', '', '', '', ''
		FROM system_events INDEXED BY system_events_audit WHERE kind NOT IN ('anchor', 'session_made', 'session_removed')`,
		[]any(nil)
	if q.f.Run != "" {
		system, systemArgs = system+" AND payload ->> 'run_id' = ?", []any{text(string(q.f.Run))}
	}
	parts := []string{next(system, "time", rankSystem, "seq", systemArgs...)}
	for _, s := range q.sources() {
		if s.keys {
			found := next("SELECT e.key FROM "+s.from+" WHERE "+s.where, "+e.time", 0, "e.key", s.args...) // no index
			s = auditSource{where: "1 = 1", from: "(" + found +
				") AS found CROSS JOIN events e ON e.key = found.key CROSS JOIN runs r ON r.num = e.key >> 32"}
		}
		parts = append(parts, next(`SELECT e.time, 0, e.key, e.kind, CASE WHEN e.kind <> 'run_started' THEN e.payload END,
			r.token, e.hash,
			r.id, r.user, r.actor, r.agent, r.session_id, r.parent_id
			FROM `+s.from+" WHERE "+s.where, "time", 0, "e.key", s.args...))
	}
	for i, part := range parts {
		parts[i] = fmt.Sprintf("SELECT * FROM (%s) AS part%d", part, i)
	}
	return fmt.Sprintf("%s ORDER BY 1 %[2]s, 2 %[2]s, 3 %[2]s LIMIT %[3]d", strings.Join(parts, " UNION ALL "), order, q.rows), args
}

// read reads the entries of the next events after a position, in the order of the filter. more reports
// whether other events follow.
func (q *auditQuery) read(ctx context.Context, r Reader, from auditPos) (items []auditItem, more bool, err error) {
	query, args := q.query(from)
	n := 0
	err = r.Each(ctx, query, args, func(scan Scan) error {
		var e store.AuditEntry
		var pos auditPos
		var kind toolcrib.Kind
		var payload json.RawMessage
		var hash []byte
		err := scan(&pos[0], &pos[1], &pos[2], &kind, &payload, &e.Token, &hash,
			&e.Run, &e.User, &e.Actor, &e.Agent, &e.Session, &e.Parent)
		if err != nil {
			return err
		}
		n++
		var entries []store.AuditEntry
		e.Chain, e.Seq, e.Time, e.Hash = e.Run, toolcrib.Seq(pos[2]&maxSeq), store.Micro(pos[0]), hex.EncodeToString(hash)
		if pos[1] == rankSystem {
			sys := store.SystemEvent{Seq: toolcrib.Seq(pos[2]), Time: e.Time, Kind: kind, Payload: payload}
			entries = []store.AuditEntry{store.EntryOfSystem(sys, e.Hash)}
		} else {
			var body toolcrib.Body
			if payload != nil {
				if body, err = journal.Decode(kind, payload); err != nil {
					return err
				}
			}
			entries = store.EntriesOf(e, kind, body)
		}
		if !q.f.OldestFirst {
			slices.Reverse(entries)
		}
		for _, e := range entries {
			pos[3] = int64(e.Index)
			items = append(items, auditItem{pos, e})
		}
		return nil
	})
	return items, n == q.rows, err
}

// AppendSystem implements [store.Store].
func (s *Store) AppendSystem(ctx context.Context, events ...store.SystemEvent) error {
	staged, size := make([]store.SystemEvent, len(events)), 0
	for i, e := range events {
		if e.Kind == "" || !json.Valid(e.Payload) {
			return fmt.Errorf("store: system event %d: a kind and a JSON payload are needed", i)
		}
		if len(e.Payload) > store.MaxEventBytes {
			return fmt.Errorf("store: system event %d: %d bytes, at most %d: %w", i, len(e.Payload), store.MaxEventBytes,
				store.ErrTooLarge)
		}
		if e.Time.IsZero() {
			e.Time = s.now()
		}
		e.Time = wholeMicro(e.Time)
		staged[i], size = e, size+len(e.Payload)
	}
	if len(staged) == 0 {
		return nil
	}
	err := s.write(ctx, &job{barrier: true, bytes: size, do: func(t *tx) error {
		for i := range staged {
			if err := t.putSystem(&staged[i]); err != nil {
				return err
			}
		}
		return nil
	}})
	if err == nil {
		copy(events, staged)
	}
	return err
}
