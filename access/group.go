package access

import (
	"fmt"
	"slices"
	"strings"

	"github.com/toolcrib/toolcrib"
)

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
			return "", bad("the grant %+q: before the colon must be a kind of lower-case letters, such as sql",
				clip(grant))
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
// least those of the user. Somebody who is disabled or removed gets no right
// whatever, but keeps the name, for the record.
func Principal(u User, groups []Group) toolcrib.Principal {
	if !u.Active() {
		return toolcrib.Principal{User: u.Name, Grants: []string{}}
	}
	p := toolcrib.Principal{
		User: u.Name, Admin: u.Admin, Trust: u.Trust,
		Roles: slices.Clone(u.Roles), Grants: EffectiveGrants(u, groups),
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
	// nobody gives back what somebody just took away. If nil, Group takes its place.
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
// an agent. Administrators are judged alike: the grants are what is left of their rights
// once they are none.
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
