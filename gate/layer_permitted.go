package gate

import (
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
	for _, grant := range q.Who.Grants {
		if strings.Trim(grant, "*?") == "" {
			continue
		}
		if strings.HasPrefix(grant, sqlGrant) && q.Spec.Name == tablesTool {
			return Answer{Allowed: true, Detail: "tables are granted", By: grant}
		}
		if strings.HasPrefix(grant, agentGrant) {
			continue
		}
		if match(grant, q.Spec.Name) {
			return Answer{Allowed: true, Detail: "granted", By: grant}
		}
		if q.Spec.Group != "" && (grant == q.Spec.Group || match(grant, q.Spec.Group)) {
			return Answer{Allowed: true, Detail: "the tool's group is granted", By: grant}
		}
	}
	return Answer{Detail: "no grant of this user names the tool or its group"}
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
