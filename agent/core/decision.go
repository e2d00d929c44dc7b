package core

import (
	"bytes"
	"encoding/json"
	"slices"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/journal"
)

// Item returns the call as an approval shows it.
func (c *Call) Item() journal.ApprovalItem {
	item := journal.ApprovalItem{
		ID: c.ID, Name: c.Name, Arguments: c.JudgedArguments(), Effect: toolcrib.EffectNonIdempotentWrite,
	}
	if c.Verdict != nil {
		item.Effect = c.Verdict.Effect
	}
	return item
}

// Holding returns the approvals remembered for a run that were not revoked.
func Holding(all []journal.Remembered, revoked []journal.Forgotten) []journal.Remembered {
	return slices.DeleteFunc(slices.Clone(all), func(m journal.Remembered) bool {
		return slices.ContainsFunc(revoked, func(b journal.Forgotten) bool {
			return b.ApprovalID == m.ApprovalID && b.Tool == m.Tool && b.Path == m.Path && b.Folder == m.Folder &&
				b.Program == m.Program &&
				(b.Arguments == nil) == (m.Arguments == nil) && bytes.Equal(b.Arguments, m.Arguments)
		})
	})
}

// WithShown adds to an approval the arguments that were shown, if a person had changed them before and
// the call was asked about again. With them in the event, folding needs no rule for this.
func (s *State) WithShown(shown []journal.ApprovalItem, b *journal.ConfirmationResolved) *journal.ConfirmationResolved {
	for _, item := range shown {
		word := b.Of(item.ID)
		if word.Decision != journal.DecisionApprove || len(word.Arguments) > 0 {
			continue
		}
		c, err := s.Find(item.ID)
		if err != nil || bytes.Equal(item.Arguments, c.Arguments) {
			continue
		}
		if b.Calls == nil {
			b.Calls = make(map[string]journal.CallDecision)
		}
		word.Arguments = item.Arguments
		b.Calls[item.ID] = word
	}
	return b
}

// WithEarlier adds the earlier decisions on single calls of the approval.
func (s *State) WithEarlier(resolved *journal.ConfirmationResolved) *journal.ConfirmationResolved {
	for _, item := range s.Approval.Calls {
		c, err := s.Find(item.ID)
		if err != nil {
			continue
		}
		if _, now := resolved.Calls[c.ID]; now {
			continue
		}
		if word := s.DecisionOn(c); word != nil {
			resolved.Calls[c.ID] = *word
		}
	}
	return resolved
}

// DecisionOn returns the decision on a call of the open approval, or nil.
func (s *State) DecisionOn(c *Call) *journal.CallDecision {
	if s.Approval.Kind == journal.ApprovalInDoubt {
		return c.Doubt
	}
	if c.DecidedBy != nil && c.DecidedBy.ApprovalID == s.Approval.ApprovalID {
		return c.Decision
	}
	return nil
}

// Undecided returns the calls of the open approval without a decision.
func (s *State) Undecided() []*Call {
	var open []*Call
	for _, item := range s.Approval.Calls {
		if c, err := s.Find(item.ID); err == nil && s.DecisionOn(c) == nil {
			open = append(open, c)
		}
	}
	return open
}

// Values of [journal.ConfirmationResolved.By] for decisions that no person made on the single calls.
const (
	// ByAll is the approval of all calls that are asked about (--approve all).
	ByAll = "--approve all"
	// ByUnattended is a denial without a person: a parked run continues like one started with
	// --approve deny. Its calls are refused as needing an approval, and the agent's on_denial does not
	// apply.
	ByUnattended = "--approve deny"
)

// FirstQuestion returns the first call that a person has yet to answer, or nil. It also returns nil
// while the turn has open calls other than questions and child runs that wait.
func (t *Turn) FirstQuestion() *Call {
	var first *Call
	for _, c := range t.Open() {
		switch {
		case c.Waits != nil:
		case !c.Question():
			return nil
		case first == nil && c.Answer == nil:
			first = c
		}
	}
	return first
}

// Approved returns the call that a decision approves: as it was shown, or with the arguments that a
// person gave.
func (c *Call) Approved(word *journal.CallDecision) *journal.ApprovalItem {
	item := &journal.ApprovalItem{ID: c.ID, Name: c.Name, Arguments: c.JudgedArguments()}
	if c.Asked != nil {
		item.Effect, item.Binding = c.Asked.Effect, c.Asked.Binding
	}
	if len(word.Arguments) > 0 {
		item.Arguments = word.Arguments
	}
	if word.Binding != nil {
		item.Binding = word.Binding
	}
	return item
}

// JudgedArguments returns the arguments that are judged and run: those of a person, if given,
// otherwise the model's.
func (c *Call) JudgedArguments() json.RawMessage {
	if c.Decision != nil && len(c.Decision.Arguments) > 0 {
		return c.Decision.Arguments
	}
	return c.Arguments
}
