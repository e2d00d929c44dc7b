package agent

import (
	"bytes"
	"context"
	"fmt"
	"slices"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/journal"
)

// confirm asks a person about the turn, as the run was told to.
func (d *driver) confirm(ctx context.Context, step Step) error {
	required := d.required(ctx, step)
	approve := Approve(d.s.Start.Approve)
	switch {
	case approve == ApproveAll && required.Kind != journal.ApprovalCall:
		approve = ApproveNone // what is in doubt is for a person
	case d.r.FourEyes && (approve == ApproveAll || approve == ApproveAsk && d.decider().User == d.s.Start.Principal.User):
		approve = ApproveNone // it would be the word of the one for whom the run acts
	}
	if approve == ApproveAll {
		// At once, so that a run that is cut off here does what it was told.
		if resolved := d.approvedByAll(required); resolved != nil {
			return d.append(ctx, required, d.s.bound(required.Calls, resolved))
		}
	}
	if err := d.append(ctx, required); err != nil {
		return err
	}
	if approve != ApproveAsk || d.r.Approver == nil {
		return nil
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

// refusedWord is what is told of an answer that was not its giver's to give, or cannot
// be meant; "" = it was none.
func refusedWord(err error) string {
	switch toolcrib.CodeOf(err) {
	case toolcrib.CodeForbidden, toolcrib.CodeBadRequest:
		return err.Error()
	}
	return ""
}

func (d *driver) forbidden(text string) toolcrib.Body {
	return &journal.Notice{Notice: toolcrib.Notice{Code: NoticeForbidden, Message: d.r.Mask.Mask(text)}}
}

// put puts what is open of an approval to whoever is there. No answer, and one that is
// not theirs to give, leaves the run to park; the latter is an error, of which nothing is
// written down.
func (d *driver) put(ctx context.Context, required *journal.ConfirmationRequired) error {
	shown := *required
	if open := undecided(d.s); len(open) < len(required.Calls) {
		shown.Calls = slices.DeleteFunc(slices.Clone(required.Calls), func(item journal.ApprovalItem) bool {
			return !slices.ContainsFunc(open, func(c *Call) bool { return c.ID == item.ID })
		})
	}
	if err := d.r.checkDecider(ApproveAsk, d.s.Start.Principal); err != nil {
		return fmt.Errorf("run %s: %w", d.s.Run, err)
	}
	decision, ok, err := d.r.Approver.Decide(ctx, d.s.Run, &shown)
	if err != nil { // whatever its code: it is no word of anybody
		return &toolcrib.Error{Code: toolcrib.CodeInternal, Message: err.Error(), Err: err}
	}
	if !ok {
		return nil
	}
	if !decision.Known() {
		return toolcrib.Errorf(toolcrib.CodeInternal, "run %s: the Approver returned the unknown decision %q (valid: approve, deny, mixed, retry, happened, not_happened, answer)",
			d.s.Run, decision.Decision)
	}
	if err := d.bindEdits(ctx, &decision); err != nil {
		return err
	}
	who := d.decider()
	decision.ApprovalID, decision.Digest, decision.By, decision.User = required.ApprovalID, required.Digest,
		d.r.Mask.Mask(NameOf(who)), who.User
	if err := d.r.checkRemember(d.s, &decision); err != nil {
		return err
	}
	if err := d.r.mayDecide(ctx, d.s, who, &decision); err != nil {
		return err
	}
	if decision.Decision == journal.DecisionMixed {
		agreed(&decision)
		decision.Open = slices.ContainsFunc(shown.Calls, func(item journal.ApprovalItem) bool {
			return decision.Calls[item.ID].Decision == ""
		})
	}
	d.s.bound(required.Calls, &decision)
	lasting := d.s.lasting(&decision)
	if err := d.append(ctx, &decision); err != nil {
		return err
	}
	if err := d.r.keep(ctx, d.s, lasting); err != nil {
		d.r.Log.WarnContext(ctx, "an approval is not remembered", "run", d.s.Run, "error", d.r.Mask.Mask(err.Error()))
	}
	return nil
}

// bindEdits binds the approval of calls with other arguments to what these name. Those
// that the gate refuses have nothing: they are refused when the turn is judged again.
func (d *driver) bindEdits(ctx context.Context, decision *journal.ConfirmationResolved) error {
	for id, word := range decision.Calls {
		if len(word.Arguments) == 0 {
			continue
		}
		if err := d.s.begun(id, word.Arguments); err != nil {
			return err
		}
		c, err := d.s.find(id)
		if err != nil {
			continue
		}
		call := c.ToolCall
		call.Arguments, call.Secret = d.r.Mask.Arguments(word.Arguments)
		word.Binding = d.r.judgeEdit(ctx, d.s, call).Binding
		decision.Calls[id] = word
	}
	return nil
}

// required is the approval that the turn needs: about calls in doubt first, for
// nothing else of the turn can be decided before.
func (d *driver) required(ctx context.Context, step Step) *journal.ConfirmationRequired {
	if step.Message != "" {
		return d.more(step.Message)
	}
	if lost := d.s.Turn.lost(); len(lost) > 0 {
		return d.inDoubt(ctx, lost)
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
			Questions: c.Verdict.Questions, Changed: c.Verdict.Changed, Binding: c.Verdict.Binding,
		})
		if req.Reason == "" {
			req.Reason = c.Verdict.Message
		}
	}
	req.Digest = journal.Digest(d.s.Run, req.Iteration, d.s.Start.Principal, req.Calls)
	return req
}

// inDoubt asks what became of writes whose driver was lost. The answer is bound to what
// the workspace is like now.
func (d *driver) inDoubt(ctx context.Context, lost []*Call) *journal.ConfirmationRequired {
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
		call := c.ToolCall
		call.Arguments = c.judgedArguments()
		req.Calls = append(req.Calls, journal.ApprovalItem{
			ID: c.ID, Name: c.Name, Arguments: call.Arguments, Effect: effect,
			Binding: d.r.Gate.Bind(ctx, d.s.Start.Principal, scopeOf(d.s.Start), &call),
		})
	}
	req.Digest = journal.Digest(d.s.Run, req.Iteration, d.s.Start.Principal, req.Calls)
	return req
}

// park releases the run until somebody decides, or its provider can be asked. Whoever is to be told of it is told
// when that is in the journal: their decision may come at once, and the pause is
// the last that the run's watchers see.
func (d *driver) park(ctx context.Context, step Step) error {
	if p := step.Pending; p != nil && p.Kind == journal.PendingClientTool {
		return d.parkForClient(ctx, *p)
	}
	if step.Pending != nil {
		return d.append(ctx, &journal.Paused{Status: toolcrib.StatusWaitingForProvider, Pending: *step.Pending})
	}
	a := d.s.Approval
	status := toolcrib.StatusWaitingForApproval
	if a.Kind == journal.ApprovalInput {
		status = toolcrib.StatusWaitingForInput
	}
	err := d.append(ctx, &journal.Paused{
		Status: status,
		Pending: journal.Pending{
			Kind: string(a.Kind), ApprovalID: a.ApprovalID, Digest: a.Digest, Calls: a.Calls,
			Question: a.Question, Schema: a.Schema,
		},
	})
	if err == nil && d.r.Announcer != nil {
		d.r.Announcer.Announce(ctx, d.s)
	}
	return err
}

// Memory keeps approvals that hold beyond their run: for its session, or for its
// user (contract §6). They can be listed and revoked where they are kept; what is
// revoked holds for no later call, also of a run that is on its way.
type Memory interface {
	// Remembered returns the approvals that hold for a user and a session; session
	// "" = those of the user alone.
	Remembered(ctx context.Context, user string, session toolcrib.SessionID) ([]gate.Remembered, error)
	// Remember keeps approvals. Their Scope says for what: session or user.
	Remember(ctx context.Context, user string, session toolcrib.SessionID, run toolcrib.RunID,
		approvals []gate.Remembered) error
	// Forgotten returns what was revoked of the approvals that were remembered for a run: its
	// driver writes it into the run's journal before it judges the next calls.
	Forgotten(ctx context.Context, run toolcrib.RunID) ([]journal.Forgotten, error)
}

// forget writes down which approvals that were remembered for the run were revoked since.
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
		if len(Holding(d.s.Remembered, revoked[i:i+1])) < len(d.s.Remembered) {
			bodies = append(bodies, &revoked[i])
		}
	}
	if len(bodies) == 0 {
		return nil
	}
	return d.append(ctx, bodies...)
}

// Holding returns those of the approvals that are remembered for a run which were not revoked.
func Holding(all []gate.Remembered, revoked []journal.Forgotten) []gate.Remembered {
	return slices.DeleteFunc(slices.Clone(all), func(m gate.Remembered) bool {
		return slices.ContainsFunc(revoked, func(b journal.Forgotten) bool {
			return b.ApprovalID == m.ApprovalID && b.Tool == m.Tool && b.Path == m.Path && b.Folder == m.Folder &&
				(b.Arguments == nil) == (m.Arguments == nil) && bytes.Equal(b.Arguments, m.Arguments)
		})
	})
}

// holding are those of remembered approvals that may hold for the calls of a turn: under
// four eyes none that was approved by whom the run acts for.
func (d *driver) holding(all []gate.Remembered) []gate.Remembered {
	if d.r.FourEyes && len(all) > 0 {
		return OfOthers(d.s.Start.Principal.User, OfOthers(d.r.Mask.Mask(d.s.Start.Principal.User), all))
	}
	return all
}

// lasting are the approvals that hold beyond their run. Those that cannot be read do not
// hold: then a person is asked.
func (d *driver) lasting(ctx context.Context) []gate.Remembered {
	all, err := d.r.Memory.Remembered(ctx, d.s.Start.Principal.User, d.s.Start.Session)
	if err != nil {
		d.r.Log.WarnContext(ctx, "remembered approvals could not be read", "run", d.s.Run, "error",
			d.r.Mask.Mask(err.Error()))
		return nil
	}
	return all
}

// lasting are the approvals of a decision that hold beyond the run.
func (s *State) lasting(b *journal.ConfirmationResolved) []gate.Remembered {
	m := b.Remember
	if m == nil || m.Scope == journal.RememberRun || s.Approval == nil || s.Approval.Kind != journal.ApprovalCall {
		return nil
	}
	var all []gate.Remembered
	for _, item := range s.Approval.Calls {
		c, err := s.find(item.ID)
		if err != nil || c.Verdict == nil || wordOn(s, c) != nil {
			continue // what others decided before is not remembered by this
		}
		word := b.Of(c.ID)
		if word.Decision != journal.DecisionApprove {
			continue
		}
		if m, ok := gate.Remember(*m, b, c.approved(&word)); ok {
			all = append(all, m)
		}
	}
	return all
}

// keep hands approvals that hold beyond the run to the memory, after the decision
// was written down. Should that fail, the decision stands, and a person is asked
// again another time.
func (r *Runner) keep(ctx context.Context, s *State, approvals []gate.Remembered) error {
	approvals = slices.DeleteFunc(approvals, func(m gate.Remembered) bool { return r.Gate.AlwaysAsks(m.Tool) })
	if len(approvals) == 0 || r.Memory == nil {
		return nil
	}
	return r.Memory.Remember(ctx, s.Start.Principal.User, s.Start.Session, s.Run, approvals)
}
