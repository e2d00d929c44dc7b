package gate

import "github.com/toolcrib/toolcrib"

// allowlist refuses what is not on one of the lists of the run's [Scope]: nil
// restricts nothing, empty allows nothing (N15, A5).
type allowlist struct {
	reason toolcrib.Reason
	kind   listKind
	list   func(*Scope) []string
	ready  int    // of readyLists
	key    string // key path of the configuration; "" = it stands nowhere
	hint   string
	// What is told of the list.
	none, empty, has, lacks string
}

func newAllowlist(reason toolcrib.Reason, whose string, list func(*Scope) []string, ready int) allowlist {
	return allowlist{
		reason: reason, list: list, ready: ready,
		none:  whose + " restricts nothing",
		empty: whose + " is empty: no tools",
		has:   whose + " has it",
		lacks: whose + " does not have it",
	}
}

func (l allowlist) Reason() toolcrib.Reason { return l.reason }

func (l allowlist) Judge(q Query) Answer {
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
	if i := l.kind.find(patterns, q.ready[l.ready], q.Spec.Name); i >= 0 {
		return Answer{Allowed: true, Detail: l.has, By: patterns[i], Key: l.key}
	}
	if len(patterns) == 0 {
		return Answer{Detail: l.empty, Key: l.key, Hint: l.hint}
	}
	return Answer{Detail: l.lacks, Key: l.key, Hint: l.hint}
}

// unknown returns the patterns of the list that mean none of the names.
func (l allowlist) unknown(s *Scope, entries []*entry) []string {
	var unknown []string
	for _, p := range l.list(s) {
		if pattern, _ := l.kind.pattern(p); !meansOne(pattern, entries) {
			unknown = append(unknown, p)
		}
	}
	return unknown
}

func meansOne(pattern string, entries []*entry) bool {
	for _, e := range entries {
		if Match(pattern, e.spec.Name) {
			return true
		}
	}
	return false
}

func agentList() Layer {
	l := newAllowlist(toolcrib.ReasonAgentAllowlist, "the agent's list", func(s *Scope) []string { return s.AgentTools }, readyAgent)
	l.key, l.hint = "agents.AGENT.tools", "add it to the agent's tools in the configuration"
	return l
}

func skillList() Layer {
	l := newAllowlist(toolcrib.ReasonSkillAllowlist, "the skills' allowed-tools", func(s *Scope) []string { return s.SkillTools }, readySkill)
	l.kind = skillLists
	l.hint = "add it to allowed-tools of a skill of this run"
	return l
}

func runList() Layer {
	l := newAllowlist(toolcrib.ReasonRunAllowlist, "the run's list", func(s *Scope) []string { return s.RunTools }, readyRun)
	l.hint = "add it to --tools, or to tools in the request"
	return l
}

// workerLists refuses what the calling agent does not pass on, and what the skills of
// a run above do not name.
type workerLists struct{ allowlist }

func workerList() Layer {
	return workerLists{newAllowlist(toolcrib.ReasonWorkerAllowlist, "what the calling agent passes on", func(s *Scope) []string { return s.WorkerTools }, readyWorker)}
}

func (l workerLists) Judge(q Query) Answer {
	a := l.allowlist.Judge(q)
	if !a.Allowed {
		return a
	}
	for i, entries := range q.Scope.AboveSkills {
		if entries == nil {
			continue
		}
		var ready *nameList
		if i < len(q.readyAbove) {
			ready = q.readyAbove[i]
		}
		if skillLists.find(entries, ready, q.Spec.Name) < 0 {
			return Answer{Detail: "the skills of a run above do not allow it"}
		}
	}
	return a
}
