package sqlstore_test

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/store"
	"github.com/toolcrib/toolcrib/store/sqlite"
	"github.com/toolcrib/toolcrib/store/sqlstore"
	"github.com/toolcrib/toolcrib/toolcribtest/journaltest"
)

func openTest(t *testing.T) *sqlstore.Store {
	t.Helper()
	s, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "toolcrib.db"), sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() }) // the error of a second Close is that of the first
	return s.Store
}

// Jobs of one group share a transaction, barriers another one; each has its own outcome, and one that
// cannot be stored does not take the others with it.
func TestGroup(t *testing.T) {
	s := openTest(t)
	broken := errors.New("cannot be stored")
	refused := errors.New("refused")
	insert := func(code string) func(*sqlstore.Tx) error {
		return func(t *sqlstore.Tx) error {
			return t.Exec("INSERT INTO counters (name, value) VALUES (?, 1)", code)
		}
	}
	group := []*sqlstore.Job{
		sqlstore.NewJob(false, insert("a")),
		sqlstore.NewJob(false, func(*sqlstore.Tx) error { return sqlstore.Reject(refused) }),
		sqlstore.NewJob(true, insert("b")),
		sqlstore.NewJob(false, func(*sqlstore.Tx) error { return nil }),
	}
	before := s.Stats()
	wantOutcomes(t, s, group, []error{nil, refused, nil, nil})
	after := s.Stats()
	if after.Commits != before.Commits+2 || after.Synced != before.Synced+1 {
		t.Errorf("stats %+v after %+v: want a commit of two jobs, and a synced one of the barrier", after, before)
	}
	group = []*sqlstore.Job{
		sqlstore.NewJob(false, insert("c")),
		sqlstore.NewJob(false, func(t *sqlstore.Tx) error { return errors.Join(insert("d")(t), broken) }),
		sqlstore.NewJob(true, insert("e")),
		sqlstore.NewJob(false, insert("a")), // exists
		sqlstore.NewJob(false, func(*sqlstore.Tx) error { return sqlstore.Reject(refused) }),
	}
	wantOutcomes(t, s, group, []error{nil, broken, nil, errAny, refused})
	var names string
	if err := s.One(t.Context(), "SELECT group_concat(name, '') FROM (SELECT name FROM counters WHERE length(name) = 1 ORDER BY name)", nil, &names); err != nil {
		t.Fatal(err)
	}
	if names != "abce" {
		t.Errorf("stored %q, want abce", names)
	}
}

// If the database cannot be reached, the jobs of a group are not tried one by one: they may be stored.
func TestGroup_Unreachable(t *testing.T) {
	s, tried := openTest(t), 0
	count := func(*sqlstore.Tx) error {
		tried++
		return nil
	}
	group := []*sqlstore.Job{
		sqlstore.NewJob(false, count),
		sqlstore.NewJob(false, func(*sqlstore.Tx) error { return &store.Error{Kind: store.ErrUnreachable} }),
		sqlstore.NewJob(false, count),
	}
	wantOutcomes(t, s, group, []error{store.ErrUnreachable, store.ErrUnreachable, store.ErrUnreachable})
	if tried != 1 {
		t.Errorf("the other jobs were tried %d times, want 1", tried)
	}
}

var errAny = errors.New("any error")

// wantOutcomes submits a group whose jobs are gathered together, and compares what their callers learn.
func wantOutcomes(t *testing.T, s *sqlstore.Store, group []*sqlstore.Job, want []error) {
	t.Helper()
	for i, err := range s.Together(t.Context(), group) {
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
	rows, err := s.Encode(1, notice())
	if err != nil {
		t.Fatal(err)
	}
	broken := errors.New("after the append")
	err = s.Write(t.Context(), sqlstore.NewJob(false, func(t *sqlstore.Tx) error { return errors.Join(t.Append("run_a", 1, rows), broken) }))
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
	rows, err := s.Encode(0, journaltest.Events(&journal.Notice{}))
	if err != nil {
		t.Fatal(err)
	}
	done, err := s.Encode(0, journaltest.Events(&journal.Done{Status: toolcrib.StatusCompleted}))
	if err != nil {
		t.Fatal(err)
	}
	err = s.Write(t.Context(), sqlstore.NewJob(false, func(t *sqlstore.Tx) error {
		for i := range sqlstore.HeadsKept + 50 {
			if err := t.Append(toolcrib.RunID("run_"+string(rune('A'+i))), 0, rows); err != nil {
				return err
			}
		}
		return t.Append("run_done", 0, done)
	}))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil { // nobody has the turn: its memory may be looked at
		t.Fatal(err)
	}
	if n := s.Heads(); n != sqlstore.HeadsKept {
		t.Errorf("%d runs are remembered, want %d", n, sqlstore.HeadsKept)
	}
	if s.HasHead("run_done") {
		t.Error("an ended run is remembered")
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
		where, args, err := sqlstore.Condition(f)
		if err != nil {
			t.Fatal(err)
		}
		plan := planOf(t, s, "SELECT * FROM runs WHERE 1"+where+" ORDER BY num DESC LIMIT 50", args)
		if !strings.Contains(plan, "USING INDEX "+index+" ") {
			t.Errorf("%+v: plan:\n%s", f, plan)
		}
	}
	for index, q := range map[string]store.UsageQuery{
		"runs_created": {By: store.UsageByRun, Until: time.Now()},
		"usage_runs":   {By: store.UsageBySession},
		"runs_user":    {By: store.UsageByRun, User: "ann"},
		"runs_token":   {By: store.UsageByRun, Token: "tok_1"},
	} {
		query, args := sqlstore.UsageQuery(q)
		if plan := planOf(t, s, query, args); !strings.Contains(plan, "USING INDEX "+index) {
			t.Errorf("%+v: plan:\n%s", q, plan)
		}
	}
}

// planOf is how SQLite means to run a query.
func planOf(t *testing.T, s *sqlstore.Store, query string, args []any) (plan string) {
	t.Helper()
	err := s.Each(t.Context(), "EXPLAIN QUERY PLAN "+query, args, func(scan sqlstore.Scan) error {
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
