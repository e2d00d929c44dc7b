package agent

import (
	"context"
	"slices"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent/core"
	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/journal"
)

// Backtest judges the calls of stored runs under another policy; replay does not do that. The facts in
// the journal stay as they are: the user of the run, what it had read, people's decisions, and how
// often a call had the same result. Nothing runs and nothing is counted; tools are only asked for the
// plans of calls. It holds no state of a run.
type Backtest struct {
	// Terms returns the terms under which a run is judged. scope has the restrictions of its tools.
	Terms func(ctx context.Context, start *journal.RunStarted, scope gate.Scope) (Terms, error)
	// At, if not nil, sets the time for which the gate is asked next, for facts outside the journal,
	// such as tools switched off then.
	At func(t time.Time)
	// Missing reports whether a tool that the gate does not know is missing for a reason other than
	// the policy, so that its calls cannot be judged. If nil, that is always so.
	Missing func(tool string) bool
}

// Terms are the terms under which the calls of one run are judged.
type Terms struct {
	Gate  *gate.Gate
	Scope gate.Scope
	// FourEyes is approvals.four_eyes (see [Options.FourEyes]).
	FourEyes bool
	// Unjudged is the reason why no call of the run can be judged, or "".
	Unjudged Unjudged
	// Uncertain is the reason why a different verdict proves nothing if it depends on more than the
	// call and the lists, such as a workspace that is gone. "" means that it proves a difference.
	Uncertain Unjudged
}

// Change is how a verdict differs from the stored one.
type Change string

const (
	Unchanged Change = ""
	Wider     Change = "wider"    // refused then, asked or allowed now; or asked then, allowed now
	Narrower  Change = "narrower" // the other way round
	Otherwise Change = "reason"   // the same decision for another reason or by another rule
)

// Unjudged is the reason why a call cannot be judged again.
type Unjudged string

const (
	UnjudgedTool Unjudged = "tool_missing" // the tool no longer exists
	// the call was refused because a budget was used up
	UnjudgedCount     Unjudged = "calls_used_up"
	UnjudgedRights    Unjudged = "rights_changed"    // the user's rights had changed since the run began
	UnjudgedWorkspace Unjudged = "workspace_missing" // the targets of the call can no longer be determined
	UnjudgedToken     Unjudged = "token_missing"     // the access token of the run is no longer known
)

// Rejudged is one call, judged again. If a call was judged several times (before and after a person's
// decision), it is the first judgement that differs.
type Rejudged struct {
	Run       toolcrib.RunID
	Seq       toolcrib.Seq // event of the verdicts
	Time      time.Time    // time of the verdicts
	Iteration int
	Call      toolcrib.ToolCall // as it was judged
	Old, New  journal.Verdict
	Change    Change
	Unjudged  Unjudged // if not "", New is meaningless and Change is Unchanged
}

// OfferChange is a tool that was offered and now would not be, or the other way round.
type OfferChange struct {
	Run      toolcrib.RunID
	Seq      toolcrib.Seq // event of the first request that differs
	Time     time.Time
	Tool     string
	Offered  bool            // whether it would be
	Reason   toolcrib.Reason // name of the first layer that refuses, if it would not be offered
	Position string          // FILE:LINE of the deciding rule, if any
}

// Rejudging receives the findings. An error ends the walk, and is returned.
type Rejudging struct {
	Call  func(Rejudged) error    // each judged call, once; required
	Offer func(OfferChange) error // if nil, offers are not compared
}

// Run reads the journal of a run once, event by event, and passes its findings to found.
func (b Backtest) Run(ctx context.Context, j toolcrib.Journal, run toolcrib.RunID, found Rejudging) error {
	w := &rejudging{b: b, found: found, s: core.NewState(run), reported: make(map[string]bool)}
	for e, err := range j.Read(ctx, run, 0) {
		if err != nil {
			return err
		}
		if err := w.take(ctx, e); err != nil {
			return err
		}
	}
	return w.flush()
}

// rejudging is a walk through one run.
type rejudging struct {
	b     Backtest
	found Rejudging
	s     *State
	terms Terms
	// offered is the offer of the request that the current turn answers, under the new policy.
	offered  map[string]bool
	reported map[string]bool // offer changes, by tool
	turn     []*retried
}

// retried is a call of the current turn and the findings about it so far.
type retried struct {
	best  Rejudged
	asked []journal.Question // the gate's questions at the last judgement; nil if none
}

func (w *rejudging) take(ctx context.Context, e toolcrib.Event) error {
	if v, ok := e.Body.(*journal.Verdicts); ok && w.s.Start != nil && w.s.Turn != nil {
		if err := w.judge(ctx, e, v); err != nil {
			return err
		}
	}
	if err := core.Fold(w.s, e); err != nil {
		return err
	}
	switch b := e.Body.(type) {
	case *journal.RunStarted:
		var err error
		if w.terms, err = w.b.Terms(ctx, b, scopeOf(b)); err != nil {
			return err
		}
		if b.Given != nil {
			return w.offer(ctx, e)
		}
	case *journal.ModelRequest:
		if b.Purpose == "" && b.OfferHash != "" {
			return w.offer(ctx, e)
		}
	}
	if w.s.Turn == nil {
		return w.flush()
	}
	return nil
}

// offer makes the offer of the request under the new policy, and compares it with the stored one.
func (w *rejudging) offer(ctx context.Context, e toolcrib.Event) error {
	if w.terms.Unjudged != "" {
		return nil
	}
	w.at(e.Time)
	who := w.s.Start.Principal
	offer, err := w.terms.Gate.Offer(ctx, who, w.terms.Scope)
	if err != nil {
		return err
	}
	w.offered = offer.Set()
	if w.found.Offer == nil {
		return nil
	}
	was := w.s.Offer.Set()
	for _, t := range offer.Record.Tools {
		if !was[t.Name] {
			if err := w.differs(OfferChange{Run: w.s.Run, Seq: e.Seq, Time: e.Time, Tool: t.Name, Offered: true}); err != nil {
				return err
			}
		}
	}
	for _, t := range w.s.Offer.Tools {
		if w.offered[t.Name] || w.reported[t.Name] || w.missing(t.Name) {
			continue
		}
		c := OfferChange{Run: w.s.Run, Seq: e.Seq, Time: e.Time, Tool: t.Name}
		for _, a := range w.terms.Gate.Explain(ctx, who, w.terms.Scope, t.Name)[0].Layers {
			if !a.Allowed {
				c.Reason, c.Position = a.Layer, a.Position
				break
			}
		}
		if err := w.differs(c); err != nil {
			return err
		}
	}
	return nil
}

// differs reports a change of the offer, once for each tool of a run.
func (w *rejudging) differs(c OfferChange) error {
	if w.reported[c.Tool] {
		return nil
	}
	w.reported[c.Tool] = true
	return w.found.Offer(c)
}

func (w *rejudging) at(t time.Time) {
	if w.b.At != nil {
		w.b.At(t)
	}
}

// missing reports whether a tool is missing for a reason other than the policy.
func (w *rejudging) missing(tool string) bool {
	if slices.Contains(w.terms.Gate.Names(), tool) {
		return false
	}
	return w.b.Missing == nil || w.b.Missing(tool)
}

// judge judges the open calls of the turn with the facts that the driver had when it recorded these
// verdicts.
func (w *rejudging) judge(ctx context.Context, e toolcrib.Event, stored *journal.Verdicts) error {
	open := w.s.Turn.Open()
	calls := make([]toolcrib.ToolCall, len(open))
	for i, c := range open {
		calls[i] = c.ToolCall
		calls[i].Arguments = c.JudgedArguments()
	}
	verdicts, facts := make([]gate.Verdict, len(open)), factsOf(w.s)
	if w.terms.Unjudged == "" {
		if facts.Offered != nil {
			facts.Offered = w.offered
		}
		d := &driver{r: &Runner{Options: Options{FourEyes: w.terms.FourEyes}}, s: w.s}
		scope := w.terms.Scope
		d.heard(ctx, open, &facts, &scope)
		held := heldThen(open, stored)
		if w.terms.FourEyes {
			held = OfOthers(w.s.Start.Principal.User, held)
		}
		facts.Remembered = append(slices.Clip(facts.Remembered), held...)
		facts.DryRun, facts.Past = true, true
		facts.NoEffect = idsOf(open, func(c *core.Call) bool {
			v := verdictOn(stored, c.ID)
			return v != nil && v.NoEffect
		})
		w.at(e.Time)
		verdicts = w.terms.Gate.Judge(ctx, w.s.Start.Principal, scope, facts, calls)
		if err := ctx.Err(); err != nil {
			return err // it refuses everything
		}
	}
	for i, c := range open {
		old := verdictOn(stored, c.ID)
		if old == nil {
			continue
		}
		w.compare(c, facts.Decided[c.ID].Decision, Rejudged{
			Run: w.s.Run, Seq: e.Seq, Time: e.Time, Iteration: stored.Iteration, Call: calls[i], Old: *old,
			New: verdicts[i].Verdict,
		})
	}
	return nil
}

// heldThen returns the approvals remembered outside the journal that allowed calls of a turn, by the
// verdicts that name them. Each applies to that one call again.
func heldThen(open []*core.Call, stored *journal.Verdicts) (held []journal.Remembered) {
	for _, c := range open {
		v := verdictOn(stored, c.ID)
		if v == nil || v.Decision != toolcrib.Allow || v.Approval == "" ||
			c.Decision != nil && c.Decision.Decision == journal.DecisionApprove {
			continue
		}
		held = append(held, journal.Remembered{
			Tool: c.Name, Arguments: c.JudgedArguments(), Effect: v.Effect,
			ApprovalID: v.Approval, By: v.ApprovedBy,
		})
	}
	return held
}

func verdictOn(stored *journal.Verdicts, callID string) *journal.Verdict {
	for i := range stored.Verdicts {
		if stored.Verdicts[i].CallID == callID {
			return &stored.Verdicts[i]
		}
	}
	return nil
}

// compare determines how a judgement differs, and keeps the most significant one of the call. word is
// the person's decision on the call that still applies.
func (w *rejudging) compare(c *core.Call, word string, r Rejudged) {
	t := w.retriedOf(c)
	r.Change = changeOf(&r.Old, &r.New)
	if word == journal.DecisionApprove && r.Old.Decision == toolcrib.Allow && r.New.Decision == toolcrib.Ask &&
		slices.EqualFunc(r.New.Questions, t.asked, journal.Question.Same) {
		r.Change = Unchanged // who approved the call would have been shown the same question
	}
	if r.Old.Changed != "" && r.New.Decision == toolcrib.Allow {
		r.Change = Unchanged // it was asked about again because the workspace had changed, which is not policy
	}
	if r.Unjudged = w.unjudged(&r); r.Unjudged != "" {
		r.Change = Unchanged
	}
	t.asked = r.New.Questions
	if t.best.Run == "" || weight(&r) > weight(&t.best) {
		t.best = r
	}
}

func (w *rejudging) retriedOf(c *core.Call) *retried {
	for _, t := range w.turn {
		if t.best.Call.ID == c.ID {
			return t
		}
	}
	t := &retried{best: Rejudged{Call: c.ToolCall}}
	w.turn = append(w.turn, t)
	return t
}

// weight orders findings about one call by their significance.
func weight(r *Rejudged) int {
	switch {
	case r.Change == Wider || r.Change == Narrower:
		return 3
	case r.Change == Otherwise:
		return 2
	case r.Unjudged != "":
		return 1
	}
	return 0
}

func changeOf(old, now *journal.Verdict) Change {
	switch was, is := width(old.Decision), width(now.Decision); {
	case is > was:
		return Wider
	case is < was:
		return Narrower
	case old.Reason != now.Reason || old.Rule != now.Rule:
		return Otherwise
	}
	return Unchanged
}

func width(d toolcrib.Decision) int {
	switch d {
	case toolcrib.Allow:
		return 2
	case toolcrib.Ask:
		return 1
	}
	return 0
}

// unjudged returns the reason why a judgement is not about the policy, or "".
func (w *rejudging) unjudged(r *Rejudged) Unjudged {
	switch {
	case w.terms.Unjudged != "":
		return w.terms.Unjudged
	case spent(r.Old.Reason):
		return UnjudgedCount
	case r.Change == Unchanged:
		return ""
	case r.New.Reason == toolcrib.ReasonNotRegistered && w.missing(r.Call.Name):
		return UnjudgedTool
	case byRights(r.Old.Reason) != byRights(r.New.Reason):
		// No configuration decides about these, and the user of the run is fixed.
		return UnjudgedRights
	case early(r.New.Reason):
		return ""
	}
	return w.terms.Uncertain
}

// early reports whether the gate refuses for this reason before it looks beyond the call and the
// lists.
func early(r toolcrib.Reason) bool {
	return slices.Contains([]toolcrib.Reason{
		toolcrib.ReasonTooManyCalls, toolcrib.ReasonNotRegistered, toolcrib.ReasonToolDisabled, toolcrib.ReasonAgentAllowlist,
		toolcrib.ReasonRunAllowlist, toolcrib.ReasonWorkerAllowlist, toolcrib.ReasonNotOffered, toolcrib.ReasonDepthExceeded,
		toolcrib.ReasonInvalidArguments,
	}, r)
}

// spent reports whether a call was refused because of a limit that was used up and is not in the
// journal of the run. The limits of a worker are.
func spent(r toolcrib.Reason) bool { return r == toolcrib.ReasonBudgetExhausted }

// byRights reports whether a refusal is because of the principal's rights.
func byRights(r toolcrib.Reason) bool {
	return r == toolcrib.ReasonRequiresAdmin || r == toolcrib.ReasonNotPermitted
}

// flush reports the calls of a turn that has ended.
func (w *rejudging) flush() error {
	turn := w.turn
	w.turn = nil
	for _, t := range turn {
		if err := w.found.Call(t.best); err != nil {
			return err
		}
	}
	return nil
}
