package sqlite_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/store"
	"github.com/toolcrib/toolcrib/store/sqlite"
)

// remembered is an approval of any call of a tool for a user, or of one call for a session.
func remembered(what string) store.Remembered {
	m := store.Remembered{
		Scope: journal.RememberUser, User: "ann", Tool: "write_file", Effect: toolcrib.EffectIdempotentWrite, Run: "run_a", ApprovalID: "apr_1", By: "ann",
		Path: abs("w", "notes"), Folder: true, Workspace: abs("w"), FolderID: "7@1.000000001",
	}
	if what == "session" {
		m.Scope, m.Session, m.Arguments = journal.RememberSession, "ses_1", []byte(`{"path":"a <b>.txt"}`)
		m.Path, m.Folder, m.Workspace, m.FolderID = "", false, "", ""
	}
	return m
}

func abs(names ...string) string {
	return filepath.Join(append([]string{string(filepath.Separator)}, names...)...)
}

func holding(t testing.TB, s *sqlite.Store, user string, session toolcrib.SessionID) []string {
	t.Helper()
	list, err := s.Remembered(t.Context(), user, session)
	if err != nil {
		t.Fatal(err)
	}
	var texts []string
	for _, m := range list {
		texts = append(texts, fmt.Sprintf("%s %s%s", m.Scope, m.Tool, m.Arguments))
		if want := remembered(map[string]string{"session": "session", "user": "tool"}[m.Scope]); m.Path != want.Path || m.Folder != want.Folder || m.Workspace != want.Workspace || m.FolderID != want.FolderID {
			t.Errorf("%+v, want %+v", m, want)
		}
	}
	return texts
}

// H16: an approval that is remembered for a session or user holds there, and nowhere
// else, in every process, until it is revoked.
func TestH16_Remembered(t *testing.T) {
	s := open(t)
	other := openAt(t, s.Path(), sqlite.Options{})
	if got := holding(t, other, "ann", "ses_1"); got != nil {
		t.Errorf("%q", got)
	}
	for i, m := range []store.Remembered{remembered("session"), remembered("tool"), remembered("tool")} {
		id, changed, err := s.Remember(t.Context(), m)
		if err != nil || id != m.MakeID() || changed != (i < 2) {
			t.Errorf("%s, changed %v, error %v", id, changed, err)
		}
	}
	const one, any = `session write_file{"path":"a <b>.txt"}`, "user write_file"
	for _, st := range []*sqlite.Store{s, other} {
		for _, c := range []struct {
			user    string
			session toolcrib.SessionID
			want    []string
		}{
			{"ann", "ses_1", []string{one, any}},
			{"ann", "ses_2", []string{any}},
			{"ann", "", []string{any}},
			{"bob", "ses_1", nil},
			{"", "", nil},
		} {
			if diff := cmp.Diff(c.want, holding(t, st, c.user, c.session)); diff != "" {
				t.Errorf("%s, %s (-want +got)\n%s", c.user, c.session, diff)
			}
		}
	}
	id := remembered("tool").MakeID()
	if _, err := s.Forget(t.Context(), "bob", id, "bob"); !errors.Is(err, toolcrib.ErrNotFound) {
		t.Errorf("bob revokes what is ann's: error %v", err)
	}
	for i, user := range []string{"ann", ""} {
		if changed, err := other.Forget(t.Context(), user, id, "root"); err != nil || changed != (i == 0) {
			t.Errorf("changed %v, error %v", changed, err)
		}
	}
	if diff := cmp.Diff([]string{one}, holding(t, s, "ann", "ses_1")); diff != "" {
		t.Errorf("after it was revoked (-want +got)\n%s", diff)
	}
	if _, changed, err := s.Remember(t.Context(), remembered("tool")); err != nil || changed {
		t.Errorf("what was revoked holds again: changed %v, error %v", changed, err)
	}
	all, err := s.ListRemembered(t.Context(), store.RememberedFilter{User: "ann", Revoked: true})
	open, err2 := s.ListRemembered(t.Context(), store.RememberedFilter{Session: "ses_1"})
	if err != nil || err2 != nil || len(all) != 2 || len(open) != 1 || open[0].Session != "ses_1" {
		t.Errorf("%+v, %+v, errors %v, %v", all, open, err, err2)
	}
	verifyAll(t, s)
}

func TestH16_RememberedRefused(t *testing.T) {
	s := open(t)
	for name, change := range map[string]func(*store.Remembered){
		"scope run":         func(m *store.Remembered) { m.Scope = journal.RememberRun },
		"no user":           func(m *store.Remembered) { m.User = "" },
		"no session":        func(m *store.Remembered) { m.Scope = journal.RememberSession },
		"session of a user": func(m *store.Remembered) { m.Session = "ses_1" },
		"no tool":           func(m *store.Remembered) { m.Tool = "*" },
		"no effect":         func(m *store.Remembered) { m.Effect = "" },
		"no approval":       func(m *store.Remembered) { m.ApprovalID = "" },
		"nobody":            func(m *store.Remembered) { m.By = "" },
		"no object":         func(m *store.Remembered) { m.Arguments = []byte("null") },
		"not canonical":     func(m *store.Remembered) { m.Arguments = []byte(`{"a": 1}`) },
		"no JSON":           func(m *store.Remembered) { m.Arguments = []byte(`{"a`) },
		"empty":             func(m *store.Remembered) { m.Arguments = []byte{} },
		"no folder":         func(m *store.Remembered) { m.Path = "" },
		"relative":          func(m *store.Remembered) { m.Path = "notes" },
		"not clean":         func(m *store.Remembered) { m.Path += "/../x" },
		"no workspace":      func(m *store.Remembered) { m.Workspace = "" },
		"any folder":        func(m *store.Remembered) { m.FolderID = "" },
		"no UTF-8":          func(m *store.Remembered) { m.Workspace += "\xff" },
		"long path":         func(m *store.Remembered) { m.Path += strings.Repeat("x", 4096) },
		"large":             func(m *store.Remembered) { m.Arguments = []byte(`{"a":"` + strings.Repeat("x", 64<<10) + `"}`) },
	} {
		m := remembered("tool")
		change(&m)
		if _, _, err := s.Remember(t.Context(), m); err == nil {
			t.Errorf("%s is remembered", name)
		}
	}
	if _, err := s.Forget(t.Context(), "", "rem_x", "ann"); !errors.Is(err, toolcrib.ErrNotFound) {
		t.Errorf("error %v", err)
	}
	if v := verifyAll(t, s); v.System.Events != 0 {
		t.Errorf("%+v", v)
	}
}
