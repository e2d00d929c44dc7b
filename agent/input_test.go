package agent_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/tool/ask"
)

// asking is a world with ask_user and a write.
func asking(t *testing.T) *world {
	t.Helper()
	w := newWorld(t, gate.ConfirmNever)
	write := &fn{w: w, spec: toolcrib.Spec{Name: "echo", Effect: toolcrib.EffectReadOnly, EnabledByDefault: true}}
	write.call = newEcho
	withTools(t, w, nil, ask.New(), write)
	return w
}

func answer(t *testing.T, w *world, s *agent.State, result string) (*agent.State, error) {
	t.Helper()
	return w.runner.Decide(t.Context(), s.Run, agent.Decision{
		ApprovalID: s.Pending.ApprovalID, Digest: s.Pending.Digest, Who: me,
		Decision: journal.DecisionAnswer, Result: json.RawMessage(result),
	})
}

// ask_user parks the run after the other calls of its turn are done, each question
// is answered in its turn, and the answer is held to its schema.
func TestAskUser(t *testing.T) {
	w := asking(t)
	w.byTurn(calls(
		"ask_user", `{"question":"Which?","schema":{"type":"string","enum":["a","b"]}}`,
		"echo", `{"n":1}`,
		"ask_user", `{"question":"Why?"}`,
		"ask_user", `{"question":"Bad?","schema":{"type":"nonsense"}}`,
	), say("done"))
	s := run(t, w)
	equal(t, "status", s.Status, toolcrib.StatusWaitingForInput)
	equal(t, "question", s.Pending.Question, "Which?")
	equal(t, "kind", s.Pending.Kind, "input")
	equal(t, "ran", len(w.ran), 1)
	if _, err := answer(t, w, s, `"c"`); err == nil {
		t.Error("an answer outside the schema was taken")
	}
	if _, err := answer(t, w, s, `"b"`); err != nil {
		t.Fatal(err)
	}
	s, err := w.runner.Resume(t.Context(), s.Run)
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "second question", s.Pending.Question, "Why?")
	if _, err := answer(t, w, s, `"because"`); err != nil {
		t.Fatal(err)
	}
	if s, err = w.runner.Resume(t.Context(), s.Run); err != nil {
		t.Fatal(err)
	}
	equal(t, "content", s.Done.Content, "done")
	equal(t, "first", s.Trace[0].Result.Content, `{"answer":"b"}`)
	equal(t, "second", s.Trace[2].Result.Content, `{"answer":"because"}`)
	equal(t, "bad schema", s.Trace[3].Result.Reason, toolcrib.ReasonInvalidArguments)
	if err := w.replayed(s); err != nil {
		t.Error(err)
	}
}

// With --approve deny no question is asked; with --approve all it still waits.
func TestAskUser_Approve(t *testing.T) {
	w := asking(t)
	w.byTurn(calls("ask_user", `{"question":"Which?"}`), say("done"))
	s := run(t, w, func(k *agent.Task) { k.Approve = agent.ApproveDeny })
	equal(t, "result", strings.Join(results(s), ","), "ask_user refused needs_confirmation")
	w = asking(t)
	w.byTurn(calls("ask_user", `{"question":"Which?"}`), say("done"))
	s = run(t, w, func(k *agent.Task) { k.Approve = agent.ApproveAll })
	equal(t, "status", s.Status, toolcrib.StatusWaitingForInput)
	if _, err := w.runner.Decide(t.Context(), s.Run, agent.Decision{ApprovalID: s.Pending.ApprovalID, Who: me, Decision: journal.DecisionDeny}); err != nil {
		t.Fatal(err)
	}
	s, err := w.runner.Resume(t.Context(), s.Run)
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "result", s.Trace[0].Result.Content, `{"error":"the person did not answer"}`)
}

func atLimit(t *testing.T) (*world, *agent.State) {
	t.Helper()
	w := newWorld(t, gate.ConfirmNever)
	w.byTurn(calls("echo", `{"n":1}`), calls("echo", `{"n":2}`), calls("echo", `{"n":3}`), say("done"))
	s := run(t, w, limits(func(l *toolcrib.Limits) { l.MaxIterations, l.OnLimit = 2, toolcrib.OnLimitAsk }))
	equal(t, "status", s.Status, toolcrib.StatusWaitingForInput)
	equal(t, "ran", len(w.ran), 2)
	return w, s
}

// on_limit: ask parks; a person grants more, and the model is asked again.
func TestOnLimitAsk_Granted(t *testing.T) {
	w, s := atLimit(t)
	for _, bad := range []journal.Granted{{}, {Iterations: -1}, {Iterations: 500}, {Tokens: 5}} {
		if _, err := w.runner.Add(t.Context(), s.Run, agent.Addition{Granted: &bad}); err == nil {
			t.Errorf("granted %+v", bad)
		}
	}
	if _, err := w.runner.Add(t.Context(), s.Run, agent.Addition{Granted: &journal.Granted{Iterations: 2, By: "local:test"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.runner.Add(t.Context(), s.Run, agent.Addition{Message: new("be quick"), By: "local:test"}); err != nil {
		t.Fatal(err)
	}
	s, err := w.runner.Resume(t.Context(), s.Run)
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "content", s.Done.Content, "done")
	equal(t, "ran", len(w.ran), 3)
	said := w.requests[2].Messages[len(w.requests[2].Messages)-1]
	equal(t, "said", said.Role, toolcrib.RoleUser)
	equal(t, "text", said.Text(), "be quick")
	if err := w.replayed(s); err != nil {
		t.Error(err)
	}
}

// At the highest number of rounds that a run may have, no more are asked for, since none could be
// granted: the model answers with what it has.
func TestOnLimitAsk_AtTheCeiling(t *testing.T) {
	w := newWorld(t, gate.ConfirmNever)
	w.reply = func(_ context.Context, _ int, req *toolcrib.Request) ([]toolcrib.Delta, error) {
		if len(req.Tools) == 0 {
			return say("as far as I got"), nil
		}
		return calls("echo", fmt.Sprintf(`{"n":%d}`, len(req.Messages))), nil
	}
	s := run(t, w, limits(func(l *toolcrib.Limits) {
		l.MaxIterations, l.OnLimit = toolcrib.MaxIterationsCeiling, toolcrib.OnLimitAsk
	}))
	equal(t, "status", s.Status, toolcrib.StatusCompleted)
	equal(t, "reason", s.Done.StopReason, toolcrib.StopMaxIterations)
	equal(t, "content", s.Done.Content, "as far as I got")
}

func TestOnLimitAsk_Declined(t *testing.T) {
	w, s := atLimit(t)
	if _, err := answer(t, w, s, `"yes"`); err == nil {
		t.Error("a limit is raised by a grant only")
	}
	if _, err := w.runner.Decide(t.Context(), s.Run, agent.Decision{ApprovalID: s.Pending.ApprovalID, Who: me, Decision: journal.DecisionDeny}); err != nil {
		t.Fatal(err)
	}
	s, err := w.runner.Resume(t.Context(), s.Run)
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "reason", s.Done.StopReason, toolcrib.StopMaxIterations)
	equal(t, "ran", len(w.ran), 2)
	if err := w.replayed(s); err != nil {
		t.Error(err)
	}
}

func TestOnLimitAsk_Budget(t *testing.T) {
	w := newWorld(t, gate.ConfirmNever)
	w.byTurn(calls("echo", `{"n":1}`), say("done"))
	s := run(t, w, func(k *agent.Task) {
		k.Agent.Budget.MaxRequests, k.Agent.Limits.OnLimit = 1, toolcrib.OnLimitAsk
	})
	equal(t, "status", s.Status, toolcrib.StatusWaitingForInput)
	if _, err := w.runner.Add(t.Context(), s.Run, agent.Addition{Granted: &journal.Granted{Requests: 1, By: "local:test"}}); err != nil {
		t.Fatal(err)
	}
	s, err := w.runner.Resume(t.Context(), s.Run)
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "content", s.Done.Content, "done")
}
