package agent_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/agent/core"
	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/journal"
)

func run(t *testing.T, w *world, change ...func(*agent.Task)) *agent.State {
	t.Helper()
	s, err := w.runner.Run(t.Context(), task(change...))
	if err != nil {
		t.Fatal(err)
	}
	if err := w.runner.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := w.replayed(s); err != nil {
		t.Error(err)
	}
	return s
}

func limits(change func(*toolcrib.Limits)) func(*agent.Task) {
	return func(k *agent.Task) { change(&k.Agent.Limits) }
}

func results(s *agent.State) []string {
	var all []string
	for _, c := range s.Trace {
		all = append(all, fmt.Sprintf("%s %s %s", c.Name, c.Result.Status, c.Result.Reason))
	}
	return all
}

func equal[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

func TestC1_TextBlocksAreTheAnswer(t *testing.T) {
	w := newWorld(t, gate.ConfirmWrites)
	w.script([]toolcrib.Delta{{Text: "one "}, {Thinking: "hm"}, {Text: "answer"}, finish(toolcrib.FinishStop)})
	s := run(t, w)
	equal(t, "content", s.Done.Content, "one answer")
	equal(t, "reason", s.Done.StopReason, toolcrib.StopCompleted)
	equal(t, "iterations", s.Done.Iterations, 1)
	equal(t, "truncated", s.Done.Truncated, false)
}

// N8: nothing to offer is one plain completion without a tools field.
func TestN8_EmptyOffer(t *testing.T) {
	w := newWorld(t, gate.ConfirmWrites)
	w.script(say("plain"))
	s := run(t, w, func(k *agent.Task) { k.RunTools = []string{} })
	equal(t, "requests", len(w.requests), 1)
	equal(t, "tools", len(w.requests[0].Tools), 0)
	equal(t, "content", s.Done.Content, "plain")
}

// N7, N9, H9: the calls of every round run, the last one's too; then one request
// without tools, whose last message ends with the text of the limit.
func TestN9_H9_CapFinalizes(t *testing.T) {
	w := newWorld(t, gate.ConfirmWrites)
	w.reply = func(_ context.Context, n int, req *toolcrib.Request) ([]toolcrib.Delta, error) {
		if len(req.Tools) == 0 {
			return say("what I know"), nil
		}
		return calls("echo", fmt.Sprintf(`{"n":%d}`, n), "wait", `{}`), nil
	}
	s := run(t, w, limits(func(l *toolcrib.Limits) { l.MaxIterations = 3 }))
	equal(t, "requests", len(w.requests), 4)
	equal(t, "iterations", s.Done.Iterations, 3)
	equal(t, "content", s.Done.Content, "what I know")
	equal(t, "truncated", s.Done.Truncated, true)
	equal(t, "reason", s.Done.StopReason, toolcrib.StopMaxIterations)
	last := w.requests[3].Messages[len(w.requests[3].Messages)-1]
	equal(t, "last message", last.Text(), "iteration limit reached; finalise your answer")
	equal(t, "status", s.Done.Status, toolcrib.StatusCompleted)
	equal(t, "calls", len(s.Trace), 6)
	for _, c := range s.Trace {
		equal(t, c.ID, c.Result.Status, toolcrib.ResultOK)
	}
	if err := checkTranscript(s.Messages); err != nil || len(s.Messages) != 8 {
		t.Errorf("%d messages: %v", len(s.Messages), err)
	}
}

// A model that calls tools even in the closing request gets no tool, and the last
// text it gave is the answer.
func TestN9_ClosingReplyWithCalls(t *testing.T) {
	w := newWorld(t, gate.ConfirmWrites)
	w.script(append([]toolcrib.Delta{{Text: "so far"}}, calls("echo", `{}`)...))
	s := run(t, w, limits(func(l *toolcrib.Limits) { l.MaxIterations = 1 }))
	equal(t, "requests", len(w.requests), 2)
	equal(t, "content", s.Done.Content, "so far")
	equal(t, "ran", len(w.ran), 1)
	equal(t, "result", s.Trace[1].Result.Content, core.TextIterationLimit)
	if err := checkTranscript(s.Messages); err != nil {
		t.Error(err)
	}
}

func TestC4_CapFails(t *testing.T) {
	w := newWorld(t, gate.ConfirmWrites)
	w.script(calls("echo", `{}`))
	s := run(t, w, limits(func(l *toolcrib.Limits) {
		l.MaxIterations, l.OnLimit, l.MaxIdenticalCalls = 2, toolcrib.OnLimitError, 0
	}))
	equal(t, "message", s.Failed.Message, "max tool iterations (2) exceeded")
	equal(t, "status", s.Failed.Status, toolcrib.StatusFailed)
	equal(t, "reason", s.Failed.StopReason, toolcrib.StopMaxIterations)
	equal(t, "requests", len(w.requests), 2)
}

// N10, N11: the second round is never sent; what there is, is the result.
func TestN10_N11_BudgetOfOneRequest(t *testing.T) {
	w := newWorld(t, gate.ConfirmWrites)
	w.script(append([]toolcrib.Delta{{Text: "looking"}}, calls("echo", `{}`)...))
	s := run(t, w, func(k *agent.Task) { k.Agent.Budget.MaxRequests = 1 })
	equal(t, "requests", len(w.requests), 1)
	equal(t, "reason", s.Done.StopReason, toolcrib.StopBudgetExhausted)
	equal(t, "truncated", s.Done.Truncated, true)
	equal(t, "content", s.Done.Content, "looking")
	equal(t, "trace", strings.Join(results(s), ","), "echo ok ")
	equal(t, "tokens", s.Done.Usage.TotalTokens, int64(110))
}

func TestN11_TokenAndCostBudgets(t *testing.T) {
	for name, b := range map[string]toolcrib.Budget{
		"tokens": {MaxTokens: 150},
		"cost":   {MaxCostUSD: 0.00015},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, gate.ConfirmWrites)
			w.script(calls("echo", `{}`))
			s := run(t, w, func(k *agent.Task) { k.Agent.Budget = b; k.RunTools = []string{"echo"} })
			equal(t, "requests", len(w.requests), 1)
			equal(t, "reason", s.Done.StopReason, toolcrib.StopBudgetExhausted)
			if w.requests[0].MaxOutputTokens == 0 {
				t.Error("the budget does not bound the reply")
			}
		})
	}
}

func TestN11_BudgetThatWarns(t *testing.T) {
	w := newWorld(t, gate.ConfirmWrites)
	w.script(calls("echo", `{"n":1}`), calls("echo", `{"n":2}`), say("done"))
	s := run(t, w, func(k *agent.Task) { k.Agent.Budget = toolcrib.Budget{MaxRequests: 1, Mode: toolcrib.BudgetWarn} })
	equal(t, "content", s.Done.Content, "done")
	equal(t, "warnings", countNotices(w, "cost_warning"), 1)
}

func countNotices(w *world, code string) (n int) {
	for _, f := range w.frames {
		if v, ok := f.Data.(toolcrib.Notice); ok && v.Code == code {
			n++
		}
	}
	return n
}

// N12, N13, N14: results in order under their IDs; {} for no arguments; IDs made
// where the provider has none or repeats one.
func TestN12_N13_N14_IDsAndArguments(t *testing.T) {
	w := newWorld(t, gate.ConfirmWrites)
	reply := func(ids ...string) []toolcrib.Delta {
		var ds []toolcrib.Delta
		for i, id := range ids {
			ds = append(ds, toolcrib.Delta{ToolCall: &toolcrib.ToolCallDelta{Index: i, ID: id, Name: "echo"}})
		}
		return append(ds, finish(toolcrib.FinishToolCalls))
	}
	w.script(reply("", "a", "a", "call_1"), reply("a", ""), say("ok"))
	s := run(t, w)
	var ids []string
	for _, c := range s.Trace {
		ids = append(ids, c.ID)
		equal(t, "arguments", string(c.Arguments), "{}")
	}
	equal(t, "ids", strings.Join(ids, " "), "call_2 a call_3 call_1 call_4 call_5")
	equal(t, "results", strings.Join(results(s), ","), "echo ok ,echo ok ,echo refused duplicate_call_id,echo ok ,echo ok ,echo ok ")
	shown := map[string]bool{}
	for _, f := range w.frames {
		if f.Event == journal.FrameToolCallDelta {
			b, _ := json.Marshal(f.Data)
			var d struct{ ID string }
			mustDecode(b, &d)
			shown[d.ID] = true
		}
	}
	for _, id := range ids {
		if !shown[id] {
			t.Errorf("call %s was shown under another ID while it came: %v", id, shown)
		}
	}
}

// N17: a registered tool that was not offered is not run.
func TestN17_NotOffered(t *testing.T) {
	w := newWorld(t, gate.ConfirmWrites)
	w.script(calls("wait", `{}`, "off", `{}`, "ghost", `{}`, "bad name!", `{}`), say("ok"))
	s := run(t, w, func(k *agent.Task) { k.RunTools = []string{"echo"} })
	equal(t, "results", strings.Join(results(s), ","),
		"wait refused run_allowlist,off refused tool_disabled,ghost refused not_registered,invalid_tool_name refused not_registered")
	equal(t, "ran", len(w.ran), 0)
	equal(t, "content", s.Done.Content, "ok")
}

// H13: with tool_choice none no tool runs, whatever the model does; required holds
// for the first request.
func TestH13_ToolChoice(t *testing.T) {
	w := newWorld(t, gate.ConfirmWrites)
	w.script(calls("echo", `{}`), say("ok"))
	s := run(t, w, func(k *agent.Task) { k.Agent.ToolChoice.Mode = toolcrib.ChoiceNone })
	equal(t, "result", strings.Join(results(s), ","), "echo refused not_offered")
	equal(t, "choice", w.requests[0].ToolChoice.Mode, toolcrib.ChoiceNone)

	w = newWorld(t, gate.ConfirmWrites)
	w.script(calls("echo", `{}`), say("ok"))
	run(t, w, func(k *agent.Task) {
		k.Agent.ToolChoice = toolcrib.ToolChoice{Mode: toolcrib.ChoiceName, Name: "echo"}
	})
	equal(t, "first", w.requests[0].ToolChoice.Name, "echo")
	equal(t, "then", w.requests[1].ToolChoice, toolcrib.ToolChoice{})

	w = newWorld(t, gate.ConfirmWrites)
	_, err := w.runner.Run(t.Context(), task(func(k *agent.Task) {
		k.Agent.ToolChoice = toolcrib.ToolChoice{Mode: toolcrib.ChoiceName, Name: "off"}
	}))
	if toolcrib.CodeOf(err) != toolcrib.CodeBadRequest {
		t.Errorf("a choice that is not offered: %v", err)
	}
}

// H14: a model without tools ignores them, and says so.
func TestH14_ToolsIgnored(t *testing.T) {
	w := newWorld(t, gate.ConfirmWrites)
	w.script(say("plain"))
	run(t, w, func(k *agent.Task) { k.Models[0].Tools = "none" })
	equal(t, "tools", len(w.requests[0].Tools), 0)
	equal(t, "notices", countNotices(w, "tools_ignored"), 1)
	_, err := w.runner.Run(t.Context(), task(func(k *agent.Task) {
		k.Models[0].Tools, k.Agent.ToolChoice.Mode = "none", toolcrib.ChoiceRequired
	}))
	if err == nil || len(w.requests) != 1 {
		t.Errorf("required without tools: %v", err)
	}
}

// N21, N22, C3: what a tool says is shown only if it was made for the model; the
// loop continues.
func TestN21_N22_C3_Errors(t *testing.T) {
	w := newWorld(t, gate.ConfirmWrites)
	w.script(calls("fails", `{}`, "faulty", `{}`, "panics", `{}`, "typed_nil", `{}`), say("ok"))
	s := run(t, w)
	equal(t, "failure", s.Trace[0].Result.Content, `{"error":"not found: the thing"}`)
	for _, c := range s.Trace[1:] {
		equal(t, "status", c.Result.Status, toolcrib.ResultError)
		want := fmt.Sprintf(`{"error":"tool \"%s\" failed","ref":"%s"}`, c.Name, c.Result.FaultRef)
		equal(t, "fault", c.Result.Content, want)
		if want := map[bool]string{true: "nil pointer", false: "hunter2hunter2"}[c.Name == "typed_nil"]; !strings.Contains(c.Result.Fault, want) {
			t.Errorf("the operator's detail is missing: %q", c.Result.Fault)
		}
	}
	for _, req := range w.requests {
		if b, _ := json.Marshal(req); strings.Contains(string(b), "hunter2hunter2") {
			t.Error("the provider was told the detail")
		}
	}
	equal(t, "content", s.Done.Content, "ok")
}

// N23: usage is summed over all requests, the closing one included.
func TestN23_Usage(t *testing.T) {
	w := newWorld(t, gate.ConfirmWrites)
	w.script(calls("echo", `{}`), say("ok"))
	s := run(t, w, limits(func(l *toolcrib.Limits) { l.MaxIterations = 1 }))
	u := s.Done.Usage
	equal(t, "requests", u.Requests, 2)
	equal(t, "tokens", u.TotalTokens, int64(220))
	if cost := 2 * (100*1.0 + 10*2.0) / 1e6; u.CostUSD < cost*0.999 || u.CostUSD > cost*1.001 || u.Estimated {
		t.Errorf("cost: %v, want %v", u.CostUSD, cost)
	}
}

// C18: a tool that says what it had when its time was up is heard, if it says so in time; what it says
// of a call that was cancelled is not.
func TestC18_TimeoutKeepsWhatTheToolHas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, gate.ConfirmNever)
		partial := &fn{w: w, spec: toolcrib.Spec{
			Name: "partial", Effect: toolcrib.EffectReadOnly, EnabledByDefault: true, Timeout: time.Second,
		}}
		partial.call = func(ctx context.Context, _ toolcrib.Call) (toolcrib.Output, error) {
			<-ctx.Done()
			var late *toolcrib.ToolError
			if !errors.As(context.Cause(ctx), &late) {
				t.Errorf("the cause is %v", context.Cause(ctx))
				return toolcrib.Output{}, ctx.Err()
			}
			return toolcrib.Output{}, toolcrib.Failf(late.Kind, "%s; its last stdout:\nhalf", late.Message)
		}
		withTools(t, w, nil, partial)
		w.script(calls("partial", `{}`), say("ok"))
		s := run(t, w)
		equal(t, "status", s.Trace[0].Result.Status, toolcrib.ResultTimeout)
		equal(t, "content", s.Trace[0].Result.Content, `{"error":"timeout after 1s; its last stdout:\nhalf"}`)
	})
}

// H10, C18: a tool that exceeds its timeout is cancelled, and abandoned if it ignores that.
func TestH10_Timeout(t *testing.T) {
	for _, name := range []string{"slow", "deaf"} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, gate.ConfirmWrites)
			w.script(calls(name, `{}`, "echo", `{}`), say("ok"))
			s := run(t, w)
			equal(t, "status", s.Trace[0].Result.Status, toolcrib.ResultTimeout)
			equal(t, "content", s.Trace[0].Result.Content, `{"error":"timeout after 1s"}`)
			equal(t, "sibling", s.Trace[1].Result.Status, toolcrib.ResultOK)
		})
	}
}

// H17: eight calls, at most four at once, one next request with all results.
func TestH17_Parallel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, gate.ConfirmWrites)
		var pairs []string
		for range 8 {
			pairs = append(pairs, "wait", `{}`)
		}
		w.script(calls(pairs...), say("ok"))
		run(t, w)
		equal(t, "most", w.most.Load(), int32(4))
		equal(t, "requests", len(w.requests), 2)
		equal(t, "results", len(w.requests[1].Messages[2].Parts), 8)
	})
}

// H16: a write asks, and no call of its turn runs before the decision.
func TestH16_ParksBeforeAnyCallRuns(t *testing.T) {
	w := newWorld(t, gate.ConfirmWrites)
	w.script(calls("echo", `{}`, "write", `{}`), say("ok"))
	s := run(t, w)
	equal(t, "status", s.Status, toolcrib.StatusWaitingForApproval)
	equal(t, "ran", len(w.ran), 0)
	equal(t, "calls", len(s.Pending.Calls), 1)
	equal(t, "digest", s.Pending.Digest, journal.Digest(s.Run, 1, s.Start.Principal, s.Pending.Calls))
	last := w.frames[len(w.frames)-1]
	equal(t, "last frame", last.Event, "paused")
}

func TestH16_ApproveAllAndDeny(t *testing.T) {
	w := newWorld(t, gate.ConfirmWrites)
	w.script(calls("write", `{}`), say("ok"))
	s := run(t, w, func(k *agent.Task) { k.Approve = agent.ApproveAll })
	equal(t, "result", strings.Join(results(s), ","), "write ok ")
	equal(t, "by", s.Trace[0].DecidedBy.By, "--approve all")

	w = newWorld(t, gate.ConfirmWrites)
	w.script(calls("write", `{}`), say("ok"))
	s = run(t, w, func(k *agent.Task) { k.Approve = agent.ApproveDeny })
	equal(t, "result", strings.Join(results(s), ","), "write refused needs_confirmation")
	equal(t, "ran", len(w.ran), 0)
	equal(t, "content", s.Done.Content, "ok")
}

// person answers approvals with the function of a test.
type person func(*journal.ConfirmationRequired) (journal.ConfirmationResolved, bool)

func (p person) Decide(_ context.Context, _ toolcrib.RunID, ask *journal.ConfirmationRequired) (journal.ConfirmationResolved, bool, error) {
	d, ok := p(ask)
	return d, ok, nil
}

func TestH16_PersonDecides(t *testing.T) {
	for onDenial, want := range map[string]toolcrib.StopReason{"continue": toolcrib.StopCompleted, "stop": toolcrib.StopApprovalDenied} {
		w := newWorld(t, gate.ConfirmWrites)
		w.runner.Approver = person(func(ask *journal.ConfirmationRequired) (journal.ConfirmationResolved, bool) {
			return journal.ConfirmationResolved{
				Decision: journal.DecisionMixed, By: "local:test", Reason: "not that one",
				Calls: map[string]journal.CallDecision{ask.Calls[0].ID: {Decision: journal.DecisionApprove}, ask.Calls[1].ID: {Decision: journal.DecisionDeny}},
			}, true
		})
		w.script(calls("write", `{"n":1}`, "write", `{"n":2}`), say("ok"))
		s := run(t, w, func(k *agent.Task) { k.Approve, k.Agent.OnDenial = agent.ApproveAsk, onDenial })
		equal(t, "results", strings.Join(results(s), ","), "write ok ,write refused approval_denied")
		if !strings.Contains(s.Trace[1].Result.Content, "not that one") {
			t.Errorf("the model is not told why: %s", s.Trace[1].Result.Content)
		}
		got := toolcrib.StopReason("")
		if s.Done != nil {
			got = s.Done.StopReason
		} else {
			got = s.Failed.StopReason
		}
		equal(t, "stop reason "+onDenial, got, want)
	}
}

// A run that is cancelled ends as cancelled, with a valid transcript.
func TestCancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, gate.ConfirmWrites)
		w.script(calls("slow", `{}`, "echo", `{}`), say("never"))
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(100*time.Millisecond, func() { cancel(&agent.CancelError{By: "local:test"}) })
		s, err := w.runner.Run(ctx, task())
		if err != nil {
			t.Fatal(err)
		}
		equal(t, "status", s.Status, toolcrib.StatusCancelled)
		equal(t, "reason", s.Done.StopReason, toolcrib.StopCancelled)
		equal(t, "results", strings.Join(results(s), ","), "slow cancelled ,echo ok ")
		if err := checkTranscript(s.Messages); err != nil {
			t.Error(err)
		}
	})
}

func TestWallTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, gate.ConfirmWrites)
		w.script(append([]toolcrib.Delta{{Text: "so far"}}, calls("wait", `{}`)...))
		s := run(t, w, limits(func(l *toolcrib.Limits) {
			l.WallTime, l.MaxIterations, l.MaxIdenticalCalls = 25*time.Millisecond, 200, 0
		}))
		equal(t, "reason", s.Done.StopReason, toolcrib.StopWallTime)
		equal(t, "content", s.Done.Content, "so far")
		equal(t, "status", s.Done.Status, toolcrib.StatusCompleted)
	})
}

// The same call with the same result three times in a row: the fourth is refused.
func TestRepeatedCall(t *testing.T) {
	w := newWorld(t, gate.ConfirmWrites)
	w.script(calls("echo", `{}`), calls("echo", `{}`), calls("echo", `{}`), calls("echo", `{}`), calls("echo", `{}`), say("ok"))
	s := run(t, w)
	equal(t, "results", strings.Join(results(s), ","), "echo ok ,echo ok ,echo ok ,echo refused repeated_call,echo refused repeated_call")
}

func TestTooManyCalls(t *testing.T) {
	w := newWorld(t, gate.ConfirmWrites)
	var pairs []string
	for i := range 1000 {
		pairs = append(pairs, "echo", fmt.Sprintf(`{"n":%d}`, i))
	}
	w.script(calls(pairs...), say("ok"))
	s := run(t, w)
	equal(t, "ran", len(w.ran), 64)
	equal(t, "last", s.Trace[999].Result.Reason, toolcrib.ReasonTooManyCalls)
	equal(t, "content", s.Done.Content, "ok")
}

// A failed request is tried again, then the next model is; what that leads to is
// in the journal.
func TestRetryAndFallback(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, gate.ConfirmWrites)
		w.reply = func(_ context.Context, _ int, req *toolcrib.Request) ([]toolcrib.Delta, error) {
			if req.Model == "one" {
				return nil, &toolcrib.ModelError{Class: toolcrib.ErrRateLimit, Status: 429, Message: "slow down"}
			}
			return say("from two"), nil
		}
		s := run(t, w, func(k *agent.Task) {
			k.Models = append(k.Models, journal.ModelInfo{Ref: "fake/two", Provider: "fake", ID: "two"})
		})
		equal(t, "content", s.Done.Content, "from two")
		equal(t, "requests", len(w.requests), 5)
		equal(t, "fallback", countNotices(w, "fallback_used"), 1)
		equal(t, "iterations", s.Done.Iterations, 1)
	})
}

func TestProviderFails(t *testing.T) {
	for class, want := range map[toolcrib.ErrorClass]toolcrib.StopReason{
		toolcrib.ErrAuth: toolcrib.StopProviderFailed, toolcrib.ErrContextLength: toolcrib.StopContextLength,
	} {
		w := newWorld(t, gate.ConfirmWrites)
		w.reply = func(context.Context, int, *toolcrib.Request) ([]toolcrib.Delta, error) {
			return nil, &toolcrib.ModelError{Class: class, Status: 401, Message: "no", Detail: "key sk-123 is wrong"}
		}
		s := run(t, w)
		equal(t, "reason", s.Failed.StopReason, want)
		equal(t, "requests", len(w.requests), 1)
		if strings.Contains(s.Failed.Message, "sk-123") || s.Failed.Ref == "" {
			t.Errorf("message %q, ref %q", s.Failed.Message, s.Failed.Ref)
		}
	}
}

// A reply that broke off is requested again, and the client is notified; none of its calls run.
func TestBrokenStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, gate.ConfirmWrites)
		w.reply = func(_ context.Context, n int, _ *toolcrib.Request) ([]toolcrib.Delta, error) {
			if n == 0 {
				return calls("echo", `{}`)[:1], nil
			}
			return say("whole"), nil
		}
		s := run(t, w)
		equal(t, "content", s.Done.Content, "whole")
		equal(t, "notices", countNotices(w, "reply_restarted"), 1)
		equal(t, "ran", len(w.ran), 0)
	})
}

// Neither text nor calls, or a filtered answer, is a failure of the provider.
func TestEmptyAndFilteredReplies(t *testing.T) {
	for name, reply := range map[string][]toolcrib.Delta{
		"empty":    {finish(toolcrib.FinishStop)},
		"filtered": {{Text: "I"}, finish(toolcrib.FinishFiltered)},
	} {
		w := newWorld(t, gate.ConfirmWrites)
		w.script(reply)
		s := run(t, w)
		if s.Failed == nil || s.Failed.StopReason != toolcrib.StopProviderFailed || !strings.HasPrefix(s.Failed.Message, "refused") {
			t.Errorf("%s: %+v", name, s.Failed)
		}
	}
}

// An answer that was cut at its length limit is kept; a call that was cut never runs.
func TestCutReplies(t *testing.T) {
	w := newWorld(t, gate.ConfirmWrites)
	w.script([]toolcrib.Delta{{Text: "half an ans"}, finish(toolcrib.FinishLength)})
	s := run(t, w)
	equal(t, "truncated", s.Done.Truncated, true)
	equal(t, "notice", countNotices(w, "output_truncated"), 1)

	w = newWorld(t, gate.ConfirmWrites)
	cut := calls("echo", `{}`, "echo", `{"n":1`)
	cut[2] = finish(toolcrib.FinishLength)
	w.script(cut, say("ok"))
	s = run(t, w)
	equal(t, "results", strings.Join(results(s), ","), "echo ok ,echo refused parse_error")
}

// A result that is too long is cut, and kept whole.
func TestC10_LongResult(t *testing.T) {
	w := newWorld(t, gate.ConfirmWrites)
	w.script(calls("big", `{}`), say("ok"))
	s := run(t, w)
	r := s.Trace[0].Result
	if !r.Truncated || len(r.Content) > 65536 || !strings.Contains(r.Content, "... [truncated, original size: 200002 bytes]") {
		t.Errorf("%d bytes, ending %q", len(r.Content), r.Content[max(0, len(r.Content)-80):])
	}
	whole, size, err := w.journal.Range(t.Context(), s.Run, r.Ref, 0, 1<<20)
	if err != nil || size != 200000 || len(whole) != 200000 {
		t.Errorf("kept %d of %d: %v", len(whole), size, err)
	}
}

// A run with one given call goes the same way, without a model.
func TestGivenCall(t *testing.T) {
	for name, want := range map[string]string{"echo": "echo ok ", "off": "off refused tool_disabled", "write": "write refused needs_confirmation"} {
		w := newWorld(t, gate.ConfirmWrites)
		s := run(t, w, func(k *agent.Task) {
			c := &toolcrib.ToolCall{ID: "call_1", Name: name}
			agent.ReadArguments(c, nil, nil)
			k.Given, k.Approve, k.Models = c, agent.ApproveDeny, nil
		})
		equal(t, "result", strings.Join(results(s), ","), want)
		equal(t, "requests", len(w.requests), 0)
		equal(t, "status", s.Status, toolcrib.StatusCompleted)
	}
}

// N7: requesting an answer again because it does not match output_schema does not extend the limit:
// calls after it do not run.
func TestN7_AskedAnewAtTheLimit(t *testing.T) {
	w := newWorld(t, gate.ConfirmWrites)
	w.script(say("no JSON"), calls("echo", `{}`), say(`{"a":1}`))
	s := run(t, w, limits(func(l *toolcrib.Limits) { l.MaxIterations = 1 }), func(k *agent.Task) {
		k.Agent.OutputSchema = json.RawMessage(`{"type":"object"}`)
	})
	equal(t, "ran", len(w.ran), 0)
	equal(t, "requests", len(w.requests), 3)
	equal(t, "tools of the last request", len(w.requests[2].Tools), 0)
	equal(t, "reason", s.Done.StopReason, toolcrib.StopMaxIterations)
}
