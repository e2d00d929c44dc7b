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
	facts := gate.Facts{
		Run: s.Run, Session: s.Start.Session,
		Offered: s.OfferedNow(), Repeated: s.Repeated, Decided: decided(open),
		Remembered: d.remembered(ctx), Taint: s.Taint,
	}
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

// leftByNobody tells whether calls that were asked about are refused because nobody
// is there.
func leftByNobody(calls []*Call) bool { return slices.ContainsFunc(calls, (*Call).leftByNobody) }

func (c *Call) leftByNobody() bool {
	return c.Decision != nil && c.Decision.Decision == journal.DecisionDeny && c.DecidedBy.By == ByNobody
}

// decided is what a person decided on calls of this turn.
func decided(calls []*Call) map[string]gate.Decided {
	var m map[string]gate.Decided
	for _, c := range calls {
		if c.Decision == nil || c.leftByNobody() {
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
			// still binds the decision to this call.
			d := m[c.ID]
			d.Asked = ""
			m[c.ID] = d
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

// confirm asks a person about the turn, as the run was told to.
func (d *driver) confirm(ctx context.Context, step Step) error {
	required := d.required(step)
	approve := Approve(d.s.Start.Approve)
	if approve == ApproveAll && required.Kind != journal.ApprovalCall {
		approve = ApproveNone // what is in doubt is for a person
	}
	if approve == ApproveAll {
		// At once, so that a run that is cut off here does what it was told.
		if resolved := d.approvedByAll(required); resolved != nil {
			return d.append(ctx, required, resolved)
		}
	}
	if err := d.append(ctx, required); err != nil {
		return err
	}
	switch approve {
	case ApproveAsk:
		if d.r.Approver == nil {
			return nil
		}
		decision, ok, err := d.r.Approver.Decide(ctx, d.s.Run, required)
		if err != nil || !ok {
			return err
		}
		decision.ApprovalID, decision.Digest = required.ApprovalID, required.Digest
		lasting := d.s.lasting(&decision)
		if err := d.append(ctx, &decision); err != nil {
			return err
		}
		if err := d.r.keep(ctx, d.s, lasting); err != nil {
			d.r.Log.WarnContext(ctx, "an approval is not remembered", "run", d.s.Run, "error", d.r.Mask.Mask(err.Error()))
		}
	}
	return nil
}

// required is the approval that the turn needs: about calls in doubt first, for
// nothing else of the turn can be decided before.
func (d *driver) required(step Step) *journal.ConfirmationRequired {
	if step.Message != "" {
		return d.more(step.Message)
	}
	if lost := d.s.Turn.lost(); len(lost) > 0 {
		return d.inDoubt(lost)
	}
	req := &journal.ConfirmationRequired{
		ApprovalID: d.r.NewID("apr_"), Kind: journal.ApprovalCall, Iteration: d.s.Turn.Iteration,
	}
	if q := d.s.Turn.firstQuestion(); q != nil {
		return d.question(req, q)
	}
	for _, c := range d.s.Turn.open() {
		if c.Verdict == nil || c.Verdict.Decision != toolcrib.Ask {
			continue
		}
		req.Calls = append(req.Calls, journal.ApprovalItem{
			ID: c.ID, Name: c.Name, Arguments: c.judgedArguments(), Effect: c.Verdict.Effect,
			Preview: c.Verdict.Preview, Reason: c.Verdict.Message,
		})
		if req.Reason == "" {
			req.Reason = c.Verdict.Message
		}
	}
	req.Digest = journal.Digest(d.s.Run, req.Iteration, d.s.Start.Principal, req.Calls)
	return req
}

// inDoubt asks what became of writes whose driver was lost.
func (d *driver) inDoubt(lost []*Call) *journal.ConfirmationRequired {
	req := &journal.ConfirmationRequired{
		ApprovalID: d.r.NewID("apr_"), Kind: journal.ApprovalInDoubt, Iteration: d.s.Turn.Iteration,
		Reason: "the run was cut off after these calls had started; nobody knows whether they took effect",
	}
	for _, c := range lost {
		if c.Doubt != nil {
			continue
		}
		effect := toolcrib.EffectNonIdempotentWrite
		if c.Verdict != nil {
			effect = c.Verdict.Effect
		}
		req.Calls = append(req.Calls, journal.ApprovalItem{ID: c.ID, Name: c.Name, Arguments: c.judgedArguments(), Effect: effect})
	}
	req.Digest = journal.Digest(d.s.Run, req.Iteration, d.s.Start.Principal, req.Calls)
	return req
}

// judgedArguments are the arguments that are judged and run: the model's, or a
// person's in their place.
func (c *Call) judgedArguments() json.RawMessage {
	if c.Decision != nil && len(c.Decision.Arguments) > 0 {
		return c.Decision.Arguments
	}
	return c.Arguments
}

// park lets go of the run until somebody decides.
func (d *driver) park(ctx context.Context) error {
	a := d.s.Approval
	status := toolcrib.StatusWaitingForApproval
	if a.Kind == journal.ApprovalInput {
		status = toolcrib.StatusWaitingForInput
	}
	return d.append(ctx, &journal.Paused{
		Status: status,
		Pending: journal.Pending{
			Kind: string(a.Kind), ApprovalID: a.ApprovalID, Digest: a.Digest, Calls: a.Calls,
			Question: a.Question, Schema: a.Schema,
		},
	})
}

// offerRecord is the offer as the journal keeps it.
func offerRecord(o gate.Offer) journal.Offer {
	record := o.Record
	record.Bytes = offerBytes(o.Specs)
	return record
}
