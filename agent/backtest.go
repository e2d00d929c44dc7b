package agent

import (
	"context"
	"slices"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/journal"
)

// Backtest judges the calls of stored runs again, under another policy (design.md
// §2: judging again is not part of replay). What the journal says about a run stays as
// it was: whom it acted for, what it had read, what people decided, how often a call
// had the same result. Nothing runs and nothing is counted; tools are asked only what
// a call would do. It holds no state of a run.
type Backtest struct {
	// Terms returns what a run is judged under. scope is what narrowed its tools.
	Terms func(ctx context.Context, start *journal.RunStarted, scope gate.Scope) (Terms, error)
	// At is told the time as of which the gate is asked next, for what it looks at
	// outside of the journal, such as what was switched off then; nil = nobody is.
	At func(t time.Time)
	// Missing reports whether a tool that the gate does not know is missing for another
	// reason than the policy, so that nothing can be said about calls of it; nil =
	// always.
	Missing func(tool string) bool
}

// Terms are what the calls of one run are judged under.
type Terms struct {
	Gate  *gate.Gate
	Scope gate.Scope
	// FourEyes is approvals.four_eyes (see [Options.FourEyes]).
	FourEyes bool
	// Unjudged says why no call of the run can be judged; "" = they can.
	Unjudged Unjudged
	// Uncertain says why a verdict that differs from the stored one proves nothing where
	// it comes from a look beyond the call and the lists, such as that the workspace is
	// gone; "" = it does.
	Uncertain Unjudged
}

// Change says how a verdict differs from the stored one.
type Change string

const (
	Unchanged Change = ""
	Wider     Change = "wider"    // refused then, asked or allowed now; or asked, and allowed now
	Narrower  Change = "narrower" // the other way round
	Otherwise Change = "reason"   // the same decision, for another reason or by another rule
)

// Unjudged says why a call cannot be judged again.
type Unjudged string

const (
	UnjudgedTool Unjudged = "tool_missing" // the tool no longer exists
	// it was refused for a number of calls, or a budget, that was used up then
	UnjudgedCount     Unjudged = "calls_used_up"
	UnjudgedRights    Unjudged = "rights_changed"    // what the user might do had changed since the run began
	UnjudgedWorkspace Unjudged = "workspace_missing" // what it would touch can no longer be told
	UnjudgedToken     Unjudged = "token_missing"     // the access token of the run is no longer known
)

// Rejudged is one call, judged again. Where a call was judged several times (before
// and after a person's decision), it is the first judgement that differs.
type Rejudged struct {
	Run       toolcrib.RunID
	Seq       toolcrib.Seq // of the verdicts
	Time      time.Time    // of the verdicts
	Iteration int
	Call      toolcrib.ToolCall // as it was judged
	Old, New  journal.Verdict
	Change    Change
	Unjudged  Unjudged // not "" = New says nothing, and Change is Unchanged
}

// OfferChange is a tool that would be offered and was not, or was and would not be.
type OfferChange struct {
	Run      toolcrib.RunID
	Seq      toolcrib.Seq // of the first request that differs
	Time     time.Time
	Tool     string
	Offered  bool            // whether it would be
	Reason   toolcrib.Reason // of the first layer that refuses, if it would not be
	Position string          // FILE:LINE of what decides; "" = nowhere
}

// Rejudging takes what is found. An error ends the walk, and is returned.
type Rejudging struct {
	Call  func(Rejudged) error    // each judged call, once; required
	Offer func(OfferChange) error // nil = offers are not compared
}

// Run goes through the journal of a run, and gives what it finds to found. It reads
// the journal once, one event after another.
func (b Backtest) Run(ctx context.Context, j toolcrib.Journal, run toolcrib.RunID, found Rejudging) error {
	w := &rejudging{b: b, found: found, s: NewState(run), told: make(map[string]bool)}
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
	// offered is what the request that the current turn answers would have offered.
	offered map[string]bool
	told    map[string]bool // offer changes, by tool
	turn    []*retried
}

// retried is a call of the current turn, with what was found about it so far.
type retried struct {
	best  Rejudged
	asked []journal.Question // that the gate would have put the last time; nil = none
}

func (w *rejudging) take(ctx context.Context, e toolcrib.Event) error {
	if v, ok := e.Body.(*journal.Verdicts); ok && w.s.Start != nil && w.s.Turn != nil {
		if err := w.judge(ctx, e, v); err != nil {
			return err
		}
	}
	if err := Fold(w.s, e); err != nil {
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

// offer makes the offer as the policy would have made it for the request, and
// compares it with what was offered.
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
	was := gate.OfferedSet(w.s.Offer)
	for _, t := range offer.Record.Tools {
		if !was[t.Name] {
			if err := w.differs(OfferChange{Run: w.s.Run, Seq: e.Seq, Time: e.Time, Tool: t.Name, Offered: true}); err != nil {
				return err
			}
		}
	}
	for _, t := range w.s.Offer.Tools {
		if w.offered[t.Name] || w.told[t.Name] || w.missing(t.Name) {
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

// differs tells a change of the offer, each tool of a run once.
func (w *rejudging) differs(c OfferChange) error {
	if w.told[c.Tool] {
		return nil
	}
	w.told[c.Tool] = true
	return w.found.Offer(c)
}

func (w *rejudging) at(t time.Time) {
	if w.b.At != nil {
		w.b.At(t)
	}
}

// missing reports whether a tool is not there, and not because the policy says so.
func (w *rejudging) missing(tool string) bool {
	if slices.Contains(w.terms.Gate.Names(), tool) {
		return false
	}
	return w.b.Missing == nil || w.b.Missing(tool)
}

// judge judges the open calls of the turn as the driver did when it wrote down these
// verdicts, with what it knew then.
func (w *rejudging) judge(ctx context.Context, e toolcrib.Event, stored *journal.Verdicts) error {
	open := w.s.Turn.open()
	calls := make([]toolcrib.ToolCall, len(open))
	for i, c := range open {
		calls[i] = c.ToolCall
		calls[i].Arguments = c.judgedArguments()
	}
	verdicts, facts := make([]gate.Verdict, len(open)), w.s.facts()
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

// heldThen are approvals that were remembered outside of the journal and let calls of a
// turn pass, by the verdicts that name them: each holds for that very call again.
func heldThen(open []*Call, stored *journal.Verdicts) (held []gate.Remembered) {
	for _, c := range open {
		v := verdictOn(stored, c.ID)
		if v == nil || v.Decision != toolcrib.Allow || v.Approval == "" ||
			c.Decision != nil && c.Decision.Decision == journal.DecisionApprove {
			continue
		}
		held = append(held, gate.Remembered{
			Tool: c.Name, Arguments: c.judgedArguments(), Effect: v.Effect,
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

// compare reports what a judgement comes to, and keeps what tells most of the call.
// word is what a person has said about the call and still counts.
func (w *rejudging) compare(c *Call, word string, r Rejudged) {
	t := w.retriedOf(c)
	r.Change = changeOf(&r.Old, &r.New)
	if word == journal.DecisionApprove && r.Old.Decision == toolcrib.Allow && r.New.Decision == toolcrib.Ask &&
		slices.EqualFunc(r.New.Questions, t.asked, journal.Question.Same) {
		r.Change = Unchanged // whoever approved the call would have been shown this very question
	}
	if r.Old.Changed != "" && r.New.Decision == toolcrib.Allow {
		r.Change = Unchanged // it was asked about again for what the workspace was like, which is not policy
	}
	if r.Unjudged = w.unjudged(&r); r.Unjudged != "" {
		r.Change = Unchanged
	}
	t.asked = r.New.Questions
	if t.best.Run == "" || weight(&r) > weight(&t.best) {
		t.best = r
	}
}

func (w *rejudging) retriedOf(c *Call) *retried {
	for _, t := range w.turn {
		if t.best.Call.ID == c.ID {
			return t
		}
	}
	t := &retried{best: Rejudged{Call: c.ToolCall}}
	w.turn = append(w.turn, t)
	return t
}

// weight orders what is found about one call by what it tells.
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

// unjudged says why a judgement says nothing about the policy; "" = it does.
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
		// Nothing that a configuration says decides about these, and whom the run
		// acted for is as it was.
		return UnjudgedRights
	case early(r.New.Reason):
		return ""
	}
	return w.terms.Uncertain
}

// early reports whether a refusal comes before anything is asked that looks beyond the
// call and the lists (contract §6's order).
func early(r toolcrib.Reason) bool {
	return slices.Contains([]toolcrib.Reason{
		toolcrib.ReasonTooManyCalls, toolcrib.ReasonNotRegistered, toolcrib.ReasonToolDisabled, toolcrib.ReasonAgentAllowlist,
		toolcrib.ReasonRunAllowlist, toolcrib.ReasonWorkerAllowlist, toolcrib.ReasonNotOffered, toolcrib.ReasonDepthExceeded,
		toolcrib.ReasonInvalidArguments,
	}, r)
}

// spent reports whether a call was refused for what had been used up by then and the
// journal of the run does not know. What bounds a worker, it knows.
func spent(r toolcrib.Reason) bool { return r == toolcrib.ReasonBudgetExhausted }

// byRights reports whether a refusal is for what the principal may do.
func byRights(r toolcrib.Reason) bool {
	return r == toolcrib.ReasonRequiresAdmin || r == toolcrib.ReasonNotPermitted
}

// flush reports the calls of a turn that is over.
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
