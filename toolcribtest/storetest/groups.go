package storetest

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/access"
)

// group adds a group with these grants.
func group(t *testing.T, d access.Directory, name string, grants ...string) {
	t.Helper()
	changed(t)(d.PutGroup(t.Context(), name, access.GroupEdit{Grants: &grants}, by))
}

// freed checks that an error is the conflict about a user who could use every agent.
func freed(t *testing.T, err error, user string) {
	t.Helper()
	refused(t, err, toolcrib.CodeConflict)
	var got *access.AllAgentsError
	if !errors.As(err, &got) || got.User != user || !errors.Is(err, toolcrib.ErrConflict) {
		t.Errorf("got %v (%+v), want that %s is named", err, got, user)
	}
}

// members tests that a group with members cannot be removed.
func members(t *testing.T, d access.Directory) {
	group(t, d, "staff", "read_file")
	addUser(t, d, access.User{Name: "anna", Groups: []string{"staff"}, Disabled: true})
	addUser(t, d, access.User{Name: "carl", Groups: []string{"staff"}})
	addUser(t, d, access.User{Name: "dora", Display: "staff", Roles: []string{"staff"}})
	changed(t)(d.RemoveUser(t.Context(), "carl", by))
	_, err := d.RemoveGroup(t.Context(), "staff", by)
	refused(t, err, toolcrib.CodeConflict)
	if c, err := d.PutGroup(t.Context(), "staff", access.GroupEdit{}, by); err != nil || c.Members != 1 || c.New {
		t.Errorf("%v: %+v, want a known group of 1 member", err, c)
	}
	changed(t)(d.EditUser(t.Context(), "anna", access.Edit{Groups: &[]string{}}, by))
	changed(t)(d.RemoveGroup(t.Context(), "staff", by))
	if c, err := d.PutGroup(t.Context(), "staff", access.GroupEdit{}, by); err != nil || c.Members != 0 || !c.New {
		t.Errorf("%v: %+v, want a new group without members", err, c)
	}
}

// editedGroups tests that edits apply to the current group: concurrent edits are not lost.
func editedGroups(t *testing.T, d access.Directory) {
	edits := []access.GroupEdit{
		{Description: new("all")}, {Roles: &[]string{"r"}}, {Grants: &[]string{"read_file"}}, {Disabled: new(true)},
	}
	var all sync.WaitGroup
	for _, e := range edits {
		all.Go(func() {
			if _, err := d.PutGroup(t.Context(), "staff", e, by); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	_, err := d.PutGroup(t.Context(), "staff", access.GroupEdit{Roles: &[]string{"a b"}}, by)
	refused(t, err, toolcrib.CodeBadRequest)
	kept, err := d.Groups(t.Context())
	if err != nil || len(kept) != 1 || kept[0].Description != "all" || len(kept[0].Roles) != 1 ||
		len(kept[0].Grants) != 1 || !kept[0].Disabled {
		t.Errorf("groups %+v, %v: want one with all edits", kept, err)
	}
}

// agentEdits are edits of a user with grants for agents, directly or by a group.
func agentEdits(t *testing.T, d access.Directory) {
	group(t, d, "readers", "agent:reader")
	group(t, d, "staff", "read_file")
	none, nothing, other := []string(nil), []string{access.NoAgents}, []string{"agent:writer"}
	staff, readers := []string{"staff"}, []string{"readers"}
	for _, tt := range []struct {
		name   string
		before access.User
		edit   access.Edit
		frees  bool
	}{
		{"no grants", access.User{Grants: []string{"agent:reader"}}, access.Edit{Grants: &none}, true},
		{"no agent at all", access.User{Grants: []string{"agent:reader"}}, access.Edit{Grants: &nothing}, false},
		{"out of the group", access.User{Groups: readers}, access.Edit{Groups: &staff}, true},
		{
			"out of the group, with one of their own",
			access.User{Groups: readers},
			access.Edit{Groups: &none, Grants: &other},
			false,
		},
		{"the group has one too", access.User{Groups: readers, Grants: other}, access.Edit{Grants: &none}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.before.Name = "anna"
			changed(t)(d.AddUser(t.Context(), access.NewUser{User: tt.before, Reuse: true}, by))
			_, err := d.EditUser(t.Context(), "anna", tt.edit, by)
			if tt.frees {
				freed(t, err, "anna")
				if u, err := d.User(t.Context(), "anna"); err != nil || !slices.Equal(u.Grants, tt.before.Grants) ||
					!slices.Equal(u.Groups, tt.before.Groups) {
					t.Errorf("a refused edit changed something: %+v, %v", u, err)
				}
				tt.edit.AllAgents = true
				_, err = d.EditUser(t.Context(), "anna", tt.edit, by)
			}
			if err != nil {
				t.Error(err)
			}
			changed(t)(d.RemoveUser(t.Context(), "anna", by))
		})
	}
}

// agentsOfGroups tests that the last grant of an agent cannot be removed from a group whose members have no other.
func agentsOfGroups(t *testing.T, d access.Directory) {
	group(t, d, "readers", "agent:reader", "read_file")
	group(t, d, "writers", "agent:writer")
	group(t, d, "readers", "read_file") // it has no members
	group(t, d, "readers", "agent:reader", "read_file")
	addUser(t, d, access.User{Name: "own", Groups: []string{"readers"}, Grants: []string{"agent:x"}})
	addUser(t, d, access.User{Name: "both", Groups: []string{"readers", "writers"}})
	group(t, d, "readers", "read_file")
	group(t, d, "readers", "agent:reader", "read_file")
	addUser(t, d, access.User{Name: "user", Groups: []string{"readers"}, Disabled: true})
	bare := access.GroupEdit{Grants: &[]string{"read_file"}}
	_, err := d.PutGroup(t.Context(), "readers", bare, by)
	freed(t, err, "user")
	_, err = d.PutGroup(t.Context(), "readers", access.GroupEdit{Grants: bare.Grants, Disabled: new(true)}, by)
	freed(t, err, "user")
	changed(t)(d.PutGroup(t.Context(), "readers", access.GroupEdit{Disabled: new(true)}, by)) // it still restricts
	bare.AllAgents = true
	changed(t)(d.PutGroup(t.Context(), "readers", bare, by))
}

// groupsRace tests that checks and changes are atomic, also if the changes are made through two
// directories of the same users: a group is never removed while a user joins it.
func groupsRace(t *testing.T, one, two access.Directory) {
	t.Helper()
	for i := range 20 {
		readers, name := fmt.Sprintf("readers-%d", i), fmt.Sprintf("user-%d", i)
		group(t, one, readers, "agent:reader")
		addUser(t, one, access.User{Name: name})
		in := []string{readers}
		var both sync.WaitGroup
		// one of the two succeeds
		both.Go(func() { _, _ = one.RemoveGroup(t.Context(), readers, by) })
		both.Go(func() { _, _ = two.EditUser(t.Context(), name, access.Edit{Groups: &in}, by) }) // may be refused
		both.Wait()
		all, err := two.Groups(t.Context())
		u, err2 := one.User(t.Context(), name)
		is := slices.ContainsFunc(all, func(g access.Group) bool { return g.Name == readers })
		if joined := slices.Contains(u.Groups, readers); joined != is || err != nil || err2 != nil {
			t.Errorf("the group is there: %v; somebody joined it: %v; %v, %v", is, joined, err, err2)
		}
	}
}
