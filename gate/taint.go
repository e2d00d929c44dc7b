package gate

import (
	"fmt"
	"slices"
	"strings"

	"github.com/toolcrib/toolcrib"
)

// What a run whose data is tainted may do with sinks (agents.X.taint.writes).
// Anything else asks.
const (
	TaintAsk   = "ask"
	TaintDeny  = "deny"
	TaintAllow = "allow"
)

// maxShownSources bounds how many sources of untrusted data a text names.
const maxShownSources = 3

// taintStep holds what could carry data out, or do what a stranger's text says,
// once the run has read untrusted data (contract §7): writes, and whatever declares
// itself a sink. A call without a sink passes, and one whose own run has begun: that
// has what it was told, and each of its calls is judged by what it has read itself.
func (j *judgement) taintStep() *refusal {
	if len(j.facts.Taint) == 0 || j.facts.Begun[j.asked.ID] || !j.sink() || j.scope.TaintWrites == TaintAllow {
		return nil
	}
	why := fmt.Sprintf("the run has read untrusted data (%s), and %s %s", sources(j.facts.Taint), j.entry.spec.Name, j.sinkDoes())
	if j.scope.TaintWrites == TaintDeny {
		r := refuse(j.name() + " is not allowed any more: this run has read untrusted data, and the call could carry it out or act on it. Answer without it.")
		r.position, r.detail = j.gate.scopePosition(j.scope, "agents.AGENT.taint.writes"), why
		return r
	}
	j.taintAsks = why
	return nil
}

// sink tells whether the call can carry data out or change something.
func (j *judgement) sink() bool { return j.effect.Writes() || j.entry.spec.Sink }

func (j *judgement) sinkDoes() string {
	if j.effect.Writes() {
		return "writes (" + string(j.effect) + ")"
	}
	return "can carry data out"
}

// sources names where untrusted data came from.
func sources(taint []string) string {
	names := slices.Compact(slices.Sorted(slices.Values(taint)))
	for i := range names {
		// A source's name is a stranger's word: it must not read like another question.
		names[i] = strings.ReplaceAll(shown(names[i]), ";", ",")
	}
	if more := len(names) - maxShownSources; more > 0 {
		names = append(names[:maxShownSources], fmt.Sprintf("%d more", more))
	}
	return strings.Join(names, ", ")
}

// taintNote tells what taint does to calls of a tool, for explain.
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
