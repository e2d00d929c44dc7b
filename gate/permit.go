package gate

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/toolcrib/toolcrib"
)

// Permit is the gate's leave to run one call. Only a gate can make one: its
// fields are its own, and the zero value runs nothing. It holds the tool, so that
// whoever executes needs no registry. [law]
type Permit struct {
	tool      toolcrib.Tool
	call      toolcrib.Call
	effect    toolcrib.Effect
	targets   []toolcrib.Target
	timeout   time.Duration
	maxBytes  int
	untrusted bool
	answered  string // by whom, if not by the tool
}

// ErrNoPermit is what a permit that no gate made answers.
var ErrNoPermit = errors.New("gate: no permit")

// ErrAnsweredElsewhere is what Execute answers of a call whose result comes from
// outside: nobody executes it.
var ErrAnsweredElsewhere = errors.New("gate: the call is not executed: a person, another agent or the client answers it")

// Valid reports whether a gate made the permit.
func (p *Permit) Valid() bool { return p.tool != nil }

// Call is the call as it was judged.
func (p *Permit) Call() toolcrib.Call { return p.call }

// Effect is what this call may do to the world.
func (p *Permit) Effect() toolcrib.Effect { return p.effect }

// Targets is what this call touches.
func (p *Permit) Targets() []toolcrib.Target { return p.targets }

// Timeout is how long the call may take; 0 = as long as the run.
func (p *Permit) Timeout() time.Duration { return p.timeout }

// MaxBytes bounds the result as the model reads it, in bytes of JSON.
func (p *Permit) MaxBytes() int { return p.maxBytes }

// Untrusted reports whether the tool's results are untrusted data.
func (p *Permit) Untrusted() bool { return p.untrusted }

// Prepare asks a write what is needed to tell later whether it happened; nil if
// the tool cannot tell.
func (p *Permit) Prepare(ctx context.Context) (json.RawMessage, error) {
	if p.tool == nil {
		return nil, ErrNoPermit
	}
	if w, ok := p.tool.(toolcrib.Preparer); ok {
		return w.Prepare(ctx, p.call)
	}
	return nil, nil
}

// Reconcile asks a write that was cut off whether it happened.
func (p *Permit) Reconcile(ctx context.Context, prepared json.RawMessage) (toolcrib.Reconciled, error) {
	if p.tool == nil {
		return toolcrib.Reconciled{}, ErrNoPermit
	}
	if w, ok := p.tool.(toolcrib.Preparer); ok && len(prepared) > 0 {
		return w.Reconcile(ctx, p.call, prepared)
	}
	return toolcrib.Reconciled{}, nil
}

// Attachments are what a running call gets besides what was judged. They decide
// nothing.
type Attachments struct {
	Progress func(message string, fraction float64)
	Alive    func()
	Behind   func(work func(ctx context.Context)) bool
	Notice   func(n toolcrib.Notice)
	Invoke   func(ctx context.Context, name string, arguments json.RawMessage) (toolcrib.Invoked, error)
}

// Execute runs the call. It does not contain panics or enforce the timeout: that
// is the executor's.
func (p *Permit) Execute(ctx context.Context, with Attachments) (toolcrib.Output, error) {
	if p.tool == nil {
		return toolcrib.Output{}, ErrNoPermit
	}
	if p.answered != "" {
		return toolcrib.Output{}, ErrAnsweredElsewhere
	}
	call := p.call
	call.Progress, call.Alive, call.Behind, call.Invoke = with.Progress, with.Alive, with.Behind, with.Invoke
	call.Notice = with.Notice
	if call.Progress == nil {
		call.Progress = func(string, float64) {}
	}
	return p.tool.Call(ctx, call)
}
