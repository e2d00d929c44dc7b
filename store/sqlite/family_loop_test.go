package sqlite_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/provider/script"
	"github.com/toolcrib/toolcrib/store"
	"github.com/toolcrib/toolcrib/store/sqlite"
	"github.com/toolcrib/toolcrib/tool"
	"github.com/toolcrib/toolcrib/tool/spawn"
)

// watched is a journal that is verified after each append.
type watched struct {
	*sqlite.Store
	t  *testing.T
	mu sync.Mutex
}

func (w *watched) Append(ctx context.Context, run toolcrib.RunID, after toolcrib.Seq, events ...toolcrib.Event) error {
	err := w.Store.Append(ctx, run, after, events...)
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, broken := w.VerifyAll(context.WithoutCancel(ctx)); broken != nil {
		w.t.Errorf("after event %d of %s: %v", after+toolcrib.Seq(len(events)), run, broken)
	}
	return err
}

// household is the real loop over a store: boss calls helper twice at once, and both
// call third, who writes and must be let.
func household(t *testing.T, s *sqlite.Store) (*agent.Runner, agent.Task) {
	t.Helper()
	says := map[string]string{
		"boss":   "- tool_calls: [{name: spawn, arguments: {agent: helper, task: one}}, {name: spawn, arguments: {agent: helper, task: two}}]\n- text: done\n",
		"helper": "- tool_calls: [{name: spawn, arguments: {agent: third, task: put it}}]\n- text: helped\n",
		"third":  "- tool_calls: [{name: put, arguments: {}}]\n- text: put\n",
	}
	put, err := tool.Func(toolcrib.Spec{Name: "put", Effect: toolcrib.EffectIdempotentWrite, EnabledByDefault: true, Source: "go"},
		func(context.Context, toolcrib.Call, struct{}) (string, error) { return "it is there", nil })
	if err != nil {
		t.Fatal(err)
	}
	g, err := gate.New(gate.Options{
		Tools: []toolcrib.Tool{put, spawn.New([]spawn.Agent{{Name: "helper"}, {Name: "third"}})}, Availability: gate.Overrides{}, Confirm: gate.ConfirmWrites,
	})
	if err != nil {
		t.Fatal(err)
	}
	task := func(_ context.Context, who toolcrib.Principal, name, workspace string) (agent.Task, error) {
		return agent.Task{
			Agent:  toolcrib.Agent{Name: name, Model: "demo/" + name, Limits: toolcrib.DefaultLimits(), Budget: toolcrib.Budget{MaxRequests: 50}},
			Models: []journal.ModelInfo{{Ref: "demo/" + name, Provider: "demo", ID: name}}, Principal: who, Workspace: workspace,
		}, nil
	}
	runner, err := agent.New(agent.Options{
		Journal: &watched{Store: s, t: t}, Contents: s, Gate: g, Agents: task,
		Models: func(_ context.Context, m journal.ModelInfo) (toolcrib.Model, error) {
			return script.New(script.Options{Name: "demo", Bytes: []byte(says[m.ID])})
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	begin, err := task(t.Context(), toolcrib.Principal{User: "ann", Admin: true}, "boss", "/nowhere")
	if err != nil {
		t.Fatal(err)
	}
	begin.Prompt, begin.Session, begin.Driver = "go", "work", "cli"
	return runner, begin
}

// The events of runs that start others are valid after each append, an open approval is listed once,
// and the whole tree is pruned together.
func TestFamilyOfTheLoop(t *testing.T) {
	s := open(t)
	runner, task := household(t, s)
	top, err := runner.Run(t.Context(), task)
	if err != nil {
		t.Fatal(err)
	}
	waiting := []toolcrib.Status{toolcrib.StatusWaitingForApproval}
	for left := 2; left > 0; left-- {
		all, err := s.Runs(t.Context(), store.Filter{Status: waiting})
		if err != nil || len(all.Runs) != 1+2*left {
			t.Fatalf("%d runs wait, error %v; want %d", len(all.Runs), err, 1+2*left)
		}
		page, err := s.Runs(t.Context(), store.Filter{Status: waiting, Deciding: true})
		if err != nil || len(page.Runs) != left {
			t.Fatalf("%d runs are to be decided about, error %v; want %d", len(page.Runs), err, left)
		}
		rec := page.Runs[0]
		if rec.Agent != "third" || len(rec.Pending.Calls) != 1 || rec.Pending.Calls[0].Name != "put" {
			t.Fatalf("%+v", rec)
		}
		decision := agent.Decision{ApprovalID: rec.Pending.ApprovalID, Digest: rec.Pending.Digest, Decision: journal.DecisionApprove, Who: task.Principal}
		if _, err := runner.Decide(t.Context(), rec.ID, decision); err != nil {
			t.Fatal(err)
		}
		if top, err = runner.Resume(t.Context(), top.Run); err != nil {
			t.Fatal(err)
		}
		for _, run := range append(all.Runs, rec) {
			state, err := runner.Load(t.Context(), run.ID)
			if err != nil {
				t.Fatal(err)
			}
			if now, err := s.Run(t.Context(), run.ID); err != nil || now.Status != state.Status || now.Usage != state.Usage {
				t.Errorf("run %s of %s is kept as %s with %+v, error %v; its journal says %s with %+v", run.ID, run.Agent, now.Status, now.Usage, err, state.Status, state.Usage)
			}
		}
	}
	if top.Done == nil || top.Spent().Requests != 10 || top.Usage.Requests != 2 {
		t.Fatalf("%s, spent %+v, itself %+v", top.Status, top.Spent(), top.Usage)
	}
	rows, err := s.Usage(t.Context(), store.UsageQuery{By: store.UsageByAgent})
	requests := map[string]int64{}
	for _, r := range rows {
		requests[r.Key] = r.Requests
	}
	if err != nil || requests["boss"] != 2 || requests["helper"] != 4 || requests["third"] != 4 {
		t.Errorf("requests by agent %v, error %v", requests, err)
	}
	if info := session(t, s, "ann", "work"); info.Runs != 1 || info.LastRun != top.Run || info.Busy() {
		t.Errorf("%+v", info)
	}
	for _, contentOnly := range []bool{true, false} {
		if result := prune(t, s, store.PruneOptions{Runs: []toolcrib.RunID{top.Run}, ContentOnly: contentOnly}); len(result.Runs) != 5 {
			t.Errorf("pruned %v", result.Runs)
		}
		verifyAll(t, s)
	}
	if _, err := s.Run(t.Context(), top.Run); !errors.Is(err, toolcrib.ErrNotFound) {
		t.Errorf("error %v, want ErrNotFound", err)
	}
}

// A run tree that is cancelled while it waits is valid, and blocks nothing afterwards.
func TestCancelledFamilyOfTheLoop(t *testing.T) {
	s := open(t)
	runner, task := household(t, s)
	top, err := runner.Run(t.Context(), task)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := runner.Cancel(t.Context(), top.Run, &agent.CancelError{By: "ann"}); err != nil {
		t.Fatal(err)
	}
	page, err := s.Runs(t.Context(), store.Filter{})
	if err != nil || len(page.Runs) != 5 {
		t.Fatalf("%d runs, error %v", len(page.Runs), err)
	}
	for _, rec := range page.Runs {
		if rec.Status != toolcrib.StatusCancelled || rec.Pending != nil {
			t.Errorf("run %s of %s is %s", rec.ID, rec.Agent, rec.Status)
		}
	}
	if result := prune(t, s, store.PruneOptions{Runs: []toolcrib.RunID{top.Run}}); len(result.Runs) != 5 {
		t.Errorf("pruned %v", result.Runs)
	}
	verifyAll(t, s)
}
