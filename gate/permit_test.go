package gate_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/gate"
)

// preparedTool can find out afterwards whether it ran.
type preparedTool struct{ plainTool }

func (p *preparedTool) Plan(_ context.Context, c toolcrib.Call) (*toolcrib.Plan, error) {
	arguments := c.Arguments
	return &toolcrib.Plan{
		Prepare: func(context.Context, toolcrib.Call) (json.RawMessage, error) { return arguments, nil },
		Reconcile: func(_ context.Context, _ toolcrib.Call, prepared json.RawMessage) (toolcrib.Reconciled, error) {
			if string(prepared) == string(arguments) {
				return toolcrib.Reconciled{State: toolcrib.NotHappened}, nil
			}
			return toolcrib.Reconciled{State: toolcrib.Happened}, nil
		},
		Run: p.Call,
	}, nil
}

func permitOf(t *testing.T, tl toolcrib.Tool) gate.Permit {
	t.Helper()
	v := judgeOne(t, newGate(t, tl), call("1", "x", `{"a":1}`))
	wantAllowed(t, v)
	return v.Permit
}

func TestPermitPreparesAndReconciles(t *testing.T) {
	p := permitOf(t, &preparedTool{plainTool{reads("x")}})
	prepared, err := p.Prepare(t.Context())
	if err != nil || string(prepared) != `{"a":1}` {
		t.Fatalf("%s, %v", prepared, err)
	}
	for state, with := range map[toolcrib.ReconciledState]json.RawMessage{
		toolcrib.NotHappened: prepared, toolcrib.Happened: json.RawMessage(`{}`), toolcrib.InDoubt: nil,
	} {
		if r, err := p.Reconcile(t.Context(), with); err != nil || r.State != state {
			t.Errorf("%s: %q, %v", with, r.State, err)
		}
	}
}

func TestPermitOfToolThatCannotTell(t *testing.T) {
	p := permitOf(t, tool(reads("x")))
	if prepared, err := p.Prepare(t.Context()); err != nil || prepared != nil {
		t.Fatalf("%s, %v", prepared, err)
	}
	if r, err := p.Reconcile(t.Context(), json.RawMessage(`{}`)); err != nil || r.State != toolcrib.InDoubt {
		t.Fatalf("%+v, %v", r, err)
	}
}

func TestZeroPermitDoesNothing(t *testing.T) {
	var p gate.Permit
	if _, err := p.Prepare(t.Context()); !errors.Is(err, gate.ErrNoPermit) {
		t.Fatal(err)
	}
	if _, err := p.Reconcile(t.Context(), json.RawMessage(`{}`)); !errors.Is(err, gate.ErrNoPermit) {
		t.Fatal(err)
	}
	if p.Valid() || p.MaxBytes() != 0 {
		t.Fatalf("%+v", p)
	}
}
