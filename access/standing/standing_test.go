package standing_test

import (
	"context"
	"encoding/json"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/access"
	"github.com/toolcrib/toolcrib/access/standing"
	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/store"
	"github.com/toolcrib/toolcrib/store/sqlite"
	"github.com/toolcrib/toolcrib/store/sqlstore"
)

const by = "local:tester"

// noon is an arbitrary time.
func noon() time.Time { return time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC) }

// world is a directory, and a People over it with a settable time.
type world struct {
	*counted
	people *standing.People
	path   string // path of its store
	now    time.Time
}

func openStore(t *testing.T, path string, o sqlite.Options) *sqlite.Store {
	t.Helper()
	s, err := sqlite.Open(t.Context(), path, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// counted is a directory that counts how often it is read, and can fail.
type counted struct {
	store.People
	reads int
	err   error
}

func (c *counted) Version(ctx context.Context, age time.Duration) (uint64, error) {
	if c.err != nil {
		return 0, c.err
	}
	return c.People.Version(ctx, age)
}

func (c *counted) Alike(ctx context.Context, name string) (access.User, error) {
	c.reads++
	return c.People.Alike(ctx, name)
}

func (c *counted) Groups(ctx context.Context) ([]access.Group, error) {
	c.reads++
	return c.People.Groups(ctx)
}

func (c *counted) Token(ctx context.Context, id string) (access.Issued, error) {
	c.reads++
	return c.People.Token(ctx, id)
}

func newWorld(t *testing.T) *world {
	t.Helper()
	path := filepath.Join(t.TempDir(), "toolcrib.db")
	w := &world{counted: &counted{People: openStore(t, path, sqlite.Options{}).Access()}, path: path, now: noon()}
	p, err := standing.New(standing.Options{Source: w.counted, Now: func() time.Time { return w.now }, Capability: func(tool string) string {
		return map[string]string{"search_corpus": "rag.query@1.0"}[tool]
	}})
	if err != nil {
		t.Fatal(err)
	}
	w.people = p
	return w
}

func must(t *testing.T) func(access.Change, error) {
	return func(_ access.Change, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
}

func (w *world) add(t *testing.T, u access.User) {
	t.Helper()
	must(t)(w.AddUser(t.Context(), access.NewUser{User: u}, by))
}

// issue stores a token for a user and returns its ID.
func (w *world) issue(t *testing.T, subject string, scope access.Scope) string {
	t.Helper()
	s, err := access.NewSigner(make([]byte, 32))
	if err != nil {
		t.Fatal(err)
	}
	_, c, err := s.Issue(access.Request{By: toolcrib.Principal{User: "local:root", Admin: true}, Subject: subject, Scope: scope, Via: "cli"}, w.now)
	if err != nil {
		t.Fatal(err)
	}
	must(t)(w.AddToken(t.Context(), access.Issued{Claims: c}, by))
	return c.ID
}

func (w *world) standing(t *testing.T, who toolcrib.Principal) gate.Standing {
	t.Helper()
	s, err := w.people.Standing(t.Context(), who)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestN18_WhoeverStandsInNoDirectory(t *testing.T) {
	w := newWorld(t)
	w.err = errors.New("must not be read")
	for _, tt := range []struct{ who, want toolcrib.Principal }{
		{toolcrib.Principal{User: "local:root", Admin: true}, toolcrib.Principal{User: "local:root", Admin: true}},
		{toolcrib.Principal{User: "local:bob", Actor: "local:root"}, toolcrib.Principal{User: "local:bob", Actor: "local:root"}},
		{toolcrib.Principal{User: "anonymous", Admin: true}, toolcrib.Principal{User: "anonymous"}},
	} {
		if s := w.standing(t, tt.who); s.Refused != "" || s.Token != nil || !cmp.Equal(tt.want, s.Principal) {
			t.Errorf("%+v: %+v", tt.who, s)
		}
	}
	if _, err := w.people.Standing(t.Context(), toolcrib.Principal{User: "bob"}); err == nil {
		t.Error("a directory that cannot be read has an answer")
	}
}

func TestN18_TodaysRights(t *testing.T) {
	w := newWorld(t)
	must(t)(w.PutGroup(t.Context(), "staff", access.GroupEdit{Roles: &[]string{"editor"}, Grants: &[]string{"web_*"}}, by))
	w.add(t, access.User{Name: "bob", Groups: []string{"staff"}, Grants: []string{"read_file"}, Trust: toolcrib.TrustMember})
	said := toolcrib.Principal{User: "bob", Admin: true, Grants: nil, Actor: "local:root"} // as recorded earlier
	want := toolcrib.Principal{
		User: "bob", Roles: []string{"editor"}, Groups: []string{"staff"}, Grants: []string{"read_file", "web_*"}, Trust: toolcrib.TrustMember, Actor: "local:root",
	}
	if s := w.standing(t, said); s.Refused != "" || !cmp.Equal(want, s.Principal) {
		t.Errorf("%+v", s)
	}
	// A change takes effect with the next question.
	must(t)(w.EditUser(t.Context(), "bob", access.Edit{Grants: &[]string{}}, by))
	must(t)(w.PutGroup(t.Context(), "staff", access.GroupEdit{Disabled: new(true)}, by))
	if s := w.standing(t, said); s.Principal.Grants == nil || len(s.Principal.Grants) != 0 {
		t.Errorf("%+v", s)
	}
	yes := true
	must(t)(w.EditUser(t.Context(), "bob", access.Edit{Disabled: &yes}, by))
	w.refused(t, said, "bob is disabled")
	must(t)(w.RemoveUser(t.Context(), "bob", by))
	w.refused(t, said, "bob was removed")
}

func (w *world) refused(t *testing.T, who toolcrib.Principal, words string) {
	t.Helper()
	s := w.standing(t, who)
	if !strings.Contains(s.Refused, words) || s.Token != nil || s.Principal.Admin || s.Principal.Grants == nil || len(s.Principal.Grants) != 0 {
		t.Errorf("%+v: %+v, want refused with %q", who, s, words)
	}
}

func TestN18_NamesThatNobodyHas(t *testing.T) {
	w := newWorld(t)
	guest := toolcrib.Principal{User: "guest", Admin: true, Roles: []string{"r"}, Grants: []string{"read_*"}, Actor: "local:root"}
	want := guest
	want.Admin = false
	if s := w.standing(t, guest); s.Refused != "" || !cmp.Equal(want, s.Principal) {
		t.Errorf("%+v", s)
	}
	if s := w.standing(t, toolcrib.Principal{Admin: true}); s.Principal.Admin {
		t.Errorf("nobody is an administrator: %+v", s)
	}
	w.add(t, access.User{Name: "bob"})
	for _, name := range []string{"Bob", "b0b", "BOB"} {
		w.refused(t, toolcrib.Principal{User: name}, "mistaken for that of bob")
	}
}

// Values are cached until something changes; errors are not.
func TestN18_ReadOnce(t *testing.T) {
	w := newWorld(t)
	w.add(t, access.User{Name: "bob"})
	id := w.issue(t, "bob", access.Scope{})
	who := toolcrib.Principal{User: "bob", Token: id}
	w.standing(t, who)
	reads := w.reads
	for range 10 {
		w.standing(t, who)
		w.standing(t, toolcrib.Principal{User: "guest"})
	}
	if w.reads != reads+1 { // one read to learn that the user guest does not exist
		t.Errorf("%d reads, then %d", reads, w.reads)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	w.add(t, access.User{Name: "anna"})
	if _, err := w.people.Standing(ctx, who); err == nil {
		t.Error("a context that has ended has an answer")
	}
	if s := w.standing(t, who); s.Refused != "" || s.Token == nil {
		t.Errorf("the error before was kept: %+v", s)
	}
}

func TestM16_Tokens(t *testing.T) {
	w := newWorld(t)
	for _, name := range []string{"bob", "anna"} {
		w.add(t, access.User{Name: name, Admin: name == "anna"})
	}
	id := w.issue(t, "bob", access.Scope{})
	bob := toolcrib.Principal{User: "bob", Token: id}
	if s := w.standing(t, bob); s.Refused != "" || s.Token == nil || s.Principal.Token != id {
		t.Fatalf("%+v", s)
	}
	if s := w.standing(t, toolcrib.Principal{User: "bob"}); s.Token != nil {
		t.Errorf("without a token: %+v", s)
	}
	for _, other := range []string{"anna", "guest", "anonymous", "local:root", ""} {
		w.refused(t, toolcrib.Principal{User: other, Admin: true, Token: id}, "unauthorized: ")
	}
	w.refused(t, toolcrib.Principal{User: "bob", Token: "tok_unknown"}, "token_revoked: ")

	w.now = noon().Add(access.DefaultTTL)
	w.refused(t, bob, "token_expired: ")
	w.now = noon().Add(-time.Hour)
	w.refused(t, bob, "token_expired: ")
	w.now = noon()
	yes, no := true, false
	must(t)(w.EditUser(t.Context(), "bob", access.Edit{Disabled: &yes}, by))
	w.refused(t, bob, "disabled")
	must(t)(w.EditUser(t.Context(), "bob", access.Edit{Disabled: &no}, by))
	if s := w.standing(t, bob); s.Refused != "" {
		t.Errorf("%+v", s)
	}
	must(t)(w.RevokeToken(t.Context(), id, by))
	w.refused(t, bob, "token_revoked: ")
}

func TestM16_Bearer(t *testing.T) {
	w := newWorld(t)
	w.add(t, access.User{Name: "bob"})
	id := w.issue(t, access.Bearer, access.Scope{Tools: []string{"read_*"}})
	for _, name := range []string{"anonymous", "bob"} {
		if s := w.standing(t, toolcrib.Principal{User: name, Token: id, Admin: true}); s.Refused != "" || s.Token == nil || s.Principal.Admin || s.Principal.User != name {
			t.Errorf("%s: %+v", name, s)
		}
	}
	w.refused(t, toolcrib.Principal{Token: id}, "unauthorized: ")
}

func TestM16_TheScopeOfATokenIsAsked(t *testing.T) {
	w := newWorld(t)
	w.add(t, access.User{Name: "bob"})
	id := w.issue(t, "bob", access.Scope{
		Agents: []string{"reader"}, Tools: []string{"read_*"}, Capabilities: []string{"rag.query@1.0"},
		Params: map[string][]any{"path": {"a.txt"}}, MaxCalls: 1,
	})
	token := w.standing(t, toolcrib.Principal{User: "bob", Token: id}).Token
	a, other := json.RawMessage(`{"path":"a.txt"}`), json.RawMessage(`{"path":"b.txt"}`)
	for what, err := range map[string]error{
		"agent": token.Agent("reader"), "tool": token.Offers("reader", "read_file"), "capability": token.Offers("reader", "search_corpus"),
		"call": token.Covers("reader", "read_file", a), "room": token.Room(t.Context()), "again": token.Room(t.Context()),
	} {
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	for what, err := range map[string]error{
		"agent": token.Agent("default"), "agent of a tool": token.Offers("default", "read_file"), "tool": token.Offers("reader", "write_file"),
		"call": token.Covers("reader", "read_file", other), "no argument": token.Covers("reader", "read_file", json.RawMessage(`{}`)),
	} {
		if err == nil || !strings.HasPrefix(err.Error(), "token_scope_insufficient: ") {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := token.Take(t.Context()); err != nil {
		t.Fatal(err)
	}
	for what, err := range map[string]error{"room": token.Room(t.Context()), "take": token.Take(t.Context())} {
		var full *access.QuotaError
		if !errors.As(err, &full) || full.Bucket != access.BucketTotal {
			t.Errorf("%s: %v", what, err)
		}
	}
	// A token that expires while the turn is judged takes no place.
	w.now = noon().Add(access.DefaultTTL)
	if err := token.Take(t.Context()); err == nil || !strings.HasPrefix(err.Error(), "token_expired: ") {
		t.Error(err)
	}
}

func TestNew_Needs(t *testing.T) {
	for _, o := range []standing.Options{{}, {Source: new(sqlstore.Access)}, {Now: time.Now}} {
		if p, err := standing.New(o); err == nil {
			t.Errorf("%+v: %v", o, p)
		}
	}
}

// A change by another process takes effect within the age, a change by this
// process at once, and a new run begins with the current rights.
func TestN18_KnownForAWhile(t *testing.T) {
	w := newWorld(t)
	now := noon()
	here := openStore(t, w.path, sqlite.Options{Now: func() time.Time { return now }}).Access()
	p, err := standing.New(standing.Options{Source: here, Now: noon, Age: standing.Fresh})
	if err != nil {
		t.Fatal(err)
	}
	w.add(t, access.User{Name: "ann", Grants: []string{}})
	grant := func(by access.Users, names ...string) {
		t.Helper()
		must(t)(by.EditUser(t.Context(), "ann", access.Edit{Grants: &names}, "root"))
	}
	check := func(when string, want int) {
		t.Helper()
		s, err := p.Standing(t.Context(), toolcrib.Principal{User: "ann"})
		if err != nil {
			t.Fatal(err)
		}
		if got := len(s.Principal.Grants); got != want {
			t.Errorf("%s: %d grants, want %d", when, got, want)
		}
	}
	check("at first", 0)
	grant(w, "a")
	now = now.Add(standing.Fresh - 1)
	check("another process, just now", 0)
	now = now.Add(1)
	check("another process, a while ago", 1)
	grant(w, "a", "b")
	p.Renew()
	check("a new run", 2)
	grant(w, "a", "b", "c")
	check("another process again, just now", 2)
	grant(here, "a", "b", "c", "d")
	check("this process", 4)
}
