package gate

import (
	"fmt"
	"slices"
	"strings"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/journal"
)

// Values of agents.X.taint.writes: the decision on a sink once the run has read untrusted data. Any
// other value means ask.
const (
	TaintAsk   = "ask"
	TaintDeny  = "deny"
	TaintAllow = "allow"
)

// maxShownSources bounds the sources of untrusted data that a text names.
const maxShownSources = 3

// taintStep asks about or refuses calls that could carry data out, or act on untrusted text, once
// the run has read untrusted data: writes, and calls of tools that declare themselves sinks. A call
// whose own run has begun passes: that run has its input already, and each of its calls is judged
// by the data that it has read itself.
func (j *judgement) taintStep() *refusal {
	taint := j.facts.Taint
	if j.entry.byClient() && !j.effect.Writes() {
		taint = ofOthers(taint)
	}
	if len(taint) == 0 || j.facts.Begun[j.asked.ID] || !j.sink() || j.scope.TaintWrites == TaintAllow {
		return nil
	}
	why := fmt.Sprintf("the run has read untrusted data (%s), and %s %s", sources(taint), j.entry.spec.Name,
		j.sinkDoes())
	if j.scope.TaintWrites == TaintDeny {
		return refuse("%s is no longer allowed: this run has read untrusted data, "+
			"and the call could carry it out or act on it. Answer without it.",
			j.name()).at(j.gate.scopePosition(j.scope, "agents.AGENT.taint.writes")).because("", why)
	}
	j.taintAsks = &journal.Question{
		Reason: toolcrib.ReasonTaintedFlow, Sources: slices.Compact(slices.Sorted(slices.Values(taint))), Text: why,
	}
	if j.effect.Writes() {
		j.taintAsks.Effect = j.effect
	}
	return nil
}

// untrustedFiles reports whether the configuration marks the files of a workspace as untrusted
// data. It does so by marking any tool of their group that reads.
func untrustedFiles(entries map[string]*entry) bool {
	for _, e := range entries {
		if e.settings.Untrusted && e.spec.Group == toolcrib.GroupFiles && !e.spec.Effect.Writes() {
			return true
		}
	}
	return false
}

// FilesUntrusted reports whether the files of a workspace are untrusted data.
func (g *Gate) FilesUntrusted() bool { return g != nil && g.toolSet().untrustedFiles }

// untrusted reports whether the result of the call is untrusted data: if all results of the tool
// are, or if it may contain data of files that are.
func (j *judgement) untrusted() bool {
	e := j.entry
	return e.spec.Untrusted || e.settings.Untrusted || j.tools.untrustedFiles && e.readsFiles(j.targets)
}

// readsFiles reports whether a call with these targets reads files, or may read any, such as a tool
// from elsewhere that does not name its targets, or a program that may open files below a folder
// that it may also write.
func (e *entry) readsFiles(targets []toolcrib.Target) bool {
	if !e.spec.Plans.Targets {
		return e.spec.Source != builtin && e.spec.AnsweredBy == ""
	}
	return slices.ContainsFunc(targets, func(t toolcrib.Target) bool {
		return t.Kind == toolcrib.TargetFile && (!t.Write || t.Tree)
	})
}

// builtin is the source of toolcrib's own tools. Those that use files name their targets.
const builtin = "builtin"

// untrustedNote says for explain whether results of a tool are untrusted data.
func (s *toolSet) untrustedNote(e *entry) string {
	switch {
	case e.spec.Untrusted, e.settings.Untrusted:
		return "its results are untrusted data"
	case s.untrustedFiles && (e.spec.Plans.Targets || e.readsFiles(nil)):
		return "results of calls that may read files are untrusted data, as the files are"
	}
	return ""
}

// sink reports whether the call can carry data out or change something.
func (j *judgement) sink() bool { return j.effect.Writes() || j.entry.spec.Sink }

func (j *judgement) sinkDoes() string {
	if j.effect.Writes() {
		return "writes (" + string(j.effect) + ")"
	}
	return "can carry data out"
}

// sources lists the sources of untrusted data, up to a bound.
func sources(taint []string) string {
	names := slices.Compact(slices.Sorted(slices.Values(taint)))
	for i := range names {
		// A source's name is untrusted: it must not read like another question.
		names[i] = strings.ReplaceAll(shown(names[i]), ";", ",")
	}
	if more := len(names) - maxShownSources; more > 0 {
		names = append(names[:maxShownSources], fmt.Sprintf("%d more", more))
	}
	return strings.Join(names, ", ")
}

// taintNote describes for explain how taint affects calls of a tool.
func taintNote(e *entry, s *Scope) string {
	if !e.spec.Effect.Writes() && !e.spec.Sink {
		return ""
	}
	switch s.TaintWrites {
	case TaintAllow:
		return ""
	case TaintDeny:
		return "calls are refused once the run has read untrusted data (" + string(toolcrib.ReasonTaintedFlow) + ")"
	}
	return "calls are asked about once the run has read untrusted data (" + string(toolcrib.ReasonTaintedFlow) + ")"
}
