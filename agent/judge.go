package agent

import (
	"context"
	"encoding/json"
	"slices"
	"strings"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/journal"
)

// judge lets the gate decide about every call of the turn that has no result yet,
// before any of them runs, and writes the answers down.
func (d *driver) judge(ctx context.Context) error {
	s := d.s
	open := s.Turn.open()
	calls := make([]toolcrib.ToolCall, len(open))
	for i, c := range open {
		calls[i] = c.ToolCall
		calls[i].Arguments = c.judgedArguments()
	}
	facts := s.facts()
	facts.Decided, facts.Counted, facts.Remembered = d.decided(open), counted(open), d.remembered(ctx)
	scope := scopeOf(s.Start)
	scope.NobodyAsks = scope.NobodyAsks || leftByNobody(open)
	verdicts := d.r.Gate.Judge(ctx, s.Start.Principal, scope, facts, calls)
	record := &journal.Verdicts{Iteration: s.Turn.Iteration, Again: s.Turn.Judged, Verdicts: make([]journal.Verdict, len(verdicts))}
	for i := range verdicts {
		v := &verdicts[i]
		d.maskVerdict(&v.Verdict)
		v.Content = d.r.Mask.Mask(v.Content)
		record.Verdicts[i] = v.Verdict
	}
	d.verdicts = verdicts
	return d.hold(record)
}

// facts is what the journal tells the gate about the run, now.
func (s *State) facts() gate.Facts {
	return gate.Facts{
		Run: s.Run, Session: s.Start.Session, Offered: s.OfferedNow(), Repeated: s.Repeated, Taint: s.Taint,
	}
}

// counted are the calls that were counted for the access token.
func counted(calls []*Call) map[string]bool {
	var m map[string]bool
	for _, c := range calls {
		if !c.Counted {
			continue
		}
		if m == nil {
			m = make(map[string]bool)
		}
		m[c.ID] = true
	}
	return m
}

// leftByNobody tells whether calls that were asked about are refused because nobody
// is there.
func leftByNobody(calls []*Call) bool { return slices.ContainsFunc(calls, (*Call).leftByNobody) }

func (c *Call) leftByNobody() bool {
	return c.Decision != nil && c.Decision.Decision == journal.DecisionDeny && c.DecidedBy.By == ByNobody
}

// decided is what a person decided on calls of this turn. Under four eyes an approval
// by whom the run acts for is none, also one from before that was switched on: the
// policy is always today's.
func (d *driver) decided(calls []*Call) map[string]gate.Decided {
	var m map[string]gate.Decided
	for _, c := range calls {
		if c.Decision == nil || c.leftByNobody() {
			continue
		}
		if d.r.FourEyes && c.Decision.Decision == journal.DecisionApprove && d.s.ownWord(c.DecidedBy) {
			continue
		}
		if m == nil {
			m = make(map[string]gate.Decided)
		}
		m[c.ID] = gate.Decided{
			Decision: c.Decision.Decision, ApprovalID: c.DecidedBy.ApprovalID,
			By: c.DecidedBy.By, Reason: c.DecidedBy.Reason, Asked: c.AskedFor,
		}
		if strings.Contains(c.AskedFor, guard.Mask) {
			// The words that were shown are not the gate's own any more; the digest
			// still binds the decision to this call. Who was not asked about taint has
			// not answered that.
			one := m[c.ID]
			one.Asked = string(toolcrib.ReasonNeedsConfirmation)
			if c.AskedAs == toolcrib.ReasonTaintedFlow {
				one.Asked = ""
			}
			m[c.ID] = one
		}
	}
	return m
}

func (d *driver) maskVerdict(v *journal.Verdict) {
	if d.r.Mask.Empty() {
		return
	}
	v.Message, v.Detail = d.r.Mask.Mask(v.Message), d.r.Mask.Mask(v.Detail)
	v.OperatorHint, v.SchemaError = d.r.Mask.Mask(v.OperatorHint), d.r.Mask.MaskJSON(v.SchemaError)
	if v.Preview != nil {
		v.Preview = &toolcrib.Preview{Kind: v.Preview.Kind, Text: d.r.Mask.Mask(v.Preview.Text)}
	}
}

// judgedArguments are the arguments that are judged and run: the model's, or a
// person's in their place.
func (c *Call) judgedArguments() json.RawMessage {
	if c.Decision != nil && len(c.Decision.Arguments) > 0 {
		return c.Decision.Arguments
	}
	return c.Arguments
}

// offerRecord is the offer as the journal keeps it.
func offerRecord(o gate.Offer) journal.Offer {
	record := o.Record
	record.Bytes = offerBytes(o.Specs)
	return record
}
