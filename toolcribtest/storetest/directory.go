package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/access"
)

// directory tests a directory. open returns an empty one, which the test's cleanup closes.
func directory(t *testing.T, open func(t *testing.T) access.Directory) {
	t.Helper()
	for name, test := range map[string]func(*testing.T, access.Directory){
		"a user is kept as added":                       keepsUsers,
		"nil and empty lists stay apart":                keepsNil,
		"the same user twice, and look-alikes":          lookalikes,
		"whom a name means":                             alike,
		"bad users are refused":                         badUsers,
		"an edit changes what it names":                 edits,
		"a disabled user shows, a removed one never":    removes,
		"the name of a removed user is not just reused": reuses,
		"pages":                            pages,
		"groups":                           groups,
		"a group with members stays":       members,
		"N18 the last grant of an agent":   agentEdits,
		"N18 the last one of a group":      agentsOfGroups,
		"a group is edited as it is":       editedGroups,
		"whoever makes a change is known":  knowsWho,
		"a context that has ended":         ended,
		"of many who add a name, one wins": oneWins,
	} {
		t.Run(name, func(t *testing.T) { test(t, open(t)) })
	}
	t.Run("N18 groups, both at once", func(t *testing.T) {
		d := open(t)
		groupsRace(t, d, d)
	})
}

func addUser(t *testing.T, d access.Directory, u access.User) access.User {
	t.Helper()
	c, err := d.AddUser(t.Context(), access.NewUser{User: u}, by)
	if err != nil {
		t.Fatal(err)
	}
	if c.User == nil {
		t.Fatalf("the change tells no user: %+v", c)
	}
	return *c.User
}

// check compares the parts that every change has.
func check(t *testing.T, c access.Change, kind toolcrib.Kind, name string) {
	t.Helper()
	if c.Kind != kind || c.Name != name || c.By != by || c.At.IsZero() || c.At.Nanosecond()%1000 != 0 {
		t.Errorf("the change is %+v, want %s of %s by %s at some time in whole microseconds", c, kind, name, by)
	}
}

func keepsUsers(t *testing.T, d access.Directory) {
	changed(t)(d.PutGroup(t.Context(), "staff", access.GroupEdit{}, by))
	want := access.User{
		Name: "Juergen", Display: "Jürgen M.", Email: "j@example.com", Admin: true, Roles: []string{"editor", "editor"},
		Groups: []string{"staff"}, Grants: []string{"read_*", "sql:shop/public.*"}, Trust: toolcrib.TrustTrusted,
		Created: epoch, ChangedBy: "somebody", Removed: true,
	}
	c, err := d.AddUser(t.Context(), access.NewUser{User: want}, by)
	if err != nil {
		t.Fatal(err)
	}
	check(t, c, access.UserAdded, "Juergen")
	want.Roles, want.Removed = []string{"editor"}, false
	want.Created, want.CreatedBy, want.Changed, want.ChangedBy = c.At, by, c.At, by
	got, err := d.User(t.Context(), "Juergen")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the user is not as added (-want +got):\n%s", diff)
	}
	if c.User == nil || !cmp.Equal(*c.User, got) {
		t.Errorf("the change tells %+v", c.User)
	}
	_, err = d.User(t.Context(), "juergen")
	refused(t, err, toolcrib.CodeNotFound)
}

func keepsNil(t *testing.T, d access.Directory) {
	for name, grants := range map[string][]string{"none": nil, "empty": {}} {
		addUser(t, d, access.User{Name: name, Grants: grants})
		u, err := d.User(t.Context(), name)
		if err != nil || (u.Grants == nil) != (grants == nil) || len(u.Grants) != 0 {
			t.Errorf("%s grants are read as %#v, %v", name, u.Grants, err)
		}
		changed(t)(d.PutGroup(t.Context(), "g"+name, access.GroupEdit{Grants: &grants}, by))
	}
	all, err := d.Groups(t.Context())
	if err != nil || len(all) != 2 || all[0].Grants == nil || all[1].Grants != nil {
		t.Errorf("groups %+v, %v: want gempty with [] and gnone with nil", all, err)
	}
	var none []string
	changed(t)(d.EditUser(t.Context(), "empty", access.Edit{Grants: &none}, by))
	if u, err := d.User(t.Context(), "empty"); err != nil || u.Grants != nil {
		t.Errorf("edited to %#v, %v", u.Grants, err)
	}
}

func lookalikes(t *testing.T, d access.Directory) {
	for _, pair := range [][2]string{
		{"root", "rооt"}, // two Cyrillic letters
		{"anna", "Anna"},
		{"berta", "berta"},
		{"Ivan", "lvan"},    // a capital i and a small L
		{"modern", "modem"}, // rn and m
		{"bob", "b0b"},
	} {
		addUser(t, d, access.User{Name: pair[0]})
		if _, err := d.AddUser(t.Context(), access.NewUser{User: access.User{Name: pair[1]}, Reuse: true}, by); err == nil {
			t.Errorf("%+q was added beside %+q", pair[1], pair[0])
		}
	}
}

func alike(t *testing.T, d access.Directory) {
	addUser(t, d, access.User{Name: "bob", Admin: true})
	addUser(t, d, access.User{Name: "modern"})
	changed(t)(d.RemoveUser(t.Context(), "modern", by))
	for _, tt := range []struct {
		name, want string
		removed    bool
	}{
		{"bob", "bob", false},
		{"Bob", "bob", false},
		{"b0b", "bob", false},
		{"modern", "modern", true},
		{"modem", "modern", true},
	} {
		if u, err := d.Alike(t.Context(), tt.name); err != nil || u.Name != tt.want || u.Removed != tt.removed {
			t.Errorf("%q means %q, removed %v, %v; want %q, removed %v", tt.name, u.Name, u.Removed, err, tt.want, tt.removed)
		}
	}
	_, err := d.Alike(t.Context(), "anna")
	refused(t, err, toolcrib.CodeNotFound)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := d.Alike(ctx, "bob"); err == nil {
		t.Error("a context that has ended: it was told")
	}
}

func badUsers(t *testing.T, d access.Directory) {
	for _, u := range []access.User{
		{Name: "a/b"},
		{Name: "x", Grants: []string{"*"}},
		{Name: "x", Display: "a\x1b[2J"},
	} {
		_, err := d.AddUser(t.Context(), access.NewUser{User: u}, by)
		refused(t, err, toolcrib.CodeBadRequest)
	}
	_, err := d.AddUser(t.Context(), access.NewUser{User: access.User{Name: "x", Groups: []string{"none"}}}, by)
	refused(t, err, toolcrib.CodeNotFound)
	if all, err := d.Users(t.Context(), "", 0); err != nil || len(all) != 0 {
		t.Errorf("something was added: %v, %v", all, err)
	}
}

func edits(t *testing.T, d access.Directory) {
	before := addUser(t, d, access.User{Name: "anna", Display: "A", Roles: []string{"x"}, Grants: []string{"a"}})
	display, grants := "B", []string{"read_file"}
	c, err := d.EditUser(t.Context(), "anna", access.Edit{Display: &display, Grants: &grants}, by)
	if err != nil {
		t.Fatal(err)
	}
	check(t, c, access.UserChanged, "anna")
	want := before
	want.Display, want.Grants, want.Changed = "B", grants, c.At
	if got, err := d.User(t.Context(), "anna"); err != nil || !cmp.Equal(want, got) {
		t.Errorf("%v (-want +got):\n%s", err, cmp.Diff(want, got))
	}
	bad, missing := []string{"**"}, []string{"none"}
	_, err = d.EditUser(t.Context(), "anna", access.Edit{Grants: &bad}, by)
	refused(t, err, toolcrib.CodeBadRequest)
	_, err = d.EditUser(t.Context(), "anna", access.Edit{Groups: &missing}, by)
	refused(t, err, toolcrib.CodeNotFound)
	_, err = d.EditUser(t.Context(), "bert", access.Edit{}, by)
	refused(t, err, toolcrib.CodeNotFound)
	if got, err := d.User(t.Context(), "anna"); err != nil || !cmp.Equal(want, got) {
		t.Errorf("a refused edit changed something: %v %+v", err, got)
	}
}

func removes(t *testing.T, d access.Directory) {
	addUser(t, d, access.User{Name: "anna"})
	addUser(t, d, access.User{Name: "bert"})
	yes := true
	changed(t)(d.EditUser(t.Context(), "anna", access.Edit{Disabled: &yes}, by))
	c, err := d.RemoveUser(t.Context(), "bert", by)
	if err != nil {
		t.Fatal(err)
	}
	check(t, c, access.UserRemoved, "bert")
	all, err := d.Users(t.Context(), "", 0)
	if err != nil || len(all) != 1 || all[0].Name != "anna" || !all[0].Disabled {
		t.Errorf("users %+v, %v: want anna alone, disabled", all, err)
	}
	_, err = d.User(t.Context(), "bert")
	refused(t, err, toolcrib.CodeNotFound)
	_, err = d.RemoveUser(t.Context(), "bert", by)
	refused(t, err, toolcrib.CodeNotFound)
	_, err = d.EditUser(t.Context(), "bert", access.Edit{}, by)
	refused(t, err, toolcrib.CodeNotFound)
}

func reuses(t *testing.T, d access.Directory) {
	addUser(t, d, access.User{Name: "anna", Admin: true, Grants: []string{"a"}})
	changed(t)(d.RemoveUser(t.Context(), "anna", by))
	for _, n := range []access.NewUser{
		{User: access.User{Name: "anna"}},
		{User: access.User{Name: "Anna"}, Reuse: true}, // a different name that looks like it
	} {
		_, err := d.AddUser(t.Context(), n, by)
		refused(t, err, toolcrib.CodeConflict)
	}
	changed(t)(d.AddUser(t.Context(), access.NewUser{User: access.User{Name: "anna"}, Reuse: true}, by))
	if u, err := d.User(t.Context(), "anna"); err != nil || u.Admin || u.Grants != nil {
		t.Errorf("the new user has rights of the old one: %+v, %v", u, err)
	}
}

func pages(t *testing.T, d access.Directory) {
	var want []string
	for _, i := range []int{4, 0, 2, 1, 3} {
		addUser(t, d, access.User{Name: fmt.Sprintf("user-%c", 'a'+i)})
		want = append(want, fmt.Sprintf("user-%c", 'a'+i))
	}
	slices.Sort(want)
	var got []string
	for after := ""; ; after = got[len(got)-1] {
		page, err := d.Users(t.Context(), after, 2)
		if err != nil {
			t.Fatal(err)
		}
		if len(page) > 2 {
			t.Fatalf("a page has %d users", len(page))
		}
		if len(page) == 0 {
			break
		}
		for _, u := range page {
			got = append(got, u.Name)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func groups(t *testing.T, d access.Directory) {
	c, err := d.PutGroup(t.Context(), "staff",
		access.GroupEdit{Description: new("all"), Roles: &[]string{"r"}, Grants: &[]string{"read_*"}}, by)
	if err != nil {
		t.Fatal(err)
	}
	check(t, c, access.GroupPut, "staff")
	if c.Group == nil || !slices.Equal(c.Group.Grants, []string{"read_*"}) {
		t.Errorf("the change tells %+v", c.Group)
	}
	_, err = d.PutGroup(t.Context(), "Staff", access.GroupEdit{}, by)
	refused(t, err, toolcrib.CodeConflict)
	_, err = d.PutGroup(t.Context(), "x", access.GroupEdit{Grants: &[]string{"?*"}}, by)
	refused(t, err, toolcrib.CodeBadRequest)
	c, err = d.PutGroup(t.Context(), "staff", access.GroupEdit{Grants: &[]string{"a"}, Disabled: new(true)}, by)
	if err != nil {
		t.Fatal(err)
	}
	want := []access.Group{{
		Name: "staff", Description: "all", Disabled: true, Roles: []string{"r"}, Grants: []string{"a"},
		Changed: c.At, ChangedBy: by,
	}}
	if all, err := d.Groups(t.Context()); err != nil || !cmp.Equal(want, all) {
		t.Errorf("%v (-want +got):\n%s", err, cmp.Diff(want, all))
	}
	if c, err = d.RemoveGroup(t.Context(), "staff", by); err != nil {
		t.Fatal(err)
	}
	check(t, c, access.GroupRemoved, "staff")
	_, err = d.RemoveGroup(t.Context(), "staff", by)
	refused(t, err, toolcrib.CodeNotFound)
}

func knowsWho(t *testing.T, d access.Directory) {
	_, err := d.AddUser(t.Context(), access.NewUser{User: access.User{Name: "anna"}}, "")
	refused(t, err, toolcrib.CodeBadRequest)
	_, err = d.PutGroup(t.Context(), "g", access.GroupEdit{}, "")
	refused(t, err, toolcrib.CodeBadRequest)
	if all, err := d.Users(t.Context(), "", 0); err != nil || len(all) != 0 {
		t.Errorf("it was added anyway: %v, %v", all, err)
	}
}

func ended(t *testing.T, d access.Directory) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := d.AddUser(ctx, access.NewUser{User: access.User{Name: "anna"}}, by); err == nil {
		t.Error("a user was added")
	}
	if _, err := d.Users(ctx, "", 0); err == nil {
		t.Error("users were listed")
	}
}

func oneWins(t *testing.T, d access.Directory) {
	names := []string{"anna", "Anna", "ANNA", "anna", "aNna", "ann4", "annA", "aNNa"}
	var all sync.WaitGroup
	won := make([]bool, len(names))
	for i, name := range names {
		all.Go(func() {
			_, err := d.AddUser(t.Context(), access.NewUser{User: access.User{Name: name}}, by)
			won[i] = err == nil
		})
	}
	all.Wait()
	n := 0
	for i, ok := range won {
		if ok && names[i] != "ann4" {
			n++
		}
	}
	if n != 1 {
		t.Errorf("%d of %q were added", n, names)
	}
}

const by = "local:tester"

// refused checks that an error is a refusal with the code.
func refused(t *testing.T, err error, code toolcrib.Code) {
	t.Helper()
	var e *toolcrib.Error
	if !errors.As(err, &e) || e.Code != code || e.Message == "" {
		t.Errorf("got %v, want a refusal with %s", err, code)
	}
}

// changed fails the test if a change was not made.
func changed(t *testing.T) func(access.Change, error) {
	return func(_ access.Change, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
}
