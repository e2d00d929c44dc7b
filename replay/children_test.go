package replay_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/journal/inmemory"
	"github.com/toolcrib/toolcrib/replay"
	"github.com/toolcrib/toolcrib/tool/spawn"
	"github.com/toolcrib/toolcrib/toolcribtest"
)

type noOverrides struct{}

func (noOverrides) Overrides(context.Context) (gate.Overrides, error) { return gate.Overrides{}, nil }

// taskOf is the task of an agent whose model has its name.
func taskOf(name, prompt string) agent.Task {
	return agent.Task{
		Agent:     toolcrib.Agent{Name: name, Model: "fake/" + name, Limits: toolcrib.DefaultLimits()},
		Models:    []journal.ModelInfo{{Ref: "fake/" + name, Provider: "fake", ID: name, Price: toolcrib.Price{Input: 1, Output: 2, Known: true}}},
		Principal: toolcrib.Principal{User: "ann"}, Workspace: "/nowhere", Prompt: prompt,
	}
}

// aFamily runs boss, who gives two tasks to helpers at once, each of which must ask before
// it writes, and continues when both were approved.
func aFamily(t *testing.T, change func(*agent.Task)) (*inmemory.Journal, toolcrib.RunID) {
	t.Helper()
	model := toolcribtest.NewModelFunc(func(_ int, req *toolcrib.Request) toolcribtest.Reply {
		replies := 0
		for _, m := range req.Messages {
			if m.Role == toolcrib.RoleAssistant {
				replies++
			}
		}
		switch {
		case replies > 0:
			return toolcribtest.Say(req.Model+" is done").Using(60, 9)
		case req.Model == "boss":
			return toolcribtest.Ask(
				toolcribtest.CallOf("a", "spawn", `{"agent":"helper","task":"first"}`), toolcribtest.CallOf("b", "spawn", `{"agent":"helper","task":"second","tools":["write"]}`),
				toolcribtest.CallOf("c", "spawn", `{"agent":"nobody","task":"never begins"}`)).Using(50, 20)
		}
		return toolcribtest.Ask(toolcribtest.CallOf("w", "write", `{}`)).Using(40, 10)
	})
	g, err := gate.New(gate.Options{
		Tools:        []toolcrib.Tool{spawn.New([]spawn.Agent{{Name: "helper"}, {Name: "nobody"}}), toolcribtest.Writer("write", "written")},
		Availability: noOverrides{}, Confirm: gate.ConfirmWrites,
	})
	if err != nil {
		t.Fatal(err)
	}
	j := &inmemory.Journal{}
	r, err := agent.New(agent.Options{
		Journal: j, Contents: j, Gate: g,
		Models: func(context.Context, journal.ModelInfo) (toolcrib.Model, error) { return model, nil },
		Agents: func(_ context.Context, _ toolcrib.Principal, name, _ string) (agent.Task, error) {
			if name == "nobody" {
				return agent.Task{}, errors.New("it no longer exists")
			}
			return taskOf(name, ""), nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	task := taskOf("boss", "go")
	task.Agent.Budget = toolcrib.Budget{MaxCostUSD: 1, MaxTokens: 100000, MaxRequests: 9}
	change(&task)
	s, err := r.Run(t.Context(), task)
	if err != nil {
		t.Fatal(err)
	}
	for _, run := range j.Runs() {
		if waits, err := r.Load(t.Context(), run); err == nil && waits.Approval != nil {
			if _, err := r.Decide(t.Context(), run, agent.Decision{ApprovalID: waits.Approval.ApprovalID, Who: task.Principal, Decision: journal.DecisionApprove}); err != nil {
				t.Fatal(err)
			}
		}
	}
	if s, err = r.Resume(t.Context(), s.Run); err != nil || s.Done == nil || s.Done.Content != "boss is done" {
		t.Fatalf("%v: %+v %+v", err, s.Done, s.Failed)
	}
	return j, s.Run
}

// tampered is a journal in which the events of a run were changed: change returns what
// is in an event's place.
func tampered(t *testing.T, j *inmemory.Journal, run toolcrib.RunID, change func(toolcrib.Body) []toolcrib.Body) *inmemory.Journal {
	t.Helper()
	other := &inmemory.Journal{}
	for _, r := range j.Runs() {
		var events []toolcrib.Event
		for e, err := range j.Read(t.Context(), r, 0) {
			if err != nil {
				t.Fatal(err)
			}
			bodies := []toolcrib.Body{e.Body}
			if r == run {
				bodies = change(e.Body)
			}
			for _, b := range bodies {
				events = append(events, toolcrib.Event{Time: e.Time, Body: b})
			}
		}
		if err := other.Append(t.Context(), r, 0, events...); err != nil {
			t.Fatal(err)
		}
	}
	return other
}

// copied is an event that can be changed.
func copied[T any](t *testing.T, b *T) *T {
	t.Helper()
	raw, err := json.Marshal(b)
	var c T
	if err == nil {
		err = json.Unmarshal(raw, &c)
	}
	if err != nil {
		t.Fatal(err)
	}
	return &c
}

// each changes every event of one kind that it is given.
func each[T any](t *testing.T, change func(*T)) func(toolcrib.Body) []toolcrib.Body {
	return func(b toolcrib.Body) []toolcrib.Body {
		if k, ok := any(b).(*T); ok {
			c := copied(t, k)
			change(c)
			b, _ = any(c).(toolcrib.Body)
		}
		return []toolcrib.Body{b}
	}
}

func TestReplay_Family(t *testing.T) {
	for _, mode := range []string{toolcrib.BudgetEnforce, toolcrib.BudgetOff} {
		j, top := aFamily(t, func(k *agent.Task) { k.Agent.Budget.Mode = mode })
		for _, run := range j.Runs() {
			r, err := replay.Run(t.Context(), j, run)
			if err != nil {
				t.Errorf("%s: %v", mode, err)
			}
			if want := map[bool]int{true: 2}[run == top]; r.Children != want {
				t.Errorf("%s: compared %d child runs of %s, want %d", mode, r.Children, run, want)
			}
		}
	}
}

// A child run that was removed, or whose journal cannot be read, says nothing of its
// parent; a context that ends does not pass for that.
func TestReplay_FamilyWithoutItsChildren(t *testing.T) {
	j, top := aFamily(t, func(*agent.Task) {})
	alone := &inmemory.Journal{}
	for e := range j.Read(t.Context(), top, 0) {
		if err := alone.Append(t.Context(), top, e.Seq-1, e); err != nil {
			t.Fatal(err)
		}
	}
	if r, err := replay.Run(t.Context(), alone, top); err != nil || r.Children != 0 {
		t.Errorf("%+v, %v", r, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := replay.Run(ctx, j, top); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// What a parent keeps of its children, and what they begin with, comes out of the core:
// whatever of it is changed is found.
func TestReplay_FamilyChanged(t *testing.T) {
	j, top := aFamily(t, func(*agent.Task) {})
	children := slices.DeleteFunc(j.Runs(), func(r toolcrib.RunID) bool { return r == top })
	swap := map[toolcrib.RunID]toolcrib.RunID{children[0]: children[1], children[1]: children[0]}
	swapped := func(run toolcrib.RunID) toolcrib.RunID {
		if other, ok := swap[run]; ok {
			return other
		}
		return run
	}
	kept := func(drop bool, b toolcrib.Body) []toolcrib.Body {
		if drop {
			return nil
		}
		return []toolcrib.Body{b}
	}
	tests := map[string]struct {
		child  bool // the first child's journal is changed, not the parent's
		change func(toolcrib.Body) []toolcrib.Body
		what   string
	}{
		"more requests":  {what: "share", change: each(t, func(b *journal.ChildStarted) { b.Share.Requests++ })},
		"more tokens":    {what: "share", change: each(t, func(b *journal.ChildStarted) { b.Share.Tokens++ })},
		"more money":     {what: "share", change: each(t, func(b *journal.ChildStarted) { b.Share.CostUSD += 1e-6 })},
		"no cap":         {what: "share", change: each(t, func(b *journal.ChildStarted) { b.Share = nil })},
		"another agent":  {what: "agent", change: each(t, func(b *journal.ChildStarted) { b.Agent = "third" })},
		"used less":      {what: "the end of the child", change: each(t, func(b *journal.ChildEnded) { b.Usage.TotalTokens = 0 })},
		"cost less":      {what: "the end of the child", change: each(t, func(b *journal.ChildEnded) { b.Usage.CostUSD /= 2 })},
		"asked less":     {what: "the end of the child", change: each(t, func(b *journal.ChildEnded) { b.Usage.Requests = 0 })},
		"another status": {what: "the end of the child", change: each(t, func(b *journal.ChildEnded) { b.Status = toolcrib.StatusFailed })},
		"another reason": {what: "the end of the child", change: each(t, func(b *journal.ChildEnded) { b.StopReason = toolcrib.StopWallTime })},
		"no end":         {what: "the child's end", change: func(b toolcrib.Body) []toolcrib.Body { _, drop := b.(*journal.ChildEnded); return kept(drop, b) }},
		"not resumed":    {what: "step", change: func(b toolcrib.Body) []toolcrib.Body { _, drop := b.(*journal.ChildResumed); return kept(drop, b) }},
		"not parked":     {change: func(b toolcrib.Body) []toolcrib.Body { _, drop := b.(*journal.ChildParked); return kept(drop, b) }},
		"not started":    {change: func(b toolcrib.Body) []toolcrib.Body { _, drop := b.(*journal.ChildStarted); return kept(drop, b) }},
		"swapped": {what: "the child's task", change: func(b toolcrib.Body) []toolcrib.Body {
			for _, change := range []func(toolcrib.Body) []toolcrib.Body{
				each(t, func(b *journal.ChildStarted) { b.Run = swapped(b.Run) }), each(t, func(b *journal.ChildEnded) { b.Run = swapped(b.Run) }),
				each(t, func(b *journal.ChildParked) { b.Run = swapped(b.Run) }), each(t, func(b *journal.ChildResumed) { b.Run = swapped(b.Run) }),
			} {
				b = change(b)[0]
			}
			return []toolcrib.Body{b}
		}},
		"swapped at the end":     {change: each(t, func(b *journal.ChildEnded) { b.Run = swapped(b.Run) })},
		"the same run twice":     {change: each(t, func(b *journal.ChildStarted) { b.Run = children[0] })},
		"no part of it":          {child: true, what: "the child's parent", change: each(t, func(b *journal.RunStarted) { b.Parent = "" })},
		"not below":              {child: true, what: "the child's depth", change: each(t, func(b *journal.RunStarted) { b.Depth = 0 })},
		"a larger share":         {child: true, what: "share", change: each(t, func(b *journal.RunStarted) { b.Share.Requests = 100 })},
		"a share of nothing":     {child: true, what: "share", change: each(t, func(b *journal.RunStarted) { b.Share = nil })},
		"not narrowed":           {child: true, what: "the child's above", change: each(t, func(b *journal.RunStarted) { b.Above = nil })},
		"less narrowed":          {child: true, what: "the child's above", change: each(t, func(b *journal.RunStarted) { b.Above.TaintWrites = gate.TaintAllow })},
		"all tools":              {child: true, what: "the child's worker_tools", change: each(t, func(b *journal.RunStarted) { b.WorkerTools = nil })},
		"other tools":            {child: true, what: "the child's run_tools", change: each(t, func(b *journal.RunStarted) { b.RunTools = []string{"spawn"} })},
		"another agent did it":   {child: true, what: "the child's agent", change: each(t, func(b *journal.RunStarted) { b.Agent.Name = "third" })},
		"another task":           {child: true, what: "the child's task", change: each(t, func(b *journal.RunStarted) { b.Input[0] = toolcrib.TextMessage(toolcrib.RoleUser, "else") })},
		"one that has not ended": {child: true, what: "the end of the child", change: func(b toolcrib.Body) []toolcrib.Body { _, drop := b.(*journal.Done); return kept(drop, b) }},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			run := top
			if tt.child {
				run = children[0]
			}
			_, err := replay.Run(t.Context(), tampered(t, j, run, tt.change), top)
			var found *replay.DifferenceError
			if tt.what == "" {
				if err == nil {
					t.Error("nothing was found")
				}
				return
			}
			if !errors.As(err, &found) || found.What != tt.what || found.Run != top || !strings.Contains(err.Error(), "replay gives") {
				t.Errorf("found %v, want a difference of %q", err, tt.what)
			}
		})
	}
}
