package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent/core"
	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/journal"
)

// Decision is a person's decision on an approval.
type Decision struct {
	ApprovalID string
	// Digest must be the one that the person was shown. "" means that of the open approval, for a
	// person who was shown it just now.
	Digest string
	// Who decides, with current rights. It must name a user.
	Who toolcrib.Principal
	// By is [core.ByAll] or [core.ByUnattended] if no person decided on these calls; "" means that Who did.
	By string
	// Client names the program that decided in the name of Who, such as an MCP client; "" means that
	// Who decided. It cannot decide what only a person may.
	Client string
	Reason string
	// Decision applies to all calls that Calls does not name: approve or deny, or retry, happened or
	// not_happened for calls in doubt. "" leaves them undecided.
	Decision string
	Result   json.RawMessage // with happened, the result of all calls; with answer, the answer as JSON
	Calls    map[string]journal.CallDecision
	// Remember makes the approvals apply to later calls as well. If nil, they apply to these calls
	// only.
	Remember *journal.Remember
}

// Decide records a decision, once. Of two concurrent decisions the journal's fence admits one; the
// other is a conflict, as is a decision on a run or an approval that is not waiting, or with a stale
// digest. Arguments that a person changed are judged first; if the gate refuses them, nothing is
// written and the error is bad_request. If this person may not make the decision, the error is
// forbidden.
//
// Decide does not drive the run: [Runner.Resume] does.
func (r *Runner) Decide(ctx context.Context, run toolcrib.RunID, decision Decision) (*State, error) {
	var lasting []journal.Remembered
	s, err := r.amend(ctx, run, tries, func(s *State, again error) ([]toolcrib.Body, error) {
		resolved, err := r.resolve(ctx, s, decision)
		if again != nil && toolcrib.CodeOf(err) == toolcrib.CodeBadRequest {
			return nil, again // the calls were decided meanwhile
		}
		if err != nil {
			return nil, err
		}
		lasting = remembers(s, resolved)
		return []toolcrib.Body{resolved}, nil
	})
	if err != nil {
		return s, err
	}
	if err := r.keep(ctx, s, lasting); err != nil {
		return s, fmt.Errorf("the decision counts, but is not remembered: %w", err)
	}
	return s, nil
}

// tries bounds the attempts at a decision that races with others.
const tries = 5

// amend appends to a run, without driving it, the events that said returns for its state; it may
// return none. If an append loses a race with another writer, said is called again with the error of
// that race, up to times calls in all.
func (r *Runner) amend(ctx context.Context, run toolcrib.RunID, times int,
	said func(s *State, again error) ([]toolcrib.Body, error),
) (s *State, err error) {
	var lost error
	for range times {
		if s, err = r.Load(ctx, run); err != nil {
			return nil, err
		}
		bodies, err := said(s, lost)
		if err == nil {
			err = (&driver{r: r, s: s, index: -1}).append(ctx, bodies...)
		}
		if !raced(err) {
			return s, err
		}
		if err == lost {
			break
		}
		lost = err
	}
	return s, conflict(s, lost)
}

// conflict explains a lost race to a person.
func conflict(s *State, err error) error {
	if raced(err) {
		return stateErrorf(s, "was decided or changed by someone else at the same time; review it again")
	}
	return err
}

// Check reports whether [Runner.Decide] would accept a decision in the current state. It writes
// nothing.
func (r *Runner) Check(ctx context.Context, run toolcrib.RunID, decision Decision) error {
	s, err := r.Load(ctx, run)
	if err != nil {
		return err
	}
	_, err = r.resolve(ctx, s, decision)
	return err
}

// Expire denies an approval that has waited for longer than after. Calls in doubt and questions never
// expire. expired reports whether it was denied.
func (r *Runner) Expire(ctx context.Context, run toolcrib.RunID, after time.Duration) (expired bool, err error) {
	_, err = r.amend(ctx, run, 1, func(s *State, _ error) ([]toolcrib.Body, error) {
		expired = after > 0 && s.Approval != nil && s.Pending != nil && s.Approval.Kind == journal.ApprovalCall &&
			r.Clock.Now().Sub(s.Updated) >= after
		if !expired {
			return nil, nil
		}
		return []toolcrib.Body{&journal.ConfirmationResolved{
			ApprovalID: s.Approval.ApprovalID, Digest: s.Approval.Digest,
			Decision: journal.DecisionDeny, By: "approvals.expire", Reason: "expired",
		}}, nil
	})
	return expired && err == nil, err
}

// resolve checks a decision against the run and makes its event.
func (r *Runner) resolve(ctx context.Context, s *State, d Decision) (*journal.ConfirmationResolved, error) {
	a := s.Approval
	switch {
	case s.Ended():
		return nil, stateErrorf(s, "has ended; there is nothing to decide")
	case a == nil || s.Pending == nil:
		return nil, stateErrorf(s, "is not waiting for a decision")
	case d.ApprovalID != a.ApprovalID:
		return nil, stateErrorf(s, "no longer waits for %s but for %s; review that one", d.ApprovalID, a.ApprovalID)
	case d.Digest != "" && d.Digest != a.Digest:
		return nil, stateErrorf(s, "asks about other calls than those that you reviewed (the digest is stale); review it again")
	}
	return r.decided(ctx, s, d, false)
}

// decided checks a decision on the open approval and makes its event. If judged is set, the turn is
// judged again at once, so arguments that the gate refuses are refused then.
func (r *Runner) decided(ctx context.Context, s *State, d Decision, judged bool) (*journal.ConfirmationResolved,
	error,
) {
	a := s.Approval
	who, err := r.deciderToday(ctx, s, d.Who)
	if err != nil {
		return nil, err
	}
	if err := r.checkBy(&d); err != nil {
		return nil, err
	}
	if d.Client != "" && r.ForAPerson(s) {
		return nil, forbidden(nil, "approval %s needs the decision of a person, not of %s", a.ApprovalID, d.By)
	}
	resolved := &journal.ConfirmationResolved{
		ApprovalID: a.ApprovalID, Digest: a.Digest, Decision: d.Decision, By: r.Mask.Mask(d.By), User: d.Who.User,
		Token: d.Who.TokenID(), Reason: r.Mask.Clean(d.Reason),
		Calls: map[string]journal.CallDecision{},
	}
	resolved.Remember = d.Remember
	if a.AsksForMore() {
		if err := r.checkRemember(s, resolved); err != nil {
			return nil, err
		}
		if d.Decision != journal.DecisionDeny {
			return nil, usagef("approval %s asks for a higher limit: raise it with runs resume --add-…, or deny",
				a.ApprovalID)
		}
		return resolved, nil
	}
	open := s.Undecided()
	for id := range d.Calls {
		if !slices.ContainsFunc(open, func(o *core.Call) bool { return o.ID == id }) {
			return nil, usagef("approval %s has no open call %s; open are: %s", a.ApprovalID, id, callIDList(open))
		}
	}
	for _, c := range open {
		word, named := d.Calls[c.ID]
		switch {
		case named:
			resolved.Decision = journal.DecisionMixed
		case d.Decision == "":
			resolved.Open = true
			continue
		default:
			word = journal.CallDecision{Decision: d.Decision, Result: d.Result}
		}
		checked, err := r.checkDecision(ctx, s, c, word, judged)
		if err != nil {
			return nil, err
		}
		resolved.Calls[c.ID] = checked
	}
	if d.Decision == "" && len(resolved.Calls) == 0 {
		return nil, usagef("no decision was given")
	}
	if err := r.checkRemember(s, resolved); err != nil {
		return nil, err
	}
	if err := r.mayDecide(ctx, s, who, resolved); err != nil {
		return nil, err
	}
	agreed(resolved)
	return s.WithShown(s.Approval.Calls, s.WithEarlier(resolved)), nil
}

// agreed sets the decision to that of its calls if they all have the same; each call keeps its own.
func agreed(b *journal.ConfirmationResolved) {
	word := ""
	for _, c := range b.Calls {
		if word != "" && c.Decision != word {
			return
		}
		word = c.Decision
	}
	if word != "" {
		b.Decision = word
	}
}

// checkBy fills in who decided. Only the names that it allows can be given.
func (r *Runner) checkBy(d *Decision) error {
	switch {
	case d.Client != "" && (d.By != "" || d.Remember != nil):
		return usagef("a decision by a program is for these calls only, and in the name of its user")
	case d.Client != "":
		d.By = fmt.Sprintf("%s (for %s)", d.Client, NameOf(d.Who))
	case d.By == "":
		d.By = NameOf(d.Who)
	case d.By != core.ByAll && d.By != core.ByUnattended:
		return usagef("by: %q is unknown; leave it empty, or use %s or %s", d.By, core.ByAll, core.ByUnattended)
	case d.Remember != nil:
		return usagef("remember: a decision by %s cannot be remembered", d.By)
	}
	return nil
}

// ForAPerson reports whether only a person may decide what a parked run asks: calls in doubt, limits
// to raise, calls that --approve all does not cover, and all approvals under four eyes.
func (r *Runner) ForAPerson(s *State) bool {
	switch a := s.Approval; {
	case a == nil || a.Kind == journal.ApprovalInDoubt || len(a.Calls) == 0 || s.Turn == nil:
		return true
	case a.Kind == journal.ApprovalInput:
		return false
	}
	return r.FourEyes || slices.ContainsFunc(s.Undecided(), func(c *core.Call) bool { return c.Verdict.ForAPerson() })
}

// checkRemember refuses decisions that cannot be remembered.
func (r *Runner) checkRemember(s *State, b *journal.ConfirmationResolved) error {
	m := b.Remember
	switch a := s.Approval; {
	case m == nil:
		return nil
	case a.Kind != journal.ApprovalCall:
		return usagef("approval %s is of kind %s, which cannot be remembered; only approvals of calls can",
			a.ApprovalID, a.Kind)
	case m.Scope != journal.RememberRun && m.Scope != journal.RememberSession && m.Scope != journal.RememberUser:
		return usagef("remember: %q is unknown; use %s, %s or %s", m.Scope, journal.RememberRun, journal.RememberSession,
			journal.RememberUser)
	case m.Scope != journal.RememberRun && r.Memory == nil:
		return usagef("remember: %s is not supported here; use %s", m.Scope, journal.RememberRun)
	case m.Scope == journal.RememberSession && s.Start.Session == "":
		return usagef("remember: the run belongs to no session; use %s or %s", journal.RememberRun, journal.RememberUser)
	case m.Calls != "" && !slices.Contains(journal.RememberCalls(), m.Calls):
		return usagef("remember: calls %q is unknown; use %s", m.Calls, orList(journal.RememberCalls()))
	}
	for i := range s.Approval.Calls {
		item := &s.Approval.Calls[i]
		kinds := item.RememberKinds()
		switch {
		case b.Of(item.ID).Decision != journal.DecisionApprove:
		case m.Scope != journal.RememberRun && s.OfClient(item.Name):
			// In another run the name may be that of one of the server's tools.
			return usagef("remember: %s is a tool of the client of this run; use %s", item.Name, journal.RememberRun)
		case m.Calls != "" && len(kinds) > 0 && !slices.Contains(kinds, m.Calls):
			return usagef("remember: %s is remembered by %s, not by %s", item.Name, orList(kinds), m.Calls)
		}
	}
	return nil
}

// orList joins words as in a sentence.
func orList(words []string) string {
	last := len(words) - 1
	if last < 1 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:last], ", ") + " or " + words[last]
}

func callIDList(calls []*core.Call) string {
	ids := make([]string, len(calls))
	for i, c := range calls {
		ids[i] = c.ID
	}
	return strings.Join(ids, ", ")
}

// checkDecision checks the decision on one call, and judges changed arguments.
func (r *Runner) checkDecision(ctx context.Context, s *State, c *core.Call, d journal.CallDecision, judged bool) (
	journal.CallDecision, error,
) {
	allowed := map[string]bool{journal.DecisionApprove: true, journal.DecisionDeny: true}
	switch s.Approval.Kind {
	case journal.ApprovalInDoubt:
		allowed = map[string]bool{
			journal.DecisionRetry: true, journal.DecisionHappened: true,
			journal.DecisionNotHappened: true,
		}
	case journal.ApprovalInput:
		allowed = map[string]bool{journal.DecisionAnswer: true, journal.DecisionDeny: true}
	}
	if !allowed[d.Decision] {
		return d, usagef("decision %q does not fit an approval of kind %s; use %s", d.Decision, s.Approval.Kind,
			strings.Join(slices.Sorted(maps.Keys(allowed)), ", "))
	}
	if d.Decision == journal.DecisionAnswer {
		return r.checkAnswer(s, d)
	}
	if d.Result != nil && d.Decision != journal.DecisionHappened {
		return d, usagef("a result is valid only with happened")
	}
	if d.Decision == journal.DecisionHappened {
		if len(d.Result) == 0 {
			return d, usagef("happened: the result of call %s is missing; give what it returned as JSON, or null "+
				"(over HTTP in calls.%s.result)", c.ID, c.ID)
		}
		result, err := guard.Canonical(d.Result)
		if err != nil {
			return d, usagef("happened: the result must be JSON: %v", err)
		}
		d.Result = r.Mask.MaskJSON(result)
	}
	if len(d.Arguments) == 0 {
		return d, nil
	}
	if d.Decision != journal.DecisionApprove {
		return d, usagef("changed arguments are valid only with approve")
	}
	return d, r.checkEdit(ctx, s, c, &d, judged)
}

// checkEdit reads arguments that a person changed, and lets the gate judge them. The gate's refusals
// still apply, and a call whose own run has begun cannot be changed, because that run has its task
// already.
func (r *Runner) checkEdit(ctx context.Context, s *State, c *core.Call, d *journal.CallDecision, judged bool) error {
	canonical, err := guard.Arguments(d.Arguments)
	if err != nil {
		return usagef("changed arguments of %s: %s", c.ID, r.Mask.Mask(err.Error()))
	}
	if c.Child != nil {
		return usagef("call %s is answered by run %s already, so its arguments can no longer be changed; approve it as it is, or deny it, which ends that run", c.ID, c.Child.Run)
	}
	call := c.ToolCall
	call.Arguments, call.Secret = r.Mask.Arguments(canonical)
	v := r.judgeEdit(ctx, s, call)
	if v.Refused() && (!judged || call.Secret != "") { // a secret is not recorded
		return usagef("changed arguments of %s are refused (%s): %s", c.ID, v.Reason,
			strings.TrimPrefix(v.Message, string(v.Reason)+": "))
	}
	d.Arguments, d.Binding = canonical, v.Binding
	return nil
}

// judgeEdit judges a call with arguments that a person gave it. Nothing runs. If the call is asked
// about, the verdict has the binding of its approval.
func (r *Runner) judgeEdit(ctx context.Context, s *State, call toolcrib.ToolCall) gate.Verdict {
	facts := factsOf(s)
	facts.DryRun = true
	at := slices.IndexFunc(s.Turn.Calls, func(c *core.Call) bool { return c.ID == call.ID })
	facts.Place = map[string]int{call.ID: at}
	return r.Gate.Judge(ctx, s.Start.Principal, scopeOf(s.Start), facts, []toolcrib.ToolCall{call})[0]
}
