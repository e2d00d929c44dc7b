// Package access has the people that toolcrib acts for, and what proves that
// somebody is one of them: users, groups and their grants ([User], [Group],
// [Principal]), and signed access tokens with a scope ([Signer], [Verifier], [Scope],
// [Quota]); N18, N19, H19, H21 and M16.
//
// It is pure: it opens no file and no connection. [Directory], [Tokens] and [Quota]
// are what a store implements; package toolcribtest/accesstest has the suite for each.
//
// Whatever is missing, empty or not understood refuses. No error holds a token.
package access

import (
	"fmt"
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

// User is a person or a program that toolcrib acts for. A user without tokens can be acted for by
// administrators only (--as).
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

// Check returns the user with its lists without repetitions, or says what is wrong. A
// directory calls it before it stores one.
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
	u.Roles, u.Grants = g.Roles, g.Grants
	switch u.Trust {
	case toolcrib.TrustUnknown, toolcrib.TrustMember, toolcrib.TrustTrusted, toolcrib.TrustAnchor:
		return u, nil
	}
	return User{}, bad("unknown trust %+q (valid: member, trusted, anchor, or empty)", clip(string(u.Trust)))
}

// Check is [User.Check] for a group.
func (g Group) Check() (Group, error) {
	err := CheckName(g.Name)
	if err != nil {
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
	// may then use every agent ([CheckAgents]).
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

func checkRole(role string) error {
	strange := strings.ContainsFunc(role, func(r rune) bool {
		return r >= utf8.RuneSelf || !isLetterOrDigit(byte(r)) && !strings.ContainsRune("_.-", r)
	})
	if role == "" || len(role) > MaxRoleBytes || strange {
		return bad("the role %+q: must have 1 to %d letters, digits, _ . or -", clip(role), MaxRoleBytes)
	}
	if word := strings.ToLower(role); word == "admin" || word == "administrator" {
		return bad("%q is not a role: make the user an administrator instead (users add --admin)", role)
	}
	return nil
}

// checkList checks each entry and drops repetitions; nil stays nil, empty empty.
func checkList(what string, list []string, limit int, check func(string) error) ([]string, error) {
	if list == nil {
		return nil, nil
	}
	if len(list) > limit {
		return nil, bad("more than %d %s", limit, what)
	}
	out := make([]string, 0, len(list))
	for _, entry := range list {
		if err := check(entry); err != nil {
			return nil, err
		}
		if !slices.Contains(out, entry) {
			out = append(out, entry)
		}
	}
	return out, nil
}

const (
	maxGrantBytes = 256

	// agentGrant is the kind of the grants that name agents (gate.MayRun).
	agentGrant = "agent:"

	// NoAgents is the grant that means no agent at all: no agent can have that name. It
	// restricts like every grant of an agent does.
	NoAgents = agentGrant + "-"
)

// CheckGrant says what is wrong with a grant. A grant names a tool or a group of
// tools, or is a glob over their names (* any characters, ? one); KIND:NAME grants
// something else, such as sql:shop/public.orders (contract §11). Wildcards alone are
// refused: nobody is given everything by accident.
func CheckGrant(grant string) error {
	if grant == "" || len(grant) > maxGrantBytes {
		return bad("a grant has 1 to %d bytes", maxGrantBytes)
	}
	allowed, name := "_-*?", grant
	if kind, rest, other := strings.Cut(grant, ":"); other {
		allowed, name = "_-*?./:@", rest
		if kind == "" || strings.ContainsFunc(kind, func(r rune) bool { return r < 'a' || r > 'z' }) {
			return bad("the grant %+q: before the colon must be a kind of lower-case letters, such as sql", clip(grant))
		}
	}
	for i := range len(name) {
		if !isLetterOrDigit(name[i]) && strings.IndexByte(allowed, name[i]) < 0 {
			return bad("the grant %+q: it may have letters, digits and %s", clip(grant), allowed)
		}
	}
	if strings.Trim(name, "*?./:@") == "" {
		return bad("the grant %+q has no name in it, and would grant everything; "+
			"leave the grants out to restrict nothing, or name what is granted", clip(grant))
	}
	return nil
}

// EffectiveGrants are those that hold for a user: their own and those of their
// groups together. If neither declares any, there is no restriction (nil). A group
// that is disabled or not among groups, since it was removed, counts as one that
// declares an empty list: taking a group away never widens. One that is disabled and
// names agents continues to restrict which may be used, by a grant that means none of
// them (agent:disabled/GROUP). Grants of wildcards alone, and those that cannot be read,
// are left out.
func EffectiveGrants(u User, groups []Group) []string {
	declared, all := u.Grants != nil, slices.Clone(u.Grants)
	var none []string // grants that mean no agent
	for _, name := range u.Groups {
		g, found := groupOf(groups, name)
		if found && !g.Disabled {
			declared = declared || g.Grants != nil
			all = append(all, g.Grants...)
			continue
		}
		declared = true
		if namesAgents(g.Grants) {
			none = append(none, agentGrant+"disabled/"+name)
		}
	}
	if !declared {
		return nil
	}
	all = append(slices.DeleteFunc(all, func(grant string) bool {
		return CheckGrant(grant) != nil
	}), none...)
	slices.Sort(all)
	return append([]string{}, slices.Compact(all)...)
}

func groupOf(groups []Group, name string) (Group, bool) {
	if i := slices.IndexFunc(groups, func(g Group) bool { return g.Name == name }); i >= 0 {
		return groups[i], true
	}
	return Group{}, false
}

// Principal is the user as whom a run acts. groups are all that there are, or at
// least those of the user. Someone who is disabled or removed gets no right
// whatever, but keeps the name, for the record.
func Principal(u User, groups []Group) toolcrib.Principal {
	if !u.Active() {
		return toolcrib.Principal{User: u.Name, Grants: []string{}}
	}
	p := toolcrib.Principal{
		User: u.Name, Admin: u.Admin, Trust: u.Trust, Roles: slices.Clone(u.Roles), Grants: EffectiveGrants(u, groups),
	}
	for _, name := range u.Groups {
		if g, found := groupOf(groups, name); found && !g.Disabled {
			p.Groups = append(p.Groups, name)
			p.Roles = append(p.Roles, g.Roles...)
		}
	}
	slices.Sort(p.Roles)
	p.Roles = slices.Compact(p.Roles)
	return p
}

// GroupEdit changes a group, or makes one; what is nil stays as it is.
type GroupEdit struct {
	Description *string
	Roles       *[]string
	Grants      *[]string // a pointer to nil: declares none
	Disabled    *bool
	AllAgents   bool // as [Edit.AllAgents], of the members
}

// Apply returns the group as it is after the edit, checked.
func (e GroupEdit) Apply(g Group) (Group, error) {
	set(&g.Description, e.Description)
	set(&g.Roles, e.Roles)
	set(&g.Grants, e.Grants)
	set(&g.Disabled, e.Disabled)
	return g.Check()
}

// AllAgentsError is the cause of a conflict: a change takes away the last grant that
// names an agent, and where none does, every agent may be used (gate.MayRun).
type AllAgentsError struct{ User string }

func (e *AllAgentsError) Error() string {
	return fmt.Sprintf("%s may use only the agents that grants name; without any such grant they may use every agent. "+
		"Keep one (%s means no agent at all), or say that all agents are meant", e.User, NoAgents)
}

// CheckAgents returns a conflict if a user who might use some agents only might use
// every agent after a change of their own, or of the groups.
func CheckAgents(before, after User, groupsBefore, groupsAfter []Group) error {
	if !namesAgents(EffectiveGrants(before, groupsBefore)) || namesAgents(EffectiveGrants(after, groupsAfter)) {
		return nil
	}
	cause := &AllAgentsError{User: after.Name}
	return &toolcrib.Error{Code: toolcrib.CodeConflict, Message: cause.Error(), Err: cause}
}

func namesAgents(grants []string) bool {
	return slices.ContainsFunc(grants, func(grant string) bool { return strings.HasPrefix(grant, agentGrant) })
}
