package directory_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/access"
	"github.com/toolcrib/toolcrib/tool/directory"
	"github.com/toolcrib/toolcrib/toolcribtest/tooltest"
)

// fake is a directory in memory.
type fake struct {
	users  []access.User
	groups []directory.UserGroup
	err    error // after the entries
}

func each[T any](all []T, err error) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for _, one := range all {
			if !yield(one, nil) {
				return
			}
		}
		if err != nil {
			var none T
			yield(none, err)
		}
	}
}

func (f fake) Users(context.Context) iter.Seq2[access.User, error] { return each(f.users, f.err) }

func (f fake) Groups(context.Context) iter.Seq2[directory.UserGroup, error] {
	return each(f.groups, f.err)
}

func tools(f fake) map[string]toolcrib.Tool {
	byName := map[string]toolcrib.Tool{}
	for _, tool := range directory.New(f) {
		byName[tool.Spec().Name] = tool
	}
	return byName
}

func people() fake {
	return fake{
		users: []access.User{
			{
				Name: "ann", Display: "Ann Example", Email: "ann@example.org", Admin: true, Roles: []string{"owner"}, Trust: toolcrib.TrustAnchor,
				Created: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
			},
			{Name: "bob", Email: "bob@example.org", Groups: []string{"staff"}, Grants: []string{"read_*", "sql:main/public.orders"}, Disabled: true},
			{Name: "cleo", Display: "Cleo", Removed: true},
			{Name: "dan", Grants: []string{}},
		},
		groups: []directory.UserGroup{
			{Group: access.Group{Name: "gone", Description: "was removed"}, Removed: true},
			{Group: access.Group{Name: "idle", Disabled: true}},
			{Group: access.Group{Name: "staff", Description: "all of us", Roles: []string{"reader"}}, Members: 1},
		},
	}
}

func TestN24_DirectoryConforms(t *testing.T) {
	for name := range tools(people()) {
		tooltest.Run(t, func() toolcrib.Tool { return tools(people())[name] }, tooltest.Cases{Calls: []tooltest.Case{
			{Name: "all", Arguments: `{}`},
			{Name: "part", Arguments: `{"limit": 1, "offset": 1}`},
			{Name: "high", Arguments: `{"limit": 9999, "offset": 9999}`},
			{Name: "limit", Arguments: `{"limit": 0}`, Invalid: true, Err: toolcrib.InvalidArguments},
			{Name: "offset", Arguments: `{"offset": -1}`, Invalid: true, Err: toolcrib.InvalidArguments},
			{Name: "unknown", Arguments: `{"name": "ann"}`, Invalid: true},
		}})
	}
}

func run(t *testing.T, tool toolcrib.Tool, arguments string) string {
	t.Helper()
	out, err := tool.Call(t.Context(), toolcrib.Call{Arguments: json.RawMessage(arguments)})
	if err != nil {
		t.Fatal(err)
	}
	return string(out.JSON)
}

// Removed users never show, disabled ones do (N20).
func TestN20_Directory(t *testing.T) {
	all := tools(people())
	for name, want := range map[string]string{
		"list_users": `{"count":3,"users":[{"name":"ann","display_name":"***redacted***","email":"***redacted***","admin":true,"roles":["owner"],"trust":"anchor","disabled":false},` +
			`{"name":"bob","email":"***redacted***","admin":false,"groups":["staff"],"trust":"unknown","disabled":true},{"name":"dan","admin":false,"trust":"unknown","disabled":false}]}`,
		"list_users_raw": `{"count":3,"users":[{"name":"ann","display_name":"Ann Example","email":"ann@example.org","admin":true,"roles":["owner"],"trust":"anchor","disabled":false,"grants":null,"created":"2026-01-02T03:04:05Z"},` +
			`{"name":"bob","email":"bob@example.org","admin":false,"groups":["staff"],"trust":"unknown","disabled":true,"grants":["read_*","sql:main/public.orders"]},{"name":"dan","admin":false,"trust":"unknown","disabled":false,"grants":[]}]}`,
		"list_groups": `{"count":2,"groups":[{"name":"idle","members":0,"disabled":true},{"name":"staff","description":"all of us","roles":["reader"],"members":1,"disabled":false}]}`,
	} {
		if got := run(t, all[name], `{}`); got != want {
			t.Errorf("%s:\n got %s\nwant %s", name, got, want)
		}
		spec := all[name].Spec()
		if spec.EnabledByDefault != (name != "list_users_raw") || !spec.RequiresAdmin || spec.Effect.Writes() {
			t.Errorf("spec %+v", spec)
		}
	}
}

func TestN24_DirectoryBounds(t *testing.T) {
	f := fake{}
	for i := range 500 {
		f.users = append(f.users, access.User{Name: fmt.Sprintf("u%03d", i), Removed: i%5 == 0})
	}
	type page struct {
		Users []struct{ Name string }
		Count int
		Next  int `json:"next_offset"`
	}
	var got page
	if err := json.Unmarshal([]byte(run(t, tools(f)["list_users"], `{"limit": 9999}`)), &got); err != nil || got.Count != 100 || len(got.Users) != 100 || got.Next != 100 {
		t.Errorf("limit 9999: %d users, next %d", got.Count, got.Next)
	}
	got = page{}
	if err := json.Unmarshal([]byte(run(t, tools(f)["list_users"], `{"offset": 395}`)), &got); err != nil || got.Count != 5 || got.Next != 0 || got.Users[4].Name != "u499" {
		t.Errorf("the last: %+v", got)
	}
	long := strings.Repeat("é", 5000)
	many := slices.Repeat([]string{long}, 500)
	f = fake{users: slices.Repeat([]access.User{{Name: long, Display: long, Email: long, Roles: many, Groups: many, Grants: many}}, 50)}
	if got := run(t, tools(f)["list_users_raw"], `{"limit": 50}`); len(got) > 100<<10 {
		t.Errorf("%d bytes", len(got))
	}
	f = fake{err: errors.New("postgres://u:hunter2@h is away")}
	_, err := tools(f)["list_users"].Call(t.Context(), toolcrib.Call{Arguments: json.RawMessage(`{}`)})
	if made := (*toolcrib.ToolError)(nil); err == nil || errors.As(err, &made) {
		t.Errorf("the operator's error is shown to the model: %v", err)
	}
}

// Whatever limits are asked for, all pages together show everybody who was not
// removed, once.
func TestN20_DirectoryPages(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		f, want := fake{}, []string{}
		for i := range rapid.IntRange(0, 60).Draw(r, "users") {
			u := access.User{Name: fmt.Sprintf("u%02d", i), Removed: rapid.Bool().Draw(r, "removed"), Disabled: rapid.Bool().Draw(r, "disabled"), Email: "x@y"}
			if f.users = append(f.users, u); !u.Removed {
				want = append(want, u.Name)
			}
		}
		list, got := tools(f)["list_users"], []string{}
		for offset := 0; ; {
			limit, bound := rapid.IntRange(1, 200).Draw(r, "limit"), rapid.IntRange(0, 4000).Draw(r, "bound")
			out, err := list.Call(t.Context(), toolcrib.Call{Arguments: fmt.Appendf(nil, `{"limit": %d, "offset": %d}`, limit, offset), MaxBytes: bound})
			if err != nil {
				r.Fatal(err)
			}
			var page struct {
				Users []struct{ Name string }
				Next  int `json:"next_offset"`
			}
			if err := json.Unmarshal(out.JSON, &page); err != nil {
				r.Fatal(err)
			}
			for _, u := range page.Users {
				got = append(got, u.Name)
			}
			if page.Next == 0 {
				break
			}
			if page.Next <= offset {
				r.Fatalf("next_offset %d after %d", page.Next, offset)
			}
			offset = page.Next
		}
		if !slices.Equal(got, want) {
			r.Fatalf("got %v, want %v", got, want)
		}
	})
}
