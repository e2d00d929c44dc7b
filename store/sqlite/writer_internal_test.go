package sqlite

import (
	"path/filepath"
	"sync"
	"testing"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/store/sqlstore"
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
		err := s.writer.Begin(t.Context(), barrier)
		if err == nil {
			err = sqlstore.One(t.Context(), s.writer, "PRAGMA synchronous", nil, &level)
		}
		if err == nil {
			err = s.writer.Commit(t.Context())
		}
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

// The schema has its number and its mark, and begins empty.
func TestSchema(t *testing.T) {
	s := openTest(t)
	for query, want := range map[string]int{
		"PRAGMA user_version":                           sqlstore.Baseline,
		"PRAGMA application_id":                         applicationID,
		"SELECT count(*) FROM docs":                     0, // A1: a new store has none
		"SELECT count(*) FROM pragma_foreign_key_check": 0,
	} {
		var got int
		if err := s.db.Read(t.Context(), func(c sqlstore.Conn) error { return sqlstore.One(t.Context(), c, query, nil, &got) }); err != nil || got != want {
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
