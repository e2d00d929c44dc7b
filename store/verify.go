package store

import (
	"bytes"
	"cmp"
	"context"
	"crypto/hmac"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/journal"
)

// verifier goes through a store, in whatever dialect, and knows what must hold.
type verifier struct {
	s    Snapshot
	keys *Keys // nil = nothing is said about seals

	facts  map[toolcrib.RunID]*facts // what the system journal says about runs
	kin    kin
	kept   map[toolcrib.RunID]*keptRun // of all runs; nil = each is looked up
	said   map[int64]map[SaidKey]bool  // of the runs that are read, by their numbers
	used   Used                        // as the events give it
	proved map[string]int64            // calls of access tokens, as verdicts prove them

	exported bool  // it is an export, in which content may be left out
	against  *Head // that was kept elsewhere; nil = none

	record Record // of the head, once the system journal holds
	docs   docs
	head   Verified
	prev   []byte // of the system journal
}

func newVerifier(s Snapshot, keys *Keys) *verifier {
	return &verifier{
		s: s, keys: keys, facts: make(map[toolcrib.RunID]*facts), kin: make(kin), used: make(Used),
		proved: make(map[string]int64), docs: docs{all: make(map[[3]string]Doc)},
	}
}

// VerifyRun goes through the chain of a run, and compares it with the run's row, its
// kept results, its anchors in the system journal, the runs that it started and the
// one that started it: each must name the other. What does not hold is a
// [*ChainError]. The anchors themselves are vouched for by [VerifySystem], what the
// other runs hold by a call for each of them.
func VerifyRun(ctx context.Context, s Snapshot, keys *Keys, run toolcrib.RunID) (found Verified, err error) {
	v := newVerifier(s, keys)
	f, err := v.told(ctx, run)
	if err != nil {
		return found, err
	}
	row, err := v.s.Run(ctx, run)
	switch {
	case err != nil:
		return found, err
	case row == nil && f.removed != nil:
		return found, toolcrib.Errorf(toolcrib.CodeNotFound, "run %s was removed by %s", run, f.removed.By)
	case row == nil && len(f.anchors) > 0:
		return found, goneError(run)
	case row == nil:
		return found, fmt.Errorf("run %s: %w", run, toolcrib.ErrNotFound)
	}
	if err := v.readSaid(ctx, row.Num, row.Num); err != nil {
		return found, err
	}
	c := v.begin(row)
	err = v.s.Events(ctx, row.Num, row.Num, func(_ int64, e *RawEvent) error {
		c.take(e)
		return c.err
	})
	if c.err == nil {
		c.err = err
	}
	if found, err = c.finish(ctx); err != nil {
		return found, err
	}
	return found, v.family(ctx, run)
}

// family compares one run, which was verified, with those around it.
func (v *verifier) family(ctx context.Context, run toolcrib.RunID) error {
	around := []toolcrib.RunID{v.kin[run].parent}
	for _, c := range v.kin[run].claims {
		around = append(around, c.Run)
	}
	for _, other := range around {
		if other == "" || v.kin[other] != nil {
			continue
		}
		row, err := v.s.Run(ctx, other)
		if err != nil {
			return err
		}
		if row == nil {
			if _, err := v.told(ctx, other); err != nil {
				return err
			}
			continue
		}
		m := v.kin.of(other)
		err = v.s.Events(ctx, row.Num, row.Num, func(_ int64, e *RawEvent) error {
			if e.Kind == journal.KindRunStarted || e.Kind == journal.KindChildStarted {
				m.learnRaw(other, e)
			}
			return nil
		})
		if err != nil {
			return err
		}
		m.of(row)
	}
	if broken := v.kin.checkOne(run, v.absent, true); broken != nil {
		return broken
	}
	return nil
}

// learnRaw is learn for an event as it is stored.
func (m *kinsman) learnRaw(run toolcrib.RunID, e *RawEvent) {
	var body toolcrib.Body
	if e.Payload != nil {
		decoded, err := e.Decode(run)
		if err != nil {
			return // its own chain reports what is wrong with it
		}
		body = decoded.Body
	}
	m.learn(e.Seq, e.Kind, body)
}

// of takes what the row of the run says, which is there when its content is not.
func (m *kinsman) of(row *Row) {
	m.known, m.parent, m.agent, m.status = true, row.Record.Parent, row.Record.Agent, row.Record.Status
}

func (v *verifier) absent(run toolcrib.RunID) (removed, anchored bool) {
	f := v.facts[run]
	return f != nil && f.removed != nil, f != nil && len(f.anchors) > 0
}

// facts is what the system journal says about a run.
type facts struct {
	anchors map[toolcrib.Seq]Anchor
	last    toolcrib.Seq // of the anchors
	pruned  *Pruned
	removed *Pruned
}

// told returns what the system journal says about a run, looking it up.
func (v *verifier) told(ctx context.Context, run toolcrib.RunID) (*facts, error) {
	f := new(facts)
	v.facts[run] = f
	return f, v.s.System(ctx, run, v.learnOfRun)
}

// learnOfRun takes what an event of the system journal says about a run.
func (v *verifier) learnOfRun(e *SystemEvent) error {
	var a Anchor
	p := new(Pruned)
	payload := any(p)
	if e.Kind == SystemAnchor {
		payload = &a
	}
	if err := json.Unmarshal(e.Payload, payload); err != nil {
		return fmt.Errorf("%s: %w", e.Kind, err)
	}
	run := cmp.Or(a.Run, p.Run)
	f := v.facts[run]
	if f == nil {
		f = &facts{}
		v.facts[run] = f
	}
	for _, u := range p.Used {
		v.used.Add(u)
	}
	switch e.Kind {
	case SystemAnchor:
		if f.anchors == nil {
			f.anchors = make(map[toolcrib.Seq]Anchor)
		}
		f.anchors[a.Seq], f.last = a, max(f.last, a.Seq)
	case SystemRunRemoved:
		f.removed = p
	default:
		f.pruned = p
	}
	return nil
}

// runCheck goes through the events of a run.
type runCheck struct {
	v    *verifier
	row  *Row
	run  toolcrib.RunID
	f    *facts
	n    Verified
	prev []byte
	rec  RunRecord    // what the events make of the run
	mark toolcrib.Seq // of the last event that leaves an anchor
	said map[SaidKey]bool
	kin  *kinsman

	err error

	meter   Meter
	charges []UseEntry
	token   string
	calls   map[tokenCall]struct{} // of the token, that verdicts prove
}

// tokenCall is one call; it is counted once, however often it is judged.
type tokenCall struct {
	iteration int
	id        string
}

func (c *runCheck) broken(seq toolcrib.Seq, what string) error {
	return &ChainError{Run: c.run, Seq: seq, What: what}
}

// begin begins to verify a run by itself.
func (v *verifier) begin(row *Row) *runCheck {
	run := row.Record.ID
	c := &runCheck{v: v, row: row, run: run, f: v.facts[run], rec: RunRecord{ID: run}, kin: v.kin.of(run)}
	c.n.Sealed = row.Kept
	if c.f == nil {
		c.f = new(facts)
	}
	if c.f.removed != nil {
		c.err = &ChainError{Run: run, What: "it was removed, but is still there"}
	}
	return c
}

// take takes the next event, unless something was found already.
func (c *runCheck) take(e *RawEvent) {
	if c.err == nil {
		c.err = c.event(e)
	}
}

// finish compares the run with what is kept beside its events.
func (c *runCheck) finish(ctx context.Context) (Verified, error) {
	err := c.err
	for _, step := range []func(context.Context) error{c.end, c.sealed, c.keptFits} {
		if err == nil {
			err = step(ctx)
		}
	}
	if c.kin.of(c.row); err != nil {
		c.kin.start, c.kin.silent = nil, true // what it says proves nothing of others
		var broken *ChainError
		if errors.As(err, &broken) && broken.Run == "" {
			err = c.broken(toolcrib.Seq(c.n.Events)+1, broken.What)
		}
	}
	return c.n, err
}

func (c *runCheck) sealed(context.Context) error {
	if len(c.calls) > 0 {
		c.v.proved[c.token] += int64(len(c.calls))
	}
	return c.row.Check(c.v.keys)
}

// event checks the next event of the run.
func (c *runCheck) event(e *RawEvent) error {
	c.n.Events++
	if what := e.Check(c.run, c.prev, toolcrib.Seq(c.n.Events)); what != "" {
		return c.broken(e.Seq, what)
	}
	c.prev = e.Hash
	switch e.Kind {
	case journal.KindPaused, journal.KindDone, journal.KindError:
		c.mark = e.Seq
	}
	c.rec.LastSeq = e.Seq
	switch {
	case e.Payload == nil && c.v.exported:
		if alwaysExported(e.Kind) && (c.f.pruned == nil || e.Seq > c.f.pruned.Seq) {
			return c.broken(e.Seq, "its content is missing, but was not pruned")
		}
		c.kin.learn(e.Seq, e.Kind, nil)
	case e.Payload == nil:
		if c.n.Pruned++; c.f.pruned == nil {
			return c.broken(e.Seq, "its content is gone, and no pruning is recorded")
		}
		c.kin.learn(e.Seq, e.Kind, nil)
	case c.f.pruned != nil:
		return c.broken(e.Seq, "it has content, and was pruned")
	default:
		decoded, err := e.Decode(c.run)
		switch { // on an error the bytes are those that were written: a later version may have
		case err != nil && !c.v.exported:
			return err
		case err == nil && c.v.exported:
			c.kin.learn(e.Seq, e.Kind, decoded.Body)
		case err == nil:
			c.project(decoded)
		}
	}
	a, ok := c.f.anchors[e.Seq]
	if !ok {
		return nil
	}
	c.n.Anchors++
	switch {
	case a.Hash != hex.EncodeToString(e.Hash):
		return c.broken(e.Seq, "the anchor in the system journal has another hash")
	case e.Payload != nil && !c.v.exported && a.Status != c.rec.Status:
		return c.broken(e.Seq, fmt.Sprintf("the anchor in the system journal has status %s, the events give %s", a.Status,
			c.rec.Status))
	}
	return nil
}

// project makes the record of the run from its events, and what else follows from them.
func (c *runCheck) project(e toolcrib.Event) {
	switch b := e.Body.(type) {
	case *journal.RunStarted:
		c.token = b.Principal.Token
	case *journal.Verdicts:
		for i := range b.Verdicts {
			if c.token == "" || !b.Verdicts[i].Counted {
				continue
			}
			if c.calls == nil {
				c.calls = make(map[tokenCall]struct{})
			}
			c.calls[tokenCall{b.Iteration, b.Verdicts[i].CallID}] = struct{}{}
		}
	}
	c.charges = c.meter.Take(c.charges[:0], &c.rec, e)
	for _, charge := range c.charges {
		c.v.used.Add(charge)
	}
	c.kin.learn(e.Seq, e.Body.EventKind(), e.Body)
	if !c.rec.Keeps() {
		return
	}
	for _, text := range Says(e.Body) {
		if c.said == nil {
			c.said = make(map[SaidKey]bool)
		}
		c.said[text.Of(c.rec.User)] = true
	}
}

// readSaid reads by what is known again what runs have said.
func (v *verifier) readSaid(ctx context.Context, first, last int64) error {
	v.said = make(map[int64]map[SaidKey]bool)
	return v.s.Said(ctx, first, last, func(num int64, key SaidKey) {
		if v.said[num] == nil {
			v.said[num] = make(map[SaidKey]bool)
		}
		v.said[num][key] = true
	})
}

// anchored compares where the events end with the anchors.
func (c *runCheck) anchored() error {
	switch {
	case c.n.Anchors < len(c.f.anchors):
		return c.broken(c.rec.LastSeq, "the system journal has an anchor of a later event")
	case c.f.last < c.mark:
		return c.broken(c.mark, "the system journal has no anchor of it")
	}
	return nil
}

// end compares where the events end with the run's row and its anchors.
func (c *runCheck) end(context.Context) error {
	if err := c.anchored(); err != nil {
		return err
	}
	last, a := c.rec.LastSeq, c.f.anchors[c.f.last]
	switch {
	case !bytes.Equal(c.prev, c.row.Hash):
		return c.broken(last, "the run's row has another hash")
	case a.Num != 0 && a.Num != c.row.Num:
		return c.broken(last, "the run has another number in the database")
	case c.f.pruned != nil && c.f.pruned.Hash != hex.EncodeToString(c.prev):
		return c.broken(last, "it ends not where it ended when it was pruned")
	case c.f.pruned != nil && c.f.pruned.Record != c.row.Digest():
		return c.broken(last, "the run's row is not as pruning has left it")
	case c.f.pruned != nil:
		return nil
	case !c.row.Record.PrunedAt.IsZero():
		return c.broken(last, "the run's row says that it was pruned, and no pruning is recorded")
	}
	what, err := c.row.differs(c.rec)
	if err == nil && what == "" && !maps.Equal(c.said, c.v.said[c.row.Num]) {
		return c.broken(last, "the hashes of what the run has said are not those of its events")
	}
	if err == nil && what != "" {
		err = c.broken(last, fmt.Sprintf("the run's row is not what the events make of it (%s)", what))
	}
	return err
}

// keptRun is what is kept for a run.
type keptRun struct {
	digest KeptDigest
	broken string // the reference of something that is not whole; "" = nothing
}

func (k *keptRun) add(kept Kept) {
	if k.digest.Add(kept); !kept.Whole && k.broken == "" {
		k.broken = kept.Ref
	}
}

func (k *keptRun) check(run toolcrib.RunID) error {
	if k.broken == "" {
		return nil
	}
	return &ChainError{Run: run, What: fmt.Sprintf("the kept result %s is not the one whose hash is kept", k.broken)}
}

// keptFits compares what is kept for the run with its hashes, and, for one that stands at
// its last anchor, with what that says.
func (c *runCheck) keptFits(ctx context.Context) error {
	kept := c.v.kept[c.run]
	if kept == nil {
		kept = new(keptRun)
	}
	if c.v.kept == nil {
		err := c.v.s.Kept(ctx, c.run, func(_ toolcrib.RunID, k Kept) error {
			kept.add(k)
			return nil
		})
		if err != nil {
			return err
		}
	}
	delete(c.v.kept, c.run)
	if err := kept.check(c.run); err != nil {
		return err
	}
	a := c.f.anchors[c.f.last]
	want, at := a.Contents, c.f.last == c.rec.LastSeq && c.f.last > 0 && a.Num != 0
	if c.f.pruned != nil {
		want, at = "", true
	}
	if at && kept.digest.String() != want {
		return c.broken(c.rec.LastSeq, "the kept results do not match their hash in the system journal")
	}
	return nil
}

func systemError(seq toolcrib.Seq, what string) *ChainError {
	return &ChainError{Run: SystemChain, Seq: seq, What: what}
}

func goneError(run toolcrib.RunID) *ChainError {
	return &ChainError{Run: run, What: "it has an anchor in the system journal but is gone, and no removal is recorded"}
}

// VerifySystem goes through the chain of the system journal, compares its end with its
// sealed head, what is kept beside the journals with what it says of that, and where all
// runs stand with the record. With a head that was kept elsewhere it finds too that the
// store was put back to a copy older than that; nil = none. What does not hold is
// a [*ChainError].
func VerifySystem(ctx context.Context, s Snapshot, keys *Keys, against *Head) (Verified, error) {
	v := newVerifier(s, keys)
	if err := v.system(ctx, against); err != nil {
		return v.head, err
	}
	return v.head, CheckPlaces(ctx, v.s, v.keys, &v.record)
}

// CheckPlaces compares where all runs stand with the record.
func CheckPlaces(ctx context.Context, s Snapshot, keys *Keys, r *Record) error {
	sum, err := s.Places(ctx, keys)
	if err == nil && sum != r.Runs {
		err = &ChainError{What: "a run was removed or put back to an earlier state"}
	}
	return err
}

func (v *verifier) system(ctx context.Context, against *Head) error {
	if against != nil {
		hash, err1 := hex.DecodeString(against.Hash)
		mac, err2 := hex.DecodeString(against.MAC)
		if err1 != nil || err2 != nil || !hmac.Equal(mac, v.keys.HeadMAC(against.Seq, against.Moves, hash)) {
			return systemError(against.Seq, "the kept head was not sealed with the key of this data folder")
		}
	}
	v.against = against
	if err := v.s.System(ctx, "", v.systemEvent); err != nil {
		return err
	}
	seq := toolcrib.Seq(v.head.Events)
	if against != nil && against.Seq > seq {
		return systemError(seq, fmt.Sprintf("it ends before event %d, which the kept head has: the store was put back to an older copy, or its end was cut off", against.Seq))
	}
	sealed, err := v.s.Sealed(ctx)
	if err == nil {
		v.record, err = sealed.Open(v.keys)
	}
	if err != nil {
		return err
	}
	if against != nil && against.Moves > v.record.Moves {
		return systemError(seq, "the kept head knows of later events of runs: the store was put back to an older copy")
	}
	if err := v.docs.unlike(seq, func(do func(Doc) error) error { return v.s.Docs(ctx, do) }); err != nil {
		return err
	}
	return CheckTables(ctx, v.s, v.keys, &v.record)
}

// systemEvent checks the next event of the system journal.
func (v *verifier) systemEvent(e *SystemEvent) error {
	v.head.Events++
	if what := e.Check(SystemChain, v.prev, toolcrib.Seq(v.head.Events)); what != "" {
		return systemError(e.Seq, what)
	}
	v.prev = e.Hash
	if v.against != nil && v.against.Seq == e.Seq && v.against.Hash != hex.EncodeToString(e.Hash) {
		return systemError(e.Seq, "the kept head has another hash: the journal was rewritten")
	}
	if err := v.learn(e); err != nil {
		return systemError(e.Seq, "its content cannot be read: "+err.Error())
	}
	return nil
}

// CheckTables compares the sealed tables with their seals.
func CheckTables(ctx context.Context, s Snapshot, keys *Keys, r *Record) (err error) {
	for table := 0; err == nil && table < SealedTables; table++ {
		err = CheckTable(ctx, s, keys, r, table)
	}
	return err
}

// CheckTable compares one of them.
func CheckTable(ctx context.Context, s Snapshot, keys *Keys, r *Record, table int) error {
	sum, err := s.Table(ctx, keys, table)
	if err == nil && sum != r.Tables[table] {
		err = &ChainError{What: fmt.Sprintf("the table %s was changed after it was sealed", SealedDocs[table].Name)}
	}
	return err
}

// learn takes what an event of the system journal tells.
func (v *verifier) learn(e *SystemEvent) error {
	switch e.Kind {
	case SystemAnchor:
		v.head.Anchors++
	case SystemHeadAdopted:
		v.head.Adopted = e.Seq
	}
	if TellsOfRun(e.Kind) {
		return v.learnOfRun(e)
	}
	return v.docs.learn(e)
}

// add takes a broken chain; any other error is given back.
func (all *VerifiedAll) add(err error) error {
	var broken *ChainError
	switch {
	case err == nil, !errors.As(err, &broken):
		return err
	case len(all.Problems) >= MaxProblems:
		all.More = true
	default:
		all.Problems = append(all.Problems, broken)
	}
	return nil
}

// VerifyAll verifies the system journal and every run, and finds what is there that
// belongs to neither: runs that have an anchor and are gone, events without a run. What
// does not hold is in the Problems of what it returns; an error says that it could not
// look.
func VerifyAll(ctx context.Context, s Snapshot, keys *Keys) (all VerifiedAll, err error) {
	v := newVerifier(s, keys)
	err = v.system(ctx, nil)
	all.System = v.head
	for _, step := range []func(context.Context, *VerifiedAll) error{v.runs, v.totals, v.tokens, v.strays} {
		if err := all.add(err); err != nil {
			return all, err
		}
		err = step(ctx, &all)
	}
	return all, all.add(err)
}

// runs verifies each run, and finds the anchors without one.
func (v *verifier) runs(ctx context.Context, all *VerifiedAll) error {
	v.kept = make(map[toolcrib.RunID]*keptRun)
	err := v.s.Kept(ctx, "", func(run toolcrib.RunID, k Kept) error {
		if v.kept[run] == nil {
			v.kept[run] = new(keptRun)
		}
		v.kept[run].add(k)
		return nil
	})
	if err != nil {
		return err
	}
	broken := make(map[toolcrib.RunID]bool)
	err = v.each(ctx, func(c *runCheck) error {
		found, err := c.finish(ctx)
		broken[c.run] = err != nil
		all.Runs++
		all.Events += found.Events
		all.Pruned += found.Pruned
		return all.add(err)
	}, all)
	if err != nil {
		return err
	}
	for _, err := range v.kin.check(v.absent, true) {
		if !broken[err.Run] {
			_ = all.add(err) // it is a broken chain
		}
	}
	for _, run := range slices.Sorted(maps.Keys(v.facts)) {
		switch {
		case v.kin[run] != nil:
		case v.facts[run].removed != nil:
			all.Removed++
		default:
			_ = all.add(goneError(run)) // likewise
		}
	}
	return nil
}

// each calls done with each run, by number, after its events.
func (v *verifier) each(ctx context.Context, done func(*runCheck) error, all *VerifiedAll) (err error) {
	var rows []*Row // that are still to be verified
	var c *runCheck
	next := func() (err error) {
		if c != nil {
			err = done(c)
		}
		if c = nil; len(rows) > 0 {
			c, rows = v.begin(rows[0]), rows[1:]
		}
		return err
	}
	strays := false
	for after, more := int64(math.MinInt32), true; err == nil && more; {
		if rows, err = v.s.Runs(ctx, after); err != nil {
			return err
		}
		last := int64(math.MaxInt32) // also of what comes behind the last run
		if more = len(rows) > 0; more {
			last = rows[len(rows)-1].Num
		}
		if err = v.readSaid(ctx, after+1, last); err != nil {
			return err
		}
		err = v.s.Events(ctx, after+1, last, func(num int64, e *RawEvent) (err error) {
			for err == nil && (c == nil || c.row.Num < num) && len(rows) > 0 && rows[0].Num <= num {
				err = next()
			}
			if c == nil || c.row.Num != num {
				strays = true
			} else if err == nil {
				c.take(e)
			}
			return err
		})
		for err == nil && (c != nil || len(rows) > 0) {
			err = next()
		}
		after = last
	}
	if strays {
		_ = all.add(&ChainError{What: "there are events of no run"}) // it is a broken chain
	}
	return err
}

// totals compares where all runs stand, and what they have used, with what is kept of
// that. After a problem it would only say the same again.
func (v *verifier) totals(ctx context.Context, all *VerifiedAll) error {
	if len(all.Problems) > 0 {
		return nil
	}
	if err := CheckPlaces(ctx, v.s, v.keys, &v.record); err != nil {
		return err
	}
	n := 0
	err := v.s.Used(ctx, func(e UseEntry) error {
		n++
		if want, ok := v.used[e.UseKey]; !ok || want != e.UseSum {
			return &ChainError{Run: e.Run, What: fmt.Sprintf("%s is kept as %s; the events give %s", e.UseKey, e.UseSum, want)}
		}
		return nil
	})
	if err == nil && n < len(v.used) {
		err = &ChainError{What: "usage recorded in events is missing"}
	}
	return err
}

// tokens compares how many calls of access tokens are counted with how many the verdicts
// prove. A call is counted before its verdict is written down, in the same store: fewer
// cannot be. More can: a process may have died in between, and a run that was pruned proves
// nothing any more.
func (v *verifier) tokens(ctx context.Context, all *VerifiedAll) error {
	if len(all.Problems) > 0 || len(v.proved) == 0 {
		return nil
	}
	counted := make(map[string]int64)
	err := v.s.TokenCalls(ctx, func(token string, calls int64) error {
		counted[token] = calls
		return nil
	})
	if err != nil {
		return err
	}
	for _, token := range slices.Sorted(maps.Keys(v.proved)) {
		if counted[token] < v.proved[token] {
			err := &ChainError{What: fmt.Sprintf("the access token %s has %d calls counted, and the verdicts prove %d", token,
				counted[token], v.proved[token])}
			_ = all.add(err) // it is a broken chain
		}
	}
	return nil
}

// strays finds what belongs to no run.
func (v *verifier) strays(ctx context.Context, all *VerifiedAll) error {
	for _, run := range slices.Sorted(maps.Keys(v.kept)) { // of runs that are not there
		err := v.kept[run].check(run)
		if removed, _ := v.absent(run); removed {
			err = &ChainError{What: "there are kept results of a run that was removed"}
		}
		if err := all.add(err); err != nil {
			return err
		}
	}
	strays, err := v.s.Strays(ctx)
	for _, what := range strays {
		_ = all.add(&ChainError{What: what}) // it is a broken chain
	}
	return err
}
