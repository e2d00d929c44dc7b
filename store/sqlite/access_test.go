package sqlite_test

import (
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/access"
	"github.com/toolcrib/toolcrib/access/standing"
	"github.com/toolcrib/toolcrib/store/sqlite"
)

// What one process changes counts at once in another one (contract 6 gives it a second).
func TestN18_ChangesOfOtherProcesses(t *testing.T) {
	path := filepath.Join(t.TempDir(), "toolcrib.db")
	here, there := openAt(t, path, sqlite.Options{}).Access(), openAt(t, path, sqlite.Options{}).Access()
	people, err := standing.New(standing.Options{Source: here, Now: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	grants := func() []string {
		t.Helper()
		s, err := people.Standing(t.Context(), toolcrib.Principal{User: "bob"})
		if err != nil {
			t.Fatal(err)
		}
		if s.Refused != "" {
			return []string{s.Refused}
		}
		return s.Principal.Grants
	}
	for i, change := range []struct {
		by   func() error
		want []string
	}{
		{func() error {
			_, err := there.AddUser(t.Context(), access.NewUser{User: access.User{Name: "bob", Grants: []string{"a"}}}, "x")
			return err
		}, []string{"a"}},
		{func() error {
			_, err := there.PutGroup(t.Context(), access.NewGroup{Group: access.Group{Name: "staff", Grants: []string{"b"}}}, "x")
			return err
		}, []string{"a"}},
		{func() error {
			_, err := there.EditUser(t.Context(), "bob", access.Edit{Groups: &[]string{"staff"}}, "x")
			return err
		}, []string{"a", "b"}},
		{func() error {
			_, err := here.PutGroup(t.Context(), access.NewGroup{Group: access.Group{Name: "staff", Grants: []string{"c"}}}, "x")
			return err
		}, []string{"a", "c"}},
		{func() error {
			_, err := there.RemoveUser(t.Context(), "bob", "x")
			return err
		}, []string{"the user bob was removed"}},
	} {
		if err := change.by(); err != nil {
			t.Fatal(err)
		}
		if got := grants(); !slices.Equal(got, change.want) {
			t.Errorf("after change %d: %q, want %q", i, got, change.want)
		}
	}
}

// The newest entry of the system journal tells how late it is at least.
func TestM16_Latest(t *testing.T) {
	at := time.Date(2031, 2, 3, 4, 5, 6, 0, time.UTC)
	s := openAt(t, filepath.Join(t.TempDir(), "toolcrib.db"), sqlite.Options{Now: func() time.Time { return at }})
	if _, err := s.Access().AddUser(t.Context(), access.NewUser{User: access.User{Name: "bob"}}, "x"); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Access().Latest(t.Context()); err != nil || !got.Equal(at) {
		t.Errorf("%s, %v; want %s", got, err, at)
	}
}
