package sqlstore

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/store"
)

// maxSeq is the largest sequence number that fits in the key of an event.
const maxSeq = math.MaxUint32

// Append implements [toolcrib.Journal]. The first event of a session's run, if it has no parent, fails
// with [*store.SessionBusyError] while another such run of that session and user has not ended. One
// with a key that another run has fails with [*store.OnceError].
func (s *Store) Append(ctx context.Context, run toolcrib.RunID, after toolcrib.Seq, events ...toolcrib.Event) error {
	if run == "" {
		return errors.New("store: append: no run ID")
	}
	rows, job, err := s.encode(after, events)
	if err != nil {
		return err
	}
	if after == 0 && len(rows) > 0 {
		if err := s.checkNew(ctx); err != nil {
			return err
		}
	}
	job.do = func(t *tx) error { return t.append(run, after, rows) }
	if err := s.write(ctx, job); err != nil {
		return err
	}
	for i := range rows {
		events[i] = rows[i].event
	}
	return nil
}

// row is an event to be inserted.
type row struct {
	event   toolcrib.Event // with the payload's hash; Hash is set in the transaction
	payload string
	said    []store.TextHash
	end     int // end of the payload in the buffer of its append
}

// encodeKept is the largest buffer that is kept for the next append, in bytes.
const encodeKept = 256 << 10

// encode builds the rows of events. Their payloads share one buffer.
func (s *Store) encode(after toolcrib.Seq, events []toolcrib.Event) ([]row, *job, error) {
	if after > maxSeq-toolcrib.Seq(len(events)) {
		return nil, nil, fmt.Errorf("store: append: a run holds at most %d events", uint32(maxSeq))
	}
	b, ok := s.buffers.Get().(*bytes.Buffer)
	if !ok {
		b = new(bytes.Buffer)
	}
	defer func() {
		if b.Cap() <= encodeKept {
			b.Reset()
			s.buffers.Put(b)
		}
	}()
	rows, j := make([]row, len(events)), new(job)
	for i, e := range events {
		if e.Body == nil {
			return nil, nil, fmt.Errorf("store: append: event %d has no body", i)
		}
		from := b.Len()
		if err := journal.EncodeTo(b, e.Body); err != nil {
			return nil, nil, err
		}
		payload := b.Bytes()[from:]
		if len(payload) > store.MaxEventBytes {
			return nil, nil, fmt.Errorf("store: append: %s of %d bytes, at most %d: %w", e.Body.EventKind(), len(payload),
				store.MaxEventBytes, store.ErrTooLarge)
		}
		rows[i] = row{end: b.Len(), said: store.Says(e.Body), event: toolcrib.Event{
			Seq: after + toolcrib.Seq(i) + 1, Time: wholeMicro(e.Time), Body: e.Body, PayloadHash: journal.PayloadHash(payload),
		}}
		j.barrier = j.barrier || journal.Barrier(e.Body)
	}
	j.bytes = b.Len()
	whole, from := b.String(), 0
	for i := range rows {
		rows[i].payload = whole[from:rows[i].end]
		from = rows[i].end
	}
	return rows, j, nil
}

// head is the state of a run at its last event.
type head struct {
	store.Row

	place store.Seal  // place at Kept, if the run is about to move on
	meter store.Meter // meter of the run's use, if known
	known bool        // whether meter is known
}

// selectHead also reports whether there are reservations: another process may have made the first one
// while it drove the run.
var selectHead = "SELECT " + runColumns + ", EXISTS (SELECT 1 FROM reservations) FROM runs WHERE id = ?"

// readHead reads a head from the database.
func (t *tx) readHead(run toolcrib.RunID) (head, error) {
	var h head
	reserves := false
	err := t.row(selectHead, []any{string(run)}, append(places(&h.Row), &reserves)...)
	if err == nil {
		err = h.Docs.Read(&h.Record)
	}
	if err == nil {
		err = h.Check(t.w.keys)
	}
	t.w.reserves = t.w.reserves || reserves
	if errors.Is(err, sql.ErrNoRows) {
		return head{Row: store.Row{Record: store.RunRecord{ID: run}}, known: true}, nil
	}
	return h, err
}

// head returns the head of a run, from the writer's memory if that matches the sequence number that the
// caller expects. The memory may be out of date if another process has written; then the condition in
// putHead fails.
func (t *tx) head(run toolcrib.RunID, after toolcrib.Seq) (head, error) {
	known := t.w.heads[run]
	if known != nil && known.Record.LastSeq == after {
		return *known, nil
	}
	taken, err := t.readHead(run)
	if known != nil && known.Record.LastSeq > taken.Record.LastSeq {
		t.w.checked.Store(false) // it was put back
	}
	if err == nil {
		err = t.checkRecord()
	}
	if err == nil {
		taken.place, err = t.placed(&taken)
	}
	return taken, err
}

func (t *tx) append(run toolcrib.RunID, after toolcrib.Seq, rows []row) error {
	h, err := t.head(run, after)
	if err != nil {
		return err
	}
	if h.Record.LastSeq != after || len(rows) == 0 {
		return t.fence(run, after)
	}
	if after == 0 {
		for _, check := range []func(toolcrib.RunID, toolcrib.Event) error{t.checkOnce, t.checkNewBounds, t.checkSession} {
			if err := check(run, rows[0].event); err != nil {
				return err
			}
		}
	}
	about, day := claimNothing, store.Day(0)
	if t.w.reserves {
		if about, day = claimOf(rows); about == claimConfirm {
			if err := t.checkClaim(run, day); err != nil {
				return err
			}
		}
	}
	if err := t.readMessages(run, rows); err != nil {
		return err
	}
	next, anchored, err := t.project(&h, rows)
	if err != nil {
		return err
	}
	moved, err := t.putHead(&h, next)
	if err != nil {
		return err
	}
	if !moved {
		return t.fence(run, after)
	}
	t.w.remember(run, next)
	if h.Num == 0 {
		if err := t.putLast(&next.Record, "?", next.Num); err != nil {
			return err
		}
		if err := t.leaseNew(run); err != nil {
			return err
		}
	}
	if next.Record.Status.Ended() {
		if err := t.endLease(run); err != nil {
			return err
		}
	}
	if next.place != h.place {
		if err := t.move(h.place, next.place); err != nil {
			return err
		}
	}
	for _, c := range t.w.charges {
		t.used.Add(c)
	}
	if err := t.putClaim(run, about, day); err != nil {
		return err
	}
	if err := t.putEvents(next.Num, rows); err != nil {
		return err
	}
	if err := t.putSaid(next, rows); err != nil {
		return err
	}
	if !anchored {
		return nil
	}
	contents, err := contentsDigest(t.ctx, t.w.db, run)
	if err != nil {
		return err
	}
	return t.appendSystem(rows[len(rows)-1].event.Time, store.SystemAnchor, store.Anchor{
		Run: run, Seq: next.Record.LastSeq, Hash: hex.EncodeToString(next.Hash), Status: next.Record.Status, Num: next.Num,
		Contents: contents,
	})
}

// project returns the head of a run after rows, whose hashes it sets. anchored reports whether the
// system journal gets an anchor for them. The usage that they report is stored in t.w.charges.
func (t *tx) project(h *head, rows []row) (next *head, anchored bool, err error) {
	next, t.w.charges = new(head), t.w.charges[:0]
	*next = *h
	barrier := h.Num == 0 // like a barrier, the start of a run is in the record
	for i := range rows {
		e := &rows[i].event
		kind := e.Body.EventKind()
		next.Hash = journal.ChainHash(next.Hash, h.Record.ID, e.Seq, kind, e.Time, e.PayloadHash)
		e.Hash = next.Hash
		if !next.known && next.meter.Needs(e.Body) {
			if next.meter, err = t.readMeter(h.Num); err != nil {
				return next, false, err
			}
			for _, earlier := range rows[:i] {
				next.meter.Learn(earlier.event.Body, earlier.event.Time)
			}
			next.known = true
		}
		t.w.charges = next.meter.Take(t.w.charges, &next.Record, *e)
		anchored = anchored || kind == journal.KindPaused || kind == journal.KindDone || kind == journal.KindError
		barrier = barrier || journal.Barrier(e.Body)
	}
	if barrier {
		next.Kept = next.Record.LastSeq
		next.place = t.w.keys.Place(next.Record.ID, next.Kept, next.Hash)
	}
	return next, anchored, nil
}

// fence reads the run from the database and rejects the job if the run is not at the event that the
// caller expects.
func (t *tx) fence(run toolcrib.RunID, after toolcrib.Seq) error {
	h, err := t.readHead(run)
	if err == nil && h.Record.LastSeq != after {
		err = reject(fmt.Errorf("run %s is at event %d, not %d: %w", run, h.Record.LastSeq, after, toolcrib.ErrConflict))
	}
	return err
}

// updateHead returns the statement that updates the columns of a run from an index on, or inserts a run
// if from is 0.
func updateHead(from int) string {
	columns := strings.Join(store.RowColumns[from:], ", ") + ", last_hash, kept_seq, seal"
	values := strings.Repeat("?,", len(store.RowColumns)-from) + "?,?,?"
	if from == 0 {
		return "INSERT INTO runs (" + columns + ", id, site) VALUES (" + values + ",?,?) RETURNING num"
	}
	return "UPDATE runs SET (" + columns + ") = (" + values + ") WHERE num = ? AND last_seq = ? AND last_hash = ?"
}

// rowSeq is the index of the last of store.RowColumns.
var rowSeq = len(store.RowColumns) - 1

var updateHeads = map[int]string{
	0: updateHead(0), store.RowMoves: updateHead(store.RowMoves), store.RowSums: updateHead(store.RowSums),
	rowSeq: updateHead(rowSeq),
}

// putHead updates a run from old to next. If the run in the database differs from old, it returns false
// and writes nothing. It sets only the columns that have changed, because the indexes of each column
// that is set are rewritten.
func (t *tx) putHead(old, next *head) (moved bool, err error) {
	if next.Docs, err = next.Record.Docs(); err != nil {
		return false, err
	}
	values := next.Values(t.w.args[:0])
	seal := next.Seal(t.w.sealing.Reset(), values)
	same := next.Record
	same.LastSeq = old.Record.LastSeq
	sum := same
	sum.Iterations, sum.Usage, sum.Unpriced = old.Record.Iterations, old.Record.Usage, old.Record.Unpriced
	from := store.RowMoves
	switch {
	case old.Num == 0:
		from = 0
	case same == old.Record:
		from = rowSeq
	case sum == old.Record:
		from = store.RowSums
	}
	values = append(values, next.Hash, int64(next.Kept), seal[:])
	if old.Num == 0 {
		values = append(values, string(next.Record.ID), text(next.Record.Site))
	} else {
		values = append(values, old.Num, int64(old.Record.LastSeq), old.Hash)
	}
	moved = true
	if old.Num == 0 {
		err = t.row(updateHeads[0], values, &next.Num)
	} else {
		moved, err = t.w.db.One(t.ctx, updateHeads[from], values[from:]...)
	}
	clear(values) // release the values
	t.w.args = values
	return moved && err == nil, err
}

var eventInserts = newInserts("events", "key, kind, time, payload, payload_hash, hash", "")

func (t *tx) putEvents(num int64, rows []row) error {
	args := t.w.args[:0]
	for i := range rows {
		e := &rows[i].event
		args = append(args, eventKey(num, e.Seq), string(e.Body.EventKind()), e.Time.UnixMicro(), rows[i].payload,
			e.PayloadHash, e.Hash)
	}
	err := eventInserts.run(t, args)
	clear(args) // release the values
	t.w.args = args
	return err
}

var saidInserts = newInserts("said", "num, hash", " ON CONFLICT DO NOTHING")

// putSaid stores the messages that a client may send again.
func (t *tx) putSaid(h *head, rows []row) error {
	if !h.Record.Keeps() {
		return nil
	}
	args := t.w.args[:0]
	for i := range rows {
		for _, text := range rows[i].said {
			key := text.Of(h.Record.User)
			args = append(args, h.Num, key[:])
		}
	}
	err := saidInserts.run(t, args)
	clear(args) // release the values
	t.w.args = args
	return err
}
