package gate

import (
	"fmt"

	"github.com/toolcrib/toolcrib"
)

// allowlist refuses what is not on one of the lists of the run's [Scope]: nil
// restricts nothing, empty allows nothing (N15, A5).
type allowlist struct {
	reason toolcrib.Reason
	whose  string // in words
	list   func(*Scope) []string
	key    func(*Scope) string // key path of the configuration; nil = none
	hint   func(*Scope) string // nil = none
}

func (l allowlist) Reason() toolcrib.Reason { return l.reason }

func (l allowlist) Judge(q Query) Answer {
	if q.Spec == nil {
		return unknownTool()
	}
	if q.Scope == nil {
		return Answer{Detail: "there is no run"}
	}
	patterns := l.list(q.Scope)
	if patterns == nil {
		return allowed(l.whose + " restricts nothing")
	}
	a := Answer{Key: call(l.key, q.Scope)}
	for _, p := range patterns {
		if match(p, q.Spec.Name) {
			a.Allowed, a.Detail = true, l.whose+" has "+p
			return a
		}
	}
	a.Hint = call(l.hint, q.Scope)
	a.Detail = l.whose + " does not have it"
	if len(patterns) == 0 {
		a.Detail = l.whose + " is empty: no tools"
	}
	return a
}

func call(f func(*Scope) string, s *Scope) string {
	if f == nil {
		return ""
	}
	return f(s)
}

// unknown returns the patterns of the list that mean none of the names.
func (l allowlist) unknown(s *Scope, entries []*entry) []string {
	var unknown []string
	for _, p := range l.list(s) {
		if !meansOne(p, entries) {
			unknown = append(unknown, p)
		}
	}
	return unknown
}

func meansOne(pattern string, entries []*entry) bool {
	for _, e := range entries {
		if match(pattern, e.spec.Name) {
			return true
		}
	}
	return false
}

func agentList() Layer {
	key := func(s *Scope) string {
		if s.Agent == "" {
			return ""
		}
		return "agents." + s.Agent + ".tools"
	}
	return allowlist{
		reason: toolcrib.ReasonAgentAllowlist,
		whose:  "the agent's list",
		list:   func(s *Scope) []string { return s.AgentTools },
		key:    key,
		hint: func(s *Scope) string {
			if s.Agent == "" {
				return ""
			}
			return fmt.Sprintf("add it to %s in the configuration", key(s))
		},
	}
}

func skillList() Layer {
	return allowlist{
		reason: toolcrib.ReasonSkillAllowlist,
		whose:  "the skills' allowed-tools",
		list:   func(s *Scope) []string { return s.SkillTools },
		hint:   func(*Scope) string { return "add it to allowed-tools of a skill of this run" },
	}
}

func runList() Layer {
	return allowlist{
		reason: toolcrib.ReasonRunAllowlist,
		whose:  "the run's list",
		list:   func(s *Scope) []string { return s.RunTools },
		hint:   func(*Scope) string { return "add it to --tools, or to tools in the request" },
	}
}

func workerList() Layer {
	return allowlist{
		reason: toolcrib.ReasonWorkerAllowlist,
		whose:  "what the calling agent passes on",
		list:   func(s *Scope) []string { return s.WorkerTools },
	}
}
