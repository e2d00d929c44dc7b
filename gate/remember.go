package gate

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/journal"
)

// Remembered is an approval that a person made to hold for later calls, too
// (contract §6). It lifts what a rule's allow may lift, and no more: never a
// refusal, never what settings.X.confirm: always asks.
type Remembered struct {
	Tool string
	// Arguments are the canonical arguments that it holds for; nil = any.
	Arguments json.RawMessage
	// Effect is the effect of the calls that were approved: with any arguments, a
	// call with a worse one is asked about.
	Effect     toolcrib.Effect
	Scope      string // run | session | user
	ApprovalID string
	By         string
}

// Remember makes what an approval of this call says about later ones. Calls that
// may be repeated safely are remembered by their tool, others by their arguments,
// unless the person said so otherwise (design.md §7: remember narrowly).
func Remember(r journal.Remember, approval *journal.ConfirmationResolved, tool string, arguments json.RawMessage, effect toolcrib.Effect) Remembered {
	m := Remembered{Tool: tool, Effect: effect.OrStrictest(), Scope: r.Scope, ApprovalID: approval.ApprovalID, By: approval.By}
	byTool := r.Calls == journal.RememberTool || r.Calls == "" && m.Effect != toolcrib.EffectNonIdempotentWrite
	if !byTool {
		m.Arguments = arguments
	}
	return m
}

// lifts tells whether the question about this call was answered before.
func (m *Remembered) lifts(tool string, arguments json.RawMessage, effect toolcrib.Effect) bool {
	if m.Tool != tool {
		return false
	}
	if m.Arguments != nil {
		return bytes.Equal(m.Arguments, arguments)
	}
	return severity(effect) <= severity(m.Effect)
}

func (m *Remembered) detail() string {
	return fmt.Sprintf("remembered for the %s: approval %s by %s", m.Scope, m.ApprovalID, m.By)
}

// severity orders effects by what they may do.
func severity(e toolcrib.Effect) int {
	switch e {
	case toolcrib.EffectReadOnly:
		return 0
	case toolcrib.EffectIdempotentWrite:
		return 1
	}
	return 2
}

// remembered is the approval that answers the question about this call; nil =
// none.
func (j *judgement) remembered() *Remembered {
	for i := range j.facts.Remembered {
		m := &j.facts.Remembered[i]
		if m.lifts(j.call.Name, j.call.Arguments, j.effect) {
			return m
		}
	}
	return nil
}
