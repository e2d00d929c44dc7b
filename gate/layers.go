package gate

import (
	"cmp"
	"slices"
	"strings"

	"github.com/toolcrib/toolcrib"
)

// layer is one of the gate's own layers: a question about a tool that exists.
type layer struct {
	reason toolcrib.Reason
	judge  func(*Query) Answer

	kind listKind
	list func(*Scope) []string // nil if it reads no list
}

func (l layer) Reason() toolcrib.Reason { return l.reason }

func (l layer) Judge(q *Query) Answer {
	if q.Spec == nil {
		return Answer{Detail: "there is no such tool"}
	}
	return l.judge(q)
}

// Layers returns the gate's own layers in their order.
func Layers() []Layer {
	return []Layer{
		layer{reason: toolcrib.ReasonNotRegistered, judge: func(*Query) Answer { return allowed("registered") }}, // N4
		layer{reason: toolcrib.ReasonToolDisabled, judge: enabled},
		layer{reason: toolcrib.ReasonRequiresAdmin, judge: forAdmin},
		layer{reason: toolcrib.ReasonNotPermitted, judge: permitted},
		newAllowlist(toolcrib.ReasonAgentAllowlist, plainList, "the agent's list",
			"agents.AGENT.tools", "add it to the agent's tools in the configuration",
			func(s *Scope) []string { return s.AgentTools }),
		newAllowlist(toolcrib.ReasonSkillAllowlist, skillLists, "the skills' allowed-tools",
			"", "add it to allowed-tools of a skill of this run",
			func(s *Scope) []string { return s.SkillTools }),
		newAllowlist(toolcrib.ReasonRunAllowlist, plainList, "the run's list",
			"", "add it to --tools, or to tools in the request",
			func(s *Scope) []string { return s.RunTools }),
		newAllowlist(toolcrib.ReasonWorkerAllowlist, plainList, "what the calling agent passes on", "", "",
			func(s *Scope) []string { return s.WorkerTools }),
	}
}

// enabled refuses a tool that is switched off: by its group, by an administrator, or by default
// (A1, A2, A4). It also refuses a tool that cannot be used, and every tool while the overrides
// cannot be read.
func enabled(q *Query) Answer {
	switch {
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
	if q.Spec.AnsweredBy == toolcrib.ByClient { // a tool of the server with the same name is another tool
		return allowed("the client's own")
	}
	on, overridden := q.Overrides.Tools[q.Spec.Name]
	if of, ok := q.Overrides.Tools[q.Spec.As]; ok && q.Spec.As != "" {
		on, overridden = of && (on || !overridden), true
	}
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

// forAdmin refuses tools for administrators to all other users (N18), and every tool without a
// principal.
func forAdmin(q *Query) Answer {
	switch {
	case q.Who == nil:
		return Answer{Detail: "this call has no user"}
	case !q.Spec.RequiresAdmin:
		return allowed("for everybody")
	case q.Who.User == "":
		return Answer{Detail: "for administrators, and no user is acting"}
	case !q.Who.Admin:
		return Answer{
			Detail: "for administrators, and this user is not one", By: q.Who.User,
			Hint: "toolcrib --admin, if you own the data folder",
		}
	}
	return Answer{Allowed: true, Detail: "for administrators, and this user is one", By: q.Who.User}
}

// permitted refuses a tool that the principal has no grant for. Grants name tools or groups of
// tools, or are globs over them. A glob of wildcards alone grants nothing, so that a user is not
// given everything by accident. If grants are nil, they restrict nothing (there may be no users at
// all); if they are empty, they grant nothing. An administrator has every grant.
//
// The token by which the principal acts narrows that further, whatever the principal's own rights
// are.
//
// A grant of tables (sql:NAME/schema.table) grants the tool that shows them, which limits itself to
// the granted tables.
func permitted(q *Query) Answer {
	switch {
	case q.Who == nil:
		return Answer{Detail: "this call has no user"}
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
	case q.finder && len(q.Who.Grants) > 0:
		return allowed("it finds only what is granted")
	}
	if i, why := grantFor(q); i >= 0 {
		return Answer{Allowed: true, Detail: why, By: q.Who.Grants[i]}
	}
	return Answer{Detail: "no grant of this user names the tool or its group"}
}

const (
	sqlGrant   = "sql:"
	tablesTool = "describe_tables"
)

// grantFor returns the index of the first grant of the tool or of its group, and its description.
// The index is -1 if there is no grant.
func grantFor(q *Query) (first int, why string) {
	grants := q.Who.Grants
	first, why = grantList.find(grants, q.ready, q.Spec.Name), "granted"
	take := func(i int, text string) {
		if i >= 0 && (first < 0 || i < first) {
			first, why = i, text
		}
	}
	if q.Spec.As != "" {
		take(grantList.find(grants, q.ready, q.Spec.As), "granted")
	}
	if group := q.Spec.Group; group != "" {
		take(groupList.find(grants, q.ready, group), "the tool's group is granted")
	}
	if q.Spec.Name == tablesTool {
		take(slices.IndexFunc(grants, func(g string) bool { return strings.HasPrefix(g, sqlGrant) }), "tables are granted")
	}
	return first, why
}

// tokenAnswer returns the answer of the access token about the tool.
func tokenAnswer(q *Query) Answer {
	switch {
	case q.Who.Token == "" && q.Token == nil:
		return allowed("no access token")
	case q.Token == nil:
		return Answer{Detail: "the access token is not known", By: q.Who.Token}
	case q.Scope == nil:
		return Answer{Detail: "nothing is allowed"}
	}
	if err := q.Token.Offers(q.Scope.Agent, policyName(q.Spec)); err != nil {
		return Answer{Detail: err.Error(), By: q.Who.Token}
	}
	return allowed("covered by the access token")
}

// newAllowlist returns the layer of a list of the run's [Scope]. A nil list restricts nothing, an
// empty one allows nothing (N15, A5). whose names the owner of the list in texts, key is its key
// path in the configuration, or "" if it is not there, and hint says how to change it.
func newAllowlist(
	reason toolcrib.Reason, kind listKind, whose, key, hint string, list func(*Scope) []string,
) layer {
	none := allowed(whose + " restricts nothing")
	has := Answer{Allowed: true, Detail: whose + " has it", Key: key}
	empty := Answer{Detail: whose + " is empty: no tools", Key: key, Hint: hint}
	finds := Answer{Allowed: true, Detail: "it finds only what " + whose + " has", Key: key}
	own := allowed("the client's own, which no agent lists")
	worker := reason == toolcrib.ReasonWorkerAllowlist
	lacks := Answer{Detail: whose + " does not have it", Key: key, Hint: hint}
	return layer{reason, func(q *Query) Answer {
		switch {
		case q.Scope == nil:
			return Answer{Detail: "there is no run"}
		case reason == toolcrib.ReasonSkillAllowlist && q.Spec.Name == readSkill && !q.Scope.HasSkills:
			return Answer{Detail: "the run has no skills to read"}
		case reason == toolcrib.ReasonAgentAllowlist && q.Spec.AnsweredBy == toolcrib.ByClient:
			return own
		}
		patterns, i := list(q.Scope), -1
		if len(patterns) > 0 {
			i = findByName(kind, patterns, q)
		}
		switch {
		case patterns != nil && len(patterns) == 0:
			return empty
		case patterns != nil && q.finder:
			return finds
		case patterns != nil && i < 0:
			return lacks
		case worker && !allowedAbove(q):
			return Answer{Detail: "the skills of a run above do not allow it"}
		case patterns == nil:
			return none
		}
		a := has
		a.By = patterns[i]
		return a
	}, kind, list}
}

// allowedAbove reports whether the skills of all runs above allow the tool by name.
func allowedAbove(q *Query) bool {
	return !slices.ContainsFunc(q.Scope.AboveSkills, func(entries []string) bool {
		return entries != nil && findByName(skillLists, entries, q) < 0
	})
}

// policyName returns the name by which policies know a tool.
func policyName(spec *toolcrib.Spec) string { return cmp.Or(spec.As, spec.Name) }

// findByName returns the index of the first entry of a list that matches the tool, or -1.
func findByName(kind listKind, entries []string, q *Query) int {
	i := kind.find(entries, q.ready, q.Spec.Name)
	if i < 0 && q.Spec.As != "" {
		i = kind.find(entries, q.ready, q.Spec.As)
	}
	return i
}

func meansOne(pattern string, entries []*entry) bool {
	return slices.ContainsFunc(entries, func(e *entry) bool { return Match(pattern, e.spec.Name) })
}

// SkillArguments reports whether the allowed-tools of the run's skills allow the plan of a call of
// the tool. Entries may narrow a tool, as exec_shell(git:*) does. An error refuses the call,
// and its text is fit for the model.
type SkillArguments func(entries []string, tool string, plan *toolcrib.Plan) (bool, error)

// readSkill is the name of the tool that reads the skills of a run.
const readSkill = "read_skill"

// entryName returns the name or glob of an entry of allowed-tools, without the pattern for
// arguments.
func entryName(entry string) string {
	name, _, _ := strings.Cut(entry, "(")
	return name
}

// skillStep checks the arguments against the entries of the run's own skills.
func (j *judgement) skillStep() *refusal {
	return j.entriesAllow(j.scope.SkillTools, toolcrib.ReasonSkillAllowlist,
		" is not allowed with these arguments by the skills of this run. Use it as they say.")
}

// aboveStep checks the arguments against the entries of the skills of each run above, so that a run
// cannot have another run do what it may not do itself.
func (j *judgement) aboveStep() *refusal {
	for _, entries := range j.scope.AboveSkills {
		r := j.entriesAllow(entries, toolcrib.ReasonWorkerAllowlist,
			" is not allowed with these arguments by the skills of the calling agent. Continue without it, or with others.")
		if r != nil {
			return r
		}
	}
	return nil
}

// entriesAllow checks the arguments against a list of skills' entries. not follows the name of the
// tool in the refusal. The layer of the reason has checked the name; an entry without a pattern for
// arguments needs no more than that.
func (j *judgement) entriesAllow(entries []string, reason toolcrib.Reason, not string) *refusal {
	if entries == nil || j.entry.finder != nil {
		return nil
	}
	patterned := false
	for _, e := range entries {
		if !Match(entryName(e), j.entry.spec.Name) && !Match(entryName(e), j.entry.spec.As) {
			continue
		}
		if !strings.Contains(e, "(") {
			return nil
		}
		patterned = true
	}
	if !patterned {
		return refuse("%s", j.layerMessage(reason))
	}
	text := j.name() + not
	if j.gate.options.SkillArguments == nil {
		return refuse("%s", text)
	}
	ok, err := j.gate.options.SkillArguments(entries, policyName(&j.entry.spec), &j.plan)
	if err != nil {
		return refuse("%s %v", text, err)
	}
	if !ok {
		return refuse("%s", text)
	}
	return nil
}
