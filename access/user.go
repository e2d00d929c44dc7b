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
func CheckGrant(grant string) (string, error) {
	if grant == "" || len(grant) > maxGrantBytes {
		return "", bad("a grant has 1 to %d bytes", maxGrantBytes)
	}
	allowed, name := "_-*?", grant
	if kind, rest, other := strings.Cut(grant, ":"); other {
		allowed, name = "_-*?./:@", rest
		if kind == "" || strings.ContainsFunc(kind, func(r rune) bool { return r < 'a' || r > 'z' }) {
			return "", bad("the grant %+q: before the colon must be a kind of lower-case letters, such as sql", clip(grant))
		}
	}
	for i := range len(name) {
		if !isLetterOrDigit(name[i]) && strings.IndexByte(allowed, name[i]) < 0 {
			return "", bad("the grant %+q: it may have letters, digits and %s", clip(grant), allowed)
		}
	}
	if strings.Trim(name, "*?./:@") == "" {
		return "", bad("the grant %+q has no name in it, and would grant everything; "+
			"leave the grants out to restrict nothing, or name what is granted", clip(grant))
	}
	return grant, nil
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
		if g.NamesAgents() {
			none = append(none, agentGrant+"disabled/"+name)
		}
	}
	if !declared {
		return nil
	}
	all = append(slices.DeleteFunc(all, func(grant string) bool {
		_, err := CheckGrant(grant)
		return err != nil
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

// NewGroup is a group to add, or to put instead of the one of its name.
type NewGroup struct {
	Group
	// Reuse makes a new group also where users still carry its name, from one that was
	// removed: they are its members at once.
	Reuse bool
	// AllAgents takes the last grant of an agent away also where members may then use
	// every agent ([AllAgentsError]).
	AllAgents bool
	// Edit makes the group from the one that is there (the zero Group = none), so that
	// nobody gives back what someone just took away. If nil, Group takes its place.
	Edit func(Group) Group
}

// CarriedError is the cause of a conflict: users carry the name of a group.
type CarriedError struct {
	Group string
	Users int // who carry the name, disabled ones too
	// Gone says that the group was removed, and cannot be made again without
	// [NewGroup.Reuse]; else it restricts them to agents, and cannot be removed.
	Gone bool
}

func (e *CarriedError) Error() string {
	if e.Gone {
		return fmt.Sprintf("%s, from a group of the name %s that was removed, and would be members of the new one at once; "+
			"take them out, choose another name, or reuse it on purpose", StillCarry(e.Users), e.Group)
	}
	return fmt.Sprintf("%s restricts its %d members to agents, which nobody would know without it; "+
		"take them out first, or disable the group", e.Group, e.Users)
}

// StillCarry says that users carry the name of a group that there is not.
func StillCarry(users int) string {
	if users == 1 {
		return "1 user still carries the name"
	}
	return fmt.Sprintf("%d users still carry the name", users)
}

// maxFreed bounds the names in an [AllAgentsError].
const maxFreed = 5

// AllAgentsError is the cause of a conflict: a change takes away the last grant that
// names an agent, and where none does, every agent may be used (gate.MayRun).
type AllAgentsError struct {
	Group string   // whose grants would change; "" = the user's own, or the groups that they are in
	Users []string // who could use every agent then: the first few, by name
	Total int      // how many they are
}

func (e *AllAgentsError) Error() string {
	who := strings.Join(e.Users, ", ")
	if more := e.Total - len(e.Users); more > 0 {
		who += fmt.Sprintf(" and %d more", more)
	}
	return fmt.Sprintf("%s may use only the agents that grants name; without any such grant they may use every agent. "+
		"Keep one (%s means no agent at all), or say that all agents are meant", who, NoAgents)
}

func conflict(cause error) error {
	return &toolcrib.Error{Code: toolcrib.CodeConflict, Message: cause.Error(), Err: cause}
}

// NamesAgents reports whether the group grants agents by name, and with that restricts
// its members to them.
func (g Group) NamesAgents() bool { return namesAgents(g.Grants) }

func namesAgents(grants []string) bool {
	return slices.ContainsFunc(grants, func(grant string) bool { return strings.HasPrefix(grant, agentGrant) })
}

// Over returns the group as it is put over the one that is there (the zero Group = none),
// or why it may not be, if so many users carry its name.
func (n NewGroup) Over(before Group, carriers int) (Group, error) {
	if before.Name == "" && carriers > 0 && !n.Reuse {
		return Group{}, conflict(&CarriedError{Group: n.Name, Users: carriers, Gone: true})
	}
	name, g := n.Name, n.Group
	if n.Edit != nil {
		g = n.Edit(before)
	}
	g.Name = name
	return g.Check()
}

// FreesAgents reports whether putting the group takes the last grant of an agent away, so
// that [NewGroup.CheckMembers] has to be asked.
func (n NewGroup) FreesAgents(before Group) bool {
	return !n.AllAgents && before.NamesAgents() && !n.NamesAgents()
}

// CheckMembers returns which members of a group could use every agent who could not
// before. names reports which groups name agents.
func (n NewGroup) CheckMembers(members []User, names func(group string) bool) error {
	others := func(group string) bool { return group != n.Name && names(group) }
	var free []string
	for _, u := range members {
		if !u.restrictedToAgents(others) {
			free = append(free, u.Name)
		}
	}
	if len(free) == 0 {
		return nil
	}
	slices.Sort(free)
	return conflict(&AllAgentsError{Group: n.Name, Users: free[:min(len(free), maxFreed)], Total: len(free)})
}

// CheckRemove returns why a group may not be removed that so many users carry: it
// restricts them to agents.
func (g Group) CheckRemove(carriers int) error {
	if carriers == 0 || !g.NamesAgents() {
		return nil
	}
	return conflict(&CarriedError{Group: g.Name, Users: carriers})
}

// restrictedToAgents reports whether a grant of the user, or of a group of theirs, names
// an agent. Administrators are judged alike: when they are administrators no longer, the grants are
// the rights that they have left.
func (u User) restrictedToAgents(names func(group string) bool) bool {
	return namesAgents(u.Grants) || slices.ContainsFunc(u.Groups, names)
}

// Conflict returns why a user may not be changed so: nobody may use every agent who
// could not before, unless [Edit.AllAgents]. names reports which groups name agents.
func (e Edit) Conflict(before, after User, names func(group string) bool) error {
	if e.AllAgents || !before.restrictedToAgents(names) || after.restrictedToAgents(names) {
		return nil
	}
	return conflict(&AllAgentsError{Users: []string{before.Name}, Total: 1})
}
