package agent_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/agent/core"
	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/journal"
)

// worker makes a run one with these bounds.
func worker(l journal.WorkerLimits) func(*agent.Task) {
	return func(k *agent.Task) { k.Worker = &l }
}

// endless calls the tool again and again, until it is offered nothing.
func (w *world) endless(tool string) {
	w.reply = func(_ context.Context, n int, req *toolcrib.Request) ([]toolcrib.Delta, error) {
		if len(req.Tools) == 0 {
			return say("what I found"), nil
		}
		return calls(tool, fmt.Sprintf(`{"n":%d}`, n)), nil
	}
}

// X6: the third call is refused, and exactly one more request follows, without tools;
// that the worker had no calls left does not make its answer a cut one.
func TestX6_ThirdHopIsRefused(t *testing.T) {
	w := newWorld(t, gate.ConfirmNever)
	w.endless("echo")
	s := run(t, w, worker(journal.WorkerLimits{Hops: 2}), limits(func(l *toolcrib.Limits) { l.OnLimit = toolcrib.OnLimitError }))
	if got, want := results(s), []string{"echo ok ", "echo ok ", "echo refused hop_budget_exhausted"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	equal(t, "requests", len(w.requests), 4)
	equal(t, "executions", len(w.ran), 2)
	equal(t, "tools of the last request", len(w.requests[3].Tools), 0)
	if s.Done == nil || s.Done.StopReason != toolcrib.StopCompleted || s.Done.Truncated || s.Done.Content != "what I found" {
		t.Errorf("ended as %+v %+v", s.Done, s.Failed)
	}
}

// X6, X8: refused and broken calls are hops, each of a turn.
func TestX6_EveryAttemptIsAHop(t *testing.T) {
	tests := map[string]struct {
		replies  [][]toolcrib.Delta
		want     []string
		requests int
	}{
		"refused": {
			replies:  [][]toolcrib.Delta{calls("ghost", `{}`), calls("off", `{}`), calls("echo", `{}`), say("over")},
			want:     []string{"ghost refused not_registered", "off refused tool_disabled", "echo refused hop_budget_exhausted"},
			requests: 4,
		},
		"broken": {
			replies:  [][]toolcrib.Delta{calls("echo", `{"n":`), calls("strict", `{"n":"x"}`), calls("echo", `{}`), say("over")},
			want:     []string{"echo refused invalid_arguments", "strict refused invalid_arguments", "echo refused hop_budget_exhausted"},
			requests: 4,
		},
		"one turn": {
			replies:  [][]toolcrib.Delta{calls("echo", `{"n":1}`, "wait", `{}`, "echo", `{"n":3}`, "write", `{}`), say("over")},
			want:     []string{"echo ok ", "wait ok ", "echo refused hop_budget_exhausted", "write refused hop_budget_exhausted"},
			requests: 2,
		},
		"fixed": {
			replies:  [][]toolcrib.Delta{calls("echo", `{"n":`), calls("echo", `{"n":1}`), say("over")},
			want:     []string{"echo refused invalid_arguments", "echo ok "},
			requests: 3,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, gate.ConfirmNever)
			w.script(tt.replies...)
			s := run(t, w, worker(journal.WorkerLimits{Hops: 2}))
			if got := results(s); !slices.Equal(got, tt.want) {
				t.Errorf("%q, want %q", got, tt.want)
			}
			equal(t, "requests", len(w.requests), tt.requests)
			if s.Done == nil || s.Done.StopReason != toolcrib.StopCompleted || s.Done.Truncated || s.Done.Content != "over" {
				t.Errorf("ended as %+v %+v", s.Done, s.Failed)
			}
		})
	}
}

// X6: a worker whose driver was lost has no more hops than before, and a turn no more
// calls: what is answered already still counts (too_many_calls).
func TestX6_HopsAfterACrash(t *testing.T) {
	for name, change := range map[string]func(*agent.Task){
		"hop_budget_exhausted": worker(journal.WorkerLimits{Hops: 2}),
		"too_many_calls":       limits(func(l *toolcrib.Limits) { l.MaxCallsPerTurn = 2 }),
	} {
		w := newWorld(t, gate.ConfirmNever)
		replies := [][]toolcrib.Delta{calls("echo", `{"n":1}`, "echo", `{"n":2}`, "write", `{}`), say("over")}
		w.byTurn(replies...)
		whole := run(t, w, change)
		equal(t, "the last call", whole.Trace[2].Result.Reason, toolcrib.Reason(name))
		events := w.events(t, whole.Run)
		for n := 1; n < len(events); n++ {
			resumeFrom(t, events, n, whole, replies)
		}
	}
}

// X6: arguments that a person changed are judged where their call is in its turn.
func TestX6_HopsOfAChangedCall(t *testing.T) {
	w := newWorld(t, gate.ConfirmWrites)
	w.script(calls("echo", `{}`, "write", `{}`), say("over"))
	s := run(t, w, worker(journal.WorkerLimits{Hops: 2}))
	s, err := w.runner.Decide(t.Context(), s.Run, agent.Decision{
		ApprovalID: s.Approval.ApprovalID, Who: me,
		Calls: map[string]journal.CallDecision{"call_2": {Decision: journal.DecisionApprove, Arguments: []byte(`{"n":7}`)}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if s, err = w.runner.Resume(t.Context(), s.Run); err != nil || w.gave["call_2"] != `{"n":7}` || s.Done == nil {
		t.Errorf("%v, gave %q", err, w.gave)
	}
}

// X14: what the worker says last is its answer, read once; a call in it is not run and
// not asked about again.
func TestX14_TheLastRequestHasNoTools(t *testing.T) {
	w := newWorld(t, gate.ConfirmNever)
	w.script(calls("echo", `{}`), append([]toolcrib.Delta{{Text: "so far"}}, calls("write", `{}`)...), append([]toolcrib.Delta{{Text: "this is all"}}, calls("write", `{"n":2}`)...))
	s := run(t, w, worker(journal.WorkerLimits{Hops: 1}))
	equal(t, "requests", len(w.requests), 3)
	equal(t, "writes", w.wrote(), 0)
	if s.Done == nil || s.Done.Status != toolcrib.StatusCompleted || s.Done.Content != "this is all" {
		t.Errorf("ended as %+v %+v", s.Done, s.Failed)
	}
}

// X14: an answer in JSON that does not match the schema is requested once more, which is not a hop;
// calls come before it.
func TestX14_SchemaRetryIsNoHop(t *testing.T) {
	w := newWorld(t, gate.ConfirmNever)
	w.script(calls("echo", `{}`), say("no json"), say(`{"score":3}`))
	s := run(t, w, worker(journal.WorkerLimits{Hops: 1}), func(k *agent.Task) {
		k.Agent.OutputSchema = []byte(`{"type":"object","required":["score"]}`)
	})
	if s.Done == nil || s.Done.Content != `{"score":3}` || s.Done.StopReason != toolcrib.StopCompleted {
		t.Errorf("ended as %+v %+v", s.Done, s.Failed)
	}
}

// X15 to X18: the modes of a cap of cost. Each request costs 120 millionths of a dollar.
func TestX15_X16_X17_X18_CostCap(t *testing.T) {
	const over = "echo refused cost_cap_exceeded"
	tests := map[string]struct {
		limits   journal.WorkerLimits
		refused  bool
		requests int // 5 = the worker has called what it wanted
		warned   bool
	}{
		"enforced":             {limits: journal.WorkerLimits{CostCapUSD: 0.0002, CostCapMode: "enforce"}, refused: true, requests: 3},
		"enforced at once":     {limits: journal.WorkerLimits{CostCapUSD: 0.0001, CostCapMode: "enforce"}, refused: true, requests: 2},
		"enforced, not passed": {limits: journal.WorkerLimits{CostCapUSD: 1, CostCapMode: "enforce"}, requests: 5},
		"enforced, reached":    {limits: journal.WorkerLimits{CostCapUSD: 0.00048, CostCapMode: "enforce"}, requests: 5},
		"warned of":            {limits: journal.WorkerLimits{CostCapUSD: 0.0002, CostCapMode: "warn"}, requests: 5, warned: true},
		"the default":          {limits: journal.WorkerLimits{CostCapUSD: 0.0002}, requests: 5, warned: true},
		"an unknown mode":      {limits: journal.WorkerLimits{CostCapUSD: 0.0002, CostCapMode: "ENFORCE"}, requests: 5, warned: true},
		"not passed":           {limits: journal.WorkerLimits{CostCapUSD: 1, CostCapMode: "warn"}, requests: 5},
		"off":                  {limits: journal.WorkerLimits{CostCapUSD: 0.0002, CostCapMode: "off"}, requests: 5},
		"no cap":               {limits: journal.WorkerLimits{CostCapMode: "enforce"}, requests: 5},
		"less than none":       {limits: journal.WorkerLimits{CostCapUSD: -1, CostCapMode: "enforce"}, requests: 5},
		"before the hops":      {limits: journal.WorkerLimits{Hops: 1, CostCapUSD: 0.0002, CostCapMode: "enforce"}, refused: true, requests: 3},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, gate.ConfirmNever)
			w.reply = func(_ context.Context, n int, req *toolcrib.Request) ([]toolcrib.Delta, error) {
				if len(req.Tools) == 0 || n == 4 {
					return say("what I found"), nil
				}
				return calls("echo", fmt.Sprintf(`{"n":%d}`, n)), nil
			}
			s := run(t, w, worker(tt.limits))
			last := results(s)[len(s.Trace)-1]
			if s.Done == nil || s.Done.StopReason != toolcrib.StopCompleted || s.Done.Truncated || s.Done.Content != "what I found" {
				t.Errorf("ended as %+v %+v", s.Done, s.Failed)
			}
			if len(w.requests) != tt.requests || (last == over) != tt.refused || len(w.ran) != tt.requests-1-len(refused(s)) {
				t.Errorf("%d requests, calls %q, ran %d", len(w.requests), results(s), len(w.ran))
			}
			warned := 0
			for _, e := range w.events(t, s.Run) {
				if n, ok := e.Body.(*journal.Notice); ok && n.Code == core.NoticeWorkerCost {
					warned++
				}
			}
			if warned > 1 || (warned == 1) != tt.warned {
				t.Errorf("warned %d times", warned)
			}
		})
	}
}

func refused(s *agent.State) []string {
	return slices.DeleteFunc(results(s), func(r string) bool { return !strings.Contains(r, " refused ") })
}
