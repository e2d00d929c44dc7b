package agent_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/journal"
)

// brood returns a run tree in which each run starts three others, down to the depth limit.
func brood(t *testing.T, change ...func(*family, *gate.Options)) *family {
	turn := make([]string, 0, 6)
	for i := range 3 {
		turn = append(turn, "spawn", strings.Replace(spawn("helper"), "do it", fmt.Sprint("task ", i), 1))
	}
	return newFamily(t, gate.ConfirmNever, replies{
		"boss": {calls(turn...), say("all done")}, "helper": {calls(turn...), say("helped")},
	}, change...)
}

// tree counts the runs of a journal and the calls that were refused for want of budget.
func (f *family) tree(t *testing.T) (runs, refused int, bytes int64) {
	t.Helper()
	for _, run := range f.journal.Runs() {
		s, err := f.runner.Load(context.Background(), run)
		if err != nil {
			t.Fatal(err)
		}
		runs++
		if s.Start.Parent == "" {
			bytes = s.Used().Bytes
			if used := s.Used(); used.Runs != len(f.journal.Runs()) {
				t.Errorf("%d runs, and the one at the top knows of %d", len(f.journal.Runs()), used.Runs)
			}
		}
		for _, c := range s.Trace {
			if c.Result.Reason == toolcrib.ReasonBudgetExhausted {
				refused++
			}
		}
	}
	return runs, refused, bytes
}

// A tree of runs has only so many runs and sends only so many requests, at whatever
// depth and whatever the budget's mode is (N10, X6).
func TestTree_RunsAndRequests(t *testing.T) {
	for most := 1; most <= 14; most++ {
		f := brood(t)
		s := f.start(t, func(k *agent.Task) { k.Agent.Limits.MaxTreeRuns = most })
		runs, refused, _ := f.tree(t)
		if s.Done == nil || s.Done.Content != "all done" || runs > most || most > 4 && runs < 4 || refused == 0 {
			t.Errorf("%d runs of %d, %d refused, ended as %+v", runs, most, refused, s.Done)
		}
	}
	for _, most := range []int{1, 2, 3, 5, 9, 20} {
		f := brood(t)
		s := f.start(t, func(k *agent.Task) {
			k.Agent.Limits.MaxTreeRequests, k.Agent.Budget.Mode = most, toolcrib.BudgetOff
		})
		if sent := f.asked["boss"] + f.asked["helper"]; sent > most || s.Done == nil || most > 1 && s.Done.Content != "all done" {
			t.Errorf("%d requests of %d, ended as %+v", sent, most, s.Done)
		}
	}
}

// What a person decides about meanwhile, and who takes the runs up, changes nothing.
func TestTree_AcrossResume(t *testing.T) {
	turn := []string{"write", `{}`, "spawn", spawn("helper"), "spawn", spawn("third")}
	f := newFamily(t, gate.ConfirmWrites, replies{
		"boss": {calls(turn...), calls(turn...), say("all done")}, "helper": {calls(turn...), say("x")}, "third": {say("y")},
	})
	s := f.start(t, func(k *agent.Task) { k.Agent.Limits.MaxTreeRuns = 5 })
	for range 20 {
		if s.Ended() {
			break
		}
		waits := s.Run
		if s.Pending.Run != "" {
			waits = s.Pending.Run
		}
		f.decide(t, waits, journal.DecisionApprove)
		f.drivenBy(t, nil, f.journal)
		s = f.resume(t, s.Run)
	}
	runs, refused, _ := f.tree(t)
	if s.Done == nil || runs > 5 || runs < 4 || refused == 0 {
		t.Errorf("%s: %d runs, %d refused", s.Status, runs, refused)
	}
}

// The journals of a tree grow only so far: a run ends before its next request, and no
// other is started.
func TestTree_Bytes(t *testing.T) {
	const most = 170 << 10
	f := newFamily(t, gate.ConfirmNever, replies{
		"boss": {calls("spawn", spawn("helper")), calls("spawn", spawn("third")), say("all done")}, "helper": {calls("draw", `{}`)},
	})
	f.tools["draw"] = toolcrib.Output{Text: strings.Repeat("x", 50<<10)}
	s := f.start(t, func(k *agent.Task) { k.Agent.Limits.MaxTreeBytes, k.Agent.Limits.MaxIdenticalCalls = most, 0 })
	runs, refused, bytes := f.tree(t)
	helper := f.children(t, s.Run)[0]
	if helper.Done == nil || helper.Done.StopReason != toolcrib.StopBudgetExhausted || runs != 2 || refused != 1 || bytes > most+16<<10 {
		t.Errorf("%d runs, %d refused, %d bytes, the first ended as %+v", runs, refused, bytes, helper.Done)
	}
	if s.Done == nil || s.Trace[0].ChildEnd.Bytes < 140<<10 {
		t.Errorf("ended as %+v, told %+v", s.Done, s.Trace[0].ChildEnd)
	}
}
