// Package directory implements list_users, list_users_raw and list_groups, which list users and groups
// for administrators. Removed users and groups are never listed, disabled ones are.
package directory

import (
	"context"
	"encoding/json"
	"iter"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/access"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/tool/internal/wire"
)

const (
	// Group is the group of the tools of this package.
	Group = "directory"

	defaultLimit = 20
	maxLimit     = 100
	maxScanned   = 100_000 // entries of the directory that are read
	maxNames     = 100     // roles, groups and grants of one entry
	maxName      = 256     // bytes
	maxBytes     = 48 << 10
)

// Directory provides the users and groups of toolcrib. Both lists are sorted by name, and read only as
// far as needed. They must not contain tokens.
type Directory interface {
	Users(ctx context.Context) iter.Seq2[access.User, error]
	Groups(ctx context.Context) iter.Seq2[UserGroup, error]
}

// UserGroup is a group of users.
type UserGroup struct {
	access.Group
	Members int  // without removed users
	Removed bool // never shown
}

// New returns list_users, list_users_raw and list_groups.
func New(d Directory) []toolcrib.Tool {
	return []toolcrib.Tool{
		&list[access.User]{
			spec: spec("list_users", "List the users of toolcrib: name, roles, groups, trust, whether they are disabled. Names of persons and addresses are shown as "+guard.Redacted+".", true),
			read: d.Users, removed: func(u access.User) bool { return u.Removed }, key: "users",
			show: func(u access.User) any { return redacted(u) },
		},
		&list[access.User]{
			spec: spec("list_users_raw", "List the users of toolcrib with all that is known of them, but for their tokens.", false),
			read: d.Users, removed: func(u access.User) bool { return u.Removed }, key: "users",
			show: func(u access.User) any { return raw(u) },
		},
		&list[UserGroup]{
			spec: spec("list_groups", "List the groups of users: name, description, roles, number of members.", true),
			read: d.Groups, removed: func(g UserGroup) bool { return g.Removed }, key: "groups",
			show: func(g UserGroup) any { return group(g) },
		},
	}
}

const parameters = `{
	"type": "object",
	"properties": {
		"limit": {"type": "integer", "minimum": 1, "description": "Most entries to return. Default 20, at most 100."},
		"offset": {"type": "integer", "minimum": 0, "description": "Entries to pass over, in the order of names. Default 0; next_offset in the result is the one to continue with, if there are more."}
	},
	"additionalProperties": false
}`

func spec(name, description string, enabled bool) toolcrib.Spec {
	return toolcrib.Spec{
		Name: name, Description: description, Parameters: json.RawMessage(parameters), Effect: toolcrib.EffectReadOnly,
		Group: Group, Source: "builtin", EnabledByDefault: enabled, RequiresAdmin: true,
	}
}

type shownUser struct {
	Name        string   `json:"name"`
	DisplayName string   `json:"display_name,omitempty"`
	Email       string   `json:"email,omitempty"`
	Admin       bool     `json:"admin"`
	Roles       []string `json:"roles,omitempty"`
	Groups      []string `json:"groups,omitempty"`
	Trust       string   `json:"trust"`
	Disabled    bool     `json:"disabled"`
	*rawUser
}

// rawUser has the fields that list_users omits.
type rawUser struct {
	Grants  []string `json:"grants"` // null means no restriction
	Created string   `json:"created,omitempty"`
}

type shownGroup struct {
	Name        string   `json:"name"`
	Description string   `json:"description,omitempty"`
	Roles       []string `json:"roles,omitempty"`
	Members     int      `json:"members"`
	Disabled    bool     `json:"disabled"`
}

// redacted replaces display name and address by a mark.
func redacted(u access.User) shownUser {
	s := raw(u)
	s.rawUser = nil
	for _, personal := range []*string{&s.DisplayName, &s.Email} {
		if *personal != "" {
			*personal = guard.Redacted
		}
	}
	return s
}

func raw(u access.User) shownUser {
	trust := string(u.Trust)
	if u.Trust == toolcrib.TrustUnknown {
		trust = "unknown"
	}
	return shownUser{
		Name: cut(u.Name), DisplayName: cut(u.Display), Email: cut(u.Email), Admin: u.Admin,
		Roles: names(u.Roles), Groups: names(u.Groups), Trust: trust, Disabled: u.Disabled,
		rawUser: &rawUser{Grants: names(u.Grants), Created: when(u.Created)},
	}
}

func group(g UserGroup) shownGroup {
	return shownGroup{
		Name: cut(g.Name), Description: cut(g.Description), Roles: names(g.Roles), Members: g.Members,
		Disabled: g.Disabled,
	}
}

func when(at time.Time) string {
	if at.IsZero() {
		return ""
	}
	return at.UTC().Format(time.RFC3339)
}

// names returns the first maxNames names, and null for null.
func names(all []string) []string {
	if all == nil {
		return nil
	}
	kept := make([]string, 0, min(len(all), maxNames+1))
	for i, name := range all {
		if i == maxNames {
			return append(kept, "…")
		}
		kept = append(kept, cut(name))
	}
	return kept
}

func cut(s string) string { return guard.Clip(s, maxName) }

// list is a tool that returns a part of a list.
type list[T any] struct {
	spec    toolcrib.Spec
	read    func(context.Context) iter.Seq2[T, error]
	removed func(T) bool
	key     string // key of the list in the result
	show    func(T) any
}

type input struct {
	Limit  int `json:"limit"`
	Offset int `json:"offset"`
}

// Spec describes the tool.
func (t *list[T]) Spec() toolcrib.Spec { return t.spec }

// Call reads the directory up to the end of the requested part.
func (t *list[T]) Call(ctx context.Context, call toolcrib.Call) (toolcrib.Output, error) {
	if err := ctx.Err(); err != nil {
		return toolcrib.Output{}, err
	}
	in := input{Limit: defaultLimit}
	if err := wire.Decode(call.Arguments, &in); err != nil {
		return toolcrib.Output{}, err
	}
	if in.Limit < 1 || in.Offset < 0 {
		return toolcrib.Output{}, toolcrib.Failf(toolcrib.InvalidArguments, "limit must be at least 1 and offset at least 0")
	}
	part, next, err := t.part(ctx, in, call.MaxBytes)
	if err != nil {
		return toolcrib.Output{}, err
	}
	result := map[string]any{t.key: part, "count": len(part)}
	if next > 0 {
		result["next_offset"] = next
	}
	out, err := wire.Output(result)
	out.Cut = next > 0
	return out, err
}

// part returns the requested entries. next is the offset of the first entry after them, or 0 if there
// are no others.
func (t *list[T]) part(ctx context.Context, in input, bound int) (part []json.RawMessage, next int, err error) {
	part, room := []json.RawMessage{}, maxBytes
	if bound > 0 {
		room = min(room, bound-128)
	}
	at, scanned := 0, 0
	for entry, err := range t.read(ctx) {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return nil, 0, err
		}
		if scanned++; scanned > maxScanned {
			break
		}
		if t.removed(entry) {
			continue
		}
		if at++; at <= in.Offset {
			continue
		}
		data, err := wire.Marshal(t.show(entry))
		if err != nil {
			return nil, 0, err
		}
		if room -= len(data) + 1; len(part) == min(in.Limit, maxLimit) || room < 0 && len(part) > 0 {
			return part, at - 1, nil
		}
		part = append(part, data)
	}
	return part, 0, nil
}
