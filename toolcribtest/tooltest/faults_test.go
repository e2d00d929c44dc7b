package tooltest_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/toolcribtest/tooltest"
)

// faulty is a tool that does one thing wrong.
type faulty struct {
	spec toolcrib.Spec
	call func(context.Context, toolcrib.Call) (toolcrib.Output, error)
	plan func(toolcrib.Call, *toolcrib.Plan) error
}

func (f *faulty) Spec() toolcrib.Spec { return f.spec }

func (f *faulty) Call(ctx context.Context, call toolcrib.Call) (toolcrib.Output, error) {
	return f.call(ctx, call)
}

func (f *faulty) Plan(_ context.Context, call toolcrib.Call) (*toolcrib.Plan, error) {
	p := &toolcrib.Plan{Run: f.call}
	if f.plan != nil {
		if err := f.plan(call, p); err != nil {
			return nil, err
		}
	}
	return p, nil
}

func fine(ctx context.Context, _ toolcrib.Call) (toolcrib.Output, error) {
	return toolcrib.Output{Text: "fine"}, ctx.Err()
}

func leave(call toolcrib.Call, _ *toolcrib.Plan) error {
	return os.WriteFile(filepath.Join(call.Workspace, "trace"), nil, 0o600)
}

// fault is what is wrong, and what the suite says about it.
type fault struct {
	tool faulty
	want string
	err  toolcrib.ToolErrorKind
}

func faults() []fault {
	good := toolcrib.Spec{Name: "t", Description: "A tool.", Effect: toolcrib.EffectReadOnly, Source: "go"}
	spec := func(change func(*toolcrib.Spec)) toolcrib.Spec {
		s := good
		change(&s)
		return s
	}
	answer := func(out toolcrib.Output, err error) func(context.Context, toolcrib.Call) (toolcrib.Output, error) {
		return func(ctx context.Context, _ toolcrib.Call) (toolcrib.Output, error) {
			return out, errors.Join(err, ctx.Err())
		}
	}
	return []fault{
		{tool: faulty{spec: spec(func(s *toolcrib.Spec) { s.Name = "a b" }), call: fine}, want: "must match"},
		{tool: faulty{spec: spec(func(s *toolcrib.Spec) { s.Description = " " }), call: fine}, want: "no description"},
		{tool: faulty{spec: spec(func(s *toolcrib.Spec) { s.Effect = "" }), call: fine}, want: "no effect stated"},
		{
			tool: faulty{spec: spec(func(s *toolcrib.Spec) { s.Parameters = json.RawMessage(`{"type":"string"}`) }), call: fine},
			want: "does not say",
		},
		{tool: faulty{spec: spec(func(s *toolcrib.Spec) { s.Parameters = json.RawMessage(`{"type":"object","properties":3}`) }), call: fine}, want: "does not compile"},
		{tool: faulty{spec: spec(func(s *toolcrib.Spec) { s.Parameters = json.RawMessage(`{"type":"object","required":["x"]}`) }), call: fine}, want: "do not fit the schema"},
		{tool: faulty{spec: good, call: answer(toolcrib.Output{JSON: []byte(`{`)}, nil)}, want: "output is not JSON"},
		{
			tool: faulty{spec: good, call: answer(toolcrib.Output{JSON: []byte(`1`), Text: "1"}, nil)},
			want: "both a text and a JSON value",
		},
		{
			tool: faulty{spec: good, call: answer(toolcrib.Output{}, errors.New("oops"))}, want: "not made for the model",
			err: toolcrib.NotFound,
		},
		{
			tool: faulty{spec: good, call: answer(toolcrib.Output{}, toolcrib.Failf(toolcrib.NotFound, ""))},
			want: "says nothing", err: toolcrib.NotFound,
		},
		{
			tool: faulty{spec: good, call: answer(toolcrib.Output{}, toolcrib.Failf(toolcrib.InvalidPath, "x"))},
			want: "want kind", err: toolcrib.NotFound,
		},
		{tool: faulty{spec: good, call: fine}, want: "succeeded with", err: toolcrib.NotFound},
		{tool: faulty{spec: good, call: func(ctx context.Context, call toolcrib.Call) (toolcrib.Output, error) {
			return toolcrib.Output{Text: call.Workspace}, ctx.Err()
		}}, want: "reveals where the workspace is"},
		{tool: faulty{spec: good, call: func(context.Context, toolcrib.Call) (toolcrib.Output, error) {
			return toolcrib.Output{}, nil
		}}, want: "whose context has ended succeeded"},
		{tool: faulty{spec: good, call: func(ctx context.Context, call toolcrib.Call) (toolcrib.Output, error) {
			return toolcrib.Output{}, errors.Join(leave(call, nil), ctx.Err())
		}}, want: "says that it only reads, and changed the workspace"},
		{tool: faulty{spec: good, call: fine, plan: leave}, want: "planning the call changed the workspace"},
		{tool: faulty{spec: good, call: fine, plan: func(toolcrib.Call, *toolcrib.Plan) error {
			return errors.New("no")
		}}, want: "Plan refuses a call that is to succeed"},
		{tool: faulty{spec: good, call: fine, plan: func(_ toolcrib.Call, p *toolcrib.Plan) error {
			p.Effect = toolcrib.EffectIdempotentWrite
			return nil
		}}, want: "the plan says that a call writes"},
		{tool: faulty{spec: good, call: fine, plan: func(_ toolcrib.Call, p *toolcrib.Plan) error {
			p.Targets = []toolcrib.Target{{Kind: "host", Name: "h"}}
			return nil
		}}, want: "facts that Spec.Plans does not name"},
	}
}

const faultVariable = "TOOLTEST_FAULT"

// TestN1_SuiteFindsFaults runs the suite against each faulty tool in a process of
// its own, where it must fail and say why.
func TestN1_SuiteFindsFaults(t *testing.T) {
	if text := os.Getenv(faultVariable); text != "" {
		number, err := strconv.Atoi(text)
		if err != nil {
			t.Fatal(err)
		}
		f := faults()[number]
		calls := []tooltest.Case{{Name: "call", Arguments: `{}`, Err: f.err}}
		tooltest.Run(t, func() toolcrib.Tool { return &f.tool }, tooltest.Cases{Calls: calls})
		return
	}
	for number, f := range faults() {
		command := exec.Command(os.Args[0], "-test.run=^TestN1_SuiteFindsFaults$")
		command.Env = append(os.Environ(), faultVariable+"="+strconv.Itoa(number))
		out, err := command.CombinedOutput()
		if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) || !strings.Contains(string(out), f.want) {
			t.Errorf("fault %d (%s): %v\n%s", number, f.want, err, out)
		}
	}
}
