package agent_test

import (
	"context"
	"encoding/json"
	"strings"
	"sync"
	"testing"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/agent/core"
	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/journal"
)

// people knows a few users by name: it says who is an administrator today and what
// they are granted.
type people map[string]toolcrib.Principal

func (p people) Standing(_ context.Context, who toolcrib.Principal) (gate.Standing, error) {
	known, ok := p[who.User]
	if !ok {
		return gate.Standing{Refused: "unknown user"}, nil
	}
	if who.Token != "" {
		known.Token = who.Token
		return gate.Standing{Principal: known, Token: wideToken{}}, nil
	}
	return gate.Standing{Principal: known}, nil
}

func user(name string) toolcrib.Principal { return toolcrib.Principal{User: name} }

func approver(name string) toolcrib.Principal {
	return toolcrib.Principal{User: name, Roles: []string{"other", agent.RoleApprover}}
}

// office is a world whose tools write is granted to alice, boss and carol, and for
// administrators where strict is set.
func office(t *testing.T, strict bool) *world {
	t.Helper()
	w := newWorld(t, gate.ConfirmWrites)
	known := people{
		"alice": {User: "alice", Grants: []string{"write", "put"}, Admin: strict},
		"bob":   {User: "bob", Grants: []string{"write"}},
		"carol": {User: "carol", Grants: []string{"write", "put"}, Roles: []string{agent.RoleApprover}},
		"eve":   {User: "eve", Grants: []string{"write"}, Roles: []string{agent.RoleApprover}},
		"dave":  {User: "dave", Grants: []string{}, Roles: []string{agent.RoleApprover}},
		"boss":  {User: "boss", Admin: true},
	}
	spec := toolcrib.Spec{Effect: toolcrib.EffectNonIdempotentWrite, EnabledByDefault: true, RequiresAdmin: strict}
	var tools []toolcrib.Tool
	for _, name := range []string{"write", "put"} {
		one := spec
		one.Name = name
		tools = append(tools, &fn{spec: one, w: w, call: newEcho})
	}
	g, err := gate.New(gate.Options{Tools: tools, Availability: noOverrides{}, Confirm: gate.ConfirmWrites, People: known})
	if err != nil {
		t.Fatal(err)
	}
	o := w.runner.Options
	o.Gate = g
	if w.runner, err = agent.New(o); err != nil {
		t.Fatal(err)
	}
	return w
}

func of(name string, admin bool) func(*agent.Task) {
	return func(k *agent.Task) { k.Principal = toolcrib.Principal{User: name, Admin: admin} }
}

// Who may approve, and who may deny. What is refused is not written.
func TestADR133_WhoMayDecide(t *testing.T) {
	admin := toolcrib.Principal{User: "boss", Admin: true}
	actor := toolcrib.Principal{User: "carol", Actor: "local:op", Roles: []string{agent.RoleApprover}}
	token := toolcrib.Principal{User: "carol", Token: "tok_1", Roles: []string{agent.RoleApprover}}
	for _, c := range []struct {
		name          string
		who           toolcrib.Principal
		fourEyes      bool
		approve, deny bool
	}{
		{"nobody", toolcrib.Principal{}, false, false, false},
		{"nobody, an administrator", toolcrib.Principal{Admin: true}, false, false, false},
		{"a stranger", user("bob"), false, false, false},
		{"the run's user", user("alice"), false, true, true},
		{"the run's user, four eyes", user("alice"), true, false, true},
		{"the run's user by another, four eyes", toolcrib.Principal{User: "alice", Actor: "local:op"}, true, false, true},
		{"another of about that name", user("Alice"), false, false, false},
		{"an administrator", admin, false, true, true},
		{"an administrator, four eyes", admin, true, true, true},
		{"an approver", approver("carol"), true, true, true},
		{"an approver, by another", actor, true, true, true},
		{"an approver without a grant", approver("dave"), false, false, true},
		{"an approver whose role is gone", approver("bob"), false, false, false},
		{"an approver nobody knows", approver("zoe"), false, false, false},
		{"an approver with a token that started another run", token, false, false, false},
		{"the run's user with a token that started another run", toolcrib.Principal{User: "alice", Token: "tok_1"}, false, false, false},
	} {
		for _, decision := range []string{journal.DecisionApprove, journal.DecisionDeny} {
			w := office(t, false)
			w.byTurn(calls("write", `{"n":1}`), say("done"))
			w.runner.FourEyes = c.fourEyes
			s := run(t, w, of("alice", false))
			want := c.deny
			if decision == journal.DecisionApprove {
				want = c.approve
			}
			d := agent.Decision{ApprovalID: s.Pending.ApprovalID, Digest: s.Pending.Digest, Who: c.who, Decision: decision}
			check := w.runner.Check(t.Context(), s.Run, d)
			before := len(w.events(t, s.Run))
			_, err := w.runner.Decide(t.Context(), s.Run, d)
			if (check == nil) != (err == nil) {
				t.Errorf("%s, %s: checked %v, decided %v", c.name, decision, check, err)
			}
			switch {
			case want && err != nil, !want && toolcrib.CodeOf(err) != toolcrib.CodeForbidden:
				t.Errorf("%s, %s: %v", c.name, decision, err)
			case !want && len(w.events(t, s.Run)) != before:
				t.Errorf("%s, %s: something was written", c.name, decision)
			case want:
				events := w.events(t, s.Run)
				b, ok := events[len(events)-1].Body.(*journal.ConfirmationResolved)
				if !ok || b.By != agent.NameOf(c.who) || b.User != c.who.User {
					t.Errorf("%s, %s: written %+v", c.name, decision, b)
				}
			}
		}
	}
}

// An approver decides on the calls that they could make, and no others; one call of an
// approval is decided without a word on the rest.
func TestADR133_OnlyTheCallsOneCouldMake(t *testing.T) {
	w := office(t, false)
	w.byTurn(calls("write", `{"n":1}`, "put", `{"n":2}`), say("done"))
	s := run(t, w, of("alice", false))
	eve := approver("eve") // granted write, not put
	all := agent.Decision{ApprovalID: s.Pending.ApprovalID, Digest: s.Pending.Digest, Who: eve, Decision: journal.DecisionApprove}
	if _, err := w.runner.Decide(t.Context(), s.Run, all); toolcrib.CodeOf(err) != toolcrib.CodeForbidden || !strings.Contains(err.Error(), "put") {
		t.Errorf("%v", err)
	}
	edited := all
	edited.Decision, edited.Calls = "", map[string]journal.CallDecision{
		s.Pending.Calls[1].ID: {Decision: journal.DecisionApprove, Arguments: json.RawMessage(`{"n":3}`)},
	}
	if _, err := w.runner.Decide(t.Context(), s.Run, edited); toolcrib.CodeOf(err) != toolcrib.CodeForbidden {
		t.Errorf("changed arguments: %v", err)
	}
	mixed := all
	mixed.Decision = ""
	mixed.Calls = map[string]journal.CallDecision{
		s.Pending.Calls[0].ID: {Decision: journal.DecisionApprove}, s.Pending.Calls[1].ID: {Decision: journal.DecisionDeny},
	}
	if _, err := w.runner.Decide(t.Context(), s.Run, mixed); err != nil {
		t.Error(err)
	}
}

// A call that is refused whoever makes it does not depend on the approver: the model gets the refusal
// when the run continues.
func TestADR133_WhatTheGateRefusesAnyway(t *testing.T) {
	w := office(t, true)
	w.byTurn(calls("write", `{"n":1}`), say("done"))
	s := run(t, w, of("alice", true))
	o := w.runner.Options
	g, err := gate.New(gate.Options{Availability: noOverrides{}})
	if err != nil {
		t.Fatal(err)
	}
	o.Gate = g // the tool is no longer registered
	if w.runner, err = agent.New(o); err != nil {
		t.Fatal(err)
	}
	d := agent.Decision{ApprovalID: s.Pending.ApprovalID, Who: approver("carol"), Decision: journal.DecisionApprove}
	if _, err := w.runner.Decide(t.Context(), s.Run, d); toolcrib.CodeOf(err) != toolcrib.CodeForbidden {
		t.Errorf("an approver with a right of their own at stake: %v", err)
	}
	d.Who = user("alice")
	if _, err := w.runner.Decide(t.Context(), s.Run, d); err != nil {
		t.Fatal(err)
	}
	if s, err = w.runner.Resume(t.Context(), s.Run); err != nil {
		t.Fatal(err)
	}
	equal(t, "results", strings.Join(results(s), ","), "write refused not_registered")
}

// Tools for administrators are approved by administrators.
func TestADR133_AdminTools(t *testing.T) {
	w := office(t, true)
	w.byTurn(calls("write", `{"n":1}`), say("done"))
	s := run(t, w, of("alice", true))
	d := agent.Decision{ApprovalID: s.Pending.ApprovalID, Who: approver("carol"), Decision: journal.DecisionApprove}
	if _, err := w.runner.Decide(t.Context(), s.Run, d); toolcrib.CodeOf(err) != toolcrib.CodeForbidden || !strings.Contains(err.Error(), "requires_admin") {
		t.Errorf("%v", err)
	}
	d.Who = toolcrib.Principal{User: "boss", Admin: true}
	if _, err := w.runner.Decide(t.Context(), s.Run, d); err != nil {
		t.Error(err)
	}
}

// With --approve all and at a terminal, the user of the run decides: under four eyes that approves
// nothing, and the run parks.
func TestADR172_InTheRun(t *testing.T) {
	asked := 0
	yes := person(func(ask *journal.ConfirmationRequired) (journal.ConfirmationResolved, bool) {
		asked++
		return journal.ConfirmationResolved{Decision: journal.DecisionApprove, By: "somebody else", User: "carol"}, true
	})
	for _, c := range []struct {
		name    string
		approve agent.Approve
		who     toolcrib.Principal
		parks   bool
		asks    int
		by      string
	}{
		{"all", agent.ApproveAll, toolcrib.Principal{}, true, 0, ""},
		{"ask, nobody else is there", agent.ApproveAsk, toolcrib.Principal{}, true, 0, ""},
		{"ask, the same user", agent.ApproveAsk, user("alice"), true, 0, ""},
		{"ask, another", agent.ApproveAsk, approver("carol"), false, 1, "carol"},
		{"ask, one who may not", agent.ApproveAsk, approver("dave"), true, 1, ""},
		{"ask, a stranger", agent.ApproveAsk, user("bob"), true, 1, ""},
		{"none", agent.ApproveNone, toolcrib.Principal{}, true, 0, ""},
	} {
		w := office(t, false)
		w.byTurn(calls("write", `{"n":1}`), say("done"))
		w.runner.FourEyes, w.runner.Approver, w.runner.Who = true, yes, c.who
		asked = 0
		s := run(t, w, of("alice", false), func(k *agent.Task) { k.Approve = c.approve })
		if s.Status.Parked() != c.parks || asked != c.asks || w.wrote() > 0 == c.parks {
			t.Errorf("%s: %s, asked %d times, wrote %d", c.name, s.Status, asked, w.wrote())
		}
		if c.by != "" {
			if got := s.Trace[0].DecidedBy; got.By != c.by || got.User != c.by {
				t.Errorf("%s: by %+v", c.name, got)
			}
		}
		if err := w.replayed(s); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// Approvals by the run's own user from before four eyes was switched on no longer
// apply, remembered ones included; those by another person do.
func TestADR172_SwitchedOnLater(t *testing.T) {
	for _, c := range []struct {
		name  string
		who   toolcrib.Principal
		by    string
		parks bool
	}{
		{"own", user("alice"), "", true},
		{"own, by another", toolcrib.Principal{User: "alice", Actor: "local:op"}, "", true},
		{"all", user("alice"), core.ByAll, true},
		{"another", approver("carol"), "", false},
		{"another, all", approver("carol"), core.ByAll, false},
	} {
		w := office(t, false)
		w.byTurn(calls("write", `{"n":1}`), say("done"))
		s := run(t, w, of("alice", false))
		if _, err := w.runner.Decide(t.Context(), s.Run, agent.Decision{
			ApprovalID: s.Pending.ApprovalID, Who: c.who, By: c.by, Decision: journal.DecisionApprove,
		}); err != nil {
			t.Fatal(err)
		}
		w.runner.FourEyes = true
		s, err := w.runner.Resume(t.Context(), s.Run)
		if err != nil {
			t.Fatal(err)
		}
		if s.Status.Parked() != c.parks {
			t.Errorf("%s: %s", c.name, s.Status)
			continue
		}
		if !c.parks {
			continue
		}
		if _, err := w.runner.Decide(t.Context(), s.Run, agent.Decision{ApprovalID: s.Pending.ApprovalID, Who: approver("carol"), Decision: journal.DecisionApprove}); err != nil {
			t.Fatal(err)
		}
		if s, err = w.runner.Resume(t.Context(), s.Run); err != nil {
			t.Fatal(err)
		}
		equal(t, c.name+": status", s.Status, toolcrib.StatusCompleted)
		if err := w.replayed(s); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

func TestADR172_Remembered(t *testing.T) {
	for _, scope := range []string{journal.RememberRun, journal.RememberUser} {
		for _, c := range []struct {
			who        toolcrib.Principal
			fourBefore bool
			parks      bool
		}{
			{user("alice"), false, true},
			{toolcrib.Principal{User: "alice", Actor: "local:op"}, false, true},
			{approver("carol"), false, false},
			{approver("carol"), true, false},
			{toolcrib.Principal{User: "carol", Actor: "alice", Roles: []string{agent.RoleApprover}}, true, false},
		} {
			w := office(t, false)
			w.byTurn(calls("write", `{"n":1}`), calls("write", `{"n":1}`), say("done"))
			w.runner.Memory = &kept{byScope: map[string][]journal.Remembered{}}
			w.runner.FourEyes = c.fourBefore
			s := run(t, w, of("alice", false))
			if _, err := w.runner.Decide(t.Context(), s.Run, agent.Decision{
				ApprovalID: s.Pending.ApprovalID, Who: c.who, Calls: map[string]journal.CallDecision{s.Trace[0].ID: {Decision: journal.DecisionApprove}},
				Remember: &journal.Remember{Scope: scope},
			}); err != nil {
				t.Fatal(err)
			}
			if !c.fourBefore {
				s, err := w.runner.Resume(t.Context(), s.Run)
				if err != nil || s.Status != toolcrib.StatusCompleted {
					t.Fatalf("without four eyes: %s %v", s.Status, err)
				}
			}
			w.runner.FourEyes = true
			again := run(t, w, of("alice", false))
			if scope == journal.RememberRun && c.fourBefore {
				var err error
				if again, err = w.runner.Resume(t.Context(), s.Run); err != nil {
					t.Fatal(err)
				}
			} else if scope == journal.RememberRun {
				continue // it held for the run that has ended
			}
			equal(t, scope+" by "+agent.NameOf(c.who)+": parked", again.Status.Parked(), c.parks)
		}
	}
}

// Whose word it is cannot be chosen.
func TestDecide_By(t *testing.T) {
	w, s := parked(t)
	d := agent.Decision{ApprovalID: s.Pending.ApprovalID, Who: me, By: "the boss", Decision: journal.DecisionApprove}
	if _, err := w.runner.Decide(t.Context(), s.Run, d); toolcrib.CodeOf(err) != toolcrib.CodeBadRequest {
		t.Errorf("%v", err)
	}
	d.By, d.Remember = core.ByAll, &journal.Remember{Scope: journal.RememberRun}
	if _, err := w.runner.Decide(t.Context(), s.Run, d); toolcrib.CodeOf(err) != toolcrib.CodeBadRequest {
		t.Errorf("%v", err)
	}
}

// Two people decide on different calls of a turn at the same time: both are heard. On
// the same call one is.
func TestDecide_TwoPeople(t *testing.T) {
	for range 50 {
		w := office(t, false)
		w.byTurn(calls("write", `{"n":1}`, "put", `{"n":2}`), say("done"))
		w.runner.Watch = nil // decisions at the same time are watched at the same time
		s := run(t, w, of("alice", false))
		first, second := s.Pending.Calls[0].ID, s.Pending.Calls[1].ID
		words := []struct {
			who            toolcrib.Principal
			call, decision string
		}{
			{approver("carol"), first, journal.DecisionApprove},
			{user("alice"), second, journal.DecisionDeny},
			{toolcrib.Principal{User: "boss", Admin: true}, second, journal.DecisionApprove},
		}
		errs := make([]error, len(words))
		var wg sync.WaitGroup
		for i, word := range words {
			wg.Go(func() {
				_, errs[i] = w.runner.Decide(t.Context(), s.Run, agent.Decision{
					ApprovalID: s.Pending.ApprovalID, Digest: s.Pending.Digest, Who: word.who,
					Calls: map[string]journal.CallDecision{word.call: {Decision: word.decision}},
				})
			})
		}
		wg.Wait()
		if errs[0] != nil || (errs[1] == nil) == (errs[2] == nil) {
			t.Fatalf("heard: %v", errs)
		}
		s, err := w.runner.Resume(t.Context(), s.Run)
		if err != nil {
			t.Fatal(err)
		}
		want := "write ok ,put ok "
		if errs[1] == nil {
			want = "write ok ,put refused approval_denied"
		}
		equal(t, "results", strings.Join(results(s), ","), want)
		equal(t, "by", s.Trace[0].DecidedBy.By, "carol")
	}
}
