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

// verifier verifies a store or an export of one.
type verifier struct {
	s    Snapshot
	keys *Keys // if nil, seals are not checked

	facts  map[toolcrib.RunID]*facts // records of the system journal about runs
	tree   runTree
	kept   map[toolcrib.RunID]*keptRun // kept results of all runs; if nil, those of each run are read
	said   map[int64]map[SaidKey]bool  // stored text keys by run number, for the runs being read
	used   Used                        // usage that follows from the events
	proved map[string]int64            // number of calls that verdicts prove, by access token

	exported bool  // whether an export is verified, which may lack content
	against  *Head // head kept elsewhere, or nil

	record Record // sealed record, valid after the system journal was verified
	docs   docs
	head   Verified
	prev   []byte // hash of the last event read from the system journal
}

func newVerifier(s Snapshot, keys *Keys) *verifier {
	return &verifier{
		s: s, keys: keys, facts: make(map[toolcrib.RunID]*facts), tree: make(runTree), used: make(Used),
		proved: make(map[string]int64), docs: docs{all: make(map[[3]string]Doc)},
	}
}

// VerifyRun verifies the chain of a run, and compares its events with its row, its kept results,
// its anchors in the system journal, and the events of its parent and its children. The error
// for a violation is a [*ChainError]. The anchors themselves are verified by [VerifySystem],
// the other runs by further calls.
func VerifyRun(ctx context.Context, s Snapshot, keys *Keys, run toolcrib.RunID) (found Verified, err error) {
	v := newVerifier(s, keys)
	f, err := v.readFacts(ctx, run)
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
	return found, v.checkTree(ctx, run)
}

// checkTree compares a verified run with its parent and its children.
func (v *verifier) checkTree(ctx context.Context, run toolcrib.RunID) error {
	others := []toolcrib.RunID{v.tree[run].parent}
	for _, c := range v.tree[run].claims {
		others = append(others, c.Run)
	}
	for _, other := range others {
		if other == "" || v.tree[other] != nil {
			continue
		}
		row, err := v.s.Run(ctx, other)
		if err != nil {
			return err
		}
		if row == nil {
			if _, err := v.readFacts(ctx, other); err != nil {
				return err
			}
			continue
		}
		m := v.tree.of(other)
		err = v.s.Events(ctx, row.Num, row.Num, func(_ int64, e *RawEvent) error {
			if e.Kind == journal.KindRunStarted || e.Kind == journal.KindChildStarted {
				m.learnRaw(other, e)
			}
			return nil
		})
		if err != nil {
			return err
		}
		m.learnRow(row)
	}
	if broken := v.tree.checkOne(run, v.absent, true); broken != nil {
		return broken
	}
	return nil
}

// learnRaw is learn for an event as it is stored.
func (m *treeNode) learnRaw(run toolcrib.RunID, e *RawEvent) {
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

// learnRow updates the node from the row of the run, which exists even if the content was pruned.
func (m *treeNode) learnRow(row *Row) {
	m.known, m.parent, m.agent, m.status = true, row.Record.Parent, row.Record.Agent, row.Record.Status
}

func (v *verifier) absent(run toolcrib.RunID) (removed, anchored bool) {
	f := v.facts[run]
	return f != nil && f.removed != nil, f != nil && len(f.anchors) > 0
}

// facts are the records of the system journal about a run.
type facts struct {
	anchors map[toolcrib.Seq]Anchor
	last    toolcrib.Seq // number of the last anchored event
	pruned  *Pruned
	removed *Pruned
}

// readFacts reads the records of the system journal about a run.
func (v *verifier) readFacts(ctx context.Context, run toolcrib.RunID) (*facts, error) {
	f := new(facts)
	v.facts[run] = f
	return f, v.s.System(ctx, run, v.learnOfRun)
}

// learnOfRun updates the facts about a run from an event of the system journal.
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

// runCheck verifies the events of a run.
type runCheck struct {
	v    *verifier
	row  *Row
	run  toolcrib.RunID
	f    *facts
	n    Verified
	prev []byte
	rec  RunRecord    // record that follows from the events
	mark toolcrib.Seq // number of the last event that must have an anchor
	said map[SaidKey]bool
	node *treeNode

	err error

	meter   Meter
	charges []UseEntry
	token   string
	calls   map[tokenCall]struct{} // calls of the token that verdicts prove
}

// tokenCall identifies a call, which is counted once however often it is judged.
type tokenCall struct {
	iteration int
	id        string
}

func (c *runCheck) broken(seq toolcrib.Seq, what string) error {
	return &ChainError{Run: c.run, Seq: seq, What: what}
}

// begin begins to verify a run.
func (v *verifier) begin(row *Row) *runCheck {
	run := row.Record.ID
	c := &runCheck{v: v, row: row, run: run, f: v.facts[run], rec: RunRecord{ID: run}, node: v.tree.of(run)}
	c.n.Sealed = row.Kept
	if c.f == nil {
		c.f = new(facts)
	}
	if c.f.removed != nil {
		c.err = &ChainError{Run: run, What: "it was removed, but is still there"}
	}
	return c
}

// take checks the next event, unless an error was found already.
func (c *runCheck) take(e *RawEvent) {
	if c.err == nil {
		c.err = c.event(e)
	}
}

// finish compares the run with its row and its kept results.
func (c *runCheck) finish(ctx context.Context) (Verified, error) {
	err := c.err
	for _, step := range []func(context.Context) error{c.end, c.sealed, c.keptFits} {
		if err == nil {
			err = step(ctx)
		}
	}
	if c.node.learnRow(c.row); err != nil {
		c.node.start, c.node.silent = nil, true // a broken run proves nothing about others
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
		c.node.learn(e.Seq, e.Kind, nil)
	case e.Payload == nil:
		if c.n.Pruned++; c.f.pruned == nil {
			return c.broken(e.Seq, "its content is gone, and no pruning is recorded")
		}
		c.node.learn(e.Seq, e.Kind, nil)
	case c.f.pruned != nil:
		return c.broken(e.Seq, "it has content, and was pruned")
	default:
		decoded, err := e.Decode(c.run)
		switch { // in an export an event of a later version cannot be decoded; its hash was checked
		case err != nil && !c.v.exported:
			return err
		case err == nil && c.v.exported:
			c.node.learn(e.Seq, e.Kind, decoded.Body)
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

// project updates the record of the run, its usage, and the other values that follow from its events.
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
	c.node.learn(e.Seq, e.Body.EventKind(), e.Body)
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

// readSaid reads the stored text keys of the runs with these numbers.
func (v *verifier) readSaid(ctx context.Context, first, last int64) error {
	v.said = make(map[int64]map[SaidKey]bool)
	return v.s.Said(ctx, first, last, func(num int64, key SaidKey) {
		if v.said[num] == nil {
			v.said[num] = make(map[SaidKey]bool)
		}
		v.said[num][key] = true
	})
}

// anchored compares the last event with the anchors.
func (c *runCheck) anchored() error {
	switch {
	case c.n.Anchors < len(c.f.anchors):
		return c.broken(c.rec.LastSeq, "the system journal has an anchor of a later event")
	case c.f.last < c.mark:
		return c.broken(c.mark, "the system journal has no anchor of it")
	}
	return nil
}

// end compares the last event with the row of the run and its anchors.
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

// keptRun describes the kept results of a run.
type keptRun struct {
	digest KeptDigest
	broken string // reference of the first result that is not whole, or ""
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

// keptFits compares the kept results with their hashes and, if the last event has an anchor or
// the run was pruned, with the hash recorded there.
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

// VerifySystem verifies the chain of the system journal, compares its last event with the sealed
// head, the stored documents with its events, and the places of all runs with the sealed record.
// If against, a head that was kept elsewhere, is not nil, it also detects that the store was
// replaced by a copy older than that. The error for a violation is a [*ChainError].
func VerifySystem(ctx context.Context, s Snapshot, keys *Keys, against *Head) (Verified, error) {
	v := newVerifier(s, keys)
	if err := v.system(ctx, against); err != nil {
		return v.head, err
	}
	return v.head, CheckPlaces(ctx, v.s, v.keys, &v.record)
}

// CheckPlaces compares the places of all runs and stored files with the record.
func CheckPlaces(ctx context.Context, s Snapshot, keys *Keys, r *Record) error {
	sum, err := s.Places(ctx, keys)
	if err == nil && sum != r.Runs {
		err = &ChainError{What: "a run or a stored file was removed or put back to an earlier state"}
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

// CheckTable compares one sealed table with its seal.
func CheckTable(ctx context.Context, s Snapshot, keys *Keys, r *Record, table int) error {
	sum, err := s.Table(ctx, keys, table)
	if err == nil && sum != r.Tables[table] {
		err = &ChainError{What: fmt.Sprintf("the table %s was changed after it was sealed", SealedDocs[table].Name)}
	}
	return err
}

// learn records an event of the system journal.
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

// add adds a [*ChainError] to the problems, and returns any other error.
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

// VerifyAll verifies the system journal and every run, and detects runs that have an anchor but
// are missing, and rows that belong to no run. Violations are in Problems of the result; the
// error says that the store could not be read.
func VerifyAll(ctx context.Context, s Snapshot, keys *Keys) (all VerifiedAll, err error) {
	v := newVerifier(s, keys)
	err = v.system(ctx, nil)
	all.System = v.head
	for _, step := range []func(context.Context, *VerifiedAll) error{v.runs, v.files, v.totals, v.tokens, v.unexpected} {
		if err := all.add(err); err != nil {
			return all, err
		}
		err = step(ctx, &all)
	}
	return all, all.add(err)
}

// runs verifies each run, and finds anchors of missing runs.
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
	for _, err := range v.tree.check(v.absent, true) {
		if !broken[err.Run] {
			_ = all.add(err) // it is a broken chain
		}
	}
	for _, run := range slices.Sorted(maps.Keys(v.facts)) {
		switch {
		case v.tree[run] != nil:
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
	var rows []*Row // rows still to be verified
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
	unexpected := false
	for after, more := int64(math.MinInt32), true; err == nil && more; {
		if rows, err = v.s.Runs(ctx, after); err != nil {
			return err
		}
		last := int64(math.MaxInt32) // include events after the last run
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
				unexpected = true
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
	if unexpected {
		_ = all.add(&ChainError{What: "there are events of no run"}) // it is a broken chain
	}
	return err
}

// files verifies each stored file.
func (v *verifier) files(ctx context.Context, all *VerifiedAll) error {
	return v.s.Files(ctx, func(f *StoredFile) error { return all.add(f.Check(v.keys)) })
}

// totals compares the places and the usage of all runs with the stored sums. After a problem
// these differ anyway, so they are not compared.
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

// tokens compares the counted calls of each access token with those that verdicts prove. A call
// is counted before its verdict is recorded, so fewer are a violation. More are possible: a
// process may have died in between, and a pruned run no longer proves calls.
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

// unexpected finds rows that belong to no run.
func (v *verifier) unexpected(ctx context.Context, all *VerifiedAll) error {
	for _, run := range slices.Sorted(maps.Keys(v.kept)) { // results of missing runs
		err := v.kept[run].check(run)
		if removed, _ := v.absent(run); removed {
			err = &ChainError{What: "there are kept results of a run that was removed"}
		}
		if err := all.add(err); err != nil {
			return err
		}
	}
	if err := all.add(v.s.Schema(ctx, v.keys)); err != nil {
		return err
	}
	unexpected, err := v.s.Unexpected(ctx)
	for _, what := range unexpected {
		_ = all.add(&ChainError{What: what}) // it is a broken chain
	}
	return err
}
