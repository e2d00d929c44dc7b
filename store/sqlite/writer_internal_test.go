package sqlite

import (
	"errors"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/store"
	"github.com/toolcrib/toolcrib/toolcribtest/journaltest"
)

func openTest(t *testing.T) *Store {
	t.Helper()
	s, err := Open(t.Context(), filepath.Join(t.TempDir(), "toolcrib.db"), Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() }) // the error of a second Close is that of the first
	return s
}

// The values of PRAGMA synchronous.
const (
	syncNormal = 1
	syncFull   = 2
)

// A transaction with a barrier in it has the full sync, whatever came before it
// on the connection, and only such a one.
func TestSynchronousOfTransaction(t *testing.T) {
	s := openTest(t)
	for _, barrier := range []bool{false, true, true, false, true, false, false} {
		var level int
		err := s.write(t.Context(), &job{barrier: barrier, do: func(t *tx) error {
			return t.row("PRAGMA synchronous", nil, &level)
		}})
		want := syncNormal
		if barrier {
			want = syncFull
		}
		if err != nil || level != want {
			t.Errorf("barrier %v: synchronous %d, error %v; want %d", barrier, level, err, want)
		}
	}
}

// Every kind that is a barrier has its transaction synced, no other one has.
func TestBarrierKinds(t *testing.T) {
	s := openTest(t)
	for i, body := range journaltest.Bodies() {
		before := s.Stats()
		if err := s.Append(t.Context(), "run_a", toolcrib.Seq(i), journaltest.Events(body)...); err != nil {
			t.Fatal(err)
		}
		after := s.Stats()
		if got, want := after.Synced-before.Synced == 1, journal.Barrier(body); got != want {
			t.Errorf("append of %s: synced %v, want %v", body.EventKind(), got, want)
		}
		if after.Commits != before.Commits+1 {
			t.Errorf("append of %s: %d commits", body.EventKind(), after.Commits-before.Commits)
		}
	}
	read := &journal.ToolStarted{Name: "read_file"}
	before := s.Stats()
	if err := s.Append(t.Context(), "run_b", 0, journaltest.Events(read, read, read)...); err != nil {
		t.Fatal(err)
	}
	if s.Stats().Synced != before.Synced {
		t.Error("the start of a read was synced")
	}
}

// Jobs of one group share a transaction, barriers another one; each has its own outcome, and one that
// cannot be stored does not take the others with it.
func TestGroup(t *testing.T) {
	s := openTest(t)
	broken := errors.New("cannot be stored")
	refused := errors.New("refused")
	insert := func(code string) func(*tx) error {
		return func(t *tx) error {
			_, err := t.exec("INSERT INTO counters (name, value) VALUES (?, 1)", code)
			return err
		}
	}
	group := []*job{
		{do: insert("a")},
		{do: func(*tx) error { return reject(refused) }},
		{barrier: true, do: insert("b")},
		{do: func(*tx) error { return nil }},
	}
	before := s.Stats()
	wantOutcomes(t, s, group, []error{nil, refused, nil, nil})
	after := s.Stats()
	if after.Commits != before.Commits+2 || after.Synced != before.Synced+1 {
		t.Errorf("stats %+v after %+v: want a commit of two jobs, and a synced one of the barrier", after, before)
	}
	group = []*job{
		{do: insert("c")},
		{do: func(t *tx) error { return errors.Join(insert("d")(t), broken) }},
		{barrier: true, do: insert("e")},
		{do: insert("a")}, // exists
		{do: func(*tx) error { return reject(refused) }},
	}
	wantOutcomes(t, s, group, []error{nil, broken, nil, errAny, refused})
	var names string
	if err := one(t.Context(), s, "SELECT group_concat(name, '') FROM (SELECT name FROM counters WHERE length(name) = 1 ORDER BY name)", nil, &names); err != nil {
		t.Fatal(err)
	}
	if names != "abce" {
		t.Errorf("stored %q, want abce", names)
	}
}

var errAny = errors.New("any error")

// wantOutcomes hands in a group while the writer is busy, so that its jobs are gathered
// together, and compares what they read.
func wantOutcomes(t *testing.T, s *Store, group []*job, want []error) {
	t.Helper()
	w := s.writer
	w.turn <- struct{}{}
	outcomes := make([]error, len(group))
	var all sync.WaitGroup
	for i, j := range group {
		all.Go(func() { outcomes[i] = w.do(t.Context(), j) })
		for waiting := 0; waiting <= i; runtime.Gosched() { // in their order
			w.mu.Lock()
			waiting = len(w.queues[false]) + len(w.queues[true])
			w.mu.Unlock()
		}
	}
	<-w.turn
	all.Wait()
	for i, err := range outcomes {
		switch {
		case want[i] == errAny && err != nil:
		case !errors.Is(err, want[i]):
			t.Errorf("job %d: error %v, want %v", i, err, want[i])
		}
	}
}

// What the writer remembers of a run is dropped when a transaction fails.
func TestRememberedAfterFailure(t *testing.T) {
	s := openTest(t)
	notice := func() []toolcrib.Event { return journaltest.Events(&journal.Notice{}) }
	if err := s.Append(t.Context(), "run_a", 0, notice()...); err != nil {
		t.Fatal(err)
	}
	rows, _, err := s.encode(1, notice())
	if err != nil {
		t.Fatal(err)
	}
	broken := errors.New("after the append")
	err = s.write(t.Context(), &job{do: func(t *tx) error { return errors.Join(t.append("run_a", 1, rows), broken) }})
	if !errors.Is(err, broken) {
		t.Fatalf("error %v", err)
	}
	if err := s.Append(t.Context(), "run_a", 1, notice()...); err != nil {
		t.Errorf("append after one that was rolled back: %v", err)
	}
	if err := s.Append(t.Context(), "run_a", 1, notice()...); !errors.Is(err, toolcrib.ErrConflict) {
		t.Errorf("append with an old number: error %v, want ErrConflict", err)
	}
}

// The number of runs that are remembered is bounded, and an ended one is not.
func TestRememberedIsBounded(t *testing.T) {
	s := openTest(t)
	rows, _, err := s.encode(0, journaltest.Events(&journal.Notice{}))
	if err != nil {
		t.Fatal(err)
	}
	done, _, err := s.encode(0, journaltest.Events(&journal.Done{Status: toolcrib.StatusCompleted}))
	if err != nil {
		t.Fatal(err)
	}
	err = s.write(t.Context(), &job{do: func(t *tx) error {
		for i := range headsKept + 50 {
			if err := t.append(toolcrib.RunID("run_"+string(rune('A'+i))), 0, rows); err != nil {
				return err
			}
		}
		return t.append("run_done", 0, done)
	}})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil { // nobody has the turn: its memory may be looked at
		t.Fatal(err)
	}
	if n := len(s.writer.heads); n != headsKept {
		t.Errorf("%d runs are remembered, want %d", n, headsKept)
	}
	if _, ok := s.writer.heads["run_done"]; ok {
		t.Error("an ended run is remembered")
	}
}

// The schema has its number and its mark, and begins empty.
func TestSchema(t *testing.T) {
	s := openTest(t)
	for query, want := range map[string]int{
		"PRAGMA user_version":                           schemaVersion,
		"PRAGMA application_id":                         applicationID,
		"SELECT count(*) FROM docs":                     0, // A1: a new store has none
		"SELECT count(*) FROM pragma_foreign_key_check": 0,
	} {
		var got int
		if err := one(t.Context(), s, query, nil, &got); err != nil || got != want {
			t.Errorf("%s: %d, error %v; want %d", query, got, err, want)
		}
	}
}

// Stores that all open a new path at once make one database.
func TestOpenAtOnce(t *testing.T) {
	for range 20 {
		path := filepath.Join(t.TempDir(), "data", "toolcrib.db")
		start := make(chan struct{})
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				<-start
				s, err := Open(t.Context(), path, Options{})
				if err != nil {
					t.Error(err)
					return
				}
				if err := s.Close(); err != nil {
					t.Error(err)
				}
			})
		}
		close(start)
		wg.Wait()
	}
}

// What is looked for among many runs is found by an index.
func TestRuns_Indexes(t *testing.T) {
	s := openTest(t)
	for index, f := range map[string]store.Filter{
		"runs_approval": {Approval: "apr_1", Deciding: true},
		"runs_once":     {Once: "0123"},
		"runs_open":     {Status: []toolcrib.Status{toolcrib.StatusRunning}, Freed: true},
		"runs_user":     {User: "ann"},
	} {
		where, err := condition(f)
		if err != nil {
			t.Fatal(err)
		}
		plan := planOf(t, s, "SELECT * FROM runs WHERE 1"+where.text+" ORDER BY num DESC LIMIT 50", where.args)
		if !strings.Contains(plan, "USING INDEX "+index+" ") {
			t.Errorf("%+v: plan:\n%s", f, plan)
		}
	}
	for index, q := range map[string]store.UsageQuery{
		"runs_created": {By: store.UsageByRun, Until: s.now()},
		"usage_runs":   {By: store.UsageBySession},
		"runs_user":    {By: store.UsageByRun, User: "ann"},
		"runs_token":   {By: store.UsageByRun, Token: "tok_1"},
	} {
		query, args := usageQuery(q)
		if plan := planOf(t, s, query, args); !strings.Contains(plan, "USING INDEX "+index) {
			t.Errorf("%+v: plan:\n%s", q, plan)
		}
	}
}

// planOf is how SQLite means to run a query.
func planOf(t *testing.T, s *Store, query string, args []any) (plan string) {
	t.Helper()
	err := s.each(t.Context(), "EXPLAIN QUERY PLAN "+query, args, func(scan scanFunc) error {
		var id, parent, unused int
		var step string
		err := scan(&id, &parent, &unused, &step)
		plan += step + "\n"
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return plan
}
