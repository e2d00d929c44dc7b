package access

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/toolcrib/toolcrib"
)

// NoAgents is the grant that means no agent at all: no agent can have that name. It
// restricts like every grant of an agent does.
const NoAgents = agentGrant + "-"

// NewGroup is a group to add, or to put in the place of the one of its name.
type NewGroup struct {
	Group
	// Reuse makes a new group also where users still carry its name, from one that was
	// removed: they are its members at once.
	Reuse bool
	// AllAgents takes the last grant of an agent away also where members may then use
	// every agent ([AllAgentsError]).
	AllAgents bool
	// After is when the group was changed that this one was made from (Group.Changed);
	// the zero time = there was none. nil = whatever is there now. Else another one is a
	// conflict ([StaleError]), so that nobody gives back what somebody just took away.
	After *time.Time
}

// StaleError is the cause of a conflict: a group was changed since it was looked at.
type StaleError struct{ Group string }

func (e *StaleError) Error() string {
	return fmt.Sprintf("the group %s was changed by somebody else just now; look at it again", e.Group)
}

// CheckAfter says whether the group that is there, the zero value for none, is the one
// that this one was made from.
func (n NewGroup) CheckAfter(now Group) error {
	if n.After == nil || n.After.Equal(now.Changed) {
		return nil
	}
	return conflict(&StaleError{Group: n.Name})
}

// CarriedError is the cause of a conflict: users carry the name of a group.
type CarriedError struct {
	Group string
	Users int // who carry the name, disabled ones too
	// Gone says that the group was removed, and cannot be made anew without
	// [NewGroup.Reuse]; else it restricts them to agents, and cannot be removed.
	Gone bool
}

func (e *CarriedError) Error() string {
	if e.Gone {
		return fmt.Sprintf("%s, from a group of the name %s that was removed, and would be members of the new one at once; take them out, choose another name, or reuse it on purpose", StillCarry(e.Users), e.Group)
	}
	return fmt.Sprintf("%s restricts its %d members to agents, which nobody would know without it; take them out first, or disable the group", e.Group, e.Users)
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
	return fmt.Sprintf("%s may use only the agents that grants name; without any such grant they may use every agent. Keep one (%s means no agent at all), or say that all agents are meant", who, NoAgents)
}

func conflict(cause error) error {
	return &toolcrib.Error{Code: toolcrib.CodeConflict, Message: cause.Error(), Err: cause}
}

// CheckNew says whether a group that there is not yet may be made where so many users
// carry its name.
func (n NewGroup) CheckNew(carriers int) error {
	if carriers == 0 || n.Reuse {
		return nil
	}
	return conflict(&CarriedError{Group: n.Name, Users: carriers, Gone: true})
}

// FreesAgents tells whether putting the group takes the last grant of an agent away, so
// that [NewGroup.CheckMembers] has to be asked.
func (n NewGroup) FreesAgents(before Group) bool {
	return !n.AllAgents && before.NamesAgents() && !n.NamesAgents()
}

// CheckMembers says whether the members of a group bear what [NewGroup.FreesAgents]
// says: nobody may use every agent who could not before. names tells which groups
// there are that name agents.
func (n NewGroup) CheckMembers(members []User, names func(group string) bool) error {
	others := func(group string) bool { return group != n.Name && names(group) }
	var free []string
	for _, u := range members {
		if !u.RestrictedToAgents(others) {
			free = append(free, u.Name)
		}
	}
	if len(free) == 0 {
		return nil
	}
	slices.Sort(free)
	return conflict(&AllAgentsError{Group: n.Name, Users: free[:min(len(free), maxFreed)], Total: len(free)})
}

// CheckRemove says whether a group may be removed that so many users carry: not one that
// restricts them to agents.
func (g Group) CheckRemove(carriers int) error {
	if carriers == 0 || !g.NamesAgents() {
		return nil
	}
	return conflict(&CarriedError{Group: g.Name, Users: carriers})
}

// RestrictedToAgents tells whether a grant of the user, or of a group of theirs, names
// an agent. names tells which groups there are that do. Administrators are judged
// alike: the grants are what is left of their rights once they are none.
func (u User) RestrictedToAgents(names func(group string) bool) bool {
	return namesAgents(u.Grants) || slices.ContainsFunc(u.Groups, names)
}

// ChangesAgents tells whether the edit changes something that [Edit.CheckAgents] looks at.
func (e Edit) ChangesAgents() bool { return !e.AllAgents && (e.Grants != nil || e.Groups != nil) }

// CheckAgents says whether a user may be changed so: nobody may use every agent who
// could not before, unless [Edit.AllAgents].
func (e Edit) CheckAgents(before, after User, names func(group string) bool) error {
	if !e.ChangesAgents() || !before.RestrictedToAgents(names) || after.RestrictedToAgents(names) {
		return nil
	}
	return conflict(&AllAgentsError{Users: []string{before.Name}, Total: 1})
}
