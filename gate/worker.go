package gate

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/journal"
)

// The bounds of a worker (X6, X15 to X18): the number of calls that it may try, and the amount that
// it may have spent when a call is judged.

// costCapEnforce is the mode of a cost cap that refuses calls. Every other mode, such as off and
// warn, refuses nothing.
const costCapEnforce = "enforce"

// costCapStep refuses every call of a worker that has spent more than its cap (X17).
func (j *judgement) costCapStep() *refusal {
	w := j.scope.Worker
	if !capped(w) || j.facts.SpentUSD <= w.CostCapUSD {
		return nil
	}
	return refuse("per-turn cost cap exceeded (observed=%s, cap=%s)", dollars(j.facts.SpentUSD), dollars(w.CostCapUSD))
}

// capped reports whether there is a cost cap that is enforced.
func capped(w *journal.WorkerLimits) bool {
	return w != nil && w.CostCapMode == costCapEnforce && w.CostCapUSD > 0
}

// dollars formats an amount as the errors of budgets do.
func dollars(v float64) string { return fmt.Sprintf("$%.6g", v) }

// hopStep refuses calls of a worker beyond its budget of calls (X6). Every call that was tried is
// counted, whatever its result.
func (j *judgement) hopStep() *refusal {
	w := j.scope.Worker
	if w == nil || w.Hops <= 0 || max(0, j.facts.Hops)+j.place() < w.Hops {
		return nil
	}
	r := refuse("tool-hop budget exceeded (%d)", w.Hops)
	r.hint = "Produce your final answer now without further tool calls."
	return r
}

// notForWorkers refuses a tool that a worker was not given (X2, X3).
func (j *judgement) notForWorkers(a *LayerAnswer) *refusal {
	var names []string
	for name, offered := range j.facts.Offered {
		if offered {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return &refusal{
		reason: a.Layer, message: fmt.Sprintf("tool '%s' is not callable from inside a worker", j.name()),
		hint: fmt.Sprintf("Allowed inner tools: [%s]", strings.Join(names, ", ")), position: a.Position, detail: a.Detail,
	}
}

// place returns the index of the call in its turn, from 0.
func (j *judgement) place() int {
	if at, ok := j.facts.Place[j.asked.ID]; ok && at >= 0 {
		return at
	}
	return j.index
}

// workerNotes describes for explain the bounds of the calls of a worker.
func workerNotes(s *Scope) []string {
	var notes []string
	if capped(s.Worker) {
		notes = append(notes, fmt.Sprintf("calls are refused once the run has spent more than %s (cost_cap_exceeded)",
			dollars(s.Worker.CostCapUSD)))
	}
	if s.Worker != nil && s.Worker.Hops > 0 {
		notes = append(notes, fmt.Sprintf("calls are refused once the run has tried %d (hop_budget_exhausted)",
			s.Worker.Hops))
	}
	return notes
}

// A subtask is given to another agent by a tool that an agent answers ([toolcrib.ByAgent]). The
// call becomes a run of its own. Each call of that run passes the gate again, with a [Scope] within
// that of the calling run.

// subtaskStep refuses arguments that are not a subtask, whatever the schema of the tool allows.
func (j *judgement) subtaskStep(arguments json.RawMessage) *refusal {
	if !j.entry.byAgent() {
		return nil
	}
	t, err := journal.ReadSubtask(arguments)
	switch {
	case err != nil:
		return invalid(schemaError{
			Expected: "agent and task as texts, tools as an array of texts or null",
			Got:      "something else",
		})
	case strings.TrimSpace(t.Agent) == "":
		return invalid(schemaError{Path: "/agent", Expected: "the name of an agent", Got: "nothing"})
	case strings.TrimSpace(t.Task) == "":
		return invalid(schemaError{Path: "/task", Expected: "a text that says what to do", Got: "nothing"})
	}
	return nil
}

// targetAgent adds the agent of a subtask to the call's targets if the tool did not, so that a user
// who may not use the agent cannot reach it through a tool.
func (j *judgement) targetAgent() {
	if !j.entry.byAgent() {
		return
	}
	sub, _ := journal.ReadSubtask(j.call.Arguments) // subtaskStep refuses what cannot be read
	agent := toolcrib.Target{Kind: toolcrib.TargetAgent, Name: sub.Agent}
	told := slices.ContainsFunc(j.targets, func(t toolcrib.Target) bool {
		return t.Kind == agent.Kind &&
			t.Name == agent.Name
	})
	if !told {
		j.targets = append(j.targets, agent)
	}
}

// shareStep refuses a subtask for which the run's budget has no share left.
func (j *judgement) shareStep() *refusal {
	if !j.entry.byAgent() || j.facts.Share == nil {
		return nil
	}
	if why := j.facts.Share(j.asked.ID); why != "" {
		return noShare(why)
	}
	return nil
}

// byAgent reports whether another agent answers the calls of the tool.
func (e *entry) byAgent() bool { return e.spec.AnsweredBy == toolcrib.ByAgent }

// nested reports whether the tool calls tools or agents.
func (e *entry) nested() bool { return e.spec.Nested || e.byAgent() }

// tooDeep reports whether a run of this scope is too deep for calls of the tool.
func (e *entry) tooDeep(s *Scope) bool {
	return s.Depth > s.MaxDepth || e.nested() && s.Depth >= s.MaxDepth
}

// noShare returns the refusal of a call for whose run no budget is left.
func noShare(why string) *refusal {
	which, _, _ := strings.Cut(why, ":")
	return refuse("no budget is left for another agent (%s). Do the work yourself, or answer with what you have.",
		which).because(toolcrib.ReasonBudgetExhausted, why)
}

// NoShare returns the refusal of a call for whose run no budget is left once its siblings of the
// same turn have their shares. When the turn was judged there was some left.
func NoShare(call *toolcrib.ToolCall, why string) Verdict {
	var v Verdict
	v.CallID, v.Tool, v.Effect = call.ID, call.Name, toolcrib.EffectReadOnly
	v.refused(noShare(why))
	return v
}
