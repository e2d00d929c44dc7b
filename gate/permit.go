package gate

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/toolcrib/toolcrib"
)

// Permit is the gate's permission to run one call. Only a gate can make one: its fields are
// unexported, and the zero value runs nothing. It contains the plan that was judged, so that an
// executor needs no registry, and runs nothing else.
type Permit struct {
	plan      toolcrib.Plan
	planned   bool // whether the tool made the plan, which then has read the arguments
	call      toolcrib.Call
	effect    toolcrib.Effect
	targets   []toolcrib.Target
	timeout   time.Duration
	maxBytes  int
	untrusted bool
	answered  string // who answers the call, if not the tool
}

// ErrNoPermit is the error of a permit that no gate made.
var ErrNoPermit = errors.New("gate: no permit")

// ErrAnsweredElsewhere is the error of Execute for a call whose result comes from outside, so that
// it is not executed.
var ErrAnsweredElsewhere = errors.New("gate: the call is not executed: a person, another agent or the client answers it")

// Valid reports whether a gate made the permit.
func (p *Permit) Valid() bool { return p.plan.Run != nil }

// Call returns the call as it was judged.
func (p *Permit) Call() toolcrib.Call { return p.call }

// Effect returns the effect of this call.
func (p *Permit) Effect() toolcrib.Effect { return p.effect }

// Targets returns the targets of this call.
func (p *Permit) Targets() []toolcrib.Target { return p.targets }

// Timeout returns how long the call may take. If 0, it may take as long as the run.
func (p *Permit) Timeout() time.Duration { return p.timeout }

// MaxBytes returns the bound of the result as the model reads it, in bytes of JSON.
func (p *Permit) MaxBytes() int { return p.maxBytes }

// Untrusted reports whether the tool's results are untrusted data.
func (p *Permit) Untrusted() bool { return p.untrusted }

// Prepare returns the data by which to find out later whether a write happened. It returns nil if
// the tool cannot find out.
func (p *Permit) Prepare(ctx context.Context) (json.RawMessage, error) {
	if !p.Valid() {
		return nil, ErrNoPermit
	}
	if p.plan.Prepare == nil {
		return nil, nil
	}
	return p.plan.Prepare(ctx, p.given())
}

// given returns the call as the functions of the plan get it. The arguments are only for a tool that
// has not read them in a plan.
func (p *Permit) given() toolcrib.Call {
	if p.planned {
		return p.call.WithoutArguments()
	}
	return p.call
}

// Reconcile returns whether a write that was cut off happened.
func (p *Permit) Reconcile(ctx context.Context, prepared json.RawMessage) (toolcrib.Reconciled, error) {
	if !p.Valid() {
		return toolcrib.Reconciled{}, ErrNoPermit
	}
	if p.plan.Reconcile == nil || len(prepared) == 0 {
		return toolcrib.Reconciled{}, nil
	}
	return p.plan.Reconcile(ctx, p.given(), prepared)
}

// Attachments are given to a running call in addition to the judged call. They decide nothing.
type Attachments struct {
	Progress func(message string, fraction float64)
	Alive    func()
	Behind   func(work func(ctx context.Context)) bool
	Notice   func(n toolcrib.Notice)
	Invoke   func(ctx context.Context, name string, arguments json.RawMessage) (toolcrib.Invoked, error)
}

// Execute runs the plan of the call. Containing panics and enforcing the timeout is up to the executor.
func (p *Permit) Execute(ctx context.Context, with Attachments) (toolcrib.Output, error) {
	if !p.Valid() {
		return toolcrib.Output{}, ErrNoPermit
	}
	if p.answered != "" {
		return toolcrib.Output{}, ErrAnsweredElsewhere
	}
	call := p.given()
	call.Progress, call.Alive, call.Behind, call.Invoke = with.Progress, with.Alive, with.Behind, with.Invoke
	call.Notice = with.Notice
	if call.Progress == nil {
		call.Progress = func(string, float64) {}
	}
	return p.plan.Run(ctx, call)
}
