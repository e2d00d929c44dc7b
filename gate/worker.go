package gate

import (
	"fmt"

	"github.com/toolcrib/toolcrib/journal"
)

// The bounds of a worker (requirements X6, X15 to X18): how many calls it may try, and
// what it may have spent when one is judged.

// costCapEnforce is the mode of a cost cap that refuses; off, warn and every other one
// refuses nothing.
const costCapEnforce = "enforce"

// costCapStep refuses every call of a worker that has spent more than its cap (X17).
func (j *judgement) costCapStep() *refusal {
	w := j.scope.Worker
	if !capped(w) || j.facts.SpentUSD <= w.CostCapUSD {
		return nil
	}
	return refuse(fmt.Sprintf("per-turn cost cap exceeded (observed=%s, cap=%s)", dollars(j.facts.SpentUSD), dollars(w.CostCapUSD)))
}

// capped tells whether there is a cost cap that is enforced.
func capped(w *journal.WorkerLimits) bool {
	return w != nil && w.CostCapMode == costCapEnforce && w.CostCapUSD > 0
}

// dollars writes an amount as the errors of budgets do.
func dollars(v float64) string { return fmt.Sprintf("$%.6g", v) }

// hopStep refuses what a worker calls beyond its budget of calls (X6). Every call that
// was tried counts, whatever became of it.
func (j *judgement) hopStep() *refusal {
	w := j.scope.Worker
	if w == nil || w.Hops <= 0 || max(0, j.facts.Hops)+j.place() < w.Hops {
		return nil
	}
	r := refuse(fmt.Sprintf("tool-hop budget exceeded (%d)", w.Hops))
	r.hint = "Produce your final answer now without further tool calls."
	return r
}

// place is where the call stands in its turn, from 0.
func (j *judgement) place() int {
	if at, ok := j.facts.Place[j.asked.ID]; ok && at >= 0 {
		return at
	}
	return j.index
}

// workerNotes tell what bounds the calls of a worker, for explain.
func workerNotes(s *Scope) []string {
	var notes []string
	if capped(s.Worker) {
		notes = append(notes, fmt.Sprintf("calls are refused once the run has spent more than %s (cost_cap_exceeded)", dollars(s.Worker.CostCapUSD)))
	}
	if s.Worker != nil && s.Worker.Hops > 0 {
		notes = append(notes, fmt.Sprintf("calls are refused once the run has tried %d (hop_budget_exhausted)", s.Worker.Hops))
	}
	return notes
}
