package access_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/access"
	"github.com/toolcrib/toolcrib/gate"
)

func TestN18_CheckGrant(t *testing.T) {
	for _, grant := range []string{"read_file", "read_*", "files", "?ead_file", "sql:shop/public.orders", "sql:shop/*", "github__*"} {
		if err := access.CheckGrant(grant); err != nil {
			t.Errorf("%q: %v", grant, err)
		}
	}
	for _, grant := range []string{"", "*", "**", "?", "?*", "sql:", "sql:*", "sql:*/*.*", ":x", "SQL:x", "a b", "a/b", "a;b", "ä", "[a-z]*", "!x", strings.Repeat("a", 257)} {
		refused(t, fmt.Sprintf("%q", grant), access.CheckGrant(grant), toolcrib.CodeBadRequest)
	}
}

// The grants are the union of those that the user and the groups declare, as N15 requires of skills. If none
// declares any, there is no restriction.
func TestN18_EffectiveGrants(t *testing.T) {
	group := func(name string, grants []string) access.Group { return access.Group{Name: name, Grants: grants} }
	off := group("off", []string{"x"})
	off.Disabled = true
	agents := group("agents", []string{"agent:reader", "x"})
	agents.Disabled = true
	groups := []access.Group{agents, group("none", nil), group("empty", []string{}), group("read", []string{"read_*"}), group("write", []string{"write_*", "read_*"}), group("wild", []string{"*"}), off}
	for _, tt := range []struct {
		own, in, want []string
	}{
		{nil, nil, nil},
		{nil, []string{"none"}, nil},
		{[]string{}, nil, []string{}},
		{[]string{}, []string{"none"}, []string{}},
		{nil, []string{"empty"}, []string{}},
		{nil, []string{"read"}, []string{"read_*"}},
		{nil, []string{"none", "read", "write"}, []string{"read_*", "write_*"}},
		{[]string{"a"}, []string{"read"}, []string{"a", "read_*"}},
		{[]string{"a"}, []string{"empty"}, []string{"a"}},
		{[]string{"*"}, nil, []string{}},
		{nil, []string{"wild"}, []string{}},
		{nil, []string{"removed"}, []string{}},
		{[]string{"a"}, []string{"removed"}, []string{"a"}},
		{nil, []string{"off"}, []string{}},
		{nil, []string{"none", "off"}, []string{}},
		{[]string{"a"}, []string{"agents"}, []string{"a", "agent:disabled/agents"}}, // the group permits its members no other agents
	} {
		u := access.User{Name: "anna", Grants: tt.own, Groups: tt.in}
		got := access.EffectiveGrants(u, groups)
		if !slices.Equal(got, tt.want) || (got == nil) != (tt.want == nil) {
			t.Errorf("own %#v in %q: %#v, want %#v", tt.own, tt.in, got, tt.want)
		}
	}
}

func TestN18_Principal(t *testing.T) {
	groups := []access.Group{{Name: "staff", Roles: []string{"editor", "reader"}, Grants: []string{"read_*"}}, {Name: "off", Disabled: true, Roles: []string{"boss"}}}
	u := access.User{Name: "anna", Admin: true, Roles: []string{"reader"}, Groups: []string{"staff", "off", "gone"}, Trust: toolcrib.TrustMember}
	got := access.Principal(u, groups)
	if want := (toolcrib.Principal{User: "anna", Admin: true, Roles: []string{"editor", "reader"}, Groups: []string{"staff"}, Grants: []string{"read_*"}, Trust: toolcrib.TrustMember}); fmt.Sprintf("%#v", got) != fmt.Sprintf("%#v", want) {
		t.Errorf("got %#v, want %#v", got, want)
	}
	disabled, removed := u, u
	disabled.Disabled, removed.Removed = true, true
	for _, u := range []access.User{disabled, removed, {}} {
		if got := access.Principal(u, groups); got.Admin || got.Grants == nil || len(got.Grants) != 0 || got.Trust != "" || got.Roles != nil || got.Groups != nil {
			t.Errorf("%+v may do something: %#v", u, got)
		}
	}
}

// The gate with a principal of the directory: losing a group, or disabling one, never adds a tool, and a disabled
// user has none. Adding an empty declaration never widens.
func TestN18_TakingAwayNeverWidens(t *testing.T) {
	layers := gate.Layers()
	may := func(p toolcrib.Principal, tool string) bool {
		q := gate.Query{Name: tool, Spec: &toolcrib.Spec{Name: tool, Group: "files"}, Who: &p, Scope: &gate.Scope{}}
		for _, l := range layers {
			if l.Reason() == toolcrib.ReasonNotPermitted {
				return l.Judge(&q).Allowed
			}
		}
		t.Fatal("the gate has no layer of grants")
		return false
	}
	tools := []string{"read_file", "write_file", "exec_shell"}
	grants := rapid.OneOf(rapid.Just([]string(nil)), rapid.SliceOfN(rapid.SampledFrom([]string{"read_*", "write_file", "files", "*", "??", "exec_shell", "sql:a/b"}), 0, 3))
	rapid.Check(t, func(r *rapid.T) {
		var groups []access.Group
		u := access.User{Name: "anna", Grants: grants.Draw(r, "own"), Admin: rapid.IntRange(0, 9).Draw(r, "admin") == 0}
		for i := range rapid.IntRange(1, 3).Draw(r, "groups") {
			groups = append(groups, access.Group{Name: fmt.Sprint("g", i), Grants: grants.Draw(r, "group")})
			u.Groups = append(u.Groups, groups[i].Name)
		}
		before := access.Principal(u, groups)
		i := rapid.IntRange(0, len(groups)-1).Draw(r, "which")
		gone := slices.Delete(slices.Clone(groups), i, i+1)
		off := slices.Clone(groups)
		off[i].Disabled = true
		inactive := u
		inactive.Disabled = true
		for _, tool := range tools {
			for what, after := range map[string]toolcrib.Principal{"removed": access.Principal(u, gone), "disabled": access.Principal(u, off)} {
				if may(after, tool) && !may(before, tool) {
					r.Fatalf("with its group %s, %+v may use %s", what, u, tool)
				}
			}
			if may(access.Principal(inactive, groups), tool) {
				r.Fatalf("disabled, %+v may use %s", u, tool)
			}
		}
	})
}
