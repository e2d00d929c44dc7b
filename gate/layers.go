package gate

import (
	"slices"
	"strings"

	"github.com/toolcrib/toolcrib"
)

// registered refuses what is no tool (N4).
type registered struct{}

func (registered) Reason() toolcrib.Reason { return toolcrib.ReasonNotRegistered }

func (registered) Judge(q *Query) Answer {
	if q.Spec == nil {
		return unknownTool()
	}
	return allowed("registered")
}

// enabled refuses what is switched off: by its group, by an administrator, or
// because it is off from the start (A1, A2, A4). A tool that cannot be used, and
// every tool while the overrides cannot be read, is off too.
type enabled struct{}

func (enabled) Reason() toolcrib.Reason { return toolcrib.ReasonToolDisabled }

func (enabled) Judge(q *Query) Answer {
	switch {
	case q.Spec == nil:
		return unknownTool()
	case q.Overrides == nil:
		if q.Unknown == "" {
			return Answer{Detail: "it is not known which tools are switched off"}
		}
		return Answer{Detail: q.Unknown}
	case q.Overrides.Off:
		return Answer{Detail: "all tools are switched off", By: "tools.enabled"}
	case q.Unusable != "":
		return Answer{Detail: "unusable: " + q.Unusable}
	}
	if on, ok := q.Overrides.Groups[q.Spec.Group]; ok && !on && q.Spec.Group != "" {
		return Answer{
			Detail: "the tool's group is switched off", By: q.Spec.Group,
			Hint: "toolcrib tools enable --group " + q.Spec.Group,
		}
	}
	on, overridden := q.Overrides.Tools[q.Spec.Name]
	switch {
	case overridden && on:
		return allowed("switched on by an administrator")
	case overridden:
		return Answer{Detail: "switched off by an administrator", Hint: "toolcrib tools enable " + q.Spec.Name}
	case q.Spec.EnabledByDefault:
		return allowed("on by default")
	}
	return Answer{Detail: "off by default", Hint: "toolcrib tools enable " + q.Spec.Name}
}

// admin refuses tools for administrators to everybody else (N18). Nobody is no
// administrator, and an unknown tool counts as one for administrators.
type admin struct{}

func (admin) Reason() toolcrib.Reason { return toolcrib.ReasonRequiresAdmin }

func (admin) Judge(q *Query) Answer {
	switch {
	case q.Spec == nil:
		return unknownTool()
	case q.Who == nil:
		return Answer{Detail: "nobody is acting"}
	case !q.Spec.RequiresAdmin:
		return allowed("for everybody")
	case q.Who.User == "":
		return Answer{Detail: "for administrators, and no user is acting"}
	case !q.Who.Admin:
		return Answer{Detail: "for administrators, and this user is not one", By: q.Who.User}
	}
	return Answer{Allowed: true, Detail: "for administrators, and this user is one", By: q.Who.User}
}

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

func (permitted) Judge(q *Query) Answer {
	switch {
	case q.Spec == nil:
		return unknownTool()
	case q.Who == nil:
		return Answer{Detail: "nobody is acting"}
	case q.Refused != "":
		return Answer{Detail: q.Refused}
	}
	if a := tokenAnswer(q); !a.Allowed {
		return a
	}
	switch {
	case q.Who.Admin && q.Who.User != "":
		return allowed("an administrator holds every grant")
	case q.Who.Grants == nil:
		return allowed("no grants are set for this user")
	}
	if i, why := grantFor(q); i >= 0 {
		return Answer{Allowed: true, Detail: why, By: q.Who.Grants[i]}
	}
	return Answer{Detail: "no grant of this user names the tool or its group"}
}

// grantFor returns the first grant of the tool or of its group, and what it is; -1 =
// there is none.
func grantFor(q *Query) (first int, why string) {
	grants := q.Who.Grants
	first, why = grantList.find(grants, q.ready, q.Spec.Name), "granted"
	take := func(i int, text string) {
		if i >= 0 && (first < 0 || i < first) {
			first, why = i, text
		}
	}
	if group := q.Spec.Group; group != "" {
		take(groupList.find(grants, q.ready, group), "the tool's group is granted")
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

// allowlist refuses what is not on one of the lists of the run's [Scope]: nil
// restricts nothing, empty allows nothing (N15, A5).
type allowlist struct {
	reason toolcrib.Reason
	kind   listKind
	list   func(*Scope) []string
	key    string // key path of the configuration; "" = it stands nowhere
	hint   string
	// What is told of the list.
	none, empty, has, lacks string
}

func newAllowlist(reason toolcrib.Reason, whose string, list func(*Scope) []string) *allowlist {
	return &allowlist{
		reason: reason, list: list,
		none:  whose + " restricts nothing",
		empty: whose + " is empty: no tools",
		has:   whose + " has it",
		lacks: whose + " does not have it",
	}
}

func (l *allowlist) Reason() toolcrib.Reason { return l.reason }

func (l *allowlist) Judge(q *Query) Answer {
	switch {
	case q.Spec == nil:
		return unknownTool()
	case q.Scope == nil:
		return Answer{Detail: "there is no run"}
	}
	if l.reason == toolcrib.ReasonSkillAllowlist && q.Spec.Name == readSkill && !q.Scope.HasSkills {
		return Answer{Detail: "the run has no skills to read"}
	}
	patterns := l.list(q.Scope)
	if patterns == nil {
		return allowed(l.none)
	}
	if i := l.kind.find(patterns, q.ready, q.Spec.Name); i >= 0 {
		return Answer{Allowed: true, Detail: l.has, By: patterns[i], Key: l.key}
	}
	if len(patterns) == 0 {
		return Answer{Detail: l.empty, Key: l.key, Hint: l.hint}
	}
	return Answer{Detail: l.lacks, Key: l.key, Hint: l.hint}
}

// unknown returns the patterns of the list that mean none of the names.
func (l *allowlist) unknown(s *Scope, entries []*entry) []string {
	var unknown []string
	for _, p := range l.list(s) {
		if pattern, _ := l.kind.pattern(p); !meansOne(pattern, entries) {
			unknown = append(unknown, p)
		}
	}
	return unknown
}

func meansOne(pattern string, entries []*entry) bool {
	return slices.ContainsFunc(entries, func(e *entry) bool { return Match(pattern, e.spec.Name) })
}

func agentList() Layer {
	l := newAllowlist(toolcrib.ReasonAgentAllowlist, "the agent's list",
		func(s *Scope) []string { return s.AgentTools })
	l.key, l.hint = "agents.AGENT.tools", "add it to the agent's tools in the configuration"
	return l
}

func skillList() Layer {
	l := newAllowlist(toolcrib.ReasonSkillAllowlist, "the skills' allowed-tools",
		func(s *Scope) []string { return s.SkillTools })
	l.kind = skillLists
	l.hint = "add it to allowed-tools of a skill of this run"
	return l
}

func runList() Layer {
	l := newAllowlist(toolcrib.ReasonRunAllowlist, "the run's list", func(s *Scope) []string { return s.RunTools })
	l.hint = "add it to --tools, or to tools in the request"
	return l
}

// workerLists refuses what the calling agent does not pass on, and what the skills of
// a run above do not name.
type workerLists struct{ *allowlist }

func workerList() Layer {
	return workerLists{newAllowlist(toolcrib.ReasonWorkerAllowlist, "what the calling agent passes on",
		func(s *Scope) []string { return s.WorkerTools })}
}

func (l workerLists) Judge(q *Query) Answer {
	a := l.allowlist.Judge(q)
	if !a.Allowed {
		return a
	}
	for _, entries := range q.Scope.AboveSkills {
		if entries != nil && skillLists.find(entries, q.ready, q.Spec.Name) < 0 {
			return Answer{Detail: "the skills of a run above do not allow it"}
		}
	}
	return a
}
