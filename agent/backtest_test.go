package agent_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/agent/core"
	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/journal"
)

// rejudged is what a backtest found in a run.
type rejudged struct {
	calls  []agent.Rejudged
	offers []agent.OfferChange
}

func (r *rejudged) rejudging() agent.Rejudging {
	return agent.Rejudging{
		Call:  func(c agent.Rejudged) error { r.calls = append(r.calls, c); return nil },
		Offer: func(c agent.OfferChange) error { r.offers = append(r.offers, c); return nil },
	}
}

// backtest judges a run again under a gate; change, if any, is made to its scope.
func (w *world) backtest(t testing.TB, run toolcrib.RunID, g *gate.Gate, change func(*gate.Scope)) *rejudged {
	t.Helper()
	found := &rejudged{}
	b := agent.Backtest{Terms: func(_ context.Context, _ *journal.RunStarted, s gate.Scope) (agent.Terms, error) {
		if change != nil {
			change(&s)
		}
		return agent.Terms{Gate: g, Scope: s, FourEyes: w.runner.FourEyes}, nil
	}}
	if err := b.Run(context.Background(), w.journal, run, found.rejudging()); err != nil {
		t.Fatal(err)
	}
	return found
}

// sameAgain fails if the policy that a run had does not say the same of it again.
func (w *world) sameAgain(run toolcrib.RunID) error {
	b := agent.Backtest{Terms: func(_ context.Context, _ *journal.RunStarted, s gate.Scope) (agent.Terms, error) {
		return agent.Terms{Gate: w.runner.Gate, Scope: s, FourEyes: w.runner.FourEyes}, nil
	}}
	return b.Run(context.Background(), w.journal, run, agent.Rejudging{
		Call: func(r agent.Rejudged) error {
			if r.Change != agent.Unchanged || r.Unjudged != "" {
				return fmt.Errorf("backtest of the same policy: call %s of %s: %s %s: %+v, now %+v", r.Call.ID, r.Call.Name, r.Change, r.Unjudged, r.Old, r.New)
			}
			return nil
		},
		Offer: func(c agent.OfferChange) error {
			return fmt.Errorf("backtest of the same policy: %s offered now: %v (%s)", c.Tool, c.Offered, c.Reason)
		},
	})
}

// summary shows what a backtest found, one word a call.
func (r *rejudged) summary() string {
	text := ""
	for _, c := range r.calls {
		word := string(c.Change)
		if c.Unjudged != "" {
			word = "(" + string(c.Unjudged) + ")"
		}
		if word == "" {
			word = "same"
		}
		text += c.Call.Name + ":" + word + " "
	}
	return text
}

// gateOf makes a gate with the tools of a world and another policy.
func gateOf(t testing.TB, w *world, change func(*gate.Options)) *gate.Gate {
	t.Helper()
	o := gate.Options{Tools: w.all, Availability: noOverrides{}, Confirm: gate.ConfirmNever}
	change(&o)
	g, err := gate.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// TestBacktest_SamePolicy_Property: whatever a run was, the policy that it had says
// the same of it again; also where a person decided in between.
func TestBacktest_SamePolicy_Property(t *testing.T) {
	if err := flag.Set("rapid.checks", "300"); err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(rt *rapid.T) {
		c := drawConversation(rt)
		taints := rapid.IntRange(0, 2).Draw(rt, "taints") == 0
		words := rapid.SliceOfN(rapid.SampledFrom([]string{journal.DecisionApprove, journal.DecisionDeny}), 4, 4).Draw(rt, "words")
		remember := rapid.SampledFrom([]*journal.Remember{nil, {Scope: journal.RememberRun}, {Scope: journal.RememberUser}}).Draw(rt, "remember")
		var failure error
		synctest.Test(t, func(t *testing.T) { failure = decidedAndAgain(t, c, taints, words, remember) })
		if failure != nil {
			rt.Fatal(failure)
		}
	})
}

// decidedAndAgain drives a conversation with people who decide, then judges it again.
func decidedAndAgain(t *testing.T, c conversation, taints bool, words []string, remember *journal.Remember) error {
	w := newWorld(t, c.confirmMode)
	if taints {
		strange(w, "data")
		c.turns = append([][]toolcrib.Delta{calls("draw", `{}`)}, c.turns...)
	}
	w.reply = func(_ context.Context, n int, _ *toolcrib.Request) ([]toolcrib.Delta, error) {
		if class, ok := c.errors[n]; ok {
			return nil, &toolcrib.ModelError{Class: class, Message: "no", Status: 400}
		}
		return c.turns[min(n, len(c.turns)-1)], nil
	}
	o := w.runner.Options
	o.Memory = &lasting{}
	w.runner, _ = agent.New(o)
	s, err := w.runner.Run(t.Context(), task(func(k *agent.Task) {
		k.Agent.Limits, k.Agent.Budget, k.Agent.ReadOnly = c.limits, c.budget, c.readOnly
		k.Approve, k.RunTools = c.approve, c.runTools
	}))
	for i := 0; err == nil && s.Approval != nil && s.Pending != nil && i < len(words); i++ {
		d := agent.Decision{ApprovalID: s.Pending.ApprovalID, Who: me, Decision: words[i]}
		if words[i] == journal.DecisionApprove {
			d.Remember = remember
		}
		if _, err = w.runner.Decide(t.Context(), s.Run, d); err == nil {
			s, err = w.runner.Resume(t.Context(), s.Run)
		}
	}
	if waiting := w.runner.Wait(context.Background()); waiting != nil {
		return waiting
	}
	if err != nil {
		return err
	}
	return w.sameAgain(s.Run)
}

// lasting is a memory of approvals that hold for a user.
type lasting struct{ all []journal.Remembered }

func (l *lasting) Remembered(context.Context, string, toolcrib.SessionID) ([]journal.Remembered, error) {
	return l.all, nil
}

func (l *lasting) Remember(_ context.Context, _ string, _ toolcrib.SessionID, _ toolcrib.RunID, approvals []journal.Remembered) error {
	l.all = append(l.all, approvals...)
	return nil
}

func (l *lasting) Forgotten(context.Context, toolcrib.RunID) ([]journal.Forgotten, error) {
	return nil, nil
}

// A wider and a narrower policy: each call is reported once, with its direction.
func TestBacktest_WiderAndNarrower(t *testing.T) {
	w := newWorld(t, gate.ConfirmWrites)
	w.script(calls("echo", `{}`, "write", `{}`), calls("off", `{}`), say("done"))
	s := run(t, w)
	s = approve(t, w, s)
	equal(t, "same", w.backtest(t, s.Run, w.runner.Gate, nil).summary(), "echo:same write:same off:same ")

	never := w.backtest(t, s.Run, gateOf(t, w, func(*gate.Options) {}), nil)
	equal(t, "never asks", never.summary(), "echo:same write:wider off:same ")
	equal(t, "old", never.calls[1].Old.Decision, toolcrib.Ask)
	equal(t, "new", never.calls[1].New.Decision, toolcrib.Allow)

	always := w.backtest(t, s.Run, gateOf(t, w, func(o *gate.Options) { o.Confirm = gate.ConfirmAlways }), nil)
	equal(t, "always asks", always.summary(), "echo:narrower write:same off:same ")

	readOnly := w.backtest(t, s.Run, w.runner.Gate, func(s *gate.Scope) { s.ReadOnly = true })
	equal(t, "read only", readOnly.summary(), "echo:same write:narrower off:same ")
	equal(t, "reason", readOnly.calls[1].New.Reason, toolcrib.ReasonReadOnlyMode)

	fewer := w.backtest(t, s.Run, w.runner.Gate, func(s *gate.Scope) { s.AgentTools = []string{"echo"} })
	equal(t, "fewer tools", fewer.summary(), "echo:same write:narrower off:same ")
	gone := map[string]toolcrib.Reason{}
	for _, c := range fewer.offers {
		if !c.Offered {
			gone[c.Tool] = c.Reason
		}
	}
	equal(t, "no longer offered", gone["write"], toolcrib.ReasonAgentAllowlist)
	equal(t, "offered as before", gone["echo"], toolcrib.Reason(""))
	equal(t, "nothing ran again", w.writes, 1)
}

// approve approves what a run waits for, and continues it.
func approve(t *testing.T, w *world, s *agent.State) *agent.State {
	t.Helper()
	if _, err := w.runner.Decide(t.Context(), s.Run, agent.Decision{ApprovalID: s.Pending.ApprovalID, Who: me, Decision: journal.DecisionApprove}); err != nil {
		t.Fatal(err)
	}
	s, err := w.runner.Resume(t.Context(), s.Run)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// A tool that the new policy permits is offered, so that a call that was refused for lack of it is
// reported as wider, and not as one that was not offered.
func TestBacktest_NewlyOffered(t *testing.T) {
	w := newWorld(t, gate.ConfirmNever)
	w.script(calls("write", `{}`), say("done"))
	s := run(t, w, func(k *agent.Task) { k.Agent.Tools = []string{"echo"} })
	found := w.backtest(t, s.Run, w.runner.Gate, func(s *gate.Scope) { s.AgentTools = []string{"echo", "write"} })
	equal(t, "calls", found.summary(), "write:wider ")
	equal(t, "offers", len(found.offers), 1)
	equal(t, "tool", found.offers[0].Tool, "write")
	equal(t, "offered", found.offers[0].Offered, true)
}

// What a request did not offer at all stays so: a model that was asked without tools.
func TestBacktest_WithoutTools(t *testing.T) {
	w := newWorld(t, gate.ConfirmNever)
	w.script(calls("echo", `{}`), say("done"))
	s := run(t, w, func(k *agent.Task) { k.Agent.ToolChoice = toolcrib.ToolChoice{Mode: toolcrib.ChoiceNone} })
	equal(t, "reason", s.Trace[0].Verdict.Reason, toolcrib.ReasonNotOffered)
	equal(t, "calls", w.backtest(t, s.Run, w.runner.Gate, nil).summary(), "echo:same ")
}

// What the run had read, and how often a call had the same result, is as it was.
func TestBacktest_FactsAsTheyWere(t *testing.T) {
	w := newWorld(t, gate.ConfirmNever)
	strange(w, "data")
	again := calls("echo", `{"n":1}`)
	w.script(calls("write", `{"n":0}`), calls("draw", `{}`), again, again, again, again, calls("write", `{"n":1}`), say("done"))
	s := run(t, w, func(k *agent.Task) { k.Agent.TaintWrites = gate.TaintDeny })
	equal(t, "before", s.Trace[0].Verdict.Decision, toolcrib.Allow)
	equal(t, "repeated", s.Trace[5].Verdict.Reason, toolcrib.ReasonRepeatedCall)
	equal(t, "tainted", s.Trace[6].Verdict.Reason, toolcrib.ReasonTaintedFlow)
	equal(t, "same", w.backtest(t, s.Run, w.runner.Gate, nil).summary(), "write:same draw:same echo:same echo:same echo:same echo:same write:same ")
	found := w.backtest(t, s.Run, w.runner.Gate, func(s *gate.Scope) { s.TaintWrites, s.MaxRepeats = gate.TaintAllow, 2 })
	equal(t, "other", found.summary(), "write:same draw:same echo:same echo:same echo:narrower echo:same write:wider ")
}

// A person's decision is valid for its call, whatever the question would have been; a denied call is
// reported with the question that would not have been asked.
func TestBacktest_Decisions(t *testing.T) {
	w := newWorld(t, gate.ConfirmWrites)
	w.script(calls("put", `{}`), calls("write", `{}`), say("done"))
	s := approve(t, w, run(t, w))
	if _, err := w.runner.Decide(t.Context(), s.Run, agent.Decision{ApprovalID: s.Pending.ApprovalID, Who: me, Decision: journal.DecisionDeny}); err != nil {
		t.Fatal(err)
	}
	s, err := w.runner.Resume(t.Context(), s.Run)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.sameAgain(s.Run); err != nil {
		t.Error(err)
	}
	asks := gateOf(t, w, func(o *gate.Options) { o.Rules = askingRule{} })
	equal(t, "another question", w.backtest(t, s.Run, asks, nil).summary(), "put:reason write:reason ")
	never := gateOf(t, w, func(*gate.Options) {})
	found := w.backtest(t, s.Run, never, nil)
	equal(t, "no question", found.summary(), "put:wider write:wider ")
	equal(t, "the first judgement", found.calls[1].Old.Decision, toolcrib.Ask)
}

// A run without a person to ask is judged without one.
func TestBacktest_RefusedUnattended(t *testing.T) {
	w := newWorld(t, gate.ConfirmWrites)
	w.script(calls("put", `{}`), say("done"))
	s := run(t, w)
	if _, err := w.runner.Decide(t.Context(), s.Run, agent.Decision{ApprovalID: s.Pending.ApprovalID, Who: me, By: core.ByUnattended, Decision: journal.DecisionDeny}); err != nil {
		t.Fatal(err)
	}
	s, err := w.runner.Resume(t.Context(), s.Run)
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "refused", s.Trace[0].Verdict.Reason, toolcrib.ReasonNeedsConfirmation)
	if err := w.sameAgain(s.Run); err != nil {
		t.Error(err)
	}
}

// askingRule is a rule that asks about everything that writes.
type askingRule struct{}

func (askingRule) Judge(_ context.Context, in gate.RuleInput) []gate.RuleMatch {
	if !in.Effect.Writes() {
		return nil
	}
	return []gate.RuleMatch{{RuleInfo: gate.RuleInfo{Name: "writes", Then: gate.RuleAsk, Position: "new.yaml:3"}}}
}

func (askingRule) About(string) []gate.RuleInfo { return nil }

// An approval that is remembered beyond the run holds again for the calls that it let
// pass, though the journal does not have it.
func TestBacktest_RememberedElsewhere(t *testing.T) {
	w := newWorld(t, gate.ConfirmWrites)
	o := w.runner.Options
	o.Memory = &lasting{all: []journal.Remembered{{Tool: "put", Source: "go", Effect: toolcrib.EffectIdempotentWrite, Scope: journal.RememberUser, ApprovalID: "apr_old", By: "carol"}}}
	w.runner, _ = agent.New(o)
	w.script(calls("put", `{"n":1}`), say("done"))
	s := run(t, w, func(k *agent.Task) { k.Workspace = "" }) // where the approval holds
	equal(t, "approval", s.Trace[0].Verdict.Approval, "apr_old")
	equal(t, "same", w.backtest(t, s.Run, w.runner.Gate, nil).summary(), "put:same ")
	w.runner.FourEyes = true
	equal(t, "another's word, under four eyes", w.backtest(t, s.Run, w.runner.Gate, nil).summary(), "put:same ")
	always := gateOf(t, w, func(o *gate.Options) {
		o.Settings = map[string]gate.ToolSettings{"put": {Confirm: gate.ConfirmAlways}}
	})
	equal(t, "always asks", w.backtest(t, s.Run, always, nil).summary(), "put:narrower ")
}

// Under four eyes a decision by the user of the run is not valid.
func TestBacktest_FourEyes(t *testing.T) {
	w := newWorld(t, gate.ConfirmWrites)
	w.script(calls("put", `{}`), say("done"))
	s := approve(t, w, run(t, w))
	w.runner.FourEyes = true
	found := w.backtest(t, s.Run, w.runner.Gate, nil)
	equal(t, "own word", found.summary(), "put:narrower ")
	equal(t, "then", found.calls[0].Old.Decision, toolcrib.Allow)
	equal(t, "now", found.calls[0].New.Decision, toolcrib.Ask)
}

// Results that do not depend on the policy are not changes.
func TestBacktest_Unjudged(t *testing.T) {
	w := newWorld(t, gate.ConfirmNever)
	w.script(calls("echo", `{}`, "write", `{}`, "ghost", `{}`), say("done"))
	s := run(t, w)
	without := gateOf(t, w, func(o *gate.Options) { o.Tools = o.Tools[:1] }) // echo alone
	found := w.backtest(t, s.Run, without, nil)
	equal(t, "tools that are gone", found.summary(), "echo:same write:(tool_missing) ghost:same ")
	equal(t, "offers of tools that are gone", len(found.offers), 0)

	policy := &rejudged{}
	b := agent.Backtest{
		Terms: func(_ context.Context, _ *journal.RunStarted, s gate.Scope) (agent.Terms, error) {
			return agent.Terms{Gate: without, Scope: s}, nil
		},
		Missing: func(tool string) bool { return tool != "write" },
	}
	if err := b.Run(t.Context(), w.journal, s.Run, policy.rejudging()); err != nil {
		t.Fatal(err)
	}
	equal(t, "a tool that the policy took away", policy.summary(), "echo:same write:narrower ghost:same ")
	equal(t, "its offer", len(policy.offers), 1)

	for _, c := range []struct {
		terms agent.Terms
		want  string
	}{
		{agent.Terms{Unjudged: agent.UnjudgedToken}, "echo:(token_missing) write:(token_missing) ghost:(token_missing) "},
		{agent.Terms{Gate: w.runner.Gate, Uncertain: agent.UnjudgedWorkspace}, "echo:same write:(workspace_missing) ghost:same "},
	} {
		found := &rejudged{}
		b.Terms = func(_ context.Context, _ *journal.RunStarted, s gate.Scope) (agent.Terms, error) {
			s.ReadOnly = true
			c.terms.Scope = s
			return c.terms, nil
		}
		if err := b.Run(t.Context(), w.journal, s.Run, found.rejudging()); err != nil {
			t.Fatal(err)
		}
		equal(t, "calls", found.summary(), c.want)
	}
	found = &rejudged{}
	b.Terms = func(_ context.Context, _ *journal.RunStarted, s gate.Scope) (agent.Terms, error) {
		s.AgentTools = []string{"echo"}
		return agent.Terms{Gate: w.runner.Gate, Scope: s, Uncertain: agent.UnjudgedWorkspace}, nil
	}
	if err := b.Run(t.Context(), w.journal, s.Run, found.rejudging()); err != nil {
		t.Fatal(err)
	}
	equal(t, "a list is a list, wherever the workspace is", found.summary(), "echo:same write:narrower ghost:same ")
}

// standing is what a user may do, as a test changes it while a run is on.
type standing struct {
	grants []string
	room   error
	token  bool
}

func (s *standing) Standing(_ context.Context, who toolcrib.Principal) (gate.Standing, error) {
	who.Grants, who.Admin = s.grants, false
	out := gate.Standing{Principal: who}
	if s.token {
		out.Token = scarce{s.room}
	}
	return out, nil
}

// scarce is a token that covers everything, and may have no call left.
type scarce struct{ room error }

func (scarce) Agent(string) error                           { return nil }
func (scarce) Offers(string, string) error                  { return nil }
func (scarce) Covers(string, string, json.RawMessage) error { return nil }
func (s scarce) Room(context.Context) error                 { return s.room }
func (s scarce) Take(context.Context) error                 { return s.room }

// A user's rights are those at the start of the run; later changes, and the number of calls left to a
// token, are not part of the policy.
func TestBacktest_RightsAndCounts(t *testing.T) {
	w := newWorld(t, gate.ConfirmNever)
	people := &standing{token: true}
	o := w.runner.Options
	o.Gate = gateOf(t, w, func(o *gate.Options) { o.People = people })
	w.runner, _ = agent.New(o)
	w.reply = func(_ context.Context, n int, _ *toolcrib.Request) ([]toolcrib.Delta, error) {
		switch n {
		case 0:
			return calls("echo", `{"n":1}`), nil
		case 1:
			people.room = errors.New("used up")
			return calls("echo", `{"n":2}`), nil
		case 2:
			people.grants = []string{"nothing"}
			return calls("echo", `{"n":3}`), nil
		}
		return say("done"), nil
	}
	s, err := w.runner.Run(t.Context(), task(func(k *agent.Task) { k.Principal = toolcrib.Principal{User: "ann", Token: "tok_1"} }))
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "used up", s.Trace[1].Verdict.Reason, toolcrib.ReasonBudgetExhausted)
	equal(t, "no grant", s.Trace[2].Verdict.Reason, toolcrib.ReasonNotPermitted)
	// By now the token has no call left, which does not matter either.
	as := gateOf(t, w, func(o *gate.Options) { o.People = &standing{token: true, room: errors.New("used up")} })
	equal(t, "calls", w.backtest(t, s.Run, as, nil).summary(), "echo:same echo:(calls_used_up) echo:(rights_changed) ")
}

// A gate that looks at what was switched off then sees it as of each judgement.
func TestBacktest_AsOfThen(t *testing.T) {
	w := newWorld(t, gate.ConfirmNever)
	over := &switches{}
	o := w.runner.Options
	o.Gate = gateOf(t, w, func(o *gate.Options) { o.Availability = over })
	clock := &stepping{now: time.Unix(1_800_000_000, 0)}
	o.Clock = clock
	w.runner, _ = agent.New(o)
	var off, on time.Time
	w.onFrame = func(f journal.Frame) {
		if f.Event == string(journal.KindToolResult) {
			over.tools, on = nil, clock.Now()
		}
	}
	w.reply = func(_ context.Context, n int, _ *toolcrib.Request) ([]toolcrib.Delta, error) {
		if n == 0 {
			over.tools, off = map[string]bool{"echo": false}, clock.Now()
			return calls("echo", `{}`), nil
		}
		return say("done"), nil
	}
	s, err := w.runner.Run(t.Context(), task())
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "switched off in between", s.Trace[0].Verdict.Reason, toolcrib.ReasonToolDisabled)
	then := &switches{tools: map[string]bool{"echo": false}} // until it is told the time
	found := &rejudged{}
	g := gateOf(t, w, func(o *gate.Options) { o.Availability = then })
	b := agent.Backtest{
		Terms: func(_ context.Context, _ *journal.RunStarted, s gate.Scope) (agent.Terms, error) {
			return agent.Terms{Gate: g, Scope: s}, nil
		},
		At: func(at time.Time) {
			then.tools = nil
			if at.After(off) && at.Before(on) {
				then.tools = map[string]bool{"echo": false}
			}
		},
	}
	if err := b.Run(t.Context(), w.journal, s.Run, found.rejudging()); err != nil {
		t.Fatal(err)
	}
	equal(t, "calls", found.summary(), "echo:same ")
	// By the second request it was switched on again.
	equal(t, "offers", len(found.offers), 0)
}

// stepping is a clock that continues by a second whenever it is looked at.
type stepping struct{ now time.Time }

func (c *stepping) Now() time.Time {
	c.now = c.now.Add(time.Second)
	return c.now
}

func (c *stepping) Awake() time.Duration { return time.Duration(c.now.UnixNano()) }

func (c *stepping) Sleep(context.Context, time.Duration) error { return nil }

// Errors that stop the walk are returned: a journal that cannot be read, a caller that wants no more.
func TestBacktest_Errors(t *testing.T) {
	w := newWorld(t, gate.ConfirmNever)
	w.script(calls("echo", `{}`), say("done"))
	s := run(t, w)
	enough := errors.New("enough")
	b := agent.Backtest{Terms: func(_ context.Context, _ *journal.RunStarted, s gate.Scope) (agent.Terms, error) {
		return agent.Terms{Gate: w.runner.Gate, Scope: s}, nil
	}}
	err := b.Run(t.Context(), w.journal, s.Run, agent.Rejudging{Call: func(agent.Rejudged) error { return enough }})
	equal(t, "enough", err, enough)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	found := &rejudged{}
	if err := b.Run(ended, w.journal, s.Run, found.rejudging()); !errors.Is(err, context.Canceled) {
		t.Errorf("a context that has ended: %v, found %s", err, found.summary())
	}
	b.Terms = func(context.Context, *journal.RunStarted, gate.Scope) (agent.Terms, error) {
		return agent.Terms{}, enough
	}
	equal(t, "no terms", b.Run(t.Context(), w.journal, s.Run, found.rejudging()), enough)
}
