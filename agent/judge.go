package agent

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent/core"
	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/journal"
)

// judge lets the gate decide about all calls of the turn that have no result yet, before any of them
// runs, and records the verdicts.
func (d *driver) judge(ctx context.Context) error {
	s := d.s
	if err := d.forget(ctx); err != nil {
		return err
	}
	open := s.Turn.Open()
	calls := make([]toolcrib.ToolCall, len(open))
	for i, c := range open {
		calls[i] = c.ToolCall
		calls[i].Arguments = c.JudgedArguments()
		if c.Secret == "" { // a value may have become known as a secret since
			_, calls[i].Secret = d.r.Mask.Arguments(calls[i].Arguments)
		}
	}
	facts := factsOf(s)
	facts.Read, facts.Buffers = d.read, d.r.Buffers
	facts.Images = s.Start.Given == nil && s.Models[s.Model].Files == journal.FilesImages
	if !d.r.Mask.Empty() {
		facts.Mask = d.r.Mask.Mask
	}
	scope := scopeOf(s.Start)
	scope.MaxBytes = resultBytes(s.Start, len(s.Turn.Calls))
	d.heard(ctx, open, &facts, &scope)
	verdicts := d.r.Gate.Judge(ctx, s.Start.Principal, scope, facts, calls)
	record := &journal.Verdicts{
		Iteration: s.Turn.Iteration, Again: s.Turn.Judged,
		Verdicts: make([]journal.Verdict, len(verdicts)),
	}
	for i := range verdicts {
		v := &verdicts[i]
		MaskVerdict(d.r.Mask, v)
		record.Verdicts[i] = v.Verdict
	}
	d.verdicts, d.judged = verdicts, time.Now()
	return d.hold(record)
}

// heard adds people's decisions on these calls to facts and scope.
func (d *driver) heard(ctx context.Context, open []*core.Call, facts *gate.Facts, scope *gate.Scope) {
	facts.Decided, facts.Counted = d.decided(open), idsOf(open, func(c *core.Call) bool { return c.Counted })
	facts.Remembered = d.holding(d.s.Remembered)
	if d.r.Memory != nil {
		facts.Lasting = sync.OnceValue(func() []journal.Remembered { return d.holding(d.lasting(ctx)) })
	}
	scope.Unattended = scope.Unattended || slices.ContainsFunc(open, refusedUnattended)
	scope.AllApproved = scope.AllApproved && !d.r.FourEyes && d.r.Approver == nil // otherwise a person decides
}

// permitAge is the age of a permit up to which its call may start without a check for rights revoked
// since.
const permitAge = 500 * time.Millisecond

// withdrawn checks again, if the permits are older than that, whether a call that has not started yet
// may still run. It returns nil if so; otherwise it records the new verdict and returns it.
func (d *driver) withdrawn(ctx context.Context, c *core.Call) (*gate.Verdict, error) {
	if time.Since(d.judged) < permitAge {
		return nil, nil
	}
	v, gone := d.r.Gate.Withdrawn(ctx, d.s.Start.Principal, scopeOf(d.s.Start), &c.ToolCall)
	if !gone || ctx.Err() != nil { // a run that ends answers the call in another way
		return nil, nil
	}
	return d.overrule(v)
}

// overrule replaces the verdict on a call, and records the new one.
func (d *driver) overrule(v gate.Verdict) (*gate.Verdict, error) {
	MaskVerdict(d.r.Mask, &v)
	if old := d.verdict(v.CallID); old != nil {
		*old = v
	}
	return &v, d.hold(&journal.Verdicts{
		Iteration: d.s.Turn.Iteration, Again: true,
		Verdicts: []journal.Verdict{v.Verdict},
	})
}

// factsOf returns the current facts about the run, from its journal, for the gate.
func factsOf(s *State) gate.Facts {
	facts := gate.Facts{
		Run: s.Run, Session: s.Start.Session, Offered: s.OfferedNow(), Repeated: s.Repeated, Taint: s.Taint, Agreed: s.Agreed,
		Share: func(id string) string { return noShare(s, id) }, Place: places(s), Begun: begunCalls(s),
	}
	if len(s.Start.Ran) > 0 {
		facts.Ran = func(name string, arguments []byte, does []string) string { return repeats(s, name, arguments, does) }
	}
	if s.Start.Worker != nil {
		facts.SpentUSD = s.Spent().CostUSD
		if facts.Hops = len(s.Trace); s.Turn != nil {
			facts.Hops -= len(s.Turn.Calls)
		}
	}
	return facts
}

// places returns, for the gate, the positions of the calls in a turn that is judged in part, because
// limits on the number of calls include those that have a result already.
func places(s *State) map[string]int {
	if s.Turn == nil || !slices.ContainsFunc(s.Turn.Calls, func(c *core.Call) bool { return c.Result != nil }) {
		return nil
	}
	places := make(map[string]int, len(s.Turn.Calls))
	for i, c := range s.Turn.Calls {
		places[c.ID] = i
	}
	return places
}

// noShare returns, for the gate, the reason why a call may have no child run, or "".
func noShare(s *State, callID string) string {
	c, err := s.Find(callID)
	if err != nil {
		c = nil
	}
	_, none := s.ShareFor(c)
	return none
}

// idsOf returns the IDs of the calls for which is returns true; nil if none.
func idsOf(calls []*core.Call, is func(*core.Call) bool) map[string]bool {
	var ids map[string]bool
	for _, c := range calls {
		if is(c) {
			if ids == nil {
				ids = make(map[string]bool)
			}
			ids[c.ID] = true
		}
	}
	return ids
}

// refusedUnattended reports whether a call that was asked about is refused because no person can decide.
func refusedUnattended(c *core.Call) bool {
	return c.Decision != nil && c.Decision.Decision == journal.DecisionDeny && c.DecidedBy.By == core.ByUnattended
}

// decided returns the decisions on calls of this turn. Under four eyes an approval by the user of the
// run is ignored, even if it was given before four eyes was switched on: the current policy applies.
func (d *driver) decided(calls []*core.Call) map[string]gate.Decided {
	var m map[string]gate.Decided
	for _, c := range calls {
		var word gate.Decided
		if c.Decision != nil && !refusedUnattended(c) &&
			!(d.r.FourEyes && c.Decision.Decision == journal.DecisionApprove && ownDecision(d.s, c.DecidedBy)) {
			word = gate.Decided{
				Decision: c.Decision.Decision, ApprovalID: c.DecidedBy.ApprovalID,
				By: c.DecidedBy.By, Reason: c.DecidedBy.Reason, Unbound: c.DecidedBy.By == core.ByAll, Begun: c.Lost,
			}
			if c.Asked != nil {
				word.Asked, word.Binding = c.Asked.Questions, c.Approved(c.Decision).Binding
			}
		} else if !c.Retried {
			continue
		}
		if c.Retried {
			word.Retried, word.Unbound, word.Binding = true, false, c.RetryBound
		}
		if m == nil {
			m = make(map[string]gate.Decided)
		}
		m[c.ID] = word
	}
	return m
}

// MaskVerdict masks the secrets in all texts of a verdict.
func MaskVerdict(mask *guard.Masker, v *gate.Verdict) {
	if mask.Empty() {
		return
	}
	v.Message, v.Detail, v.Content = mask.Mask(v.Message), mask.Mask(v.Detail), mask.Mask(v.Content)
	v.Changed = mask.Mask(v.Changed)
	for i := range v.Questions {
		v.Questions[i].Text = mask.Mask(v.Questions[i].Text)
	}
	v.OperatorHint, v.SchemaError = mask.Mask(v.OperatorHint), mask.MaskJSON(v.SchemaError)
	if v.Preview != nil {
		v.Preview = &toolcrib.Preview{Kind: v.Preview.Kind, Text: mask.Mask(v.Preview.Text)}
	}
}

// begunCalls returns the calls of the turn whose own run has begun.
func begunCalls(s *State) map[string]bool {
	if s.Turn == nil {
		return nil
	}
	return idsOf(s.Turn.Calls, func(c *core.Call) bool { return c.Child != nil })
}

// Scope returns the restrictions on the tools of the run, from the snapshot at its start.
func Scope(s *State) gate.Scope { return scopeOf(s.Start) }

// Facts returns the facts about the next call of the run, from its journal, for the gate. They are for
// inspection, so nothing is counted. The caller must set Offered to a current offer.
func Facts(s *State) gate.Facts {
	f := factsOf(s)
	f.Offered, f.DryRun = nil, true
	f.Remembered = append([]journal.Remembered(nil), s.Remembered...)
	return f
}
