package sqlite_test

import (
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
	"github.com/toolcrib/toolcrib/toolcribtest/journaltest"
)

func newSession(t testing.TB, s *sqlite.Store, user, name string) store.SessionInfo {
	t.Helper()
	made, err := s.NewSession(t.Context(), user, name)
	if err != nil {
		t.Fatal(err)
	}
	return made
}

func session(t testing.TB, s *sqlite.Store, user, name string) store.SessionInfo {
	t.Helper()
	info, err := s.Session(t.Context(), user, name)
	if err != nil {
		t.Fatal(err)
	}
	return info
}

// asked is a start of a run with a prompt, behind what came before.
func asked(user string, id toolcrib.SessionID, prompt string) *journal.RunStarted {
	b := started(user, "default", id, "")
	b.Input = []toolcrib.Message{toolcrib.TextMessage(toolcrib.RoleUser, "before"), toolcrib.TextMessage(toolcrib.RoleUser, prompt)}
	return b
}

// A session that was made has an ID, is found by that and by its name, and only by its
// user.
func TestSessionIsFound(t *testing.T) {
	s := open(t)
	made := newSession(t, s, "ann", "work")
	if !strings.HasPrefix(string(made.ID), "ses_") || len(made.ID) != 30 || made.Name != "work" || made.User != "ann" || made.CreatedAt.IsZero() {
		t.Errorf("%+v", made)
	}
	for _, name := range []string{"work", string(made.ID)} {
		for _, user := range []string{"ann", ""} {
			if diff := cmp.Diff(made, session(t, s, user, name)); diff != "" {
				t.Errorf("%s of %q (-made +found)\n%s", name, user, diff)
			}
		}
		if found, err := s.Session(t.Context(), "bob", name); !errors.Is(err, toolcrib.ErrNotFound) {
			t.Errorf("%s of bob: %+v, error %v; want ErrNotFound", name, found, err)
		}
	}
	if _, err := s.Session(t.Context(), "ann", ""); !errors.Is(err, toolcrib.ErrNotFound) {
		t.Errorf("no name: error %v", err)
	}
	if _, err := s.NewSession(t.Context(), "ann", "work"); !errors.Is(err, toolcrib.ErrConflict) {
		t.Errorf("the same name again: error %v, want ErrConflict", err)
	}
	bobs := newSession(t, s, "bob", "work") // each user has names of their own
	if session(t, s, "bob", "work").ID != bobs.ID || session(t, s, "ann", "work").ID != made.ID {
		t.Error("a name is found as another user's")
	}
	if _, err := s.Session(t.Context(), "", "work"); !errors.Is(err, toolcrib.ErrNotFound) {
		t.Errorf("a name of two users: error %v", err)
	}
	if a, b := newSession(t, s, "ann", ""), newSession(t, s, "ann", ""); a.ID == b.ID || a.Name != "" {
		t.Errorf("two without a name: %+v, %+v", a, b)
	}
	for _, name := range []string{"..", "a/b", "ses_1", "x\ny", strings.Repeat("x", 257)} {
		if _, err := s.NewSession(t.Context(), "ann", name); err == nil {
			t.Errorf("C13: %q was taken", name)
		}
	}
	verifyAll(t, s)
}

// A run goes into a session of its user only; to others it does not exist. What
// was refused has left nothing.
func TestSessionOwner(t *testing.T) {
	s := open(t)
	made := newSession(t, s, "ann", "")
	err := s.Append(t.Context(), "run_b", 0, journaltest.Events(started("bob", "default", made.ID, ""))...)
	if !errors.Is(err, toolcrib.ErrNotFound) || errors.Is(err, toolcrib.ErrConflict) || !strings.Contains(err.Error(), string(made.ID)) {
		t.Errorf("another user's session: error %v, want ErrNotFound", err)
	}
	if _, err := s.Run(t.Context(), "run_b"); !errors.Is(err, toolcrib.ErrNotFound) {
		t.Errorf("the run that was refused: error %v", err)
	}
	add(t, s, "run_a", 0, started("ann", "default", made.ID, ""))
	add(t, s, "run_child", 0, started("ann", "worker", made.ID, "run_a"))
	err = s.Append(t.Context(), "run_b", 0, journaltest.Events(started("bob", "default", made.ID, ""))...)
	if !errors.Is(err, toolcrib.ErrNotFound) || errors.As(err, new(*store.SessionBusyError)) {
		t.Errorf("another user's busy session: error %v, want ErrNotFound and nothing of how it stands", err)
	}
	verifyAll(t, s)
}

// A session is made by the first run that names it.
func TestSessionIsMadeByRun(t *testing.T) {
	s := open(t)
	for _, user := range []string{"ann", "bob"} { // a name is each user's own
		run := toolcrib.RunID("run_" + user)
		add(t, s, run, 0, started(user, "default", "telegram:42", ""), completed)
		if info := session(t, s, user, "telegram:42"); info.ID != "telegram:42" || info.Name != "telegram:42" || info.LastRun != run || info.Runs != 1 {
			t.Errorf("%+v", info)
		}
	}
	add(t, s, "run_x", 0, started("ann", "default", "ses_own", ""))
	if info := session(t, s, "ann", "ses_own"); info.Name != "" {
		t.Errorf("%+v", info)
	}
	named := newSession(t, s, "ann", "later")
	add(t, s, "run_y", 0, started("ann", "default", "later", "")) // an ID that another session has as its name
	if info := session(t, s, "ann", "later"); info.ID != "later" || info.Name != "" || session(t, s, "ann", string(named.ID)).Name != "later" {
		t.Errorf("%+v", info)
	}
	verifyAll(t, s)
}

// The summary of a session has its title, its runs in order, and its status.
func TestSessionInfo(t *testing.T) {
	s := open(t)
	made := newSession(t, s, "ann", "work")
	if _, err := store.LastRun(t.Context(), s, "ann", made.ID); !errors.Is(err, toolcrib.ErrNotFound) || made.Busy() {
		t.Errorf("without a run: error %v", err)
	}
	add(t, s, "run_1", 0, asked("ann", made.ID, "\n first  question\nmore"))
	add(t, s, "run_1a", 0, started("ann", "worker", made.ID, "run_1"), completed)
	info := session(t, s, "ann", "work")
	want := store.SessionInfo{
		ID: made.ID, Name: "work", User: "ann", Title: "first question", CreatedAt: made.CreatedAt, UpdatedAt: journaltest.At(),
		Runs: 1, LastRun: "run_1", Status: toolcrib.StatusQueued,
	}
	if diff := cmp.Diff(want, info); diff != "" || !info.Busy() {
		t.Errorf("(-want +got)\n%s", diff)
	}
	add(t, s, "run_1", 1, &journal.Done{Status: toolcrib.StatusCancelled, StopReason: toolcrib.StopCancelled})
	add(t, s, "run_2", 0, asked("ann", made.ID, "second"), &journal.Error{Code: "provider_failed", Status: toolcrib.StatusFailed})
	if info = session(t, s, "ann", "work"); info.Runs != 2 || info.LastRun != "run_2" || info.Status != toolcrib.StatusFailed || info.Busy() || info.Title != "first question" {
		t.Errorf("a cancelled and a failed run: %+v", info)
	}
	runs, err := store.SessionRuns(t.Context(), s, "ann", made.ID)
	if diff := cmp.Diff([]toolcrib.RunID{"run_1", "run_2"}, ids(runs)); diff != "" || err != nil {
		t.Errorf("error %v, runs %s", err, diff)
	}
	if last, err := store.LastRun(t.Context(), s, "ann", made.ID); err != nil || last.ID != "run_2" {
		t.Errorf("last run %s, error %v", last.ID, err)
	}
	if _, err := store.LastRun(t.Context(), s, "bob", made.ID); !errors.Is(err, toolcrib.ErrNotFound) {
		t.Errorf("bob's last run: error %v", err)
	}
	add(t, s, "run_3", 0, asked("ann", made.ID, "third"), &journal.Paused{Status: toolcrib.StatusWaitingForApproval})
	if info = session(t, s, "ann", "work"); !info.Busy() {
		t.Errorf("a parked run: %+v", info)
	}
	prune(t, s, store.PruneOptions{Runs: []toolcrib.RunID{"run_1"}, ContentOnly: true})
	if info = session(t, s, "ann", "work"); info.Title != "second" || info.Runs != 3 {
		t.Errorf("without the content of its first run: %+v", info)
	}
	prune(t, s, store.PruneOptions{Runs: []toolcrib.RunID{"run_1", "run_2"}})
	if info = session(t, s, "ann", "work"); info.Title != "third" || info.Runs != 1 {
		t.Errorf("without its first runs: %+v", info)
	}
	verifyAll(t, s)
}

// A list has each session once, those with the newest runs first.
func TestSessions(t *testing.T) {
	at := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	s := openAt(t, filepath.Join(t.TempDir(), "toolcrib.db"), sqlite.Options{Now: func() time.Time { at = at.Add(time.Second); return at }})
	var want []toolcrib.SessionID
	for i := range 7 {
		name := fmt.Sprint("s", i)
		user := []string{"ann", "b:ob%"}[i%2]
		made := newSession(t, s, user, name)
		want = append([]toolcrib.SessionID{made.ID}, want...)
		if i > 2 { // the first three have no run
			add(t, s, toolcrib.RunID("run_"+name), 0, asked(user, made.ID, name), completed)
		}
	}
	add(t, s, "run_again", 0, asked("ann", want[2], "again")) // the one before the last but one of those with a run
	want = append([]toolcrib.SessionID{want[2], want[0], want[1]}, want[3:]...)
	for _, limit := range []int{1, 2, 3, 7, 0} {
		var got []toolcrib.SessionID
		f := store.SessionFilter{Limit: limit}
		for pages := 0; pages < 10; pages++ {
			page, err := s.Sessions(t.Context(), f)
			if err != nil {
				t.Fatal(err)
			}
			for _, info := range page.Sessions {
				got = append(got, info.ID)
			}
			if f.Cursor = page.Next; f.Cursor == "" {
				break
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%d a page (-want +got)\n%s", limit, diff)
		}
	}
	page, err := s.Sessions(t.Context(), store.SessionFilter{User: "b:ob%"})
	if err != nil || len(page.Sessions) != 3 || page.Sessions[0].Title != "s5" {
		t.Errorf("%+v, error %v", page, err)
	}
	for _, cursor := range []string{"x", "1", "1:2", "-1:a:b", ":a:b"} {
		if _, err := s.Sessions(t.Context(), store.SessionFilter{Cursor: cursor}); !errors.Is(err, store.ErrBadCursor) {
			t.Errorf("cursor %q: error %v", cursor, err)
		}
	}
}

// Of processes that begin a run in one session at the same time, exactly one succeeds; the others get
// its ID, and leave nothing.
func TestSessionOfProcesses(t *testing.T) {
	path := filepath.Join(t.TempDir(), "toolcrib.db")
	s := openAt(t, path, sqlite.Options{})
	made := newSession(t, s, "ann", "work")
	var children []*child
	for i := range processes {
		children = append(children, newChild(t, "session", fmt.Sprintf("p%d:%s", i, made.ID), path))
	}
	for _, c := range children {
		c.begin()
	}
	won := 0
	for _, c := range children {
		won += c.stored()
		c.end()
	}
	runs, err := store.SessionRuns(t.Context(), s, "ann", made.ID)
	if won != 1 || err != nil || len(runs) != 1 {
		t.Errorf("%d processes have begun a run, stored are %v (error %v)", won, ids(runs), err)
	}
	verifyAll(t, s)
}

// A session is there when the store is opened again.
func TestSessionsSurvive(t *testing.T) {
	at := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	o := sqlite.Options{Now: func() time.Time { return at }}
	path := filepath.Join(t.TempDir(), "toolcrib.db")
	s, err := sqlite.Open(t.Context(), path, o)
	if err != nil {
		t.Fatal(err)
	}
	made := newSession(t, s, "ann", "work")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	again := session(t, openAt(t, path, o), "ann", "work")
	if diff := cmp.Diff(made, again); diff != "" || !again.CreatedAt.Equal(at) {
		t.Errorf("(-made +read)\n%s", diff)
	}
}

func TestRemoveSession(t *testing.T) {
	s := open(t)
	made := newSession(t, s, "ann", "trip")
	add(t, s, "run_a", 0, asked("ann", made.ID, "where to"), completed)
	if err := s.RemoveSession(t.Context(), "bob", made.ID, "bob"); !errors.Is(err, toolcrib.ErrNotFound) {
		t.Errorf("another user's: %v", err)
	}
	if err := s.RemoveSession(t.Context(), "ann", made.ID, "ann"); !errors.Is(err, toolcrib.ErrConflict) {
		t.Errorf("one with a run: %v", err)
	}
	if _, err := s.Prune(t.Context(), store.PruneOptions{Runs: []toolcrib.RunID{"run_a"}, By: "ann"}); err != nil {
		t.Fatal(err)
	}
	inIt, inAnother := remembered("session"), remembered("session")
	inIt.Session = made.ID
	for _, m := range []store.Remembered{inIt, inAnother, remembered("tool")} {
		if _, _, err := s.Remember(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.RemoveSession(t.Context(), "ann", made.ID, "ann"); err != nil {
		t.Error(err)
	}
	// What was to hold in it holds no longer, and takes no place.
	list, err := s.ListRemembered(t.Context(), store.RememberedFilter{User: "ann", Revoked: true})
	if err != nil || len(list) != 3 {
		t.Errorf("%d approvals are remembered, %v", len(list), err)
	}
	for _, m := range list {
		if revoked := !m.RevokedAt.IsZero(); revoked != (m.Session == made.ID) {
			t.Errorf("%+v", m)
		}
	}
	if _, err := s.Session(t.Context(), "ann", "trip"); !errors.Is(err, toolcrib.ErrNotFound) {
		t.Errorf("after it was removed: %v", err)
	}
}
