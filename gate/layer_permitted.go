package gate

import (
	"slices"
	"strings"

	"github.com/toolcrib/toolcrib"
)

// permitted refuses what the principal has no grant for. Grants name tools or
// groups of tools, or are globs over them; a glob of wildcards alone grants
// nothing, so that no one is given everything by accident. Grants that are nil
// restrict nothing (there may be no users at all), grants that are empty grant
// nothing. An administrator holds every grant.
//
// The token by which the principal acts narrows that further, whatever the
// principal's own rights are.
//
// A grant of tables (sql:NAME/schema.table) grants the tool that shows them, which
// holds itself to what is granted.
type permitted struct{}

const (
	sqlGrant   = "sql:"
	tablesTool = "describe_tables"
)

func (permitted) Reason() toolcrib.Reason { return toolcrib.ReasonNotPermitted }

func (permitted) Judge(q Query) Answer {
	switch {
	case q.Spec == nil:
		return unknownTool()
	case q.Who == nil:
		return Answer{Detail: "nobody is acting"}
	case q.Refused != "":
		return Answer{Detail: q.Refused}
	}
	if a := tokenAnswer(&q); !a.Allowed {
		return a
	}
	switch {
	case q.Who.Admin && q.Who.User != "":
		return allowed("an administrator holds every grant")
	case q.Who.Grants == nil:
		return allowed("no grants are set for this user")
	}
	if i, why := grantFor(&q); i >= 0 {
		return Answer{Allowed: true, Detail: why, By: q.Who.Grants[i]}
	}
	return Answer{Detail: "no grant of this user names the tool or its group"}
}

// grantFor returns the first grant of the tool or of its group, and what it is; -1 =
// there is none.
func grantFor(q *Query) (first int, why string) {
	grants, ready := q.Who.Grants, q.ready[readyGrants]
	first, why = grantList.find(grants, ready, q.Spec.Name), "granted"
	take := func(i int, text string) {
		if i >= 0 && (first < 0 || i < first) {
			first, why = i, text
		}
	}
	if group := q.Spec.Group; group != "" {
		take(grantList.findText(grants, ready, group), "the tool's group is granted")
		take(grantList.find(grants, ready, group), "the tool's group is granted")
	}
	if q.Spec.Name == tablesTool {
		take(slices.IndexFunc(grants, func(g string) bool { return strings.HasPrefix(g, sqlGrant) }), "tables are granted")
	}
	return first, why
}

// tokenAnswer is what the access token says about the tool.
func tokenAnswer(q *Query) Answer {
	switch {
	case q.Who.Token == "" && q.Token == nil:
		return allowed("no access token")
	case q.Token == nil:
		return Answer{Detail: "the access token is not known", By: q.Who.Token}
	case q.Scope == nil:
		return Answer{Detail: "nothing is allowed"}
	}
	if err := q.Token.Offers(q.Scope.Agent, q.Spec.Name); err != nil {
		return Answer{Detail: err.Error(), By: q.Who.Token}
	}
	return allowed("covered by the access token")
}
