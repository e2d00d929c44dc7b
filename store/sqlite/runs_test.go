package sqlite_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/store"
	"github.com/toolcrib/toolcrib/store/sqlite"
	"github.com/toolcrib/toolcrib/toolcribtest/journaltest"
)

// add appends bodies to a run and returns its new last sequence number.
func add(t testing.TB, s *sqlite.Store, run toolcrib.RunID, after toolcrib.Seq, bodies ...toolcrib.Body) toolcrib.Seq {
	t.Helper()
	if err := s.Append(t.Context(), run, after, journaltest.Events(bodies...)...); err != nil {
		t.Fatal(err)
	}
	return after + toolcrib.Seq(len(bodies))
}

func started(user, agent string, session toolcrib.SessionID, parent toolcrib.RunID) *journal.RunStarted {
	return &journal.RunStarted{
		Agent: toolcrib.Agent{Name: agent, Model: "small"}, Principal: toolcrib.Principal{User: user}, Session: session, Parent: parent,
	}
}

var completed = &journal.Done{Status: toolcrib.StatusCompleted, StopReason: toolcrib.StopCompleted, Content: "ready"}

func ids(runs []store.RunRecord) []toolcrib.RunID {
	list := []toolcrib.RunID{}
	for _, r := range runs {
		list = append(list, r.ID)
	}
	return list
}

// The stored record is at each event what the events make of it.
func TestRunIsProjection(t *testing.T) {
	bodies := journaltest.Bodies()
	for _, appends := range []int{1, 3, len(bodies)} {
		s := open(t)
		want := store.RunRecord{ID: "run_a"}
		for at := 0; at < len(bodies); at += appends {
			events := journaltest.Events(bodies[at:min(at+appends, len(bodies))]...)
			if err := s.Append(t.Context(), "run_a", toolcrib.Seq(at), events...); err != nil {
				t.Fatal(err)
			}
			for _, e := range events {
				store.Project(&want, e)
			}
			got, err := s.Run(t.Context(), "run_a")
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Fatalf("after event %d (-projected +stored):\n%s", want.LastSeq, diff)
			}
		}
	}
}

func TestRunNotFound(t *testing.T) {
	s := open(t)
	add(t, s, "run_a", 0, started("ann", "default", "", ""))
	for _, id := range []toolcrib.RunID{"", "run_", "run_b"} {
		if _, err := s.Run(t.Context(), id); !errors.Is(err, toolcrib.ErrNotFound) {
			t.Errorf("run %q: error %v, want ErrNotFound", id, err)
		}
	}
}

func TestFindRun(t *testing.T) {
	s := open(t)
	for _, id := range []toolcrib.RunID{"run_01JA1", "run_01JA2", "run_01JB1", "run_01JB", "run_%", "other"} {
		add(t, s, id, 0, started("ann", "default", "", ""))
	}
	for prefix, want := range map[string]toolcrib.RunID{
		"run_01JA1": "run_01JA1", "01JA2": "run_01JA2", "run_01JB": "run_01JB", "run_%": "run_%", "other": "other", "%": "run_%",
	} {
		if got, err := s.FindRun(t.Context(), prefix); err != nil || got.ID != want {
			t.Errorf("%s: found %s, error %v; want %s", prefix, got.ID, err, want)
		}
	}
	for _, prefix := range []string{"", "run_02", "RUN_01JA1", "run_01JA11", "oth"} {
		if got, err := s.FindRun(t.Context(), prefix); !errors.Is(err, toolcrib.ErrNotFound) {
			t.Errorf("%q: found %s, error %v; want ErrNotFound", prefix, got.ID, err)
		}
	}
	var ambiguous *store.AmbiguousError
	if _, err := s.FindRun(t.Context(), "01JA"); !errors.As(err, &ambiguous) {
		t.Fatalf("error %v, want an AmbiguousError", err)
	}
	want := &store.AmbiguousError{Prefix: "01JA", IDs: []toolcrib.RunID{"run_01JA1", "run_01JA2"}}
	if diff := cmp.Diff(want, ambiguous); diff != "" {
		t.Error(diff)
	}
	if text := ambiguous.Error(); text != "run ID 01JA is ambiguous, give more of it; it fits run_01JA1, run_01JA2" {
		t.Error(text)
	}
	for i := range 20 {
		add(t, s, toolcrib.RunID(fmt.Sprintf("run_01JC%02d", i)), 0, started("ann", "default", "", ""))
	}
	if _, err := s.FindRun(t.Context(), "01JC"); !errors.As(err, &ambiguous) || len(ambiguous.IDs) != 10 || !ambiguous.More {
		t.Errorf("error %v, want ten runs and others", err)
	}
}

func TestRunsFilter(t *testing.T) {
	s := open(t)
	add(t, s, "run_1", 0, started("ann", "default", "ses_1", ""), completed)
	add(t, s, "run_2", 0, started("bob", "default", "ses_2", ""))
	add(t, s, "run_3", 0, started("ann", "coder", "ses_1", ""), &journal.TakenUp{})
	byToken := started("ann", "coder", "ses_1", "run_3")
	byToken.Principal.Token = "tok_1"
	add(t, s, "run_4", 0, byToken)
	late := journaltest.Events(started("ann", "default", "", ""))
	late[0].Time = journaltest.At().Add(time.Hour)
	if err := s.Append(t.Context(), "run_5", 0, late...); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		filter store.Filter
		want   []toolcrib.RunID
	}{
		"all":          {store.Filter{}, []toolcrib.RunID{"run_5", "run_4", "run_3", "run_2", "run_1"}},
		"user":         {store.Filter{User: "bob"}, []toolcrib.RunID{"run_2"}},
		"token":        {store.Filter{Token: "tok_1"}, []toolcrib.RunID{"run_4"}},
		"agent":        {store.Filter{Agent: "coder"}, []toolcrib.RunID{"run_4", "run_3"}},
		"session":      {store.Filter{Session: "ses_1"}, []toolcrib.RunID{"run_4", "run_3", "run_1"}},
		"parent":       {store.Filter{Parent: "run_3"}, []toolcrib.RunID{"run_4"}},
		"top level":    {store.Filter{TopLevel: true, User: "ann"}, []toolcrib.RunID{"run_5", "run_3", "run_1"}},
		"queued":       {store.Filter{Status: []toolcrib.Status{toolcrib.StatusQueued}}, []toolcrib.RunID{"run_5", "run_4", "run_2"}},
		"can go on":    {store.Filter{Status: []toolcrib.Status{toolcrib.StatusQueued, toolcrib.StatusRunning}}, []toolcrib.RunID{"run_5", "run_4", "run_3", "run_2"}},
		"ended":        {store.Filter{Status: []toolcrib.Status{toolcrib.StatusCompleted, toolcrib.StatusRunning}}, []toolcrib.RunID{"run_3", "run_1"}},
		"since":        {store.Filter{Since: journaltest.At().Add(time.Microsecond)}, []toolcrib.RunID{"run_5"}},
		"since, equal": {store.Filter{Since: journaltest.At(), User: "bob"}, []toolcrib.RunID{"run_2"}},
		"nothing":      {store.Filter{User: "ann' OR 1=1 --"}, []toolcrib.RunID{}},
	} {
		t.Run(name, func(t *testing.T) {
			page, err := s.Runs(t.Context(), c.filter)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, ids(page.Runs)); diff != "" || page.Next != "" {
				t.Errorf("next %q (-want +got)\n%s", page.Next, diff)
			}
		})
	}
}

// With the cursor every run is seen once, also when runs begin meanwhile.
func TestRunsCursor(t *testing.T) {
	s := open(t)
	const n = 23
	var want []toolcrib.RunID
	for i := range n {
		id := toolcrib.RunID(fmt.Sprintf("run_%02d", i))
		want = append(want, id)
		add(t, s, id, 0, started("ann", "default", "", ""))
	}
	slices.Reverse(want)
	for _, limit := range []int{1, 5, 22, 23, 24} {
		var got []toolcrib.RunID
		filter := store.Filter{User: "ann", Limit: limit}
		for pages := 0; ; pages++ {
			page, err := s.Runs(t.Context(), filter)
			if err != nil {
				t.Fatal(err)
			}
			if len(page.Runs) > limit || pages > n {
				t.Fatalf("limit %d: a page of %d, page %d", limit, len(page.Runs), pages)
			}
			got = append(got, ids(page.Runs)...)
			if page.Next == "" {
				break
			}
			filter.Cursor = page.Next
			add(t, s, toolcrib.RunID(fmt.Sprintf("run_new_%d_%d", limit, pages)), 0, started("bob", "default", "", ""))
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("limit %d (-want +got)\n%s", limit, diff)
		}
	}
	for _, cursor := range []string{"!", "-1", "0", "99999999999999999999"} {
		if _, err := s.Runs(t.Context(), store.Filter{Cursor: cursor}); !errors.Is(err, store.ErrBadCursor) {
			t.Errorf("cursor %q: error %v, want ErrBadCursor", cursor, err)
		}
	}
}

// A session has one run at a time; the runs of its sub-agents do not count, nor
// do those of another user who has given a session the same name.
func TestSession(t *testing.T) {
	s := open(t)
	after := add(t, s, "run_1", 0, started("ann", "default", "work", ""))
	add(t, s, "run_1a", 0, started("ann", "default", "work", "run_1"))
	add(t, s, "run_b", 0, started("bob", "default", "work", ""))
	add(t, s, "run_none", 0, started("ann", "default", "", ""))
	add(t, s, "run_none2", 0, started("ann", "default", "", ""))

	busy := func(status toolcrib.Status) {
		t.Helper()
		err := s.Append(t.Context(), "run_2", 0, journaltest.Events(started("ann", "default", "work", ""))...)
		var e *store.SessionBusyError
		if !errors.As(err, &e) || !errors.Is(err, toolcrib.ErrConflict) {
			t.Fatalf("error %v, want a SessionBusyError that is a conflict", err)
		}
		if want := (&store.SessionBusyError{Session: "work", Run: "run_1", Status: status}); *e != *want {
			t.Errorf("%+v, want %+v", e, want)
		}
	}
	busy(toolcrib.StatusQueued)
	after = add(t, s, "run_1", after, &journal.TakenUp{}, &journal.Paused{Status: toolcrib.StatusWaitingForInput})
	busy(toolcrib.StatusWaitingForInput)
	if _, err := s.Run(t.Context(), "run_2"); !errors.Is(err, toolcrib.ErrNotFound) {
		t.Errorf("the refused run is there: error %v", err)
	}
	add(t, s, "run_1", after, completed)
	add(t, s, "run_2", 0, started("ann", "default", "work", ""))

	for user, want := range map[string][]toolcrib.RunID{"ann": {"run_1", "run_2"}, "bob": {"run_b"}, "": {"run_1", "run_b", "run_2"}, "eve": {}} {
		runs, err := store.SessionRuns(t.Context(), s, user, "work")
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, ids(runs)); diff != "" {
			t.Errorf("runs of %q (-want +got)\n%s", user, diff)
		}
	}
	if runs, err := store.SessionRuns(t.Context(), s, "ann", ""); err != nil || len(runs) != 0 {
		t.Errorf("no session has %d runs, error %v", len(runs), err)
	}
}
