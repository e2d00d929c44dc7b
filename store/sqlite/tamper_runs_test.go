package sqlite_test

import (
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/access"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/store"
	"github.com/toolcrib/toolcrib/store/sqlite"
	"github.com/toolcrib/toolcrib/toolcribtest/journaltest"
	"github.com/toolcrib/toolcrib/toolcribtest/storetest"
)

// editedRuns returns ten runs with events of every kind, none of which has ended, in a closed
// database. They end between barriers.
func editedRuns(t *testing.T) (path string, events map[string]int) {
	t.Helper()
	s, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "toolcrib.db"), sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	bodies := slices.DeleteFunc(journaltest.Bodies(), func(b toolcrib.Body) bool {
		switch b.EventKind() {
		case journal.KindDone, journal.KindError, journal.KindRunStarted, journal.KindChildStarted, journal.KindChildEnded:
			return true
		}
		return false
	})
	events = make(map[string]int)
	for i := range 10 {
		run := fmt.Sprintf("run_%d", i)
		add(t, s, toolcrib.RunID(run), 0, started("ann", "default", "", ""), &journal.TakenUp{Worker: "w", Epoch: 1})
		events[run] = 2
		for from := i; from < len(bodies)-i; from += 3 {
			some := bodies[from:min(from+3, len(bodies)-i)]
			add(t, s, toolcrib.RunID(run), toolcrib.Seq(events[run]), some...)
			events[run] += len(some)
		}
	}
	verifyAll(t, s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return s.Path(), events
}

// edit is one change of the events of a run.
type edit struct {
	how, run string
	at       int // the event
}

// edits are all edits of the runs, or a seeded sample.
func edits(events map[string]int) (all []edit) {
	for i := range 10 {
		run := fmt.Sprintf("run_%d", i)
		for at := 1; at <= events[run]; at++ {
			for _, how := range []string{"insert a decision", "insert a start", "insert verdicts", "remove", "cut", "change", "swap"} {
				if how != "swap" || at < events[run] {
					all = append(all, edit{how, run, at})
				}
			}
		}
	}
	if *tamper == "all" {
		return all
	}
	const sample = 100
	random := rand.New(rand.NewPCG(3, 4)) // any seed will do, as long as it stays
	random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all[:sample]
}

// outsideEvent is an event as somebody with the database in hand sees it.
type outsideEvent struct {
	kind    toolcrib.Kind
	time    int64
	payload string
}

func (e edit) apply(events []outsideEvent) []outsideEvent {
	i := e.at - 1
	forged := func(body toolcrib.Body) outsideEvent {
		payload, err := journal.Encode(body)
		if err != nil {
			panic(err)
		}
		return outsideEvent{body.EventKind(), events[i].time, string(payload)}
	}
	switch e.how {
	case "insert a decision":
		return slices.Insert(events, e.at, forged(&journal.ConfirmationResolved{ApprovalID: "apr_1", Decision: journal.DecisionApprove, By: "ann"}))
	case "insert a start":
		return slices.Insert(events, e.at, forged(&journal.ToolStarted{ID: "c9", Name: "write_file", Write: true}))
	case "insert verdicts":
		return slices.Insert(events, e.at, forged(&journal.Verdicts{Iteration: 1}))
	case "remove":
		return slices.Delete(events, i, e.at)
	case "cut":
		return events[:i]
	case "change":
		events[i].payload = `{"by":"eve",` + events[i].payload[1:]
	case "swap":
		events[i], events[i+1] = events[i+1], events[i]
	}
	return events
}

// on edits the run in the database, with right hashes, and its row as far as it goes
// without the key.
func (e edit) on(t *testing.T, db *sql.DB) {
	t.Helper()
	var num int64
	if err := db.QueryRowContext(t.Context(), "SELECT num FROM runs WHERE id = ?", e.run).Scan(&num); err != nil {
		t.Fatal(err)
	}
	rows, err := db.QueryContext(t.Context(), "SELECT kind, time, payload FROM events WHERE key >> 32 = ? ORDER BY key", num)
	if err != nil {
		t.Fatal(err)
	}
	var events []outsideEvent
	for rows.Next() {
		var o outsideEvent
		if err := rows.Scan(&o.kind, &o.time, &o.payload); err != nil {
			t.Fatal(err)
		}
		events = append(events, o)
	}
	if err := errors.Join(rows.Err(), rows.Close()); err != nil {
		t.Fatal(err)
	}
	exec := func(query string, args ...any) {
		if _, err := db.ExecContext(t.Context(), query, args...); err != nil {
			t.Fatal(err)
		}
	}
	exec("DELETE FROM events WHERE key >> 32 = ?", num)
	prev, seq := []byte{}, 0
	for _, o := range e.apply(events) {
		seq++
		hash := journal.PayloadHash([]byte(o.payload))
		prev = journal.ChainHash(prev, toolcrib.RunID(e.run), toolcrib.Seq(seq), o.kind, time.UnixMicro(o.time), hash)
		exec("INSERT INTO events (key, kind, time, payload, payload_hash, hash) VALUES (?,?,?,?,?,?)", num<<32|int64(seq), string(o.kind), o.time, o.payload, hash, prev)
	}
	exec("UPDATE runs SET last_seq = ?, last_hash = ?, kept_seq = min(kept_seq, ?) WHERE num = ?", seq, prev, seq, num)
}

// Whatever somebody without the key does to the events of a run is found, and no run is
// read to its end, or continued, of which an event was inserted, removed, changed or
// put elsewhere.
func TestTamperedRuns(t *testing.T) {
	original, events := editedRuns(t)
	counts := map[string]int{}
	for _, e := range edits(events) {
		path := copied(t, original)
		e.on(t, outside(t, path))
		s := openAt(t, path, sqlite.Options{})
		what := fmt.Sprintf("%s at event %d of %s", e.how, e.at, e.run)
		var read error
		for _, read = range s.Read(t.Context(), toolcrib.RunID(e.run), 0) {
			if read != nil {
				break
			}
		}
		wantBroken(t, read, "")
		rec := toolcrib.Seq(0)
		if err := outside(t, path).QueryRowContext(t.Context(), "SELECT last_seq FROM runs WHERE id = ?", e.run).Scan(&rec); err != nil {
			t.Fatal(err)
		}
		wantNothingDone(t, s.Append(t.Context(), toolcrib.RunID(e.run), rec, note("on")...))
		_, err := s.VerifyAll(t.Context())
		wantBroken(t, err, e.run)
		wantNothingDone(t, s.Append(t.Context(), "run_new", 0, note("new")...))
		if t.Failed() {
			t.Fatal(what)
		}
		counts[e.how+": found, and not continued"]++
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	report(t, counts)
}

// wantNothingDone wants an append to have been refused because of damage.
func wantNothingDone(t *testing.T, err error) {
	t.Helper()
	var broken *store.ChainError
	if !errors.As(err, &broken) && !errors.Is(err, store.ErrDamaged) {
		t.Errorf("append: error %v, want a broken chain or ErrDamaged", err)
	}
}

// A run that is put back, row and events, to what it was at any barrier before is found
// before anything is appended; so is one that is gone. What was no barrier may be lost.
func TestRunPutBack(t *testing.T) {
	path := filepath.Join(t.TempDir(), "toolcrib.db")
	s := openAt(t, path, sqlite.Options{})
	add(t, s, "run_other", 0, started("ann", "default", "", ""))
	steps := [][]toolcrib.Body{
		{started("ann", "default", "", ""), &journal.TakenUp{Worker: "w", Epoch: 1}},
		{&journal.ToolStarted{ID: "c1", Name: "write_file", Write: true}},
		{&journal.Paused{Status: toolcrib.StatusWaitingForApproval, Pending: journal.Pending{Kind: "approval", ApprovalID: "apr_1"}}},
		{&journal.ConfirmationResolved{ApprovalID: "apr_1", Decision: journal.DecisionDeny, By: "ann"}},
		{&journal.TakenUp{Worker: "w", Epoch: 2}},
	}
	var copies []string
	var ends []toolcrib.Seq
	end := toolcrib.Seq(0)
	for _, step := range steps {
		add(t, s, "run_a", end, step...)
		end += toolcrib.Seq(len(step))
		name := filepath.Join(t.TempDir(), "copy.db")
		execAt(t, path, "VACUUM INTO '"+name+"'")
		copies, ends = append(copies, name), append(ends, end)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	execAt(t, path, "PRAGMA wal_checkpoint(TRUNCATE)")
	gone := "DELETE FROM events WHERE key BETWEEN " + storetest.KeyOf("run_a", "0") + " AND " + storetest.KeyOf("run_a", "99") + "; DELETE FROM runs WHERE id = 'run_a'"
	for i := range copies {
		path := copied(t, path)
		execAt(t, path, gone+"; ATTACH '"+copies[i]+"' AS o; INSERT INTO runs SELECT * FROM o.runs WHERE id = 'run_a'; INSERT INTO events SELECT * FROM o.events WHERE key >> 32 = (SELECT num FROM runs WHERE id = 'run_a')")
		s := openAt(t, path, sqlite.Options{})
		err := s.Append(t.Context(), "run_a", ends[i], note("on")...)
		_, whole := s.VerifySystem(t.Context(), nil)
		if i >= len(copies)-2 { // the last step was no barrier
			if err != nil || whole != nil {
				t.Errorf("at event %d: errors %v, %v", ends[i], err, whole)
			}
			continue
		}
		wantBroken(t, err, "put back to an earlier state")
		wantBroken(t, whole, "put back to an earlier state")
		if err := s.Append(t.Context(), "run_other", 1, note("on")...); err == nil {
			t.Error("another run continues, and it could be the one that was put back")
		}
	}
	path = copied(t, path)
	execAt(t, path, gone)
	s = openAt(t, path, sqlite.Options{})
	wantBroken(t, s.Append(t.Context(), "run_other", 1, note("on")...), "was removed")
}

// Tables that grant rights must match their seals, or they are not used: neither when the database is
// opened, nor after a later change.
func TestSealedTables(t *testing.T) {
	original := finished(t)
	for name, c := range map[string]struct {
		change string
		use    func(s *sqlite.Store) error
	}{
		"an approval that nobody gave": {
			"UPDATE docs SET user = 'eve', gone = 0 WHERE kind = 'remembered'; UPDATE counters SET value = value + 1 WHERE name = 'remembered'",
			func(s *sqlite.Store) error { _, err := s.Remembered(t.Context(), "eve", ""); return err },
		},
		"a tool that nobody switched on": {
			"UPDATE docs SET doc = json_set(doc, '$.enabled', json('true')) WHERE kind = 'override'; UPDATE counters SET value = value + 1 WHERE name = 'overrides'",
			func(s *sqlite.Store) error { _, err := s.Overrides(t.Context(), 0); return err },
		},
		"a user that nobody made": {
			"UPDATE docs SET doc = replace(doc, 'ann', 'eve') WHERE kind = 'user'; UPDATE counters SET value = value + 1 WHERE name = 'access'",
			func(s *sqlite.Store) error { _, err := s.Access().Version(t.Context(), 0); return err },
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := copied(t, original)
			s := openAt(t, path, sqlite.Options{})
			if err := c.use(s); err != nil {
				t.Fatal(err)
			}
			execAt(t, path, c.change)
			wantBroken(t, c.use(s), "was changed after it was sealed")
			wantOpenError(t, path, sqlite.Options{}, store.ErrDamaged)
			if _, err := openAt(t, path, readOnly()).VerifyAll(t.Context()); err == nil {
				t.Error("nothing is found")
			}
		})
	}
}

// What somebody changes while a store is open, and without counting it, is not acted on, and
// no later change that is made properly seals it.
func TestSealedTablesWhileOpen(t *testing.T) {
	original := finished(t)
	const admin = "UPDATE docs SET doc = json_set(doc, '$.admin', json('true')) WHERE kind = 'user' AND id = 'ann'"
	const switched = "UPDATE docs SET doc = json_set(doc, '$.enabled', json('true')) WHERE kind = 'override'"
	const given = "UPDATE docs SET user = 'eve', gone = 0, doc = json_set(doc, '$.user', 'eve') WHERE kind = 'remembered'"
	const unrevoked = "UPDATE docs SET gone = 0, doc = json_remove(doc, '$.revoked_at', '$.revoked_by') WHERE kind = 'token'"
	barrier := func(s *sqlite.Store) error {
		return s.AppendSystem(t.Context(), store.SystemEvent{Kind: "login", Payload: []byte(`{"user":"bob"}`)})
	}
	for name, c := range map[string]struct {
		change string
		use    func(s *sqlite.Store) error
	}{
		"a user is read":     {admin, func(s *sqlite.Store) error { _, err := s.Access().User(t.Context(), "ann"); return err }},
		"one alike is read":  {admin, func(s *sqlite.Store) error { _, err := s.Access().Alike(t.Context(), "Ann"); return err }},
		"users are listed":   {admin, func(s *sqlite.Store) error { _, err := s.Access().Users(t.Context(), "", 9); return err }},
		"a token is read":    {unrevoked, func(s *sqlite.Store) error { _, err := s.Access().Token(t.Context(), "tok_1"); return err }},
		"switches are read":  {switched, func(s *sqlite.Store) error { _, err := s.Overrides(t.Context(), 0); return err }},
		"approvals are read": {given, func(s *sqlite.Store) error { _, err := s.Remembered(t.Context(), "eve", ""); return err }},
		"a group is put": {admin, func(s *sqlite.Store) error {
			_, err := s.Access().PutGroup(t.Context(), "new", access.GroupEdit{}, "x")
			return err
		}},
		"a tool is switched": {switched, func(s *sqlite.Store) error {
			if err := barrier(s); err != nil {
				return nil // found already
			}
			_, err := s.SetOverride(t.Context(), store.Override{Kind: store.OverrideTool, Name: "z", By: "ann"})
			return err
		}},
	} {
		t.Run(name, func(t *testing.T) {
			path := copied(t, original)
			s := openAt(t, path, sqlite.Options{})
			if err := barrier(s); err != nil {
				t.Fatal(err)
			}
			_, err1 := s.Access().Users(t.Context(), "", 9) // what was looked at is looked at again
			_, err2 := s.ListRemembered(t.Context(), store.RememberedFilter{})
			if err := errors.Join(err1, err2); err != nil {
				t.Fatal(err)
			}
			execAt(t, path, c.change)
			wantBroken(t, c.use(s), "was changed after it was sealed")
			wantOpenError(t, path, sqlite.Options{}, store.ErrDamaged)
		})
	}
}
