package agent

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent/core"
	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/journal"
)

// confirm asks a person about the turn, as the run's Approve demands.
func (d *driver) confirm(ctx context.Context, step core.Step) error {
	required := d.required(ctx, step)
	approve := Approve(d.s.Start.Approve)
	switch {
	case approve == ApproveAll && required.Kind != journal.ApprovalCall:
		approve = ApproveNone // it covers nothing but approvals of calls
	case d.r.FourEyes && (approve == ApproveAll || approve == ApproveAsk && d.decider().User == d.s.Start.Principal.User):
		approve = ApproveNone // it would be a decision of the user of the run
	}
	if approve == ApproveAll {
		// Decided at once, so that a run that is cut off here keeps its decision.
		if resolved := d.approvedByAll(required); resolved != nil {
			return d.append(ctx, required, d.s.WithShown(required.Calls, resolved))
		}
	}
	if approve != ApproveAsk || d.r.Approver == nil {
		return d.parkFor(ctx, required, required) // in one append: the decision may be made as soon as it is requested
	}
	if err := d.append(ctx, required); err != nil {
		return err
	}
	err := d.put(ctx, required)
	if text := refusedWord(err); text != "" {
		return d.append(ctx, d.forbidden(text))
	}
	if err != nil && ctx.Err() != nil {
		return d.givenUp(ctx, err)
	}
	return err
}

// refusedWord returns the text about a decision that was not allowed or is invalid, or "" for other
// errors.
func refusedWord(err error) string {
	switch toolcrib.CodeOf(err) {
	case toolcrib.CodeForbidden, toolcrib.CodeBadRequest:
		return err.Error()
	}
	return ""
}

func (d *driver) forbidden(text string) toolcrib.Body {
	return journal.Noticef(NoticeForbidden, "%s", d.r.Mask.Mask(text))
}

// put asks the Approver about the undecided calls of an approval. Without an answer the run parks. It
// also parks after a decision that the user may not make, which is an error and is not recorded.
func (d *driver) put(ctx context.Context, required *journal.ConfirmationRequired) error {
	shown := *required
	if open := d.s.Undecided(); len(open) < len(required.Calls) {
		shown.Calls = slices.DeleteFunc(slices.Clone(required.Calls), func(item journal.ApprovalItem) bool {
			return !slices.ContainsFunc(open, func(c *core.Call) bool { return c.ID == item.ID })
		})
	}
	if err := d.r.checkDecider(ApproveAsk, d.s.Start.Principal); err != nil {
		return fmt.Errorf("run %s: %w", d.s.Run, err)
	}
	word, ok, err := d.r.Approver.Decide(ctx, d.s.Run, &shown)
	if err != nil { // its code is not about the decision
		return &toolcrib.Error{Code: toolcrib.CodeInternal, Message: err.Error(), Err: err}
	}
	if !ok {
		return nil
	}
	if !word.Known() {
		return toolcrib.Errorf(toolcrib.CodeInternal, "run %s: the Approver returned the unknown decision %q (valid: approve, deny, mixed, retry, happened, not_happened, answer)",
			d.s.Run, word.Decision)
	}
	decision := Decision{
		Who: d.decider(), Reason: word.Reason, Decision: word.Decision, Calls: word.Calls, Remember: word.Remember,
	}
	if decision.Decision == journal.DecisionMixed {
		decision.Decision = ""
	}
	resolved, err := d.r.decided(ctx, d.s, decision, true)
	if err != nil {
		return err
	}
	lasting := remembers(d.s, resolved)
	if err := d.append(ctx, resolved); err != nil {
		return err
	}
	if err := d.r.keep(ctx, d.s, lasting); err != nil {
		d.r.Log.WarnContext(ctx, "an approval is not remembered", "run", d.s.Run, "error", d.r.Mask.Mask(err.Error()))
	}
	return nil
}

// required returns the approval that the turn needs. Calls in doubt come first, since nothing else of
// the turn can be decided before them.
func (d *driver) required(ctx context.Context, step core.Step) *journal.ConfirmationRequired {
	if step.Message != "" {
		// There are no calls: the decision is an [Addition.Granted], or a denial.
		return d.approval(&journal.ConfirmationRequired{
			Kind: journal.ApprovalInput, Calls: []journal.ApprovalItem{}, Reason: step.Message, Question: step.Message +
				". Grant more (resume with --add-iterations, --add-cost or --add-tokens), or deny, and the run ends with what it has.",
		})
	}
	if lost := d.s.Turn.Lost(); len(lost) > 0 {
		return d.inDoubt(ctx, lost)
	}
	if q := d.s.Turn.FirstQuestion(); q != nil {
		question, schema := gate.Question(q.JudgedArguments())
		return d.approval(&journal.ConfirmationRequired{
			Kind: journal.ApprovalInput, Question: question, Schema: schema, Reason: q.Name + " asks the person",
			Calls: []journal.ApprovalItem{q.Item()},
		})
	}
	req := &journal.ConfirmationRequired{Kind: journal.ApprovalCall}
	for _, c := range d.s.Turn.Open() {
		if c.Verdict == nil || c.Verdict.Decision != toolcrib.Ask {
			continue
		}
		item := c.Item()
		item.Preview, item.Reason, item.Questions = c.Verdict.Preview, c.Verdict.Message, c.Verdict.Questions
		item.Changed, item.Binding = c.Verdict.Changed, c.Verdict.Binding
		req.Calls, req.Reason = append(req.Calls, item), cmp.Or(req.Reason, item.Reason)
	}
	return d.approval(req)
}

// approval fills in the fields that all questions to a person have.
func (d *driver) approval(req *journal.ConfirmationRequired) *journal.ConfirmationRequired {
	req.ApprovalID, req.Iteration = d.r.NewID("apr_"), d.s.Iterations
	if d.s.Turn != nil {
		req.Iteration = d.s.Turn.Iteration
	}
	req.Digest = journal.Digest(d.s.Run, req.Iteration, d.s.Start.Principal, req.Calls)
	return req
}

// inDoubt asks whether writes whose driver was lost took effect. The decision is bound to the current
// state of the workspace.
func (d *driver) inDoubt(ctx context.Context, lost []*core.Call) *journal.ConfirmationRequired {
	req := &journal.ConfirmationRequired{
		Kind:   journal.ApprovalInDoubt,
		Reason: "the run was cut off after these calls had started; nobody knows whether they took effect",
	}
	for _, c := range lost {
		if c.Doubt != nil {
			continue
		}
		item, call := c.Item(), c.ToolCall
		call.Arguments = item.Arguments
		item.Binding = d.r.Gate.Bind(ctx, d.s.Start.Principal, scopeOf(d.s.Start), &call)
		req.Calls = append(req.Calls, item)
	}
	return d.approval(req)
}

// park releases the run until it is decided on, or its provider or client can continue it. The
// Announcer is called after the pause is in the journal, because the decision may be made at once. The
// pause is the last event that the run's watchers see.
func (d *driver) park(ctx context.Context, step core.Step) error {
	if p := step.Pending; p != nil {
		status := toolcrib.StatusWaitingForProvider
		if p.Kind == journal.PendingClientTool {
			status = toolcrib.StatusWaitingForTool
			if most := d.r.ClientTimeout; most > 0 {
				at := d.r.Clock.Now().UTC().Add(most).Truncate(time.Microsecond)
				p.ExpiresAt = &at
			}
		}
		return d.append(ctx, &journal.Paused{Status: status, Pending: *p})
	}
	return d.parkFor(ctx, d.s.Approval)
}

// parkFor releases the run until a is decided. It writes before ahead of the pause.
func (d *driver) parkFor(ctx context.Context, a *journal.ConfirmationRequired, before ...toolcrib.Body) error {
	status := toolcrib.StatusWaitingForApproval
	if a.Kind == journal.ApprovalInput {
		status = toolcrib.StatusWaitingForInput
	}
	err := d.append(ctx, append(before, &journal.Paused{
		Status: status,
		Pending: journal.Pending{
			Kind: string(a.Kind), ApprovalID: a.ApprovalID, Digest: a.Digest, Calls: a.Calls,
			Question: a.Question, Schema: a.Schema,
		},
	})...)
	if err == nil && d.r.Announcer != nil {
		d.r.Announcer.Announce(ctx, d.s)
	}
	return err
}

// Memory keeps approvals that apply beyond their run: to its session or its user. They can be listed
// and revoked there. A revoked approval applies to no later call, including those of runs in progress.
type Memory interface {
	// Remembered returns the approvals of a user and a session, or of the user alone if session is "".
	Remembered(ctx context.Context, user string, session toolcrib.SessionID) ([]journal.Remembered, error)
	// Remember keeps approvals, for a session or a user according to their Scope.
	Remember(ctx context.Context, user string, session toolcrib.SessionID, run toolcrib.RunID,
		approvals []journal.Remembered) error
	// Forgotten returns the revoked ones of the approvals that were remembered for a run. Its driver
	// writes them into the run's journal before it judges the next calls.
	Forgotten(ctx context.Context, run toolcrib.RunID) ([]journal.Forgotten, error)
}

// forget records which approvals remembered for the run have been revoked since.
func (d *driver) forget(ctx context.Context) error {
	if len(d.s.Remembered) == 0 || d.r.Memory == nil {
		return nil
	}
	revoked, err := d.r.Memory.Forgotten(ctx, d.s.Run)
	if err != nil {
		return err
	}
	var bodies []toolcrib.Body
	for i := range revoked {
		if len(core.Holding(d.s.Remembered, revoked[i:i+1])) < len(d.s.Remembered) {
			bodies = append(bodies, &revoked[i])
		}
	}
	if len(bodies) == 0 {
		return nil
	}
	return d.append(ctx, bodies...)
}

// holding returns the remembered approvals that may apply to the calls of a turn. Under four eyes,
// those of the user of the run do not.
func (d *driver) holding(all []journal.Remembered) []journal.Remembered {
	if d.r.FourEyes && len(all) > 0 {
		return OfOthers(d.s.Start.Principal.User, OfOthers(d.r.Mask.Mask(d.s.Start.Principal.User), all))
	}
	return all
}

// lasting returns the approvals that apply beyond their run. If they cannot be read, it returns none,
// and a person is asked.
func (d *driver) lasting(ctx context.Context) []journal.Remembered {
	all, err := d.r.Memory.Remembered(ctx, d.s.Start.Principal.User, d.s.Start.Session)
	if err != nil {
		d.r.Log.WarnContext(ctx, "remembered approvals could not be read", "run", d.s.Run, "error",
			d.r.Mask.Mask(err.Error()))
		return nil
	}
	return all
}

// remembers returns the approvals in a decision that apply beyond the run.
func remembers(s *State, b *journal.ConfirmationResolved) []journal.Remembered {
	m := b.Remember
	if m == nil || m.Scope == journal.RememberRun || s.Approval == nil || s.Approval.Kind != journal.ApprovalCall {
		return nil
	}
	var all []journal.Remembered
	for _, item := range s.Approval.Calls {
		c, err := s.Find(item.ID)
		if err != nil || c.Verdict == nil || s.DecisionOn(c) != nil {
			continue // earlier decisions are not remembered with this one
		}
		word := b.Of(c.ID)
		if word.Decision != journal.DecisionApprove {
			continue
		}
		if m, ok := m.Extend(b, c.Approved(&word)); ok {
			all = append(all, m)
		}
	}
	return all
}

// keep passes approvals that apply beyond the run to the memory, after the decision was recorded. If
// that fails, the decision is still valid, and a person is asked again next time.
func (r *Runner) keep(ctx context.Context, s *State, approvals []journal.Remembered) error {
	approvals = slices.DeleteFunc(approvals, func(m journal.Remembered) bool { return r.Gate.AlwaysAsks(m.Tool) })
	if len(approvals) == 0 || r.Memory == nil {
		return nil
	}
	return r.Memory.Remember(ctx, s.Start.Principal.User, s.Start.Session, s.Run, approvals)
}
