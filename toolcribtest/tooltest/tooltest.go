// Package tooltest is the conformance suite of [toolcrib.Tool]: what the loop and
// the gate rely on, tried from outside. Run it against every tool, one's own too.
package tooltest

import (
	"context"
	"encoding/json"
	"errors"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/toolcrib/toolcrib"
)

// Cases are the calls that [Run] makes.
type Cases struct {
	// Calls are made one by one, each in a workspace of its own. At least one must
	// succeed.
	Calls []Case
	// Long, if set, is a call that takes long: it is cancelled as soon as Started is
	// closed, and must then return.
	Long *Long
	// Prepare, if set, changes each call before it is made (Invoke, Principal, …).
	Prepare func(call *toolcrib.Call)
}

// Case is one call.
type Case struct {
	Name      string
	Arguments string // a JSON object
	// Setup fills the workspace; nil = it is empty.
	Setup func(t *testing.T, workspace string)
	// Err is the kind of error to expect; "" = success.
	Err toolcrib.ToolErrorKind
	// Invalid marks arguments that the gate refuses before the tool sees them. The
	// tool must cope all the same.
	Invalid bool
	// Check looks at what came back, and at the workspace; nil = nothing more.
	Check func(t *testing.T, workspace string, out toolcrib.Output)
}

// Long is a call to be cancelled.
type Long struct {
	Case
	Started <-chan struct{}
}

// patience is how long a call may take to notice that it was cancelled. It is far
// more than a tool needs: the suite finds tools that never do.
const patience = 30 * time.Second

// Run runs the suite. make returns a fresh tool each time.
func Run(t *testing.T, make func() toolcrib.Tool, cases Cases) {
	t.Helper()
	t.Run("spec", func(t *testing.T) { testSpec(t, make) })
	t.Run("arguments", func(t *testing.T) { testArguments(t, make(), cases) })
	succeeded := false
	for _, c := range cases.Calls {
		succeeded = succeeded || c.Err == ""
		t.Run("call/"+c.Name, func(t *testing.T) { testCall(t, make(), cases, c) })
		t.Run("judged/"+c.Name, func(t *testing.T) { testJudged(t, make(), cases, c) })
		t.Run("cancelled/"+c.Name, func(t *testing.T) { testCancelled(t, make(), cases, c) })
		t.Run("concurrent/"+c.Name, func(t *testing.T) { testConcurrent(t, make(), cases, c) })
	}
	if !succeeded {
		t.Error("no case succeeds: the suite has not seen the tool work")
	}
	if cases.Long != nil {
		t.Run("long", func(t *testing.T) { testLong(t, make(), cases) })
	}
}

// call makes the call of c in a workspace of its own.
func (cases Cases) call(t *testing.T, tool toolcrib.Tool, c Case) toolcrib.Call {
	t.Helper()
	workspace, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if c.Setup != nil {
		c.Setup(t, workspace)
	}
	call := toolcrib.Call{
		ID: "call_1", Name: tool.Spec().Name, Arguments: json.RawMessage(c.Arguments),
		Run: "run_tooltest", Session: "ses_tooltest", Principal: toolcrib.Principal{User: "tester", Admin: true},
		Workspace: workspace, Progress: func(string, float64) {},
	}
	if cases.Prepare != nil {
		cases.Prepare(&call)
	}
	return call
}

func testCall(t *testing.T, tool toolcrib.Tool, cases Cases, c Case) {
	call := cases.call(t, tool, c)
	before := string(call.Arguments)
	out, err := within(t.Context(), t, tool, call)
	if string(call.Arguments) != before {
		t.Error("the call changed its arguments")
	}
	check(t, tool, call, c, out, err)
	if err == nil && c.Check != nil {
		c.Check(t, call.Workspace, out)
	}
	writes := effect(tool, call).Writes()
	if err != nil || writes {
		return
	}
	fresh := cases.call(t, tool, c)
	state := snapshot(t, fresh.Workspace)
	if _, err := within(t.Context(), t, tool, fresh); err != nil {
		t.Errorf("the same call again: %v", err)
	}
	if diff := state.compare(snapshot(t, fresh.Workspace)); diff != "" {
		t.Errorf("the call says that it only reads, and changed the workspace: %s", diff)
	}
}

// check looks at a result: typed errors, no paths, valid output.
func check(t *testing.T, tool toolcrib.Tool, call toolcrib.Call, c Case, out toolcrib.Output, err error) {
	t.Helper()
	if c.Err != "" {
		made := (*toolcrib.ToolError)(nil)
		switch {
		case err == nil:
			t.Fatalf("succeeded with %s%s, want an error %q", out.JSON, out.Text, c.Err)
		case !errors.As(err, &made):
			t.Fatalf("error %v (%T) is not made for the model, want a ToolError %q", err, err, c.Err)
		case made.Kind != c.Err:
			t.Fatalf("error %q, want kind %q", made.Error(), c.Err)
		case made.Message == "":
			t.Error("the error says nothing")
		case strings.Contains(made.Error(), call.Workspace):
			t.Errorf("error %q tells where the workspace is", made.Error())
		}
		return
	}
	if err != nil {
		t.Fatalf("failed: %v", err)
	}
	if len(out.JSON) > 0 && !json.Valid(out.JSON) {
		t.Errorf("output is not JSON: %.200s", out.JSON)
	}
	if len(out.JSON) > 0 && out.Text != "" {
		t.Error("output has both a text and a JSON value")
	}
	if strings.Contains(string(out.JSON)+out.Text, call.Workspace) {
		t.Errorf("output tells where the workspace is: %.200s%.200s", out.JSON, out.Text)
	}
	if out.Source != "" && !out.Untrusted && !tool.Spec().Untrusted {
		t.Error("output names a source and is not marked untrusted")
	}
}

// testCancelled makes the call with a context that has ended: it must fail and
// change nothing.
func testCancelled(t *testing.T, tool toolcrib.Tool, cases Cases, c Case) {
	call := cases.call(t, tool, c)
	before := snapshot(t, call.Workspace)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := within(ctx, t, tool, call); err == nil {
		t.Error("a call whose context has ended succeeded")
	}
	if diff := before.compare(snapshot(t, call.Workspace)); diff != "" {
		t.Errorf("a call whose context has ended changed the workspace: %s", diff)
	}
}

// testConcurrent makes the call several times at once with one tool, each in its
// own workspace, and for reads several times in the same one.
func testConcurrent(t *testing.T, tool toolcrib.Tool, cases Cases, c Case) {
	const times = 4
	shared := cases.call(t, tool, c)
	calls := make([]toolcrib.Call, times)
	for i := range calls {
		calls[i] = shared
		if effect(tool, shared).Writes() {
			calls[i] = cases.call(t, tool, c)
		}
		calls[i].ID += string(rune('a' + i))
	}
	outputs, errs := make([]toolcrib.Output, times), make([]error, times)
	var all sync.WaitGroup
	for i := range calls {
		all.Go(func() { outputs[i], errs[i] = tool.Call(t.Context(), calls[i]) })
	}
	all.Wait()
	for i := range calls {
		check(t, tool, calls[i], c, outputs[i], errs[i])
	}
}

func testLong(t *testing.T, tool toolcrib.Tool, cases Cases) {
	call := cases.call(t, tool, cases.Long.Case)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var watch sync.WaitGroup
	watch.Go(func() {
		select {
		case <-cases.Long.Started:
		case <-ctx.Done():
		}
		cancel()
	})
	_, err := within(ctx, t, tool, call)
	cancel()
	watch.Wait()
	if err == nil {
		t.Error("a cancelled call succeeded")
	}
}

// within makes a call and gives up on it if it does not return in time.
func within(ctx context.Context, t *testing.T, tool toolcrib.Tool, call toolcrib.Call) (toolcrib.Output, error) {
	t.Helper()
	type answer struct {
		out toolcrib.Output
		err error
	}
	done := make(chan answer, 1)
	go func() {
		out, err := tool.Call(ctx, call)
		done <- answer{out, err}
	}()
	select {
	case a := <-done:
		return a.out, a.err
	case <-ctx.Done():
	}
	select {
	case a := <-done:
		return a.out, a.err
	case <-time.After(patience):
		t.Fatalf("the call did not return within %v of being cancelled", patience)
		return toolcrib.Output{}, nil
	}
}

// effect is what the gate takes the call for.
func effect(tool toolcrib.Tool, call toolcrib.Call) toolcrib.Effect {
	if e, ok := tool.(toolcrib.Effector); ok {
		return e.EffectOf(judged(call)).OrStrictest()
	}
	return tool.Spec().Effect.OrStrictest()
}

// judged is the call as the gate's questions get it.
func judged(call toolcrib.Call) toolcrib.Call {
	call.Progress, call.Invoke = nil, nil
	return call
}

func equal(a, b any) bool { return reflect.DeepEqual(a, b) }
