package sqlite_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/api"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/store"
	"github.com/toolcrib/toolcrib/store/sqlite"
	"github.com/toolcrib/toolcrib/toolcribtest/journaltest"
)

const canary = "CANARY-7f3a"

// ended stores a run that says text wherever it can, and keeps a result.
func ended(t testing.TB, s *sqlite.Store, run toolcrib.RunID, text string) {
	t.Helper()
	begun(t, s, run, text)
	add(t, s, run, 5, &journal.Error{
		Code: "provider_failed", Message: text, Ref: "err_1", Status: toolcrib.StatusFailed, StopReason: toolcrib.StopProviderFailed, Content: text,
	})
}

// begun is the part of it before its end.
func begun(t testing.TB, s *sqlite.Store, run toolcrib.RunID, text string) {
	t.Helper()
	start := started("ann", "default", "", "")
	start.Input = []toolcrib.Message{toolcrib.TextMessage(toolcrib.RoleUser, text)}
	if err := s.Put(t.Context(), run, "res_1", []byte(strings.Repeat(text+" ", 20_000))); err != nil {
		t.Fatal(err)
	}
	add(t, s, run, 0, start, &journal.TakenUp{},
		&journal.ToolResult{Name: "read_file", Status: toolcrib.ResultOK, Content: strings.Repeat(text+" ", 3000), Ref: "res_1"},
		&journal.ToolResult{Name: "read_file", Status: toolcrib.ResultError, Content: text},
		&journal.Paused{Status: toolcrib.StatusWaitingForApproval, Pending: journal.Pending{Kind: "approval", Question: text}})
}

func prune(t testing.TB, s *sqlite.Store, o store.PruneOptions) api.PruneResult {
	t.Helper()
	o.By = "ann"
	result, err := s.Prune(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return result
}

func verifyAll(t testing.TB, s *sqlite.Store) store.VerifiedAll {
	t.Helper()
	all, err := s.VerifyAll(t.Context())
	if err != nil {
		t.Error(err)
	}
	if err := s.Check(t.Context()); err != nil {
		t.Error(err)
	}
	return all
}

func TestPruneContent(t *testing.T) {
	s := open(t)
	ended(t, s, "run_a", canary)
	ended(t, s, "run_b", "other")
	before, err := s.Run(t.Context(), "run_a")
	if err != nil {
		t.Fatal(err)
	}
	o := store.PruneOptions{Runs: []toolcrib.RunID{"run_a"}, ContentOnly: true}
	result := prune(t, s, o)
	if diff := cmp.Diff([]toolcrib.RunID{"run_a"}, result.Runs); diff != "" || result.Events != 6 || result.Contents != 1 || result.Bytes < 200_000 || !result.Wiped {
		t.Errorf("%+v", result)
	}
	rec, err := s.Run(t.Context(), "run_a")
	if err != nil || rec.PrunedAt.IsZero() {
		t.Fatalf("%+v, error %v", rec, err)
	}
	before.Content, before.Error.Message, before.PrunedAt = "", "", rec.PrunedAt
	if diff := cmp.Diff(before, rec); diff != "" {
		t.Errorf("the row (-want +got)\n%s", diff)
	}
	for e, err := range s.Read(t.Context(), "run_a", 0) {
		if !errors.Is(err, store.ErrPruned) || !strings.Contains(err.Error(), "run_a") {
			t.Errorf("event %+v, error %v; want ErrPruned", e, err)
		}
	}
	if _, _, err := s.Range(t.Context(), "run_a", "res_1", 0, 1); !errors.Is(err, toolcrib.ErrNotFound) {
		t.Errorf("the kept result: error %v", err)
	}
	if v, err := s.Verify(t.Context(), "run_a"); err != nil || v != (store.Verified{Events: 6, Pruned: 6, Anchors: 2, Sealed: 6}) {
		t.Errorf("%+v, error %v", v, err)
	}
	if again := prune(t, s, o); len(again.Runs) != 0 {
		t.Errorf("pruned again: %+v", again)
	}
	all := verifyAll(t, s)
	if all.Runs != 2 || all.Pruned != 6 || all.Events != 12 {
		t.Errorf("%+v", all)
	}
	if _, err := s.Verify(t.Context(), "run_b"); err != nil {
		t.Error(err)
	}
}

func TestPruneRemoves(t *testing.T) {
	s := open(t)
	ended(t, s, "run_a", canary)
	ended(t, s, "run_b", "other")
	prune(t, s, store.PruneOptions{Runs: []toolcrib.RunID{"run_a"}, ContentOnly: true})
	if result := prune(t, s, store.PruneOptions{Runs: []toolcrib.RunID{"run_a"}}); len(result.Runs) != 1 {
		t.Errorf("%+v", result)
	}
	if _, err := s.Run(t.Context(), "run_a"); !errors.Is(err, toolcrib.ErrNotFound) {
		t.Errorf("it is still there: error %v", err)
	}
	if _, err := s.Verify(t.Context(), "run_a"); !errors.Is(err, toolcrib.ErrNotFound) || !strings.Contains(err.Error(), "removed by ann") {
		t.Errorf("verify: error %v", err)
	}
	if all := verifyAll(t, s); all.Runs != 1 || all.Removed != 1 {
		t.Errorf("%+v", all)
	}
	var kinds []string
	for _, e := range systemEvents(t, s, 0) {
		kinds = append(kinds, string(e.Kind))
	}
	if diff := cmp.Diff([]string{"anchor", "anchor", "anchor", "anchor", "content_pruned", "run_removed"}, kinds); diff != "" {
		t.Errorf("system journal (-want +got)\n%s", diff)
	}
	want := []store.UsageRow{{Key: "read_file", Calls: 4, Errors: 2}}
	counts, err := s.Usage(t.Context(), store.UsageQuery{By: store.UsageByTool})
	if diff := cmp.Diff(want, counts, cmpopts.IgnoreFields(store.UsageRow{}, "Refused", "DurationMS")); diff != "" || err != nil {
		t.Errorf("error %v, counts (-want +got)\n%s", err, diff)
	}
}

// Only what has ended is pruned; if one of the runs that are named cannot be, none is.
func TestPruneRefuses(t *testing.T) {
	s := open(t)
	ended(t, s, "run_a", "x")
	add(t, s, "run_b", 0, started("ann", "default", "", ""))
	for name, want := range map[string]error{"run_b": toolcrib.ErrConflict, "run_c": toolcrib.ErrNotFound} {
		for _, contentOnly := range []bool{true, false} {
			_, err := s.Prune(t.Context(), store.PruneOptions{Runs: []toolcrib.RunID{"run_a", toolcrib.RunID(name)}, ContentOnly: contentOnly, By: "ann"})
			if !errors.Is(err, want) {
				t.Errorf("%s: error %v, want %v", name, err, want)
			}
		}
	}
	if _, err := s.Prune(t.Context(), store.PruneOptions{By: "ann"}); err == nil {
		t.Error("no choice was taken for all")
	}
	if all := verifyAll(t, s); all.Runs != 2 || all.Pruned != 0 {
		t.Errorf("%+v", all)
	}
	if err := s.Put(t.Context(), "run_a", "late", []byte("x")); !errors.Is(err, toolcrib.ErrConflict) {
		t.Errorf("an ended run has taken a result: error %v", err)
	}
}

func TestPruneOlderThan(t *testing.T) {
	now := journaltest.At()
	s := openAt(t, filepath.Join(t.TempDir(), "toolcrib.db"), sqlite.Options{Now: func() time.Time { return now }})
	ended(t, s, "run_a", "x")
	add(t, s, "run_b", 0, started("ann", "default", "", ""))
	o := store.PruneOptions{OlderThan: 24 * time.Hour, ContentOnly: true}
	if result := prune(t, s, o); len(result.Runs) != 0 {
		t.Errorf("too early: %+v", result)
	}
	now = now.Add(25 * time.Hour)
	if result := prune(t, s, o); len(result.Runs) != 1 || result.Runs[0] != "run_a" {
		t.Errorf("%+v", result)
	}
	if result := prune(t, s, o); len(result.Runs) != 0 {
		t.Errorf("pruned again: %+v", result)
	}
	o.ContentOnly = false
	if result := prune(t, s, o); len(result.Runs) != 1 || result.Runs[0] != "run_a" {
		t.Errorf("%+v", result)
	}
	verifyAll(t, s)
}

// Nothing of the content is left in the files, also where runs grew side by side
// and where rows were written over and over.
func TestPruneLeavesNothing(t *testing.T) {
	for _, contentOnly := range []bool{true, false} {
		t.Run(fmt.Sprint("content only: ", contentOnly), func(t *testing.T) {
			s := open(t)
			var runs []toolcrib.RunID
			for i := range 12 {
				run, text := toolcrib.RunID(fmt.Sprint("run_", i)), "other"
				if i%2 == 0 {
					runs, text = append(runs, run), canary
				}
				begun(t, s, run, text)
			}
			for at := range 40 {
				for i := range 12 {
					text := "other"
					if i%2 == 0 {
						text = canary
					}
					add(t, s, toolcrib.RunID(fmt.Sprint("run_", i)), toolcrib.Seq(5+at),
						&journal.Paused{Status: toolcrib.StatusWaitingForInput, Pending: journal.Pending{Question: strings.Repeat(text+" ", 1+(7*at+i)%90)}})
				}
			}
			for i := range 12 {
				add(t, s, toolcrib.RunID(fmt.Sprint("run_", i)), 45, completed)
			}
			if n := found(t, s, canary); n == 0 {
				t.Fatal("there was nothing to be found")
			}
			result := prune(t, s, store.PruneOptions{Runs: runs, ContentOnly: contentOnly})
			if len(result.Runs) != 6 || !result.Wiped {
				t.Errorf("%+v", result)
			}
			if n := found(t, s, canary); n > 0 {
				t.Errorf("%d times in the files", n)
			}
			if found(t, s, "other") == 0 {
				t.Error("too much was removed")
			}
			verifyAll(t, s)
		})
	}
}

// found counts text in the files of a database.
func found(t testing.TB, s *sqlite.Store, text string) (n int) {
	t.Helper()
	for _, end := range []string{"", "-wal"} {
		b, err := os.ReadFile(s.Path() + end)
		if err != nil {
			t.Fatal(err)
		}
		n += bytes.Count(b, []byte(text))
	}
	return n
}

// A reader of an older state keeps the old pages; the result says so, and the next
// time they go.
func TestPruneWhileRead(t *testing.T) {
	s := openAt(t, filepath.Join(t.TempDir(), "toolcrib.db"), sqlite.Options{BusyTimeout: 20 * time.Millisecond})
	ended(t, s, "run_a", canary)
	ended(t, s, "run_b", canary)
	reader, err := outside(t, s.Path()).Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = reader.Close() }() // its transaction has ended by then
	for _, query := range []string{"BEGIN", "SELECT count(*) FROM events"} {
		if _, err := reader.ExecContext(t.Context(), query); err != nil {
			t.Fatal(err)
		}
	}
	if result := prune(t, s, store.PruneOptions{Runs: []toolcrib.RunID{"run_a"}}); len(result.Runs) != 1 || result.Wiped {
		t.Errorf("%+v; want it not wiped", result)
	}
	if _, err := reader.ExecContext(t.Context(), "ROLLBACK"); err != nil {
		t.Fatal(err)
	}
	if done, err := s.Compact(t.Context()); !done || err != nil || found(t, s, canary) == 0 {
		t.Errorf("compacted %v, error %v, and run_b must be there", done, err)
	}
	if result := prune(t, s, store.PruneOptions{Runs: []toolcrib.RunID{"run_b"}}); !result.Wiped || found(t, s, canary) > 0 {
		t.Errorf("%+v, found %d times", result, found(t, s, canary))
	}
}

// While the file is rewritten, an append waits for longer than for any other writer.
func TestAppendWaitsForCompacting(t *testing.T) {
	path := filepath.Join(t.TempDir(), "toolcrib.db")
	s := openAt(t, path, sqlite.Options{BusyTimeout: 20 * time.Millisecond})
	add(t, s, "run_a", 0, started("ann", "default", "", ""))
	tx, err := outside(t, path).BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.ExecContext(t.Context(), "UPDATE counters SET value = value"); err != nil {
		t.Fatal(err)
	}
	if err := s.Append(t.Context(), "run_a", 1, note("other")...); !errors.Is(err, store.ErrLocked) {
		t.Fatalf("another writer: error %v, want ErrLocked", err)
	}
	if err := os.WriteFile(path+"-compact", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	appended := make(chan error)
	go func() { appended <- s.Append(t.Context(), "run_a", 1, completedEvents()...) }()
	select {
	case err := <-appended:
		t.Errorf("it did not wait (error %v)", err)
	case <-time.After(200 * time.Millisecond): // many times BusyTimeout
	}
	if err := errors.Join(tx.Rollback(), os.Remove(path+"-compact")); err != nil {
		t.Fatal(err)
	}
	if err := <-appended; err != nil {
		t.Error(err)
	}
	verifyAll(t, s)
}

func completedEvents() []toolcrib.Event { return journaltest.Events(completed) }

// Retention gives the room of what it has removed back.
func TestRetentionGivesBack(t *testing.T) {
	at := journaltest.At()
	s := openAt(t, filepath.Join(t.TempDir(), "toolcrib.db"), sqlite.Options{Now: func() time.Time { return at }})
	for i := range 4 {
		run := toolcrib.RunID(fmt.Sprint("run_", i))
		if err := s.Put(t.Context(), run, "res_1", make([]byte, 2<<20)); err != nil {
			t.Fatal(err)
		}
		add(t, s, run, 0, started("ann", "default", "", ""), completed)
	}
	if _, err := s.ApplyRetention(t.Context(), store.Retention{Runs: time.Hour}, at.AddDate(1, 0, 0)); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(s.Path())
	if err != nil || info.Size() > 1<<20 {
		t.Errorf("%d bytes are left, error %v", info.Size(), err)
	}
	verifyAll(t, s)
}
