package access

import (
	"slices"
	"strings"

	"github.com/toolcrib/toolcrib"
)

const maxGrantBytes = 256

// CheckGrant says what is wrong with a grant. A grant names a tool or a group of
// tools, or is a glob over their names (* any characters, ? one); KIND:NAME grants
// something else, such as sql:shop/public.orders (contract §11). Wildcards alone are
// refused: nobody is given everything by accident.
func CheckGrant(grant string) (string, error) {
	if grant == "" || len(grant) > maxGrantBytes {
		return "", toolcrib.Errorf(toolcrib.CodeBadRequest, "a grant has 1 to %d bytes", maxGrantBytes)
	}
	kind, name, other := strings.Cut(grant, ":")
	if !other {
		kind, name = "", grant
	}
	allowed := "_-*?"
	if other {
		allowed = "_-*?./:@"
		if kind == "" || strings.ContainsFunc(kind, func(r rune) bool { return r < 'a' || r > 'z' }) {
			return "", toolcrib.Errorf(toolcrib.CodeBadRequest, "the grant %+q: what stands before the colon must be a kind of lower-case letters, such as sql", clip(grant))
		}
	}
	for i := range len(name) {
		if !isLetterOrDigit(name[i]) && strings.IndexByte(allowed, name[i]) < 0 {
			return "", toolcrib.Errorf(toolcrib.CodeBadRequest, "the grant %+q: it may have letters, digits and %s", clip(grant), allowed)
		}
	}
	if onlyWildcards(name) {
		return "", toolcrib.Errorf(toolcrib.CodeBadRequest, "the grant %+q has no name in it, and would grant everything; leave the grants out to restrict nothing, or name what is granted", clip(grant))
	}
	return grant, nil
}

func onlyWildcards(name string) bool { return strings.Trim(name, "*?./:@") == "" }

func checkGrants(grants []string) ([]string, error) {
	return checkList("grants", grants, MaxGrants, CheckGrant)
}

// EffectiveGrants are those that hold for a user: their own and those of their
// groups together. If neither declares any, there is no restriction (nil). A group
// that is disabled or not among groups, since it was removed, counts as one that
// declares an empty list: taking a group away never widens. One that is disabled and
// names agents goes on restricting which may be used, by a grant that means none of
// them (agent:disabled/GROUP). Grants of wildcards alone, and those that cannot be read,
// are left out.
func EffectiveGrants(u User, groups []Group) []string {
	var all []string
	declare := func(grants []string) {
		if grants == nil {
			return
		}
		if all == nil {
			all = []string{}
		}
		for _, grant := range grants {
			if _, err := CheckGrant(grant); err == nil {
				all = append(all, grant)
			}
		}
	}
	declare(u.Grants)
	for _, name := range u.Groups {
		i := slices.IndexFunc(groups, func(g Group) bool { return g.Name == name })
		if i >= 0 && !groups[i].Disabled {
			declare(groups[i].Grants)
			continue
		}
		declare([]string{})
		if i >= 0 && groups[i].NamesAgents() {
			all = append(all, agentGrant+"disabled/"+name)
		}
	}
	if all == nil {
		return nil
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// agentGrant is the kind of the grants that name agents (gate.MayRun).
const agentGrant = "agent:"

// NamesAgents tells whether the group grants agents by name, and with that restricts
// its members to them.
func (g Group) NamesAgents() bool { return namesAgents(g.Grants) }

func namesAgents(grants []string) bool {
	return slices.ContainsFunc(grants, func(grant string) bool { return strings.HasPrefix(grant, agentGrant) })
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
		i := slices.IndexFunc(groups, func(g Group) bool { return g.Name == name })
		if i < 0 || groups[i].Disabled {
			continue
		}
		p.Groups = append(p.Groups, name)
		p.Roles = append(p.Roles, groups[i].Roles...)
	}
	slices.Sort(p.Roles)
	p.Roles = slices.Compact(p.Roles)
	return p
}

// TrustAtLeast tells whether a level of trust is another one or above it (H19):
// unknown < member < trusted < anchor. A level that nobody knows is below all, and
// nothing reaches it.
func TrustAtLeast(have, need toolcrib.Trust) bool {
	order := []toolcrib.Trust{toolcrib.TrustUnknown, toolcrib.TrustMember, toolcrib.TrustTrusted, toolcrib.TrustAnchor}
	want := slices.Index(order, need)
	return want >= 0 && slices.Index(order, have) >= want
}
