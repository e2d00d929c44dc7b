package accesstest

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/access"
)

// group puts a group as it is.
func group(t *testing.T, d access.Directory, name string, grants ...string) {
	t.Helper()
	done(t)(d.PutGroup(t.Context(), access.NewGroup{Group: access.Group{Name: name, Grants: grants}}, by))
}

// carried checks that an error is the conflict with those who carry a group's name.
func carried(t *testing.T, err error, want access.CarriedError) {
	t.Helper()
	refused(t, err, toolcrib.CodeConflict)
	var got *access.CarriedError
	if !errors.As(err, &got) || *got != want || !errors.Is(err, toolcrib.ErrConflict) {
		t.Errorf("got %v (%+v), want %+v", err, got, want)
	}
}

// freed checks that an error is the conflict with those who could use every agent.
func freed(t *testing.T, err error, group string, users ...string) {
	t.Helper()
	refused(t, err, toolcrib.CodeConflict)
	var got *access.AllAgentsError
	if !errors.As(err, &got) || got.Group != group || !slices.Equal(got.Users, users) || got.Total != len(users) {
		t.Errorf("got %v (%+v), want that %q of group %q are named", err, got, users, group)
	}
}

// A group that was removed leaves its members with the name, and a new one of that
// name does not take them in unawares.
func carriers(t *testing.T, d access.Directory) {
	group(t, d, "staff", "read_file")
	add(t, d, access.User{Name: "anna", Groups: []string{"staff"}})
	add(t, d, access.User{Name: "bert", Groups: []string{"staff"}, Disabled: true})
	add(t, d, access.User{Name: "carl", Groups: []string{"staff"}})
	add(t, d, access.User{Name: "dora", Display: "staff", Roles: []string{"staff"}})
	done(t)(d.RemoveUser(t.Context(), "carl", by))
	if c, err := d.RemoveGroup(t.Context(), "staff", by); err != nil || c.Carriers != 2 {
		t.Fatalf("%v: %d users carry the name, want 2", err, c.Carriers)
	}
	again := access.NewGroup{Group: access.Group{Name: "staff", Grants: []string{"exec_shell"}}}
	_, err := d.PutGroup(t.Context(), again, by)
	carried(t, err, access.CarriedError{Group: "staff", Users: 2, Gone: true})
	if all, err := d.Groups(t.Context()); err != nil || len(all) != 0 {
		t.Errorf("the group was made anyway: %+v, %v", all, err)
	}
	again.Reuse = true
	if c, err := d.PutGroup(t.Context(), again, by); err != nil || c.Carriers != 2 {
		t.Errorf("%v: %d users carry the name, want 2", err, c.Carriers)
	}
	again.Reuse = false // it is there now
	if c, err := d.PutGroup(t.Context(), again, by); err != nil || c.Carriers != 2 {
		t.Errorf("%v: %d users carry the name, want 2", err, c.Carriers)
	}
}

// An edit is made from the group that is there: of many at the same time, none is lost.
func editedGroups(t *testing.T, d access.Directory) {
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			_, err := d.PutGroup(t.Context(), access.NewGroup{
				Group: access.Group{Name: "staff", Description: "no part of it"},
				Edit: func(g access.Group) access.Group {
					g.Roles = append(slices.Clone(g.Roles), fmt.Sprintf("r%d", i))
					return g
				},
			}, by)
			if err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if all, err := d.Groups(t.Context()); err != nil || len(all) != 1 || len(all[0].Roles) != 8 || all[0].Description != "" {
		t.Errorf("groups %+v, %v: want one with all roles", all, err)
	}
	for name, edit := range map[string]func(access.Group) access.Group{
		"another name": func(access.Group) access.Group { return access.Group{Name: "other", Roles: []string{"x"}} },
		"a bad role":   func(access.Group) access.Group { return access.Group{Roles: []string{"a b"}} },
	} {
		c, err := d.PutGroup(t.Context(), access.NewGroup{Group: access.Group{Name: "staff"}, Edit: edit}, by)
		if name == "a bad role" {
			refused(t, err, toolcrib.CodeBadRequest)
		} else if err != nil || c.Name != "staff" || c.Before == nil || len(c.Before.Roles) != 8 || len(c.Group.Roles) != 1 {
			t.Errorf("%s: %+v, %v", name, c, err)
		}
	}
}

// A group that restricts its members to agents cannot be removed before they are out.
func agentsGroup(t *testing.T, d access.Directory) {
	group(t, d, "readers", "agent:reader", "read_file")
	add(t, d, access.User{Name: "anna", Groups: []string{"readers"}})
	_, err := d.RemoveGroup(t.Context(), "readers", by)
	carried(t, err, access.CarriedError{Group: "readers", Users: 1})
	if all, err := d.Groups(t.Context()); err != nil || len(all) != 1 {
		t.Errorf("the group was removed anyway: %+v, %v", all, err)
	}
	done(t)(d.EditUser(t.Context(), "anna", access.Edit{Groups: &[]string{}, AllAgents: true}, by))
	done(t)(d.RemoveGroup(t.Context(), "readers", by))
}

// agentEdits are edits of a user whose grants name agents, or those of whose group do.
func agentEdits(t *testing.T, d access.Directory) {
	group(t, d, "readers", "agent:reader")
	group(t, d, "staff", "read_file")
	none, own, nothing, other := []string(nil), []string{"read_file"}, []string{access.NoAgents}, []string{"agent:writer"}
	staff, readers := []string{"staff"}, []string{"readers"}
	for _, tt := range []struct {
		name   string
		before access.User
		edit   access.Edit
		frees  bool
	}{
		{"no grants", access.User{Grants: []string{"agent:reader"}}, access.Edit{Grants: &none}, true},
		{"grants without an agent", access.User{Grants: []string{"agent:reader", "x"}}, access.Edit{Grants: &own}, true},
		{"an administrator", access.User{Admin: true, Grants: []string{"agent:reader"}}, access.Edit{Grants: &own}, true},
		{"another agent", access.User{Grants: []string{"agent:reader"}}, access.Edit{Grants: &other}, false},
		{"no agent at all", access.User{Grants: []string{"agent:reader"}}, access.Edit{Grants: &nothing}, false},
		{"none there were", access.User{Grants: []string{"x"}}, access.Edit{Grants: &none}, false},
		{"out of the group", access.User{Groups: readers}, access.Edit{Groups: &staff}, true},
		{"out of one that names none", access.User{Groups: staff}, access.Edit{Groups: &none}, false},
		{"out of the group, with one of their own", access.User{Groups: readers}, access.Edit{Groups: &none, Grants: &other}, false},
		{"the group has one too", access.User{Groups: readers, Grants: other}, access.Edit{Grants: &none}, false},
		{"something else", access.User{Groups: readers}, access.Edit{Display: new(string)}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.before.Name = "anna"
			done(t)(d.AddUser(t.Context(), access.NewUser{User: tt.before, Reuse: true}, by))
			_, err := d.EditUser(t.Context(), "anna", tt.edit, by)
			if tt.frees {
				freed(t, err, "", "anna")
				if u, err := d.User(t.Context(), "anna"); err != nil || !slices.Equal(u.Grants, tt.before.Grants) || !slices.Equal(u.Groups, tt.before.Groups) {
					t.Errorf("a refused edit changed something: %+v, %v", u, err)
				}
				tt.edit.AllAgents = true
				_, err = d.EditUser(t.Context(), "anna", tt.edit, by)
			}
			if err != nil {
				t.Error(err)
			}
			done(t)(d.RemoveUser(t.Context(), "anna", by))
		})
	}
}

// The last grant of an agent is not taken from a group whose members have no other.
func agentsOfGroups(t *testing.T, d access.Directory) {
	group(t, d, "readers", "agent:reader", "read_file")
	group(t, d, "writers", "agent:writer")
	bare := access.NewGroup{Group: access.Group{Name: "readers", Grants: []string{"read_file"}}}
	if c, err := d.PutGroup(t.Context(), bare, by); err != nil || c.Carriers != 0 {
		t.Errorf("a group without members: %v, %d members", err, c.Carriers)
	}
	group(t, d, "readers", "agent:reader", "read_file")
	add(t, d, access.User{Name: "own", Groups: []string{"readers"}, Grants: []string{"agent:x"}})
	add(t, d, access.User{Name: "both", Groups: []string{"readers", "writers"}})
	done(t)(d.PutGroup(t.Context(), bare, by))
	group(t, d, "readers", "agent:reader", "read_file")
	for i := range 7 {
		add(t, d, access.User{Name: fmt.Sprintf("user-%c", 'a'+i), Groups: []string{"readers"}, Disabled: i == 0})
	}
	_, err := d.PutGroup(t.Context(), bare, by)
	var free *access.AllAgentsError
	if !errors.As(err, &free) || free.Group != "readers" || free.Total != 7 || len(free.Users) != 5 || free.Users[0] != "user-a" {
		t.Errorf("got %v (%+v)", err, free)
	}
	off := bare
	off.Disabled = true
	_, err = d.PutGroup(t.Context(), off, by)
	refused(t, err, toolcrib.CodeConflict)
	off.Grants = []string{"agent:reader"} // it continues to restrict
	done(t)(d.PutGroup(t.Context(), off, by))
	bare.AllAgents = true
	done(t)(d.PutGroup(t.Context(), bare, by))
}

// RunGroupsRace checks that what is looked at and what is changed are one step, also
// where the changes come through two directories of the same users: a group that
// restricts its members to agents is never removed while someone joins it. (Nobody can
// join a group that is gone, so those who carry its name only become fewer.)
func RunGroupsRace(t *testing.T, one, two access.Directory) {
	t.Helper()
	for i := range 20 {
		readers, name := fmt.Sprintf("readers-%d", i), fmt.Sprintf("user-%d", i)
		group(t, one, readers, "agent:reader")
		add(t, one, access.User{Name: name})
		in := []string{readers}
		var both sync.WaitGroup
		both.Go(func() { _, _ = one.RemoveGroup(t.Context(), readers, by) })                     // one of the two
		both.Go(func() { _, _ = two.EditUser(t.Context(), name, access.Edit{Groups: &in}, by) }) // may be refused
		both.Wait()
		if is, joined := there(t, two, readers), carries(t, one, name, readers); joined != is {
			t.Errorf("the group is there: %v; somebody joined it: %v", is, joined)
		}
	}
}

func there(t *testing.T, d access.Directory, group string) bool {
	t.Helper()
	all, err := d.Groups(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(all, func(g access.Group) bool { return g.Name == group })
}

func carries(t *testing.T, d access.Directory, user, group string) bool {
	t.Helper()
	u, err := d.User(t.Context(), user)
	if err != nil {
		t.Fatal(err)
	}
	return slices.Contains(u.Groups, group)
}
