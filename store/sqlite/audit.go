package sqlite

import (
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/store"
)

// Audit returns a page of the audit log: what the gate has decided, what people have
// decided and changed, and what was pruned, from the journals of all runs and the
// system journal, by time; newest first unless the filter says otherwise. Entries of
// the same time come in the order of their journals, runs first. What verifies it is
// VerifyAll.
func (s *Store) Audit(ctx context.Context, f store.AuditFilter) (page store.AuditPage, err error) {
	if err := f.Check(); err != nil {
		return page, err
	}
	q := auditQuery{s: s, f: f, lo: math.MinInt64, hi: math.MaxInt64}
	if !f.Since.IsZero() {
		q.lo = f.Since.UnixMicro()
	}
	if !f.Until.IsZero() {
		q.hi = f.Until.UnixMicro()
	}
	if f.Cursor != "" {
		if q.from, err = parseAuditPos(f.Cursor); err != nil {
			return page, err
		}
	}
	if f.Run != "" {
		if q.num, err = s.numOf(ctx, f.Run); err != nil {
			return page, err
		}
	}
	err = q.merge(ctx, func(e store.AuditEntry, pos auditPos) bool {
		if len(page.Entries) == f.Bound() {
			page.Next = q.last.String()
			return false
		}
		page.Entries, q.last = append(page.Entries, e), pos
		return true
	})
	if err != nil {
		return store.AuditPage{}, s.failed(ctx, err)
	}
	return page, nil
}

// LastChanged implements [store.Store].
func (s *Store) LastChanged(ctx context.Context, kind toolcrib.Kind, path string) (last store.FileChanged, err error) {
	err = s.readers.each(ctx, `SELECT payload FROM system_events
		WHERE kind = ? AND payload ->> 'path' = ? ORDER BY seq DESC LIMIT 1`, []any{string(kind), text(path)}, func(scan scanFunc) error {
		var raw json.RawMessage
		if err := scan(&raw); err != nil {
			return err
		}
		return json.Unmarshal(raw, &last)
	})
	return last, s.failed(ctx, err)
}

// numOf returns the number of a run; 0 = it is not there, but the system journal may
// tell of it.
func (s *Store) numOf(ctx context.Context, run toolcrib.RunID) (num int64, err error) {
	if err := s.readers.row(ctx, "SELECT ifnull(max(num), 0) FROM runs WHERE id = ?", []any{string(run)}, &num); err != nil {
		return 0, s.failed(ctx, err)
	}
	return num, nil
}

// The two sources, in the order in which they come at the same time.
const (
	rankRuns = iota
	rankSystem
)

// auditPos is the place of an entry in the log.
type auditPos struct {
	time  int64
	rank  int
	key   int64
	index int
}

func (p auditPos) compare(o auditPos) int {
	return cmp.Or(cmp.Compare(p.time, o.time), cmp.Compare(p.rank, o.rank), cmp.Compare(p.key, o.key), cmp.Compare(p.index, o.index))
}

func (p auditPos) String() string {
	return strconv.FormatInt(p.time, 36) + "." + strconv.Itoa(p.rank) + "." + strconv.FormatInt(p.key, 36) + "." + strconv.Itoa(p.index)
}

func parseAuditPos(text string) (*auditPos, error) {
	parts := strings.Split(text, ".")
	if len(parts) != 4 {
		return nil, store.ErrBadCursor
	}
	var p auditPos
	var errs [4]error
	p.time, errs[0] = strconv.ParseInt(parts[0], 36, 64)
	p.rank, errs[1] = strconv.Atoi(parts[1])
	p.key, errs[2] = strconv.ParseInt(parts[2], 36, 64)
	p.index, errs[3] = strconv.Atoi(parts[3])
	for _, err := range errs {
		if err != nil || p.rank < rankRuns || p.rank > rankSystem {
			return nil, store.ErrBadCursor
		}
	}
	return &p, nil
}

type auditQuery struct {
	s      *Store
	f      store.AuditFilter
	lo, hi int64     // times
	num    int64     // of the filter's run
	from   *auditPos // of the last entry of the page before; nil = none
	last   auditPos
}

// auditItem is an entry with its place.
type auditItem struct {
	pos   auditPos
	entry store.AuditEntry
}

// auditStream is one source, read by pages.
type auditStream struct {
	time, key int64 // where the next page begins, behind this
	items     []auditItem
	ended     bool
	read      func(ctx context.Context, st *auditStream) error
}

// auditRows is how many events one page reads.
const auditRows = 256

// head returns the next item; nil = there is none.
func (st *auditStream) head(ctx context.Context) (*auditItem, error) {
	for len(st.items) == 0 && !st.ended {
		if err := st.read(ctx, st); err != nil {
			return nil, err
		}
	}
	if len(st.items) == 0 {
		return nil, nil
	}
	return &st.items[0], nil
}

// stream is the source of a rank from the cursor on. The event of the cursor itself is
// read again: it may have more entries.
func (q *auditQuery) stream(rank int, read func(context.Context, *auditStream) error) *auditStream {
	st := &auditStream{time: math.MinInt64, key: math.MinInt64, read: read}
	if !q.f.OldestFirst {
		st.time, st.key = math.MaxInt64, math.MaxInt64
	}
	if q.from == nil {
		return st
	}
	st.time = q.from.time
	switch {
	case rank < q.from.rank:
		st.key = math.MaxInt64
	case rank > q.from.rank:
		st.key = math.MinInt64
	case q.f.OldestFirst:
		st.key = q.from.key - 1
	default:
		st.key = q.from.key + 1
	}
	return st
}

// merge yields the entries of both sources that fit, in their order.
func (q *auditQuery) merge(ctx context.Context, yield func(store.AuditEntry, auditPos) bool) error {
	streams := [2]*auditStream{q.stream(rankRuns, q.readRuns), q.stream(rankSystem, q.readSystem)}
	for {
		var next *auditStream
		for _, st := range streams {
			item, err := st.head(ctx)
			if err != nil {
				return err
			}
			if item != nil && (next == nil || q.before(item.pos, next.items[0].pos)) {
				next = st
			}
		}
		if next == nil {
			return nil
		}
		item := next.items[0]
		next.items = next.items[1:]
		if q.from != nil && !q.before(*q.from, item.pos) {
			continue
		}
		if !q.f.Wants(item.entry.Kind) || q.f.User != "" && !item.entry.About(q.f.User) {
			continue
		}
		if !yield(item.entry, item.pos) {
			return nil
		}
	}
}

// before reports whether an entry comes before another one in the order of the filter.
func (q *auditQuery) before(a, b auditPos) bool {
	if q.f.OldestFirst {
		return a.compare(b) < 0
	}
	return a.compare(b) > 0
}

// order is the end of a query, for columns of time and key.
func (q *auditQuery) order(time, key string) string {
	if q.f.OldestFirst {
		return fmt.Sprintf(" AND (%s, %s) > (?, ?) AND %s >= ? AND %s < ? ORDER BY %s, %s LIMIT %d", time, key, time, time, time, key, auditRows)
	}
	return fmt.Sprintf(" AND (%s, %s) < (?, ?) AND %s >= ? AND %s < ? ORDER BY %s DESC, %s DESC LIMIT %d", time, key, time, time, time, key, auditRows)
}

// auditedKinds is the condition of the index events_audit.
const auditedKinds = `(e.kind = 'run_started' OR e.kind = 'verdicts' OR e.kind = 'confirmation_required'
	OR e.kind = 'confirmation_resolved' OR e.kind = 'granted' OR e.kind = 'stopping')`

// readRuns reads a page of the journals of runs.
func (q *auditQuery) readRuns(ctx context.Context, st *auditStream) error {
	var kinds []any
	for _, k := range store.AuditedEvents() {
		if q.f.WantsEvent(k) {
			kinds = append(kinds, string(k))
		}
	}
	if len(kinds) == 0 || q.f.Run != "" && q.num == 0 {
		st.ended = true
		return nil
	}
	from, args := "events e INDEXED BY events_audit", kinds
	where := auditedKinds + " AND e.kind IN (?" + strings.Repeat(",?", len(kinds)-1) + ")"
	if q.num != 0 {
		from, where = "events e", where+" AND e.key BETWEEN ? AND ?"
		args = append(args, eventKey(q.num, 0), eventKey(q.num, maxSeq))
	}
	if q.f.User != "" {
		where += " AND (r.user = ? OR r.actor = ? OR e.kind IN ('confirmation_resolved', 'granted', 'stopping'))"
		args = append(args, text(q.f.User), text(q.f.User))
	}
	// What a run begins with can be large, and its row has what is wanted of it.
	query := `SELECT e.key, e.kind, e.time, CASE WHEN e.kind <> 'run_started' THEN e.payload END,
		CASE WHEN e.kind = 'run_started' THEN ifnull(e.payload ->> '$.principal.token', '') ELSE '' END, e.hash, r.id, r.user, r.actor, r.agent, r.session_id, r.parent_id
		FROM ` + from + " CROSS JOIN runs r ON r.num = e.key >> 32 WHERE " + where + q.order("e.time", "e.key")
	n := 0
	err := q.s.readers.each(ctx, query, append(args, st.time, st.key, q.lo, q.hi), func(scan scanFunc) error {
		var e store.AuditEntry
		var kind toolcrib.Kind
		var payload json.RawMessage
		var hash []byte
		if err := scan(&st.key, &kind, &st.time, &payload, &e.Token, &hash, &e.Run, &e.User, &e.Actor, &e.Agent, &e.Session, &e.Parent); err != nil {
			return err
		}
		n++
		e.Chain, e.Seq, e.Time, e.Hash = e.Run, toolcrib.Seq(st.key&maxSeq), fromMicro(st.time), hex.EncodeToString(hash)
		var body toolcrib.Body
		if payload != nil {
			var err error
			if body, err = journal.Decode(kind, payload); err != nil {
				return err
			}
		}
		st.add(q, rankRuns, store.EntriesOf(e, kind, body))
		return nil
	})
	st.ended = n < auditRows
	return err
}

// readSystem reads a page of the system journal.
func (q *auditQuery) readSystem(ctx context.Context, st *auditStream) error {
	query, args := `SELECT seq, kind, time, payload, hash FROM system_events INDEXED BY system_events_audit
		WHERE kind NOT IN ('anchor', 'session_made', 'session_removed')`, []any(nil)
	if q.f.Run != "" {
		query, args = query+" AND payload ->> 'run_id' = ?", []any{text(string(q.f.Run))}
	}
	n := 0
	err := q.s.readers.each(ctx, query+q.order("time", "seq"), append(args, st.time, st.key, q.lo, q.hi), func(scan scanFunc) error {
		var e store.SystemEvent
		var hash []byte
		if err := scan(&st.key, &e.Kind, &st.time, &e.Payload, &hash); err != nil {
			return err
		}
		n++
		e.Seq, e.Time = toolcrib.Seq(st.key), fromMicro(st.time)
		st.add(q, rankSystem, []store.AuditEntry{store.EntryOfSystem(e, hex.EncodeToString(hash))})
		return nil
	})
	st.ended = n < auditRows
	return err
}

// add puts the entries of the event that was read last behind the others, in the order
// of the filter.
func (st *auditStream) add(q *auditQuery, rank int, entries []store.AuditEntry) {
	for i := range entries {
		e := &entries[i]
		if !q.f.OldestFirst {
			e = &entries[len(entries)-1-i]
		}
		st.items = append(st.items, auditItem{pos: auditPos{time: st.time, rank: rank, key: st.key, index: e.Index}, entry: *e})
	}
}
