// Package access has the people that toolcrib acts for, and what proves that
// somebody is one of them: users, groups and their grants ([User], [Group],
// [Principal]), passwords ([Hasher]), and signed access tokens with a scope
// ([Signer], [Verifier], [Scope], [Quota]); N18, N19, H19, H21 and M16.
//
// It is pure: it opens no file and no connection. [Directory], [Tokens] and [Quota]
// are what a store implements; package toolcribtest/accesstest has the suite for each.
//
// Whatever is missing, empty or not understood refuses. No error holds a password or
// a token.
package access

import (
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/toolcrib/toolcrib"
)

// Bounds of what is kept of a user or group.
const (
	MaxTextBytes = 256 // of a display name, an address, a description
	MaxMembers   = 100 // groups, roles of one user or group
	MaxGrants    = 1000
	MaxRoleBytes = 64
)

// User is a person or a program that toolcrib acts for. A user without passwords and
// tokens can be acted for by administrators only (--as).
type User struct {
	Name    string `json:"name"`              // see [CheckName]
	Display string `json:"display,omitempty"` // how people call them
	Email   string `json:"email,omitempty"`
	Admin   bool   `json:"admin,omitempty"` // holds every right, implicitly
	// Disabled users can do nothing; lists show them. Removed users never show again
	// (N20).
	Disabled bool           `json:"disabled,omitempty"`
	Removed  bool           `json:"removed,omitempty"`
	Roles    []string       `json:"roles,omitempty"`
	Groups   []string       `json:"groups,omitempty"`
	Grants   []string       `json:"grants"` // see [CheckGrant]; null = declares none, [] = nothing
	Trust    toolcrib.Trust `json:"trust,omitempty"`

	Created   time.Time `json:"created_at"` // set by the directory, as the three below
	CreatedBy string    `json:"created_by"`
	Changed   time.Time `json:"changed_at"`
	ChangedBy string    `json:"changed_by"`
}

// Active reports whether the user may do anything at all.
func (u User) Active() bool { return u.Name != "" && !u.Disabled && !u.Removed }

// Group is a group of users. Its members have its roles and grants too.
type Group struct {
	Name        string   `json:"name"` // see [CheckName]
	Description string   `json:"description,omitempty"`
	Disabled    bool     `json:"disabled,omitempty"` // it gives nothing
	Roles       []string `json:"roles,omitempty"`
	Grants      []string `json:"grants"` // null = declares none, [] = nothing

	Changed   time.Time `json:"changed_at"` // set by the directory
	ChangedBy string    `json:"changed_by"`
}

// Check returns the user with its name in the normal form and its lists without
// repetitions, or says what is wrong. A directory calls it before it stores one.
func (u User) Check() (User, error) {
	if err := checkText("the display name", u.Display); err != nil {
		return User{}, err
	}
	if err := checkText("the address", u.Email); err != nil {
		return User{}, err
	}
	var err error
	if u.Groups, err = checkList("groups", u.Groups, MaxMembers, CheckName); err != nil {
		return User{}, err
	}
	g, err := Group{Name: u.Name, Roles: u.Roles, Grants: u.Grants}.Check()
	if err != nil {
		return User{}, err
	}
	u.Name, u.Roles, u.Grants = g.Name, g.Roles, g.Grants
	switch u.Trust {
	case toolcrib.TrustUnknown, toolcrib.TrustMember, toolcrib.TrustTrusted, toolcrib.TrustAnchor:
		return u, nil
	}
	return User{}, bad("unknown trust %+q (valid: member, trusted, anchor, or empty)", clip(string(u.Trust)))
}

// Check is [User.Check] for a group.
func (g Group) Check() (Group, error) {
	var err error
	if g.Name, err = CheckName(g.Name); err != nil {
		return Group{}, err
	}
	if err := checkText("the description", g.Description); err != nil {
		return Group{}, err
	}
	if g.Roles, err = checkList("roles", g.Roles, MaxMembers, checkRole); err != nil {
		return Group{}, err
	}
	if g.Grants, err = checkList("grants", g.Grants, MaxGrants, CheckGrant); err != nil {
		return Group{}, err
	}
	return g, nil
}

// Edit changes a user; what is nil stays as it is.
type Edit struct {
	Display  *string
	Email    *string
	Admin    *bool
	Disabled *bool
	Roles    *[]string
	Groups   *[]string
	Grants   *[]string // a pointer to nil: declares none
	Trust    *toolcrib.Trust
	// AllAgents takes the last grant of an agent away, also with a group, though the user
	// may then use every agent ([AllAgentsError]).
	AllAgents bool
}

// Apply returns the user as it is after the edit, checked.
func (e Edit) Apply(u User) (User, error) {
	set(&u.Display, e.Display)
	set(&u.Email, e.Email)
	set(&u.Admin, e.Admin)
	set(&u.Disabled, e.Disabled)
	set(&u.Roles, e.Roles)
	set(&u.Groups, e.Groups)
	set(&u.Grants, e.Grants)
	set(&u.Trust, e.Trust)
	return u.Check()
}

func set[T any](to, from *T) {
	if from != nil {
		*to = *from
	}
}

func checkText(what, text string) error {
	if len(text) > MaxTextBytes {
		return bad("%s has more than %d bytes", what, MaxTextBytes)
	}
	if !utf8.ValidString(text) || strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsGraphic(r) }) {
		return bad("%s has characters that cannot be shown", what)
	}
	return nil
}

func checkRole(role string) (string, error) {
	strange := strings.ContainsFunc(role, func(r rune) bool {
		return r >= utf8.RuneSelf || !isLetterOrDigit(byte(r)) && !strings.ContainsRune("_.-", r)
	})
	if role == "" || len(role) > MaxRoleBytes || strange {
		return "", bad("the role %+q: must have 1 to %d letters, digits, _ . or -", clip(role), MaxRoleBytes)
	}
	if word := strings.ToLower(role); word == "admin" || word == "administrator" {
		return "", bad("%q is not a role: make the user an administrator instead (users add --admin)", role)
	}
	return role, nil
}

// checkList checks each entry and drops repetitions; nil stays nil, empty empty.
func checkList(what string, list []string, limit int, check func(string) (string, error)) ([]string, error) {
	if list == nil {
		return nil, nil
	}
	if len(list) > limit {
		return nil, bad("more than %d %s", limit, what)
	}
	out := make([]string, 0, len(list))
	for _, entry := range list {
		entry, err := check(entry)
		if err != nil {
			return nil, err
		}
		if !slices.Contains(out, entry) {
			out = append(out, entry)
		}
	}
	return out, nil
}
