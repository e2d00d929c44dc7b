package agent_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/journal"
)

// H16: an approval that is remembered for the run answers later questions: of the
// tool where its calls may be repeated safely, of the same arguments otherwise.
func TestH16_RememberedForTheRun(t *testing.T) {
	for _, c := range []struct {
		name     string
		remember *journal.Remember
		tool     string
		edit     string // the arguments of the first call as the person changes them
		second   string // arguments of the second call
		asks     bool
	}{
		{"not remembered", nil, "put", "", `{"n":1}`, true},
		{"repeatable, same", &journal.Remember{Scope: journal.RememberRun}, "put", "", `{"n":1}`, false},
		{"repeatable, other", &journal.Remember{Scope: journal.RememberRun}, "put", "", `{"n":2}`, false},
		{"by arguments", &journal.Remember{Scope: journal.RememberRun, Calls: journal.RememberArguments}, "put", "", `{"n":2}`, true},
		{"not repeatable, same", &journal.Remember{Scope: journal.RememberRun}, "write", "", `{"n":1}`, false},
		{"not repeatable, other", &journal.Remember{Scope: journal.RememberRun}, "write", "", `{"n":2}`, true},
		{"not repeatable, by tool", &journal.Remember{Scope: journal.RememberRun, Calls: journal.RememberTool}, "write", "", `{"n":2}`, false},
		{"edited: what ran counts", &journal.Remember{Scope: journal.RememberRun}, "write", `{"n":3}`, `{"n":3}`, false},
		{"edited: what was asked does not", &journal.Remember{Scope: journal.RememberRun}, "write", `{"n":3}`, `{"n":1}`, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, gate.ConfirmWrites)
			w.script(calls(c.tool, `{"n":1}`), calls(c.tool, c.second), say("ok"))
			s := run(t, w)
			d := agent.Decision{ApprovalID: s.Pending.ApprovalID, Who: me, Decision: journal.DecisionApprove, Remember: c.remember}
			if c.edit != "" {
				d.Calls = map[string]journal.CallDecision{s.Trace[0].ID: {Decision: journal.DecisionApprove, Arguments: []byte(c.edit)}}
				d.Decision = ""
			}
			if _, err := w.runner.Decide(t.Context(), s.Run, d); err != nil {
				t.Fatal(err)
			}
			s, err := w.runner.Resume(t.Context(), s.Run)
			if err != nil {
				t.Fatal(err)
			}
			equal(t, "parked", s.Status.Parked(), c.asks)
			if err := w.replayed(s); err != nil {
				t.Error(err)
			}
			if c.asks {
				return
			}
			v := s.Trace[1].Verdict
			equal(t, "approval", v.Approval, d.ApprovalID)
			if !strings.Contains(v.Detail, "remembered for the run") {
				t.Errorf("nothing says why it passed: %+v", v)
			}
		})
	}
}

// reaching is a tool that asks about each host n, once for a run.
type reaching struct{ *fn }

func (r reaching) Plan(_ context.Context, c toolcrib.Call) (*toolcrib.Plan, error) {
	var in struct{ N int }
	mustDecode(c.Arguments, &in)
	return &toolcrib.Plan{Run: r.call, Concerns: []toolcrib.Concern{{
		Reason: toolcrib.ReasonNeedsConfirmation, Why: fmt.Sprint("reaches ", in.N), Run: true,
	}}}, nil
}

// H16: an approval that answers a question for the run answers it for the same host only, and for none if the person
// changed the arguments that the question was about.
func TestH16_EditedArgumentsAgreeToNoHost(t *testing.T) {
	for _, c := range []struct {
		edit, second string
		asks         bool
	}{
		{"", `{"n":1}`, false},
		{"", `{"n":2}`, true},
		{`{"n":1,"x":2}`, `{"n":1}`, true},
		{`{"n":2}`, `{"n":1}`, true}, // asks about 2 before the edited call runs
		{`{"n":2}`, `{"n":2}`, false},
	} {
		w := newWorld(t, gate.ConfirmNever)
		tool := &fn{spec: toolcrib.Spec{Name: "reach", Effect: toolcrib.EffectReadOnly, EnabledByDefault: true}, w: w, call: newEcho}
		w.all = append(w.all, reaching{tool})
		w.runner.Gate = gateOf(t, w, func(*gate.Options) {})
		w.script(calls("reach", `{"n":1}`), calls("reach", c.second), say("ok"))
		s := run(t, w)
		edit := json.RawMessage(c.edit)
		if c.edit == "" {
			edit = nil
		}
		for s.Status.Parked() && len(s.Trace) == 1 {
			one := journal.CallDecision{Decision: journal.DecisionApprove, Arguments: edit}
			if _, err := w.runner.Decide(t.Context(), s.Run, agent.Decision{
				ApprovalID: s.Pending.ApprovalID, Who: me, Calls: map[string]journal.CallDecision{s.Trace[0].ID: one},
			}); err != nil {
				t.Fatal(err)
			}
			var err error
			if s, err = w.runner.Resume(t.Context(), s.Run); err != nil {
				t.Fatal(err)
			}
			edit = nil
		}
		if s.Status.Parked() != c.asks {
			t.Errorf("edited to %q, then %s: %s", c.edit, c.second, s.Status)
		}
		if err := w.replayed(s); err != nil {
			t.Error(err)
		}
	}
}

// Neither denials nor answers to other questions are remembered.
func TestH16_RememberRefused(t *testing.T) {
	w := newWorld(t, gate.ConfirmWrites)
	w.script(calls("put", `{"n":1}`), calls("put", `{"n":1}`), say("ok"))
	s := run(t, w)
	d := agent.Decision{ApprovalID: s.Pending.ApprovalID, Who: me, Decision: journal.DecisionDeny}
	for _, m := range []journal.Remember{{}, {Scope: "always"}, {Scope: journal.RememberUser}, {Scope: journal.RememberRun, Calls: "all"}} {
		d.Remember = &m
		_, err := w.runner.Decide(t.Context(), s.Run, d)
		if toolcrib.CodeOf(err) != toolcrib.CodeBadRequest {
			t.Errorf("%+v: %v", m, err)
		}
	}
	d.Remember = &journal.Remember{Scope: journal.RememberRun}
	if _, err := w.runner.Decide(t.Context(), s.Run, d); err != nil {
		t.Fatal(err)
	}
	s, err := w.runner.Resume(t.Context(), s.Run)
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "status", s.Status, toolcrib.StatusWaitingForApproval)
	equal(t, "remembered", len(s.Remembered), 0)
}

// kept is a memory in a map.
type kept struct {
	byScope map[string][]journal.Remembered // session:ID or user:NAME
	err     error
}

func (k *kept) Remembered(_ context.Context, user string, session toolcrib.SessionID) ([]journal.Remembered, error) {
	all := append([]journal.Remembered(nil), k.byScope["user:"+user]...)
	if session != "" {
		all = append(all, k.byScope["session:"+string(session)]...)
	}
	return all, k.err
}

func (k *kept) Remember(_ context.Context, user string, session toolcrib.SessionID, _ toolcrib.RunID, approvals []journal.Remembered) error {
	for _, a := range approvals {
		key := "user:" + user
		if a.Scope == journal.RememberSession {
			key = "session:" + string(session)
		}
		k.byScope[key] = append(k.byScope[key], a)
	}
	return k.err
}

func (k *kept) Forgotten(context.Context, toolcrib.RunID) ([]journal.Forgotten, error) {
	return nil, k.err
}

// H16: an approval that is remembered for a session or a user holds for their later
// runs, and for no others; what is revoked, or cannot be read, does not hold.
func TestH16_RememberedBeyondTheRun(t *testing.T) {
	for _, c := range []struct {
		scope, session, user string // of the later run
		revoked, broken      bool
		asks                 bool
	}{
		{scope: journal.RememberSession, session: "ses_1", user: "local:test"},
		{scope: journal.RememberSession, session: "ses_2", user: "local:test", asks: true},
		{scope: journal.RememberUser, user: "local:test"},
		{scope: journal.RememberUser, user: "local:other", asks: true},
		{scope: journal.RememberUser, user: "local:test", revoked: true, asks: true},
		{scope: journal.RememberUser, user: "local:test", broken: true, asks: true},
	} {
		w := newWorld(t, gate.ConfirmWrites)
		memory := &kept{byScope: map[string][]journal.Remembered{}}
		w.runner.Memory = memory
		w.byTurn(calls("put", `{"n":1}`), say("ok"))
		s := run(t, w, func(k *agent.Task) { k.Session = "ses_1" })
		if _, err := w.runner.Decide(t.Context(), s.Run, agent.Decision{
			ApprovalID: s.Pending.ApprovalID, Who: me, Decision: journal.DecisionApprove, Remember: &journal.Remember{Scope: c.scope},
		}); err != nil {
			t.Fatal(err)
		}
		if c.revoked {
			clear(memory.byScope)
		}
		if c.broken {
			memory.err = errors.New("disk")
		}
		later := run(t, w, func(k *agent.Task) { k.Session, k.Principal.User = toolcrib.SessionID(c.session), c.user })
		if later.Status.Parked() != c.asks {
			t.Errorf("%+v: parked %v", c, later.Status.Parked())
		}
	}
}

// A run of no session has none to remember an approval for.
func TestH16_RememberWithoutASession(t *testing.T) {
	w, s := parked(t)
	w.runner.Memory = &kept{byScope: map[string][]journal.Remembered{}}
	_, err := w.runner.Decide(t.Context(), s.Run, agent.Decision{
		ApprovalID: s.Pending.ApprovalID, Who: me, Decision: journal.DecisionApprove, Remember: &journal.Remember{Scope: journal.RememberSession},
	})
	if toolcrib.CodeOf(err) != toolcrib.CodeBadRequest {
		t.Errorf("%v", err)
	}
}

// What tools.settings asks about at each call is not remembered: it would lift nothing
// today, and too much when the setting is gone.
func TestH16_NotRememberedWhereItIsAlwaysAsked(t *testing.T) {
	w := newWorld(t, gate.ConfirmWrites)
	memory := &kept{byScope: map[string][]journal.Remembered{}}
	w.runner.Memory = memory
	w.runner.Gate = gateOf(t, w, func(o *gate.Options) {
		o.Settings = map[string]gate.ToolSettings{"echo": {Confirm: gate.ConfirmAlways}}
	})
	w.byTurn(calls("echo", `{"n":1}`), say("ok"))
	s := run(t, w)
	if _, err := w.runner.Decide(t.Context(), s.Run, agent.Decision{
		ApprovalID: s.Pending.ApprovalID, Who: me, Decision: journal.DecisionApprove, Remember: &journal.Remember{Scope: journal.RememberUser},
	}); err != nil {
		t.Fatal(err)
	}
	if len(memory.byScope) != 0 {
		t.Errorf("remembered: %v", memory.byScope)
	}
}

// memoryOf is a memory of what was revoked of one run.
type memoryOf struct {
	kept
	revoked []journal.Forgotten
}

func (m *memoryOf) Forgotten(context.Context, toolcrib.RunID) ([]journal.Forgotten, error) {
	return m.revoked, m.err
}

// H16: what was remembered for the run and revoked since is asked about again, and the run's
// journal says so; what else was remembered holds.
func TestH16_RevokedForTheRun(t *testing.T) {
	for _, c := range []struct {
		name    string
		revoked journal.Forgotten
		asks    bool
	}{
		{"nothing", journal.Forgotten{}, false},
		{"this one", journal.Forgotten{Tool: "put"}, true},
		{"of another tool", journal.Forgotten{Tool: "write"}, false},
		{"with arguments", journal.Forgotten{Tool: "put", Arguments: []byte(`{"n":1}`)}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, gate.ConfirmWrites)
			m := &memoryOf{}
			w.runner.Memory = m
			w.script(calls("put", `{"n":1}`), calls("put", `{"n":2}`), say("ok"))
			s := run(t, w)
			d := agent.Decision{
				ApprovalID: s.Pending.ApprovalID, Who: me, Decision: journal.DecisionApprove,
				Remember: &journal.Remember{Scope: journal.RememberRun},
			}
			if _, err := w.runner.Decide(t.Context(), s.Run, d); err != nil {
				t.Fatal(err)
			}
			c.revoked.ApprovalID, c.revoked.By = d.ApprovalID, "ann"
			m.revoked = []journal.Forgotten{c.revoked}
			s, err := w.runner.Resume(t.Context(), s.Run)
			if err != nil {
				t.Fatal(err)
			}
			equal(t, "parked", s.Status.Parked(), c.asks)
			equal(t, "held", len(s.Remembered) == 0, c.asks)
			if err := w.replayed(s); err != nil {
				t.Error(err)
			}
		})
	}
}
