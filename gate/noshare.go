package gate

import "github.com/toolcrib/toolcrib"

// NoShare is the refusal of a call for whose run nothing is left of the budget, once
// its siblings of the same turn have their shares: when the turn was judged there was
// something left.
func NoShare(call *toolcrib.ToolCall, why string) Verdict {
	var v Verdict
	v.CallID, v.Tool, v.Effect = call.ID, call.Name, toolcrib.EffectReadOnly
	r := refuse("no budget is left for another agent. Do the work yourself, or answer with what you have.")
	r.reason, r.detail = toolcrib.ReasonBudgetExhausted, why
	v.refused(r)
	return v
}
