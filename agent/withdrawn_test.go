package agent_test

import (
	"context"
	"encoding/json"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/journal"
)

// Contract §5.5, §11: what was shown is what runs. Whoever approves a call that another
// person had changed before approves it as it was changed.
func TestApproveAgain_WhatWasShownRuns(t *testing.T) {
	w := office(t, false)
	w.byTurn(calls("write", `{"n":1}`), say("done"))
	s := run(t, w, of("alice", false))
	d := agent.Decision{ApprovalID: s.Pending.ApprovalID, Who: user("alice"), Calls: map[string]journal.CallDecision{
		s.Trace[0].ID: {Decision: journal.DecisionApprove, Arguments: json.RawMessage(`{"n":9}`)},
	}}
	if _, err := w.runner.Decide(t.Context(), s.Run, d); err != nil {
		t.Fatal(err)
	}
	w.runner.FourEyes = true
	s, err := w.runner.Resume(t.Context(), s.Run)
	if err != nil || s.Pending == nil {
		t.Fatalf("not asked again: %+v, %v", s.Status, err)
	}
	equal(t, "shown", string(s.Pending.Calls[0].Arguments), `{"n":9}`)
	d = agent.Decision{ApprovalID: s.Pending.ApprovalID, Digest: s.Pending.Digest, Who: approver("carol"), Decision: journal.DecisionApprove}
	if _, err := w.runner.Decide(t.Context(), s.Run, d); err != nil {
		t.Fatal(err)
	}
	if s, err = w.runner.Resume(t.Context(), s.Run); err != nil {
		t.Fatal(err)
	}
	if got := s.Trace[0].Result.Content; !strings.Contains(got, `"n":9`) {
		t.Errorf("ran with %s", got)
	}
	if err := w.replayed(s); err != nil {
		t.Error(err)
	}
}

// oneSwitch is an availability that a running tool changes.
type oneSwitch struct{ off atomic.Bool }

func (a *oneSwitch) Overrides(context.Context) (gate.Overrides, error) {
	if a.off.Load() {
		return gate.Overrides{Tools: map[string]bool{"put": false}}, nil
	}
	return gate.Overrides{}, nil
}

// A9: what is switched off while a turn is on its way does not start any
// more, also where it was allowed before.
func TestA9_SwitchedOffWithinATurn(t *testing.T) {
	for _, late := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, gate.ConfirmNever)
			w.policyChanges = true
			over := &oneSwitch{}
			spec := toolcrib.Spec{Name: "wait", Effect: toolcrib.EffectReadOnly, EnabledByDefault: true}
			wait := &fn{spec: spec, w: w, call: func(context.Context, toolcrib.Call) (toolcrib.Output, error) {
				over.off.Store(late)
				time.Sleep(time.Second)
				return toolcrib.Output{Text: "waited"}, nil
			}}
			spec.Name, spec.Effect = "put", toolcrib.EffectIdempotentWrite
			g, err := gate.New(gate.Options{
				Tools: []toolcrib.Tool{wait, &fn{spec: spec, w: w, call: newEcho}}, Availability: over, Confirm: gate.ConfirmNever,
			})
			if err != nil {
				t.Fatal(err)
			}
			o := w.runner.Options
			o.Gate = g
			if w.runner, err = agent.New(o); err != nil {
				t.Fatal(err)
			}
			w.byTurn(calls("wait", `{}`, "put", `{"n":1}`, "put", `{"n":2}`), say("done"))
			s := run(t, w, func(k *agent.Task) { k.Agent.Limits.MaxParallel = 1 })
			equal(t, "status", s.Status, toolcrib.StatusCompleted)
			for _, c := range s.Trace[1:] {
				if late {
					equal(t, "result", c.Result.Status, toolcrib.ResultRefused)
					equal(t, "reason", c.Result.Reason, toolcrib.ReasonToolDisabled)
					equal(t, "ran", w.ran[c.ID], 0)
				} else {
					equal(t, "result", c.Result.Status, toolcrib.ResultOK)
				}
			}
			if err := w.replayed(s); err != nil {
				t.Error(err)
			}
		})
	}
}

// wideToken is an access token that covers everything.
type wideToken struct{}

func (wideToken) Agent(string) error                           { return nil }
func (wideToken) Offers(string, string) error                  { return nil }
func (wideToken) Covers(string, string, json.RawMessage) error { return nil }
func (wideToken) Room(context.Context) error                   { return nil }
func (wideToken) Take(context.Context) error                   { return nil }

// M16: by an access token somebody decides only about the runs that it started, and
// has nothing remembered.
func TestM16_TokenDecidesAboutItsOwnRuns(t *testing.T) {
	for _, c := range []struct {
		name, started, by string
		remember          *journal.Remember
		allowed           bool
	}{
		{"its own run", "tok_1", "tok_1", nil, true},
		{"its own run, remembered", "tok_1", "tok_1", &journal.Remember{Scope: journal.RememberRun}, false},
		{"another token's run", "tok_2", "tok_1", nil, false},
		{"a run of no token", "", "tok_1", nil, false},
	} {
		w := office(t, false)
		w.byTurn(calls("write", `{"n":1}`), say("done"))
		s := run(t, w, func(k *agent.Task) { k.Principal = toolcrib.Principal{User: "alice", Token: c.started} })
		_, err := w.runner.Decide(t.Context(), s.Run, agent.Decision{
			ApprovalID: s.Pending.ApprovalID, Who: toolcrib.Principal{User: "alice", Token: c.by},
			Decision: journal.DecisionApprove, Remember: c.remember,
		})
		if (err == nil) != c.allowed {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}
