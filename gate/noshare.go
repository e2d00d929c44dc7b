package gate

import (
	"fmt"
	"strings"

	"github.com/toolcrib/toolcrib"
)

// noShare is what is said against a call for whose run nothing is left.
func noShare(why string) *refusal {
	which, _, _ := strings.Cut(why, ":")
	r := refuse(fmt.Sprintf("no budget is left for another agent (%s). Do the work yourself, or answer with what you have.", which))
	r.detail = why
	return r
}

// NoShare is the refusal of a call for whose run nothing is left of the budget, once
// its siblings of the same turn have their shares: when the turn was judged there was
// something left.
func NoShare(call *toolcrib.ToolCall, why string) Verdict {
	var v Verdict
	v.CallID, v.Tool, v.Effect = call.ID, call.Name, toolcrib.EffectReadOnly
	r := noShare(why)
	r.reason = toolcrib.ReasonBudgetExhausted
	v.refused(r)
	return v
}
