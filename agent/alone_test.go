package agent_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/journal"
)

// readers makes read-only tools of functions, with a timeout of a second.
func readers(w *world, fns map[string]func(context.Context, toolcrib.Call) (toolcrib.Output, error)) []toolcrib.Tool {
	var tools []toolcrib.Tool
	for name, call := range fns {
		tools = append(tools, &fn{w: w, call: call, spec: toolcrib.Spec{
			Name: name, Effect: toolcrib.EffectReadOnly, EnabledByDefault: true, Timeout: time.Second,
		}})
	}
	return tools
}

// A call that is alone and deaf is left behind as one among others is: the run goes
// on after its timeout, also several times, and nothing that it does later counts.
func TestAlone_DeafIsLeftBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, gate.ConfirmNever)
		told := make(chan struct{}, 8)
		tools := readers(w, map[string]func(context.Context, toolcrib.Call) (toolcrib.Output, error){
			"deaf": func(_ context.Context, c toolcrib.Call) (toolcrib.Output, error) {
				time.Sleep(time.Minute)
				c.Progress("too late", 1)
				told <- struct{}{}
				return toolcrib.Output{Text: "too late"}, nil
			},
			"quits": func(context.Context, toolcrib.Call) (toolcrib.Output, error) {
				time.Sleep(time.Minute)
				told <- struct{}{}
				runtime.Goexit()
				return toolcrib.Output{}, nil
			},
			"echo": newEcho,
		})
		withTools(t, w, nil, tools...)
		w.script(calls("deaf", `{"n":1}`), calls("echo", `{}`), calls("quits", `{}`), calls("deaf", `{"n":2}`), say("ok"))
		began := time.Now()
		s, err := w.runner.Run(t.Context(), task())
		if err != nil {
			t.Fatal(err)
		}
		equal(t, "results", strings.Join(results(s), ","), "deaf timeout ,echo ok ,quits timeout ,deaf timeout ")
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("took %s", took)
		}
		for range 3 {
			<-told
		}
		if err := w.runner.Wait(t.Context()); err != nil {
			t.Error(err)
		}
		for _, f := range w.frames {
			if f.Event == journal.FrameToolProgress {
				t.Errorf("shown after the call was left behind: %+v", f)
			}
		}
	})
}

// A deaf call does not keep a run that is cancelled, whatever its timeout.
func TestAlone_CancelPassesADeafCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, gate.ConfirmNever)
		deaf := &fn{w: w, spec: toolcrib.Spec{Name: "deaf", Effect: toolcrib.EffectReadOnly, EnabledByDefault: true, Nested: true}}
		deaf.call = func(context.Context, toolcrib.Call) (toolcrib.Output, error) {
			time.Sleep(time.Hour)
			return toolcrib.Output{}, nil
		}
		withTools(t, w, nil, deaf)
		w.script(calls("deaf", `{}`), say("never"))
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(&agent.CancelError{By: "test"}) })
		began := time.Now()
		s, err := w.runner.Run(ctx, task())
		if err != nil {
			t.Fatal(err)
		}
		equal(t, "status", s.Status, toolcrib.StatusCancelled)
		equal(t, "results", strings.Join(results(s), ","), "deaf cancelled ")
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("took %s", took)
		}
		if err := w.runner.Wait(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// A tool that ends its goroutine has failed; the run goes on.
func TestAlone_ToolThatEndsItsGoroutine(t *testing.T) {
	w := newWorld(t, gate.ConfirmNever)
	withTools(t, w, nil, readers(w, map[string]func(context.Context, toolcrib.Call) (toolcrib.Output, error){
		"quits": func(context.Context, toolcrib.Call) (toolcrib.Output, error) {
			runtime.Goexit()
			return toolcrib.Output{}, nil
		},
		"echo": newEcho,
	})...)
	w.script(calls("quits", `{}`), calls("echo", `{}`), calls("quits", `{"n":2}`), say("ok"))
	s := run(t, w)
	equal(t, "results", strings.Join(results(s), ","), "quits error ,echo ok ,quits error ")
	equal(t, "content", s.Done.Content, "ok")
}

// What a call that is alone tells of its progress is shown while it runs, in order.
func TestAlone_Progress(t *testing.T) {
	w := newWorld(t, gate.ConfirmNever)
	withTools(t, w, nil, readers(w, map[string]func(context.Context, toolcrib.Call) (toolcrib.Output, error){
		"count": func(_ context.Context, c toolcrib.Call) (toolcrib.Output, error) {
			for i := range 3 {
				c.Progress(fmt.Sprint(i), float64(i)/3)
			}
			return toolcrib.Output{Text: "counted"}, nil
		},
	})...)
	w.script(calls("count", `{}`), say("ok"))
	run(t, w)
	var shown []string
	for _, f := range w.frames {
		if f.Event == journal.FrameToolProgress {
			shown = append(shown, fmt.Sprint(f.Data))
		}
	}
	if len(shown) != 3 || !strings.Contains(shown[2], "call_1 2") {
		t.Errorf("shown: %v", shown)
	}
}

// A panic of a watcher reaches whoever runs the run, as if it had driven itself.
func TestAlone_PanicReachesTheCaller(t *testing.T) {
	w := newWorld(t, gate.ConfirmNever)
	o := w.runner.Options
	want := errors.New("a watcher's")
	o.Watch = func(_ toolcrib.RunID, f journal.Frame) {
		if f.Event == string(journal.KindToolResult) {
			panic(want)
		}
	}
	w.runner, _ = agent.New(o)
	w.script(calls("echo", `{}`), say("never"))
	defer func() {
		if got := recover(); got != want { //nolint:errorlint // the very one
			t.Errorf("recovered %v", got)
		}
	}()
	_, err := w.runner.Run(t.Context(), task())
	t.Errorf("no panic, but %v", err)
}
