package agent_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/agent/core"
	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/replay"
)

// conversation is a generated run: what the model will say, and how the run is
// held.
type conversation struct {
	turns       [][]toolcrib.Delta
	errors      map[int]toolcrib.ErrorClass
	limits      toolcrib.Limits
	budget      toolcrib.Budget
	approve     agent.Approve
	readOnly    bool
	cancelAt    int // frame number; 0 = never
	runTools    []string
	shutdown    bool // the cancel is a shutdown: the run stays resumable
	confirmMode gate.ConfirmMode
}

func drawConversation(t *rapid.T) conversation {
	c := conversation{
		limits:      toolcrib.DefaultLimits(),
		errors:      map[int]toolcrib.ErrorClass{},
		approve:     rapid.SampledFrom([]agent.Approve{agent.ApproveNone, agent.ApproveAll, agent.ApproveDeny}).Draw(t, "approve"),
		readOnly:    rapid.IntRange(0, 4).Draw(t, "readOnly") == 0,
		confirmMode: rapid.SampledFrom([]gate.ConfirmMode{gate.ConfirmWrites, gate.ConfirmNever, gate.ConfirmAlways}).Draw(t, "confirm"),
	}
	c.limits.MaxIterations = rapid.IntRange(1, 6).Draw(t, "iterations")
	c.limits.MaxParallel = rapid.IntRange(1, 5).Draw(t, "parallel")
	c.limits.MaxCallsPerTurn = rapid.IntRange(1, 8).Draw(t, "calls")
	c.limits.OnLimit = rapid.SampledFrom([]string{toolcrib.OnLimitFinalize, toolcrib.OnLimitError}).Draw(t, "onLimit")
	c.limits.WallTime = rapid.SampledFrom([]time.Duration{time.Hour, 2 * time.Second, 30 * time.Millisecond}).Draw(t, "wall")
	if rapid.Bool().Draw(t, "budgeted") {
		c.budget.MaxRequests = rapid.IntRange(1, 4).Draw(t, "requests")
	}
	if rapid.IntRange(0, 3).Draw(t, "cancels") == 0 {
		c.cancelAt = rapid.IntRange(1, 40).Draw(t, "cancelAt")
		c.shutdown = rapid.Bool().Draw(t, "shutdown")
	}
	if rapid.IntRange(0, 5).Draw(t, "narrow") == 0 {
		c.runTools = []string{"echo", "w*"}
	}
	tools := []string{"echo", "strict", "fails", "faulty", "panics", "slow", "deaf", "wait", "big", "write", "off", "ghost", "bad name!", ""}
	arguments := []string{`{}`, ``, `{"n":1}`, `{"n":"x"}`, `{"a":1,"a":2}`, `[1]`, `{"broken`, `{"n":1}`, `null`}
	ids := []string{"", "a", "b", "call_1", "a", "toolu_1"}
	for range rapid.IntRange(0, 7).Draw(t, "turns") {
		var turn []toolcrib.Delta
		if rapid.Bool().Draw(t, "thinks") {
			turn = append(turn, toolcrib.Delta{Thinking: "hm"}, toolcrib.Delta{Signature: "sig"})
		}
		if rapid.Bool().Draw(t, "talks") {
			turn = append(turn, toolcrib.Delta{Text: "let me see"})
		}
		for i := range rapid.IntRange(0, 10).Draw(t, "n") {
			turn = append(turn, toolcrib.Delta{ToolCall: &toolcrib.ToolCallDelta{
				Index: i, ID: rapid.SampledFrom(ids).Draw(t, "id"), Name: rapid.SampledFrom(tools).Draw(t, "tool"),
				Arguments: rapid.SampledFrom(arguments).Draw(t, "arguments"),
			}})
		}
		reason := rapid.SampledFrom([]toolcrib.FinishReason{toolcrib.FinishToolCalls, toolcrib.FinishToolCalls, toolcrib.FinishLength, toolcrib.FinishFiltered}).Draw(t, "finish")
		if rapid.IntRange(0, 9).Draw(t, "breaks") > 0 {
			turn = append(turn, finish(reason))
		}
		c.turns = append(c.turns, turn)
	}
	c.turns = append(c.turns, say("the answer"))
	for range rapid.IntRange(0, 2).Draw(t, "errors") {
		c.errors[rapid.IntRange(0, 8).Draw(t, "errorAt")] = rapid.SampledFrom([]toolcrib.ErrorClass{
			toolcrib.ErrAuth, toolcrib.ErrRateLimit, toolcrib.ErrNetwork, toolcrib.ErrContextLength, toolcrib.ErrBadRequest,
		}).Draw(t, "class")
	}
	return c
}

// TestProperty_Conversations_N12_H17_N17_N22 drives generated conversations and
// holds each against what must be true of every run.
func TestProperty_Conversations_N12_H17_N17_N22(t *testing.T) {
	checks(t, 300)
	rapid.Check(t, func(rt *rapid.T) {
		c := drawConversation(rt)
		var failure error
		synctest.Test(t, func(t *testing.T) { failure = converse(t, c) })
		if failure != nil {
			rt.Fatal(failure)
		}
	})
}

func converse(t *testing.T, c conversation) error {
	w := newWorld(t, c.confirmMode)
	w.reply = func(_ context.Context, n int, _ *toolcrib.Request) ([]toolcrib.Delta, error) {
		if class, ok := c.errors[n]; ok {
			return nil, &toolcrib.ModelError{Class: class, Message: "no", Status: 400}
		}
		return c.turns[min(n, len(c.turns)-1)], nil
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	frames := 0
	w.onFrame = func(journal.Frame) {
		if frames++; frames == c.cancelAt {
			if c.shutdown {
				cancel(context.Canceled)
			} else {
				cancel(&agent.CancelError{By: "test"})
			}
		}
	}
	s, err := w.runner.Run(ctx, task(func(k *agent.Task) {
		k.Agent.Limits, k.Agent.Budget, k.Agent.ReadOnly = c.limits, c.budget, c.readOnly
		k.Approve, k.RunTools = c.approve, c.runTools
	}))
	// Tools that are deaf to their cancel end by themselves; nothing may be left.
	if err := w.runner.Wait(context.Background()); err != nil {
		return err
	}
	if err != nil && !(c.shutdown && c.cancelAt > 0) {
		return fmt.Errorf("run: %w", err)
	}
	if s == nil {
		return nil
	}
	return w.hold(t, c, s, err)
}

// hold checks what must be true of every run, whatever happened in it.
func (w *world) hold(t *testing.T, c conversation, s *agent.State, driven error) error {
	for i, req := range w.requests {
		if err := checkTranscript(req.Messages); err != nil {
			return fmt.Errorf("request %d: %w", i, err)
		}
	}
	if s.Turn == nil {
		if err := checkTranscript(s.Messages); err != nil {
			return fmt.Errorf("at the end: %w", err)
		}
	}
	if most := int(w.most.Load()); most > c.limits.MaxParallel {
		// A tool that is deaf still runs after its call was given up.
		deaf := 0
		for _, k := range s.Trace {
			if k.Name == "deaf" {
				deaf++
			}
		}
		if most > c.limits.MaxParallel+deaf {
			return fmt.Errorf("%d tools at once, %d allowed", most, c.limits.MaxParallel)
		}
	}
	events := w.events(t, s.Run)
	if err := w.holdEvents(events, s); err != nil {
		return err
	}
	if driven == nil && !s.Ended() && !s.Status.Parked() {
		return fmt.Errorf("the run neither ended nor parked: %s", s.Status)
	}
	if c.budget.MaxRequests > 0 && s.Usage.Requests > c.budget.MaxRequests {
		return fmt.Errorf("%d requests of %d", s.Usage.Requests, c.budget.MaxRequests)
	}
	for i := 1; i < len(w.frames); i++ {
		if strings.Contains(fmt.Sprint(w.frames[i].Data), "hunter2hunter2") {
			return fmt.Errorf("the detail of a fault was shown: %v", w.frames[i])
		}
	}
	return nil
}

// replayed compares every step of the run with its journal, and what its policy says
// of its calls now with what it said then.
func (w *world) replayed(s *agent.State) error {
	if _, err := replay.Run(context.Background(), w.journal, s.Run); err != nil {
		return err
	}
	if w.policyChanges {
		return nil
	}
	return w.sameAgain(s.Run)
}

func (w *world) holdEvents(events []toolcrib.Event, s *agent.State) error {
	allowed, started, ends := map[string]bool{}, map[string]bool{}, 0
	again := core.NewState(s.Run)
	for i, e := range events {
		if err := core.Fold(again, e); err != nil {
			return err
		}
		if again.Turn == nil {
			if err := checkTranscript(again.Messages); err != nil {
				return fmt.Errorf("after event %d: %w", e.Seq, err)
			}
		}
		switch b := e.Body.(type) {
		case *journal.Verdicts:
			for _, v := range b.Verdicts {
				allowed[v.CallID] = v.Decision == toolcrib.Allow
			}
		case *journal.ToolStarted:
			if !allowed[b.ID] {
				return fmt.Errorf("call %s started without leave", b.ID)
			}
			started[b.ID] = true
		case *journal.Done, *journal.Error:
			ends++
			if i != len(events)-1 {
				return fmt.Errorf("event %d is not the last", e.Seq)
			}
		}
	}
	if ends > 1 {
		return fmt.Errorf("%d ends", ends)
	}
	for id, n := range w.ran {
		if n != 1 || !started[id] {
			return fmt.Errorf("call %s ran %d times, started: %v", id, n, started[id])
		}
	}
	if err := w.replayed(s); err != nil {
		return err
	}
	if again.Status != s.Status || again.Usage != s.Usage || len(again.Messages) != len(s.Messages) || again.Iterations != s.Iterations {
		return fmt.Errorf("folding the journal again gives another state")
	}
	if next := core.Next(again); s.Ended() && next.Kind != core.StepNone || s.Status.Parked() && next.Kind != core.StepWait {
		return fmt.Errorf("status %s, but next is %q", s.Status, next.Kind)
	}
	return nil
}
