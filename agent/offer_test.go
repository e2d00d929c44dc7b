package agent_test

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/journal"
)

// switches are overrides that a test changes while a run is on.
type switches struct{ tools map[string]bool }

func (s *switches) Overrides(context.Context) (gate.Overrides, error) {
	return gate.Overrides{Tools: s.tools}, nil
}

// looking is an availability that looks at what is in the journal when it is asked.
type looking struct{ look func() }

func (l looking) Overrides(context.Context) (gate.Overrides, error) {
	l.look()
	return gate.Overrides{}, nil
}

// The result of a write is written down at once, before anything else is done: what
// comes next may take long, and that a write happened must not be lost.
func TestWriteResultIsWrittenAtOnce(t *testing.T) {
	w := newWorld(t, gate.ConfirmNever)
	ran, asked := false, 0
	put := &fn{w: w, spec: toolcrib.Spec{Name: "put", EnabledByDefault: true}}
	put.call = func(context.Context, toolcrib.Call) (toolcrib.Output, error) {
		ran = true
		return toolcrib.Output{Text: "ok"}, nil
	}
	results := 0
	g, err := gate.New(gate.Options{Confirm: gate.ConfirmNever, Tools: []toolcrib.Tool{put}, Availability: looking{func() {
		if ran {
			asked++
			equal(t, "results in the journal", results, 1)
		}
	}}})
	if err != nil {
		t.Fatal(err)
	}
	o := w.runner.Options
	o.Gate = g
	o.Watch = func(_ toolcrib.RunID, f journal.Frame) { // told of what is in the journal
		if f.Event == string(journal.KindToolResult) {
			results++
		}
	}
	w.runner, _ = agent.New(o)
	w.script(calls("put", `{}`), say("done"))
	run(t, w)
	if asked == 0 {
		t.Error("the gate was not asked after the write")
	}
}

// A tool that is switched off between two rounds is neither offered nor run in the
// second (A9), and the run replays.
func TestA9_SwitchedOffWhileTheRunIsOn(t *testing.T) {
	w := newWorld(t, gate.ConfirmNever)
	w.policyChanges = true
	over := &switches{}
	g, err := gate.New(gate.Options{Availability: over, Confirm: gate.ConfirmNever, Tools: []toolcrib.Tool{
		&fn{w: w, spec: toolcrib.Spec{Name: "echo", Effect: toolcrib.EffectReadOnly, EnabledByDefault: true}, call: newEcho},
		&fn{w: w, spec: toolcrib.Spec{Name: "other", Effect: toolcrib.EffectReadOnly, EnabledByDefault: true}, call: newEcho},
	}})
	if err != nil {
		t.Fatal(err)
	}
	o := w.runner.Options
	o.Gate = g
	w.runner, _ = agent.New(o)
	w.reply = func(_ context.Context, n int, req *toolcrib.Request) ([]toolcrib.Delta, error) {
		if n == 0 {
			over.tools = map[string]bool{"echo": false}
			return calls("echo", `{}`, "other", `{}`), nil
		}
		if n == 1 {
			equal(t, "offered", len(req.Tools), 1)
			return calls("echo", `{}`), nil
		}
		return say("done"), nil
	}
	s := run(t, w) // replays too
	equal(t, "first", s.Trace[0].Result.Reason, toolcrib.ReasonToolDisabled)
	equal(t, "second", s.Trace[1].Result.Status, toolcrib.ResultOK)
	equal(t, "third", s.Trace[2].Result.Reason, toolcrib.ReasonToolDisabled)
}

// noting is a write whose tool can report whether it happened.
type noting struct {
	*fn
	done map[string]bool
}

func (n noting) Plan(_ context.Context, c toolcrib.Call) (*toolcrib.Plan, error) {
	plan, record := planOf(n.fn, c), `{"id":"`+c.ID+`"}`
	plan.Prepare = func(context.Context, toolcrib.Call) (json.RawMessage, error) { return json.RawMessage(record), nil }
	plan.Reconcile = func(_ context.Context, c toolcrib.Call, prepared json.RawMessage) (toolcrib.Reconciled, error) {
		if n.done[c.ID] && string(prepared) == record {
			return toolcrib.Reconciled{State: toolcrib.Happened, Output: toolcrib.Output{Text: "noted"}}, nil
		}
		return toolcrib.Reconciled{State: toolcrib.NotHappened}, nil
	}
	return plan, nil
}

// A write whose tool can find out whether it happened is never shown to a person: it happened, or it
// runs. Either way the run replays.
func TestResume_ToolsThatCanTell(t *testing.T) {
	for name, happened := range map[string]bool{"happened": true, "not happened": false} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, gate.ConfirmNever)
			w.byTurn(calls("note", `{}`), say("done"))
			tool := noting{done: map[string]bool{}, fn: &fn{w: w, spec: toolcrib.Spec{Name: "note", EnabledByDefault: true}}}
			tool.call = func(_ context.Context, c toolcrib.Call) (toolcrib.Output, error) {
				tool.done[c.ID] = true
				return toolcrib.Output{Text: "noted"}, nil
			}
			withTools(t, w, nil, tool)
			whole := run(t, w)
			events := w.events(t, whole.Run)
			n := 0
			for i, e := range events {
				if e.Body.EventKind() == journal.KindToolStarted {
					n = i + 1
				}
			}
			again := cutAfter(t, events, n, whole.Run, gate.ConfirmNever)
			again.byTurn(calls("note", `{}`), say("done"))
			tool.w, tool.done[whole.Trace[0].ID] = again, happened
			withTools(t, again, nil, tool)
			s, err := again.runner.Resume(t.Context(), whole.Run)
			if err != nil {
				t.Fatal(err)
			}
			equal(t, "outcome", outcome(s), outcome(whole))
			equal(t, "ran again", len(again.ran) > 0, !happened)
			if err := again.replayed(s); err != nil {
				t.Error(err)
			}
		})
	}
}
