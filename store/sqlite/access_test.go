package sqlite_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/access"
	"github.com/toolcrib/toolcrib/access/standing"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/store"
	"github.com/toolcrib/toolcrib/store/sqlite"
)

// What one process changes counts at once in another one.
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
			_, err := there.PutGroup(t.Context(), "staff", access.GroupEdit{Grants: &[]string{"b"}}, "x")
			return err
		}, []string{"a"}},
		{func() error {
			_, err := there.EditUser(t.Context(), "bob", access.Edit{Groups: &[]string{"staff"}}, "x")
			return err
		}, []string{"a", "b"}},
		{func() error {
			_, err := here.PutGroup(t.Context(), "staff", access.GroupEdit{Grants: &[]string{"c"}}, "x")
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

// The newest entry of the system journal gives the earliest possible current time.
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

// Two processes that change and read what grants at the same time find it as it was sealed,
// each of them.
func TestSealedTablesOfTwoProcesses(t *testing.T) {
	path := filepath.Join(t.TempDir(), "toolcrib.db")
	var work sync.WaitGroup
	for p := range 2 {
		s := openAt(t, path, sqlite.Options{})
		for g := range 2 {
			by := fmt.Sprintf("user%d%d", p, g)
			work.Go(func() {
				for i := range 8 {
					name := fmt.Sprintf("%s-%d", by, i)
					_, err1 := s.Access().AddUser(t.Context(), access.NewUser{User: access.User{Name: name, Grants: []string{"a"}}}, by)
					_, err2 := s.SetOverride(t.Context(), store.Override{Kind: store.OverrideTool, Name: by, Enabled: i%2 == 0, By: by})
					_, _, err3 := s.Remember(t.Context(), store.Remembered{
						Scope: journal.RememberUser, User: by, Tool: name, Workspace: "/w", ApprovalID: "apr_1", By: by, Run: "run_1",
						FolderID: "1", Effect: toolcrib.EffectIdempotentWrite,
					})
					_, err4 := s.Access().User(t.Context(), name)
					list, err5 := s.Remembered(t.Context(), by, "")
					_, err6 := s.Overrides(t.Context(), 0)
					if err := errors.Join(err1, err2, err3, err4, err5, err6); err != nil || len(list) != i+1 {
						t.Errorf("%s: %d remembered, error %v", name, len(list), err)
						return
					}
				}
			})
		}
	}
	work.Wait()
	verifyAll(t, openAt(t, path, sqlite.Options{}))
}
