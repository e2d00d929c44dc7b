package sqlite

import (
	"bytes"
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/store"
)

// facts is what the system journal tells of a run.
type facts struct {
	anchors map[toolcrib.Seq]store.Anchor
	last    toolcrib.Seq // of the anchors
	pruned  *store.Pruned
	removed *store.Pruned
	used    store.Used  // where what it has used is counted; nil = nowhere
	proved  tokenProofs // where calls of access tokens are counted; nil = nowhere
}

// learn takes what an event of the system journal tells.
func (f *facts) learn(kind toolcrib.Kind, payload []byte) error {
	if kind == store.SystemAnchor {
		var a store.Anchor
		if err := json.Unmarshal(payload, &a); err != nil {
			return fmt.Errorf("anchor: %w", err)
		}
		if f.anchors == nil {
			f.anchors = make(map[toolcrib.Seq]store.Anchor)
		}
		f.anchors[a.Seq], f.last = a, max(f.last, a.Seq)
		return nil
	}
	p := new(store.Pruned)
	if err := json.Unmarshal(payload, p); err != nil {
		return fmt.Errorf("%s: %w", kind, err)
	}
	if kind == store.SystemRunRemoved {
		f.removed = p
		return nil
	}
	f.pruned = p
	return nil
}

// ofRun reports whether a system event tells of a run.
func ofRun(kind toolcrib.Kind) bool {
	return kind == store.SystemAnchor || kind == store.SystemContentPruned || kind == store.SystemRunRemoved
}

const selectFacts = `SELECT kind, payload FROM system_events
	WHERE kind IN ('anchor', 'content_pruned', 'run_removed') AND payload ->> 'run_id' = ? ORDER BY seq`

func (sn snapshot) factsOf(ctx context.Context, run toolcrib.RunID) (*facts, error) {
	f := new(facts)
	err := sn.each(ctx, selectFacts, []any{string(run)}, func(scan scanFunc) error {
		var kind toolcrib.Kind
		var payload []byte
		if err := scan(&kind, &payload); err != nil {
			return err
		}
		return f.learn(kind, payload)
	})
	return f, err
}

// runCheck goes through the events of a run.
type runCheck struct {
	run  toolcrib.RunID
	f    *facts
	v    store.Verified
	prev []byte
	rec  store.RunRecord // what the events make of the run
	mark toolcrib.Seq    // of the last event that leaves an anchor
	kin  family

	meter   store.Meter
	charges []store.UseEntry
	calls   tokenCalls
}

// broken is a break at an event.
func (c *runCheck) broken(seq toolcrib.Seq, what string) error {
	return &store.ChainError{Run: c.run, Seq: seq, What: what}
}

// rowOfRun is the row of a run as it lies there.
type rowOfRun struct {
	num    int64
	run    toolcrib.RunID
	hash   []byte
	kept   toolcrib.Seq
	sealed []byte
	pruned sql.NullInt64
	values []any // of recordColumns
}

const selectRow = "SELECT " + runColumns + " FROM runs"

// dest is where runColumns are read into.
func (r *rowOfRun) dest() []any {
	r.values = make([]any, recordWidth)
	dest := []any{&r.num, &r.run, &r.hash, &r.kept, &r.sealed, &r.pruned}
	for i := range r.values {
		dest = append(dest, &r.values[i])
	}
	return dest
}

// readRow reads the row of a run with row, in a transaction.
func readRow(run toolcrib.RunID, row func(query string, args []any, dest ...any) error) (r rowOfRun, err error) {
	return r, row(selectRow+" WHERE id = ?", []any{string(run)}, r.dest()...)
}

func (sn snapshot) verifyRun(ctx context.Context, run toolcrib.RunID, f *facts) (store.Verified, error) {
	r, err := readRow(run, func(query string, args []any, dest ...any) error { return sn.row(ctx, query, args, dest...) })
	switch {
	case errors.Is(err, sql.ErrNoRows) && f.removed != nil:
		return store.Verified{}, fmt.Errorf("run %s was removed by %s: %w", run, f.removed.By, toolcrib.ErrNotFound)
	case errors.Is(err, sql.ErrNoRows) && len(f.anchors) > 0:
		return store.Verified{}, goneError(run)
	case errors.Is(err, sql.ErrNoRows):
		return store.Verified{}, fmt.Errorf("run %s: %w", run, toolcrib.ErrNotFound)
	case err != nil:
		return store.Verified{}, err
	case f.removed != nil:
		return store.Verified{}, &store.ChainError{Run: run, What: "it was removed, and is there"}
	}
	c := &runCheck{run: run, f: f, rec: store.RunRecord{ID: run}}
	c.v.Sealed = r.kept
	if err := sn.events(ctx, r.num, c.event); err != nil {
		return c.v, err
	}
	if err := c.end(&r); err != nil {
		return c.v, err
	}
	if sn.keys != nil && !r.seal(sn.keys).Holds(r.sealed) {
		return c.v, sealError(run)
	}
	f.proved.add(&c.calls)
	if err := sn.verifyContents(ctx, run); err != nil {
		return c.v, err
	}
	if err := sn.verifyKept(ctx, c); err != nil {
		return c.v, err
	}
	return c.v, sn.verifyFamily(ctx, c)
}

// events yields all events that lie under the number of a run, also such as could
// not be there.
func (sn snapshot) events(ctx context.Context, num int64, do func(*stored) error) error {
	for from := eventKey(num, 0); ; {
		n, size, next := 0, 0, from
		err := sn.each(ctx, `SELECT key & 0xffffffff, kind, time, payload, payload_hash, hash,
			typeof(kind) || typeof(time) || typeof(payload) || typeof(payload_hash) || typeof(hash)
			FROM events WHERE key BETWEEN ? AND ? ORDER BY key LIMIT ?`,
			[]any{from, eventKey(num, maxSeq), pageEvents}, func(scan scanFunc) error {
				if size >= pageBytes {
					return nil // the next page has it
				}
				var r stored
				var types string
				if err := scan(&r.seq, &r.kind, &r.time, &r.payload, &r.payloadHash, &r.hash, &types); err != nil {
					return err
				}
				n, size, next = n+1, size+len(r.payload), eventKey(num, r.seq)+1
				r.odd = types != "textintegertextblobblob" && types != "textintegernullblobblob"
				return do(&r)
			})
		if err != nil || (n < pageEvents && size < pageBytes) || next > eventKey(num, maxSeq) {
			return err
		}
		from = next
	}
}

// event checks the next event of the run.
func (c *runCheck) event(r *stored) error {
	c.v.Events++
	if what := r.check(c.run, c.prev, toolcrib.Seq(c.v.Events)); what != "" {
		return c.broken(r.seq, what)
	}
	c.prev = r.hash
	switch r.kind {
	case journal.KindPaused, journal.KindDone, journal.KindError:
		c.mark = r.seq
	}
	c.rec.LastSeq = r.seq
	if r.payload == nil {
		c.v.Pruned++
		if c.f.pruned == nil {
			return c.broken(r.seq, "its content is gone, and no pruning is recorded")
		}
	} else if err := c.project(r); err != nil {
		return err
	}
	a, ok := c.f.anchors[r.seq]
	if !ok {
		return nil
	}
	c.v.Anchors++
	switch {
	case a.Hash != hex.EncodeToString(r.hash):
		return c.broken(r.seq, "the anchor in the system journal has another hash")
	case r.payload != nil && a.Status != c.rec.Status:
		return c.broken(r.seq, fmt.Sprintf("the anchor in the system journal has status %s, the events give %s", a.Status, c.rec.Status))
	}
	return nil
}

// project makes the record of the run from its events.
func (c *runCheck) project(r *stored) error {
	if c.f.pruned != nil {
		return c.broken(r.seq, "it has content, and was pruned")
	}
	e, err := r.decode(c.run)
	if err != nil {
		return err // the bytes are those that were written: a later version may have
	}
	c.calls.learn(e.Body)
	c.meter.Learn(e.Body, e.Time)
	c.charges = c.meter.Charge(c.charges[:0], &c.rec, e)
	for _, charge := range c.charges {
		if c.f.used != nil {
			c.f.used.Add(charge)
		}
	}
	store.Project(&c.rec, e)
	c.kin.learn(e)
	return nil
}

// check tells what is wrong with an event that follows prev; "" = nothing.
func (r *stored) check(run toolcrib.RunID, prev []byte, want toolcrib.Seq) string {
	switch {
	case r.seq != want:
		return "its number is not the next"
	case r.odd:
		return "one of its values is of another type"
	case r.payload != nil && !bytes.Equal(journal.PayloadHash(r.payload), r.payloadHash):
		return "its content has another hash"
	case !bytes.Equal(journal.ChainHash(prev, run, r.seq, r.kind, fromMicro(r.time), r.payloadHash), r.hash):
		return "it does not follow from the one before"
	}
	return ""
}

// end compares where the events end with the run's row and its anchors.
func (c *runCheck) end(r *rowOfRun) error {
	last := c.rec.LastSeq
	switch {
	case c.v.Anchors < len(c.f.anchors):
		return c.broken(last, "the system journal has an anchor of a later event")
	case !bytes.Equal(c.prev, r.hash):
		return c.broken(last, "the run's row has another hash")
	case c.f.last < c.mark:
		return c.broken(c.mark, "the system journal has no anchor of it")
	}
	if a := c.f.anchors[c.f.last]; a.Num != 0 && a.Num != r.num {
		return c.broken(last, "the run has another number in the database")
	}
	if c.f.pruned != nil {
		return c.endPruned(r)
	}
	if r.pruned.Valid {
		return c.broken(last, "the run's row says that it was pruned, and no pruning is recorded")
	}
	want, err := recordArgs(&c.rec)
	if err != nil {
		return err
	}
	for i := range want {
		if !sameValue(want[i], r.values[i]) {
			return c.broken(last, fmt.Sprintf("the run's row is not what the events make of it (%s)", recordColumn(i)))
		}
	}
	return nil
}

// endPruned compares the row of a pruned run with what the system journal says of it.
func (c *runCheck) endPruned(r *rowOfRun) error {
	switch {
	case c.f.pruned.Hash != hex.EncodeToString(c.prev):
		return c.broken(c.rec.LastSeq, "it ends not where it ended when it was pruned")
	case c.f.pruned.Record != r.digest():
		return c.broken(c.rec.LastSeq, "the run's row is not as pruning has left it")
	}
	return nil
}

// digest is the hash of a row's values, with their types.
func (r *rowOfRun) digest() string {
	h := sha256.New()
	value(h, r.num)
	for _, v := range r.values {
		value(h, v)
	}
	value(h, r.pruned.Int64)
	return hex.EncodeToString(h.Sum(nil))
}

func value(h hash.Hash, v any) {
	text := fmt.Sprintf("%T %v", v, v)
	_, _ = fmt.Fprintf(h, "%d:%s", len(text), text) // a hash never fails to write
}

// sameValue reports whether a value of recordArgs is the one that was read.
func sameValue(want, have any) bool {
	switch w := want.(type) {
	case bool:
		n, ok := have.(int64)
		return ok && (n == 1) == w && (n == 0 || n == 1)
	case int:
		return have == any(int64(w))
	}
	return want == have
}

// verifyKept compares what is kept for a run that stands at its last anchor with
// what that says.
func (sn snapshot) verifyKept(ctx context.Context, c *runCheck) error {
	digest, err := contentsDigest(ctx, sn, c.run)
	if err != nil {
		return err
	}
	want, at := c.f.anchors[c.f.last].Contents, c.f.last == c.rec.LastSeq && c.f.last > 0 && c.f.anchors[c.f.last].Num != 0
	if c.f.pruned != nil {
		want, at = "", true
	}
	if at && digest != want {
		return c.broken(c.rec.LastSeq, "the kept results are not those that the system journal has the hash of")
	}
	return nil
}

// verifyContents compares each thing that is kept for a run with its hash.
func (sn snapshot) verifyContents(ctx context.Context, run toolcrib.RunID) error {
	type kept struct {
		num, size int64
		ref       string
		hash      []byte
		types     string
	}
	var all []kept
	err := sn.each(ctx, `SELECT num, ref, size, hash, typeof(run_id) || typeof(ref) || typeof(size) || typeof(hash)
		FROM contents WHERE run_id = ? ORDER BY num`, []any{string(run)}, func(scan scanFunc) error {
		var k kept
		if err := scan(&k.num, &k.ref, &k.size, &k.hash, &k.types); err != nil {
			return err
		}
		all = append(all, k)
		return nil
	})
	for i := 0; i < len(all) && err == nil; i++ {
		k, h, at, ok := all[i], sha256.New(), int64(0), true
		err = sn.each(ctx, "SELECT key & 0xffffffff, data, typeof(data) FROM content_pieces WHERE key BETWEEN ? AND ? ORDER BY key",
			[]any{eventKey(k.num, 0), eventKey(k.num, maxSeq)}, func(scan scanFunc) error {
				var index int64
				var data []byte
				var kind string
				if err := scan(&index, &data, &kind); err != nil {
					return err
				}
				ok = ok && index*pieceBytes == at && kind == "blob"
				at += int64(len(data))
				_, err := h.Write(data)
				return err
			})
		if err == nil && (!ok || at != k.size || k.types != "texttextintegerblob" || !bytes.Equal(h.Sum(nil), k.hash)) {
			err = &store.ChainError{Run: run, What: fmt.Sprintf("the kept result %s is not the one whose hash is kept", k.ref)}
		}
	}
	return err
}
