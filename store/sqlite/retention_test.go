package sqlite_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/store"
	"github.com/toolcrib/toolcrib/store/sqlite"
)

const dayLong = 24 * time.Hour

// aged makes a store at day 0, and a function that adds a run which begins and ends
// at a day.
func aged(t *testing.T) (s *sqlite.Store, day func(float64) time.Time, run func(id toolcrib.RunID, at float64, session toolcrib.SessionID, parent toolcrib.RunID, more ...toolcrib.Body)) {
	zero := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	day = func(n float64) time.Time { return zero.Add(time.Duration(n * float64(dayLong))) }
	s = openAt(t, filepath.Join(t.TempDir(), "toolcrib.db"), sqlite.Options{Now: func() time.Time { return zero }})
	run = func(id toolcrib.RunID, at float64, session toolcrib.SessionID, parent toolcrib.RunID, more ...toolcrib.Body) {
		t.Helper()
		if err := s.Put(t.Context(), id, "res_1", []byte("kept")); err != nil {
			t.Fatal(err)
		}
		p := &spender{t: t, run: id}
		p.start(s, day(at), "ann", "default", session, parent)
		p.ask(s, day(at), 0, 1, false)
		if more == nil {
			more = []toolcrib.Body{completed}
		}
		p.add(s, day(at), more...)
	}
	return s, day, run
}

func retain(t testing.TB, s *sqlite.Store, r store.Retention, now time.Time) store.RetentionResult {
	t.Helper()
	result, err := s.ApplyRetention(t.Context(), r, now)
	if err != nil {
		t.Fatal(err)
	}
	verifyAll(t, s)
	return result
}

func allRuns(t testing.TB, s *sqlite.Store) []toolcrib.RunID {
	t.Helper()
	page, err := s.Runs(t.Context(), store.Filter{Limit: store.MaxLimit})
	if err != nil {
		t.Fatal(err)
	}
	return ids(page.Runs)
}

// By age, from their end: content first, then runs. What has not ended stays, however
// old, and what was used is counted on.
func TestRetention(t *testing.T) {
	s, day, run := aged(t)
	run("run_old", 0, "", "")
	run("run_parked", 0, "", "", &journal.Paused{Status: toolcrib.StatusWaitingForApproval})
	run("run_open", 0, "", "", &journal.Notice{})
	run("run_middle", 20, "", "")
	run("run_young", 40, "", "")
	before := lines(t, s, store.UsageQuery{By: store.UsageByRun})
	r := store.Retention{Runs: 30 * dayLong, Content: 10 * dayLong}

	result := retain(t, s, r, day(41))
	want := store.RetentionResult{Removed: []toolcrib.RunID{"run_old"}, Emptied: []toolcrib.RunID{"run_middle"}, Contents: 2, Bytes: result.Bytes}
	if diff := cmp.Diff(want, result); diff != "" || result.Bytes == 0 {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if diff := cmp.Diff([]toolcrib.RunID{"run_young", "run_middle", "run_open", "run_parked"}, allRuns(t, s)); diff != "" {
		t.Error(diff)
	}
	for _, err := range s.Read(t.Context(), "run_middle", 0) {
		if !errors.Is(err, store.ErrPruned) {
			t.Errorf("run_middle: error %v, want ErrPruned", err)
		}
	}
	if v, err := s.Verify(t.Context(), "run_middle"); err != nil || v.Pruned != v.Events {
		t.Errorf("%+v, error %v; want that its content is pruned and its chain holds", v, err)
	}
	last := systemEvents(t, s, 0)
	if text := fmt.Sprintf("%s %s", last[len(last)-1].Kind, last[len(last)-1].Payload); !strings.HasPrefix(text, `content_pruned {"run_id":"run_middle","by":"retention"`) {
		t.Errorf("last system event: %s", text)
	}
	if again := retain(t, s, r, day(41)); len(again.Removed)+len(again.Emptied) > 0 || again.More {
		t.Errorf("again: %+v", again)
	}
	if diff := cmp.Diff(before, lines(t, s, store.UsageQuery{By: store.UsageByRun})); diff != "" {
		t.Errorf("usage (-before +after)\n%s", diff)
	}
	if result = retain(t, s, r, day(51)); len(result.Removed) != 1 || len(result.Emptied) != 1 {
		t.Errorf("ten days later: %+v", result)
	}
	if diff := cmp.Diff([]toolcrib.RunID{"run_young", "run_open", "run_parked"}, allRuns(t, s)); diff != "" {
		t.Error(diff)
	}
}

// A limit is a moment: what ended then is kept, what ended before is not. Without a
// limit nothing is pruned, and a negative one is refused.
func TestRetentionLimits(t *testing.T) {
	s, day, run := aged(t)
	run("run_a", 0, "", "")
	for _, r := range []store.Retention{{}, {Runs: 10 * dayLong}, {Content: 10 * dayLong}} {
		if result := retain(t, s, r, day(10)); len(result.Removed)+len(result.Emptied) > 0 {
			t.Errorf("%+v: %+v", r, result)
		}
	}
	if _, err := s.ApplyRetention(t.Context(), store.Retention{Runs: -1}, day(10)); err == nil {
		t.Error("a negative age was taken")
	}
	if result := retain(t, s, store.Retention{Runs: 10 * dayLong}, day(10).Add(time.Microsecond)); len(result.Removed) != 1 {
		t.Errorf("%+v", result)
	}
	ro := openAt(t, s.Path(), readOnly())
	if _, err := ro.ApplyRetention(t.Context(), store.Retention{Runs: 1}, day(10)); !errors.Is(err, store.ErrReadOnly) {
		t.Errorf("opened for reading: error %v, want ErrReadOnly", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.ApplyRetention(ctx, store.Retention{Runs: 1}, day(10)); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: error %v", err)
	}
}

// One call does a bounded piece of work, the oldest first, and says that there is
// more.
func TestRetentionIsBounded(t *testing.T) {
	s, day, run := aged(t)
	for i := range 5 {
		run(toolcrib.RunID(fmt.Sprint("run_", i)), float64(5-i), "", "")
	}
	r := store.Retention{Runs: dayLong, Content: time.Hour, Max: 2}
	var got [][]toolcrib.RunID
	for {
		result := retain(t, s, r, day(30))
		got = append(got, result.Removed)
		if len(result.Emptied) > 0 {
			t.Errorf("emptied %v, which is to be removed", result.Emptied)
		}
		if !result.More {
			break
		}
	}
	if diff := cmp.Diff([][]toolcrib.RunID{{"run_4", "run_3"}, {"run_2", "run_1"}, {"run_0"}}, got); diff != "" {
		t.Error(diff)
	}
}

// The sub-runs of a run stay as long as that; the newest run of a session stays as
// long as the session is younger; sessions without a run go.
func TestRetentionKeepsWhatIsNeeded(t *testing.T) {
	s, day, run := aged(t)
	run("run_parent", 0, "", "", &journal.Paused{Status: toolcrib.StatusWaitingForApproval})
	run("run_child", 0, "", "run_parent")
	run("run_s1", 0, "ses_old", "")
	run("run_s2", 1, "ses_old", "")
	run("run_s3", 50, "ses_used", "")
	newSession(t, s, "ann", "never used")
	young := openAt(t, s.Path(), sqlite.Options{Now: func() time.Time { return day(45) }})
	made := newSession(t, young, "ann", "young")
	run("run_y1", 0, made.ID, "")
	run("run_y2", 1, made.ID, "")
	r := store.Retention{Runs: 30 * dayLong}
	result := retain(t, s, r, day(60))
	if diff := cmp.Diff([]toolcrib.RunID{"run_s1", "run_y1", "run_s2"}, result.Removed); diff != "" {
		t.Errorf("removed (-want +got)\n%s", diff)
	}
	if len(result.Sessions) != 2 || result.Sessions[0] == made.ID || result.Sessions[1] == made.ID {
		t.Errorf("sessions %v, want ses_old and the one that was never used", result.Sessions)
	}
	if info := session(t, s, "ann", "young"); info.LastRun != "run_y2" || info.Runs != 1 {
		t.Errorf("%+v", info)
	}
	for _, name := range []string{"ses_old", "never used"} {
		if _, err := s.Session(t.Context(), "ann", name); !errors.Is(err, toolcrib.ErrNotFound) {
			t.Errorf("%s: error %v, want ErrNotFound", name, err)
		}
	}
	p := &spender{t: t, run: "run_parent", after: 5}
	p.add(s, day(61), completed)
	if result = retain(t, s, r, day(80)); len(result.Removed) != 1 || result.Removed[0] != "run_y2" {
		t.Errorf("while the session of run_y2 is old and run_parent is young: %+v", result)
	}
	if result = retain(t, s, r, day(100)); len(result.Removed) != 3 {
		t.Errorf("at last: %+v", result)
	}
}
