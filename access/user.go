// Package access defines the users that toolcrib acts for and how they prove their
// identity: users, groups and their grants ([User], [Group],
// [Principal]), and signed access tokens with a scope ([Signer], [Verifier], [Scope],
// [Quota]).
//
// The package opens no file and no connection. [Directory], [Tokens] and [Quota] are
// implemented by a store; package toolcribtest/storetest tests implementations.
//
// Missing, empty and unknown values are rejected. No error contains a token.
package access

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/guard"
)

// Bounds of the fields of a user or group.
const (
	MaxTextBytes = 256 // bytes of a display name, an address or a description
	MaxMembers   = 100 // groups and roles of one user or group
	MaxGrants    = 1000
	MaxRoleBytes = 64
)

// User is a person or a program that toolcrib acts for. For a user without tokens, only
// administrators can act (--as).
type User struct {
	Name    string `json:"name"`              // see [CheckName]
	Display string `json:"display,omitempty"` // name that people see
	Email   string `json:"email,omitempty"`
	Admin   bool   `json:"admin,omitempty"` // has every right implicitly
	// Disabled users can do nothing but are listed. Removed users are not listed.
	Disabled bool           `json:"disabled,omitempty"`
	Removed  bool           `json:"removed,omitempty"`
	Roles    []string       `json:"roles,omitempty"`
	Groups   []string       `json:"groups,omitempty"`
	Grants   []string       `json:"grants"` // see [CheckGrant]; null if none are declared, [] grants nothing
	Trust    toolcrib.Trust `json:"trust,omitempty"`
	Identity *Identity      `json:"identity,omitempty"` // by which the user signs in at a provider; may be nil

	Created   time.Time `json:"created_at"` // set by the directory, as are the three fields below
	CreatedBy string    `json:"created_by"`
	Changed   time.Time `json:"changed_at"`
	ChangedBy string    `json:"changed_by"`
}

// Identity is a user at an OpenID Connect provider. A provider may reuse a name, but never a subject.
type Identity struct {
	Issuer  string `json:"issuer"`
	Subject string `json:"subject"`
}

// Active reports whether the user is neither disabled nor removed.
func (u User) Active() bool { return u.Name != "" && !u.Disabled && !u.Removed }

// Group is a group of users. Its members also have its roles and grants.
type Group struct {
	Name        string   `json:"name"` // see [CheckName]
	Description string   `json:"description,omitempty"`
	Disabled    bool     `json:"disabled,omitempty"` // grants nothing
	Roles       []string `json:"roles,omitempty"`
	Grants      []string `json:"grants"` // null if none are declared, [] grants nothing

	Changed   time.Time `json:"changed_at"` // set by the directory
	ChangedBy string    `json:"changed_by"`
}

// Check returns the user with its lists without duplicates, or an error if it is invalid. A
// directory calls it before it stores a user.
func (u User) Check() (User, error) {
	if err := checkText("the display name", u.Display); err != nil {
		return User{}, err
	}
	if err := checkText("the address", u.Email); err != nil {
		return User{}, err
	}
	if i := u.Identity; i != nil {
		if i.Issuer == "" || i.Subject == "" {
			return User{}, bad("an identity needs an issuer and a subject")
		}
		if err := errors.Join(checkText("the issuer", i.Issuer), checkText("the subject", i.Subject)); err != nil {
			return User{}, err
		}
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

// Edit changes a user; nil fields are left unchanged.
type Edit struct {
	Display  *string
	Email    *string
	Admin    *bool
	Disabled *bool
	Roles    *[]string
	Groups   *[]string
	Grants   *[]string // a pointer to nil: no grants declared
	Trust    *toolcrib.Trust
	Identity *Identity // its zero value removes the one of the user
	// AllAgents permits the removal of the last grant of an agent, also by a group, after which
	// the user may use every agent ([CheckAgents]).
	AllAgents bool
}

// Apply returns the user after the edit, checked.
func (e Edit) Apply(u User) (User, error) {
	set(&u.Display, e.Display)
	set(&u.Email, e.Email)
	set(&u.Admin, e.Admin)
	set(&u.Disabled, e.Disabled)
	set(&u.Roles, e.Roles)
	set(&u.Groups, e.Groups)
	set(&u.Grants, e.Grants)
	set(&u.Trust, e.Trust)
	if e.Identity != nil {
		if u.Identity = new(*e.Identity); *e.Identity == (Identity{}) {
			u.Identity = nil
		}
	}
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

// roleApprover is the one role that more depends on than rules (agent.RoleApprover), so that a role which is nearly it
// is a mistake.
const roleApprover = "approver"

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
	if role != roleApprover && guard.Nearest(role, []string{roleApprover}) != "" {
		return bad("unknown role %q; did you mean %q? (valid: %s, and any other name that your rules use)", role, roleApprover,
			roleApprover)
	}
	return nil
}

// checkList checks each entry and drops duplicates; nil stays nil, empty stays empty.
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

	// agentGrant is the kind of grants that name agents (gate.MayRun).
	agentGrant = "agent:"

	// NoAgents is a grant of no agent: no agent can have that name. It
	// restricts as any grant of an agent does.
	NoAgents = agentGrant + "-"
)

// CheckGrant returns an error if a grant is invalid. A grant names a tool or a group of
// tools, or is a glob over their names (* any characters, ? one); KIND:NAME grants
// something else, such as sql:shop/public.orders. Wildcards alone are rejected, so that
// everything is never granted by accident.
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

// EffectiveGrants returns the grants of a user and those of the user's groups,
// combined. If neither declares any, the result is nil, no restriction. A group that
// is disabled, or not among groups since it was removed, declares an empty
// list, so that losing a group never widens the grants. If a disabled group names agents,
// it still restricts the agents, with a grant that matches none of
// them (agent:disabled/GROUP). Grants of wildcards alone and invalid grants
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

// Principal returns the principal of runs of the user. groups are all groups, or at
// least those of the user. A disabled or removed user has no rights
// but keeps the name, for the record.
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

// GroupEdit changes a group, or makes one; nil fields are left unchanged.
type GroupEdit struct {
	Description *string
	Roles       *[]string
	Grants      *[]string // a pointer to nil: no grants declared
	Disabled    *bool
	AllAgents   bool // as [Edit.AllAgents], for the members
}

// Apply returns the group after the edit, checked.
func (e GroupEdit) Apply(g Group) (Group, error) {
	set(&g.Description, e.Description)
	set(&g.Roles, e.Roles)
	set(&g.Grants, e.Grants)
	set(&g.Disabled, e.Disabled)
	return g.Check()
}

// AllAgentsError is the cause of a conflict: a change removes the last grant that
// names an agent, and without any, every agent may be used (gate.MayRun).
type AllAgentsError struct{ User string }

func (e *AllAgentsError) Error() string {
	return fmt.Sprintf("%s may use only the agents that grants name; without any such grant they may use every agent. "+
		"Keep one (%s means no agent at all), or say that all agents are meant", e.User, NoAgents)
}

// CheckAgents returns a conflict if a user who could use only some agents could use
// every agent after a change of the user or of the groups.
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
