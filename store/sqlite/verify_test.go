package sqlite_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/store"
	"github.com/toolcrib/toolcrib/store/sqlite"
	"github.com/toolcrib/toolcrib/toolcribtest/journaltest"
)

func TestVerifyAllCounts(t *testing.T) {
	s := open(t)
	if all, err := s.VerifyAll(t.Context()); err != nil || !cmp.Equal(all, store.VerifiedAll{}) {
		t.Errorf("empty: %+v, error %v", all, err)
	}
	ended(t, s, "run_a", "x")
	add(t, s, "run_b", 0, started("ann", "default", "", ""))
	login(t, s, "ann")
	want := store.VerifiedAll{Runs: 2, Events: 7, System: store.Verified{Events: 3, Anchors: 2}}
	all, err := s.VerifyAll(t.Context())
	if diff := cmp.Diff(want, all); diff != "" || err != nil {
		t.Errorf("error %v (-want +got)\n%s", err, diff)
	}
}

// All problems are reported, up to a bound; a missing run is one of them.
func TestVerifyAllTellsAll(t *testing.T) {
	s := open(t)
	for i := range store.MaxProblems + 5 {
		add(t, s, toolcrib.RunID(fmt.Sprintf("run_%03d", i)), 0, started("ann", "default", "", ""), completed)
	}
	execAt(t, s.Path(), "DELETE FROM events WHERE key >> 32 IN (SELECT num FROM runs WHERE id = 'run_007'); DELETE FROM runs WHERE id = 'run_007'")
	execAt(t, s.Path(), "UPDATE runs SET status = 'failed' WHERE id = 'run_009'")
	all, err := s.VerifyAll(t.Context())
	if len(all.Problems) != 2 || all.More || all.Problems[0].Run != "run_009" || all.Problems[1].Run != "run_007" {
		t.Errorf("%+v", all)
	}
	wantBroken(t, err, "run run_007: it has an anchor in the system journal but is gone")
	_, err = s.Verify(t.Context(), "run_007")
	wantBroken(t, err, "gone")
	execAt(t, s.Path(), "UPDATE runs SET status = 'failed'")
	if all, err = s.VerifyAll(t.Context()); len(all.Problems) != store.MaxProblems || !all.More || err == nil {
		t.Errorf("%d problems, more %v, error %v", len(all.Problems), all.More, err)
	}
}

// Verifying sees one moment: runs that go on meanwhile are no broken chains.
func TestVerifyAllWhileWriting(t *testing.T) {
	s := open(t)
	other := openAt(t, s.Path(), sqlite.Options{})
	var wg sync.WaitGroup
	for w, writer := range []*sqlite.Store{s, other} {
		wg.Go(func() {
			for i := range 30 {
				run := toolcrib.RunID(fmt.Sprint("run_", w, "_", i))
				var at toolcrib.Seq
				for _, body := range []toolcrib.Body{
					started("ann", "default", "", ""), &journal.ToolResult{Name: "read_file", Status: toolcrib.ResultOK},
					&journal.Paused{Status: toolcrib.StatusWaitingForInput}, completed,
				} {
					if err := writer.Append(t.Context(), run, at, journaltest.Events(body)...); err != nil {
						t.Error(err)
						return
					}
					at++
				}
			}
		})
	}
	for range 20 {
		if _, err := s.VerifyAll(t.Context()); err != nil {
			t.Error(err)
		}
	}
	wg.Wait()
	if all := verifyAll(t, s); all.Runs != 60 || all.Events != 240 || all.System.Anchors != 120 {
		t.Errorf("%+v", all)
	}
}

func TestToolCounts(t *testing.T) {
	s := open(t)
	result := func(name string, status toolcrib.ResultStatus) *journal.ToolResult {
		return &journal.ToolResult{Name: name, Status: status}
	}
	add(t, s, "run_a", 0, started("ann", "default", "", ""), result("read_file", toolcrib.ResultOK), result("read_file", toolcrib.ResultRefused))
	other := openAt(t, s.Path(), sqlite.Options{})
	add(t, other, "run_b", 0, started("ann", "default", "", ""), result("read_file", toolcrib.ResultTimeout), result(strings.Repeat("x", 65), toolcrib.ResultOK))
	if err := s.Append(t.Context(), "run_a", 0, journaltest.Events(result("read_file", toolcrib.ResultOK))...); err == nil {
		t.Error("the fence is open")
	}
	want := []store.UsageRow{{Key: "read_file", Calls: 3, Errors: 2, Refused: 1}}
	for _, reader := range []*sqlite.Store{s, other} {
		if got, err := reader.Usage(t.Context(), store.UsageQuery{By: store.UsageByTool}); err != nil || !cmp.Equal(got, want) {
			t.Errorf("%+v, error %v; want %+v", got, err, want)
		}
	}
	verifyAll(t, s)
}

// Text that is not UTF-8 is stored in the row as in the journal.
func TestVerifyBadUTF8(t *testing.T) {
	s := open(t)
	start := started("a\xffb\xfe\xfe", "default", "", "")
	add(t, s, "run_a", 0, start, &journal.Done{Status: toolcrib.StatusCompleted, Content: "\xf0\x9f\x00 ü \xc3"})
	verifyAll(t, s)
}
